//! The functions of the CUDA driver that the replayer calls, resolved when the driver is loaded, and the structures
//! that they take.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use crate::failure::Failure;

/// A context, module, function, stream, event or graph.
pub(crate) type Handle = *mut c_void;
/// A device address.
pub(crate) type Address = c_ulonglong;

type FunctionLoad = unsafe extern "C" fn(Handle) -> c_int;
type ParamInfo = unsafe extern "C" fn(Handle, usize, *mut usize, *mut usize) -> c_int;

/// Declares the driver's functions, their types, and how they are found, in one table.
macro_rules! driver {
    ($($field:ident = $symbol:literal ( $($kind:ty),* $(,)? );)*) => {
        pub(crate) struct Driver {
            $(pub(crate) $field: unsafe extern "C" fn($($kind),*) -> c_int,)*
            /// `cuFuncGetParamInfo`, which drivers before CUDA 12.4 lack.
            pub(crate) param_info: Option<ParamInfo>,
            /// `cuFuncLoad`, which drivers before CUDA 12.4 lack.
            pub(crate) function_load: Option<FunctionLoad>,
            _library: Library,
        }
        impl Driver {
            /// Loads `libcuda.so.1`, for as long as the process lives.
            pub(crate) fn load() -> Result<&'static Self, Failure> {
                let fail = |error: libloading::Error| Failure::NoDriver(error.to_string());
                #[expect(unsafe_code, reason = "the CUDA driver is a C library found at run time")]
                // SAFETY: libcuda.so.1's initialisers have no preconditions; the symbols have the
                // types that cuda.h (CUDA 12 and later) declares for these versioned names, and
                // the library is kept loaded beside the pointers taken from it.
                let driver = unsafe {
                    let library = Library::new("libcuda.so.1").map_err(fail)?;
                    Self {
                        $($field: *library.get($symbol).map_err(fail)?,)*
                        param_info: library.get(b"cuFuncGetParamInfo").ok().map(|found| *found),
                        function_load: library.get(b"cuFuncLoad").ok().map(|found| *found),
                        _library: library,
                    }
                };
                Ok(Box::leak(Box::new(driver)))
            }
        }
    };
}

driver! {
    init = b"cuInit"(c_uint);
    error_name = b"cuGetErrorName"(c_int, *mut *const c_char);
    driver_version = b"cuDriverGetVersion"(*mut c_int);
    device_get = b"cuDeviceGet"(*mut c_int, c_int);
    device_name = b"cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_memory = b"cuDeviceTotalMem_v2"(*mut usize, c_int);
    device_attribute = b"cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    context_retain = b"cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    context_set = b"cuCtxSetCurrent"(Handle);
    context_sync = b"cuCtxSynchronize"();

    memory_import = b"cuMemImportFromShareableHandle"(*mut c_ulonglong, *mut c_void, c_int);
    memory_release = b"cuMemRelease"(c_ulonglong);
    address_reserve = b"cuMemAddressReserve"(*mut Address, usize, usize, Address, c_ulonglong);
    memory_map = b"cuMemMap"(Address, usize, usize, c_ulonglong, c_ulonglong);
    memory_unmap = b"cuMemUnmap"(Address, usize);
    memory_access = b"cuMemSetAccess"(Address, usize, *const AccessDesc, usize);
    memory_alloc = b"cuMemAlloc_v2"(*mut Address, usize);
    memory_free = b"cuMemFree_v2"(Address);

    module_load = b"cuModuleLoadData"(*mut Handle, *const c_void);
    module_unload = b"cuModuleUnload"(Handle);
    module_function = b"cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    module_global = b"cuModuleGetGlobal_v2"(*mut Address, *mut usize, Handle, *const c_char);
    function_attribute = b"cuFuncGetAttribute"(*mut c_int, c_int, Handle);
    function_set = b"cuFuncSetAttribute"(Handle, c_int, c_int);
    occupancy = b"cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, Handle, c_int, usize);

    stream_create = b"cuStreamCreate"(*mut Handle, c_uint);
    stream_wait = b"cuStreamWaitEvent"(Handle, Handle, c_uint);
    event_create = b"cuEventCreate"(*mut Handle, c_uint);
    event_record = b"cuEventRecord"(Handle, Handle);

    launch = b"cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        Handle, *mut *mut c_void, *mut *mut c_void,
    );
    launch_ex = b"cuLaunchKernelEx"(
        *const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void,
    );
    fill8 = b"cuMemsetD8Async"(Address, u8, usize, Handle);
    fill16 = b"cuMemsetD16Async"(Address, u16, usize, Handle);
    fill32 = b"cuMemsetD32Async"(Address, c_uint, usize, Handle);
    fill8_rows = b"cuMemsetD2D8Async"(Address, usize, u8, usize, usize, Handle);
    fill16_rows = b"cuMemsetD2D16Async"(Address, usize, u16, usize, usize, Handle);
    fill32_rows = b"cuMemsetD2D32Async"(Address, usize, c_uint, usize, usize, Handle);
    copy = b"cuMemcpyDtoDAsync_v2"(Address, Address, usize, Handle);
    copy_rows = b"cuMemcpy2DAsync_v2"(*const CopyRows, Handle);
    read = b"cuMemcpyDtoH_v2"(*mut c_void, Address, usize);
    write = b"cuMemcpyHtoD_v2"(Address, *const c_void, usize);
    upload = b"cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, Handle);
    encode_tiled = b"cuTensorMapEncodeTiled"(
        *mut EncodedMap, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const u32, *const u32,
        c_uint, c_uint, c_uint, c_uint,
    );

    capture_begin = b"cuStreamBeginCapture_v2"(Handle, c_int);
    capture_end = b"cuStreamEndCapture"(Handle, *mut Handle);
    graph_instantiate = b"cuGraphInstantiateWithFlags"(*mut Handle, Handle, c_ulonglong);
    graph_upload = b"cuGraphUpload"(Handle, Handle);
    graph_launch = b"cuGraphLaunch"(Handle, Handle);
    graph_destroy = b"cuGraphDestroy"(Handle);
    graph_exec_destroy = b"cuGraphExecDestroy"(Handle);
}

