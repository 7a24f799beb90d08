//! Who may use the device now: many beside each other, or one alone.
//!
//! Whatever computes on the device beside a measured window would lengthen it. Opening an oracle and
//! compiling baselines go side by side; baselines are tuned, and candidates run, alone.
//!
//! First come, first served: nobody is passed by who came later. Neighbours in the queue that share
//! enter together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

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
    /// Numbers of those who wait, in the order in which they came.
    queue: VecDeque<u64>,
    /// How many have come.
    came: u64,
    used: Used,
    /// Since when it has been held as it is.
    since: Option<Instant>,
}

/// For how long a device was held.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// By one alone.
    pub alone: Duration,
    /// By one or more beside each other.
    pub shared: Duration,
}

impl State {
    /// Counts the time until now. To be called before it changes who holds the device.
    fn count(&mut self) {
        let now = Instant::now();
        let passed = self.since.map_or(Duration::ZERO, |since| now - since);
        if self.alone {
            self.used.alone += passed;
        } else if self.sharing > 0 {
            self.used.shared += passed;
        }
        self.since = Some(now);
    }
}

/// What a process asks to hold while it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wish {
    Alone,
    Shared,
    Nothing,
}

impl Gate {
    /// For how long the device was held until now.
    pub(crate) fn used(&self) -> Used {
        let mut state = self.lock();
        state.count();
        state.used
    }

    /// Gives up what is held and waits for what is wished.
    pub(crate) fn change<'g>(&'g self, held: &mut Option<Held<'g>>, wish: Wish) {
        held.take();
        *held = match wish {
            Wish::Alone => Some(self.alone()),
            Wish::Shared => Some(self.share()),
            Wish::Nothing => None,
        };
    }

    /// Waits until those who came before have entered and nobody is alone, then holds the device with
    /// others. Who holds it already must not ask again: someone between may wait to be alone.
    pub(crate) fn share(&self) -> Held<'_> {
        let mut state = self.turn(|state| !state.alone);
        state.count();
        state.sharing += 1;
        drop(state);
        // The next in the queue may share as well.
        self.changed.notify_all();
        Held { gate: self, alone: false }
    }

    /// Waits until those who came before have had the device, then holds it alone.
    pub(crate) fn alone(&self) -> Held<'_> {
        let mut state = self.turn(|state| !state.alone && state.sharing == 0);
        state.count();
        state.alone = true;
        Held { gate: self, alone: true }
    }

    /// Queues until nobody is ahead and the device is `free`.
    fn turn(&self, free: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let number = state.came;
        state.came += 1;
        state.queue.push_back(number);
        while state.queue.front() != Some(&number) || !free(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.pop_front();
        state
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
        state.count();
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

    /// Waits for something that other threads bring about.
    fn until(what: &str, done: impl Fn() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(10), "waited for {what}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Who waits, in this order, enters in this order; sharers between two alone do, and together.
    #[test]
    fn nobody_is_passed_by_who_came_later() {
        let gate = Gate::default();
        let entered = Mutex::new(Vec::new());
        let queue = [
            ("share 0", Wish::Shared),
            ("alone 1", Wish::Alone),
            ("share 2", Wish::Shared),
            ("share 3", Wish::Shared),
            ("alone 4", Wish::Alone),
            ("alone 5", Wish::Alone),
            ("share 6", Wish::Shared),
        ];
        let first = gate.alone();
        std::thread::scope(|scope| {
            for (waiting, (name, wish)) in queue.into_iter().enumerate() {
                let (gate, entered) = (&gate, &entered);
                scope.spawn(move || {
                    let mut held = None;
                    gate.change(&mut held, wish);
                    entered.lock().unwrap().push(name);
                    if ["share 2", "share 3"].contains(&name) {
                        // Leaves only when its neighbour is in: both hold the device.
                        until("a neighbour", || entered.lock().unwrap().len() >= 4);
                    }
                });
                until("a place in the queue", || gate.lock().queue.len() == waiting + 1);
            }
            assert!(entered.lock().unwrap().is_empty(), "somebody entered beside one alone");
            drop(first);
        });
        let mut entered = entered.into_inner().unwrap();
        // Either of the two neighbours may be the first to say that it is in.
        entered[2..4].sort_unstable();
        assert_eq!(entered, queue.map(|(name, _)| name));
    }

    /// A sharer comes in beside another, but not past one who waits to be alone.
    #[test]
    fn who_shares_enters_beside_others_unless_one_waits_to_be_alone() {
        let gate = Gate::default();
        let held = [gate.share(), gate.share()];
        let entered = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _held = gate.alone();
                entered.lock().unwrap().push("alone");
            });
            until("one who wants to be alone", || gate.lock().queue.len() == 1);
            scope.spawn(|| {
                let _held = gate.share();
                entered.lock().unwrap().push("share");
            });
            until("one who wants to share", || gate.lock().queue.len() == 2);
            assert!(entered.lock().unwrap().is_empty());
            drop(held);
        });
        assert_eq!(entered.into_inner().unwrap(), ["alone", "share"]);
    }

    #[test]
    fn time_is_counted_once_however_many_share_it() {
        let gate = Gate::default();
        let step = Duration::from_millis(20);
        let started = Instant::now();
        let held = [gate.share(), gate.share()];
        std::thread::sleep(step);
        drop(held);
        std::thread::sleep(step);
        let held = gate.alone();
        std::thread::sleep(step);
        let used = gate.used();
        drop(held);
        assert!(used.shared >= step && used.alone >= step, "{used:?}");
        // Nothing of the time in which nobody held it.
        assert!(used.shared + used.alone + step <= started.elapsed(), "{used:?}");
    }
}
