//! The HTTP interface, with a scripted judge. The tests of the program use the real one.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside #[test]")]

mod asking;
mod hiding;
mod looking;
mod refusing;
mod running;
mod server;
mod sessions;
mod sockets;
