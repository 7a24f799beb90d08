//! Synthesises tasks: composes them, examines them in the judge, and keeps the sound ones.
//!
//! ```text
//! seed ──► compose ──► source is a copy? ──► examine (judge) ──► objections, run time ──► graph is a copy? ──► kept
//!             ▲                                    │
//!             └── reason of a refusal, for a composer that repairs its task
//! ```
//!
//! The operator graphs of the suites take a while to compute, and so do the first processes on a cold
//! machine. On a GPU both start at once, and sound tasks wait for the graphs. On the cpu device the
//! workers start after the graphs, since computing graphs would disturb their timing.
//!
//! Each worker takes one seed after another. Kept tasks are written periodically, and a seed is logged
//! as admitted only when its task is on the disk. Each refused proposal is logged at once. When a
//! composer makes several proposals from one seed, the log has a line for each.

pub mod author;
mod ledger;
mod refused;
mod suites;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use ledger::unlogged;
use ledger::{Shared, State};
use refused::Refused;
pub use suites::copies;
use warpwright_judge::{Bar, Examination, JudgeError, SessionPool, Sharing, TensorKind};
use warpwright_synth::{
    AuthorError, ComposeError, Composer, DataSet, Decontamination, Likeness, Measured, Outcome,
    Proposal, Row, TensorForm, Trial, TrialLog, Window,
};
use warpwright_task::similarity::OpGraph;

use crate::Notice;
use crate::device_use;
use crate::error::RolloutError;
use crate::judge_host::JudgeHost;

/// Interval of writing the admitted tasks.
const WRITE_EVERY: Duration = Duration::from_secs(30);
/// A worker that ends writes the admitted tasks, unless they were written less than this ago.
const ON_STOPPING: Duration = Duration::from_secs(2);
/// Interval of the progress lines.
const SAY_EVERY: Duration = Duration::from_secs(2);
/// Consecutive infrastructure failures of the judge that end the run: a task may cause fewer.
const MOST_FAILURES: u32 = 4;

/// The parameters of a synthesis.
pub struct Plan {
    /// Target number of tasks in the data set.
    pub count: usize,
    /// Path of the data set.
    pub out: PathBuf,
    /// Eager times that tasks may have.
    pub window: Window,
    /// Concurrent tasks per device.
    pub jobs: usize,
    /// Whether tasks share processes: they do if this program composes all of them.
    pub processes: Sharing,
    /// The first seed.
    pub first_seed: u64,
}

/// The result of a synthesis.
pub struct Made {
    /// Number of tasks in the data set.
    pub admitted: usize,
    /// Number of tried seeds, including those of earlier runs.
    pub tried: u64,
    /// Number of refusals among them, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Number of tasks that this run added.
    pub added: usize,
    /// Duration of the run.
    pub seconds: f64,
}

/// The parts of a synthesis.
pub struct Maker<'a> {
    /// One per device.
    pub hosts: &'a [JudgeHost],
    /// Composes the tasks.
    pub composer: &'a dyn Composer,
    /// The parameters.
    pub plan: Plan,
    /// Ends the synthesis when it is set.
    pub stop: &'a AtomicBool,
    /// Receives progress and warnings.
    pub notice: Notice,
}

/// The result of a proposal.
enum Tried {
    Kept,
    Refused(Refused),
    /// The set was filled before; another run may use the seed.
    Late,
}

