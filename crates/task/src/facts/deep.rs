//! Room for recursion.
//!
//! The parser grows its stack as it needs, but walking and dropping a syntax tree recurse on the
//! thread's own stack, and `-----...x` nests once per byte. With sources of at most
//! [`MAX_SOURCE_BYTES`](crate::MAX_SOURCE_BYTES) the depth is bounded, so a thread with enough stack
//! can always do it. The memory is reserved, not used, until the recursion gets there.

/// Between 128 and 256 bytes of stack per byte of source are enough for every nesting in the crate's
/// tests; four times as much leaves room for other compilers.
const STACK_BYTES: usize = 1024 * crate::limits::MAX_SOURCE_BYTES;

/// Runs `work` on a thread with a deep stack. `None` where the thread could not be started, or
/// `work` panicked.
pub(crate) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("task-reader".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}
