//! Admission of requests. One gate per endpoint: it limits the concurrent requests, admits callers in FIFO order,
//! and blocks all of them while the server is unavailable or asks to wait. While the server is unavailable, the
//! gate admits one request at a time as a probe.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of checking the stop flag while a caller waits.
const POLL: Duration = Duration::from_millis(100);
/// Consecutive server errors, over all callers, after which the server counts as unavailable.
const FAILURES_UNTIL_AWAY: u32 = 3;

/// Shared by all callers of one endpoint.
#[derive(Debug)]
pub(super) struct Gate {
    most: usize,
    backoff: Backoff,
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

/// Exponential backoff between tries, with jitter, so that callers do not all retry at the same
/// time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) most: Duration,
}

impl Backoff {
    /// Pause before try number `tries + 1`.
    pub(super) fn after(&self, tries: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << tries.saturating_sub(1).min(16));
        doubled.min(self.most).mul_f64(rand::random_range(0.5..1.0))
    }
}

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    waiting: VecDeque<u64>,
    in_flight: usize,
    hold_until: Option<Instant>,
    failures: u32,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    last: Instant,
    tries: u32,
    probing: bool,
    why: String,
}

/// Why the gate refused a caller.
#[derive(Debug)]
pub(super) enum Closed {
    /// The stop flag is set.
    Stopped,
    /// The server was unavailable for too long.
    Away { seconds: u64, why: String },
}

/// The right to send one request.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    gate: &'a Gate,
    probe: bool,
}

