//! One engine for many episodes: what they ask within a moment is drawn together.
//!
//! Nobody is in charge: of those who wait, one takes the engine and draws for all. What is drawn for a
//! prompt depends on the prompt and its stream, so it does not matter who was in which batch.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_learn::engine::{
    Description, Engine, Loss, Passed, Prompt, Row, Sampled, Sampling, Scores, Step, Which,
};

/// How long nobody more must have asked before a batch begins, at least: episodes that go on at the same time
/// ask within microseconds of each other.
const QUIET: Duration = Duration::from_millis(3);
/// At most. In between it is this share of the time that the last batch took, and in all no longer than that
/// took: on a GPU a token of one sequence takes as long as one of fifty, so that those who come a little late
/// would cost as much again as all before them.
const MOST_QUIET: Duration = Duration::from_millis(50);
const QUIET_SHARE: u32 = 4;

/// Draws what comes after a prompt.
pub trait Draws: Send + Sync {
    /// Blocks until it is drawn.
    fn draw(&self, prompt: Prompt, sampling: &Sampling) -> Result<Sampled, NotDrawn>;
}

/// Nothing was drawn: our failure, never the policy's.
#[derive(Clone, Debug, Error)]
#[error("failed to draw from the engine: {0}")]
pub struct NotDrawn(pub String);

/// Shares an engine. Clones are the same one; as an [`Engine`] each request waits for its turn.
#[derive(Debug)]
pub struct Batcher<E> {
    shared: Arc<Shared<E>>,
}

#[derive(Debug)]
struct Shared<E> {
    engine: Mutex<E>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Asked>,
    drawn: HashMap<u64, Result<Sampled, NotDrawn>>,
    /// Number of the next who asks.
    next: u64,
    /// Whether somebody draws for those who wait.
    is_led: bool,
    /// How long the last batch took.
    took: Duration,
}

#[derive(Debug)]
struct Asked {
    ticket: u64,
    prompt: Prompt,
    sampling: Sampling,
}

impl<E> Clone for Batcher<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E> Batcher<E> {
    /// Shares this engine.
    pub fn new(engine: E) -> Self {
        let (engine, queue) = (Mutex::new(engine), Mutex::default());
        Self { shared: Arc::new(Shared { engine, queue, changed: Condvar::new() }) }
    }

    fn engine(&self) -> MutexGuard<'_, E> {
        // An engine says itself whether it is of use after a failure.
        self.shared.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The bookkeeping is whole after every change.
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> Batcher<E> {
    /// Waits until nobody more asks, and draws for all who do. Gives back the queue.
    fn lead<'b>(&'b self, mut queue: MutexGuard<'b, Queue>) -> MutexGuard<'b, Queue> {
        let quiet = (queue.took / QUIET_SHARE).clamp(QUIET, MOST_QUIET);
        let latest = Instant::now() + queue.took.max(QUIET);
        let (mut count, mut until) = (0, Instant::now());
        loop {
            let now = Instant::now();
            if queue.waiting.len() > count {
                (count, until) = (queue.waiting.len(), latest.min(now + quiet));
            }
            let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero())
            else {
                break;
            };
            // Woken also by those who only look whether they have been answered.
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let asked = std::mem::take(&mut queue.waiting);
        drop(queue);
        let began = Instant::now();
        let drawn = self.draw_all(asked);
        let mut queue = self.queue();
        queue.took = began.elapsed();
        queue.drawn.extend(drawn);
        queue
    }

    /// Those who want the same are drawn together.
    fn draw_all(&self, mut asked: Vec<Asked>) -> Vec<(u64, Result<Sampled, NotDrawn>)> {
        let mut drawn = Vec::new();
        while let Some(first) = asked.first() {
            let sampling = first.sampling.clone();
            let (alike, rest): (Vec<_>, Vec<_>) =
                asked.into_iter().partition(|one| one.sampling == sampling);
            asked = rest;
            let (tickets, prompts): (Vec<u64>, Vec<Prompt>) =
                alike.into_iter().map(|one| (one.ticket, one.prompt)).unzip();
            match self.engine().sample(&prompts, &sampling) {
                Ok(all) => drawn.extend(tickets.into_iter().zip(all.into_iter().map(Ok))),
                Err(error) => {
                    let failed = NotDrawn(chain(&error));
                    drawn.extend(tickets.into_iter().map(|ticket| (ticket, Err(failed.clone()))));
                }
            }
        }
        drawn
    }
}

impl<E: Engine + Send> Draws for Batcher<E> {
    fn draw(&self, prompt: Prompt, sampling: &Sampling) -> Result<Sampled, NotDrawn> {
        let mut queue = self.queue();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push(Asked { ticket, prompt, sampling: sampling.clone() });
        self.shared.changed.notify_all();
        loop {
            if let Some(drawn) = queue.drawn.remove(&ticket) {
                return drawn;
            }
            if queue.is_led {
                let waited = self.shared.changed.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_led = true;
            let leading = Leading(self);
            queue = self.lead(queue);
            drop(queue);
            drop(leading);
            queue = self.queue();
        }
    }
}

/// Somebody leads; when that ends, also by a panic, another may.
struct Leading<'b, E>(&'b Batcher<E>);

impl<E> Drop for Leading<'_, E> {
    fn drop(&mut self) {
        self.0.queue().is_led = false;
        self.0.shared.changed.notify_all();
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
        self.engine().describe()
    }

