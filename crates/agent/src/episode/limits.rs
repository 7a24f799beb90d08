//! The conditions that end an episode: the policy's last message, a loop of equal turns, and the
//! budgets.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use warpwright_record::event::{Budget, Outcome};
use warpwright_record::message::{Message, StopReason, ToolResult};
use warpwright_record::verdict::Verdict;

/// Consecutive equal turns (the same calls, ending the same way) before the episode ends,
/// counted for cycles of one, two and three turns.
pub(super) const MOST_REPEATS: usize = 10;

/// The outcome with which a message ends the episode, if it does. A truncated message does not: the
/// policy is asked to continue.
pub(super) fn stops(message: &Message) -> Option<Outcome> {
    match message.stop {
        _ if !message.calls.is_empty() => None,
        StopReason::Done => Some(Outcome::Stopped),
        StopReason::Refused => Some(Outcome::Refused),
        StopReason::Length => None,
    }
}

/// Tokens of a message: those of its context and its own.
pub(super) fn tokens(message: &Message) -> u64 {
    let usage = message.generation.as_ref().map(|generation| generation.usage);
    usage.map_or(0, |usage| usage.input_tokens + usage.output_tokens)
}

/// Seconds for which a verdict occupied the device: everything except the build.
pub(super) fn device_seconds(verdict: &Verdict) -> f64 {
    let seconds = &verdict.seconds;
    seconds.load + seconds.verify + seconds.measure
}

/// The last turns, to detect a loop.
#[derive(Default)]
pub(super) struct Trail(VecDeque<u64>);

impl Trail {
    /// Records a turn. Returns whether the last turns repeat a cycle of one, two or three turns
    /// [`MOST_REPEATS`] times. Ids and the digits of answers (mostly times) are ignored.
    pub(super) fn goes_round(&mut self, message: &Message, results: &[ToolResult]) -> bool {
        let mut hash = DefaultHasher::new();
        for call in &message.calls {
            (&call.name, call.arguments.to_string()).hash(&mut hash);
        }
        for result in results {
            let text: String = result.text.chars().filter(|c| !c.is_ascii_digit()).collect();
            (result.status as u8, text).hash(&mut hash);
        }
        self.0.push_front(hash.finish());
        self.0.truncate(3 * MOST_REPEATS);
        (1..=3).any(|cycle| {
            let span = cycle * MOST_REPEATS;
            self.0.len() >= span && (cycle..span).all(|i| self.0[i] == self.0[i - cycle])
        })
    }
}

/// The time budget, over all processes.
pub(super) struct Clock {
    begun: Instant,
    before: f64,
    most: Option<f64>,
}

impl Clock {
    pub(super) fn new(before: f64, budget: Budget) -> Self {
        Self { begun: Instant::now(), before, most: budget.seconds }
    }

    pub(super) fn elapsed(&self) -> f64 {
        self.before + self.begun.elapsed().as_secs_f64()
    }

    pub(super) fn is_over(&self) -> bool {
        self.most.is_some_and(|most| self.elapsed() >= most)
    }

    pub(super) fn until(&self) -> Option<Instant> {
        let left = Duration::try_from_secs_f64((self.most? - self.before).max(0.0)).ok()?;
        self.begun.checked_add(left)
    }
}
