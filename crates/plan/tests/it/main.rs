//! Tests of launch plans: images that nvcc made, recordings of described candidates, and hostile ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod fixture;
mod images;
mod json;
mod libraries;
mod limits;
mod merging;
mod model;
mod recorded;
mod refusals;
mod roles;
mod small;
mod validity;
