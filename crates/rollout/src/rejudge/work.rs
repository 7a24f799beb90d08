//! Judges the candidates, on all devices at once, and records the verdicts.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwright_judge::{JudgeError, SessionPool, fit_of};
use warpwright_record::candidate::Candidate;
use warpwright_record::event::{
    Budget, EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome, RunOutcome,
};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Dtype, Stage, Verdict};
use warpwright_record::writer::RunWriter;
use warpwright_task::Task;

use super::{Candidates, Source, stops};
use crate::campaign::Caller;
use crate::error::{RolloutError, chain};
use crate::judge_host::JudgeHost;
use crate::pool_judge::{DeviceJudge, PooledDevice, Refusal, TaskJudge};
use crate::voided::{ROUNDS, unmentioned};

/// Concurrent candidates per GPU: while one is measured, others are built.
const JOBS_ON_GPU: usize = 4;

/// The part of a run that this process does.
pub(super) struct Work<'a> {
    source: &'a Source,
    chosen: &'a Candidates,
    hosts: Vec<JudgeHost>,
    record: RunWriter,
    caller: &'a Caller<'a>,
    /// What is left.
    queue: Mutex<VecDeque<EpisodeId>>,
    /// Tasks that cannot be judged.
    refused: Mutex<HashSet<String>>,
    /// The failure that ended the run early.
    fatal: Mutex<Option<RolloutError>>,
    /// The first infrastructure failure of a single candidate.
    failed: Mutex<Option<String>>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        source: &'a Source,
        chosen: &'a Candidates,
        hosts: Vec<JudgeHost>,
        record: RunWriter,
        caller: &'a Caller<'a>,
    ) -> Self {
        Self {
            source,
            chosen,
            hosts,
            record,
            caller,
            queue: Mutex::default(),
            refused: Mutex::default(),
            fatal: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Judges what `history` does not have, and ends the run.
    pub(super) fn finish(self, history: &History) -> Result<(), RolloutError> {
        self.caller.observer.resumed(history);
        self.carry_over(history)?;
        self.plan(history);
        let mut done = self.workers();
        for _ in 0..ROUNDS {
            let stopped = stops(&self.caller.stop) || lock(&self.fatal).is_some();
            if stopped || done.is_err() || !self.void()? {
                break;
            }
            done = self.workers();
        }
        self.caller.observer.finished();
        let fatal = lock(&self.fatal).take();
        let failure = done.err().or(fatal);
        let failed = lock(&self.failed).take();
        let outcome = match (&failure, &failed) {
            (Some(failure), _) => RunOutcome::Failed { message: chain(failure) },
            (None, _) if stops(&self.caller.stop) => RunOutcome::Interrupted,
            (None, Some(message)) => RunOutcome::Failed { message: message.clone() },
            (None, None) => RunOutcome::Completed,
        };
        let completed = outcome == RunOutcome::Completed;
        let interrupted = outcome == RunOutcome::Interrupted;
        let ended = self.record.append(&Event::RunFinished { outcome });
        if let Some(failure) = failure {
            return Err(failure);
        }
        ended?;
        if interrupted {
            return Err(RolloutError::Interrupted);
        }
        if completed {
            self.record.close()?;
            return Ok(());
        }
        let message = format!(
            "failed to judge some candidates again: {}",
            failed.unwrap_or_else(|| "the judge failed".to_owned())
        );
        Err(RolloutError::infrastructure(
            message,
            "run the same command again to judge the rest".to_owned(),
        ))
    }

    /// Records what is not judged: episodes without a candidate, and refused tasks without an episode.
    fn carry_over(&self, history: &History) -> Result<(), RolloutError> {
        for id in &self.chosen.without {
            let Some(episode) = self.source.history.episodes.get(id) else { continue };
            let Some(end) = &episode.end else { continue };
            if history.episodes.get(id).is_some_and(|episode| episode.end.is_some()) {
                continue;
            }
            let Ok(task) = self.source.task(episode) else { continue };
            let device = self.hosts.first().map(JudgeHost::device).unwrap_or_default();
            let setup = self.setup(episode, &task, &device)?;
            self.append(&Event::EpisodeStarted { episode: *id, setup })?;
            self.append(&ended(*id, end.outcome.clone(), None, None))?;
        }
        if self.chosen.only != "all" {
            return Ok(());
        }
        for (task, refusal) in &self.source.history.refused {
            if !history.refused.contains_key(task) {
                let (message, hint) = (refusal.message.clone(), refusal.hint.clone());
                let (degenerate, too_large) = (refusal.degenerate.clone(), refusal.too_large);
                let task = task.clone();
                let refused = Event::TaskRefused { task, message, hint, degenerate, too_large };
                self.append(&refused)?;
            }
        }
        Ok(())
    }

    /// Plans the candidates without a verdict, those of one task after the other.
    fn plan(&self, history: &History) {
        let open = |id: &&EpisodeId| {
            let end = history.episodes.get(id).and_then(|episode| episode.end.as_ref());
            end.is_none_or(|end| end.final_verdict.is_none())
        };
        let mut left: Vec<EpisodeId> = self.chosen.episodes.iter().filter(open).copied().collect();
        left.sort_by_key(|id| {
            let setup = self.source.history.episodes.get(id).map(|episode| &episode.setup);
            (setup.map(|setup| setup.task.clone()), *id)
        });
        *lock(&self.queue) = left.into();
    }

    /// Records which verdicts have become void, and plans their candidates again. False if there are none.
    fn void(&self) -> Result<bool, RolloutError> {
        let reader = RunReader::open(self.record.dir())?;
        let history = History::read(&reader)?;
        let each = self.hosts.iter().map(|host| host.judge.voids());
        let all = each.collect::<Result<Vec<_>, _>>()?;
        let news = unmentioned(all.into_iter().flatten(), &history, None);
        if news.is_empty() {
            return Ok(false);
        }
        for voided in news {
            self.append(&Event::VerdictsVoided { voided })?;
        }
        self.plan(&History::read(&reader)?);
        Ok(!lock(&self.queue).is_empty())
    }

    fn workers(&self) -> Result<(), RolloutError> {
        let pools: Vec<_> = self.hosts.iter().map(|host| SessionPool::new(&host.judge)).collect();
        let devices = self.hosts.iter().zip(&pools).map(|(host, pool)| {
            let facts = host.facts()?;
            let jobs = if facts.device == "cpu" { 1 } else { JOBS_ON_GPU };
            Ok((facts.device.clone(), jobs, PooledDevice::new(pool, facts)))
        });
        let devices = devices.collect::<Result<Vec<_>, RolloutError>>()?;
        std::thread::scope(|scope| {
            for (name, jobs, device) in &devices {
                for _ in 0..*jobs {
                    scope.spawn(move || {
                        if let Err(failure) = self.worker(name, device) {
                            lock(&self.fatal).get_or_insert(failure);
                            self.caller.stop.store(true, std::sync::atomic::Ordering::SeqCst);
                        }
                    });
                }
            }
        });
        Ok(())
    }

    fn worker(&self, name: &str, device: &PooledDevice<'_>) -> Result<(), RolloutError> {
        while !stops(&self.caller.stop) {
            let Some(id) = lock(&self.queue).pop_front() else { break };
            let Some(episode) = self.source.history.episodes.get(&id) else { continue };
            let read = self
                .source
                .task(episode)
                .and_then(|task| self.source.candidate(episode).map(|candidate| (task, candidate)));
            match read {
                Ok((task, candidate)) => {
                    self.judge(name, device, (id, episode), &task, &candidate)?;
                }
                Err(message) => {
                    // A later run of the command cannot do better: it is no failure of this machine.
                    let text = format!("{}: not judged: {message}", episode.setup.task);
                    // An empty source would be another task's: one that is lost stays named.
                    let source = match self.source.reader.blob(episode.setup.source) {
                        Ok(source) => self.record.put_blob(&source)?,
                        Err(_) => episode.setup.source,
                    };
                    let setup = EpisodeSetup {
                        source,
                        skill: None,
                        device: name.to_owned(),
                        budget: Budget::default(),
                        ..episode.setup.clone()
                    };
                    self.append(&Event::EpisodeStarted { episode: id, setup })?;
                    let (episode, level) = (Some(id), NoteLevel::Warning);
                    self.append(&Event::Note { episode, level, text })?;
                    self.append(&ended(id, Outcome::Infrastructure { message }, None, None))?;
                }
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        name: &str,
        device: &PooledDevice<'_>,
        (id, episode): (EpisodeId, &Episode),
        task: &Task,
        candidate: &Candidate,
    ) -> Result<(), RolloutError> {
        if lock(&self.refused).contains(&task.name) {
            return Ok(());
        }
        if let Err(error) = task.facts() {
            let (message, hint) = (error.to_string(), Some(error.hint().to_owned()));
            return self
                .refuse(task, Refusal { message, hint, degenerate: Vec::new(), too_large: None });
        }
        let judge = device.task(task, &self.caller.stop);
        match judge.open() {
            Ok(()) => {}
            Err(error @ JudgeError::DeviceLost { .. }) => return Err(error.into()),
            Err(error) => {
                if let Some(refusal) = Refusal::of(&error) {
                    return self.refuse(task, refusal);
                }
                // The candidates of other tasks can be judged all the same.
                let setup = self.setup(episode, task, name)?;
                self.append(&Event::EpisodeStarted { episode: id, setup })?;
                let message = chain(&error);
                lock(&self.failed).get_or_insert(message.clone());
                return self.append(&ended(id, Outcome::Infrastructure { message }, None, None));
            }
        }
        let setup = self.setup(episode, task, name)?;
        self.append(&Event::EpisodeStarted { episode: id, setup })?;
        let shared = self.source.shares_verdicts() && !task.holds_out();
        let verdict = if shared {
            judge.judge(candidate, Stage::Measured)
        } else {
            judge.measure_afresh(candidate)
        };
        device.finished(task);
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(unavailable) => {
                if let Some(refusal) = judge.refusal() {
                    self.append(&ended(id, Outcome::Stopped, None, None))?;
                    return self.refuse(task, refusal.clone());
                }
                let message = unavailable.message;
                if !stops(&self.caller.stop) {
                    lock(&self.failed).get_or_insert(message.clone());
                }
                return self.append(&ended(id, Outcome::Infrastructure { message }, None, None));
            }
        };
        self.keep(&*judge, (id, episode), candidate, verdict)
    }

    /// Records a verdict, with its launch plan.
    fn keep(
        &self,
        judge: &dyn TaskJudge,
        (id, episode): (EpisodeId, &Episode),
        candidate: &Candidate,
        verdict: Verdict,
    ) -> Result<(), RolloutError> {
        for plan in verdict.plans().filter_map(|plan| judge.plan_file(plan)) {
            self.record.put_blob(&plan)?;
        }
        let stored = self.record.put_candidate(candidate)?;
        let verdict = Box::new(verdict);
        let files = stored.files.clone();
        let given =
            Event::VerdictGiven { episode: id, turn: None, verdict: verdict.clone(), files };
        self.append(&given)?;
        // Why the policy stopped; that our own machine failed then says nothing today.
        let was = episode.end.as_ref().map_or(Outcome::Stopped, |end| end.outcome.clone());
        let outcome = if was.is_resumable() { Outcome::Stopped } else { was };
        self.append(&ended(id, outcome, Some(verdict), Some(stored)))
    }

    fn refuse(&self, task: &Task, refusal: Refusal) -> Result<(), RolloutError> {
        if !lock(&self.refused).insert(task.name.clone()) {
            return Ok(());
        }
        let Refusal { message, hint, degenerate, too_large } = refusal;
        let task = task.name.clone();
        self.append(&Event::TaskRefused { task, message, hint, degenerate, too_large })
    }

    /// The setup of an episode that no policy plays.
    fn setup(
        &self,
        episode: &Episode,
        task: &Task,
        device: &str,
    ) -> Result<EpisodeSetup, RolloutError> {
        Ok(EpisodeSetup {
            source: self.record.put_blob(task.source.as_bytes())?,
            skill: None,
            device: device.to_owned(),
            dtype: task.dtype().and_then(|dtype| Dtype::from_name(dtype.name())),
            fit: fit_of(task),
            backward: task.backward(),
            budget: Budget::default(),
            ..episode.setup.clone()
        })
    }

    fn append(&self, event: &Event) -> Result<(), RolloutError> {
        self.record.append(event)?;
        self.caller.observer.observe(event);
        Ok(())
    }
}

/// The end of an episode without turns.
fn ended(
    episode: EpisodeId,
    outcome: Outcome,
    verdict: Option<Box<Verdict>>,
    candidate: Option<warpwright_record::event::StoredCandidate>,
) -> Event {
    let seconds = verdict.as_ref().map_or(0.0, |verdict| {
        let s = &verdict.seconds;
        s.build + s.record + s.start + s.load + s.verify + s.measure
    });
    Event::EpisodeFinished {
        episode,
        outcome,
        final_verdict: verdict,
        best_verdict: None,
        candidate,
        turns: 0,
        seconds,
    }
}

/// The guarded state stays usable after a panic of another worker.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
