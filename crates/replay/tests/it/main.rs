//! The program `warpwright-replayer` as the judge starts it. Tests whose names begin with `gpu_` need an H100 or H200;
//! those of the cpu device need none.

mod convolutions;
mod device;
mod gpu;
#[cfg(target_arch = "x86_64")]
mod host;
mod launches;
mod plans;
mod replayer;
mod start;
