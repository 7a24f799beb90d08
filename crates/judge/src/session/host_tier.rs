//! The host tier: a candidate is judged in a runner, where its host code runs.

use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpwright_build::Artifact;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::Stage;

use super::{TaskSession, ablation};
use crate::check::findings::Findings;
use crate::device::device_arbiter::Held;
use crate::error::JudgeError;
use crate::process::candidate::LoadedCandidate;
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble, classify, finding};
use crate::process::oracle::{candidate_mode, profile_name};
use crate::process::runner::{Ended, Runner};

impl TaskSession<'_> {
    /// Runs the candidate in a runner and cleans up after it, whatever it does.
    pub(super) fn run_with_host_code(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<(), JudgeError> {
        let started = Instant::now();
        let patience = self.patience();
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
        let went = self.run_in(&mut runner, candidate, (stage, &held), found);
        let went = went.map_err(|trouble| self.unless_disturbed(trouble));
        if self.machine.device.candidates_leave_work() {
            held.untimed();
        }
        let spent = runner.window_state().spent;
        found.seconds.inputs = spent.inputs.as_secs_f64();
        found.seconds.windows += spent.windows.as_secs_f64();
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
            Err(Trouble::Unplanned(why)) => {
                Err(JudgeError::infrastructure("judge in the host tier", why))
            }
            Err(Trouble::Candidate(stumble)) => {
                found.integrity.extend(finding(&stumble));
                found.failure = Some(classify(&stumble, outcome.as_ref(), &tail));
                Ok(())
            }
        }
    }

    fn run_in(
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
            self.load(runner, candidate, found)?;
            self.verify(runner, found)
        })?;
        self.measure_if_verified(runner, (stage, held), found)
    }

    fn load(
        &mut self,
        runner: &mut Runner,
        candidate: &Candidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let loading = Instant::now();
        runner.begin(&self.machine.cores)?;
        let source = candidate.files().get("model_new.py");
        let source = String::from_utf8_lossy(source.map_or(&[][..], Vec::as_slice)).into_owned();
        let settings = (profile_name(self.machine.config.profile), candidate_mode(&self.task));
        runner.load(&mut self.oracle, &source, settings)?;
        let (rest, played) = (self.oracle.rest(), self.oracle.played);
        runner.state(&mut self.oracle, rest)?;
        found.times.prepare = Some(runner.state(&mut self.oracle, played)?);
        runner.warm(&mut self.oracle, rest)?;
        runner.warm(&mut self.oracle, played)?;
        runner.lock()?;
        runner.freeze()?;
        found.seconds.load = loading.elapsed().as_secs_f64();
        Ok(())
    }
}
