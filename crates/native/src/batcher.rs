//! Shares one engine between many episodes: their requests are sampled in one batch, and new
//! requests join a running batch (continuous batching).
//!
//! There is no dedicated thread. One of the waiting episodes takes the engine and samples for all,
//! a few tokens at a time, until its own request completes; then another takes over. The tokens of
//! a prompt depend on the prompt and its stream only, so the composition of batches does not
//! matter.
//!
//! Any other engine call, such as an optimizer step, runs between two turns of sampling, before the
//! next turn.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_learn::engine::{
    Completion, Description, Engine, Loss, Passed, Prompt, Row, SampleRequest, Sampled, Sampler,
    Sampling, Scores, Step, Which,
};

/// A batch begins when no request has arrived for this long. Episodes that continue at the same
/// time send requests within microseconds of each other, and one prefill reads all their prompts.
const QUIET: Duration = Duration::from_millis(3);
/// Upper limit of that wait.
const MOST_QUIET: Duration = Duration::from_millis(30);
/// Tokens sampled per sequence before new requests may join or another engine call may run.
/// Estimated: some 20 ms of a GPU with a small model.
const STEPS: u32 = 32;

/// Samples the continuation of a prompt.
pub trait Draws: Send + Sync {
    /// Blocks until the request completes.
    fn draw(&self, prompt: Prompt, sampling: &Sampling) -> Result<Sampled, NotDrawn>;
}

/// Nothing was sampled: an infrastructure failure, never the policy's.
#[derive(Clone, Debug, Error)]
#[error("the engine failed to sample: {0}")]
pub struct NotDrawn(pub String);

/// Shares an engine. Clones share the same engine. As an [`Engine`], each call waits for its turn.
#[derive(Debug)]
pub struct Batcher<E> {
    shared: Arc<Shared<E>>,
}

#[derive(Debug)]
struct Shared<E> {
    engine: Mutex<E>,
    queue: Mutex<Queue>,
    /// Wakes the episode that samples for the others.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<SampleRequest>,
    /// Tickets of the requests that the engine is running.
    under_way: HashSet<u64>,
    /// Every episode that waits for its answer, by ticket.
    seats: BTreeMap<u64, Seat>,
    /// The next ticket.
    next: u64,
    /// Whether an episode samples for those who wait.
    is_led: bool,
    /// Number of callers that want the engine for something else now.
    wanted: usize,
}

/// Where an episode waits. Each is woken alone: hundreds wait, and a turn answers a few.
#[derive(Debug, Default)]
struct Seat {
    answer: Option<Result<Sampled, NotDrawn>>,
    /// Notified when the answer has arrived, and when no episode samples.
    told: Arc<Condvar>,
}

impl Queue {
    fn answer(&mut self, ticket: u64, answer: Result<Sampled, NotDrawn>) {
        if let Some(seat) = self.seats.get_mut(&ticket) {
            seat.answer = Some(answer);
            seat.told.notify_one();
        }
    }

    fn is_answered(&self, ticket: u64) -> bool {
        self.seats.get(&ticket).is_none_or(|seat| seat.answer.is_some())
    }
}

impl<E> Clone for Batcher<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E> Batcher<E> {
    /// Shares `engine`.
    pub fn new(engine: E) -> Self {
        let (engine, queue) = (Mutex::new(engine), Mutex::default());
        Self { shared: Arc::new(Shared { engine, queue, changed: Condvar::new() }) }
    }

    fn engine(&self) -> MutexGuard<'_, E> {
        // After a panic, the engine itself reports whether it is usable.
        self.shared.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent after every change.
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the engine before the next turn of sampling.
    fn first<T>(&self, work: impl FnOnce(&mut E) -> T) -> T {
        self.queue().wanted += 1;
        let _wanted = Wanted(self);
        work(&mut self.engine())
    }
}

/// A caller wants the engine. Ends when dropped, also by a panic.
struct Wanted<'b, E>(&'b Batcher<E>);

