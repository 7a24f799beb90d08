//! The functions that a candidate's binary may import; all others are refused.
//!
//! A launcher checks its arguments, allocates, and launches. The lists allow what that needs:
//!
//! - the C and C++ runtimes without processes, threads, files, sockets and loading;
//! - CUDA's runtime without modules, callbacks, memory of other processes and device limits;
//! - matrix products of cuBLAS and convolutions of cuDNN;
//! - allocation, shapes and streams of torch;
//! - the Python functions that pybind11 calls.

use crate::symbol;

/// C functions and data, except mathematics.
#[rustfmt::skip]
const C: &[&str] = &[
    "_GLOBAL_OFFSET_TABLE_", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable",
    "__assert_fail", "__ctype_b_loc", "__ctype_tolower_loc", "__ctype_toupper_loc",
    "__dso_handle", "__dynamic_cast", "__gcc_personality_v0", "__errno_location",
    "__gmon_start__", "__gxx_personality_v0", "__isoc23_sscanf", "__isoc23_strtol",
    "__isoc23_strtoll", "__isoc23_strtoul", "__isoc23_strtoull", "__isoc99_sscanf",
    "__libc_single_threaded", "__cpu_indicator_init", "__cpu_model", "__pthread_key_create",
    "__once_proxy", "__stack_chk_fail", "__tls_get_addr", "abort", "abs", "aligned_alloc", "atexit", "atof",
    "atoi", "atol", "atoll", "bcmp", "bsearch", "calloc", "clock", "clock_gettime", "div", "exit",
    "fflush", "fprintf", "fputc", "fputs", "free", "fwrite", "getenv", "gettimeofday", "isalnum",
    "isalpha", "isdigit", "isspace", "labs", "ldiv", "llabs", "lldiv", "malloc", "memchr",
    "memcmp", "memcpy", "memmove", "mempcpy", "memset", "perror", "posix_memalign", "printf",
    "pthread_mutex_destroy", "pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_trylock",
    "pthread_mutex_unlock", "pthread_once", "pthread_rwlock_rdlock", "pthread_rwlock_unlock",
    "pthread_rwlock_wrlock", "putc", "putchar", "puts", "qsort", "rand", "rand_r", "realloc",
    "snprintf", "sprintf", "srand", "sscanf", "stderr", "stdout", "stpcpy", "strcasecmp",
    "strcat", "strchr", "strcmp", "strcpy", "strdup", "strerror", "strlen", "strncat", "strncmp",
    "strncpy", "strnlen", "strpbrk", "strrchr", "strstr", "strtod", "strtof", "strtok", "strtol",
    "strtoll", "strtoul", "strtoull", "time", "tolower", "toupper", "vfprintf", "vprintf",
    "vsnprintf", "vsprintf", "wcslen", "wcscmp", "wmemchr", "wmemcmp", "wmemcpy", "wmemmove",
    "wmemset", "memrchr", "strcspn", "strncasecmp", "strspn", "strtok_r", "strtold", "islower",
    "ispunct", "isupper", "isxdigit",
];

/// Functions that the headers of the cpu device need for the stacks of a block's threads.
pub(crate) const HOST_STACKS: [&str; 3] = ["mmap", "mprotect", "munmap"];

/// C functions and data that kernels of the cpu device may need, with `hostcuda`'s runtime, except mathematics: what
/// device code may call on a GPU, memory for stacks and shared memory, and what compilers make of loops.
#[rustfmt::skip]
const KERNEL: &[&str] = &[
    "_GLOBAL_OFFSET_TABLE_", "__assert_fail", "__dso_handle", "__errno_location",
    "__gxx_personality_v0", "__stack_chk_fail", "__tls_get_addr", "abort", "aligned_alloc",
    "bcmp", "calloc", "fprintf", "fputc", "fputs", "free", "fwrite", "malloc", "memchr", "memcmp",
    "memcpy", "memmove", "mempcpy", "memset", "posix_memalign", "printf", "putc", "putchar",
    "puts", "realloc", "stderr", "stdout", "strcmp", "strlen", "strncmp", "vfprintf", "vprintf",
];

