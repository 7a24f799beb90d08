//! The stages that a candidate which was built passes through: verified, measured, and run once more without
//! its kernels.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpwright_build::{Artifact, Instrument, Outcome};
use warpwright_record::candidate::Candidate;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{FailureClass, Provenance, Stage};

use super::{TaskSession, ablation};
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::verify::look;
use crate::device::device_arbiter::{Held, Purpose};
use crate::error::JudgeError;
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble, classify, finding};
use crate::process::oracle::{Oracle, mode_name, profile_name};
use crate::process::runner::{Ended, Runner};
use crate::timing::measurement::Measurement;

impl<'j> TaskSession<'j> {
    /// Runs the candidate in its process and cleans up after it, whatever it does.
    pub(super) fn run(
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

    /// Finds out what computed the results of a candidate that was verified.
    pub(super) fn ablate(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        found: &mut Findings,
    ) -> Result<(), JudgeError> {
        if found.bad() {
            return Ok(());
        }
        let started = Instant::now();
        let means = ablation::Means {
            kernels: artifact.own_kernels > 0,
            libraries: !artifact.library_calls.is_empty(),
            computes: self.oracle.opened.computes,
        };
        let told = ablation::conclude(means, |taken| self.is_right_without(candidate, taken))?;
        found.seconds.verify += started.elapsed().as_secs_f64();
        found.integrity.extend(told.finding);
        found.caveats.extend(told.caveat.map(str::to_owned));
        found.provenance = Some(Provenance {
            own_kernels: artifact.own_kernels,
            library_calls: artifact.library_calls.clone(),
            ablation: told.result,
        });
        Ok(())
    }

    /// Whether the candidate passes every check in a fresh process once this does nothing. That it
    /// crashes, raises or hangs is as good as a wrong result.
    fn is_right_without(
        &mut self,
        candidate: &Candidate,
        taken: Instrument,
    ) -> Result<bool, JudgeError> {
        match self.processes.build_at_once(self.machine, &self.task, candidate, taken)? {
            Outcome::Built(artifact) => {
                let mut found = Findings::default();
                self.run_under_memory_pressure(candidate, &artifact, Stage::Verified, &mut found)?;
                Ok(!found.bad())
            }
            // What it launches with cannot be taken away: as if nothing had been.
            Outcome::Failed(failed) if failed.class == FailureClass::ForbiddenImport => Ok(true),
            Outcome::Failed(failed) => Err(JudgeError::infrastructure(
                "link the candidate without its kernels",
                failed.message,
            )),
        }
    }
}
