//! Episodes of several training steps, played concurrently.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use warpwright_record::history;

use crate::rollouts::{Play, Rollouts};

/// The batches of episodes that are being played.
pub(super) struct InFlight<'s, 'e, R: Rollouts> {
    scope: &'s Scope<'s, 'e>,
    rollouts: &'e R,
    /// In the order of their training steps.
    under_way: VecDeque<Batch<'s, R::Error>>,
    tell: SyncSender<BatchEvent>,
    told: Receiver<BatchEvent>,
    begun: u64,
}

/// The episodes of one training step.
struct Batch<'s, E> {
    number: u64,
    plays: Vec<Play>,
    /// Workers are free: a later batch may begin.
    has_room: bool,
    is_over: bool,
    played: ScopedJoinHandle<'s, Result<Vec<history::Episode>, E>>,
}

/// Events of a batch, by its number.
enum BatchEvent {
    HasRoom(u64),
    Done(u64),
}

/// Sends [`BatchEvent::Done`] when dropped, however the batch ended.
struct DoneGuard(SyncSender<BatchEvent>, u64);

impl Drop for DoneGuard {
    fn drop(&mut self) {
        // If the receiver is gone, nothing waits.
        let _ = self.0.send(BatchEvent::Done(self.1));
    }
}

/// The episodes that were to be played, and the result.
pub(super) type Played<E> = (Vec<Play>, Result<Vec<history::Episode>, E>);

impl<'s, 'e, R: Rollouts> InFlight<'s, 'e, R> {
    /// For at most `max_staleness` training steps beyond the next one.
    pub(super) fn new(scope: &'s Scope<'s, 'e>, rollouts: &'e R, max_staleness: usize) -> Self {
        // Each batch sends two events.
        let (tell, told) = sync_channel(2 * (max_staleness + 1));
        Self { scope, rollouts, under_way: VecDeque::new(), tell, told, begun: 0 }
    }

    /// Whether any batch is being played.
    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Waits for the episodes of the next training step. While workers are free, episodes of later
    /// steps begin: `plays(n)` gives the episodes of the step `n` steps after the next one, or
    /// `None` if they may not begin yet.
    pub(super) fn next(
        &mut self,
        plays: impl Fn(usize) -> Option<Vec<Play>>,
    ) -> std::thread::Result<Played<R::Error>> {
        loop {
            while self.under_way.back().is_none_or(|last| last.has_room) {
                let Some(plays) = plays(self.under_way.len()) else { break };
                self.begin(plays);
            }
            if self.under_way.front().is_none_or(|first| first.is_over) {
                break;
            }
            // Never disconnects: `self` holds a sender.
            let Ok(told) = self.told.recv() else { continue };
            let (BatchEvent::HasRoom(number) | BatchEvent::Done(number)) = told;
            for batch in self.under_way.iter_mut().filter(|batch| batch.number == number) {
                batch.has_room = true;
                batch.is_over |= matches!(told, BatchEvent::Done(_));
            }
        }
        match self.under_way.pop_front() {
            Some(Batch { plays, played, .. }) => Ok((plays, played.join()?)),
            None => Ok((Vec::new(), Ok(Vec::new()))),
        }
    }

    fn begin(&mut self, plays: Vec<Play>) {
        let (rollouts, ours) = (self.rollouts, plays.clone());
        let (tell, number) = (self.tell.clone(), self.begun);
        let played = self.scope.spawn(move || {
            let over = DoneGuard(tell, number);
            let said = AtomicBool::new(false);
            rollouts.play(&ours, &|| {
                if !said.swap(true, Ordering::SeqCst) {
                    let _ = over.0.send(BatchEvent::HasRoom(number));
                }
            })
        });
        self.begun += 1;
        self.under_way.push_back(Batch { number, plays, has_room: false, is_over: false, played });
    }
}
