//! The judge with real processes: torch, compilers, jails. Candidates and tasks are given as text.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod definitions;
mod examining;
mod faults;
mod gpu;
mod gpu_examining;
mod gpu_libraries;
mod host_plans;
mod inspecting;
mod integrity;
mod judging;
mod lawful;
mod numbers;
mod opening;
mod provenance;
mod support;
mod values;
mod workloads;
