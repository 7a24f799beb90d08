//! One task: its oracle, its memory plan, and the stages that a candidate passes through; and the pool of such
//! sessions. May use every other room.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use warpwright_build::Artifact;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{self, Inspection};
use warpwright_record::fit::MemoryUse;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

use crate::admission::objection::Objection;
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::layout::Layout;
use crate::check::tolerance::Tolerance;
use crate::device::device_arbiter::Purpose;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::{Processes, Shared};
use crate::process::baseline::{BaselineProcess, EarlyBaseline};
use crate::process::memory::{Memory, Room};
use crate::process::oracle::Oracle;
use crate::process::recorder::GivenWeights;
use crate::profiling::Subject;
use crate::session::verdict::{Known, built, verdict};
use crate::timing::baseline_set::{Baselines, Right, Terms};
use crate::timing::plan::Plan;
use crate::timing::series::Measured;

mod ablation;
mod answers;
mod begun;
mod device_tier;
mod examining;
mod host_tier;
mod libraries;
mod memory_pressure;
mod merged;
mod opening;
pub(crate) mod pool;
mod queue;
pub(crate) mod recording;
pub(crate) mod repeat;
mod replayed;
pub(crate) mod self_calibration;
pub(crate) mod single_flight;
mod stages;
mod stored;
pub(crate) mod verdict;
mod workloads;

pub(crate) use begun::Begun;
use opening::Opening;

/// A task being judged. Dropping it ends its processes.
pub struct TaskSession<'j> {
    machine: &'j Machine,
    processes: &'j Processes,
    task: Task,
    memory: Memory,
    /// Whether the task fills the device.
    short: bool,
    oracle: Oracle,
    /// Why there is nothing to earn on the task, if there is not.
    degenerate: Vec<Objection>,
    /// Memory of its candidates, and what lies where in it.
    room: Room,
    layout: Layout,
    plan: Plan,
    random: StdRng,
    /// A process for the baselines that was begun with the oracle.
    early: Option<EarlyBaseline>,
    baselines: Option<Baselines>,
    /// Time that opening the session and its baselines took.
    cost: Duration,
    /// Weights on the host, for recorders, by name.
    recorded_weights: Vec<(&'static str, Arc<GivenWeights>)>,
    /// How long the last candidate that went as far as this had the device.
    usual: BTreeMap<Stage, Duration>,
}

impl<'j> TaskSession<'j> {
    pub(crate) fn open(
        shared: Shared<'j>,
        task: &Task,
        begun: Begun,
        memory: Memory,
    ) -> Result<Self, JudgeError> {
        shared.machine.alive()?;
        opening::open(Opening::Judging, shared, task, begun, memory)
    }

