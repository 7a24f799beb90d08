//! Judges a candidate on every workload of its task.
//!
//! Each workload is a task with a session of its own, which knows nothing of the others. The candidate is built once.
//! Every workload is verified on the task's own inputs; the other input families are divided among them, at random
//! for each verdict. The first failure decides. A workload on which no candidate can be judged is refused, and the
//! others count.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use warpwright_record::candidate::Candidate;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{Stage, Verdict, WorkloadVerdict};
use warpwright_task::{Task, TaskError};

use super::merged::{Part, merge};
use super::pool::{Begin, Key, SessionPool};
use super::verdict::{Known, built};
use crate::check::share::Share;
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
        let shared = self.judge().shared();
        let artifact = match built(shared, &first.task, known, candidate, stage)? {
            ControlFlow::Break(verdict) => {
                return Ok(Verdict { task: task.name.clone(), ..verdict });
            }
            ControlFlow::Continue(artifact) => artifact,
        };
        // Those that are open first: else each would make room for the next where few can be open.
        fit.sort_by_key(|(workload, _)| (workload.held_out, !self.is_idle(&workload.task)));
        let families: Vec<_> = fit.iter().map(|(_, known)| known.families.as_slice()).collect();
        // Secret: a candidate could be right on just the families of each workload.
        let mut random = StdRng::from_rng(&mut rand::rng());
        let mut parts = Vec::new();
        let place = |name: &str| workloads.iter().position(|workload| workload.name == name);
        for ((workload, known), families) in fit.iter().zip(divided(&families, &mut random)) {
            let share = Share { families: Some(families) };
            let of = (stage, &share);
            // Not refused any more: a candidate could have the workload struck out that it is worst at.
            let verdict = self.judge_built(&workload.task, candidate, &artifact, of)?;
            let good = verdict.verified;
            let (name, held_out) = (workload.name.clone(), workload.held_out);
            let (capped, degenerate) = (known.capped, !known.degenerate.is_empty());
            parts.push(Part { name, held_out, capped, degenerate, verdict });
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

/// Divides the families among workloads that allow those: each family to one of them, as many to each as to any
/// other, and at random.
fn divided(allowed: &[&[InputFamily]], random: &mut StdRng) -> Vec<Vec<InputFamily>> {
    let mut all: Vec<InputFamily> = Vec::new();
    for family in allowed.iter().flat_map(|families| families.iter()) {
        if !all.contains(family) {
            all.push(*family);
        }
    }
    all.shuffle(random);
    let mut shares = vec![Vec::new(); allowed.len()];
    for family in all {
        let able = |at: &usize| allowed.get(*at).is_some_and(|of| of.contains(&family));
        let loads = || shares.iter().map(Vec::len).enumerate().filter(|(at, _)| able(at));
        let least = loads().map(|(_, load)| load).min().unwrap_or(0);
        let free: Vec<usize> =
            loads().filter(|(_, load)| *load == least).map(|(at, _)| at).collect();
        if free.is_empty() {
            continue;
        }
        let at = free.get(random.random_range(0..free.len())).copied();
        if let Some(share) = at.and_then(|at| shares.get_mut(at)) {
            share.push(family);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_one_workloads_share() {
        use InputFamily::{Large, Normal, Offset, Slices, Small};
        let mut random = StdRng::seed_from_u64(5);
        let allowed: [&[InputFamily]; 3] =
            [&[Normal, Offset, Large, Small], &[Normal, Offset, Large, Small], &[Slices]];
        let mut of_normal = [0; 3];
        for _ in 0..200 {
            let shares = divided(&allowed, &mut random);
            let mut all: Vec<InputFamily> = shares.iter().flatten().copied().collect();
            all.sort_unstable_by_key(|family| family.name());
            let mut wanted = [Normal, Offset, Large, Small, Slices];
            wanted.sort_unstable_by_key(|family| family.name());
            assert_eq!(all, wanted);
            assert_eq!((shares[0].len(), shares[1].len(), shares[2].len()), (2, 2, 1));
            for (at, share) in shares.iter().enumerate() {
                of_normal[at] += usize::from(share.contains(&Normal));
            }
        }
        assert!(of_normal[0] > 60 && of_normal[1] > 60, "{of_normal:?}");
        assert_eq!(divided(&[], &mut random), Vec::<Vec<InputFamily>>::new());
    }
}