/// Functions that compilers call: exceptions and OpenMP.
const COMPILER: &[&str] = &["_Unwind_", "__cxa_", "GOMP_", "omp_get_", "omp_in_"];

/// Functions of `libgcc` for arithmetic without a machine instruction; they end in a digit.
#[rustfmt::skip]
const ARITHMETIC: &[&str] = &[
    "__add", "__ash", "__clz", "__cmp", "__ctz", "__div", "__eq", "__extend", "__ffs", "__ge",
    "__gt", "__le", "__lsh", "__lt", "__mod", "__mul", "__ne", "__parity", "__popcount", "__pow",
    "__sub", "__trunc", "__udiv", "__umod", "__unord",
];

/// The same, for functions that end in a type.
const CONVERSIONS: &[&str] = &["__fix", "__float"];

/// Functions of `libm`, without the letter for their type.
#[rustfmt::skip]
const MATHEMATICS: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor", "fma",
    "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb", "j0", "j1", "jn", "ldexp", "lgamma",
    "lgamma_r", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint", "lround",
    "modf", "nan", "nearbyint", "nextafter", "nexttoward", "pow", "remainder", "remquo", "rint",
    "round", "roundeven", "scalbln", "scalbn", "signgam", "sin", "sincos", "sinh", "sqrt", "tan",
    "tanh", "tgamma", "trunc", "y0", "y1", "yn", "__finite", "__fpclassify", "__isinf", "__isnan",
    "__signbit",
];

/// Names below `std`; a `*` at the end marks a prefix. Excluded are threads, synchronisation, files
/// and file systems.
#[rustfmt::skip]
const STD: &[&str] = &[
    "_Fnv_hash_bytes", "_Hash_bytes", "_List_node_base", "_Rb_tree_*", "_Sp_*", "_V2",
    "__basic_*", "__codecvt*", "__cow_*", "__ctype*", "__cxx11", "__detail", "__exception_ptr",
    "__future_base", "__glibcxx_*", "__istream_extract", "__num_base", "__once_call",
    "__once_callable", "__once_functor", "__ostream_insert", "__ostream_fill", "__ostream_write",
    "__replacement_assert", "__throw_*", "allocator", "bad_*", "basic_ios", "basic_iostream",
    "basic_istream", "basic_ostream", "basic_streambuf", "basic_string", "cerr", "chrono", "clog",
    "cout", "ctype", "current_exception", "domain_error", "endl", "error_category", "error_code",
    "error_condition", "exception", "flush", "from_chars", "generic_category", "get_terminate",
    "getline", "has_facet", "invalid_argument", "ios_base", "ios_base_library_init", "istream",
    "length_error", "locale", "logic_error", "nested_exception", "nothrow", "num_get", "num_put",
    "numpunct", "operator!=", "operator+", "operator<", "operator<<", "operator==", "operator>>",
    "out_of_range", "overflow_error", "pmr", "range_error", "rethrow_exception", "runtime_error",
    "swap", "system_category", "system_error", "terminate", "to_chars", "type_info",
    "uncaught_exception", "uncaught_exceptions", "underflow_error", "unexpected", "use_facet",
];

