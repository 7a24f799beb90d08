//! The context on one GPU, and what lives as long as it: streams, events, scratch memory.

use std::collections::BTreeMap;
use std::ffi::c_int;

use crate::driver::{Address, Driver, Handle};
use crate::failure::Failure;
use crate::wire;

/// Bytes of the replayer's own memory, which wakes the GPU and warms cuBLAS.
pub(crate) const SCRATCH_BYTES: usize = 4 << 20;
/// What it is overwritten with between plans: NaN in every floating type.
const OVERWRITTEN: u32 = 0x7fff_7fff;
/// Part of it that [`Context::wake`] fills.
const WAKE_WORDS: usize = 1 << 16;
/// `CU_STREAM_NON_BLOCKING`: waits for no other stream by itself.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: u32 = 2;
/// Numbers of `CUdevice_attribute` that are asked for.
const ATTRIBUTES: std::ops::RangeInclusive<c_int> = 1..=150;

/// The primary context of one GPU.
pub(crate) struct Context {
    pub(crate) driver: &'static Driver,
    pub(crate) device: c_int,
    pub(crate) scratch: Address,
    streams: Vec<Handle>,
    events: Vec<Handle>,
}

impl Context {
    /// Makes the context of GPU `ordinal` and keeps it current on this thread.
    pub(crate) fn create(driver: &'static Driver, ordinal: u32) -> Result<Self, Failure> {
        let number = c_int::try_from(ordinal)
            .map_err(|_| Failure::Request(format!("there is no GPU {ordinal}")))?;
        let (mut device, mut context, mut scratch) = (0, std::ptr::null_mut(), 0);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: every pointer is to a live local of the type the driver writes; results are checked
        // before anything they fill is used.
        unsafe {
            let d = driver;
            d.check("initialise the CUDA driver", (d.init)(0))?;
            let get = (d.device_get)(&raw mut device, number);
            d.check(&format!("open GPU {ordinal}"), get)?;
            let retain = (d.context_retain)(&raw mut context, device);
            d.check("create a CUDA context", retain)?;
            d.check("use the CUDA context", (d.context_set)(context))?;
            let alloc = (d.memory_alloc)(&raw mut scratch, SCRATCH_BYTES);
            d.check("allocate scratch memory", alloc)?;
        }
        let mut made = Self { driver, device, scratch, streams: Vec::new(), events: Vec::new() };
        made.provide(1, 0)?;
        made.wake()?;
        Ok(made)
    }

    /// Makes streams and events until there are so many.
    pub(crate) fn provide(&mut self, streams: usize, events: usize) -> Result<(), Failure> {
        let d = self.driver;
        while self.streams.len() < streams {
            let mut stream = std::ptr::null_mut();
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `stream` outlives the call.
            let code = unsafe { (d.stream_create)(&raw mut stream, NON_BLOCKING) };
            d.check("create a stream", code)?;
            self.streams.push(stream);
        }
        while self.events.len() < events {
            let mut event = std::ptr::null_mut();
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `event` outlives the call.
            let code = unsafe { (d.event_create)(&raw mut event, UNTIMED) };
            d.check("create an event", code)?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Streams made so far; the first always exists.
    pub(crate) fn streams(&self) -> &[Handle] {
        &self.streams
    }

    /// Events made so far.
    pub(crate) fn events(&self) -> &[Handle] {
        &self.events
    }

    /// The stream in which calls begin and end.
    pub(crate) fn main_stream(&self) -> Handle {
        self.streams.first().copied().unwrap_or(std::ptr::null_mut())
    }

    /// Waits for all work. `action` names the work in an error.
    pub(crate) fn synchronise(&self, action: &str) -> Result<(), Failure> {
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: it takes no arguments.
        let code = unsafe { (self.driver.context_sync)() };
        self.driver.check(action, code)
    }

    /// Runs a small operation on the GPU and waits for it.
    pub(crate) fn wake(&self) -> Result<(), Failure> {
        let d = self.driver;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the words lie inside the scratch memory.
        let code = unsafe { (d.fill32)(self.scratch, 0, WAKE_WORDS, self.main_stream()) };
        d.check("write to the GPU", code)?;
        self.synchronise("wait for the GPU")
    }

    /// Queues a fill of the replayer's own memory with NaN, as the judge fills its arena. `bytes` is a multiple of
    /// four.
    pub(crate) fn overwrite(&self, at: Address, bytes: usize) -> Result<(), Failure> {
        let d = self.driver;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the caller names memory of its own, as long as it is.
        let code = unsafe { (d.fill32)(at, OVERWRITTEN, bytes / 4, self.main_stream()) };
        d.check("overwrite the replayer's memory", code)
    }

    /// What the driver says of the GPU.
    pub(crate) fn facts(&self) -> Result<wire::Facts, Failure> {
        let d = self.driver;
        let (mut name, mut total, mut version) = ([0u8; 128], 0, 0);
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: the buffers outlive the calls; the name's size is passed along, and its last byte
        // stays zero.
        unsafe {
            let named = (d.device_name)(name.as_mut_ptr().cast(), 127, self.device);
            d.check("read the GPU's name", named)?;
            d.check("read the GPU's memory", (d.device_memory)(&raw mut total, self.device))?;
            d.check("read the driver's version", (d.driver_version)(&raw mut version))?;
        }
        let mut attributes = BTreeMap::new();
        for number in ATTRIBUTES {
            let mut value = 0;
            #[expect(unsafe_code, reason = "CUDA driver calls")]
            // SAFETY: `value` outlives the call.
            let code = unsafe { (d.device_attribute)(&raw mut value, number, self.device) };
            if code == 0 {
                attributes.insert(number.to_string(), value);
            }
        }
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(wire::Facts {
            name: String::from_utf8_lossy(name).into_owned(),
            total_memory: total as u64,
            driver_version: version,
            attributes,
        })
    }
}

const _: () = assert!(WAKE_WORDS * 4 <= SCRATCH_BYTES);
