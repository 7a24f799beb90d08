//! The loop: one policy works on one task until it stops or its budget ends.
//!
//! Every event is appended to the run's record as it happens, and then passed to the observer. The
//! record suffices to resume after an interruption at any moment: [`Start::Resume`] restores the
//! workspace to the last finished turn, lets the policy answer the recorded results again, and
//! takes the next turn.

mod limits;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thiserror::Error;
use warpwright_record::candidate::Candidate;
use warpwright_record::error::{ReadError, WriteError};
use warpwright_record::event::{EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome, StoredFile};
use warpwright_record::history::{self, Turn};
use warpwright_record::message::{Message, ToolCall, ToolResult};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::Verdict;
use warpwright_record::writer::RunWriter;

use self::limits::{Clock, Trail, device_seconds, stops, tokens};
use crate::confined_fs::Snapshot;
use crate::elide::clip_line;
use crate::judge::Judge;
use crate::policy::{Briefing, Past, Policy, PolicyError, ResumeError};
use crate::service::Judged;
use crate::tools::shell::Shell;
use crate::tools::{Finished, ToolUnavailable, Toolbox};
use crate::workspace::{NoCandidate, Workspace, WorkspaceError};

/// Default limit of turns: the paper's training limit.
pub const DEFAULT_TURNS: u32 = 150;

/// The parts of an episode.
pub struct Parts<'a> {
    /// Number within the run.
    pub id: EpisodeId,
    /// Its recorded setup: task, policy, budget.
    pub setup: EpisodeSetup,
    /// The policy's briefing.
    pub briefing: Briefing,
    /// Its workspace.
    pub workspace: &'a Workspace,
    /// Runs its commands.
    pub shell: &'a Shell,
    /// Judges its candidates.
    pub judge: &'a dyn Judge,
    /// The run's record.
    pub record: &'a RunWriter,
    /// Sees every event after it was recorded.
    pub observer: &'a dyn Fn(&Event),
    /// Set when the user interrupts.
    pub stop: &'a AtomicBool,
}

/// Whether the episode begins or resumes.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// At its first turn.
    Fresh,
    /// After the turns of another process.
    Resume {
        /// The finished turns.
        turns: Vec<Turn>,
        /// The agent's own files after the last turn; empty without turns.
        files: BTreeMap<String, Vec<u8>>,
        /// Seconds of the budget used.
        elapsed_seconds: f64,
    },
}

/// The state from which a recorded episode resumes; `None` if it has ended.
pub fn resume_from(
    record: &RunReader,
    episode: &history::Episode,
) -> Result<Option<Start>, ReadError> {
    let Some(point) = episode.resume_point() else { return Ok(None) };
    let mut files = BTreeMap::new();
    for file in point.files.unwrap_or_default() {
        files.insert(file.path.clone(), record.blob(file.blob)?);
    }
    let (turns, elapsed_seconds) = (point.turns.to_vec(), point.elapsed_seconds);
    Ok(Some(Start::Resume { turns, files, elapsed_seconds }))
}

/// Result of an episode: the fields of [`Event::EpisodeFinished`].
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why it ended.
    pub outcome: Outcome,
    /// The fresh verdict on the final candidate.
    pub final_verdict: Option<Verdict>,
    /// The best verdict of the episode.
    pub best_verdict: Option<Verdict>,
    /// The final candidate.
    pub candidate: Option<Candidate>,
    /// Turns taken.
    pub turns: u32,
    /// Seconds used.
    pub seconds: f64,
}

