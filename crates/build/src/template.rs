//! The fixed files of every workspace; the builder also adds them to every candidate.

/// `binding.cpp`: the module `cuda_extension`.
pub const BINDING_CPP: &str = include_str!("../template/binding.cpp");
/// `binding_registry.h`: with it, `kernels/*_binding.cpp` register themselves.
pub const BINDING_REGISTRY_H: &str = include_str!("../template/binding_registry.h");

/// The fixed files by workspace-relative name. A candidate's own files of these names are ignored.
pub const FIXED: [(&str, &str); 2] =
    [("binding.cpp", BINDING_CPP), ("binding_registry.h", BINDING_REGISTRY_H)];