impl Gate {
    pub(super) fn new(most: usize, backoff: Backoff, patience: Duration) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { most: most.max(1), backoff, patience, state, changed }
    }

    /// Waits until a request may be sent. `asked` is the time of the caller's first attempt: a
    /// caller that has seen no failure since then may try the server once, however long it was
    /// unavailable.
    pub(super) fn enter(&self, asked: Instant, stop: &AtomicBool) -> Result<Permit<'_>, Closed> {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        let answer = loop {
            if stop.load(Ordering::SeqCst) {
                break Err(Closed::Stopped);
            }
            if let Some(outage) = &state.outage
                && outage.since.elapsed() > self.patience
                && outage.last >= asked
            {
                let (seconds, why) = (outage.since.elapsed().as_secs(), outage.why.clone());
                break Err(Closed::Away { seconds, why });
            }
            if state.waiting.front() == Some(&ticket) && state.in_flight < self.most {
                let now = Instant::now();
                let held = state.hold_until.is_some_and(|until| until > now);
                let probing = state.outage.as_ref().is_some_and(|outage| outage.probing);
                if !held && !probing {
                    let probe = state.outage.is_some();
                    if let Some(outage) = &mut state.outage {
                        outage.probing = true;
                    }
                    state.in_flight += 1;
                    break Ok(Permit { gate: self, probe });
                }
            }
            let waited = self.changed.wait_timeout(state, POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting.retain(|other| *other != ticket);
        drop(state);
        self.changed.notify_all();
        answer
    }

    /// Reports that the server answered, with any status. Returns whether it was unavailable
    /// before.
    pub(super) fn answered(&self) -> bool {
        let mut state = self.lock();
        state.failures = 0;
        state.outage.take().is_some()
    }

    /// Blocks all callers, as the server asked.
    pub(super) fn hold(&self, wait: Duration) {
        let until = Instant::now().checked_add(wait);
        let mut state = self.lock();
        state.hold_until = state.hold_until.max(until);
    }

    /// Reports that the server could not be reached, or failed. Returns whether it now counts as
    /// unavailable, and whether that changed.
    pub(super) fn failed(&self, why: &str, at_once: bool) -> (bool, bool) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        if !at_once && state.failures < FAILURES_UNTIL_AWAY && state.outage.is_none() {
            return (false, false);
        }
        let now = Instant::now();
        let news = state.outage.is_none();
        let outage = state.outage.get_or_insert_with(|| Outage {
            since: now,
            last: now,
            tries: 0,
            probing: false,
            why: String::new(),
        });
        outage.tries = outage.tries.saturating_add(1);
        outage.last = now;
        why.clone_into(&mut outage.why);
        let wait = self.backoff.after(outage.tries);
        state.hold_until = state.hold_until.max(now.checked_add(wait));
        (true, news)
    }

    /// Maximum time that a caller waits for a server.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is a single assignment: a caller that panicked leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.in_flight -= 1;
        if let (true, Some(outage)) = (self.probe, &mut state.outage) {
            outage.probing = false;
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::ScopedJoinHandle;

    use super::*;

    const QUICK: Backoff =
        Backoff { first: Duration::from_millis(10), most: Duration::from_millis(20) };

    #[test]
    fn callers_pass_in_arrival_order() {
        let gate = Arc::new(Gate::new(1, QUICK, Duration::from_secs(5)));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = gate.enter(Instant::now(), &AtomicBool::new(false)).unwrap();
        let callers: Vec<_> = (0..5)
            .map(|caller| {
                let (gate_, order) = (Arc::clone(&gate), Arc::clone(&order));
                let thread = std::thread::spawn(move || {
                    let permit = gate_.enter(Instant::now(), &AtomicBool::new(false)).unwrap();
                    order.lock().unwrap().push(caller);
                    drop(permit);
                });
                while gate.lock().waiting.len() <= caller {
                    std::thread::yield_now();
                }
                thread
            })
            .collect();
        drop(first);
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    /// Waits until the caller waits at the gate. The lock covers arrival and admission, so a caller that is seen
    /// waiting was not admitted.
    fn wait_for_arrival(gate: &Gate, caller: &ScopedJoinHandle<'_, bool>) {
        while gate.lock().waiting.is_empty() {
            assert!(!caller.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
    }

    #[test]
    fn held_gate_admits_nobody() {
        let gate = Gate::new(1, QUICK, Duration::from_mins(1));
        let stop = AtomicBool::new(false);
        gate.hold(Duration::from_hours(1));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| gate.enter(Instant::now(), &stop).is_ok());
            wait_for_arrival(&gate, &caller);
            gate.lock().hold_until = None;
            assert!(caller.join().unwrap(), "positive control: it is admitted afterwards");
        });
    }

    #[test]
    fn unreachable_server_is_probed_by_one_caller_then_fails_all() {
        let gate = Gate::new(8, QUICK, Duration::from_millis(50));
        let stop = AtomicBool::new(false);
        assert_eq!(gate.failed("500", false), (false, false));
        assert_eq!(gate.failed("refused", true), (true, true));
        let asked = Instant::now();
        let probe = gate.enter(asked, &stop).unwrap();
        assert!(probe.probe);
        // Another caller waits although the pause after the failure is over.
        gate.lock().hold_until = None;
        let leaves = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| gate.enter(Instant::now(), &leaves).is_ok());
            wait_for_arrival(&gate, &other);
            leaves.store(true, Ordering::SeqCst);
            assert!(!other.join().unwrap(), "the stop flag ends its wait");
        });
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(gate.failed("refused", true), (true, false));
        drop(probe);
        let told = gate.enter(asked, &stop).unwrap_err();
        assert!(matches!(told, Closed::Away { why, .. } if why == "refused"));
        // Whoever comes later lets it be tried once more.
        let late = gate.enter(Instant::now(), &stop).unwrap();
        assert!(gate.answered());
        drop(late);
        assert!(!gate.enter(asked, &stop).unwrap().probe, "it is back for all");
    }

    #[test]
    fn backoff_doubles_up_to_a_limit() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
        for (tries, most) in [(1, 1), (2, 2), (5, 16), (6, 30), (60, 30)] {
            let (wait, most) = (backoff.after(tries), Duration::from_secs(most));
            assert!(wait <= most && wait >= most / 2, "{tries}: {wait:?}");
        }
    }
}
