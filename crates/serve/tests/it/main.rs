//! What is said over HTTP, with a judge that says what the test wants: the real one is asked in the tests of
//! the program.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside #[test]")]

mod asking;
mod looking;
mod refusing;
mod running;
mod server;
mod sessions;
mod sockets;
