//! Device memory through the CUDA driver. The driver is loaded when needed; the program starts without it.
//!
//! The judge's context holds no torch. It runs kernels of its own, the fingerprint and the comparison
//! (`kernels.rs`), from PTX that the driver compiles. It lives as long as the program.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use warpwright_record::gpu::architecture_name;

use super::ArenaError;
use super::driver::{AccessDesc, AllocationProp, Driver, Location, check};
use super::kernels::Kernels;

/// Granularity of mappings of GPU memory, in bytes.
pub(crate) const GRAIN: u64 = 2 << 20;
const FINGERPRINT_PTX: &str = include_str!("../../../native/fingerprint.ptx");
pub(super) const MAX_SAMPLES: usize = 4096;

/// A UUID as the driver's own tools write it.
fn identity(uuid: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(uuid));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}

/// A round trip to an idle GPU takes some 50 us.
const IDLE_TRIP: Duration = Duration::from_micros(300);
/// So many after each other say that it is idle.
const IDLE_TRIPS: u32 = 3;
/// Longest that a candidate's work may go on once its window is over. A busy host delays a round trip
/// now and then, and not for so long.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
const PINNED: c_int = 1;
const POSIX_DESCRIPTOR: c_int = 1;
const ON_DEVICE: c_int = 1;
const READ_WRITE: c_int = 3;
const ATTRIBUTE_PROCESSORS: c_int = 16;
const ATTRIBUTE_L2_BYTES: c_int = 38;
const ATTRIBUTE_MAJOR: c_int = 75;
const ATTRIBUTE_MINOR: c_int = 76;
const ATTRIBUTE_SHARED_OPTIN: c_int = 97;
/// A number above all that CUDA 13 has.
const LAST_ATTRIBUTE: c_int = 160;

/// One GPU, with the judge's own context on it.
pub(crate) struct CudaDevice {
    driver: Driver,
    ordinal: c_int,
    context: *mut c_void,
    pub(super) fingerprint: *mut c_void,
    pub(super) offsets: c_ulonglong,
    pub(super) samples: c_ulonglong,
    pub(super) kernels: Kernels,
}

#[expect(unsafe_code, reason = "CUDA handles may be used from any thread")]
// SAFETY: contexts, functions and device addresses are process-wide handles; every method makes the
// context current on its own thread first.
unsafe impl Send for CudaDevice {}
#[expect(unsafe_code, reason = "CUDA handles may be used from any thread")]
// SAFETY: as above; the two scratch buffers are used by `fingerprint` alone, which one measurement
// at a time calls.
unsafe impl Sync for CudaDevice {}

/// Facts of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceState {
    pub(crate) name: String,
    /// `sm_90a`.
    pub(crate) arch: String,
    pub(crate) processors: u32,
    pub(crate) l2_bytes: u64,
    pub(crate) shared_per_block: u32,
    pub(crate) driver: String,
    pub(crate) free_bytes: u64,
}

impl CudaDevice {
    /// Opens GPU `ordinal`. Fails where there is no driver or no such GPU.
    pub(crate) fn open(ordinal: u32) -> Result<Self, ArenaError> {
        let driver = Driver::load()?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        let (mut module, mut fingerprint) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut offsets, mut samples) = (0, 0);
        let ptx = format!("{FINGERPRINT_PTX}\0");
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: every pointer is to a live local of the type the driver writes; the PTX text and
        // the name end in a zero byte; results are checked before anything they fill is used.
        unsafe {
            let d = &driver;
            check("initialise the CUDA driver", (d.init)(0))?;
            let get = (d.device_get)(&raw mut device, ordinal as c_int);
            check(&format!("open GPU {ordinal}"), get)?;
            let retain = (d.context_retain)(&raw mut context, device);
            check("create a CUDA context", retain)?;
            check("use the CUDA context", (d.context_set)(context))?;
            let load = (d.module_load)(&raw mut module, ptx.as_ptr().cast());
            check("load the fingerprint kernel", load)?;
            let find = (d.module_function)(&raw mut fingerprint, module, c"sample".as_ptr());
            check("find the fingerprint kernel", find)?;
            let bytes = MAX_SAMPLES * 8;
            check("allocate", (d.memory_alloc)(&raw mut offsets, bytes))?;
            check("allocate", (d.memory_alloc)(&raw mut samples, bytes))?;
        }
        let kernels = Kernels::load(&driver)?;
        Ok(Self { driver, ordinal: device, context, fingerprint, offsets, samples, kernels })
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    pub(super) fn current(&self) -> Result<(), ArenaError> {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the context was retained in `open` and is never released.
        let code = unsafe { (self.driver.context_set)(self.context) };
        check("use the CUDA context", code)
    }

