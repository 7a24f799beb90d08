//! The agent: a policy works in a workspace through tools until it stops or its budget ends.

pub mod judge;
pub mod policy;
pub mod tools;
