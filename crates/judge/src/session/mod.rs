//! One task: its oracle, its memory plan, and the stages that a candidate passes through; and the pool of such
//! sessions. Uses every other room.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpwright_build::Artifact;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{self, Inspection};
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{Stage, Verdict};
use warpwright_task::Task;

use crate::admission::degenerate;
use crate::admission::objection::Objection;
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::layout::Layout;
use crate::check::verify::look;
use crate::device::device_arbiter::{Held, Purpose};
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::{Processes, Shared};
use crate::process::baseline::EarlyBaseline;
use crate::process::channel::NoAnswer;
use crate::process::failure::{classify, finding};
use crate::process::memory::Memory;
use crate::process::oracle::{LoadedOracle, Oracle, mode_name, profile_name};
use crate::process::runner::{Ended, Runner, Stumble, Trouble};
use crate::process::worker_reuse::Sharing;
use crate::profiling::Subject;
use crate::session::verdict::{Known, built, verdict};
use crate::timing::baseline_set::{Baselines, Terms};
use crate::timing::measurement::Measurement;
use crate::timing::plan::Plan;

mod ablation;
mod begun;
mod examining;
mod memory_pressure;
pub(crate) mod pool;
mod queue;
mod self_calibration;
mod single_flight;
mod verdict;

pub(crate) use begun::Begun;

