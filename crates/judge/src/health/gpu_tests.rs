//! What a GPU's driver really tells; run by `make test-gpu` and `scripts/gpu-host`.

use std::time::{Duration, Instant};

use super::*;
use crate::arena::CudaDevice;

#[test]
fn gpu_readings_are_there_and_cheap() {
    let gpu = CudaDevice::open(0).unwrap();
    let gauge = NvmlGauge::open(&gpu.identity().unwrap()).unwrap();
    let since = SystemTime::now();
    let started = Instant::now();
    let samples: Vec<Sample> = (0..50).map(|_| gauge.sample().unwrap()).collect();
    let each = started.elapsed() / 50;
    println!("a reading takes {each:?}: {:?}", samples[49]);
    assert!(each < Duration::from_millis(20), "{each:?} between any two windows");
    assert!(samples.iter().all(|s| s.sm_mhz > Some(0) && s.memory_mhz > Some(0)));
    let listed = gauge.processes(since).unwrap();
    let others = tenants::others(&listed, std::process::id(), tenants::parent, tenants::name);
    println!("processes there: {listed:?}; others: {others:?}");
}