impl Driver {
    /// What a code of the driver means; `action` says what was attempted, on what.
    pub(crate) fn check(&self, action: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 { Ok(()) } else { Err(self.failure(action.to_owned(), code)) }
    }

    /// An error of the driver.
    #[cold]
    pub(crate) fn failure(&self, action: String, code: c_int) -> Failure {
        let mut name = std::ptr::null();
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the driver writes a pointer to a text of its own that lives as long as it does, or null.
        let name = unsafe {
            let known = (self.error_name)(code, &raw mut name) == 0 && !name.is_null();
            if known {
                CStr::from_ptr(name).to_string_lossy().into_owned()
            } else {
                "unknown".to_owned()
            }
        };
        Failure::Cuda { action, code, name }
    }
}

/// `CUmemLocation`.
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

/// `CUtensorMap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(128))]
pub(crate) struct EncodedMap(pub(crate) [u8; 128]);

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct LaunchAttribute {
    id: c_uint,
    padding: c_uint,
    value: [c_uint; 16],
}

impl LaunchAttribute {
    /// Of the three attributes that plans have, each value is a few words at the start of the union.
    fn new<const N: usize>(id: c_uint, words: [c_uint; N]) -> Self {
        let mut value = [0; 16];
        value.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        Self { id, padding: 0, value }
    }

    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
    pub(crate) fn cooperative() -> Self {
        Self::new(2, [1])
    }

    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    pub(crate) fn cluster(blocks: [c_uint; 3]) -> Self {
        Self::new(4, blocks)
    }

    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
    pub(crate) fn programmatic() -> Self {
        Self::new(6, [1])
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
pub(crate) struct Rows {
    x_bytes: usize,
    y: usize,
    kind: c_int,
    host: *const c_void,
    device: Address,
    array: Handle,
    pitch: usize,
}

impl Rows {
    /// Rows of device memory, `pitch` bytes apart.
    pub(crate) fn device(at: Address, pitch: usize) -> Self {
        let null = std::ptr::null_mut();
        // CU_MEMORYTYPE_DEVICE
        Self { x_bytes: 0, y: 0, kind: 2, host: null, device: at, array: null, pitch }
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub(crate) struct CopyRows {
    pub(crate) from: Rows,
    pub(crate) to: Rows,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

// Sizes and offsets of cuda.h on 64-bit machines.
const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<EncodedMap>() == 128 && align_of::<EncodedMap>() == 128);
    assert!(size_of::<LaunchAttribute>() == 72 && align_of::<LaunchAttribute>() == 8);
    assert!(offset_of!(LaunchAttribute, value) == 8);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(
        offset_of!(LaunchConfig, stream) == 32 && offset_of!(LaunchConfig, attribute_count) == 48
    );
    assert!(size_of::<CopyRows>() == 128 && size_of::<Rows>() == 56);
    assert!(offset_of!(Rows, device) == 32 && offset_of!(CopyRows, width) == 112);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_attributes_have_the_layout_of_the_header() {
        let cluster = LaunchAttribute::cluster([2, 3, 1]);
        assert_eq!((cluster.id, cluster.value[..4].to_vec()), (4, vec![2, 3, 1, 0]));
        assert_eq!(LaunchAttribute::cooperative().id, 2);
        assert_eq!(LaunchAttribute::programmatic().value[0], 1);
    }
}
