//! Which libraries and functions a built candidate may import.
//!
//! This is early feedback with a name in it, not the wall: the jail confines what runs, and the
//! judge looks at what actually ran. The rules are the paper's: raw CUDA, cuBLAS, cuDNN, tensor
//! allocation and shapes; no torch operators, no other libraries, no processes, files or sockets.

use warpwright_record::verdict::{Diagnostic, Severity};

use crate::elf;

/// Libraries that may be needed, by the name before `.so`; a trailing `*` stands for any rest.
const LIBRARIES: [&str; 21] = [
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

/// C functions that start processes, load code, open files or sockets, or reach other processes.
const FUNCTIONS: [&str; 69] = [
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "dl_iterate_phdr",
    "dlinfo",
    "system",
    "popen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "fork",
    "vfork",
    "_Fork",
    "clone",
    "posix_spawn",
    "posix_spawnp",
    "socket",
    "socketpair",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "recv",
    "recvfrom",
    "recvmsg",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "syscall",
    "kill",
    "tgkill",
    "open",
    "open64",
    "openat",
    "openat64",
    "creat",
    "creat64",
    "fopen",
    "fopen64",
    "freopen",
    "fdopen",
    "read",
    "pread",
    "pread64",
    "readv",
    "write",
    "pwrite",
    "pwrite64",
    "writev",
    "dup",
    "dup2",
    "dup3",
    "memfd_create",
    "shm_open",
    "setns",
    "unshare",
    "mount",
];

/// Python functions with which compiled code would run Python source or import modules.
const PYTHON: [&str; 15] = [
    "PyRun_",
    "PyEval_EvalCode",
    "PyEval_EvalFrame",
    "Py_CompileString",
    "PyImport_",
    "PyMarshal_",
    "PyCode_",
    "PyFunction_New",
    "PySys_",
    "Py_RunMain",
    "Py_BytesMain",
    "PyErr_Print",
    "PyCFunction_GetFunction",
    "PyEval_SetTrace",
    "PyEval_SetProfile",
];

/// Mangled beginnings of torch's other ways to compute.
const TORCH: [(&str, &str); 10] = [
    ("_ZN2at6native", "at::native"),
    ("_ZN5torch3jit", "torch::jit"),
    ("_ZNK5torch3jit", "torch::jit"),
    ("_ZN5torch2nn", "torch::nn"),
    ("_ZNK5torch2nn", "torch::nn"),
    ("_ZN3c1010Dispatcher", "c10::Dispatcher"),
    ("_ZNK3c1010Dispatcher", "c10::Dispatcher"),
    ("_ZNK3c1014OperatorHandle", "c10::OperatorHandle"),
    ("_ZN5torch8inductor", "torch::inductor"),
    ("_ZN4dnnl", "dnnl"),
];

/// Operators that allocate, describe or re-arrange tensors without computing values.
const OPERATORS: [&str; 66] = [
    "_empty_affine_quantized",
    "_nested_tensor_size",
    "_reshape_alias",
    "_to_copy",
    "_unsafe_view",
    "alias",
    "alias_copy",
    "as_strided",
    "as_strided_",
    "chunk",
    "clone",
    "contiguous",
    "copy_",
    "detach",
    "detach_",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "expand_as",
    "fill_",
    "flatten",
    "full",
    "full_like",
    "is_contiguous",
    "is_pinned",
    "is_same_size",
    "is_set_to",
    "item",
    "_local_scalar_dense",
    "movedim",
    "mT",
    "narrow",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "numpy_T",
    "ones",
    "ones_like",
    "permute",
    "record_stream",
    "requires_grad_",
    "reshape",
    "reshape_as",
    "resize_",
    "scalar_tensor",
    "select",
    "set_",
    "set_data",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "squeeze_",
    "t",
    "to",
    "transpose",
    "unbind",
    "unflatten",
    "unsqueeze",
    "view",
    "view_as",
    "zeros",
    "zeros_like",
];

/// Overload names follow the operator's in torch's symbols: `view_dtype`, `zero_`.
const OVERLOADED: [&str; 17] = [
    "as_strided_",
    "chunk_",
    "empty_",
    "expand_",
    "fill_",
    "flatten_",
    "full_",
    "movedim_",
    "narrow_",
    "ones_",
    "select_",
    "slice_",
    "squeeze_",
    "to_",
    "transpose_",
    "view_",
    "zero",
];

/// Everything in `library` that the rules forbid, each named; empty when it may be loaded.
/// `file` is what the diagnostics call the library; `ours` are libraries that our own flags brought in.
pub(crate) fn findings(library: &[u8], file: &str, ours: &[&str]) -> Vec<Diagnostic> {
    let Some(imports) = elf::imports(library) else {
        return vec![finding(file, "the library's import tables cannot be read".to_owned())];
    };
    let mut found = Vec::new();
    if imports.steers_loader {
        found.push(finding(
            file,
            "the library steers the loader (run path, audit or filter)".into(),
        ));
    }
    let brought = |name: &str| ours.contains(&name.split(".so").next().unwrap_or(name));
    for needed in imports.needed.iter().filter(|n| !library_allowed(n) && !brought(n)) {
        found.push(finding(file, format!("forbidden library: {needed}")));
    }
    for symbol in &imports.undefined {
        if let Some(what) = forbidden(symbol) {
            found.push(finding(file, what));
        }
    }
    found
}

fn finding(file: &str, message: String) -> Diagnostic {
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
    if FUNCTIONS.contains(&symbol) || symbol.starts_with("__libc_dlopen") {
        return Some(format!("forbidden function: {symbol}"));
    }
    if PYTHON.iter().any(|p| symbol.starts_with(p)) {
        return Some(format!("forbidden Python call from compiled code: {symbol}"));
    }
    if let Some((_, name)) = TORCH.iter().find(|(p, _)| symbol.starts_with(p)) {
        return Some(format!("forbidden use of {name}: {symbol}"));
    }
    if symbol.contains("basic_ifstream")
        || symbol.contains("basic_ofstream")
        || symbol.contains("basic_fstream")
        || symbol.contains("basic_filebuf")
    {
        return Some(format!("forbidden file access: {symbol}"));
    }
    let operator = operator_name(symbol)?;
    if operator_allowed(operator) {
        return None;
    }
    Some(format!("forbidden torch operator: {operator}"))
}

fn operator_allowed(operator: &str) -> bool {
    OPERATORS.contains(&operator) || OVERLOADED.iter().any(|p| operator.starts_with(p))
}

/// `_ZN2at4_ops6matmul4callE...` is `matmul`.
fn operator_name(symbol: &str) -> Option<&str> {
    let rest = symbol.strip_prefix("_ZN2at4_ops")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = rest[..digits].parse().ok()?;
    rest.get(digits..digits.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_operators_are_named_and_shapes_pass() {
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
            "PyObject_CallObject",
            "expf",
            "printf",
        ] {
            assert_eq!(forbidden(lawful), None, "{lawful}");
        }
    }

    #[test]
    fn functions_and_libraries() {
        for name in ["dlopen", "system", "execve", "fork", "socket", "ptrace", "syscall"] {
            assert!(forbidden(name).is_some(), "{name}");
        }
        assert!(forbidden("PyRun_StringFlags").is_some());
        assert!(forbidden("_ZNSt14basic_ifstreamIcSt11char_traitsIcEEC1Ev").is_some());
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
    fn what_is_not_a_library_is_refused() {
        assert_eq!(findings(b"not ELF", "libkernels.so", &[]).len(), 1);
    }
}
