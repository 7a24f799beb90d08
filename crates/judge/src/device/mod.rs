//! The device that candidates run on: what is specific to its kind, its memory, who holds it and whether it is
//! fit for timing. May use no other room but the plan of windows of `timing`.

pub(crate) mod arena;
pub(crate) mod backend;
pub(crate) mod cores;
pub(crate) mod cpu;
pub(crate) mod device_arbiter;
pub(crate) mod device_lock;
pub(crate) mod facts;
pub(crate) mod gpu;
pub(crate) mod health;
#[cfg(test)]
mod holding;

use self::backend::UnopenedDevice;
use self::cpu::UnopenedCpu;
use self::facts::Device;
use self::gpu::UnopenedGpu;

/// The device of this name, before anything of it is used; of its memory the judge may use `memory_limit` bytes.
pub(crate) fn find(device: Device, memory_limit: Option<u64>) -> Box<dyn UnopenedDevice> {
    match device {
        Device::Cpu => Box::new(UnopenedCpu { memory_limit }),
        Device::Cuda(ordinal) => Box::new(UnopenedGpu { ordinal, memory_limit }),
    }
}
