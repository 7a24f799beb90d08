//! Examines a task without a candidate.

use std::ops::RangeInclusive;

use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::inputs::InputFamily;
use warpwright_task::Task;
use warpwright_task::similarity::OpGraph;

use super::begun::Begun;
use super::opening::Opening;
use super::{TaskSession, opening};
use crate::admission::examination::{
    Bar, Examination, TensorKind, disagree, near, object, object_to_draws, times,
};
use crate::admission::objection::Objection;
use crate::check::families::Draw;
use crate::check::tolerance::Tolerance;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::judge::processes::Shared;
use crate::process::baseline::{BaselineProcess, EarlyBaseline};
use crate::process::memory::Memory;
use crate::process::worker_reuse::Sharing;
use crate::session::verdict::floor_ms;

/// Draws of inputs on which a task that is to be kept is looked at. Where there is a jump, or nearly a
/// pole, some draws have an honest program that is far off, and then a tolerance that lets anything
/// pass: eight draws, half of which show what one in 64 would, find most of those that one in some
/// hundred shows.
const DRAWS: u32 = 8;
/// The answer in lower precision among `examiner.py`'s counterfeits.
const HALF: &str = "half precision";

/// A session that looks at a task itself, without a candidate.
pub(crate) struct ExaminingSession<'j> {
    session: TaskSession<'j>,
    sharing: Sharing,
}

impl<'j> ExaminingSession<'j> {
    /// Opens one for a task of which a call takes about so many milliseconds.
    pub(crate) fn open(
        shared: Shared<'j>,
        task: &Task,
        begun: Begun,
        memory: Memory,
        (wanted_ms, sharing): (Option<&RangeInclusive<f64>>, Sharing),
    ) -> Result<Self, JudgeError> {
        let session = opening::open(Opening::Examining(wanted_ms), shared, task, begun, memory)?;
        Ok(Self { session, sharing })
    }

    /// Finds out whether the task is worth being judged against: whether every input and parameter
    /// matters, no answer that computes nothing would pass, and what compilers make of it would; how
    /// long the baselines take. Compiles nothing where there are objections before, or where a call of
    /// eager takes far from `wanted_ms`, and looks no further where the operator graph is `unwanted`.
    /// `bar`: how much room there must be.
    pub(crate) fn examine(
        mut self,
        wanted_ms: Option<&RangeInclusive<f64>>,
        bar: Bar,
        unwanted: &dyn Fn(&OpGraph) -> bool,
    ) -> Result<Examination, JudgeError> {
        let (machine, memory) = (self.session.machine, self.session.memory);
        machine.alive()?;
        let examined =
            self.examine_within(wanted_ms, bar, unwanted).map_err(|e| machine.explain(e));
        if examined.is_ok() {
            self.retire();
        }
        examined.map_err(|e| memory.explain(e))
    }

    /// A process for the baselines that has served another task, where the task shares them.
    fn another(&self) -> Option<BaselineProcess> {
        let shared = self.sharing == Sharing::Shared;
        shared.then(|| self.session.processes.reuse.baseline()).flatten()
    }

    /// Ends the session, and lets processes that are shared go on to another task.
    fn retire(self) {
        let Self { session, sharing } = self;
        let TaskSession { machine, processes, oracle, baselines, .. } = session;
        if sharing == Sharing::Shared {
            processes.reuse.keep_oracle(oracle.into_worker());
            if let Some(baselines) = baselines {
                processes.reuse.keep_baseline(baselines.process, &machine.arbiter);
            }
        }
    }

