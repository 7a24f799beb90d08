//! The device that candidates run on: its facts, its memory, who holds it and whether it is fit for timing.
//! Uses no other room but the judge's errors.

pub(crate) mod arena;
pub(crate) mod cores;
pub(crate) mod device_arbiter;
pub(crate) mod facts;
pub(crate) mod health;
#[cfg(test)]
mod holding;