    fn begin_critic(&mut self) -> Result<(), E::Error> {
        self.engine().begin_critic()
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, E::Error> {
        self.engine().score(rows)
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, E::Error> {
        self.engine().backward(rows, loss, over)
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, E::Error> {
        self.engine().step(which, step)
    }

    fn sample(
        &mut self,
        prompts: &[Prompt],
        sampling: &Sampling,
    ) -> Result<Vec<Sampled>, E::Error> {
        self.engine().sample(prompts, sampling)
    }

    fn save(&mut self, folder: &Path) -> Result<(), E::Error> {
        self.engine().save(folder)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Says what it is told to, and how much it was asked at once.
    #[derive(Debug, Default)]
    pub(crate) struct Echo {
        pub(crate) batches: Vec<usize>,
        /// What is drawn, by the last token of a prompt; else the prompt's stream.
        pub(crate) answers: HashMap<u32, Sampled>,
        /// How long a batch takes beside what it always does.
        pub(crate) slow: Duration,
    }

    #[derive(Debug, Error)]
    #[error("it broke")]
    pub(crate) struct Broken;

    impl Engine for Echo {
        type Error = Broken;

        fn sample(&mut self, prompts: &[Prompt], s: &Sampling) -> Result<Vec<Sampled>, Broken> {
            self.batches.push(prompts.len());
            if s.temperature > 5.0 {
                return Err(Broken);
            }
            std::thread::sleep(Duration::from_millis(5) + self.slow);
            let answer = |prompt: &Prompt| {
                let told = self.answers.get(prompt.ids.last().unwrap());
                let ids = vec![prompt.stream as u32];
                told.cloned().unwrap_or(Sampled { ids, ..Sampled::default() })
            };
            Ok(prompts.iter().map(answer).collect())
        }

        fn describe(&mut self) -> Result<Description, Broken> {
            Err(Broken)
        }
        fn begin_critic(&mut self) -> Result<(), Broken> {
            Err(Broken)
        }
        fn score(&mut self, _: &[Row]) -> Result<Vec<Scores>, Broken> {
            Err(Broken)
        }
        fn backward(&mut self, _: &[Row], _: &Loss, _: f64) -> Result<Passed, Broken> {
            Err(Broken)
        }
        fn step(&mut self, _: Which, _: &Step) -> Result<f64, Broken> {
            Err(Broken)
        }
        fn save(&mut self, _: &Path) -> Result<(), Broken> {
            Err(Broken)
        }
    }

    fn ask(batcher: &Batcher<Echo>, stream: u64, temperature: f64) -> Result<Sampled, NotDrawn> {
        let sampling = Sampling { temperature, ..Sampling::default() };
        batcher.draw(Prompt { ids: vec![1], stream }, &sampling)
    }

    #[test]
    fn each_gets_its_own_and_many_are_drawn_at_once() {
        let batcher = Batcher::new(Echo::default());
        std::thread::scope(|scope| {
            for number in 0..40 {
                let batcher = &batcher;
                scope.spawn(move || {
                    for turn in 0..5 {
                        let stream = number * 10 + turn;
                        assert_eq!(ask(batcher, stream, 1.0).unwrap().ids, [stream as u32]);
                    }
                });
            }
        });
        let batches = &batcher.engine().batches;
        assert_eq!(batches.iter().sum::<usize>(), 200);
        assert!(batches.len() <= 60, "{batches:?}");
    }

    /// Episodes whose tools take a few milliseconds, each others: where a batch takes long, it waits for them.
    #[test]
    fn a_batch_that_takes_long_waits_for_those_who_come_a_little_late() {
        let slow = Duration::from_millis(200);
        let batcher = Batcher::new(Echo { slow, ..Echo::default() });
        std::thread::scope(|scope| {
            for number in 0..24u64 {
                let batcher = &batcher;
                scope.spawn(move || {
                    for turn in 0..4 {
                        let stream = number * 10 + turn;
                        assert_eq!(ask(batcher, stream, 1.0).unwrap().ids, [stream as u32]);
                        std::thread::sleep(Duration::from_millis(5 + 3 * number % 40));
                    }
                });
            }
        });
        let batches = &batcher.engine().batches;
        assert_eq!(batches.iter().sum::<usize>(), 96);
        // The first, which knows nothing yet, and one for each turn.
        assert!(batches.len() <= 7, "{batches:?}");
    }

    #[test]
    fn what_fails_for_some_is_no_matter_to_others() {
        let batcher = Batcher::new(Echo::default());
        std::thread::scope(|scope| {
            let good = scope.spawn(|| ask(&batcher, 7, 1.0));
            let bad = scope.spawn(|| ask(&batcher, 8, 9.0));
            assert_eq!(good.join().unwrap().unwrap().ids, [7]);
            let error = bad.join().unwrap().unwrap_err().to_string();
            assert_eq!(error, "failed to draw from the engine: it broke");
        });
        assert!(ask(&batcher, 9, 1.0).is_ok());
    }
}
