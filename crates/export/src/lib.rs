//! From a verified verdict to a Python package: host code that launches the judged plan, behind operators of torch.
//!
//! ```text
//! verdict, launch plans, images ──► Source ──► Package (files) ──► a folder that pip builds and torch loads
//! ```
//!
//! [`Package::of`] is a function from what was judged to files; [`Package::write`] writes them. The package holds one
//! folder per judged workload: the plan, the device images, and C++ that was generated from the plan ([`code`]). The
//! Python in `runtime/` is the same in every package: it registers the operators, prepares weights, and falls back to
//! the reference where nothing was judged. This crate starts no process, and reads no file. Concept and reasons:
//! decision 56. Guide: `docs/guides/deploy-a-kernel.md`.

mod code;
mod error;
mod files;
mod layout;
mod names;
mod source;
mod spec;
mod texts;

pub use error::ExportError;
pub use files::{Layouts, Package};
pub use source::{Source, TaskSource, TensorForm, WorkloadSource};
