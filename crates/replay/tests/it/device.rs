//! The judge's part: memory of a GPU that it creates, exports, reads and writes.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use libloading::Library;

/// Granularity of mappings.
pub(crate) const GRAIN: u64 = 2 << 20;

/// `CUmemAllocationProp`, for device memory that is exported as a descriptor.
#[repr(C)]
#[derive(Default)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: [c_int; 2],
    rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: [c_int; 2],
    flags: c_int,
}

/// A driver with a context on GPU 0.
pub(crate) struct Gpu {
    library: Library,
}

/// Memory that is mapped here, and can be lent.
pub(crate) struct Lent<'a> {
    gpu: &'a Gpu,
    base: u64,
    pub(crate) bytes: u64,
    descriptor: OwnedFd,
}

/// Calls a function of the driver; the test fails if that fails.
macro_rules! cuda {
    ($gpu:expr, $name:literal ( $($kind:ty = $value:expr),* )) => {{
        #[expect(unsafe_code, reason = "the CUDA driver is a C library found at run time")]
        // SAFETY: the types are those of cuda.h, and pointers are to live locals of the caller.
        let code: c_int = unsafe {
            let function = $gpu.library.get::<unsafe extern "C" fn($($kind),*) -> c_int>($name);
            (function.unwrap())($($value),*)
        };
        assert_eq!(code, 0, "{}", String::from_utf8_lossy($name));
    }};
}

impl Gpu {
    #[expect(clippy::expect_used, reason = "a test fails here")]
    pub(crate) fn open() -> Self {
        #[expect(unsafe_code, reason = "the CUDA driver is a C library found at run time")]
        // SAFETY: its initialisers have no preconditions.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("there is a CUDA driver");
        let gpu = Self { library };
        let mut context = std::ptr::null_mut();
        cuda!(gpu, b"cuInit"(c_uint = 0));
        cuda!(gpu, b"cuDevicePrimaryCtxRetain"(*mut *mut c_void = &raw mut context, c_int = 0));
        cuda!(gpu, b"cuCtxSetCurrent"(*mut c_void = context));
        gpu
    }

    /// Creates and maps memory of at least so many bytes. It lasts until the test ends.
    pub(crate) fn memory(&self, bytes: u64) -> Lent<'_> {
        let bytes = bytes.next_multiple_of(GRAIN);
        let size = bytes as usize;
        // Pinned, by descriptor, on device 0.
        let properties =
            Properties { kind: 1, handle_types: 1, location: [1, 0], ..Properties::default() };
        let access = Access { location: [1, 0], flags: 3 };
        let (mut handle, mut base, mut descriptor): (c_ulonglong, u64, c_int) = (0, 0, -1);
        cuda!(self, b"cuMemCreate"(
            *mut c_ulonglong = &raw mut handle, usize = size,
            *const Properties = &raw const properties, c_ulonglong = 0
        ));
        cuda!(self, b"cuMemExportToShareableHandle"(
            *mut c_int = &raw mut descriptor, c_ulonglong = handle, c_int = 1, c_ulonglong = 0
        ));
        cuda!(self, b"cuMemAddressReserve"(
            *mut u64 = &raw mut base, usize = size, usize = 0, u64 = 0, c_ulonglong = 0
        ));
        cuda!(
            self,
            b"cuMemMap"(u64 = base, usize = size, usize = 0, c_ulonglong = handle, c_ulonglong = 0)
        );
        cuda!(self, b"cuMemSetAccess"(
            u64 = base, usize = size, *const Access = &raw const access, usize = 1
        ));
        cuda!(self, b"cuMemsetD8_v2"(u64 = base, u8 = 0xee, usize = size));
        cuda!(self, b"cuCtxSynchronize"());
        #[expect(unsafe_code, reason = "the driver returns descriptors as numbers")]
        // SAFETY: the exported descriptor is owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Lent { gpu: self, base, bytes, descriptor }
    }
}

impl Lent<'_> {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(crate) fn write(&self, offset: u64, values: &[f32]) {
        let bytes = size_of_val(values);
        assert!(offset + bytes as u64 <= self.bytes);
        let from = values.as_ptr().cast();
        cuda!(self.gpu, b"cuMemcpyHtoD_v2"(u64 = self.base + offset, *const c_void = from, usize = bytes));
        cuda!(self.gpu, b"cuCtxSynchronize"());
    }

    fn read<T: Copy + Default>(&self, offset: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(values.as_slice());
        assert!(offset + bytes as u64 <= self.bytes);
        let to = values.as_mut_ptr().cast();
        cuda!(self.gpu, b"cuMemcpyDtoH_v2"(*mut c_void = to, u64 = self.base + offset, usize = bytes));
        values
    }

    pub(crate) fn floats(&self, offset: u64, count: usize) -> Vec<f32> {
        self.read(offset, count)
    }

    pub(crate) fn words(&self, offset: u64, count: usize) -> Vec<u32> {
        self.read(offset, count)
    }

    pub(crate) fn longs(&self, offset: u64, count: usize) -> Vec<u64> {
        self.read(offset, count)
    }
}
