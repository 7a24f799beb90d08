//! The engine against transformers, against itself, and against what it must not do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, outside #[test]")]

mod adapters;
mod bad_input;
mod gpu;
mod learning;
mod oracle;
mod process;
mod replicas;
mod sampling;
mod training;
mod transformers;
