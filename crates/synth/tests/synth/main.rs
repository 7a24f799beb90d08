//! The crate as a caller sees it.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, outside #[test]"
)]

mod cards;
mod data_set;
mod decontaminate;
mod full_disk;
mod rows;