/// CUDA's runtime: whole names, without the version suffix that some have.
#[rustfmt::skip]
const RUNTIME: &[&str] = &[
    "__cudaGetKernel", "__cudaInitModule", "__cudaLaunchKernel", "__cudaPopCallConfiguration",
    "__cudaPushCallConfiguration", "__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction", "__cudaRegisterVar", "__cudaUnregisterFatBinary",
    "cudaCreateChannelDesc", "cudaCreateTextureObject", "cudaDestroyTextureObject",
    "cudaDeviceGetAttribute", "cudaDeviceGetStreamPriorityRange", "cudaDeviceSetCacheConfig",
    "cudaDeviceSynchronize", "cudaDriverGetVersion", "cudaEventCreate",
    "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventElapsedTime", "cudaEventQuery",
    "cudaEventRecord", "cudaEventRecordWithFlags", "cudaEventSynchronize", "cudaFree",
    "cudaFreeAsync", "cudaFuncGetAttributes", "cudaFuncGetName", "cudaFuncSetAttribute",
    "cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig", "cudaGetDevice", "cudaGetDeviceCount",
    "cudaGetDeviceProperties", "cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError",
    "cudaGetSymbolAddress", "cudaGetSymbolSize", "cudaGraphDestroy", "cudaGraphExecDestroy",
    "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphLaunch", "cudaGraphUpload",
    "cudaLaunchCooperativeKernel", "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMalloc",
    "cudaMallocAsync", "cudaMallocPitch", "cudaMemGetInfo", "cudaMemcpy", "cudaMemcpy2D",
    "cudaMemcpy2DAsync", "cudaMemcpy3D", "cudaMemcpy3DAsync", "cudaMemcpyAsync",
    "cudaMemcpyFromSymbol", "cudaMemcpyFromSymbolAsync", "cudaMemcpyToSymbol",
    "cudaMemcpyToSymbolAsync", "cudaMemset", "cudaMemset2D", "cudaMemset2DAsync",
    "cudaMemsetAsync", "cudaPeekAtLastError", "cudaPointerGetAttributes", "cudaRuntimeGetVersion",
    "cudaSetDevice", "cudaStreamBeginCapture", "cudaStreamCreate", "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority", "cudaStreamDestroy", "cudaStreamEndCapture",
    "cudaStreamGetCaptureInfo", "cudaStreamGetFlags", "cudaStreamGetPriority",
    "cudaStreamIsCapturing", "cudaStreamQuery", "cudaStreamSynchronize", "cudaStreamWaitEvent",
    "cudaThreadExchangeStreamCaptureMode",
];

/// Functions that launch a kernel; a build without kernels replaces all of them.
pub(crate) const LAUNCHES: [&str; 4] = [
    "__cudaLaunchKernel",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
];

/// Driver functions that describe tensors to the device's copy engine; the driver computes nothing
/// in them.
pub(crate) const DRIVER: [&str; 3] =
    ["cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuGetErrorString"];

/// Prefixes of cuBLAS and cuDNN functions needed in addition to the compute functions.
#[rustfmt::skip]
const LIBRARY_SERVICES: &[&str] = &[
    "cublasCreate", "cublasDestroy", "cublasGetAtomicsMode", "cublasGetMathMode",
    "cublasGetPointerMode", "cublasGetProperty", "cublasGetStatus", "cublasGetStream",
    "cublasGetVersion", "cublasLtCreate", "cublasLtDestroy", "cublasLtGetStatus",
    "cublasLtGetVersion", "cublasLtMatmulAlgo", "cublasLtMatmulDesc", "cublasLtMatmulPreference",
    "cublasLtMatrixLayout", "cublasSetAtomicsMode", "cublasSetMathMode", "cublasSetPointerMode",
    "cublasSetSmCountTarget", "cublasSetStream", "cublasSetWorkspace", "cudnnCreate",
    "cudnnDestroy", "cudnnFindConvolution", "cudnnGetConvolution", "cudnnGetError",
    "cudnnGetFilter", "cudnnGetFoldedConv", "cudnnGetLastError", "cudnnGetStream",
    "cudnnGetTensor", "cudnnGetVersion", "cudnnSetActivationDescriptor", "cudnnSetConvolution",
    "cudnnSetFilter", "cudnnSetStream", "cudnnSetTensor4d", "cudnnSetTensorNd",
];

