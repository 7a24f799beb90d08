//! The program as its users meet it: exit code, stdout, stderr.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bad_input;
mod first_contact;
mod judging;
mod many;
mod program;
mod records;
mod resuming;