/// Why an episode could not be run or recorded.
#[derive(Debug, Error)]
pub enum EpisodeError {
    /// The record could not be written.
    #[error("failed to write the episode's record")]
    Record(#[from] WriteError),
    /// The record could not be read.
    #[error("failed to resume the episode: its record cannot be read")]
    Read(#[from] ReadError),
    /// The workspace could not be used.
    #[error("failed to keep the episode's workspace")]
    Workspace(#[from] WorkspaceError),
    /// The policy's answer differs from the record.
    #[error(
        "failed to resume the episode: the answer of policy {policy} at turn {turn} differs from the record"
    )]
    Diverged {
        /// The policy's name.
        policy: String,
        /// The first turn that differs.
        turn: u32,
    },
}

/// Why the loop left its turns.
enum Leave {
    End(Outcome),
    Failed(EpisodeError),
}

impl<E: Into<EpisodeError>> From<E> for Leave {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs an episode to its end. Infrastructure errors (the judge, the jail, the policy's server) end it with
/// [`Outcome::Infrastructure`], which is recorded and never rewarded.
///
/// # Errors
///
/// If the record or the workspace cannot be written, or a resumed policy diverges from the record.
pub fn run(
    parts: &Parts<'_>,
    policy: &mut dyn Policy,
    start: Start,
) -> Result<Ended, EpisodeError> {
    let elapsed = match &start {
        Start::Fresh => 0.0,
        Start::Resume { elapsed_seconds, .. } => *elapsed_seconds,
    };
    let mut episode = Running {
        parts,
        toolbox: Toolbox::new(parts.workspace, parts.shell, parts.judge, parts.stop),
        verdicts: Vec::new(),
        tokens: 0,
        device_seconds: 0.0,
        trail: Trail::default(),
        turn: 0,
        clock: Clock::new(elapsed, parts.setup.budget),
    };
    let outcome = match episode.turns(policy, start) {
        Ok(outcome) | Err(Leave::End(outcome)) => outcome,
        Err(Leave::Failed(error)) => return Err(error),
    };
    episode.finish(outcome)
}

struct Running<'a> {
    parts: &'a Parts<'a>,
    toolbox: Toolbox<'a>,
    verdicts: Vec<Verdict>,
    /// Tokens read and written so far.
    tokens: u64,
    /// Seconds for which judging occupied the device.
    device_seconds: f64,
    trail: Trail,
    /// Last finished turn.
    turn: u32,
    clock: Clock,
}

impl Running<'_> {
    fn turns(&mut self, policy: &mut dyn Policy, start: Start) -> Result<Outcome, Leave> {
        let mut asked = Instant::now();
        let mut message = match start {
            Start::Fresh => {
                let (episode, setup) = (self.parts.id, self.parts.setup.clone());
                self.append(&Event::EpisodeStarted { episode, setup })?;
                asked = Instant::now();
                policy.begin(&self.parts.briefing).map_err(|e| self.silent(&e))?
            }
            Start::Resume { turns, files, .. } => self.take_up(policy, &turns, &files)?,
        };
        loop {
            self.check_limits()?;
            let turn = self.turn + 1;
            let episode = self.parts.id;
            let stops = stops(&message);
            let seconds = asked.elapsed().as_secs_f64();
            let said = message.clone();
            self.append(&Event::MessageSaid { episode, turn, message: said, seconds })?;
            self.tokens += tokens(&message);
            let results = self.calls(turn, &message)?;
            let files = self.store(&self.parts.workspace.snapshot()?)?;
            let elapsed_seconds = self.clock.elapsed();
            self.append(&Event::TurnFinished { episode, turn, files, elapsed_seconds })?;
            self.turn = turn;
            if let Some(outcome) = stops {
                return Ok(outcome);
            }
            if self.trail.goes_round(&message, &results) {
                return Ok(Outcome::Looping);
            }
            self.check_limits()?;
            asked = Instant::now();
            message = policy.next(&results).map_err(|e| self.silent(&e))?;
        }
    }

