//! What the teacher writes, built for the host and compared with torch.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says that it fails by panicking")]

mod bench;
mod corpus;
mod heavy;