impl<E> Drop for Wanted<'_, E> {
    fn drop(&mut self) {
        self.0.queue().wanted -= 1;
        self.0.shared.changed.notify_all();
    }
}

impl<E: Sampler> Batcher<E> {
    /// Samples for all requests until this one completes. Returns the queue.
    fn lead<'b>(&'b self, mut queue: MutexGuard<'b, Queue>, ticket: u64) -> MutexGuard<'b, Queue> {
        while !queue.is_answered(ticket) {
            if queue.under_way.is_empty() {
                queue = self.gather(queue);
            }
            if queue.wanted > 0 {
                queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let requests = std::mem::take(&mut queue.waiting);
            queue.under_way.extend(requests.iter().map(|request| request.ticket));
            drop(queue);
            let over = self.engine().draw(requests, STEPS);
            queue = self.queue();
            match over {
                Ok(over) => {
                    for Completion { ticket, sampled } in over {
                        queue.under_way.remove(&ticket);
                        queue.answer(ticket, sampled.map_err(|why| NotDrawn(why.message)));
                    }
                }
                Err(error) => {
                    let failed = NotDrawn(chain(&error));
                    for ticket in std::mem::take(&mut queue.under_way) {
                        queue.answer(ticket, Err(failed.clone()));
                    }
                }
            }
        }
        queue
    }

    /// Waits until no more requests arrive.
    fn gather<'b>(&'b self, mut queue: MutexGuard<'b, Queue>) -> MutexGuard<'b, Queue> {
        let latest = Instant::now() + MOST_QUIET;
        let (mut count, mut until) = (0, latest);
        loop {
            let now = Instant::now();
            if queue.waiting.len() > count {
                (count, until) = (queue.waiting.len(), latest.min(now + QUIET));
            }
            let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero())
            else {
                return queue;
            };
            // Also woken after another caller had the engine.
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<E: Sampler + Send> Draws for Batcher<E> {
    fn draw(&self, prompt: Prompt, sampling: &Sampling) -> Result<Sampled, NotDrawn> {
        let mut queue = self.queue();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push(SampleRequest { ticket, prompt, sampling: sampling.clone() });
        let told = Arc::clone(&queue.seats.entry(ticket).or_default().told);
        self.shared.changed.notify_all();
        loop {
            let answer = queue.seats.get_mut(&ticket).and_then(|seat| seat.answer.take());
            if let Some(answer) = answer {
                queue.seats.remove(&ticket);
                return answer;
            }
            if queue.is_led {
                queue = told.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_led = true;
            let leading = Leading { batcher: self, ticket };
            queue = self.lead(queue, ticket);
            drop(queue);
            drop(leading);
            queue = self.queue();
        }
    }
}

/// The episode that samples for the others. When it is dropped another takes over; by a panic the
/// running requests fail.
struct Leading<'b, E> {
    batcher: &'b Batcher<E>,
    ticket: u64,
}

impl<E> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        let mut queue = self.batcher.queue();
        queue.is_led = false;
        if std::thread::panicking() {
            queue.seats.remove(&self.ticket);
            for ticket in std::mem::take(&mut queue.under_way) {
                queue.answer(
                    ticket,
                    Err(NotDrawn("the thread that sampled for it panicked".to_owned())),
                );
            }
        }
        if let Some(next) = queue.seats.values().find(|seat| seat.answer.is_none()) {
            next.told.notify_one();
        }
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

impl<E: Engine> Engine for Batcher<E> {
    type Error = E::Error;

    fn describe(&mut self) -> Result<Description, E::Error> {
        self.first(E::describe)
    }

    fn begin_critic(&mut self) -> Result<(), E::Error> {
        self.first(E::begin_critic)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, E::Error> {
        self.first(|engine| engine.score(rows))
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, E::Error> {
        self.first(|engine| engine.backward(rows, loss, over))
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, E::Error> {
        self.first(|engine| engine.step(which, step))
    }

    fn save(&mut self, folder: &Path) -> Result<(), E::Error> {
        self.first(|engine| engine.save(folder))
    }
}

#[cfg(test)]
pub(crate) mod tests;
