//! The replayer: the trusted process that holds one GPU and launches plans in the judge's memory.
//!
//! ```text
//! judge ── framed JSON (wire) ──► replayer ── CUDA driver ──► GPU
//!   └── arena and inputs, as descriptors of exported memory ──┘
//! ```
//!
//! No code of a candidate runs on the host here. Its kernels run in this process's context, and can read and write
//! all memory in it: so the replayer holds inputs and results, and no expected value, no seed and no comparison. What
//! kernels print goes nowhere; answers go through a socket of their own.
//!
//! A plan is a claim, and its images are hostile: [`warpwright_plan::LaunchPlan::check`] checks the one against the
//! other, and this crate checks again whatever its own memory depends on.
//!
//! | module | what it does |
//! |---|---|
//! | [`wire`] | requests and answers, for the judge too |
//! | `process`, `channel` | arguments, start, the conversation |
//! | `session` | answers requests: the state from load to unload |
//! | `artifact`, `loaded` | images from files; modules and kernels on the device |
//! | `variables` | what `prepare` left in variables of modules |
//! | `memory`, `placement` | the judge's memory; where blocks lie in it |
//! | `outline`, `staged` | what calls have in common; the arguments of each |
//! | `launch`, `graph` | what a timed window runs |
//! | `blas`, `dnn` | calls of cuBLAS and cuDNN |
//! | `cores` | the processor cores of the process |
//! | `driver`, `context` | the CUDA driver; context, streams and events |
//! | `host` | the cpu device, instead of the last five |
//!
//! The judge starts the program `warpwright-replayer` in a jail, and speaks with it as with its Python processes. The
//! library is for the judge's types and for the tests.

mod artifact;
mod blas;
mod channel;
mod context;
mod cores;
mod dnn;
mod driver;
mod failure;
mod graph;
mod host;
mod launch;
mod loaded;
mod memory;
mod outline;
mod placement;
mod process;
mod session;
mod staged;
mod variables;
pub mod wire;

pub use process::main;
