//! An engine that echoes, asked by several threads.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    /// If set, each turn waits until it is allowed.
    pub(crate) turns: Option<Arc<Turns>>,
    pub(crate) under_way: Vec<(SampleRequest, u32)>,
}

/// Turns of an engine: how many have begun, and how many may end.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Turns {
    fn begun(&self) -> usize {
        self.counts.lock().unwrap().0
    }

    fn allow(&self, count: usize) {
        self.counts.lock().unwrap().1 += count;
        self.changed.notify_all();
    }

    fn take(&self) {
        let mut counts = self.counts.lock().unwrap();
        counts.0 += 1;
        let turn = counts.0;
        drop(self.changed.wait_while(counts, |(_, allowed)| *allowed < turn).unwrap());
    }
}

/// A batcher whose engine ends a turn only when it is allowed. `long` as in [`Echo`].
fn allowed(long: HashMap<u32, u32>) -> (Arc<Turns>, Batcher<Echo>) {
    let turns = Arc::new(Turns::default());
    let echo = Echo { long, turns: Some(Arc::clone(&turns)), ..Echo::default() };
    (turns, Batcher::new(echo))
}

/// Waits for something that other threads bring about.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
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

    fn draw(&mut self, requests: Vec<SampleRequest>, _: u32) -> Result<Vec<Completion>, Broken> {
        self.batches.push(requests.len());
        if let Some(turns) = &self.turns {
            turns.take();
        }
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

/// A turn ends when everybody waits. So whoever does not share one shares the next.
#[test]
fn concurrent_requests_share_batches() {
    let (turns, batcher) = allowed(HashMap::new());
    let left = AtomicUsize::new(40);
    std::thread::scope(|scope| {
        for number in 0..40 {
            let (batcher, left) = (&batcher, &left);
            scope.spawn(move || {
                for turn in 0..5 {
                    let stream = number * 10 + turn;
                    assert_eq!(ask(batcher, stream, 1.0).unwrap().ids, [stream as u32]);
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
        // Requests without and with an answer.
        let requests = || {
            let queue = batcher.queue();
            let open = queue.waiting.len() + queue.under_way.len();
            (open, queue.next as usize - open)
        };
        while requests().1 < 200 {
            until("all requests", || requests().0 == left.load(Ordering::SeqCst));
            let answered = requests().1;
            turns.allow(usize::from(answered < 200));
            until("answers", || answered == 200 || requests().1 > answered);
        }
    });
    let batches = &batcher.engine().batches;
    assert_eq!(batches.iter().sum::<usize>(), 200);
    assert!(batches.len() <= 2 * 5, "{batches:?}");
}

/// One asks for much; others ask, are answered and ask again meanwhile.
#[test]
fn new_request_joins_a_running_batch() {
    let (turns, batcher) = allowed(HashMap::from([(2, 100)]));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let prompt = Prompt { ids: vec![2], stream: 77 };
            assert_eq!(batcher.draw(prompt, &Sampling::default()).unwrap().ids, [77]);
            is_over.store(true, Ordering::SeqCst);
        });
        until("the first turn", || turns.begun() == 1);
        for stream in 0..10 {
            let batcher = &batcher;
            let asked = scope.spawn(move || ask(batcher, stream, 1.0).unwrap().ids);
            until("a request", || batcher.queue().waiting.len() == 1);
            // The turn that has begun, and the next one.
            turns.allow(2);
            assert_eq!(asked.join().unwrap(), [stream as u32]);
            assert!(!is_over.load(Ordering::SeqCst));
        }
        turns.allow(100);
    });
    let engine = batcher.engine();
    assert_eq!(engine.batches.iter().sum::<usize>(), 11);
    assert_eq!(engine.batches.len(), 100, "{:?}", engine.batches);
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
    let (turns, batcher) = allowed(HashMap::from([(2, 40)]));
    std::thread::scope(|scope| {
        let drawing = scope.spawn(|| {
            let prompt = Prompt { ids: vec![2], stream: 77 };
            batcher.draw(prompt, &Sampling::default()).unwrap()
        });
        until("the first turn", || turns.begun() == 1);
        batcher.queue().wanted += 1;
        let wanted = Wanted(&batcher);
        // The turn that has begun ends. No other begins, although all are allowed.
        turns.allow(40);
        for _ in 0..100 {
            assert_eq!(batcher.first(|engine| engine.batches.len()), 1);
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(wanted);
        assert_eq!(drawing.join().unwrap().ids, [77]);
        assert_eq!(batcher.engine().batches.len(), 40);
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
        let ended: Vec<_> =
            each.collect::<Vec<_>>().into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        assert_eq!(ended.iter().filter(|end| end.is_err()).count(), 1);
    });
    assert!(ask(&batcher, 9, 1.0).is_ok());
    assert!(batcher.queue().under_way.is_empty() && batcher.queue().seats.is_empty());
}
