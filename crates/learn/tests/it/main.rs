//! Training on recorded runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside #[test]")]

mod coin;
mod online;
mod outcome;
#[path = "../../../record/tests/it/sample.rs"]
mod sample;
