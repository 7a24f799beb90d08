//! The jail against what jailed code might try (`examples/attack.rs`), on every backend this machine has.
//!
//! Each test has its positive control: the same attack outside works, so that inside it fails for the
//! stated reason. Where a backend can, everything is run for executed programs and for forks. As root the tests run with the root backend and Landlock, and then all again as an
//! unprivileged user with the others.

mod confinement;
mod files;
mod forks;
mod freezing;
mod isolation;
mod lifecycle;
mod limits;
#[cfg(test)]
mod support;
