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
pub(crate) mod tests {
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    use warpwright_learn::engine::Refusal;

    use super::*;

    /// Returns prepared tokens, and counts concurrent requests.
    #[derive(Debug, Default)]
    pub(crate) struct Echo {
        /// Who came, each time that it was asked.
        pub(crate) batches: Vec<usize>,
        /// Sampled tokens, by the last token of a prompt; else the prompt's stream.
        pub(crate) answers: HashMap<u32, Sampled>,
        /// How often it must be asked until a sequence is over, by the last token of its prompt; else once.
        pub(crate) long: HashMap<u32, u32>,
        pub(crate) under_way: Vec<(SampleRequest, u32)>,
    }

    #[derive(Debug, Error)]
    #[error("it broke")]
    pub(crate) struct Broken;

    impl From<Refusal> for Broken {
        fn from(_: Refusal) -> Self {
            Self
        }
    }

    impl Sampler for Echo {
        type Error = Broken;

        fn draw(
            &mut self,
            requests: Vec<SampleRequest>,
            _: u32,
        ) -> Result<Vec<Completion>, Broken> {
            self.batches.push(requests.len());
            std::thread::sleep(Duration::from_millis(5));
            let times = |one: &SampleRequest| {
                self.long.get(one.prompt.ids.last().unwrap()).copied().unwrap_or(1)
            };
            let new: Vec<_> = requests.into_iter().map(|one| (times(&one), one)).collect();
            self.under_way.extend(new.into_iter().map(|(times, one)| (one, times)));
            let hottest =
                self.under_way.iter().map(|(one, _)| one.sampling.temperature).fold(0.0, f64::max);
            if hottest > 9.0 {
                self.under_way.clear();
                assert!(hottest < 99.0, "the sampler refuses this temperature");
                return Err(Broken);
            }
            for (_, times) in &mut self.under_way {
                *times -= 1;
            }
            let (over, rest) =
                std::mem::take(&mut self.under_way).into_iter().partition(|(_, times)| *times == 0);
            self.under_way = rest;
            let answer = |(SampleRequest { ticket, prompt, sampling }, _)| {
                if sampling.temperature > 5.0 {
                    let refusal = Refusal { is_memory: false, message: "too hot".to_owned() };
                    return Completion { ticket, sampled: Err(refusal) };
                }
                let told = self.answers.get(prompt.ids.last().unwrap());
                let ids = vec![prompt.stream as u32];
                let sampled = told.cloned().unwrap_or(Sampled { ids, ..Sampled::default() });
                Completion { ticket, sampled: Ok(sampled) }
            };
            Ok(Vec::into_iter(over).map(answer).collect())
        }
    }

    fn ask(batcher: &Batcher<Echo>, stream: u64, temperature: f64) -> Result<Sampled, NotDrawn> {
        let sampling = Sampling { temperature, ..Sampling::default() };
        batcher.draw(Prompt { ids: vec![1], stream }, &sampling)
    }

    #[test]
    fn concurrent_requests_share_batches() {
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

    /// One asks for much; others ask, are answered and ask again meanwhile.
    #[test]
    fn new_request_joins_a_running_batch() {
        let long = HashMap::from([(2, 100)]);
        let batcher = Batcher::new(Echo { long, ..Echo::default() });
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let prompt = Prompt { ids: vec![2], stream: 77 };
                assert_eq!(batcher.draw(prompt, &Sampling::default()).unwrap().ids, [77]);
                is_over.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(50));
            for stream in 0..10 {
                assert_eq!(ask(&batcher, stream, 1.0).unwrap().ids, [stream as u32]);
                assert!(!is_over.load(Ordering::SeqCst));
            }
        });
        let engine = batcher.engine();
        assert_eq!(engine.batches.iter().sum::<usize>(), 11);
        assert!(engine.batches.len() <= 102, "{:?}", engine.batches);
    }

    #[test]
    fn panic_in_engine_call_does_not_block_others() {
        let batcher = Batcher::new(Echo::default());
        let broken = catch_unwind(AssertUnwindSafe(|| batcher.first(|_| panic!("it broke"))));
        assert!(broken.is_err());
        assert_eq!(batcher.queue().wanted, 0);
        assert_eq!(ask(&batcher, 6, 1.0).unwrap().ids, [6]);
    }

    #[test]
    fn refusal_is_isolated_and_failure_is_recoverable() {
        let batcher = Batcher::new(Echo::default());
        std::thread::scope(|scope| {
            let good = scope.spawn(|| ask(&batcher, 7, 1.0));
            let bad = scope.spawn(|| ask(&batcher, 8, 6.0));
            assert_eq!(good.join().unwrap().unwrap().ids, [7]);
            let error = bad.join().unwrap().unwrap_err().to_string();
            assert_eq!(error, "the engine failed to sample: too hot");
        });
        let error = ask(&batcher, 9, 10.0).unwrap_err().to_string();
        assert_eq!(error, "the engine failed to sample: it broke");
        assert!(ask(&batcher, 9, 1.0).is_ok());
        assert!(batcher.queue().under_way.is_empty() && batcher.queue().seats.is_empty());
    }

    /// During a long request another caller wants the engine: sampling pauses for the call.
    #[test]
    fn engine_calls_run_before_the_next_turn() {
        let long = HashMap::from([(2, 40)]);
        let batcher = Batcher::new(Echo { long, ..Echo::default() });
        std::thread::scope(|scope| {
            let drawing = scope.spawn(|| {
                let prompt = Prompt { ids: vec![2], stream: 77 };
                batcher.draw(prompt, &Sampling::default()).unwrap()
            });
            std::thread::sleep(Duration::from_millis(50));
            batcher.queue().wanted += 1;
            let wanted = Wanted(&batcher);
            let turns = || batcher.engine().batches.len();
            // A turn that had begun ends.
            std::thread::sleep(Duration::from_millis(50));
            let before = turns();
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(turns(), before);
            assert!((1..40).contains(&before), "{before}");
            assert_eq!(batcher.first(|engine| engine.batches.len()), before);
            drop(wanted);
            assert_eq!(drawing.join().unwrap().ids, [77]);
            assert_eq!(turns(), 40);
        });
    }

    #[test]
    fn panicking_leader_fails_running_requests_then_recovers() {
        let batcher = Batcher::new(Echo::default());
        std::thread::scope(|scope| {
            let each = (0..8).map(|stream| {
                let batcher = &batcher;
                scope.spawn(move || ask(batcher, stream, if stream == 3 { 99.0 } else { 1.0 }))
            });
            // All in one batch, or some after it: each has an answer, and one had the panic.
            let ended: Vec<_> = each
                .collect::<Vec<_>>()
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect();
            assert_eq!(ended.iter().filter(|end| end.is_err()).count(), 1);
        });
        assert!(ask(&batcher, 9, 1.0).is_ok());
        assert!(batcher.queue().under_way.is_empty() && batcher.queue().seats.is_empty());
    }
}
