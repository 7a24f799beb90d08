//! The committed catalogues and the composer, tried on torch.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside #[test]")]

mod catalogue;
mod compose;
mod support;
