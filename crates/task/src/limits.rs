//! Limits of a source.

/// Largest source of one task, in bytes. KernelBench's largest is 20 KB. The limit also bounds how
/// deep a source can nest, and so the stack that reading it needs (see `facts`).
pub const MAX_SOURCE_BYTES: usize = 256 << 10;
