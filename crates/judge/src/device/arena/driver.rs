//! The functions of the CUDA driver that the judge calls, resolved when the driver is loaded, and its error
//! codes.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;

use super::ArenaError;

/// Declares the driver's functions, their types, and how they are found, in one table.
macro_rules! driver {
    ($($field:ident = $symbol:literal ( $($kind:ty),* );)*) => {
        pub(super) struct Driver {
            $(pub(super) $field: unsafe extern "C" fn($($kind),*) -> c_int,)*
            _library: Library,
        }
        impl Driver {
            pub(super) fn load() -> Result<Self, ArenaError> {
                let fail = |e: libloading::Error| {
                    ArenaError::new("load the CUDA driver (libcuda.so.1)", e)
                };
                #[expect(unsafe_code, reason = "the CUDA driver is a C library found at run time")]
                // SAFETY: libcuda.so.1's initialisers have no preconditions; the symbols have the
                // types that cuda.h (CUDA 12 and later) declares for these versioned names, and
                // the library is kept loaded beside the pointers taken from it.
                unsafe {
                    let library = Library::new("libcuda.so.1").map_err(fail)?;
                    Ok(Self {
                        $($field: *library.get($symbol).map_err(fail)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

driver! {
    init = b"cuInit"(c_uint);
    device_get = b"cuDeviceGet"(*mut c_int, c_int);
    device_uuid = b"cuDeviceGetUuid_v2"(*mut [u8; 16], c_int);
    device_name = b"cuDeviceGetName"(*mut c_char, c_int, c_int);
    device_attribute = b"cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    driver_version = b"cuDriverGetVersion"(*mut c_int);
    context_retain = b"cuDevicePrimaryCtxRetain"(*mut *mut c_void, c_int);
    context_set = b"cuCtxSetCurrent"(*mut c_void);
    context_sync = b"cuCtxSynchronize"();
    memory_info = b"cuMemGetInfo_v2"(*mut usize, *mut usize);
    memory_create = b"cuMemCreate"(*mut c_ulonglong, usize, *const AllocationProp, c_ulonglong);
    memory_release = b"cuMemRelease"(c_ulonglong);
    memory_export = b"cuMemExportToShareableHandle"(*mut c_void, c_ulonglong, c_int, c_ulonglong);
    granularity = b"cuMemGetAllocationGranularity"(*mut usize, *const AllocationProp, c_int);
    address_reserve = b"cuMemAddressReserve"(*mut c_ulonglong, usize, usize, c_ulonglong, c_ulonglong);
    address_free = b"cuMemAddressFree"(c_ulonglong, usize);
    memory_map = b"cuMemMap"(c_ulonglong, usize, usize, c_ulonglong, c_ulonglong);
    memory_unmap = b"cuMemUnmap"(c_ulonglong, usize);
    memory_access = b"cuMemSetAccess"(c_ulonglong, usize, *const AccessDesc, usize);
    memory_alloc = b"cuMemAlloc_v2"(*mut c_ulonglong, usize);
    fill16 = b"cuMemsetD16_v2"(c_ulonglong, u16, usize);
    fill32 = b"cuMemsetD32_v2"(c_ulonglong, c_uint, usize);
    copy_device = b"cuMemcpyDtoD_v2"(c_ulonglong, c_ulonglong, usize);
    copy_out = b"cuMemcpyDtoH_v2"(*mut c_void, c_ulonglong, usize);
    copy_in = b"cuMemcpyHtoD_v2"(c_ulonglong, *const c_void, usize);
    module_load = b"cuModuleLoadData"(*mut *mut c_void, *const c_void);
    module_function = b"cuModuleGetFunction"(*mut *mut c_void, *mut c_void, *const c_char);
    launch = b"cuLaunchKernel"(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
}

/// `CUmemLocation`.
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: c_int,
    pub(super) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(super) struct AllocationProp {
    pub(super) kind: c_int,
    pub(super) handle_types: c_int,
    pub(super) location: Location,
    pub(super) windows: *mut c_void,
    pub(super) compression: u8,
    pub(super) rdma: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;
/// Codes of cuda.h after which nothing works for this process any more: the device is unavailable,
/// not there, or has an uncorrectable error (46, 100, 101, 214, 220), or the judge's own context is
/// dead (700 and 702; 709 and 710; 714 to 719; 721; 999). Candidates have contexts of their own: theirs
/// may die without this.
const LOST: [std::ops::RangeInclusive<c_int>; 10] = [
    46..=46,
    100..=101,
    214..=214,
    220..=220,
    700..=700,
    702..=702,
    709..=710,
    714..=719,
    721..=721,
    999..=999,
];
pub(super) fn check(action: &str, code: c_int) -> Result<(), ArenaError> {
    if code == 0 {
        return Ok(());
    }
    let error = ArenaError::new(action, format!("CUDA driver error {code}"));
    let lost = LOST.iter().any(|codes| codes.contains(&code));
    Err(ArenaError { exhausted: code == OUT_OF_MEMORY, lost, ..error })
}
