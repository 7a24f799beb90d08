// How the functions of kernels/*_binding.cpp reach Python.
//
// Each binding file ends with
//
//     static void bind_gelu(pybind11::module& m) { m.def("gelu", &gelu); }
//     REGISTER_BINDING(gelu, bind_gelu);
//
// and `import cuda_extension` then has `gelu`. Only pybind11 is included here: the torch headers
// take ten seconds to compile, and a file pays for what it includes.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

// Every binding of the extension, filled while the library is being loaded.
class BindingRegistry {
public:
    using BindingFunction = std::function<void(pybind11::module&)>;

    // A function-local static: it exists before the first registrar of any file needs it.
    static BindingRegistry& getInstance() {
        static BindingRegistry registry;
        return registry;
    }

    void registerBinding(const std::string& name, BindingFunction function) {
        entries_.emplace_back(name, std::move(function));
    }

    void applyBindings(pybind11::module& module) {
        for (auto& entry : entries_) {
            entry.second(module);
        }
    }

private:
    BindingRegistry() = default;

    std::vector<std::pair<std::string, BindingFunction>> entries_;
};

// Registers in its constructor, so that a static object at file scope is enough.
class BindingRegistrar {
public:
    BindingRegistrar(const std::string& name, BindingRegistry::BindingFunction function) {
        BindingRegistry::getInstance().registerBinding(name, std::move(function));
    }
};

#define REGISTER_BINDING(name, function)                    \
    static BindingRegistrar warpwright_registrar_##name(    \
        #name, [](pybind11::module& module) { function(module); })
