//! Device memory through the CUDA driver. The driver is loaded when needed; the program starts without it.
//!
//! The judge's context holds no torch. It runs kernels of its own, the fingerprint and the comparison
//! (`kernels.rs`), from PTX that the driver compiles. It lives as long as the program.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::driver::{AccessDesc, AllocationProp, Driver, Location, check};
use super::kernels::Kernels;
use super::{ArenaError, Move, Poison, SAMPLE_BYTES};
use crate::check::claims::Zone;
use crate::process::memory::GRAIN;

const FINGERPRINT_PTX: &str = include_str!("../../../native/fingerprint.ptx");
const MAX_SAMPLES: usize = 4096;

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

/// One GPU, with the judge's own context on it.
pub(crate) struct CudaDevice {
    driver: Driver,
    ordinal: c_int,
    context: *mut c_void,
    fingerprint: *mut c_void,
    offsets: c_ulonglong,
    samples: c_ulonglong,
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

/// As nvcc calls what a GPU of this compute capability runs: since 9.0 with the letter for the instructions
/// that it alone has (`wgmma`, `tcgen05`).
fn architecture(major: u32, minor: u32) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

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
            arch: architecture(attribute(ATTRIBUTE_MAJOR)?, attribute(ATTRIBUTE_MINOR)?),
            processors: attribute(ATTRIBUTE_PROCESSORS)?,
            l2_bytes: u64::from(attribute(ATTRIBUTE_L2_BYTES)?),
            shared_per_block: attribute(ATTRIBUTE_SHARED_OPTIN)?,
            driver: format!("{}.{}", version / 1000, version % 1000 / 10),
            free_bytes: free as u64,
        })
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

    /// Creates, maps and exports `len` bytes of device memory, with addresses behind it for the inputs
    /// of a window, which have memory of their own.
    pub(crate) fn arena(self: &Arc<Self>, len: u64, apart: Zone) -> Result<CudaArena, ArenaError> {
        let memory = self.memory(len)?;
        let mut base = 0;
        let room = apart.end().max(memory.len).next_multiple_of(GRAIN) as usize;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `base` outlives the call.
        let reserve = unsafe { (self.driver.address_reserve)(&raw mut base, room, 0, 0, 0) };
        check("reserve device addresses", reserve)?;
        self.map(&memory, base)?;
        let (device, inputs) = (Arc::clone(self), RwLock::default());
        Ok(CudaArena { device, memory, base, room, len, apart, inputs })
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
    fn map(&self, memory: &CudaMemory, at: c_ulonglong) -> Result<(), ArenaError> {
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
            check("open device memory", (d.memory_access)(at, len, &raw const access, 1))
        }
    }

    fn unmap(&self, at: c_ulonglong, len: u64) {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: this range was mapped as a whole.
        unsafe {
            (self.driver.memory_unmap)(at, len as usize);
        }
    }

    fn release(&self, memory: &CudaMemory) {
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
    len: u64,
    fd: OwnedFd,
}

impl CudaMemory {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Judge-owned device memory.
pub(crate) struct CudaArena {
    device: Arc<CudaDevice>,
    memory: CudaMemory,
    base: c_ulonglong,
    /// Bytes of addresses that are reserved.
    room: usize,
    len: u64,
    /// Where the inputs of a window lie.
    apart: Zone,
    inputs: RwLock<Option<CudaMemory>>,
}

impl CudaArena {
    /// Makes memory for the inputs of a window that nobody has seen, in place of the last one's: a
    /// descriptor to lend, and its bytes. A process that kept that one mapped keeps it to itself.
    pub(crate) fn renew_inputs(&self, bytes: u64) -> Result<(OwnedFd, u64), ArenaError> {
        self.drop_inputs();
        let memory = self.device.memory(bytes.min(self.apart.bytes))?;
        let lent = memory.fd().try_clone_to_owned();
        let lent = lent.map_err(|e| ArenaError::new("duplicate a descriptor", e));
        let mapped = self.device.map(&memory, self.base + self.apart.offset);
        match (lent, mapped) {
            (Ok(lent), Ok(())) => {
                let len = memory.len;
                *self.inputs.write().unwrap_or_else(PoisonError::into_inner) = Some(memory);
                Ok((lent, len))
            }
            (lent, mapped) => {
                self.device.release(&memory);
                mapped?;
                lent.map(|fd| (fd, 0))
            }
        }
    }

    /// A descriptor of the memory of the last window's inputs, and its bytes, if there is any.
    pub(crate) fn lend_inputs(&self) -> Result<Option<(OwnedFd, u64)>, ArenaError> {
        let inputs = self.inputs.read().unwrap_or_else(PoisonError::into_inner);
        let lent = inputs.as_ref().map(|m| Ok((m.fd().try_clone_to_owned()?, m.len))).transpose();
        lent.map_err(|e: std::io::Error| ArenaError::new("duplicate a descriptor", e))
    }

