//! The functions of cuDNN that are called.

use std::ffi::{c_double, c_float, c_int, c_void};
use std::path::Path;

use libloading::Library;

use crate::driver::Handle;
use crate::failure::Failure;

/// `cudnnGetConvolutionForwardAlgorithm_v7` and that of transposed convolutions: two tensors or a tensor and a
/// filter, in the order of the function, then the convolution, what is written, and the results.
type Algorithms = unsafe extern "C" fn(
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
    c_int,
    *mut c_int,
    *mut Performance,
) -> c_int;
/// `cudnnGetConvolutionForwardWorkspaceSize` and its like.
type Workspace =
    unsafe extern "C" fn(Handle, Handle, Handle, Handle, Handle, c_int, *mut usize) -> c_int;
/// `cudnnConvolutionForward` and `cudnnConvolutionBackwardData`: a factor, two operands, the convolution, the
/// algorithm, a workspace, the other factor, and what is written.
type Run = unsafe extern "C" fn(
    Handle,
    *const c_void,
    Handle,
    *const c_void,
    Handle,
    *const c_void,
    Handle,
    c_int,
    *mut c_void,
    usize,
    *const c_void,
    Handle,
    *mut c_void,
) -> c_int;

/// `cudnnConvolutionFwdAlgoPerf_t` and `cudnnConvolutionBwdDataAlgoPerf_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct Performance {
    pub(super) algorithm: c_int,
    pub(super) status: c_int,
    pub(super) time: c_float,
    pub(super) memory: usize,
    pub(super) determinism: c_int,
    pub(super) math: c_int,
    pub(super) reserved: [c_int; 3],
}

// Sizes and offsets of cudnn_cnn.h on 64-bit machines.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Performance>() == 48);
    assert!(offset_of!(Performance, memory) == 16 && offset_of!(Performance, math) == 28);
};

/// Declares cuDNN's functions, their types, and how they are found, in one table.
macro_rules! cudnn {
    ($($field:ident = $symbol:literal $kind:ty;)*) => {
        pub(super) struct Functions {
            $(pub(super) $field: $kind,)*
            _library: Library,
        }
        impl Functions {
            pub(super) fn load(path: &Path) -> Result<Self, Failure> {
                let fail = |error: libloading::Error| {
                    Failure::NoCudnn(format!("{}: {error}", path.display()))
                };
                #[expect(unsafe_code, reason = "cuDNN is a C library found at run time")]
                // SAFETY: the judge names NVIDIA's library, whose initialisers have no preconditions;
                // the symbols have the types that the headers of cuDNN 8 and 9 declare, and the
                // library is kept loaded beside the pointers taken from it.
                unsafe {
                    let library = Library::new(path).map_err(fail)?;
                    Ok(Self {
                        $($field: *library.get($symbol).map_err(fail)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

/// Makes or ends something.
type Make = unsafe extern "C" fn(*mut Handle) -> c_int;
type End = unsafe extern "C" fn(Handle) -> c_int;

cudnn! {
    create = b"cudnnCreate" Make;
    set_stream = b"cudnnSetStream" unsafe extern "C" fn(Handle, Handle) -> c_int;
    create_tensor = b"cudnnCreateTensorDescriptor" Make;
    set_tensor = b"cudnnSetTensorNdDescriptor"
        unsafe extern "C" fn(Handle, c_int, c_int, *const c_int, *const c_int) -> c_int;
    end_tensor = b"cudnnDestroyTensorDescriptor" End;
    create_filter = b"cudnnCreateFilterDescriptor" Make;
    set_filter = b"cudnnSetFilterNdDescriptor"
        unsafe extern "C" fn(Handle, c_int, c_int, c_int, *const c_int) -> c_int;
    end_filter = b"cudnnDestroyFilterDescriptor" End;
    create_convolution = b"cudnnCreateConvolutionDescriptor" Make;
    set_convolution = b"cudnnSetConvolutionNdDescriptor"
        unsafe extern "C" fn(
            Handle, c_int, *const c_int, *const c_int, *const c_int, c_int, c_int,
        ) -> c_int;
    set_groups = b"cudnnSetConvolutionGroupCount" unsafe extern "C" fn(Handle, c_int) -> c_int;
    set_math = b"cudnnSetConvolutionMathType" unsafe extern "C" fn(Handle, c_int) -> c_int;
    end_convolution = b"cudnnDestroyConvolutionDescriptor" End;
    create_activation = b"cudnnCreateActivationDescriptor" Make;
    set_activation = b"cudnnSetActivationDescriptor"
        unsafe extern "C" fn(Handle, c_int, c_int, c_double) -> c_int;
    end_activation = b"cudnnDestroyActivationDescriptor" End;
    algorithms = b"cudnnGetConvolutionForwardAlgorithm_v7" Algorithms;
    transposed_algorithms = b"cudnnGetConvolutionBackwardDataAlgorithm_v7" Algorithms;
    workspace = b"cudnnGetConvolutionForwardWorkspaceSize" Workspace;
    transposed_workspace = b"cudnnGetConvolutionBackwardDataWorkspaceSize" Workspace;
    forward = b"cudnnConvolutionForward" Run;
    transposed = b"cudnnConvolutionBackwardData" Run;
    fused = b"cudnnConvolutionBiasActivationForward"
        unsafe extern "C" fn(
            Handle, *const c_void, Handle, *const c_void, Handle, *const c_void, Handle, c_int,
            *mut c_void, usize, *const c_void, Handle, *const c_void, Handle, *const c_void, Handle,
            Handle, *mut c_void,
        ) -> c_int;
    add = b"cudnnAddTensor"
        unsafe extern "C" fn(
            Handle, *const c_void, Handle, *const c_void, *const c_void, Handle, *mut c_void,
        ) -> c_int;
    activate = b"cudnnActivationForward"
        unsafe extern "C" fn(
            Handle, Handle, *const c_void, Handle, *const c_void, *const c_void, Handle, *mut c_void,
        ) -> c_int;
}
