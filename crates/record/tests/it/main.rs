//! The run folder from outside: round trips, torn writes, kills, full disks, wire forms.

#![expect(
    clippy::float_cmp,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests and their builders; clippy's own opt-out covers `#[test]` functions only"
)]

mod child;
mod damage;
mod full_disk;
mod lifecycle;
mod reward;
mod sample;
mod shown;
mod stranger;
mod voided;
mod wire;
mod wire_findings;
mod wire_verdict;
