//! Examines a task without a candidate.

use std::ops::RangeInclusive;

use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::inputs::InputFamily;
use warpwright_task::similarity::OpGraph;

use super::TaskSession;
use crate::admission::degenerate;
use crate::admission::examination::{
    Bar, Examination, TensorKind, disagree, object, object_to_draws, times,
};
use crate::admission::objection::Objection;
use crate::check::families::Draw;
use crate::check::tolerance::Tolerance;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::process::baseline::BaselineProcess;
use crate::process::oracle::Oracle;
use crate::process::worker_reuse::Sharing;
use crate::session::verdict::floor_ms;
use crate::timing::baseline_set::Right;

/// How many times shorter than what is wanted a warm call may be.
const ROUGH: f64 = 2.0;
/// Draws of inputs on which a task that is to be kept is looked at. Where there is a jump, or nearly a
/// pole, some draws have an honest program that is far off, and then a tolerance that lets anything
/// pass: eight draws, half of which show what one in 64 would, find most of those that one in some
/// hundred shows.
const DRAWS: u32 = 8;
/// The answer in lower precision among `examiner.py`'s counterfeits.
const HALF: &str = "half precision";

/// Whether the duration of one warm call, in milliseconds, may lie in the wanted range, of which it may take
/// `slack` times the end.
fn near(wanted_ms: Option<&RangeInclusive<f64>>, ms: f64, slack: f64) -> bool {
    wanted_ms.is_none_or(|wanted| {
        let (low, high) = (wanted.start() / ROUGH, wanted.end() * slack);
        (low..=high).contains(&ms)
    })
}

impl Oracle {
    /// Learns what examining needs: nothing where a call takes far from what is wanted, and of other
    /// inputs than the task's own only where these do not tell lower precision.
    pub(super) fn learn_enough(
        &mut self,
        machine: &Machine,
        wanted_ms: Option<&RangeInclusive<f64>>,
        others: bool,
    ) -> Result<(), JudgeError> {
        let nothing = degenerate::at_opening(&self.opened).iter().any(Objection::leaves_nothing);
        if nothing
            || !near(
                wanted_ms,
                1e3 * self.opened.forward_seconds,
                machine.device.examination_slack(),
            )
        {
            return Ok(());
        }
        self.learn(machine.config.seed, false, &machine.arbiter)?;
        if others && !self.families.tell_lower_precision() {
            self.learn(machine.config.seed, true, &machine.arbiter)?;
        }
        Ok(())
    }
}

impl TaskSession<'_> {
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
        let (machine, all) = (self.machine, self.memory.is_all());
        machine.alive()?;
        let examined =
            self.examine_within(wanted_ms, bar, unwanted).map_err(|e| machine.explain(e));
        if examined.is_ok() {
            self.retire();
        }
        examined.map_err(|e| if all { e.with_all_memory() } else { e })
    }

    /// A process for the baselines that has served another task, where the task shares them.
    pub(super) fn another(&self) -> Option<BaselineProcess> {
        let shared = self.sharing == Sharing::Shared;
        shared.then(|| self.processes.reuse.baseline()).flatten()
    }

    /// Ends the session, and lets processes that are shared go on to another task.
    fn retire(self) {
        let Self { machine, processes, oracle, baselines, sharing, .. } = self;
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
        let eager_ms = 1e3 * self.oracle.opened.forward_seconds;
        let graph = self.oracle.graph(self.machine.config.seed)?;
        let worth = near(wanted_ms, eager_ms, self.machine.device.examination_slack())
            && !graph.as_ref().is_some_and(unwanted);
        let seed = Draw::fresh(InputFamily::Own, &mut self.random).seed;
        let (mut allowed, mut objections) = (Vec::new(), self.degenerate.clone());
        if worth && !objections.iter().any(Objection::leaves_nothing) {
            allowed = self.allowed(seed)?;
            objections.extend(self.objections(seed, &allowed, bar)?);
        }
        let sizes = &self.oracle.opened.sizes;
        let kinds = |places: &[_]| places.iter().map(TensorKind::of).collect();
        let mut examination = Examination {
            inputs: kinds(&sizes.inputs.tensors),
            outputs: kinds(&sizes.outputs.tensors),
            unavoidable_bytes: self.unavoidable_bytes(),
            floor_ms: None,
            eager_ms,
            compiled_ms: Vec::new(),
            graph,
            objections,
            caveats: self.oracle.families.caveats(),
            fingerprint: Fingerprint::default(),
        };
        // What it holds of the device is the baselines' from here on.
        self.oracle.forget(&self.machine.arbiter)?;
        if worth && examination.objections.is_empty() {
            self.against_baselines(seed, (&allowed, bar), &mut examination)?;
        }
        let versions = &self.oracle.opened.versions;
        examination.fingerprint = self.machine.fingerprint(&versions.torch, &versions.python);
        examination.floor_ms = floor_ms(&examination.fingerprint, self.unavoidable_bytes());
        Ok(examination)
    }

    fn objections(
        &mut self,
        seed: u64,
        allowed: &[(Tolerance, f64)],
        bar: Bar,
    ) -> Result<Vec<Objection>, JudgeError> {
        let tolerances: Vec<Tolerance> = allowed.iter().map(|(tolerance, _)| *tolerance).collect();
        let shared = self.machine.arbiter.share(Purpose::Reference);
        let mut found = self.oracle.examine(seed, &tolerances)?;
        drop(shared);
        if self.oracle.families.tell_lower_precision() {
            // On some inputs it fails, and a verdict plays those: on which, does not matter.
            found.counterfeits.remove(HALF);
        }
        let mut objections = object(&found, &self.oracle.doubt, bar);
        if objections.is_empty() && bar == Bar::Clear {
            let _shared = self.machine.arbiter.share(Purpose::Reference);
            objections = object_to_draws(&self.oracle.redraw(seed, DRAWS)?, allowed);
        }
        Ok(objections)
    }

    /// The tolerance of each output on the inputs of a seed, and its largest magnitude there.
    fn allowed(&mut self, seed: u64) -> Result<Vec<(Tolerance, f64)>, JudgeError> {
        let _shared = self.machine.arbiter.share(Purpose::Reference);
        self.oracle.allowed(seed)
    }

    /// What baselines are compared with before a candidate is timed beside them. Where tasks are only
    /// looked at, one that is wrong speaks against the task instead.
    pub(super) fn right_for_baselines(&mut self) -> Result<Option<Right>, JudgeError> {
        if self.examines {
            return Ok(None);
        }
        let seed = Draw::fresh(InputFamily::Own, &mut self.random).seed;
        match self.allowed(seed) {
            Ok(allowed) => Ok(Some(Right { seed, allowed })),
            Err(JudgeError::Memory { .. }) if self.memory.is_all() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Compiles and times the baselines, and compares what they give.
    fn against_baselines(
        &mut self,
        seed: u64,
        (allowed, bar): (&[(Tolerance, f64)], Bar),
        examination: &mut Examination,
    ) -> Result<(), JudgeError> {
        self.prepare_baselines()?;
        let Some(baselines) = &mut self.baselines else {
            return Err(JudgeError::infrastructure(
                "examine the task",
                "the baselines are not ready",
            ));
        };
        let shared = self.machine.arbiter.share(Purpose::Reference);
        let agreement = baselines.process.agree(&self.task.name, seed)?;
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
