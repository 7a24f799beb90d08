//! Checks what a candidate gives: the claims about its results, and every element against the oracle's. May use
//! `process`, and the memory of `device`.

pub(crate) mod claims;
pub(crate) mod compare;
pub(crate) mod dtype;
pub(crate) mod families;
pub(crate) mod findings;
pub(crate) mod glance;
pub(crate) mod layout;
pub(crate) mod named;
#[cfg(test)]
mod numerics;
pub(crate) mod placement;
pub(crate) mod share;
#[cfg(test)]
mod shortcuts;
pub(crate) mod stated;
pub(crate) mod ties;
pub(crate) mod timed_calls;
pub(crate) mod tolerance;
pub(crate) mod verify;
