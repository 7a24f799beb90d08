//! Readings of a real GPU's driver; run by `make test-gpu` and `scripts/gpu-host`.

use std::time::Instant;

use warpwright_jail::{Gpu, Spec};

use super::*;
use crate::device::arena::CudaDevice;
use crate::device::facts::Device;
use crate::testing::own_judge;

#[test]
fn gpu_readings_exist() {
    let gpu = CudaDevice::open(0).unwrap();
    let gauge = NvmlGauge::open(&gpu.identity().unwrap()).unwrap();
    let since = SystemTime::now();
    let started = Instant::now();
    let samples: Vec<Sample> = (0..50).map(|_| gauge.sample().unwrap()).collect();
    let each = started.elapsed() / 50;
    println!("a reading takes {each:?}: {:?}", samples[49]);
    assert!(samples.iter().all(|s| s.sm_mhz > Some(0) && s.memory_mhz > Some(0)));
    let listed = gauge.processes(since).unwrap();
    let others = tenants::others(&listed, std::process::id(), tenants::parent, tenants::name);
    println!("processes there: {listed:?}; others: {others:?}");
}

/// A process of the judge sees the node of its own GPU, and of no other that the host has.
#[test]
fn gpu_processes_see_no_other_gpu() {
    let judge = own_judge(Device::Cuda(0));
    let is_gpu =
        |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let listing = || Spec::new("/bin/ls").arg("/dev").with_system();
    let seen = |list: Spec| {
        let said = judge.processes.host.jail.run(list).unwrap().stdout.text();
        said.lines().filter(|name| is_gpu(name)).map(str::to_owned).collect::<Vec<_>>()
    };
    let minor = node(&CudaDevice::open(0).unwrap().identity().unwrap()).unwrap();
    assert_eq!(seen(judge.machine.device.equip(listing())), [format!("nvidia{minor}")]);
    // Positive control: who is given all sees all.
    let names = fs_err::read_dir("/dev").unwrap().map(|entry| entry.unwrap().file_name());
    let there = names.filter(|name| is_gpu(&name.to_string_lossy())).count();
    assert_eq!(seen(listing().gpu(Gpu::All)).len(), there);
}