/// Parts of torch for allocation, tensor descriptions, devices, streams and errors.
#[rustfmt::skip]
const TORCH: &[&str] = &[
    "at::AutoDispatchBelowADInplaceOrView", "at::AutoDispatchBelowAutograd",
    "at::OptionalTensorRef", "at::Tensor::item", "at::TensorBase", "at::TensorGeometry",
    "at::TensorMaker", "at::cuda::current_device", "at::cuda::getCurrentCUDABlasHandle",
    "at::cuda::getCurrentCUDABlasLtHandle", "at::cuda::getCurrentDeviceProperties",
    "at::cuda::getDeviceProperties", "at::cuda::warp_size", "at::detail::empty_cpu",
    "at::detail::empty_cuda", "at::detail::empty_generic", "at::detail::empty_strided_cpu",
    "at::detail::empty_strided_cuda", "at::detail::noopDelete",
    "at::impl::VariableHooksInterface", "c10::ArrayRef", "c10::AutogradMetaInterface",
    "c10::AutogradState", "c10::DispatchKeySet", "c10::Error", "c10::GradMode", "c10::IndexError",
    "c10::InferenceMode", "c10::NotImplementedError", "c10::OptionalArrayRef", "c10::Scalar",
    "c10::SmallVectorBase", "c10::Storage", "c10::StorageImpl", "c10::Stream", "c10::SymBool",
    "c10::SymFloat", "c10::SymInt", "c10::SymNodeImpl", "c10::SymbolicShapeMeta",
    "c10::TensorImpl", "c10::TensorOptions", "c10::TypeError", "c10::UndefinedTensorImpl",
    "c10::ValueError", "c10::Warning", "c10::WarningUtils",
    "c10::cuda::CUDACachingAllocator::allocator", "c10::cuda::CUDAKernelLaunchRegistry",
    "c10::cuda::CUDAStream", "c10::cuda::ExchangeDevice", "c10::cuda::GetDevice",
    "c10::cuda::GetDeviceCount", "c10::cuda::MaybeExchangeDevice", "c10::cuda::MaybeSetDevice",
    "c10::cuda::SetDevice", "c10::cuda::SetTargetDevice",
    "c10::cuda::c10_cuda_check_implementation",
    "c10::cuda::c10_retrieve_device_side_assertion_info", "c10::cuda::current_device",
    "c10::cuda::device_count", "c10::cuda::device_count_ensure_non_zero",
    "c10::cuda::device_synchronize", "c10::cuda::exchange_device",
    "c10::cuda::getCurrentCUDAStream", "c10::cuda::getDefaultCUDAStream",
    "c10::cuda::getStreamFromExternal", "c10::cuda::getStreamFromPool",
    "c10::cuda::get_cuda_check_suffix", "c10::cuda::impl", "c10::cuda::maybe_exchange_device",
    "c10::cuda::set_device", "c10::cuda::setCurrentCUDAStream",
    "c10::cuda::warn_or_error_on_sync", "c10::cuda::warning_state", "c10::Device",
    "c10::DeviceTypeName", "c10::detail", "c10::get_default_dtype",
    "c10::impl::ExcludeDispatchKeyGuard", "c10::impl::GPUTrace",
    "c10::impl::IncludeDispatchKeyGuard", "c10::impl::_force_tls_local_dispatch_key_set",
    "c10::impl::cow", "c10::impl::device_guard_impl_registry",
    "c10::impl::raw_local_dispatch_key_set", "c10::impl::tls_is_dispatch_key_excluded",
    "c10::impl::tls_is_dispatch_key_included", "c10::impl::tls_local_dispatch_key_set",
    "c10::intrusive_ptr_target", "c10::isValidDeviceType", "c10::operator!=", "c10::operator<<",
    "c10::operator==", "c10::report_overflow", "c10::throwNullDataPtrError", "c10::toString",
    "c10::typeMetaToScalarType", "c10::warn", "c10::warnDeprecatedDataPtr", "caffe2::TypeMeta",
    "pybind11", "python_error", "torch::PyWarningHandler", "torch::autograd::AutogradMeta",
    "torch::processErrorMsg", "torch::translate_exception_to_python",
];