    /// The GPU's identity as `CUDA_VISIBLE_DEVICES` takes it, e.g. `GPU-d2b7...`.
    pub(crate) fn identity(&self) -> Result<String, ArenaError> {
        let mut uuid = [0u8; 16];
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the driver writes 16 bytes, and `uuid` outlives the call.
        let code = unsafe { (self.driver.device_uuid)(&raw mut uuid, self.ordinal) };
        check("read the GPU's UUID", code)?;
        Ok(identity(uuid))
    }

    /// Name, size, versions, and the memory free now.
    pub(crate) fn state(&self) -> Result<DeviceState, ArenaError> {
        self.current()?;
        let mut name = [0u8; 128];
        let mut version = 0;
        let (mut free, mut total) = (0, 0);
        let attribute = |which: c_int| {
            let mut value = 0;
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `value` outlives the call.
            let code =
                unsafe { (self.driver.device_attribute)(&raw mut value, which, self.ordinal) };
            check("read a device attribute", code).map(|()| value as u32)
        };
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the buffers outlive the calls and their sizes are passed along.
        unsafe {
            let d = &self.driver;
            let named = (d.device_name)(name.as_mut_ptr().cast(), 127, self.ordinal);
            check("read the GPU's name", named)?;
            check("read the driver's version", (d.driver_version)(&raw mut version))?;
            check("read free memory", (d.memory_info)(&raw mut free, &raw mut total))?;
        }
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        Ok(DeviceState {
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            arch: architecture_name(attribute(ATTRIBUTE_MAJOR)?, attribute(ATTRIBUTE_MINOR)?),
            processors: attribute(ATTRIBUTE_PROCESSORS)?,
            l2_bytes: u64::from(attribute(ATTRIBUTE_L2_BYTES)?),
            shared_per_block: attribute(ATTRIBUTE_SHARED_OPTIN)?,
            driver: format!("{}.{}", version / 1000, version % 1000 / 10),
            free_bytes: free as u64,
        })
    }

    /// Every attribute that the driver knows, by its number in `cuda.h`.
    pub(crate) fn attributes(&self) -> Result<BTreeMap<c_int, c_int>, ArenaError> {
        self.current()?;
        let one = |which: c_int| {
            let mut value = 0;
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `value` outlives the call.
            let code =
                unsafe { (self.driver.device_attribute)(&raw mut value, which, self.ordinal) };
            (code == 0).then_some((which, value))
        };
        Ok((1..=LAST_ATTRIBUTE).filter_map(one).collect())
    }

    /// Version of the driver as the driver counts, e.g. 13000.
    pub(crate) fn driver_version(&self) -> Result<c_int, ArenaError> {
        let mut version = 0;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `version` outlives the call.
        let code = unsafe { (self.driver.driver_version)(&raw mut version) };
        check("read the driver's version", code).map(|()| version)
    }

