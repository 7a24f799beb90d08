//! Checks the libraries and functions that a built candidate imports: only those of
//! [`crate::allowed`] are accepted.
//!
//! This is early feedback by name, not the security boundary. The jail confines the program, and
//! the judge's ablations (`ablation.rs` there) find work that the candidate's own kernels do not
//! do.

use warpwright_record::verdict::{Diagnostic, Severity};

use crate::elf;
use crate::{allowed, operators, symbol};

/// Libraries that may be needed, by the name before `.so`; a trailing `*` matches any suffix.
const LIBRARIES: &[&str] = &[
    "libc",
    "libm",
    "libmvec",
    "libstdc++",
    "libgcc_s",
    "libgomp",
    "libpthread",
    "libdl",
    "librt",
    "ld-linux*",
    "libcuda",
    "libcudart",
    "libcublas",
    "libcublasLt",
    "libcudnn*",
    "libtorch",
    "libtorch_cpu",
    "libtorch_cuda",
    "libtorch_python",
    "libc10",
    "libc10_cuda",
    "libtorch_global_deps",
];

/// Facts about a linked library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Matrix products and convolutions of NVIDIA's libraries that it calls, sorted.
    pub library_work: Vec<String>,
    /// Whether it calls the runtime to launch kernels.
    pub launches: bool,
    /// All violations of the rules, each by name; empty if the library may be loaded.
    pub findings: Vec<Diagnostic>,
}

/// Examines `library`. `file` is its name in diagnostics; `ours` are libraries that our own flags
/// added; `host` marks a build for the cpu device.
pub(crate) fn look(library: &[u8], file: &str, ours: &[&str], host: bool) -> Imported {
    let mut found = Imported::default();
    let mut refuse = |message: String| found.findings.push(finding(file, message));
    let Some(imports) = elf::imports(library) else {
        refuse("the library's import tables cannot be read".to_owned());
        return found;
    };
    if imports.steers_loader {
        refuse("the library steers the loader (run path, audit or filter)".into());
    }
    if imports.writable_code {
        refuse("the library asks for memory that is writable and executable".into());
    }
    let brought = |name: &str| ours.contains(&name.split(".so").next().unwrap_or(name));
    for needed in imports.needed.iter().filter(|n| !library_allowed(n) && !brought(n)) {
        refuse(format!("forbidden library: {needed}"));
    }
    // AddressSanitizer is asked for by name; the stacks of a block's threads are `hostcuda`'s.
    let beside = |symbol: &str| {
        let sanitizer = ["__asan_", "__sanitizer_"].iter().any(|p| symbol.starts_with(p));
        !ours.is_empty() && sanitizer || host && allowed::HOST_STACKS.contains(&symbol)
    };
    for symbol in imports.undefined.iter().filter(|symbol| !beside(symbol)) {
        if let Some(what) = forbidden(symbol) {
            refuse(what);
        }
    }
    let work = imports.undefined.iter().filter(|symbol| allowed::library_work(symbol));
    found.library_work = work.cloned().collect();
    found.launches = imports.undefined.iter().any(|s| allowed::LAUNCHES.contains(&s.as_str()));
    found
}

/// A finding about a whole file.
pub(crate) fn finding(file: &str, message: String) -> Diagnostic {
    Diagnostic {
        file: Some(file.to_owned()),
        line: None,
        column: None,
        severity: Severity::Error,
        message,
        excerpt: String::new(),
    }
}

fn library_allowed(name: &str) -> bool {
    let stem = name.split(".so").next().unwrap_or(name);
    !name.contains('/')
        && LIBRARIES.iter().any(|l| match l.strip_suffix('*') {
            Some(prefix) => stem.starts_with(prefix),
            None => stem == *l,
        })
}

/// Why `symbol` may not be imported, in a phrase.
fn forbidden(symbol: &str) -> Option<String> {
    if let Some(path) = symbol::path(symbol) {
        return forbidden_name(symbol, &path);
    }
    let python = ["Py", "_Py", "THP"].iter().any(|p| symbol.starts_with(p));
    let library = ["cublas", "cudnn"].iter().any(|p| symbol.starts_with(p));
    if python {
        return (!allowed::python(symbol))
            .then(|| format!("forbidden Python call from compiled code: {symbol}"));
    }
    if library {
        return (!allowed::library_function(symbol)).then(|| {
            format!(
                "forbidden library function: {symbol} (cuBLAS is for matrix products, cuDNN for \
                 convolutions)"
            )
        });
    }
    if allowed::c_function(symbol) || allowed::runtime(symbol) {
        return None;
    }
    Some(format!("forbidden function: {symbol}"))
}

