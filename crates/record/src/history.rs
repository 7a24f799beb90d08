//! A run's events folded into what is true now: episodes and their turns, with everything a later
//! resumption superseded left out. Reports read this, and so does `--resume`.

use std::collections::BTreeMap;

use crate::error::ReadError;
use crate::event::{
    EpisodeId, EpisodeSetup, Event, EventLine, NoteLevel, Outcome, RunOutcome, StoredCandidate,
    StoredFile, TooLarge,
};
use crate::message::{Message, ToolResult};
use crate::reader::RunReader;
use crate::verdict::{Stage, Verdict};
use crate::void::VoidTurns;

/// The recorded state of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Episodes by number.
    pub episodes: BTreeMap<EpisodeId, Episode>,
    /// Notes in order, with the episode they are about.
    pub notes: Vec<(Option<EpisodeId>, NoteLevel, String)>,
    /// Tasks that the judge refused, each with its last reason.
    pub refused: BTreeMap<String, Refusal>,
    /// Verdicts that do not count: episodes have forgotten them.
    pub voided: Vec<VoidTurns>,
    /// How the run ended; `None` while it is going on or after it was killed.
    pub outcome: Option<RunOutcome>,
    /// Times at which it was resumed.
    pub resumed: Vec<jiff::Timestamp>,
    /// Number of events read.
    pub events: u64,
    /// Time of the last event.
    pub last: Option<jiff::Timestamp>,
}

/// Why the judge refused a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub message: String,
    /// How the task's author can fix it.
    pub hint: Option<String>,
    /// Why the task is degenerate, one word per reason; empty if the judge cannot judge it at all.
    pub degenerate: Vec<String>,
    /// What the task needs, if only the device's memory is in its way.
    pub too_large: Option<TooLarge>,
}

/// One episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Task, policy, rules.
    pub setup: EpisodeSetup,
    /// When it began.
    pub started: jiff::Timestamp,
    /// Turns in order; the last one may be unfinished.
    pub turns: Vec<Turn>,
    /// Final verdicts, which no turn requested.
    pub fresh: Vec<Given>,
    /// How it ended; `None` while it is going on or after it was killed.
    pub end: Option<EpisodeEnd>,
}

/// One turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// From 1.
    pub number: u32,
    /// When the message came.
    pub time: jiff::Timestamp,
    /// The policy's message.
    pub message: Message,
    /// Seconds the policy took.
    pub seconds: f64,
    /// Results in the order of the calls, with the seconds each took; fewer than the calls when
    /// the turn is unfinished.
    pub results: Vec<(ToolResult, f64)>,
    /// Verdicts that the calls caused.
    pub verdicts: Vec<Given>,
    /// Files and elapsed budget seconds at the end of the turn; `None` while unfinished.
    pub snapshot: Option<(Vec<StoredFile>, f64)>,
}

/// A verdict and the files it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The verdict.
    pub verdict: Verdict,
    /// The candidate.
    pub files: Vec<StoredFile>,
}

/// How an episode ended: the fields of [`Event::EpisodeFinished`].
#[derive(Clone, Debug, PartialEq)]
pub struct EpisodeEnd {
    /// Why.
    pub outcome: Outcome,
    /// The fresh verdict on the final candidate.
    pub final_verdict: Option<Verdict>,
    /// The best verdict on the way.
    pub best_verdict: Option<Verdict>,
    /// The final candidate.
    pub candidate: Option<StoredCandidate>,
    /// Turns taken.
    pub turns: u32,
    /// Seconds used.
    pub seconds: f64,
}

/// Where an episode can be resumed.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePoint<'a> {
    /// Finished turns, to be shown to the policy again.
    pub turns: &'a [Turn],
    /// The files to put back into the workspace; `None`: begin with a fresh workspace.
    pub files: Option<&'a [StoredFile]>,
    /// Number of the first turn to take.
    pub next_turn: u32,
    /// Seconds of the time budget already used.
    pub elapsed_seconds: f64,
}

impl History {
    /// Folds the events of `reader`.
    pub fn read(reader: &RunReader) -> Result<Self, ReadError> {
        let mut history = Self::default();
        for line in reader.events()? {
            history.apply(line?);
        }
        Ok(history)
    }

    /// Takes in one more event. An event about an episode that was not started is passed over:
    /// the record is appended to by one writer, which starts episodes first.
    pub fn apply(&mut self, line: EventLine) {
        self.last = Some(line.time);
        self.events += 1;
        match line.event {
            Event::RunStarted { .. } | Event::Progress { .. } => {}
            Event::RunResumed { .. } => {
                self.outcome = None;
                self.resumed.push(line.time);
            }
            Event::RunFinished { outcome } => self.outcome = Some(outcome),
            Event::TaskRefused { task, message, hint, degenerate, too_large } => {
                self.refused.insert(task, Refusal { message, hint, degenerate, too_large });
            }
            Event::VerdictsVoided { voided } => {
                self.episodes.values_mut().for_each(|episode| episode.void(&voided));
                self.voided.push(voided);
            }
            Event::Note { episode, level, text } => self.notes.push((episode, level, text)),
            Event::EpisodeStarted { episode, setup } => {
                self.refused.remove(&setup.task);
                let (turns, fresh) = (Vec::new(), Vec::new());
                let new = Episode { setup, started: line.time, turns, fresh, end: None };
                self.episodes.insert(episode, new);
            }
            event => {
                let known = event.episode().and_then(|id| self.episodes.get_mut(&id));
                if let Some(episode) = known {
                    episode.apply(event, line.time);
                }
            }
        }
    }
}