    /// Bytes of its memory, used or not.
    pub(crate) fn total_bytes(&self) -> Result<u64, ArenaError> {
        self.current()?;
        let (mut free, mut total) = (0, 0);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: both outlive the call.
        let code = unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) };
        check("read the size of memory", code).map(|()| total as u64)
    }

    /// Proves that the GPU answers: writes a pattern, waits, reads it back.
    pub(crate) fn probe(&self) -> Result<(), ArenaError> {
        self.current()?;
        let mut back = [0u8; 512];
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the scratch buffer holds MAX_SAMPLES words; `back` is shorter.
        unsafe {
            let d = &self.driver;
            check("write to the GPU", (d.fill16)(self.samples, 0xa5c3, back.len() / 2))?;
            check("wait for the GPU", (d.context_sync)())?;
            let read = (d.copy_out)(back.as_mut_ptr().cast(), self.samples, back.len());
            check("read from the GPU", read)?;
        }
        if back.iter().step_by(2).all(|&b| b == 0xc3) {
            return Ok(());
        }
        Err(ArenaError::new("check that the GPU is healthy", "a copy returned wrong bytes"))
    }

    /// Waits until nothing of another process runs on the GPU: while something does, the driver gives it
    /// the GPU in turns of about a millisecond, and a round trip of the judge's takes as long. False if
    /// that does not end.
    pub(crate) fn await_idle(&self) -> Result<bool, ArenaError> {
        let begun = Instant::now();
        let mut quick = 0;
        while quick < IDLE_TRIPS {
            let trip = Instant::now();
            self.probe()?;
            quick = if trip.elapsed() < IDLE_TRIP { quick + 1 } else { 0 };
            if quick == 0 && begun.elapsed() > IDLE_PATIENCE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates and exports device memory of at least so many bytes, which nobody has seen.
    pub(crate) fn memory(&self, len: u64) -> Result<CudaMemory, ArenaError> {
        self.current()?;
        let prop = AllocationProp {
            kind: PINNED,
            handle_types: POSIX_DESCRIPTOR,
            location: Location { kind: ON_DEVICE, id: self.ordinal },
            windows: std::ptr::null_mut(),
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let (mut grain, mut handle, mut fd) = (0, 0, -1);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the struct has the layout of cuda.h and outlives the calls; on success the exported
        // descriptor is owned by nobody else.
        let (len, fd) = unsafe {
            let d = &self.driver;
            check("read the granularity", (d.granularity)(&raw mut grain, &raw const prop, 0))?;
            let len = (len as usize).div_ceil(grain) * grain;
            let create = (d.memory_create)(&raw mut handle, len, &raw const prop, 0);
            check(&format!("create {len} bytes of device memory"), create)?;
            let export = (d.memory_export)((&raw mut fd).cast(), handle, POSIX_DESCRIPTOR, 0);
            if let Err(error) = check("export device memory", export) {
                (d.memory_release)(handle);
                return Err(error);
            }
            (len as u64, OwnedFd::from_raw_fd(fd))
        };
        // The driver leaves it open for whatever this process executes.
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| ArenaError::new("keep exported memory to itself", error))?;
        Ok(CudaMemory { handle, len, fd })
    }

    /// Maps memory at an address that is reserved.
    pub(super) fn map(&self, memory: &CudaMemory, at: c_ulonglong) -> Result<(), ArenaError> {
        self.current()?;
        let access = AccessDesc {
            location: Location { kind: ON_DEVICE, id: self.ordinal },
            flags: READ_WRITE,
        };
        let len = memory.len as usize;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the struct has the layout of cuda.h; the handle is alive, the address reserved.
        unsafe {
            let d = &self.driver;
            check("map device memory", (d.memory_map)(at, len, 0, memory.handle, 0))?;
            let opened =
                check("open device memory", (d.memory_access)(at, len, &raw const access, 1));
            if opened.is_err() {
                (d.memory_unmap)(at, len);
            }
            opened
        }
    }

    pub(super) fn unmap(&self, at: c_ulonglong, len: u64) {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: this range was mapped as a whole.
        unsafe {
            (self.driver.memory_unmap)(at, len as usize);
        }
    }

    pub(super) fn release(&self, memory: &CudaMemory) {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the handle was created here and is released once, by who owned the memory.
        unsafe {
            (self.driver.memory_release)(memory.handle);
        }
    }
}

/// Device memory with a descriptor to lend. Whoever owns it gives it back with [`CudaDevice`].
#[derive(Debug)]
pub(crate) struct CudaMemory {
    handle: c_ulonglong,
    pub(super) len: u64,
    fd: OwnedFd,
}

impl CudaMemory {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_lost_gpu_is_distinguished_from_a_failed_call() {
        assert!(check("wait", 0).is_ok());
        for (code, lost, exhausted) in
            [(1, false, false), (2, false, true), (46, true, false), (716, true, false)]
        {
            let error = check("wait", code).err();
            let told = error.map(|e| (e.lost, e.exhausted));
            assert_eq!(told, Some((lost, exhausted)), "{code}");
        }
    }

    #[test]
    fn a_gpu_uuid_has_the_format_of_nvidia_smi() {
        let uuid = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(super::identity(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
