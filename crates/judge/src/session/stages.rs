//! The stages that a candidate which was built passes through, in either tier: verified, measured, and, in the
//! host tier, run once more without its kernels.

use std::time::{Duration, Instant};

use rand::RngExt;
use warpwright_build::{Artifact, Instrument, Outcome};
use warpwright_record::candidate::Candidate;
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{FailureClass, Provenance, Stage, Tier};

use super::recording::{NoPlan, Plans};
use super::{TaskSession, ablation};
use crate::check::families::Draw;
use crate::check::findings::Findings;
use crate::check::verify::{glances, look};
use crate::device::device_arbiter::{Held, Purpose};
use crate::error::JudgeError;
use crate::process::candidate::LoadedCandidate;
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble, failure};
use crate::process::oracle::Oracle;
use crate::timing::measurement::Measurement;

/// How a candidate is run.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// In a runner.
    HostCode(&'a Candidate),
    /// In a replayer.
    Plans(&'a Plans),
}

impl<'j> TaskSession<'j> {
    /// Longest that one request to a candidate may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs_f64((10.0 + 300.0 * self.oracle.opened.forward_seconds).min(300.0))
    }

    /// Runs the candidate in the tier that is allowed and possible, and finds out what computed its results.
    pub(super) fn run_in_a_tier(
        &mut self,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<(), JudgeError> {
        let wanted = self.machine.config.tier;
        if wanted != Some(Tier::Host) {
            match self.run_in_the_device_tier(candidate, artifact, stage, found)? {
                None => return Ok(()),
                // Whether such results come in time is chance.
                Some(why) if wanted == Some(Tier::Device) || why.wrong_in_any_tier => {
                    let text = format!("the device tier cannot judge it: {}", why.reason);
                    let unrecorded = || failure(FailureClass::NotRecordable, text);
                    found.failure = Some(why.failure.map_or_else(unrecorded, |failure| *failure));
                    found.tier = Tier::Device;
                    return Ok(());
                }
                // What no candidate has here is no news of this one.
                Some(NoPlan { of_machine: true, .. }) if !self.machine.device.is_accelerator() => {}
                Some(NoPlan { reason, .. }) => {
                    found.caveats.push(format!("judged in the host tier: {reason}"));
                }
            }
        }
        let way = Way::HostCode(candidate);
        self.run_under_memory_pressure(way, artifact, stage, found)?;
        self.ablate(candidate, artifact, found)
    }

    /// Runs the candidate once.
    pub(super) fn run(
        &mut self,
        way: Way<'_>,
        artifact: &Artifact,
        stage: Stage,
        found: &mut Findings,
    ) -> Result<Option<NoPlan>, JudgeError> {
        match way {
            Way::HostCode(candidate) => {
                self.run_with_host_code(candidate, artifact, stage, found).map(|()| None)
            }
            Way::Plans(plans) => self.run_as_plans(plans, artifact, stage, found),
        }
    }

    /// Work that a candidate seems to have left running may be another process's, while this one does not have the
    /// GPU to itself among all.
    pub(super) fn unless_disturbed(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Candidate(Stumble { answer: NoAnswer::LeftRunning, .. })
                if !self.machine.arbiter.excludes_other_processes() =>
            {
                JudgeError::Unfit {
                    device: self.machine.config.device.to_string(),
                    reason: "its work did not end, and other processes use it too".to_owned(),
                    hint: "try again; end the other processes, if it happens often".to_owned(),
                }
                .into()
            }
            trouble => trouble,
        }
    }

    /// The device for a candidate: alone on a GPU, where it may leave work behind that lasts as long
    /// as its process; on the cpu device beside others until it is measured.
    pub(super) fn hold(&self, stage: Stage) -> Held<'j> {
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

    /// Times a candidate that is to be measured and was verified.
    pub(super) fn measure_if_verified(
        &mut self,
        loaded: &mut dyn LoadedCandidate,
        (stage, held): (Stage, &Held<'_>),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        found.candidate_bytes = loaded.arena().held_bytes();
        if stage < Stage::Measured || found.bad() {
            return Ok(());
        }
        let waiting = Instant::now();
        held.timed();
        found.seconds.wait += waiting.elapsed().as_secs_f64();
        let measuring = Instant::now();
        let went = self.measure(loaded, found);
        found.seconds.measure = measuring.elapsed().as_secs_f64();
        found.candidate_bytes = found.candidate_bytes.max(loaded.arena().held_bytes());
        went
    }

    /// Times the candidate; its times and speed-ups are in the findings.
    fn measure(
        &mut self,
        loaded: &mut dyn LoadedCandidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let Some(mut baselines) = self.baselines.take() else {
            let reason = "the baselines are not ready";
            return Err(JudgeError::infrastructure("measure the candidate", reason).into());
        };
        let beside = loaded.maps_inputs().then(|| loaded.arena());
        baselines.process.map_as_candidates(beside);
        let mut measurement = Measurement {
            machine: self.machine,
            workers: &self.processes.host.workers,
            task: &self.task.name,
            oracle: &mut self.oracle,
            short: self.short,
            most_calls: loaded.most_calls(),
            plan: self.plan,
            random: &mut self.random,
        };
        let done = measurement.against(&mut baselines, loaded, found);
        baselines.process.map_as_candidates(None);
        let kept = match &done {
            // Where memory was short nothing is lost but the call.
            Ok(())
            | Err(
                Trouble::Candidate(_)
                | Trouble::Unplanned(_)
                | Trouble::Judge(JudgeError::Unfit { .. } | JudgeError::Memory { .. }),
            ) => true,
            Err(Trouble::Judge(_)) => false,
        };
        if kept {
            self.baselines = Some(baselines);
        }
        done
    }

    /// One call with the weights that nothing else is played with, then fresh inputs of several families
    /// with those that are timed, in windows of as many calls as it happens: nothing tells them from those
    /// that are timed. Every call is looked at.
    pub(super) fn verify(
        &mut self,
        loaded: &mut dyn LoadedCandidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let verifying = Instant::now();
        let went = self.verify_all(loaded, found);
        found.seconds.verify = verifying.elapsed().as_secs_f64();
        went
    }

    fn verify_all(
        &mut self,
        loaded: &mut dyn LoadedCandidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let families = self.oracle.families.plan(&mut self.random);
        let (rest, played) = (self.oracle.rest(), self.oracle.played);
        let name = Oracle::told(rest);
        self.check(loaded, (rest, name), (&[InputFamily::Own], false), found)?;
        loaded.drop_variant(rest)?;
        let mut left = families.as_slice();
        while !left.is_empty() && !found.bad() {
            let most = (loaded.most_calls() as usize).min(left.len());
            let (now, later) = left.split_at(self.random.random_range(1..=most));
            self.check(loaded, (played, "fresh inputs"), (now, true), found)?;
            left = later;
        }
        Ok(())
    }

    /// One window of a call on fresh inputs of each family, with `again` on others where nothing could be
    /// compared.
    fn check(
        &mut self,
        loaded: &mut dyn LoadedCandidate,
        (variant, name): (&str, &str),
        (families, again): (&[InputFamily], bool),
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let draws: Vec<Draw> =
            families.iter().map(|family| Draw::fresh(*family, &mut self.random)).collect();
        let played = loaded.play(&mut self.oracle, variant, &draws)?;
        let profile = self.machine.config.profile;
        let by_call: Vec<Draw> = played.order.iter().map(|&slot| draws[slot]).collect();
        let calls: Vec<usize> = (0..by_call.len()).collect();
        let before = found.checks.len();
        let numbered = |done: usize| match before + done {
            0 => name.to_owned(),
            i => format!("{name} {i}"),
        };
        let (of, calls) = ((&played, variant), (calls.as_slice(), by_call.as_slice()));
        let glanced = glances(&mut self.oracle, loaded, of, calls, (&numbered, profile))?;
        let mut void = Vec::new();
        for (call, glanced) in glanced.into_iter().enumerate() {
            let (question, name) = ((variant, by_call[call]), numbered(call));
            let looked = match glanced {
                Some(looked) => looked,
                None => look(&mut self.oracle, loaded, &played, call, question, &name, profile)?,
            };
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
        self.check(loaded, (variant, name), (&next, false), found)
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
                let way = Way::HostCode(candidate);
                self.run_under_memory_pressure(way, &artifact, Stage::Verified, &mut found)?;
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
