//! Candidates built for real: compilers in the jail, artifacts loaded by Python together with
//! torch.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says that it fails by panicking")]

mod alone;
mod architectures;
mod bench;
mod corpus;
mod cpu;
mod cuda;
mod headers;
mod imports;
mod instruments;
mod libraries;
mod rules;
mod split;