/// The Python side of torch: prefixes of C names.
#[rustfmt::skip]
const TORCH_PYTHON: &[&str] = &[
    "THPDeviceType", "THPDtypeType", "THPException", "THPGeneratorClass", "THPLayoutType",
    "THPMemoryFormatType", "THPUtils_", "THPVariableClass", "THPVariable_Wrap",
];

/// Prefixes of the Python functions that pybind11 calls. Excluded is everything that runs source,
/// imports modules, or reaches other frames' variables or the interpreter's own functions.
#[rustfmt::skip]
const PYTHON: &[&str] = &[
    "PyArg_", "PyBaseObject_Type", "PyBool_", "PyBuffer_", "PyByteArray_", "PyBytes_",
    "PyCFunction_New", "PyCFunction_Type", "PyCMethod_", "PyCallable_", "PyCapsule_",
    "PyComplex_", "PyDict_", "PyErr_BadInternalCall", "PyErr_CheckSignals", "PyErr_Clear",
    "PyErr_ExceptionMatches", "PyErr_Fetch", "PyErr_Format", "PyErr_GivenExceptionMatches",
    "PyErr_NewException", "PyErr_NoMemory", "PyErr_NormalizeException", "PyErr_Occurred",
    "PyErr_Restore", "PyErr_SetObject", "PyErr_SetString", "PyErr_WarnEx", "PyErr_WarnFormat",
    "PyErr_WriteUnraisable", "PyEval_AcquireThread", "PyEval_GetBuiltins", "PyEval_RestoreThread",
    "PyEval_SaveThread", "PyExc_", "PyException_", "PyFloat_", "PyFrame_GetBack",
    "PyFrame_GetCode", "PyFrame_GetLineNumber", "PyFrozenSet_", "PyGILState_", "PyGen_Type",
    "PyIndex_", "PyInstanceMethod_", "PyInterpreterState_Get", "PyIter_", "PyList_", "PyLong_",
    "PyMapping_", "PyMem_", "PyMemoryView_", "PyMethod_", "PyModuleDef_", "PyModule_",
    "PyNumber_", "PyOS_FSPath", "PyObject_", "PyProperty_Type", "PySequence_", "PySet_",
    "PySlice_", "PyStaticMethod_", "PyThreadState_", "PyThread_get_thread_ident", "PyThread_tss_",
    "PyTuple_", "PyType_", "PyUnicode_", "PyWeakref_", "Py_BuildValue", "Py_DecRef",
    "Py_GetVersion", "Py_IncRef", "Py_IsInitialized", "Py_Version", "_PyObject_",
    "_PyThreadState_UncheckedGet", "_PyType_Lookup", "_Py_CheckFunctionResult", "_Py_Dealloc",
    "_Py_FalseStruct", "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct",
    "_Py_EllipsisObject",
];

/// Whether a launcher may need this C function.
pub(crate) fn c_function(symbol: &str) -> bool {
    let unchecked = symbol.strip_prefix("__").and_then(|s| s.strip_suffix("_chk"));
    C.contains(&symbol) || unchecked.is_some_and(|name| C.contains(&name)) || computes(symbol)
}

/// Whether kernels of the cpu device may need this symbol, with `hostcuda`'s runtime: see [`crate::alone`].
pub(crate) fn kernel_import(symbol: &str) -> bool {
    if let Some(path) = symbol::path(symbol) {
        return match path[..] {
            ["__cxxabiv1", ..]
            | ["std", "terminate"]
            | ["std", "chrono", "_V2", "steady_clock", ..] => true,
            ["std", name, ..] => name.starts_with("__throw_"),
            [operator] => {
                operator.starts_with("operator new") || operator.starts_with("operator delete")
            }
            _ => false,
        };
    }
    let unchecked = symbol.strip_prefix("__").and_then(|s| s.strip_suffix("_chk"));
    KERNEL.contains(&symbol)
        || unchecked.is_some_and(|name| KERNEL.contains(&name))
        || HOST_STACKS.contains(&symbol)
        || computes(symbol)
}

