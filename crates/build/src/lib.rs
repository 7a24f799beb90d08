//! Compiles candidate files to a loadable artifact, for a GPU and for the host.
//!
//! [`Builder::build`] takes a [`Candidate`](warpwright_record::candidate::Candidate) and a
//! [`Target`] and returns an [`Outcome`]: an [`Artifact`] (a folder the runner loads from) or a
//! [`Failed`] with compiler messages as data. [`BuildError`] is for causes other than the
//! candidate: no compiler, a full disk.
//!
//! ```text
//! Candidate ── screen ──► sources ─┬─ kernels/*.cu ────────► objects ─┬─► libkernels.so
//!                                  ├─ kernels/*_binding.cpp ► objects ┴─► cuda_extension.so
//!                                  └─ load_inline in model_new.py ─ harvest ─► inline/<key>.so
//! every compiler runs in the jail; every object and artifact lies in the cache under its content
//! ```
//!
//! Called by the judge; calls `jail` to run compilers and `hostcuda` to read launcher signatures
//! and, for the cpu device, to rewrite CUDA C++. It does not load what it builds, knows no GPU and
//! no torch process, and decides nothing about speed or correctness.

mod ablation;
mod allowed;
mod alone;
mod artifact;
mod bench;
mod builder;
mod cache;
mod compile;
mod demangle;
mod diagnostics;
mod elf;
mod entry;
mod entry_points;
mod error;
mod evict;
mod files;
mod flags;
mod headers;
mod host;
mod image;
mod imports;
mod inline;
mod launchers;
mod libraries;
mod link;
mod operators;
mod plan;
mod precompiled;
mod process;
mod ptxas;
mod python;
mod screen;
mod settings;
mod split;
mod steps;
mod stop;
mod support;
mod symbol;
pub mod template;
mod toolchain;
mod triton;
mod unit;

pub use artifact::{
    ARTIFACT_VERSION, Artifact, BuildManifest, Element, Failed, InlineModule, InlineTable,
    Instrument, KernelsAlone, Launcher, LauncherTable, Outcome, Param, ParamKind, Request,
    Resources, Returns, Target,
};
pub use builder::Builder;
pub use error::BuildError;
pub use libraries::{CUTLASS_VARIABLE, Cutlass};
pub use python::{Python, Torch};
pub use settings::Settings;
pub use toolchain::{Compiler, Cuda, Linker, Toolchain};
