//! The tools a policy works with, and what runs them.

pub mod arguments;
mod files;