    /// Restores policy, tools and workspace to the end of the record; returns the next message.
    fn take_up(
        &mut self,
        policy: &mut dyn Policy,
        turns: &[Turn],
        files: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Message, Leave> {
        let next = turns.len() as u32 + 1;
        self.append(&Event::EpisodeResumed { episode: self.parts.id, turn: next })?;
        self.parts.workspace.restore(files)?;
        let past: Vec<Past> = turns
            .iter()
            .map(|turn| Past {
                message: turn.message.clone(),
                results: turn.results.iter().map(|(result, _)| result.clone()).collect(),
            })
            .collect();
        for (turn, past) in turns.iter().zip(&past) {
            for (call, result) in past.message.calls.iter().zip(&past.results) {
                self.toolbox.recall(call, result);
            }
            for given in &turn.verdicts {
                self.device_seconds += device_seconds(&given.verdict);
                self.verdicts.push(given.verdict.clone());
            }
            let looked = past.results.iter().flat_map(|result| &result.findings);
            self.device_seconds += looked.map(|found| found.run_seconds).sum::<f64>();
            self.tokens += tokens(&turn.message);
            if self.trail.goes_round(&past.message, &past.results) {
                return Err(Leave::End(Outcome::Looping));
            }
        }
        self.turn = turns.len() as u32;
        if let Some(outcome) = turns.last().and_then(|turn| stops(&turn.message)) {
            // It had ended; only the final measurement is missing.
            return Err(Leave::End(outcome));
        }
        self.check_limits()?;
        match policy.resume(&self.parts.briefing, &past) {
            Ok(message) => Ok(message),
            Err(ResumeError::Policy(error)) => Err(self.silent(&error)),
            Err(ResumeError::Diverged { turn }) => {
                let policy = policy.name();
                Err(EpisodeError::Diverged { policy, turn }.into())
            }
        }
    }

    fn calls(&mut self, turn: u32, message: &Message) -> Result<Vec<ToolResult>, Leave> {
        let episode = self.parts.id;
        let mut results = Vec::with_capacity(message.calls.len());
        // Neighbours that only read cannot disturb each other: they run side by side.
        let apart =
            |a: &ToolCall, b: &ToolCall| !(Toolbox::is_read_only(a) && Toolbox::is_read_only(b));
        for calls in message.calls.chunk_by(|a, b| !apart(a, b)) {
            self.interrupted()?;
            let ran = self.side_by_side(calls);
            // An interrupt ends a command early; what it printed is not a result.
            self.interrupted()?;
            for (finished, seconds) in ran {
                let finished = finished.map_err(|e| infrastructure(&e))?;
                for judged in finished.judged {
                    self.verdict(Some(turn), judged)?;
                }
                let looked = finished.result.findings.iter().map(|found| found.run_seconds);
                self.device_seconds += looked.sum::<f64>();
                let result = finished.result.clone();
                self.append(&Event::ToolFinished { episode, turn, result, seconds })?;
                results.push(finished.result);
            }
        }
        Ok(results)
    }

    /// Runs calls concurrently. Returns the results in order, with the duration of each in seconds.
    fn side_by_side(&self, calls: &[ToolCall]) -> Vec<(Result<Finished, ToolUnavailable>, f64)> {
        let (toolbox, until) = (&self.toolbox, self.clock.until());
        let run = |call: &ToolCall| {
            let begun = Instant::now();
            (toolbox.run(call, until), begun.elapsed().as_secs_f64())
        };
        if let [call] = calls {
            return vec![run(call)];
        }
        let run = &run;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                calls.iter().map(|call| (call, scope.spawn(move || run(call)))).collect();
            // A thread that died panicked: its call is run again, and fails here if it must.
            threads.into_iter().map(|(call, t)| t.join().unwrap_or_else(|_| run(call))).collect()
        })
    }

