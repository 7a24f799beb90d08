//! Computes each answer once: the first caller with a key computes it, concurrent callers wait for
//! that answer, and later callers get it from a bounded cache.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Answers kept; beyond it the oldest is evicted.
const KEPT: usize = 4096;

/// A cache of answers by key, each computed by one caller.
pub(crate) struct SingleFlight<K, V> {
    state: Mutex<State<K, V>>,
    changed: Condvar,
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Questions that were answered, the oldest first.
    order: VecDeque<K>,
}

enum Entry<V> {
    /// Somebody works on it.
    UnderWay,
    Answered(V, Instant),
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        let state = State { entries: HashMap::new(), order: VecDeque::new() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// The answer to `question`: cached, computed by a concurrent caller, or computed by `work`. The second
    /// value is the age of an answer that this call did not compute. An error is returned to its caller
    /// only and not cached: the next caller computes again.
    pub(crate) fn once<E>(
        &self,
        question: &K,
        work: impl FnOnce() -> Result<V, E>,
    ) -> Result<(V, Option<Duration>), E> {
        let mut state = self.lock();
        loop {
            match state.entries.get(question) {
                Some(Entry::Answered(answer, at)) => {
                    return Ok((answer.clone(), Some(at.elapsed())));
                }
                Some(Entry::UnderWay) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None => break,
            }
        }
        state.entries.insert(question.clone(), Entry::UnderWay);
        drop(state);
        let working = Working { flights: self, question };
        let answer = work()?;
        working.answered(answer.clone());
        Ok((answer, None))
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question in flight. Dropping it without an answer lets the next caller compute it.
struct Working<'g, K: Clone + Eq + Hash, V: Clone> {
    flights: &'g SingleFlight<K, V>,
    question: &'g K,
}

impl<K: Clone + Eq + Hash, V: Clone> Working<'_, K, V> {
    fn answered(self, answer: V) {
        let mut state = self.flights.lock();
        state.entries.insert(self.question.clone(), Entry::Answered(answer, Instant::now()));
        state.order.push_back(self.question.clone());
        if state.order.len() > KEPT
            && let Some(oldest) = state.order.pop_front()
        {
            state.entries.remove(&oldest);
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for Working<'_, K, V> {
    fn drop(&mut self) {
        let mut state = self.flights.lock();
        if matches!(state.entries.get(self.question), Some(Entry::UnderWay)) {
            state.entries.remove(self.question);
        }
        drop(state);
        self.flights.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn concurrent_equal_questions_are_computed_once() {
        let (flights, worked) = (SingleFlight::default(), AtomicUsize::new(0));
        // All threads come to the first question before it is answered.
        let arrived = AtomicUsize::new(0);
        let ask = |question: usize| {
            flights.once(&question, || {
                worked.fetch_add(1, Ordering::SeqCst);
                while arrived.load(Ordering::SeqCst) < 16 {
                    std::thread::yield_now();
                }
                Ok::<_, ()>(question * 10)
            })
        };
        let ask_all = || {
            arrived.fetch_add(1, Ordering::SeqCst);
            (0..500).map(|i| ask(i % 4).unwrap()).collect::<Vec<_>>()
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask_all)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(worked.into_inner(), 4);
        assert_eq!(answers.len(), 8000);
        assert!(answers.iter().all(|(answer, _)| answer % 10 == 0 && *answer < 40));
        assert_eq!(answers.iter().filter(|(_, ago)| ago.is_none()).count(), 4);
    }

    /// If a computation fails or panics, a waiting caller computes the answer.
    #[test]
    fn a_failed_computation_is_retried_by_the_next_caller() {
        let (flights, started) = (SingleFlight::default(), AtomicUsize::new(0));
        let comes = AtomicUsize::new(0);
        let turn = |fails: bool| {
            comes.fetch_add(1, Ordering::SeqCst);
            flights.once(&"question", || {
                started.fetch_add(1, Ordering::SeqCst);
                // Until the other caller comes, and most likely waits.
                while comes.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(50));
                assert!(!fails, "it dies");
                Err::<(), _>("it fails")
            })
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
        assert_eq!(flights.once(&"question", || Ok::<_, ()>(())), Ok(((), None)));
        assert!(matches!(flights.once(&"question", || Err(())), Ok(((), Some(_)))));
    }

    #[test]
    fn the_oldest_answers_are_evicted() {
        let flights = SingleFlight::default();
        for question in 0..=KEPT {
            flights.once(&question, || Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(flights.lock().entries.len(), KEPT);
        assert!(flights.once(&0, || Ok::<_, ()>(())).unwrap().1.is_none(), "forgotten");
        assert!(flights.once(&KEPT, || Ok::<_, ()>(())).unwrap().1.is_some(), "kept");
    }
}