fn forbidden_name(symbol: &str, path: &[&str]) -> Option<String> {
    if let ["at", "_ops", operator, ..] = path {
        return (!operators::allowed(operator))
            .then(|| format!("forbidden torch operator: {operator}"));
    }
    if allowed::cpp_name(path) || allowed::c_function(symbol) {
        return None;
    }
    let name = path.join("::");
    let whose = match path.first() {
        Some(&("at" | "c10" | "caffe2" | "torch")) => "use of torch",
        _ => "function",
    };
    Some(format!("forbidden {whose}: {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_operators_are_refused_and_shape_operators_allowed() {
        let matmul = "_ZN2at4_ops6matmul4callERKNS_6TensorES4_";
        assert_eq!(forbidden(matmul).unwrap(), "forbidden torch operator: matmul");
        let add = "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE";
        assert_eq!(forbidden(add).unwrap(), "forbidden torch operator: add_Tensor");
        for lawful in [
            "_ZN2at4_ops10empty_like4callERKNS_6TensorE",
            "_ZN2at4_ops10view_dtype4callERKNS_6TensorE",
            "_ZN2at4_ops12slice_Tensor4callERKNS_6TensorE",
            "_ZN2at4_ops5zero_4callERNS_6TensorE",
            "_ZNK2at10TensorBase8data_ptrIfEEPT_v",
            "_ZN3c106detail14torchCheckFailEPKcS2_jS2_",
            "_ZTVN5torch8autograd12AutogradMetaE",
            "_ZSt21ios_base_library_initv",
            "_ZGVeN16v_expf",
            "PyObject_CallObject",
            "expf",
            "lgammaf_r",
            "printf",
            "__memcpy_chk",
            "__once_proxy",
            "wmemcpy",
            "__divti3",
            "cudaGetDeviceProperties_v2",
            "cublasSgemm_v2",
            "cublasLtMatmul",
            "cudnnConvolutionForward",
        ] {
            assert_eq!(forbidden(lawful), None, "{lawful}");
        }
    }

    #[test]
    fn unlisted_symbol_is_refused_by_name() {
        for (symbol, expected) in [
            ("_ZN2at3cpu4siluERKNS_6TensorE", "forbidden use of torch: at::cpu::silu"),
            ("_ZN2at4cuda7add_outE", "forbidden use of torch: at::cuda::add_out"),
            ("_ZN2at6native6matmulE", "forbidden use of torch: at::native::matmul"),
            (
                "_ZN2at8internal15invoke_parallelE",
                "forbidden use of torch: at::internal::invoke_parallel",
            ),
            ("_ZN2at13globalContextEv", "forbidden use of torch: at::globalContext"),
            (
                "_ZN3c1010Dispatcher9singletonEv",
                "forbidden use of torch: c10::Dispatcher::singleton",
            ),
            ("_ZN5torch3jit11parseSchemaE", "forbidden use of torch: torch::jit::parseSchema"),
            ("_ZN5torch7LibraryC1E", "forbidden use of torch: torch::Library"),
            ("_ZN4dnnl6engineE", "forbidden function: dnnl::engine"),
            ("_ZNSt6thread15_M_start_threadE", "forbidden function: std::thread::_M_start_thread"),
            ("_ZNSt13basic_filebufIcE4openE", "forbidden function: std::basic_filebuf"),
            (
                "_ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1Ev",
                "forbidden function: std::basic_ifstream",
            ),
            ("sgemm_", "forbidden function: sgemm_"),
            ("pthread_create", "forbidden function: pthread_create"),
            ("dlsym", "forbidden function: dlsym"),
            ("syscall", "forbidden function: syscall"),
            ("mprotect", "forbidden function: mprotect"),
            ("cuModuleLoadData", "forbidden function: cuModuleLoadData"),
            ("nvrtcCompileProgram", "forbidden function: nvrtcCompileProgram"),
            ("cudaLaunchHostFunc", "forbidden function: cudaLaunchHostFunc"),
            ("cudaIpcOpenMemHandle", "forbidden function: cudaIpcOpenMemHandle"),
            ("cudaMallocManaged", "forbidden function: cudaMallocManaged"),
            ("cudaDeviceReset", "forbidden function: cudaDeviceReset"),
            ("PyRun_StringFlags", "forbidden Python call from compiled code: PyRun_StringFlags"),
        ] {
            assert_eq!(forbidden(symbol).as_deref(), Some(expected), "{symbol}");
        }
        for library in ["cublasSgeam", "cudnnSoftmaxForward", "cudnnBackendExecute"] {
            assert!(forbidden(library).unwrap().contains(library), "{library}");
        }
        for name in ["system", "execve", "fork", "socket", "ptrace", "prctl", "sigaction", "usleep"]
        {
            assert!(forbidden(name).is_some(), "{name}");
        }
    }

    #[test]
    fn only_listed_libraries_are_allowed() {
        for library in ["libc.so.6", "libcudart.so.13", "libcudnn_ops.so.9", "ld-linux-x86-64.so.2"]
        {
            assert!(library_allowed(library), "{library}");
        }
        for library in
            ["libcurl.so.4", "libpython3.11.so", "./libm.so", "libcufft.so.12", "libcx.so"]
        {
            assert!(!library_allowed(library), "{library}");
        }
    }

    #[test]
    fn non_elf_file_is_refused() {
        assert_eq!(look(b"not ELF", "libkernels.so", &[], false).findings.len(), 1);
    }
}
