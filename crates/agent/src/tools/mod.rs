//! The tools a policy works with.

pub mod arguments;
