//! The teacher's kernels, built for the host and compared with torch.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says that it fails by panicking")]
#![expect(clippy::format_collect, clippy::format_push_string, reason = "texts are small here")]

mod bench;
mod chain;
mod corpus;
mod heavy;
mod several;
mod suite;
