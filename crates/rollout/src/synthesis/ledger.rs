//! State of a synthesis that the workers share: the data set, its log, and the tasks to
//! decontaminate against.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_synth::{DataSet, Decontamination, Likeness, Row, Trial, TrialLog, card};

use super::refused::Refused;
use crate::error::{RolloutError, chain};

/// Interval at which waiting workers check whether to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The shared state with its lock.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when `State::copies` is known.
    pub(super) learnt: Condvar,
}

pub(super) struct State {
    pub(super) set: DataSet,
    pub(super) log: TrialLog,
    /// `None` until it is known. No task is kept before.
    pub(super) copies: Option<Decontamination>,
    /// Trials whose tasks are not on the disk yet.
    pub(super) unwritten: Vec<Trial>,
    next: u64,
    had: usize,
    /// Consecutive failures of the judge itself.
    pub(super) failures: u32,
    pub(super) written: Instant,
    pub(super) said: Instant,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self { state: Mutex::new(state), learnt: Condvar::new() }
    }

    pub(super) fn into_state(self) -> State {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until tasks may be kept; `None` if `stop` is set before.
    pub(super) fn settled(&self, stop: &AtomicBool) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while state.copies.is_none() {
            if stop.load(Ordering::SeqCst) {
                return None;
            }
            let waited = self.learnt.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state)
    }

    /// The state is consistent after every statement, also after a panic of another worker.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The state for a set and its log; `next` is the first seed to try.
    pub(super) fn new(set: DataSet, log: TrialLog, next: u64, started: Instant) -> Self {
        Self {
            had: set.rows().len(),
            set,
            log,
            copies: None,
            unwritten: Vec::new(),
            next,
            failures: 0,
            written: started,
            said: started,
        }
    }

    /// The next untried seed; `None` when the set has `count` tasks.
    pub(super) fn take_seed(&mut self, count: usize) -> Option<u64> {
        if self.set.rows().len() >= count {
            return None;
        }
        while self.log.knows(self.next) {
            self.next += 1;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Adds a task, unless its graph shows that it is a copy.
    pub(super) fn keep(&mut self, row: Row) -> Result<Result<(), Refused>, RolloutError> {
        let broken = |reason: String| {
            let message = format!("failed to add a task to the data set: {reason}");
            RolloutError::infrastructure(message, "report this bug".to_owned())
        };
        let likeness = Likeness::of_task(&row.task(), row.graph.as_ref())
            .map_err(|error| broken(error.to_string()))?;
        let copies = self.copies.as_mut();
        let copies = copies.ok_or_else(|| broken("the suites are not read yet".to_owned()))?;
        if let Some(refusal) = copies.admit(&row.name, likeness).refusal {
            return Ok(Err(Refused::copy(&refusal)));
        }
        self.set.push(row).map_err(|error| broken(chain(&error)))?;
        Ok(Ok(()))
    }

    /// Writes the data set, its card, and the log of its tasks.
    pub(super) fn write(&mut self, out: &Path) -> Result<(), RolloutError> {
        self.written = Instant::now();
        // As long as nothing is known, nothing was kept.
        let Some(copies) = &self.copies else { return Ok(()) };
        if !self.unwritten.is_empty() {
            self.set.write(out)?;
        }
        for trial in std::mem::take(&mut self.unwritten) {
            self.log.append(&trial).map_err(unlogged)?;
        }
        let name = out.file_stem().map_or("tasks".into(), |stem| stem.to_string_lossy());
        let text = card(&name, &self.set, Some(copies.summary()));
        fs_err::write(out.with_extension("md"), text)
            .map_err(|error| RolloutError::io("write the card of the data set", error))
    }

    /// The progress line.
    pub(super) fn told(&mut self, count: usize, started: Instant) -> String {
        self.said = Instant::now();
        let admitted = self.set.rows().len();
        let rate = (admitted - self.had) as f64 / started.elapsed().as_secs_f64();
        // A seed of which a proposal was refused before is in the log already.
        let new = self.unwritten.iter().filter(|trial| !self.log.knows(trial.seed)).count();
        let tried = self.log.tried() + new as u64;
        let mut refused: Vec<_> = self.log.refused().iter().collect();
        refused.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let refused: Vec<_> =
            refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let refused = if refused.is_empty() {
            String::new()
        } else {
            format!("; refused: {}", refused.join(", "))
        };
        format!("{admitted} of {count} tasks admitted, {tried} tried, {rate:.2} tasks/s{refused}")
    }
}

/// The error for a trial log that could not be used.
pub fn unlogged(error: warpwright_synth::LogError) -> RolloutError {
    match error {
        warpwright_synth::LogError::Io { source, .. } => {
            RolloutError::io("use the trial log", source)
        }
        broken @ warpwright_synth::LogError::Broken { .. } => {
            let hint = "move the log away; `synth` then tries its seeds again and refuses copies"
                .to_owned();
            RolloutError::usage(broken.to_string(), hint)
        }
    }
}