/// Purpose of a session.
#[derive(Clone, Copy)]
enum Opening<'r> {
    /// To judge candidates: all that the task allows as inputs is found out.
    Judging,
    /// To look at the task itself, if a call takes about so many milliseconds.
    Examining(Option<&'r RangeInclusive<f64>>, Sharing),
}

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
    layout: Layout,
    plan: Plan,
    random: StdRng,
    sharing: Sharing,
    /// Whether the session only examines the task.
    examines: bool,
    /// A process for the baselines that was begun with the oracle.
    early: Option<EarlyBaseline>,
    baselines: Option<Baselines>,
    /// Time that opening the session and its baselines took.
    cost: Duration,
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
        Self::open_for(Opening::Judging, shared, task, begun, memory)
    }

    /// Opens one to look at the task itself; see [`TaskSession::examine`].
    pub(crate) fn open_to_examine(
        shared: Shared<'j>,
        task: &Task,
        begun: Begun,
        memory: Memory,
        (wanted_ms, sharing): (Option<&RangeInclusive<f64>>, Sharing),
    ) -> Result<Self, JudgeError> {
        Self::open_for(Opening::Examining(wanted_ms, sharing), shared, task, begun, memory)
    }

    fn open_for(
        opening: Opening<'_>,
        shared: Shared<'j>,
        task: &Task,
        begun: Begun,
        memory: Memory,
    ) -> Result<Self, JudgeError> {
        let opened = Self::open_within(opening, shared, task, begun, memory);
        let opened = opened.map_err(|e| shared.machine.explain(e));
        opened.map_err(|e| if memory.is_all() { e.with_all_memory() } else { e })
    }

    fn open_within(
        opening: Opening<'_>,
        shared: Shared<'j>,
        task: &Task,
        begun: Begun,
        memory: Memory,
    ) -> Result<Self, JudgeError> {
        let started = Instant::now();
        let Shared { machine, processes } = shared;
        let Begun { oracle, early, cost } = begun;
        let arena = |bytes| machine.arena(task, bytes);
        let mut oracle = oracle.open(memory, arena, &machine.arbiter)?;
        let mut reasons = degenerate::at_opening(&oracle.opened);
        if let Opening::Judging = opening {
            degenerate::refuse(&task.name, &reasons, machine.config.degenerate)?;
        }
        let plan = machine.device.windows().with_windows_of(machine.config.window);
        let (plan, sharing) = match opening {
            Opening::Judging => (plan, Sharing::Own),
            Opening::Examining(_, sharing) => (plan.brief(), sharing),
        };
        let wanted = wanted_calls(machine, &oracle, &plan);
        let layout = Layout::plan(&oracle.opened, wanted, memory.runner(), memory.apart());
        let layout = layout.ok_or_else(|| {
            let per_call = oracle.opened.sizes.inputs.bytes() + oracle.opened.sizes.outputs.bytes();
            JudgeError::Memory {
                task: task.name.clone(),
                message: format!(
                    "inputs and outputs of {} MiB a call do not fit the {} MiB that judging may use here",
                    per_call >> 20,
                    memory.runner() >> 20
                ),
                wanted: None,
            }
        })?;
        let learn = |oracle: &mut Oracle, others| match opening {
            Opening::Judging => oracle.learn(machine.config.seed, others, &machine.arbiter),
            Opening::Examining(wanted_ms, _) => oracle.learn_enough(machine, wanted_ms, others),
        };
        let anew = || {
            let settings = machine.settings();
            LoadedOracle::load(&processes.host, task, settings, &machine.arbiter)?.open(
                memory,
                arena,
                &machine.arbiter,
            )
        };
        let mut learnt = learn(&mut oracle, true);
        if matches!(learnt, Err(JudgeError::Infrastructure { .. })) {
            // It was killed, perhaps by nothing of the task's.
            drop(oracle);
            oracle = anew()?;
            learnt = learn(&mut oracle, true);
        }
        match learnt {
            Ok(()) => {}
            Err(JudgeError::Memory { .. }) if memory.is_all() => {
                oracle.without_double();
                learn(&mut oracle, true)?;
            }
            Err(error @ JudgeError::Memory { .. }) => return Err(error),
            Err(error) => {
                // Trying inputs that a task does not know may cost the process its life: a bound
                // that is checked on a GPU takes the whole context.
                drop(oracle);
                oracle = anew()?;
                learn(&mut oracle, false)?;
                oracle.families.alone(format!("trying them failed: {error}"));
            }
        }
        // Inputs, places, orders and samples are secrets: not from a seed that a command line names.
        let mut random = StdRng::from_rng(&mut rand::rng());
        if let Opening::Judging = opening {
            let seed = Draw::fresh(InputFamily::Own, &mut random).seed;
            reasons.extend(oracle.look_for_degeneracy(seed, memory.is_all(), &machine.arbiter)?);
            degenerate::refuse(&task.name, &reasons, machine.config.degenerate)?;
        }
        Ok(Self {
            machine,
            processes,
            task: task.clone(),
            memory,
            short: memory.is_short(&oracle.opened.sizes),
            oracle,
            degenerate: reasons,
            layout,
            plan,
            random,
            sharing,
            examines: matches!(opening, Opening::Examining(..)),
            early,
            baselines: None,
            cost: cost + started.elapsed(),
            usual: BTreeMap::new(),
        })
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
        self.machine.alive()?;
        let built = built(self.shared(), &self.task, &self.known(), candidate, stage);
        match built.map_err(|e| self.machine.explain(e))? {
            ControlFlow::Break(verdict) => Ok(verdict),
            ControlFlow::Continue(artifact) => self.judge_built(candidate, &artifact, stage),
        }
    }

    /// The same for a candidate that was built into `artifact`, beyond that stage.
    pub(crate) fn judge_built(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        self.machine.alive()?;
        let verdict = self.judge_within(candidate, artifact, stage);
        let verdict = verdict.map_err(|e| self.machine.explain(e));
        verdict.map_err(|e| if self.memory.is_all() { e.with_all_memory() } else { e })
    }

    fn judge_within(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        let mut found = Findings::default();
        found.seconds.build = artifact.seconds;
        if stage == Stage::Measured {
            // Before anything of the candidate runs: nothing it leaves behind slows these.
            found.seconds.baselines = self.prepare_baselines()?.as_secs_f64();
        }
        self.run_under_memory_pressure(candidate, artifact, stage, &mut found)?;
        self.ablate(candidate, artifact, &mut found)?;
        let known = self.known();
        Ok(verdict(self.machine, &self.task, &known, candidate, Some(artifact), (stage, found)))
    }

    /// Compiles and stages the baselines unless that was done; what it took.
    fn prepare_baselines(&mut self) -> Result<Duration, JudgeError> {
        let started = Instant::now();
        if self.baselines.is_none() {
            let early = self.early.take().and_then(EarlyBaseline::take);
            let early = early.or_else(|| self.another());
            let right = self.right_for_baselines()?;
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
            self.baselines =
                Some(Baselines::prepare(&terms, early, right.as_ref(), &mut self.random)?);
        }
        self.cost += started.elapsed();
        Ok(started.elapsed())
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

    /// Runs the candidate in its process and cleans up after it, whatever it does.
    fn run(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<(), JudgeError> {
        let started = Instant::now();
        let patience =
            Duration::from_secs_f64((10.0 + 300.0 * self.oracle.opened.forward_seconds).min(300.0));
        let random = StdRng::seed_from_u64(self.random.random());
        let (machine, processes) = (self.machine, self.processes);
        let (layout, dir) = (self.layout, artifact.dir.as_path());
        let timed = stage == Stage::Measured;
        // Its memory is made ready while its process starts, if that has still to be waited for.
        let (arena, spare) = std::thread::scope(|scope| {
            let arena =
                scope.spawn(|| processes.runner_arena(machine, &self.task, (layout.len(), timed)));
            let spare = processes.runner_pool.take();
            let died = |_| JudgeError::infrastructure("allocate the arena", "the thread panicked");
            (arena.join().map_err(died).and_then(|made| made), spare)
        });
        let (arena, spare) = (arena?, spare?);
        let mut runner =
            Runner::adopt(spare, dir, (arena, timed), layout, patience, random, &machine.arbiter)?;
        found.seconds.start = started.elapsed().as_secs_f64();
        let waiting = Instant::now();
        let held = self.hold(stage);
        found.seconds.wait = waiting.elapsed().as_secs_f64();
        let holding = Instant::now();
        let went = self.take_through(&mut runner, candidate, (stage, &held), found);
        if self.machine.device.candidates_leave_work() {
            held.untimed();
        }
        found.seconds.inputs = runner.spent().inputs.as_secs_f64();
        found.seconds.windows += runner.spent().windows.as_secs_f64();
        let ending = Instant::now();
        // One that is gone needs a moment to be collected; one that answers is killed at once.
        let gone =
            matches!(&went, Err(Trouble::Candidate(Stumble { answer: NoAnswer::Closed, .. })));
        let Ended { outcome, tail, arena } = runner.end(gone);
        self.machine.device.probe()?;
        drop(held);
        found.seconds.end = ending.elapsed().as_secs_f64();
        self.usual.insert(stage, holding.elapsed());
        if let Some(arena) = arena {
            processes.reuse(arena);
        }
        // On the cpu device the next one's start would have slowed this one.
        processes.runner_pool.expect();
        match went {
            Ok(()) => Ok(()),
            Err(Trouble::Judge(error)) => Err(error),
            Err(Trouble::Candidate(stumble)) => {
                found.integrity.extend(finding(&stumble));
                found.failure = Some(classify(&stumble, outcome.as_ref(), &tail));
                Ok(())
            }
        }
    }

    /// The device for a candidate: alone on a GPU, where it may leave work behind that lasts as long
    /// as its process; on the cpu device beside others until it is measured.
    fn hold(&self, stage: Stage) -> Held<'j> {
        let (arbiter, usual) = (&self.machine.arbiter, self.usual.get(&stage).copied());
        // On a GPU the next runners are made beside what is not timed. On the cpu device that would
        // take the cores on which this one is checked.
        let untimed = self.machine.device.candidates_leave_work();
        match stage {
            Stage::Measured => arbiter.alone_for(Purpose::Measurement, usual, untimed),
            _ if untimed => arbiter.alone_for(Purpose::Verification, usual, untimed),
            _ => arbiter.share(Purpose::Verification),
        }
    }

    fn take_through(
        &mut self,
        runner: &mut Runner,
        candidate: &Candidate,
        (stage, held): (Stage, &Held<'_>),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let (shared, task) = (self.shared(), self.task.clone());
        std::thread::scope(|scope| {
            // What is run last is linked beside what is not timed.
            if stage == Stage::Measured && shared.machine.device.has_spare_cores() {
                scope.spawn(move || ablation::link_ahead(shared, &task, candidate));
            }
            self.load_and_verify(runner, candidate, found)
        })?;
        if stage == Stage::Measured && !found.bad() {
            let waiting = Instant::now();
            held.timed();
            found.seconds.wait += waiting.elapsed().as_secs_f64();
            let measuring = Instant::now();
            let went = self.measure(runner, found);
            found.seconds.measure = measuring.elapsed().as_secs_f64();
            went?;
        }
        Ok(())
    }

    /// Times the candidate; its times and speed-ups are in the findings.
    fn measure(&mut self, runner: &mut Runner, found: &mut Findings) -> Result<(), Trouble> {
        let Some(mut baselines) = self.baselines.take() else {
            let reason = "the baselines are not ready";
            return Err(JudgeError::infrastructure("measure the candidate", reason).into());
        };
        baselines.process.map_as_candidates(Some(&runner.arena));
        let mut measurement = Measurement {
            machine: self.machine,
            workers: &self.processes.host.workers,
            task: &self.task.name,
            oracle: &mut self.oracle,
            short: self.short,
            most_calls: self.layout.calls,
            plan: self.plan,
            random: &mut self.random,
        };
        let done = measurement.against(&mut baselines, runner, found);
        baselines.process.map_as_candidates(None);
        let kept = match &done {
            // Where memory was short nothing is lost but the call.
            Ok(())
            | Err(
                Trouble::Candidate(_)
                | Trouble::Judge(JudgeError::Unfit { .. } | JudgeError::Memory { .. }),
            ) => true,
            Err(Trouble::Judge(_)) => false,
        };
        if kept {
            self.baselines = Some(baselines);
        }
        done
    }

    fn load_and_verify(
        &mut self,
        runner: &mut Runner,
        candidate: &Candidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let loading = Instant::now();
        runner.begin(&self.machine.cores)?;
        let source = candidate.files().get("model_new.py");
        let source = String::from_utf8_lossy(source.map_or(&[][..], Vec::as_slice)).into_owned();
        let settings = (profile_name(self.machine.config.profile), mode_name(self.task.mode));
        runner.load(&mut self.oracle, &source, settings)?;
        let (rest, played) = (self.oracle.rest(), self.oracle.played);
        runner.state(&mut self.oracle, rest)?;
        found.times.prepare = Some(runner.state(&mut self.oracle, played)?);
        runner.warm(&mut self.oracle, rest)?;
        runner.warm(&mut self.oracle, played)?;
        runner.lock()?;
        runner.freeze()?;
        found.seconds.load = loading.elapsed().as_secs_f64();
        let verifying = Instant::now();
        let went = self.verify(runner, found);
        found.seconds.verify = verifying.elapsed().as_secs_f64();
        went
    }

    /// One call with the weights that nothing else is played with, then fresh inputs of several families
    /// with those that are timed, in windows of as many calls as it happens: nothing tells them from those
    /// that are timed. Every call is looked at.
    fn verify(&mut self, runner: &mut Runner, found: &mut Findings) -> Result<(), Trouble> {
        let families = self.oracle.families.plan(&mut self.random);
        let (rest, played) = (self.oracle.rest(), self.oracle.played);
        let name = Oracle::told(rest);
        self.check(runner, (rest, name), (&[InputFamily::Own], false), found)?;
        runner.drop_variant(rest)?;
        let mut left = families.as_slice();
        while !left.is_empty() && !found.bad() {
            let most = (self.layout.calls as usize).min(left.len());
            let (now, later) = left.split_at(self.random.random_range(1..=most));
            self.check(runner, (played, "fresh inputs"), (now, true), found)?;
            left = later;
        }
        Ok(())
    }

    /// One window of a call on fresh inputs of each family, with `again` on others where nothing could be
    /// compared.
    fn check(
        &mut self,
        runner: &mut Runner,
        (variant, name): (&str, &str),
        (families, again): (&[InputFamily], bool),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let draws: Vec<Draw> =
            families.iter().map(|family| Draw::fresh(*family, &mut self.random)).collect();
        let played = runner.play(&mut self.oracle, variant, &draws)?;
        let profile = self.machine.config.profile;
        let mut void = Vec::new();
        for call in 0..draws.len() {
            let question = (variant, draws[played.order[call]]);
            let name = match found.checks.len() {
                0 => name.to_owned(),
                i => format!("{name} {i}"),
            };
            let looked = look(&mut self.oracle, runner, &played, call, question, &name, profile)?;
            if looked.void {
                void.push(families[played.order[call]]);
            }
            found.take(looked);
            if found.bad() {
                return Ok(());
            }
        }
        if void.is_empty() {
            return Ok(());
        }
        // Honest programs need not agree on those: others of the same families, and then the task's own.
        let next = if again { void } else { vec![InputFamily::Own; void.len()] };
        self.check(runner, (variant, name), (&next, false), found)
    }
}

/// Calls a window should be able to hold: enough for its planned length at the speed of memory, and
/// enough that the data of a window exceeds twice the last-level cache.
fn wanted_calls(machine: &Machine, oracle: &Oracle, plan: &Plan) -> u64 {
    let opened = &oracle.opened;
    let bytes = (opened.sizes.inputs.bytes() + opened.sizes.outputs.bytes()).max(1);
    // A first guess of the least time: a few microseconds to launch, and memory's share.
    let least = 4e-6 + bytes as f64 / machine.device.guessed_bandwidth();
    let for_time = plan.longer.as_secs_f64() / least;
    let for_cache = 2.0 * machine.device.facts().swept_bytes() as f64 / bytes as f64;
    for_time.max(for_cache).ceil().max(1.0) as u64
}