    /// Gives the memory of a window's inputs back.
    pub(crate) fn drop_inputs(&self) {
        let old = self.inputs.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(old) = old
            && self.device.current().is_ok()
        {
            self.device.unmap(self.base + self.apart.offset, old.len);
            self.device.release(&old);
        }
    }

    /// Whether these bytes lie in it, or in the inputs of the window.
    pub(crate) fn holds(&self, offset: u64, bytes: u64) -> bool {
        let Some(end) = offset.checked_add(bytes) else { return false };
        let inputs = self.inputs.read().unwrap_or_else(PoisonError::into_inner);
        let beside = inputs.as_ref().map_or(0, |memory| memory.len);
        end <= self.len || offset >= self.apart.offset && end <= self.apart.offset + beside
    }

    pub(crate) fn apart(&self) -> Zone {
        self.apart
    }

    pub(crate) fn reach(&self) -> u64 {
        self.apart.end().max(self.len)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Device address of its start.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The GPU it lies on.
    pub(crate) fn device(&self) -> &CudaDevice {
        &self.device
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ArenaError> {
        self.device.current()?;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the caller (`Arena`) has checked the range; `into` is as long as said.
        let code = unsafe {
            (self.device.driver.copy_out)(into.as_mut_ptr().cast(), self.base + offset, into.len())
        };
        check("read device memory", code)
    }

    #[cfg(test)]
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ArenaError> {
        self.device.current()?;
        assert!(offset + from.len() as u64 <= self.len);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the range is inside; `from` is as long as said.
        let code = unsafe {
            (self.device.driver.copy_in)(self.base + offset, from.as_ptr().cast(), from.len())
        };
        check("write device memory", code)
    }

    pub(crate) fn poison(&self, offset: u64, bytes: u64, with: Poison) -> Result<(), ArenaError> {
        self.device.current()?;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the caller has checked the range, which is aligned to four bytes.
        unsafe {
            let d = &self.device.driver;
            let fill = (d.fill32)(self.base + offset, with.word(), (bytes / 4) as usize);
            check("poison device memory", fill)?;
            check("wait for the GPU", (d.context_sync)())
        }
    }

    /// All are begun before the end of any is waited for.
    pub(crate) fn copy_all(&self, source: &Self, moves: &[Move]) -> Result<(), ArenaError> {
        self.device.current()?;
        let d = &self.device.driver;
        for m in moves {
            let (to, from) = (self.base + m.to, source.base + m.from);
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: the caller has checked both ranges.
            let code = unsafe { (d.copy_device)(to, from, m.bytes as usize) };
            check("copy device memory", code)?;
        }
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: it takes no arguments.
        let code = unsafe { (d.context_sync)() };
        check("wait for the GPU", code)
    }

    /// One kernel reads all samples and folds each into a word; the words come back in one copy.
    pub(crate) fn samples(&self, offsets: &[u64]) -> Result<Vec<u64>, ArenaError> {
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        self.device.current()?;
        let offsets = &offsets[..offsets.len().min(MAX_SAMPLES)];
        let mut words = vec![0u64; offsets.len()];
        let (mut base, mut table, mut out) = (self.base, self.device.offsets, self.device.samples);
        let mut count = offsets.len() as u32;
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut base).cast(),
            (&raw mut table).cast(),
            (&raw mut out).cast(),
            (&raw mut count).cast(),
        ];
        let blocks = count.div_ceil(256);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `sample` takes exactly these four arguments (native/fingerprint.cu); offsets lie
        // inside the arena with SAMPLE_BYTES to spare, which the caller sees to; the scratch
        // buffers hold MAX_SAMPLES words.
        unsafe {
            let d = &self.device.driver;
            let send = (d.copy_in)(table, offsets.as_ptr().cast(), offsets.len() * 8);
            check("send sample offsets", send)?;
            let null = std::ptr::null_mut();
            let (f, a) = (self.device.fingerprint, arguments.as_mut_ptr());
            let run = (d.launch)(f, blocks, 1, 1, 256, 1, 1, 0, null, a, std::ptr::null_mut());
            check("take a fingerprint", run)?;
            let read = (d.copy_out)(words.as_mut_ptr().cast(), out, words.len() * 8);
            check("read a fingerprint", read)?;
        }
        Ok(words)
    }
}

impl Drop for CudaArena {
    fn drop(&mut self) {
        if self.device.current().is_err() {
            return;
        }
        self.drop_inputs();
        self.device.unmap(self.base, self.memory.len);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: reserved in `CudaDevice::arena`, and nothing is mapped there any more.
        unsafe {
            (self.device.driver.address_free)(self.base, self.room);
        }
        self.device.release(&self.memory);
    }
}

const _: () = assert!(SAMPLE_BYTES == 64, "native/fingerprint.cu reads eight words a sample");

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
