//! Limits of builds.

/// Limits of a build.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Processor time of one compiler run in seconds; default 240. The wall-clock limit is six
    /// times this plus a minute.
    pub compile_seconds: f64,
    /// Memory of one compiler run in bytes; default 6 GiB.
    pub compile_memory_bytes: u64,
    /// Maximum concurrent compiler runs; default the number of cores.
    pub jobs: usize,
    /// Maximum size of the cache in bytes; default 16 GiB. The least recently used entries are
    /// removed.
    pub cache_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compile_seconds: 240.0,
            compile_memory_bytes: 6 << 30,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            cache_bytes: 16 << 30,
        }
    }
}
