//! The crate as a caller sees it.

#![expect(clippy::expect_used, reason = "helpers of tests, outside #[test]")]

mod decontaminate;
