//! A queue for a limited number of units, served in order of arrival. A request whose key is busy may
//! be overtaken. A request for more units than are free holds up later requests that need units. Pure
//! bookkeeping; the caller waits.

use std::collections::VecDeque;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// State of the resource that a waiter needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The resource exists.
    There,
    /// The resource must be created, and there is room.
    Room,
    /// The resource must be created, and there is no room yet.
    Wait,
}

/// Those who wait and those who work. Each takes up some of a fixed number of units.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    units: usize,
    next: u64,
    waiting: VecDeque<(Ticket, K, usize)>,
    working: Vec<(K, usize)>,
}

impl<K: Clone + PartialEq> Queue<K> {
    /// All who work at once take up at most `units`.
    pub(crate) fn new(units: usize) -> Self {
        Self { units: units.max(1), next: 0, waiting: VecDeque::new(), working: Vec::new() }
    }

    /// Number of units in all. Who asks for as many works alone.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// Joins the queue for `key` with a need of `units`, or of all if that is more than there are.
    pub(crate) fn join(&mut self, key: K, units: usize) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back((ticket, key, units.clamp(1, self.units)));
        ticket
    }

    /// Begins to work, if it is this one's turn. A key has one worker at a time. Who waits for a
    /// busy key is passed by; who waits for more units than are free is not, or it would wait for
    /// ever. Who waits for room is passed only by those who need none.
    pub(crate) fn begin(&mut self, ticket: Ticket, fit: impl Fn(&K) -> Fit) -> bool {
        let mut room = true;
        let first = self.waiting.iter().position(|(_, key, _)| {
            if !self.is_free(key) {
                return false;
            }
            match fit(key) {
                Fit::There => true,
                Fit::Room => room,
                Fit::Wait => {
                    room = false;
                    false
                }
            }
        });
        let Some(at) = first else { return false };
        let (first, _, units) = &self.waiting[at];
        if *first != ticket || *units > self.units - self.working() {
            return false;
        }
        if let Some((_, key, units)) = self.waiting.remove(at) {
            self.working.push((key, units));
        }
        true
    }

    /// Whether anyone waits for `key` or works on it.
    pub(crate) fn knows(&self, key: &K) -> bool {
        !self.is_free(key) || self.waiting.iter().any(|(_, waiting, _)| waiting == key)
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

    /// Number of those who work.
    pub(crate) fn workers(&self) -> usize {
        self.working.len()
    }

    /// Units taken up by those who work.
    pub(crate) fn working(&self) -> usize {
        self.working.iter().map(|(_, units)| units).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn room<K>(_: &K) -> Fit {
        Fit::Room
    }

    #[test]
    fn only_open_sessions_overtake_a_wait_for_room() {
        let mut queue = Queue::new(4);
        let (large, new, open) = (queue.join('l', 4), queue.join('n', 1), queue.join('o', 1));
        let fit = |key: &char| match key {
            'l' => Fit::Wait,
            'n' => Fit::Room,
            _ => Fit::There,
        };
        assert!(!queue.begin(large, fit));
        assert!(!queue.begin(new, fit), "it would take the room that the large one waits for");
        assert!(queue.begin(open, fit));
        queue.end(&'o');
        assert!(queue.begin(large, room), "now there is room");
        assert!(!queue.begin(new, room), "nothing is left");
        queue.end(&'l');
        assert!(queue.begin(new, room));
    }

    #[test]
    fn the_queue_is_fifo_and_skips_busy_keys() {
        let mut queue = Queue::new(2);
        let (a, b, c) = (queue.join('x', 1), queue.join('x', 1), queue.join('y', 1));
        assert!(!queue.begin(b, room), "a is first");
        assert!(queue.begin(a, room));
        assert!(!queue.begin(b, room), "x is busy");
        assert!(queue.begin(c, room), "y is free, b is passed by");
        queue.end(&'x');
        assert!(queue.begin(b, room));
    }

    #[test]
    fn a_large_request_is_never_overtaken() {
        let mut queue = Queue::new(3);
        let a = queue.join(1, 1);
        assert!(queue.begin(a, room));
        let (alone, late) = (queue.join(2, 9), queue.join(3, 1));
        assert!(!queue.begin(alone, room), "somebody works");
        assert!(!queue.begin(late, room), "nobody overtakes");
        queue.end(&1);
        assert!(queue.begin(alone, room));
        assert!(!queue.begin(late, room), "nothing is left");
        queue.end(&2);
        assert!(queue.begin(late, room));
    }

    proptest! {
        /// For any requests: everyone gets a turn, never more units than exist, never two
        /// on a key.
        #[test]
        fn every_request_is_served_within_the_limits(
            asks in prop::collection::vec((0u8..4, 1usize..7), 1..40),
            most in 1usize..5,
            ends in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut queue = Queue::new(most);
            let mut waiting: Vec<(Ticket, u8, usize)> = asks
                .iter()
                .map(|&(key, units)| (queue.join(key, units), key, units.min(most)))
                .collect();
            let mut working: Vec<(u8, usize)> = Vec::new();
            let mut ends = ends.into_iter();
            for _ in 0..200 {
                let begun = waiting.iter().position(|(ticket, ..)| queue.begin(*ticket, room));
                if let Some(at) = begun {
                    let (_, key, units) = waiting.remove(at);
                    prop_assert!(working.iter().all(|(busy, _)| *busy != key));
                    working.push((key, units));
                    let taken: usize = working.iter().map(|(_, units)| units).sum();
                    prop_assert!(taken <= most);
                    prop_assert_eq!(taken, queue.working());
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
