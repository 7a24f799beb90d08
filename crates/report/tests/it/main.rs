//! Reports for people, made from a run folder as the other parts write it.

#![expect(
    clippy::unwrap_used,
    reason = "tests and their builders; clippy's own opt-out covers `#[test]` functions only"
)]

mod analysis;
mod comparison;
mod evaluation;
mod evaluation_files;
mod live;
mod page;
mod rejudged;
#[path = "../../../record/tests/it/sample.rs"]
mod sample;
mod suite;
mod table;
mod trajectory;
