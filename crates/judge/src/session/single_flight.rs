//! Work that only one caller does at a time: the others with the same key wait, and take its result.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The keys that somebody works on. The results are the caller's to keep.
pub struct SingleFlight<K> {
    under_way: Mutex<HashSet<K>>,
    changed: Condvar,
}

/// What a caller of [`SingleFlight::claim`] gets.
pub enum Claimed<'s, K: Eq + Hash, T> {
    /// A result that is known.
    Known(T),
    /// The right to work on the key. The caller keeps the result before it drops this.
    Work(Claim<'s, K>),
}

impl<K> Default for SingleFlight<K> {
    fn default() -> Self {
        Self { under_way: Mutex::default(), changed: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash> SingleFlight<K> {
    /// Waits while somebody works on `key`, until `known` has a result. `known` is asked before the first
    /// wait and after each, never while the holder of a claim on the key ends.
    pub fn claim<T>(&self, key: &K, mut known: impl FnMut() -> Option<T>) -> Claimed<'_, K, T> {
        let mut under_way = self.lock();
        loop {
            if let Some(known) = known() {
                return Claimed::Known(known);
            }
            if under_way.insert(key.clone()) {
                return Claimed::Work(Claim { flights: self, key: key.clone() });
            }
            under_way = self.changed.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<K> SingleFlight<K> {
    fn lock(&self) -> MutexGuard<'_, HashSet<K>> {
        // The set is whole after every call, also after a panic elsewhere.
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to work on a key. Dropping it, also after a failure or a panic, lets the next caller look
/// for the result, and work if there is none.
pub struct Claim<'s, K: Eq + Hash> {
    flights: &'s SingleFlight<K>,
    key: K,
}

impl<K: Eq + Hash> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
        self.flights.changed.notify_all();
    }
}
