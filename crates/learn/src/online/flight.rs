//! Episodes that are played while others are.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use warpwright_record::history;

use super::{Play, Rollouts};

/// Episodes that are played, of one update or of two.
pub(super) struct Flight<'s, 'e, R: Rollouts> {
    pub(super) scope: &'s Scope<'s, 'e>,
    pub(super) rollouts: &'e R,
    /// Those of the next update, where they have begun.
    pub(super) next: Option<Batch<'s, R::Error>>,
}

/// Episodes of an update.
pub(super) struct Batch<'s, E> {
    pub(super) plays: Vec<Play>,
    /// Hears when there is room for others, and ends with the episodes.
    pub(super) room: Receiver<()>,
    pub(super) played: ScopedJoinHandle<'s, Result<Vec<history::Episode>, E>>,
}

impl<'s, R: Rollouts> Flight<'s, '_, R> {
    /// Begins to play these.
    pub(super) fn begin(&self, plays: Vec<Play>) -> Batch<'s, R::Error> {
        let (rollouts, ours) = (self.rollouts, plays.clone());
        let (tell, room) = sync_channel(1);
        let played = self.scope.spawn(move || {
            rollouts.play(&ours, &|| {
                // Once is enough.
                let _ = tell.try_send(());
            })
        });
        Batch { plays, room, played }
    }
}