    fn shared(&self) -> Shared<'j> {
        Shared { machine: self.machine, processes: self.processes }
    }

    /// Time that opening the session and its baselines took.
    pub(crate) fn cost(&self) -> Duration {
        self.cost
    }

    /// Facts of the task that remain known when the session is closed.
    pub(crate) fn known(&self) -> Known {
        Known {
            versions: self.oracle.opened.versions.clone(),
            unavoidable_bytes: self.unavoidable_bytes(),
            doubt: self.oracle.doubt.clone(),
            caveats: self.oracle.families.caveats(),
            capped: self.oracle.families.capped().is_some(),
            degenerate: self.degenerate.clone(),
        }
    }

    /// Why the task is degenerate; empty if it is not. A degenerate task is open only under
    /// [`Degenerate::Judged`](crate::Degenerate::Judged).
    pub fn degenerate(&self) -> &[Objection] {
        &self.degenerate
    }

    /// Unavoidable memory traffic of one call in bytes: every input, parameter and output once.
    pub fn unavoidable_bytes(&self) -> u64 {
        let opened = &self.oracle.opened;
        let state: u64 = opened.sizes.state.iter().map(|p| p.bytes).sum();
        opened.sizes.inputs.bytes() + state + opened.sizes.outputs.bytes()
    }

    /// Judges a candidate up to `stage`.
    ///
    /// # Errors
    /// Usage or infrastructure errors; a candidate's failure is in the verdict.
    pub fn judge(&mut self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeError> {
        self.judge_with_samples(candidate, stage).map(|(verdict, _)| verdict)
    }

    /// The same, with the samples of its times.
    pub(crate) fn judge_with_samples(
        &mut self,
        candidate: &Candidate,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        self.machine.alive()?;
        let built = built(self.shared(), &self.task, &self.known(), candidate, stage);
        match built.map_err(|e| self.machine.explain(e))? {
            ControlFlow::Break(verdict) => Ok((verdict, Measured::default())),
            ControlFlow::Continue(artifact) => self.judge_built(candidate, &artifact, stage),
        }
    }

    /// The same for a candidate that was built into `artifact`, beyond that stage.
    pub(crate) fn judge_built(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        self.machine.alive()?;
        let verdict = self.judge_within(candidate, artifact, stage);
        let verdict = verdict.map_err(|e| self.machine.explain(e));
        verdict.map_err(|e| self.memory.explain(e))
    }

    fn judge_within(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        let mut found = Findings::default();
        found.seconds.build = artifact.seconds;
        if stage == Stage::Measured {
            // Before anything of the candidate runs: nothing it leaves behind slows these.
            found.seconds.baselines = self.prepare_baselines()?.as_secs_f64();
        }
        self.run_in_a_tier(candidate, artifact, stage, &mut found)?;
        found.memory = self.memory_use(found.candidate_bytes)?;
        let known = self.known();
        let (hash, measured) = (candidate.hash(), std::mem::take(&mut found.measured));
        let of = (stage, found);
        Ok((verdict(self.machine, &self.task, &known, hash, Some(artifact), of), measured))
    }

    /// Most memory that was held for this task, given that of its candidate.
    fn memory_use(&mut self, candidate: u64) -> Result<Option<MemoryUse>, JudgeError> {
        if candidate == 0 {
            return Ok(None);
        }
        let oracle = self.oracle.peak_bytes()?;
        let name = &self.task.name;
        let baselines = self.baselines.as_mut();
        let baseline = baselines.map(|b| b.process.peak_bytes(name)).transpose()?;
        Ok(Some(MemoryUse::of(candidate, oracle, baseline, self.short)))
    }

    /// Compiles and stages the baselines unless that was done; what it took.
    fn prepare_baselines(&mut self) -> Result<Duration, JudgeError> {
        let started = Instant::now();
        if self.baselines.is_none() {
            let early = self.early.take().and_then(EarlyBaseline::take);
            let right = self.right_for_baselines()?;
            self.compile_baselines(early, right.as_ref())?;
        }
        self.cost += started.elapsed();
        Ok(started.elapsed())
    }

    /// Compiles and stages the baselines, in this process if there is one.
    fn compile_baselines(
        &mut self,
        process: Option<BaselineProcess>,
        right: Option<&Right>,
    ) -> Result<(), JudgeError> {
        let terms = Terms {
            machine: self.machine,
            processes: self.processes,
            task: &self.task,
            opened: &self.oracle.opened,
            weights: self.oracle.played,
            memory: self.memory,
            layout: self.layout,
            plan: self.plan,
        };
        self.baselines = Some(Baselines::prepare(&terms, process, right, &mut self.random)?);
        Ok(())
    }

    /// What baselines are compared with before a candidate is timed beside them.
    fn right_for_baselines(&mut self) -> Result<Option<Right>, JudgeError> {
        let seed = Draw::fresh(InputFamily::Own, &mut self.random).seed;
        match self.allowed(seed) {
            Ok(allowed) => Ok(Some(Right { seed, allowed })),
            Err(JudgeError::Memory { .. }) if self.memory.is_all() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The tolerance of each output on the inputs of a seed, and its largest magnitude there.
    fn allowed(&mut self, seed: u64) -> Result<Vec<(Tolerance, f64)>, JudgeError> {
        let _shared = self.machine.arbiter.share(Purpose::Reference);
        self.oracle.allowed(seed)
    }

    /// Runs one call of a candidate under a profiler or a sanitizer. Verdicts and rewards never depend on the
    /// findings.
    ///
    /// # Errors
    /// Usage or infrastructure errors; a candidate's failure is in the findings.
    pub fn inspect(
        &mut self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<findings::Findings, JudgeError> {
        self.machine.alive()?;
        let subject = Subject {
            machine: self.machine,
            processes: self.processes,
            task: &self.task,
            seed: self.random.random_range(1..1 << 62),
            unavoidable_bytes: self.unavoidable_bytes(),
            oracle: &mut self.oracle,
        };
        let machine = self.machine;
        subject.inspect(candidate, inspection).map_err(|e| machine.explain(e))
    }
}
