//! The engine compared with transformers and with itself, and its refusals.

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
