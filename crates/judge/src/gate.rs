//! Who may use the device now: many beside each other, or one alone.
//!
//! Whatever computes on the device beside a measured window would lengthen it. Opening an oracle and
//! compiling baselines go side by side; baselines are tuned, and candidates run, alone.
//!
//! Who waits has a deadline, the sooner the shorter its turns are as a rule, and the earliest goes
//! first: a baseline needs the device eight times for a few hundredths of a second each, and would
//! wait most of its life for candidates that measure for seconds. When one who shares has its turn, all
//! enter who wait to share: else a device that is wanted alone and shared by turns would be shared by
//! one at a time. Nobody waits for ever: a deadline comes, and who came later does not enter with others.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// What a device is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A process begins, on a GPU with a context of its own.
    Start,
    /// A reference is loaded, and what is known of it found out.
    Reference,
    /// Baselines are moved to the device, compiled and warmed.
    Baselines,
    /// Baselines get inputs, and their windows a length.
    Staging,
    /// A candidate is looked at.
    Verification,
    /// A candidate is looked at and timed.
    Measurement,
    /// A profiler or a sanitizer runs a candidate.
    Inspection,
    /// Something that disturbs what is timed on the cpu device: compilers, memory touched first.
    Host,
    /// The device's own speed is measured.
    Ceilings,
}

impl Purpose {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Start,
        Self::Reference,
        Self::Baselines,
        Self::Staging,
        Self::Verification,
        Self::Measurement,
        Self::Inspection,
        Self::Host,
        Self::Ceilings,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "starting processes",
            Self::Reference => "references",
            Self::Baselines => "baselines",
            Self::Staging => "staging baselines",
            Self::Verification => "verifying",
            Self::Measurement => "measuring",
            Self::Inspection => "inspections",
            Self::Host => "work on the host",
            Self::Ceilings => "ceilings",
        }
    }

    /// For how long one that comes may be passed by those of shorter turns: a few turns' time. Of 12
    /// episodes on an H200 a turn took 0.07 s for baselines, 0.5 s for verifying, 0.8 s for staging, a
    /// start and a reference, and 1 to 6 s for measuring.
    const fn patience(self) -> Duration {
        match self {
            Self::Baselines => Duration::ZERO,
            Self::Verification | Self::Staging => Duration::from_secs(2),
            _ => Duration::from_secs(4),
        }
    }
}

/// Times as long as its turn takes, as far as that is known, may one who comes be passed by those of
/// shorter turns; and the longest.
const PATIENCE: u32 = 2;
const LONGEST: Duration = Duration::from_secs(8);

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
    /// A candidate is measured.
    measuring: bool,
    /// Candidates that wait to be.
    ready: usize,
    /// Deadlines and numbers of those who wait.
    queue: BTreeSet<(Instant, u64)>,
    /// How many have come.
    came: u64,
    /// Who wants to share and has a number below this one need not wait for those before it.
    together: u64,
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
    /// While a candidate waited to be measured and none was.
    pub starved: Duration,
    /// For each purpose, in the order of [`Purpose::ALL`].
    pub by: [Use; Purpose::ALL.len()],
}

/// For how long a device was held for one purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// How often.
    pub turns: u32,
    /// In all; time that several shared counts for each of them.
    pub held: Duration,
    /// For how long it was waited for, in all.
    pub waited: Duration,
}

impl State {
    /// Counts the time until now. To be called before it changes who holds the device, or who waits to
    /// measure.
    fn count(&mut self) {
        let now = Instant::now();
        let passed = self.since.map_or(Duration::ZERO, |since| now - since);
        if self.alone {
            self.used.alone += passed;
        } else if self.sharing > 0 {
            self.used.shared += passed;
        }
        if self.ready > 0 && !self.measuring {
            self.used.starved += passed;
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
    /// For how long the device was held until now. What is still held counts for no purpose yet.
    pub(crate) fn used(&self) -> Used {
        let mut state = self.lock();
        state.count();
        state.used
    }

    /// Gives up what is held and waits for what is wished.
    pub(crate) fn change<'g>(&'g self, held: &mut Option<Held<'g>>, wish: Wish, purpose: Purpose) {
        held.take();
        *held = match wish {
            Wish::Alone => Some(self.alone(purpose)),
            Wish::Shared => Some(self.share(purpose)),
            Wish::Nothing => None,
        };
    }

    /// Waits for its turn and until nobody is alone, then holds the device with others. Who holds it
    /// already must not ask again: someone between may wait to be alone.
    pub(crate) fn share(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, false, Instant::now(), purpose.patience())
    }