/// Whether this is a function that compilers call by themselves, or mathematics.
fn computes(symbol: &str) -> bool {
    begins(COMPILER, symbol)
        || begins(ARITHMETIC, symbol) && symbol.ends_with(|c: char| c.is_ascii_digit())
        || begins(CONVERSIONS, symbol)
        || mathematics(symbol)
        || vector_mathematics(symbol)
}

/// Whether this is a function of `libm`, such as `expf` or `__expf_finite`.
fn mathematics(symbol: &str) -> bool {
    let finite = symbol.strip_prefix("__").and_then(|s| s.strip_suffix("_finite"));
    let name = finite.unwrap_or(symbol);
    let untyped = name.strip_suffix(['f', 'l']).unwrap_or(name);
    // `lgammaf_r` has its letter inside.
    let inner = name.replace("f_r", "_r");
    [name, untyped, inner.as_str()].iter().any(|name| MATHEMATICS.contains(name))
}

/// Whether this is a function of `libmvec`, such as `_ZGVeN16v_expf`, and not the guard of a C++
/// variable.
fn vector_mathematics(symbol: &str) -> bool {
    let Some(rest) = symbol.strip_prefix("_ZGV") else { return false };
    let Some((kind, name)) = rest.split_once('_') else { return false };
    kind.starts_with(['b', 'c', 'd', 'e']) && kind[1..].starts_with(['N', 'M']) && mathematics(name)
}

/// Whether launchers and bindings may need a C++ name, given as its path.
pub(crate) fn cpp_name(path: &[&str]) -> bool {
    match path {
        ["__cxxabiv1" | "__gnu_cxx" | "typeinfo", ..]
        | ["std"]
        | ["std", "thread", "hardware_concurrency"] => true,
        ["std", "__cxx11", name, ..] => {
            name.starts_with("basic_string")
                || *name == "to_string"
                || matches!(*name, "basic_istringstream" | "basic_ostringstream" | "numpunct")
        }
        ["std", name, ..] => STD.iter().any(|known| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning) && *name != "__basic_file",
            None => name == known,
        }),
        [operator] if operator.starts_with("operator ") => true,
        _ => TORCH.iter().any(|known| {
            let mut names = path.iter();
            known.split("::").all(|name| names.next() == Some(&name))
        }),
    }
}

/// Whether candidates may call this function of CUDA's runtime.
pub(crate) fn runtime(symbol: &str) -> bool {
    let unversioned = symbol
        .rsplit_once("_v")
        .filter(|(_, version)| version.bytes().all(|b| b.is_ascii_digit()))
        .map_or(symbol, |(name, _)| name);
    RUNTIME.contains(&unversioned)
        || DRIVER.contains(&symbol)
        || symbol.starts_with("cudaOccupancy")
}

/// Whether this is an allowed function of cuBLAS or cuDNN: a compute function, or one that it
/// needs.
pub(crate) fn library_function(symbol: &str) -> bool {
    library_work(symbol) || begins(LIBRARY_SERVICES, symbol)
}

/// Whether this function computes: a matrix product of cuBLAS, or a convolution of cuDNN.
pub(crate) fn library_work(symbol: &str) -> bool {
    let lower = symbol.to_ascii_lowercase();
    let product =
        symbol.starts_with("cublas") && (lower.contains("gemm") || lower.contains("gemv"));
    product
        || symbol == "cublasLtMatmul"
        || [
            "cudnnConvolutionForward",
            "cudnnConvolutionBiasActivationForward",
            "cudnnConvolutionBackwardData",
            "cudnnConvolutionBackwardFilter",
        ]
        .contains(&symbol)
}

/// Whether bindings may need this C name of Python, or of torch's Python side.
pub(crate) fn python(symbol: &str) -> bool {
    begins(PYTHON, symbol) || begins(TORCH_PYTHON, symbol)
}

fn begins(list: &[&str], symbol: &str) -> bool {
    list.iter().any(|beginning| symbol.starts_with(beginning))
}
