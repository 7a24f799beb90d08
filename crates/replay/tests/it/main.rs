//! The program `warpwright-replayer` as the judge starts it. Tests whose names begin with `gpu_` need an H100 or H200.

mod convolutions;
mod device;
mod gpu;
mod launches;
mod plans;
mod replayer;
mod start;
