//! Freezes a process outside its windows, and has it play a window.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use warpwright_jail::FreezeError;

use super::{Worker, answered, with_nonce};
use crate::process::channel::NoAnswer;
use crate::process::role::Role;

/// How long the threads of a process on a GPU, some thirty on two cores, take to go on once it is thawed:
/// waited for before the clock starts.
const SETTLE: Duration = Duration::from_millis(1);

/// A process's answer in a window.
pub(crate) struct Answered<R> {
    /// Its answer: in a runner, the candidate's word.
    pub(crate) answer: Json,
    /// On a GPU, the judge's readings before the clock stopped.
    pub(crate) seen: Option<R>,
}

impl Worker {
    /// Stops everything in the process's jail until it is asked again.
    pub(crate) fn freeze(&mut self) -> Result<(), NoAnswer> {
        if self.freezer.is_none() {
            self.freezer = self.child.freezer();
        }
        // One that has ended has nothing to stop.
        let Some(freezer) = &mut self.freezer else { return Err(NoAnswer::Closed) };
        let frozen = freezer.freeze();
        self.unless_ended(frozen)
    }

    pub(super) fn thaw(&mut self) -> Result<(), NoAnswer> {
        let Some(freezer) = &mut self.freezer else { return Ok(()) };
        let thawed = freezer.thaw();
        self.unless_ended(thawed)
    }

    /// A group that is gone says that the jail has ended, which the conversation tells better.
    fn unless_ended(&mut self, done: Result<(), FreezeError>) -> Result<(), NoAnswer> {
        match done {
            Ok(()) => Ok(()),
            Err(_) if matches!(self.child.try_wait(), Ok(true)) => Err(NoAnswer::Closed),
            Err(FreezeError::RanWhileFrozen) => Err(NoAnswer::RanWhileFrozen),
            Err(error) => Err(NoAnswer::CannotFreeze(error.to_string())),
        }
    }

    /// Has a frozen process play a window.
    ///
    /// On the cpu device the clock of this process runs from before it goes on until it has answered and
    /// everything in its jail is frozen again. On a GPU it goes on before the clock starts, so that it is
    /// awake and the GPU is its own: the inputs are out of its reach until `lent` comes with "go". There
    /// the clock stops when `look` is done, which sees what the process has left running on the GPU;
    /// freezing it would not stop that. Nobody sleeps while the answer is waited for; on the cpu device
    /// cores that wait would be missed.
    pub(crate) fn window<R>(
        &mut self,
        (go, lent): (&Json, Option<BorrowedFd<'_>>),
        deadline: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> (Duration, Result<Answered<R>, NoAnswer>) {
        let (go, nonce) = with_nonce(go);
        // On a GPU nothing of the clock depends on who was frozen, and baselines run no candidate's code.
        let freezes = !self.awake || self.role == Role::Runner;
        if freezes && let Err(error) = self.freeze() {
            return (Duration::ZERO, Err(error));
        }
        if self.awake {
            if freezes {
                if let Err(error) = self.thaw() {
                    return (Duration::ZERO, Err(error));
                }
                std::thread::sleep(SETTLE);
            }
            let turned = self.ask::<Json>(&serde_json::json!({"do": "turn"}), deadline);
            if let Err(error) = turned {
                return (Duration::ZERO, Err(error));
            }
        }
        if self.channel.has_unasked() {
            return (Duration::ZERO, Err(NoAnswer::Unasked));
        }
        let start = Instant::now();
        // Not the other way round: what is frozen reads nothing, and a socket holds little.
        let sent = self.thaw().and_then(|()| self.channel.send(&go, deadline));
        // Nothing can reach the inputs on a GPU before: neither the process nor what it has queued there.
        let sent = sent.and_then(|()| lent.map_or(Ok(()), |fd| self.channel.send_descriptor(fd)));
        let reply = sent.and_then(|()| self.channel.answer(self.awake, deadline));
        let (mut elapsed, mut seen) = (None, None);
        if self.awake
            && let Ok(reply) = &reply
        {
            seen = Some(look(reply));
            elapsed = Some(start.elapsed());
        }
        let frozen = if freezes { self.freeze() } else { Ok(()) };
        let reply = match (reply, frozen) {
            (Ok(reply), Ok(())) => reply,
            (Err(error), _) | (Ok(_), Err(error)) => return (start.elapsed(), Err(error)),
        };
        let elapsed = elapsed.unwrap_or_else(|| start.elapsed());
        let done = answered(&reply, &nonce).map(|answer| Answered { answer, seen });
        (elapsed, done)
    }
}
