//! Limits concurrency to a fixed number of slots.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A fixed number of equal slots.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<usize>,
    changed: Condvar,
}

/// A slot, released when dropped.
#[derive(Debug)]
pub(crate) struct Slot<'s>(&'s Slots);

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Mutex::new(count.max(1)), changed: Condvar::new() }
    }

    /// Waits for a slot.
    pub(crate) fn take(&self) -> Slot<'_> {
        let mut free = self.lock();
        while *free == 0 {
            free = self.changed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Slot(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn at_most_n_threads_hold_a_slot() {
        let (slots, inside) = (Slots::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let _slot = slots.take();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(*slots.lock(), 3);
    }
}
