//! Times a verified candidate in windows interleaved with the baselines', and evaluates them.

use std::time::Instant;

use rand::rngs::StdRng;
use warpwright_record::verdict::IntegrityFinding;

use super::single_calls;
use crate::check::findings::Findings;
use crate::check::timed_calls::Checks;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::process::baseline::{BaselineProcess, Look};
use crate::process::candidate::LoadedCandidate;
use crate::process::failure::Trouble;
use crate::process::host::Workers;
use crate::process::oracle::Oracle;
use crate::timing::baseline_floor;
use crate::timing::baseline_set::Baselines;
use crate::timing::measure::{self, Levels, Ready, Rounds, Unequal, Windows};
use crate::timing::plan::Plan;
use crate::timing::sequential;
use crate::timing::shared_rounds::Borrowed;
use crate::timing::windows;

/// Disturbed rounds that a measurement of fewer rounds bears all the same.
const FEWEST_BORNE: usize = 7;

/// Choices made by preparatory windows, which do not count.
struct Chosen {
    /// Calls per window.
    calls: usize,
    /// Calls per later, longer window.
    later: usize,
    /// Places of the results at which baselines' windows end with a look as well.
    samples: Vec<u64>,
    /// All that a longer one takes, inputs included.
    seconds: f64,
}

/// A verified candidate that is timed, on one task and one machine.
pub(crate) struct Measurement<'s> {
    pub(crate) machine: &'s Machine,
    /// All processes of the judge.
    pub(crate) workers: &'s Workers,
    /// The task's name.
    pub(crate) task: &'s str,
    pub(crate) oracle: &'s mut Oracle,
    /// Whether the task fills the device, so that its processes take turns.
    pub(crate) short: bool,
    /// Most calls of a window.
    pub(crate) most_calls: u64,
    pub(crate) plan: Plan,
    pub(crate) random: &'s mut StdRng,
}

