//! Memory of a GPU that the judge owns and lends.

use std::ffi::{c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::cuda::{CudaDevice, CudaMemory, GRAIN, MAX_SAMPLES};
use super::driver::check;
use super::{ArenaError, Move, Poison, SAMPLE_BYTES, Zone};

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
    /// Most bytes of inputs since [`Self::held`] was asked.
    most_inputs: AtomicU64,
}

impl CudaArena {
    /// Creates, maps and exports `len` bytes of device memory, with addresses behind it for the inputs
    /// of a window, which have memory of their own.
    pub(crate) fn create(
        device: &Arc<CudaDevice>,
        len: u64,
        apart: Zone,
    ) -> Result<Self, ArenaError> {
        let memory = device.memory(len)?;
        let mut base = 0;
        let room = apart.end().max(memory.len).next_multiple_of(GRAIN) as usize;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `base` outlives the call.
        let reserve = unsafe { (device.driver().address_reserve)(&raw mut base, room, 0, 0, 0) };
        let mapped = check("reserve device addresses", reserve);
        if let Err(error) = mapped.and_then(|()| device.map(&memory, base)) {
            device.release(&memory);
            return Err(error);
        }
        let (device, inputs) = (Arc::clone(device), RwLock::default());
        Ok(Self { device, memory, base, room, len, apart, inputs, most_inputs: AtomicU64::new(0) })
    }

    /// Makes memory for the inputs of a window that nobody has seen, in place of the last one's: a
    /// descriptor to lend, and its bytes. A process that kept that one mapped keeps it to itself.
    pub(crate) fn renew_inputs(&self, bytes: u64) -> Result<(OwnedFd, u64), ArenaError> {
        self.drop_inputs();
        let memory = self.device.memory(bytes.min(self.apart.bytes))?;
        self.most_inputs.fetch_max(memory.len, Ordering::Relaxed);
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

    /// Bytes of it, and most bytes of a window's inputs since this was asked last.
    pub(crate) fn held(&self) -> u64 {
        let inputs = self.inputs.read().unwrap_or_else(PoisonError::into_inner);
        let now = inputs.as_ref().map_or(0, |memory| memory.len);
        self.len + self.most_inputs.swap(0, Ordering::Relaxed).max(now)
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
            (self.device.driver().copy_out)(
                into.as_mut_ptr().cast(),
                self.base + offset,
                into.len(),
            )
        };
        check("read device memory", code)
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ArenaError> {
        self.device.current()?;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the caller (`Arena`) has checked the range; `from` is as long as said.
        unsafe {
            let d = self.device.driver();
            let copy = (d.copy_in)(self.base + offset, from.as_ptr().cast(), from.len());
            check("write device memory", copy)?;
            // From pageable memory it returns before all of it has arrived.
            check("wait for the GPU", (d.context_sync)())
        }
    }

    pub(crate) fn poison(&self, offset: u64, bytes: u64, with: Poison) -> Result<(), ArenaError> {
        self.device.current()?;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the caller has checked the range, which is aligned to four bytes.
        unsafe {
            let d = self.device.driver();
            let fill = (d.fill32)(self.base + offset, with.word(), (bytes / 4) as usize);
            check("poison device memory", fill)?;
            check("wait for the GPU", (d.context_sync)())
        }
    }

    /// All are begun before the end of any is waited for.
    pub(crate) fn copy_all(&self, source: &Self, moves: &[Move]) -> Result<(), ArenaError> {
        self.device.current()?;
        let d = self.device.driver();
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
            let d = self.device.driver();
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
            (self.device.driver().address_free)(self.base, self.room);
        }
        self.device.release(&self.memory);
    }
}

const _: () = assert!(SAMPLE_BYTES == 64, "native/fingerprint.cu reads eight words a sample");
