//! Who may use the device now: many beside each other, or one alone.
//!
//! Whatever computes on the device beside a measured window would lengthen it. Opening an oracle and
//! compiling baselines go side by side; baselines are tuned, and candidates run, alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The device's gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sharing: usize,
    alone: bool,
    waiting_alone: usize,
}

impl Gate {
    /// Waits until nobody is alone or waits to be, then holds the device with others.
    pub(crate) fn share(&self) -> Held<'_> {
        let mut state = self.lock();
        while state.alone || state.waiting_alone > 0 {
            state = self.wait(state);
        }
        state.sharing += 1;
        Held { gate: self, alone: false }
    }

    /// Waits until nobody holds the device, then holds it alone. Those who want to be alone go one
    /// after the other before anybody shares again: there are as many as open sessions at the most.
    pub(crate) fn alone(&self) -> Held<'_> {
        let mut state = self.lock();
        state.waiting_alone += 1;
        while state.alone || state.sharing > 0 {
            state = self.wait(state);
        }
        state.waiting_alone -= 1;
        state.alone = true;
        Held { gate: self, alone: true }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device, held until dropped.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    gate: &'g Gate,
    alone: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if self.alone {
            state.alone = false;
        } else {
            state.sharing -= 1;
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

    /// Many threads come and go: alone means alone, sharing happens side by side, all finish.
    #[test]
    fn alone_means_alone() {
        let gate = Gate::default();
        let inside = AtomicI64::new(0);
        let most_shared = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (gate, inside, most_shared) = (&gate, &inside, &most_shared);
                scope.spawn(move || {
                    for round in 0..50 {
                        if (thread + round) % 4 == 0 {
                            let held = gate.alone();
                            assert_eq!(inside.swap(-1000, Ordering::SeqCst), 0);
                            std::thread::yield_now();
                            assert_eq!(inside.swap(0, Ordering::SeqCst), -1000);
                            drop(held);
                        } else {
                            let held = gate.share();
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            assert!(now > 0);
                            most_shared.fetch_max(now as usize, Ordering::SeqCst);
                            std::thread::sleep(std::time::Duration::from_micros(200));
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(held);
                        }
                    }
                });
            }
        });
        assert!(most_shared.into_inner() > 1, "nobody shared");
    }
}
