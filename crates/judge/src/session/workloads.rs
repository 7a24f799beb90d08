//! Judges a candidate on every workload of its task.
//!
//! Each workload is a task with a session of its own, which knows nothing of the others. The candidate is built once.
//! Every workload is verified and timed as a task of its own, but for fewer rounds (`check/share.rs`). The first failure
//! decides. A workload on which no candidate can be judged is refused, and the others count; one that is held out
//! must be left if the task has any.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard, PoisonError};

use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Stage, Verdict, WorkloadVerdict};
use warpwright_task::{Task, TaskError};

use super::merged::{Part, merge};
use super::pool::{Begin, Key, SessionPool};
use super::verdict::{Known, built};
use crate::error::JudgeError;
use crate::session::Begun;

/// One workload of a task.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) held_out: bool,
    /// The task bound to it.
    pub(super) task: Task,
}

/// Workloads on which candidates can be judged, with what is known of them, and the others.
type Sorted<'w> = (Vec<(&'w Workload, Known)>, Vec<(&'w Workload, Arc<JudgeError>)>);

/// The workloads of a task, those that are held out last; `None` if it has one set of inputs.
pub(super) fn workloads_of(task: &Task) -> Result<Option<Vec<Workload>>, JudgeError> {
    let read = || -> Result<Vec<Workload>, TaskError> {
        let mut all = Vec::new();
        for (index, workload) in task.workloads()?.into_iter().enumerate() {
            let Some(bound) = task.of_workload(index)? else { continue };
            let (name, held_out) = (workload.name, workload.held_out);
            all.push(Workload { name, held_out, task: bound });
        }
        all.sort_by_key(|workload| workload.held_out);
        Ok(all)
    };
    let workloads = read().map_err(|error| JudgeError::Reference {
        task: task.name.clone(),
        message: error.to_string(),
        hint: Some(error.hint().to_owned()),
    })?;
    Ok((!workloads.is_empty()).then_some(workloads))
}

impl SessionPool<'_> {
    /// Opens the first workload that can be opened.
    pub(super) fn open_one_of(&self, workloads: &[Workload]) -> Result<(), JudgeError> {
        let mut why = None;
        for workload in workloads {
            match self.unless_refused(workload, || self.open_single(&workload.task))? {
                Ok(()) => return Ok(()),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(none_left(why.as_deref()))
    }

    /// The first workload that candidates can be judged on.
    pub(super) fn first_of<'w>(
        &self,
        workloads: &'w [Workload],
        begin: Begin,
    ) -> Result<&'w Workload, JudgeError> {
        let mut why = None;
        for workload in workloads {
            match self.unless_refused(workload, || self.known(&workload.task, begin))? {
                Ok(_) => return Ok(workload),
                Err(error) => why = why.or(Some(error)),
            }
        }
        Err(none_left(why.as_deref()))
    }

    /// Judges a candidate on every workload that is not refused, up to the first failure.
    pub(super) fn judge_on_all(
        &self,
        task: &Task,
        workloads: &[Workload],
        candidate: &Candidate,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        let begin: Begin = if stage == Stage::Measured { Begun::begin } else { Begun::to_verify };
        if stage == Stage::Built {
            let first = self.first_of(workloads, begin)?;
            let verdict = self.afresh(&first.task, candidate, stage)?;
            return Ok(Verdict { task: task.name.clone(), ..verdict });
        }
        let (mut fit, refused) = self.sorted(workloads, begin)?;
        let first_refused = |refused: &[(&Workload, Arc<JudgeError>)]| {
            none_left(refused.first().map(|(_, error)| &**error))
        };
        let Some((first, known)) = fit.first() else { return Err(first_refused(&refused)) };
        if let Some(why) = none_held_out(&fit, &refused) {
            return Err(without_held_out(&task.name, why));
        }
        let shared = self.judge().shared();
        let artifact = match built(shared, &first.task, known, candidate, stage)? {
            ControlFlow::Break(verdict) => {
                return Ok(Verdict { task: task.name.clone(), ..verdict });
            }
            ControlFlow::Continue(artifact) => artifact,
        };
        // Rounds and comparisons are divided among the workloads that are judged.
        let task_of = |workload: &Workload| {
            let sharing = workload.task.sharing.saturating_sub(refused.len()).max(1);
            Task { sharing, ..workload.task.clone() }
        };
        // Those that are open first: else each would make room for the next where few can be open.
        fit.sort_by_key(|(workload, _)| (workload.held_out, !self.is_idle(&task_of(workload))));
        let mut parts = Vec::new();
        let place = |name: &str| workloads.iter().position(|workload| workload.name == name);
        for (workload, known) in &fit {
            // Not refused any more: a candidate could have the workload struck out that it is worst at.
            let judged = self.judge_built(&task_of(workload), candidate, &artifact, stage)?;
            let (verdict, measured) = judged;
            let good = verdict.verified;
            let (name, held_out) = (workload.name.clone(), workload.held_out);
            let (capped, degenerate) = (known.capped, !known.degenerate.is_empty());
            parts.push(Part { name, held_out, capped, degenerate, verdict, measured });
            if !good {
                break;
            }
        }
        // In the order of the task, but for one that failed.
        if parts.iter().all(|part| part.verdict.verified) {
            parts.sort_by_key(|part| place(&part.name));
        }
        let told = refused.iter().map(|(workload, why)| {
            let (name, held_out) = (workload.name.clone(), workload.held_out);
            WorkloadVerdict::refused(name, held_out, why.to_string())
        });
        let told = told.collect();
        merge(&task.name, parts, told).ok_or_else(|| first_refused(&refused))
    }

    /// Which workloads candidates can be judged on.
    fn sorted<'w>(
        &self,
        workloads: &'w [Workload],
        begin: Begin,
    ) -> Result<Sorted<'w>, JudgeError> {
        let (mut fit, mut refused) = (Vec::new(), Vec::new());
        for workload in workloads {
            match self.unless_refused(workload, || self.known(&workload.task, begin))? {
                Ok(known) => fit.push((workload, known)),
                Err(error) => refused.push((workload, error)),
            }
        }
        Ok((fit, refused))
    }

    /// The inner error is the workload's own: it is remembered.
    fn unless_refused<T>(
        &self,
        workload: &Workload,
        work: impl FnOnce() -> Result<T, JudgeError>,
    ) -> Result<Result<T, Arc<JudgeError>>, JudgeError> {
        let key = Key::of(&workload.task);
        if let Some(error) = self.refusals().get(&key) {
            return Ok(Err(Arc::clone(error)));
        }
        match work() {
            Ok(done) => Ok(Ok(done)),
            Err(
                error @ (JudgeError::Reference { .. }
                | JudgeError::Degenerate { .. }
                | JudgeError::TooLarge { .. }),
            ) => {
                let error = Arc::new(error);
                self.refusals().insert(key, Arc::clone(&error));
                Ok(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<Key, Arc<JudgeError>>> {
        // The map is whole after every call, also after a panic elsewhere.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why no held-out workload is left to judge on, if the task has any.
fn none_held_out<'r>(
    fit: &[(&Workload, Known)],
    refused: &'r [(&Workload, Arc<JudgeError>)],
) -> Option<&'r JudgeError> {
    let why = refused.iter().find(|(workload, _)| workload.held_out).map(|(_, why)| &**why);
    why.filter(|_| !fit.iter().any(|(workload, _)| workload.held_out))
}

/// The error where every held-out workload is refused: a verdict without them would claim more than it knows.
fn without_held_out(task: &str, why: &JudgeError) -> JudgeError {
    match why {
        JudgeError::TooLarge { needed, available, message, .. } => JudgeError::TooLarge {
            task: task.to_owned(),
            needed: *needed,
            available: *available,
            message: format!("no held-out workload can be judged: {message}"),
        },
        why => JudgeError::Reference {
            task: task.to_owned(),
            message: format!("no held-out workload can be judged: {why}"),
            hint: Some(
                "mend the workload, or hold out another one; `--held-out-shapes` draws them by the seed"
                    .to_owned(),
            ),
        },
    }
}

/// The error where every workload is refused: the first one's.
fn none_left(why: Option<&JudgeError>) -> JudgeError {
    match why {
        Some(JudgeError::Degenerate { task, reasons }) => {
            JudgeError::Degenerate { task: task.clone(), reasons: reasons.clone() }
        }
        Some(JudgeError::TooLarge { task, needed, available, message }) => JudgeError::TooLarge {
            task: task.clone(),
            needed: *needed,
            available: *available,
            message: message.clone(),
        },
        Some(JudgeError::Reference { task, message, hint }) => JudgeError::Reference {
            task: task.clone(),
            message: message.clone(),
            hint: hint.clone(),
        },
        _ => JudgeError::infrastructure("open the workloads", "there are none"),
    }
}
