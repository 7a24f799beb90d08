//! Who may use which of several things next: first come, first served, as far as what they ask for is
//! free. Pure bookkeeping; waiting is the caller's.

use std::collections::VecDeque;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// Those who wait and those who work.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    most: usize,
    next: u64,
    waiting: VecDeque<(Ticket, K, bool)>,
    working: Vec<(K, bool)>,
}

impl<K: Clone + PartialEq> Queue<K> {
    /// At most `most` work at once.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), next: 0, waiting: VecDeque::new(), working: Vec::new() }
    }

    /// Joins the queue for `key`; `alone`: nobody else may work meanwhile.
    pub(crate) fn join(&mut self, key: K, alone: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back((ticket, key, alone));
        ticket
    }

    /// Begins to work, if it is this one's turn. A key has one worker at a time. Who waits for a
    /// busy key is passed by; who wants to be alone is not, or it would wait for ever.
    pub(crate) fn begin(&mut self, ticket: Ticket) -> bool {
        if self.working.len() >= self.most || self.working.iter().any(|(_, alone)| *alone) {
            return false;
        }
        let Some(at) = self.waiting.iter().position(|(_, key, alone)| *alone || self.is_free(key))
        else {
            return false;
        };
        let (first, _, alone) = &self.waiting[at];
        if *first != ticket || (*alone && !self.working.is_empty()) {
            return false;
        }
        if let Some((_, key, alone)) = self.waiting.remove(at) {
            self.working.push((key, alone));
        }
        true
    }

    fn is_free(&self, key: &K) -> bool {
        self.working.iter().all(|(busy, _)| busy != key)
    }

    /// Ends the work on `key`.
    pub(crate) fn end(&mut self, key: &K) {
        if let Some(at) = self.working.iter().position(|(busy, _)| busy == key) {
            self.working.swap_remove(at);
        }
    }

    /// Number of workers.
    pub(crate) fn working(&self) -> usize {
        self.working.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_come_first_served_and_busy_keys_are_passed_by() {
        let mut queue = Queue::new(2);
        let (a, b, c) = (queue.join('x', false), queue.join('x', false), queue.join('y', false));
        assert!(!queue.begin(b), "a is first");
        assert!(queue.begin(a));
        assert!(!queue.begin(b), "x is busy");
        assert!(queue.begin(c), "y is free, b is passed by");
        queue.end(&'x');
        assert!(queue.begin(b));
    }

    #[test]
    fn one_who_wants_to_be_alone_is_waited_for() {
        let mut queue = Queue::new(3);
        let a = queue.join(1, false);
        assert!(queue.begin(a));
        let (alone, late) = (queue.join(2, true), queue.join(3, false));
        assert!(!queue.begin(alone), "somebody works");
        assert!(!queue.begin(late), "nobody overtakes");
        queue.end(&1);
        assert!(queue.begin(alone));
        assert!(!queue.begin(late), "alone means alone");
        queue.end(&2);
        assert!(queue.begin(late));
    }

    proptest! {
        /// Whatever is asked for: everyone gets a turn, never too many at once, never two on a key,
        /// never one beside one who is alone.
        #[test]
        fn everyone_is_served_within_the_rules(
            asks in prop::collection::vec((0u8..4, any::<bool>()), 1..40),
            most in 1usize..5,
            ends in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut queue = Queue::new(most);
            let mut waiting: Vec<(Ticket, u8, bool)> =
                asks.iter().map(|&(key, alone)| (queue.join(key, alone), key, alone)).collect();
            let mut working: Vec<(u8, bool)> = Vec::new();
            let mut ends = ends.into_iter();
            for _ in 0..200 {
                let begun = waiting.iter().position(|(ticket, ..)| queue.begin(*ticket));
                if let Some(at) = begun {
                    let (_, key, alone) = waiting.remove(at);
                    prop_assert!(working.iter().all(|(busy, _)| *busy != key));
                    working.push((key, alone));
                    prop_assert!(working.len() <= most);
                    prop_assert!(working.len() == 1 || working.iter().all(|(_, alone)| !alone));
                } else if working.is_empty() {
                    prop_assert!(waiting.is_empty(), "stuck");
                    break;
                } else if let Some(index) = ends.next() {
                    let (key, _) = working.swap_remove(index.index(working.len()));
                    queue.end(&key);
                }
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