    fn examine_within(
        &mut self,
        wanted_ms: Option<&RangeInclusive<f64>>,
        bar: Bar,
        unwanted: &dyn Fn(&OpGraph) -> bool,
    ) -> Result<Examination, JudgeError> {
        let eager_ms = 1e3 * self.session.oracle.opened.forward_seconds;
        let graph = self.session.oracle.graph(self.session.machine.config.seed)?;
        let worth = near(wanted_ms, eager_ms, self.session.machine.device.examination_slack())
            && !graph.as_ref().is_some_and(unwanted);
        let seed = Draw::fresh(InputFamily::Own, &mut self.session.random).seed;
        let (mut allowed, mut objections) = (Vec::new(), self.session.degenerate.clone());
        if worth && !objections.iter().any(Objection::leaves_nothing) {
            allowed = self.session.allowed(seed)?;
            objections.extend(self.objections(seed, &allowed, bar)?);
        }
        let sizes = &self.session.oracle.opened.sizes;
        let kinds = |places: &[_]| places.iter().map(TensorKind::of).collect();
        let mut examination = Examination {
            inputs: kinds(&sizes.inputs.tensors),
            outputs: kinds(&sizes.outputs.tensors),
            unavoidable_bytes: self.session.unavoidable_bytes(),
            floor_ms: None,
            eager_ms,
            compiled_ms: Vec::new(),
            graph,
            objections,
            caveats: self.session.oracle.families.caveats(),
            fingerprint: Fingerprint::default(),
        };
        // What it holds of the device is the baselines' from here on.
        self.session.oracle.forget(&self.session.machine.arbiter)?;
        if worth && examination.objections.is_empty() {
            self.against_baselines(seed, (&allowed, bar), &mut examination)?;
        }
        let versions = &self.session.oracle.opened.versions;
        examination.fingerprint =
            self.session.machine.fingerprint(&versions.torch, &versions.python);
        examination.floor_ms = floor_ms(&examination.fingerprint, self.session.unavoidable_bytes());
        Ok(examination)
    }

    fn objections(
        &mut self,
        seed: u64,
        allowed: &[(Tolerance, f64)],
        bar: Bar,
    ) -> Result<Vec<Objection>, JudgeError> {
        let tolerances: Vec<Tolerance> = allowed.iter().map(|(tolerance, _)| *tolerance).collect();
        let shared = self.session.machine.arbiter.share(Purpose::Reference);
        let mut found = self.session.oracle.examine(seed, &tolerances)?;
        drop(shared);
        if self.session.oracle.families.tell_lower_precision() {
            // On some inputs it fails, and a verdict plays those: on which, does not matter.
            found.counterfeits.remove(HALF);
        }
        let mut objections = object(&found, &self.session.oracle.doubt, bar);
        if objections.is_empty() && bar == Bar::Clear {
            let _shared = self.session.machine.arbiter.share(Purpose::Reference);
            objections = object_to_draws(&self.session.oracle.redraw(seed, DRAWS)?, allowed);
        }
        Ok(objections)
    }

    /// Compiles and times the baselines, and compares what they give.
    fn against_baselines(
        &mut self,
        seed: u64,
        (allowed, bar): (&[(Tolerance, f64)], Bar),
        examination: &mut Examination,
    ) -> Result<(), JudgeError> {
        if self.session.baselines.is_none() {
            let early = self.session.early.take().and_then(EarlyBaseline::take);
            let process = early.or_else(|| self.another());
            self.session.compile_baselines(process, None)?;
        }
        let Some(baselines) = &mut self.session.baselines else {
            return Err(JudgeError::infrastructure(
                "examine the task",
                "the baselines are not ready",
            ));
        };
        let shared = self.session.machine.arbiter.share(Purpose::Reference);
        let agreement = baselines.process.agree(&self.session.task.name, seed)?;
        drop(shared);
        let disagreed: Vec<Objection> = disagree(&agreement, allowed, bar);
        examination.objections.extend(disagreed);
        examination.caveats.extend(baselines.caveats.iter().cloned());
        let (eager, compiled) = times(baselines.ready.iter().map(|r| (r.which, r.seconds)));
        // On the cpu device either may have waited for others: the shorter is nearer to what a call takes.
        examination.eager_ms =
            eager.map_or(examination.eager_ms, |ms| ms.min(examination.eager_ms));
        examination.compiled_ms = compiled;
        Ok(())
    }
}
