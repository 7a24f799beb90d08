//! Answers by question, each computed by one caller: concurrent callers wait for it, later callers get it
//! from a bounded cache.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::single_flight::{Claimed, SingleFlight};

/// Answers kept; beyond it the oldest is evicted.
const KEPT: usize = 4096;

/// A cache of answers.
pub(crate) struct Answers<K, V> {
    flights: SingleFlight<K>,
    kept: Mutex<Kept<K, V>>,
}

struct Kept<K, V> {
    answers: HashMap<K, (V, Instant)>,
    /// Questions that were answered, the oldest first.
    order: VecDeque<K>,
}

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        let kept = Kept { answers: HashMap::new(), order: VecDeque::new() };
        Self { flights: SingleFlight::default(), kept: Mutex::new(kept) }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Answers<K, V> {
    /// The answer to `question`: cached, computed by a concurrent caller, or computed by `work`. The second
    /// value is the age of an answer that this call did not compute. An error is returned to its caller
    /// only and not cached: the next caller computes again. So does an answer that does not hold any more.
    pub(crate) fn once<E>(
        &self,
        question: &K,
        holds: impl Fn(&V) -> bool,
        work: impl FnOnce() -> Result<V, E>,
    ) -> Result<(V, Option<Duration>), E> {
        let known = || {
            let known = self.kept().answers.get(question).cloned();
            known.filter(|(answer, _)| holds(answer))
        };
        match self.flights.claim(question, known) {
            Claimed::Known((answer, at)) => Ok((answer, Some(at.elapsed()))),
            Claimed::Work(_claim) => {
                let answer = work()?;
                self.keep(question, answer.clone());
                Ok((answer, None))
            }
        }
    }

    fn keep(&self, question: &K, answer: V) {
        let mut kept = self.kept();
        if kept.answers.insert(question.clone(), (answer, Instant::now())).is_none() {
            kept.order.push_back(question.clone());
        }
        if kept.order.len() > KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.answers.remove(&oldest);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn concurrent_equal_questions_are_computed_once() {
        let (answers, worked) = (Answers::default(), AtomicUsize::new(0));
        // All threads come to the first question before it is answered.
        let arrived = AtomicUsize::new(0);
        let ask = |question: usize| {
            answers.once(
                &question,
                |_| true,
                || {
                    worked.fetch_add(1, Ordering::SeqCst);
                    while arrived.load(Ordering::SeqCst) < 16 {
                        std::thread::yield_now();
                    }
                    Ok::<_, ()>(question * 10)
                },
            )
        };
        let ask_all = || {
            arrived.fetch_add(1, Ordering::SeqCst);
            (0..500).map(|i| ask(i % 4).unwrap()).collect::<Vec<_>>()
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask_all)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(worked.into_inner(), 4);
        assert_eq!(all.len(), 8000);
        assert!(all.iter().all(|(answer, _)| answer % 10 == 0 && *answer < 40));
        assert_eq!(all.iter().filter(|(_, ago)| ago.is_none()).count(), 4);
    }

    /// If a computation fails or panics, a waiting caller computes the answer.
    #[test]
    fn a_failed_computation_is_retried_by_the_next_caller() {
        let (answers, started) = (Answers::default(), AtomicUsize::new(0));
        let comes = AtomicUsize::new(0);
        let turn = |fails: bool| {
            comes.fetch_add(1, Ordering::SeqCst);
            answers.once(
                &"question",
                |()| true,
                || {
                    started.fetch_add(1, Ordering::SeqCst);
                    // Until the other caller comes, and most likely waits.
                    while comes.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    assert!(!fails, "it dies");
                    Err::<(), _>("it fails")
                },
            )
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| turn(true));
            while started.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| turn(false));
            assert!(first.join().is_err());
            assert_eq!(second.join().unwrap(), Err("it fails"));
        });
        assert_eq!(answers.once(&"question", |()| true, || Ok::<_, ()>(())), Ok(((), None)));
        assert!(matches!(answers.once(&"question", |()| true, || Err(())), Ok(((), Some(_)))));
    }

    #[test]
    fn answer_that_no_longer_holds_is_replaced() {
        let answers = Answers::default();
        let ask = |holds: bool, new: i32| {
            let (answer, ago) = answers.once(&"question", |_| holds, || Ok::<_, ()>(new)).unwrap();
            (answer, ago.is_some())
        };
        assert_eq!(ask(true, 1), (1, false));
        assert_eq!(ask(true, 2), (1, true));
        assert_eq!(ask(false, 3), (3, false), "the first is void");
        assert_eq!(ask(true, 4), (3, true));
        assert_eq!(answers.kept().order.len(), 1);
    }

    #[test]
    fn the_oldest_answers_are_evicted() {
        let answers = Answers::default();
        for question in 0..=KEPT {
            answers.once(&question, |()| true, || Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(answers.kept().answers.len(), KEPT);
        assert!(answers.once(&0, |()| true, || Ok::<_, ()>(())).unwrap().1.is_none(), "forgotten");
        assert!(answers.once(&KEPT, |()| true, || Ok::<_, ()>(())).unwrap().1.is_some(), "kept");
    }
}