    /// Waits for its turn and until nobody holds the device, then holds it alone.
    pub(crate) fn alone(&self, purpose: Purpose) -> Held<'_> {
        self.enter(purpose, true, Instant::now(), purpose.patience())
    }

    /// The same for somebody whose turns usually take so long: the shorter, the sooner it has one. Who
    /// takes a thousand times as long as the others waits for many of them, and not for ever.
    pub(crate) fn alone_for(&self, purpose: Purpose, usual: Option<Duration>) -> Held<'_> {
        let patience = usual.map(|usual| (PATIENCE * usual).min(LONGEST));
        self.enter(purpose, true, Instant::now(), patience.unwrap_or(purpose.patience()))
    }

    fn enter(&self, purpose: Purpose, alone: bool, came: Instant, patience: Duration) -> Held<'_> {
        let measures = purpose == Purpose::Measurement;
        let mut state = self.lock();
        state.count();
        state.ready += usize::from(measures);
        let number = state.came;
        state.came += 1;
        let ticket = (came + patience, number);
        state.queue.insert(ticket);
        loop {
            let first = state.queue.first() == Some(&ticket);
            let turn = first || (!alone && number < state.together);
            if turn && !state.alone && (!alone || state.sharing == 0) {
                if first && !alone {
                    state.together = state.came;
                }
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.queue.remove(&ticket);
        state.count();
        state.ready -= usize::from(measures);
        state.measuring |= measures;
        if alone {
            state.alone = true;
        } else {
            state.sharing += 1;
        }
        let since = Instant::now();
        let counted = &mut state.used.by[purpose as usize];
        counted.turns += 1;
        counted.waited += since - came;
        drop(state);
        // Others may share as well.
        self.changed.notify_all();
        Held { gate: self, alone, purpose, since }
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
    purpose: Purpose,
    since: Instant,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.count();
        state.used.by[self.purpose as usize].held += self.since.elapsed();
        state.measuring &= self.purpose != Purpose::Measurement;
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
                            let held = gate.alone(Purpose::Measurement);
                            assert_eq!(inside.swap(-1000, Ordering::SeqCst), 0);
                            std::thread::yield_now();
                            assert_eq!(inside.swap(0, Ordering::SeqCst), -1000);
                            drop(held);
                        } else {
                            let held = gate.share(Purpose::Reference);
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

    /// Who waits to share enters with the first who does; those who want to be alone keep their order.
    #[test]
    fn sharers_enter_together_and_the_others_in_their_order() {
        let gate = Gate::default();
        let entered = Mutex::new(Vec::new());
        let queue = [
            ("alone 0", Wish::Alone),
            ("share 1", Wish::Shared),
            ("alone 2", Wish::Alone),
            ("share 3", Wish::Shared),
            ("alone 4", Wish::Alone),
            ("share 5", Wish::Shared),
        ];
        let first = gate.alone(Purpose::Measurement);
        std::thread::scope(|scope| {
            for (waiting, (name, wish)) in queue.into_iter().enumerate() {
                let (gate, entered) = (&gate, &entered);
                scope.spawn(move || {
                    let mut held = None;
                    gate.change(&mut held, wish, Purpose::Start);
                    entered.lock().unwrap().push(name);
                    if wish == Wish::Shared {
                        // Leaves only when the others are in: all hold the device.
                        until("those who share", || entered.lock().unwrap().len() >= 4);
                    }
                });
                until("a place in the queue", || gate.lock().queue.len() == waiting + 1);
            }
            assert!(entered.lock().unwrap().is_empty(), "somebody entered beside one alone");
            drop(first);
        });
        let mut entered = entered.into_inner().unwrap();
        entered[1..4].sort_unstable();
        let expected = ["alone 0", "share 1", "share 3", "share 5", "alone 2", "alone 4"];
        assert_eq!(entered, expected);
    }

    /// Short turns go before long ones that came a little earlier, and not before those that came long
    /// ago.
    #[test]
    fn short_turns_pass_long_ones_for_a_while() {
        let gate = Gate::default();
        let entered = Mutex::new(Vec::new());
        let now = Instant::now();
        let long_ago = now.checked_sub(Duration::from_secs(5)).unwrap();
        let queue = [
            ("measure", Purpose::Measurement, now),
            ("verify", Purpose::Verification, now),
            ("measured long ago", Purpose::Measurement, long_ago),
            ("tune", Purpose::Baselines, now),
            ("tune again", Purpose::Baselines, now),
        ];
        let first = gate.alone(Purpose::Measurement);
        std::thread::scope(|scope| {
            for (waiting, (name, purpose, came)) in queue.into_iter().enumerate() {
                let (gate, entered) = (&gate, &entered);
                scope.spawn(move || {
                    let _held = gate.enter(purpose, true, came, purpose.patience());
                    entered.lock().unwrap().push(name);
                });
                until("a place in the queue", || gate.lock().queue.len() == waiting + 1);
            }
            drop(first);
        });
        let expected = ["measured long ago", "tune", "tune again", "verify", "measure"];
        assert_eq!(entered.into_inner().unwrap(), expected);
    }

    /// One that takes long comes first and waits for those that do not.
    #[test]
    fn short_candidates_pass_long_ones() {
        let gate = Gate::default();
        let entered = Mutex::new(Vec::new());
        let queue = [
            ("long", Some(60_000)),
            ("unknown", None),
            ("short", Some(100)),
            ("shorter", Some(10)),
        ];
        let first = gate.alone(Purpose::Measurement);
        std::thread::scope(|scope| {
            for (waiting, (name, usual)) in queue.into_iter().enumerate() {
                let (gate, entered) = (&gate, &entered);
                scope.spawn(move || {
                    let usual = usual.map(Duration::from_millis);
                    let _held = gate.alone_for(Purpose::Measurement, usual);
                    entered.lock().unwrap().push(name);
                });
                until("a place in the queue", || gate.lock().queue.len() == waiting + 1);
            }
            drop(first);
        });
        assert_eq!(entered.into_inner().unwrap(), ["shorter", "short", "unknown", "long"]);
    }

    /// A sharer comes in beside another, but not past one who waits to be alone.
    #[test]
    fn who_shares_enters_beside_others_unless_one_waits_to_be_alone() {
        let gate = Gate::default();
        let held = [gate.share(Purpose::Reference), gate.share(Purpose::Reference)];
        let entered = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _held = gate.alone(Purpose::Measurement);
                entered.lock().unwrap().push("alone");
            });
            until("one who wants to be alone", || gate.lock().queue.len() == 1);
            scope.spawn(|| {
                let _held = gate.share(Purpose::Reference);
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
        let held = [gate.share(Purpose::Reference), gate.share(Purpose::Reference)];
        std::thread::sleep(step);
        drop(held);
        std::thread::sleep(step);
        let held = gate.alone(Purpose::Measurement);
        std::thread::sleep(step);
        let used = gate.used();
        drop(held);
        assert!(used.shared >= step && used.alone >= step, "{used:?}");
        drop(gate.share(Purpose::Start));
        let by = |purpose: Purpose| gate.used().by[purpose as usize];
        assert_eq!(by(Purpose::Reference).turns, 2);
        assert!(by(Purpose::Reference).held >= 2 * step, "both of two who shared it");
        assert!(by(Purpose::Measurement).held >= step);
        assert_eq!(by(Purpose::Start).turns, 1);
        // Nothing of the time in which nobody held it.
        assert!(used.shared + used.alone + step <= started.elapsed(), "{used:?}");
    }

    /// While one verifies, who would measure starves; while one measures, the next only waits.
    #[test]
    fn who_would_measure_starves_while_nobody_does() {
        let gate = Gate::default();
        let step = Duration::from_millis(20);
        let waits_for = |held: Held<'_>| {
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| drop(gate.alone(Purpose::Measurement)));
                until("one who would measure", || gate.lock().ready == 1);
                std::thread::sleep(step);
                drop(held);
                waiting.join().unwrap();
            });
            gate.used().starved
        };
        let measured = waits_for(gate.alone(Purpose::Measurement));
        assert!(measured < step, "{measured:?}");
        assert!(waits_for(gate.alone(Purpose::Verification)) >= step);
    }
}
