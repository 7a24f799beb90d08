// The extension's entry point. Fixed: it is written anew with every build, and what a workspace
// changes here has no effect. Bindings register themselves, see binding_registry.h.

#include <pybind11/pybind11.h>

#include "binding_registry.h"

PYBIND11_MODULE(cuda_extension, module) {
    BindingRegistry::getInstance().applyBindings(module);
}