impl Measurement<'_> {
    /// Times the candidate against these baselines; its times and speed-ups are in the findings.
    pub(crate) fn against(
        &mut self,
        baselines: &mut Baselines,
        candidate: &mut dyn LoadedCandidate,
        found: &mut Findings,
    ) -> Result<(), Trouble> {
        let Baselines { process, ready, staged, caveats, shared } = baselines;
        found.caveats.extend(caveats.iter().cloned());
        let Chosen { mut calls, mut later, samples, seconds: candidate_seconds } =
            self.candidate_calls(process, candidate)?;
        let baseline_seconds: f64 = ready.iter().map(|r| r.later as f64 * r.seconds).sum();
        let round_seconds = candidate_seconds + baseline_seconds;
        let mut schedule = measure::schedule(&self.plan, round_seconds);
        let mut checks = Checks::new(&schedule, self.plan.workloads);
        let mut rounds = Rounds {
            nothing: Vec::new(),
            own_nothing: Vec::new(),
            candidate: Windows::default(),
            baselines: ready.iter().map(|r| (r.which, Windows::default())).collect(),
            shared: Vec::new(),
        };
        let shares = self.machine.config.share_baselines && !candidate.maps_inputs();
        let mut lent = if shares {
            shared.lend(Instant::now(), schedule.first())
        } else {
            Borrowed::default()
        };
        let prepare = found.times.prepare;
        let mut disturbed = Vec::new();
        let timed = [candidate.pid(), process.pid()];
        let mut watch = self.machine.watch(timed, 1 + ready.len(), self.workers);
        // Rounds at the last look: a round that is taken out later must not bring it again.
        let mut seen = 0;
        self.warm_up(process, ready, *staged)?;
        while rounds.nothing.len() < schedule.last() {
            let round = rounds.nothing.len();
            let long = round >= schedule.first();
            let name = self.task;
            let beside = if long { None } else { lent.take(round) };
            rounds.shared.push(beside.is_some());
            rounds.nothing.push(if let Some(beside) = &beside {
                beside.nothing
            } else {
                let look = Look { arena: candidate.arena(), samples: &samples };
                process.nothing(name, Some(look))?.as_secs_f64()
            });
            rounds.own_nothing.extend(candidate.nothing(&samples)?.map(|took| took.as_secs_f64()));
            for contender in measure::order(ready.len(), self.random) {
                if contender == 0 {
                    let held = if long { later } else { calls };
                    let seconds =
                        self.timed_window(process, candidate, held, (&mut checks, round), found)?;
                    rounds.candidate.push(held, seconds);
                    if !long {
                        let own = rounds.own_nothing.get(round);
                        let spent = seconds - own.unwrap_or(&rounds.nothing[round]);
                        let most = self.most_calls;
                        (calls, later) = windows::regrown(&self.plan, (calls, later), spent, most);
                    }
                    if found.bad() {
                        return Ok(());
                    }
                    self.warm_up(process, ready, *staged)?;
                } else if let Some(beside) = &beside {
                    let (calls, seconds) = beside.windows[contender - 1];
                    rounds.baselines[contender - 1].1.push(calls, seconds);
                    continue;
                } else {
                    let ready = &ready[contender - 1];
                    let calls = if long { ready.later } else { ready.calls };
                    let look = Look { arena: candidate.arena(), samples: &samples };
                    let (name, which) = (self.task, (ready.which, calls));
                    let seconds = measure::baseline_window(process, name, which, *staged, look)?;
                    rounds.baselines[contender - 1].1.push(calls, seconds);
                }
                watch.window(contender)?;
            }
            for gone in watch.round() {
                rounds.forget(gone);
            }
            watch.bear(schedule.last().max(FEWEST_BORNE))?;
            if schedule.look_after(rounds.nothing.len()).is_some() {
                for gone in rounds.forget_unlike_shared() {
                    watch.forget(gone);
                    lent.none();
                }
            }
            let done = rounds.nothing.len();
            let Some(look) = schedule.look_after(done).filter(|_| done > seen) else { continue };
            seen = done;
            let device = &self.machine.device;
            let busy = !device.has_baseline_floors() && watch.busy_host();
            let levels = if device.has_baseline_floors() {
                Levels::of_baselines(ready, &rounds)
            } else if busy {
                Levels::of_all(ready, &rounds)
            } else {
                Levels::default()
            };
            // Only the device tier has empty windows of its own.
            let launch = if rounds.own_nothing.is_empty() { 0.0 } else { device.launch_seconds() };
            let unequal = Unequal { window: device.unequal_seconds(), call: launch };
            let summary = measure::summarise(&rounds, &levels, (look, unequal));
            (found.times, found.speedup, disturbed) =
                (summary.times, summary.speedup, summary.caveats);
            found.measured = summary.measured;
            found.times.prepare = prepare;
            if busy && sequential::may_be_faster(&found.speedup) {
                let longer = measure::schedule(&self.plan.on_a_busy_host(), round_seconds);
                if longer.last() > done {
                    schedule = longer;
                    continue;
                }
            }
            let bound = (done, summary.unequal);
            if sequential::decided(&found.speedup, found.times.candidate, bound) {
                break;
            }
        }
        if rounds.tell_nothing() {
            return Err(JudgeError::Unfit {
                device: self.machine.config.device.to_string(),
                reason: "most windows of the candidate were not longer than empty ones".to_owned(),
                hint: "run fewer other processes; allow the judge more memory if there is a limit"
                    .to_owned(),
            }
            .into());
        }
        // Before single calls may make the time longer than the windows say.
        self.against_physics(found);
        let (end, beside) = (schedule.last(), (&mut *process, &**ready, *staged));
        if !found.bad() && (calls > 1 || later > 1) {
            single_calls::compare(self, beside, candidate, &samples, (&mut checks, end), found)?;
            if found.bad() {
                return Ok(());
            }
        }
        found.seconds.windows = rounds.beside();
        let (mut conditions, told) = watch.end(rounds.variation())?;
        conditions.shared_rounds = rounds.shared.iter().filter(|shared| **shared).count() as u32;
        if self.machine.device.launches_from_host() {
            conditions.empty_window = self.machine.remember_empty(&rounds.nothing);
            found.caveats.extend(baseline_floor::slow_host(conditions.empty_window));
        }
        found.conditions = Some(conditions);
        found.caveats.extend(told);
        found.caveats.extend(disturbed);
        measure::remember(ready, &rounds);
        let calls: Vec<usize> = ready.iter().map(|ready| ready.calls).collect();
        shared.keep(&rounds, &calls, Instant::now());
        Ok(())
    }

    /// How many calls the candidate's windows hold, found by trying windows; what the last one was.
    fn candidate_calls(
        &mut self,
        process: &mut BaselineProcess,
        candidate: &mut dyn LoadedCandidate,
    ) -> Result<Chosen, Trouble> {
        let most = self.most_calls as usize;
        let (plan, task, oracle) = (&self.plan, self.task, &mut *self.oracle);
        let (random, mut samples, mut last) = (&mut *self.random, Vec::new(), 0.0);
        // Checks were windows of few calls.
        let mut nothing = f64::INFINITY;
        for _ in 0..windows::TRIES {
            let took = match candidate.nothing(&[])? {
                Some(own) => own,
                None => process.nothing(task, None)?,
            };
            nothing = nothing.min(took.as_secs_f64());
        }
        let least = candidate.window_state().shortest.map_or(0.0, |(window, calls)| {
            (window.as_secs_f64() - nothing).max(0.0) / calls as f64
        });
        let first = windows::first_calls(plan, least, self.most_calls);
        let tried =
            windows::grow((plan, plan.window), (first, most), 1, |calls| -> Result<_, Trouble> {
                let started = Instant::now();
                let nothing = match candidate.nothing(&[])? {
                    Some(own) => own,
                    None => process.nothing(task, None)?,
                };
                let nothing = nothing.as_secs_f64();
                let (played, _) = measure::candidate_window(oracle, candidate, calls, random)?;
                (samples, last) = (played.sampled(), started.elapsed().as_secs_f64());
                Ok((nothing, played.elapsed.as_secs_f64()))
            })?;
        let seconds = tried.quickest() / tried.calls as f64;
        let held = |window| windows::window_calls(plan, window, seconds, self.most_calls);
        let (calls, later) = (held(plan.window), held(plan.longer));
        Ok(Chosen { calls, later, samples, seconds: last * later as f64 / tried.calls as f64 })
    }

    /// One window that counts; some of its calls are compared.
    pub(super) fn timed_window(
        &mut self,
        process: &mut BaselineProcess,
        candidate: &mut dyn LoadedCandidate,
        calls: usize,
        (checks, round): (&mut Checks, usize),
        found: &mut Findings,
    ) -> Result<f64, Trouble> {
        let (played, draws) =
            measure::candidate_window(self.oracle, candidate, calls, self.random)?;
        self.make_way(process)?;
        let profile = self.machine.config.profile;
        checks.look(
            round,
            (&played, &draws),
            (self.oracle, candidate),
            (profile, self.random),
            found,
        )?;
        Ok(played.elapsed.as_secs_f64())
    }

    /// Before the oracle computes in between windows.
    fn make_way(&self, process: &mut BaselineProcess) -> Result<(), JudgeError> {
        if self.short { process.spare(self.task) } else { Ok(()) }
    }

    /// After it, before windows that count: each baseline has what it needs again.
    pub(super) fn warm_up(
        &self,
        process: &mut BaselineProcess,
        ready: &[Ready],
        staged: usize,
    ) -> Result<(), JudgeError> {
        let mut each = ready.iter().filter(|_| self.short);
        each.try_for_each(|ready| measure::window(process, self.task, ready, staged))
    }

    /// Results cannot be written faster than memory takes them. Inputs may lawfully be skipped in
    /// part, so only outputs count here.
    fn against_physics(&self, found: &mut Findings) {
        let fingerprint = self.machine.fingerprint("", "");
        let (Some(bandwidth), Some(time)) =
            (fingerprint.bandwidth_bytes_per_second, found.times.candidate)
        else {
            return;
        };
        let bytes = self.oracle.opened.sizes.outputs.bytes();
        if self.machine.device.memory_bounds_results() && !self.oracle.opened.aliases_input {
            let least = 0.75e3 * bytes as f64 / bandwidth as f64;
            // The upper end of few rounds is as far off as a candidate makes them vary.
            let most = if self.plan.workloads > 1 { time.value } else { time.high };
            if most < least && bytes > 2 * self.machine.device.facts().cache_bytes {
                found.integrity.push(IntegrityFinding {
                    class: "faster_than_memory".to_owned(),
                    message: format!(
                        "{:.4} ms a call, but writing the results takes {least:.4} ms",
                        time.value
                    ),
                });
            }
        }
    }
}
