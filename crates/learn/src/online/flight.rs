//! Episodes that are played while others are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use warpwright_record::history;

use super::{Play, Rollouts};

/// Episodes that are played, of one update or of several.
pub(super) struct Flight<'s, 'e, R: Rollouts> {
    scope: &'s Scope<'s, 'e>,
    rollouts: &'e R,
    /// In order; those of the update that comes next are the first.
    under_way: VecDeque<Batch<'s, R::Error>>,
    tell: SyncSender<Told>,
    told: Receiver<Told>,
    begun: u64,
}

/// Episodes of an update.
struct Batch<'s, E> {
    number: u64,
    plays: Vec<Play>,
    /// Others may begin beside them.
    has_room: bool,
    is_over: bool,
    played: ScopedJoinHandle<'s, Result<Vec<history::Episode>, E>>,
}

/// What is heard of a batch, by its number.
enum Told {
    Room(u64),
    Over(u64),
}

/// Says that a batch is over, however it ended.
struct Over(SyncSender<Told>, u64);

impl Drop for Over {
    fn drop(&mut self) {
        // Where nobody hears it nobody waits.
        let _ = self.0.send(Told::Over(self.1));
    }
}

/// What was to be played, and what came of it.
pub(super) type Played<E> = (Vec<Play>, Result<Vec<history::Episode>, E>);

impl<'s, 'e, R: Rollouts> Flight<'s, 'e, R> {
    /// Of at most so many updates beyond the one that comes next.
    pub(super) fn new(scope: &'s Scope<'s, 'e>, rollouts: &'e R, ahead: usize) -> Self {
        // Each batch tells two things.
        let (tell, told) = sync_channel(2 * (ahead + 1));
        Self { scope, rollouts, under_way: VecDeque::new(), tell, told, begun: 0 }
    }

    /// Whether any are played.
    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Waits for the episodes of the update that comes next. Where there is room others begin meanwhile: `plays` says
    /// which, of the update so many after that one, if any are to begin already.
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
            // We have an end that tells ourselves.
            let Ok(told) = self.told.recv() else { continue };
            let (Told::Room(number) | Told::Over(number)) = told;
            for batch in self.under_way.iter_mut().filter(|batch| batch.number == number) {
                batch.has_room = true;
                batch.is_over |= matches!(told, Told::Over(_));
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
            let over = Over(tell, number);
            let said = AtomicBool::new(false);
            rollouts.play(&ours, &|| {
                if !said.swap(true, Ordering::SeqCst) {
                    let _ = over.0.send(Told::Room(number));
                }
            })
        });
        self.begun += 1;
        self.under_way.push_back(Batch { number, plays, has_room: false, is_over: false, played });
    }
}
