//! Filled in by its first change.