    fn finish(mut self, mut outcome: Outcome) -> Result<Ended, EpisodeError> {
        let episode = self.parts.id;
        let candidate = match self.parts.workspace.candidate() {
            Ok(candidate) => Some(candidate),
            Err(NoCandidate::NoModel) => None,
            Err(reason) => {
                let (episode, text) = (Some(episode), reason.to_string());
                self.append(&Event::Note { episode, level: NoteLevel::Warning, text })?;
                None
            }
        };
        let best_verdict = history::best(&self.verdicts).cloned();
        let mut final_verdict = None;
        if let (Some(candidate), false) = (&candidate, outcome.is_resumable()) {
            let text = "measuring the final candidate again".to_owned();
            self.append(&Event::Progress { episode: Some(episode), text })?;
            match self.parts.judge.measure_afresh(candidate) {
                Ok(verdict) => {
                    // With the run, where it outlasts the judge's cache.
                    for file in verdict.plans().filter_map(|plan| self.parts.judge.plan_file(plan))
                    {
                        self.parts.record.put_blob(&file)?;
                    }
                    let judged = Judged { verdict: verdict.clone(), candidate: candidate.clone() };
                    self.verdict(None, judged)?;
                    final_verdict = Some(verdict);
                }
                Err(_) if self.parts.stop.load(Ordering::SeqCst) => outcome = Outcome::Interrupted,
                Err(error) => outcome = Outcome::Infrastructure { message: chain(&error) },
            }
        }
        let ended = Ended {
            outcome,
            final_verdict,
            best_verdict,
            candidate,
            turns: self.turn,
            seconds: self.clock.elapsed(),
        };
        let stored = ended.candidate.as_ref().map(|c| self.parts.record.put_candidate(c));
        self.append(&Event::EpisodeFinished {
            episode,
            outcome: ended.outcome.clone(),
            final_verdict: ended.final_verdict.clone().map(Box::new),
            best_verdict: ended.best_verdict.clone().map(Box::new),
            candidate: stored.transpose()?,
            turns: ended.turns,
            seconds: ended.seconds,
        })?;
        Ok(ended)
    }

    fn verdict(&mut self, turn: Option<u32>, judged: Judged) -> Result<(), EpisodeError> {
        let files = self.parts.record.put_candidate(&judged.candidate)?.files;
        let verdict = Box::new(judged.verdict.clone());
        let episode = self.parts.id;
        self.append(&Event::VerdictGiven { episode, turn, verdict, files })?;
        self.device_seconds += device_seconds(&judged.verdict);
        self.verdicts.push(judged.verdict);
        Ok(())
    }

    fn store(&self, snapshot: &Snapshot) -> Result<Vec<StoredFile>, EpisodeError> {
        if !snapshot.left_out.is_empty() {
            let text = format!(
                "the record omits files that are links, too large or too many: {}",
                clip_line(&snapshot.left_out.join(", "), 500)
            );
            let episode = Some(self.parts.id);
            self.append(&Event::Note { episode, level: NoteLevel::Warning, text })?;
        }
        let files = snapshot.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
        Ok(self.parts.record.put_files(files)?)
    }

    fn check_limits(&self) -> Result<(), Leave> {
        self.interrupted()?;
        if self.parts.setup.budget.turns.is_some_and(|most| self.turn >= most) {
            return Err(Leave::End(Outcome::BudgetTurns));
        }
        if self.clock.is_over() {
            return Err(Leave::End(Outcome::BudgetTime));
        }
        if self.parts.setup.budget.tokens.is_some_and(|most| self.tokens >= most) {
            return Err(Leave::End(Outcome::BudgetTokens));
        }
        if self.parts.setup.budget.device_seconds.is_some_and(|most| self.device_seconds >= most) {
            return Err(Leave::End(Outcome::BudgetDevice));
        }
        Ok(())
    }

    /// Handles a policy that gave no message: a policy that waits for a server gives up when the
    /// user interrupts.
    fn silent(&self, error: &PolicyError) -> Leave {
        self.interrupted().err().unwrap_or_else(|| infrastructure(error))
    }

    fn interrupted(&self) -> Result<(), Leave> {
        if self.parts.stop.load(Ordering::SeqCst) {
            return Err(Leave::End(Outcome::Interrupted));
        }
        Ok(())
    }

    fn append(&self, event: &Event) -> Result<(), EpisodeError> {
        self.parts.record.append(event)?;
        (self.parts.observer)(event);
        Ok(())
    }
}

fn infrastructure(error: &dyn std::error::Error) -> Leave {
    Leave::End(Outcome::Infrastructure { message: chain(error) })
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