impl Maker<'_> {
    /// Makes tasks until the data set has the target number or `stop` is set. `learn` determines
    /// the tasks to decontaminate against, including those of the set.
    pub fn make(
        &self,
        set: DataSet,
        log: TrialLog,
        learn: impl FnOnce(&DataSet) -> Result<Decontamination, RolloutError> + Send,
    ) -> Result<Made, RolloutError> {
        let started = Instant::now();
        let (had, next) = (set.rows().len(), self.plan.first_seed);
        let held = set.clone();
        let shared = Shared::new(State::new(set, log, next, started));
        let pools: Vec<_> = self.hosts.iter().map(|b| SessionPool::to_examine(&b.judge)).collect();
        let worked = std::thread::scope(|scope| {
            let learning = scope.spawn(|| self.ending(self.learn(&shared, || learn(&held))));
            let mut workers = vec![learning];
            for pool in &pools {
                let work = || self.ending(self.work(pool, &shared, started));
                workers.extend((0..self.plan.jobs.max(1)).map(|_| scope.spawn(work)));
            }
            let ends =
                workers.into_iter().map(|worker| worker.join().map_err(|_| died()).and_then(|d| d));
            ends.collect::<Vec<_>>().into_iter().collect::<Result<Vec<()>, RolloutError>>()
        });
        // Whatever ended it: what was admitted is kept.
        let mut state = shared.into_state();
        state.write(&self.plan.out)?;
        for host in self.hosts.iter().filter(|host| host.judge.is_accelerator()) {
            let used = host.judge.device_use();
            let text = device_use::describe(&host.device(), &used, started.elapsed());
            (self.notice)(&format!("note: {text}"));
        }
        worked?;
        self.tell(&mut state, started);
        Ok(Made {
            admitted: state.set.rows().len(),
            tried: state.log.tried(),
            refused: state.log.refused().clone(),
            added: state.set.rows().len() - had,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Stops the other workers if this one failed.
    fn ending(&self, done: Result<(), RolloutError>) -> Result<(), RolloutError> {
        if done.is_err() {
            self.stop.store(true, Ordering::SeqCst);
        }
        done
    }

    /// Determines the tasks to decontaminate against.
    fn learn(
        &self,
        shared: &Shared,
        learn: impl FnOnce() -> Result<Decontamination, RolloutError>,
    ) -> Result<(), RolloutError> {
        let copies = learn()?;
        // Suites that somebody stopped reading are not known as a whole.
        if !self.stop.load(Ordering::SeqCst) {
            shared.lock().copies = Some(copies);
        }
        shared.learnt.notify_all();
        Ok(())
    }

    fn work(
        &self,
        pool: &SessionPool<'_>,
        shared: &Shared,
        started: Instant,
    ) -> Result<(), RolloutError> {
        if !pool.judge().times_while_others_work() {
            drop(shared.settled(self.stop));
        }
        while !self.stop.load(Ordering::SeqCst) {
            let Some(seed) = shared.lock().take_seed(self.plan.count) else { break };
            let mut failed = None;
            let composed = self.composer.compose_until(seed, &mut |proposal| {
                let tried = self.attempt(pool, shared, seed, proposal);
                let tried = tried.and_then(|tried| {
                    self.look_after(&mut shared.lock(), started)?;
                    Ok(tried)
                });
                match tried {
                    Ok(Tried::Refused(refused)) if !self.stop.load(Ordering::SeqCst) => {
                        Some(refused.told())
                    }
                    Ok(_) => None,
                    Err(failure) => {
                        failed = Some(failure);
                        None
                    }
                }
            });
            if let Some(failure) = failed {
                return Err(failure);
            }
            match composed {
                Ok(()) => {}
                // As was wished.
                Err(AuthorError::Interrupted { .. }) => break,
                Err(error) => {
                    let hint = error.hint().map(str::to_owned);
                    return Err(RolloutError::infrastructure(error.to_string(), hint));
                }
            }
        }
        // The others may take long to end, and nobody may want to wait for them.
        self.write_soon(&mut shared.lock(), ON_STOPPING)
    }

    /// Examines a proposal, and records the result.
    fn attempt(
        &self,
        pool: &SessionPool<'_>,
        shared: &Shared,
        seed: u64,
        proposal: Result<Proposal, ComposeError>,
    ) -> Result<Tried, RolloutError> {
        let admitted = Outcome::Admitted;
        let (mut trial, row) = match proposal {
            Ok(proposal) => {
                let (name, operators) = (proposal.name.clone(), proposal.operators.clone());
                let trial = Trial { seed, name, operators, outcome: admitted };
                (trial, self.examine(pool, shared, proposal)?)
            }
            Err(error) => {
                let (name, operators) = (String::new(), Vec::new());
                let trial = Trial { seed, name, operators, outcome: admitted };
                (trial, Err(Refused::error(error.name(), &error.to_string())))
            }
        };
        let found = if row.is_ok() { shared.settled(self.stop) } else { Some(shared.lock()) };
        let Some(mut state) = found else { return Ok(Tried::Late) };
        let full = |state: &State| state.set.rows().len() >= self.plan.count;
        let kept = match row {
            Ok(_) if full(&state) => return Ok(Tried::Late),
            Ok(row) => state.keep(row)?,
            Err(refused) => Err(refused),
        };
        match kept {
            Ok(()) => {
                state.unwritten.push(trial);
                if full(&state) {
                    // What others still wait for is not wanted any more.
                    self.stop.store(true, Ordering::SeqCst);
                }
                Ok(Tried::Kept)
            }
            Err(refused) => {
                let (reason, detail) = (refused.reason.clone(), refused.detail.clone());
                trial.outcome = Outcome::Refused { reason, detail };
                state.log.append(&trial).map_err(unlogged)?;
                Ok(Tried::Refused(refused))
            }
        }
    }

    /// Writes the tasks and prints progress when each is due.
    fn look_after(&self, state: &mut State, started: Instant) -> Result<(), RolloutError> {
        self.write_soon(state, WRITE_EVERY)?;
        if state.said.elapsed() >= SAY_EVERY {
            self.tell(state, started);
        }
        Ok(())
    }

    /// Writes the tasks, unless they were written less than `lately` ago.
    fn write_soon(&self, state: &mut State, lately: Duration) -> Result<(), RolloutError> {
        if state.written.elapsed() >= lately { state.write(&self.plan.out) } else { Ok(()) }
    }

    fn examine(
        &self,
        pool: &SessionPool<'_>,
        shared: &Shared,
        proposal: Proposal,
    ) -> Result<Result<Row, Refused>, RolloutError> {
        let task = proposal.task();
        match Likeness::of_task(&task, None) {
            Err(error) => return Ok(Err(Refused::new("no_task", error.to_string()))),
            Ok(likeness) => {
                let copies = &shared.lock().copies;
                if let Some(refusal) = copies.as_ref().and_then(|c| c.check(&likeness).refusal) {
                    return Ok(Err(Refused::copy(&refusal)));
                }
            }
        }
        let (window, processes) = (self.plan.window.range(), self.plan.processes);
        // The cheapest look that many do not pass comes first.
        let copy = RefCell::new(None);
        let is_copy = |graph: &OpGraph| {
            let likeness = Likeness::of_task(&task, Some(graph)).ok();
            // Nothing, while nothing is known: it will be asked again.
            let copies = &mut shared.lock().copies;
            let refusal = likeness.and_then(|likeness| copies.as_mut()?.refuse(&likeness));
            let refused = refusal.is_some();
            copy.replace(refusal);
            refused
        };
        let how = (Bar::Clear, processes);
        let examined = pool.examine_unless(&task, Some(window), how, &is_copy);
        if let Some(refusal) = copy.into_inner() {
            return Ok(Err(Refused::copy(&refusal)));
        }
        let found = match examined {
            Ok(found) => found,
            Err(JudgeError::Memory { message, .. }) => {
                return Ok(Err(Refused::error("memory", &message)));
            }
            Err(JudgeError::Reference { message, .. }) => {
                return Ok(Err(Refused::error("does_not_run", &message)));
            }
            Err(error @ JudgeError::Infrastructure { .. }) => {
                // One that a task provoked must not end the others.
                let mut state = shared.lock();
                state.failures += 1;
                if state.failures >= MOST_FAILURES {
                    return Err(error.into());
                }
                (self.notice)(&format!("warning: {}: {error}", task.name));
                return Ok(Err(Refused::error("infrastructure", &error.to_string())));
            }
            Err(error) => return Err(error.into()),
        };
        shared.lock().failures = 0;
        if let Some(objection) = found.objections.first() {
            let all: Vec<String> = found.objections.iter().map(ToString::to_string).collect();
            return Ok(Err(Refused::new(objection.name(), all.join("; "))));
        }
        if let Some(refused) = Refused::other_type(&found) {
            return Ok(Err(refused));
        }
        if let Some(refusal) = self.plan.window.refusal(found.eager_ms) {
            let (ms, range) = (found.eager_ms, self.plan.window.range());
            let detail = format!(
                "an eager call takes {ms:.3} ms, not {} to {} ms",
                range.start(),
                range.end()
            );
            return Ok(Err(Refused::new(refusal.name(), detail)));
        }
        let graph = found.graph.clone();
        Ok(measured(&found).map(|measured| Row::admitted(proposal, measured, graph)))
    }

    fn tell(&self, state: &mut State, started: Instant) {
        (self.notice)(&state.told(self.plan.count, started));
    }
}

/// The measurements of a task that the data set stores.
fn measured(found: &Examination) -> Result<Measured, Refused> {
    let compile = found.compiled_ms.iter().find(|(name, _)| name == "compile");
    let missing = |what| Refused::new("not_measured", format!("no {what} was measured"));
    let (_, compile_ms) = compile.ok_or_else(|| missing("time of torch.compile"))?;
    let forms = |kinds: &[TensorKind]| -> Vec<TensorForm> {
        let each = kinds.iter();
        each.map(|kind| TensorForm { shape: kind.shape.clone(), dtype: kind.dtype.clone() })
            .collect()
    };
    Ok(Measured {
        inputs: forms(&found.inputs),
        outputs: forms(&found.outputs),
        bytes: found.unavoidable_bytes,
        eager_ms: found.eager_ms,
        compile_ms: *compile_ms,
        floor_ms: found.floor_ms.ok_or_else(|| missing("bandwidth"))?,
        fingerprint: serde_json::to_string(&found.fingerprint)
            .map_err(|error| Refused::new("not_measured", error.to_string()))?,
    })
}

fn died() -> RolloutError {
    RolloutError::infrastructure(
        "failed to make tasks: a thread panicked",
        "report this bug".to_owned(),
    )
}