impl Episode {
    fn apply(&mut self, event: Event, time: jiff::Timestamp) {
        match event {
            Event::EpisodeResumed { turn, .. } => {
                self.turns.retain(|t| t.number < turn);
                self.fresh.clear();
                self.end = None;
            }
            Event::MessageSaid { turn, message, seconds, .. } => self.turns.push(Turn {
                number: turn,
                time,
                message,
                seconds,
                results: Vec::new(),
                verdicts: Vec::new(),
                snapshot: None,
            }),
            Event::ToolFinished { turn, result, seconds, .. } => {
                if let Some(turn) = self.turn_mut(turn) {
                    turn.results.push((result, seconds));
                }
            }
            Event::VerdictGiven { turn, verdict, files, .. } => {
                let given = Given { verdict: *verdict, files };
                match turn {
                    None => self.fresh.push(given),
                    Some(turn) => {
                        if let Some(turn) = self.turn_mut(turn) {
                            turn.verdicts.push(given);
                        }
                    }
                }
            }
            Event::TurnFinished { turn, files, elapsed_seconds, .. } => {
                if let Some(turn) = self.turn_mut(turn) {
                    turn.snapshot = Some((files, elapsed_seconds));
                }
            }
            Event::EpisodeFinished {
                outcome,
                final_verdict,
                best_verdict,
                candidate,
                turns,
                seconds,
                ..
            } => {
                self.end = Some(EpisodeEnd {
                    outcome,
                    final_verdict: final_verdict.map(|v| *v),
                    best_verdict: best_verdict.map(|v| *v),
                    candidate,
                    turns,
                    seconds,
                });
            }
            _ => {}
        }
    }

    /// Forgets void verdicts. An episode that ended with one has not ended: its final candidate is measured again.
    fn void(&mut self, voided: &VoidTurns) {
        for turn in &mut self.turns {
            turn.verdicts.retain(|given| !voided.covers(&given.verdict));
        }
        self.fresh.retain(|given| !voided.covers(&given.verdict));
        let is_void =
            |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(|v| voided.covers(v));
        let Some(end) = &mut self.end else { return };
        if is_void(&end.final_verdict) {
            self.end = None;
        } else if is_void(&end.best_verdict) {
            let left = self.turns.iter().flat_map(|turn| &turn.verdicts);
            end.best_verdict = best(left.map(|given| &given.verdict)).cloned();
        }
    }

    fn turn_mut(&mut self, number: u32) -> Option<&mut Turn> {
        self.turns.iter_mut().rev().find(|turn| turn.number == number)
    }

    /// Where to take the episode up, or `None` when it ended and needs nothing more.
    pub fn resume_point(&self) -> Option<ResumePoint<'_>> {
        let over = self.end.as_ref().is_some_and(|end| !end.outcome.is_resumable());
        if over {
            return None;
        }
        let finished = self.turns.iter().take_while(|turn| turn.snapshot.is_some()).count();
        let turns = &self.turns[..finished];
        let snapshot = turns.last().and_then(|turn| turn.snapshot.as_ref());
        Some(ResumePoint {
            turns,
            files: snapshot.map(|(files, _)| files.as_slice()),
            next_turn: turns.last().map_or(1, |turn| turn.number + 1),
            elapsed_seconds: snapshot.map_or(0.0, |(_, seconds)| *seconds),
        })
    }

    /// Every verdict in order, with the turn that asked for it.
    pub fn verdicts(&self) -> impl Iterator<Item = (Option<u32>, &Given)> {
        let on_the_way =
            self.turns.iter().flat_map(|t| t.verdicts.iter().map(|g| (Some(t.number), g)));
        on_the_way.chain(self.fresh.iter().map(|g| (None, g)))
    }

    /// The verdict that counts: the final one; without it (killed, interrupted) the best measured
    /// one on the way, else the newest.
    pub fn standing(&self) -> Option<&Verdict> {
        let end = self.end.as_ref();
        if let Some(verdict) = end.and_then(|end| end.final_verdict.as_ref()) {
            return Some(verdict);
        }
        if let Some(given) = self.fresh.last() {
            return Some(&given.verdict);
        }
        best(self.verdicts().map(|(_, given)| &given.verdict))
            .or_else(|| self.verdicts().last().map(|(_, given)| &given.verdict))
    }
}

/// The best of several verdicts: verified and measured, by `reward.speedup`, then the newest.
pub fn best<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Option<&'a Verdict> {
    verdicts
        .into_iter()
        .filter(|verdict| verdict.verified && verdict.stage == Stage::Measured)
        .max_by(|a, b| a.reward.speedup.total_cmp(&b.reward.speedup))
}
