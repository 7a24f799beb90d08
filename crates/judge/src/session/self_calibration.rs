//! Self-calibration: times candidates against the judge's own kernels of known speed instead of baselines, to
//! measure the judge's timing accuracy. They are measured in the same way as a candidate: fresh runner,
//! verification, interleaved windows, the floor, the sequential rule.

use std::time::{Duration, Instant};

use warpwright_build::{Instrument, Outcome};
use warpwright_record::verdict::{Stage, Tier, Verdict};
use warpwright_task::Task;

use crate::device::device_arbiter::Purpose;
use crate::error::{Cause, JudgeError};
use crate::judge::LocalJudge;
use crate::process::baseline::{BaselineProcess, Tuned};
use crate::session::TaskSession;
use crate::timing::baseline::Baseline;
use crate::timing::baseline_set::{Baselines, Terms};
use crate::timing::calibrate::known::{self, Kind, Slope, Trial};
use crate::timing::calibrate::{Calibration, store};

/// Times of a call that are tried, in seconds: those of the kernels that matter.
const DURATIONS: [f64; 4] = [20e-6, 150e-6, 1e-3, 5e-3];
/// Largest share of a call's time that one step may take: of 5 %, a tenth.
const FINE: f64 = 0.005;

/// Budget of a self-calibration.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of pairs of identical kernels; `None`: as many as the time allows.
    pub pairs: Option<u32>,
    /// Time budget in seconds.
    pub seconds: Option<u64>,
}

impl Effort {
    /// Whether it has been enough.
    fn is_spent(self, started: Instant, trials: &[Trial]) -> bool {
        let pairs = trials.iter().filter(|trial| trial.kind == Kind::Identical).count();
        let late = |seconds| started.elapsed() >= Duration::from_secs(seconds);
        self.pairs.is_some_and(|wanted| pairs >= wanted as usize) || self.seconds.is_some_and(late)
    }
}

impl LocalJudge {
    /// Measures the device's ceilings, then the judge's timing accuracy on it. Stores both in the cache, unless
    /// windows have another length than the default or candidates are judged in the device tier. Calls `said`
    /// with all trials so far after each trial.
    pub fn calibrate_exactly(
        &self,
        effort: Effort,
        said: &dyn Fn(&[Trial]),
    ) -> Result<Calibration, JudgeError> {
        let mut calibration = self.calibrate(true)?;
        let started = Instant::now();
        let elements = self.machine.device.calibration_elements();
        let mut session = self.task(&known::task(elements))?;
        let first = known::candidate(1);
        let built = self.processes.build(
            &self.machine,
            &known::task(elements),
            &first,
            Instrument::default(),
        )?;
        let Outcome::Built(artifact) = built else {
            return Err(broken("it does not build"));
        };
        let mut process =
            Some(self.processes.baseline_calling(&self.machine, Some(&artifact.dir), 1 << 30)?);
        let mut time = |session: &mut TaskSession<'_>, steps| {
            time_against(session, process.take(), &known::contender(elements, steps))
        };
        let mut slopes = Vec::new();
        for seconds in DURATIONS {
            slopes.push(slope(seconds, |steps| time(&mut session, steps))?);
        }
        let (mut trials, mut in_host_tier) = (Vec::new(), true);
        for turn in 0.. {
            if effort.is_spent(started, &trials) {
                break;
            }
            // Every duration before the next kind; whenever it ends, all were tried alike.
            let slope: Slope = slopes[turn % slopes.len()];
            let kind = Kind::CYCLE[turn / slopes.len() % Kind::CYCLE.len()];
            time(&mut session, slope.steps_of(kind))?;
            let verdict = session.judge(&known::candidate(slope.steps), Stage::Measured)?;
            in_host_tier &= verdict.tier == Tier::Host;
            trials.push(trial(kind, &verdict)?);
            said(&trials);
        }
        calibration.exactness = Some(known::tally(&trials));
        calibration.trials = trials;
        // A pair of one tier is in the host tier: the contender is called from Python.
        let usual = self.machine.config.window.is_none() && in_host_tier;
        if usual {
            store(&self.machine.config.cache, &calibration)?;
            self.machine.learn(calibration.clone());
        }
        Ok(calibration)
    }
}

/// Makes `contender` the only baseline, in eager's place, in `process` or in the process of the last
/// contender. Returns its time per call in seconds, roughly.
fn time_against(
    session: &mut TaskSession<'_>,
    process: Option<BaselineProcess>,
    contender: &Task,
) -> Result<f64, JudgeError> {
    // A session on a GPU has started one, which cannot call these kernels.
    session.early = None;
    let (machine, processes) = (session.machine, session.processes);
    let Some(mut process) = process.or_else(|| Some(session.baselines.take()?.process)) else {
        let reason = "no baseline process is available";
        return Err(JudgeError::infrastructure("time the self-calibration kernel", reason));
    };
    let shared = machine.device.share_for_host_work(&machine.arbiter, Purpose::Baselines);
    let settings = machine.settings();
    process.open(contender, settings, (session.oracle.played, None), &machine.arbiter)?;
    drop(shared);
    let seeded = (Baseline::Eager, machine.config.seed, Tuned::Alone);
    process.compile(&contender.name, seeded, &machine.arbiter)?;
    let (task, opened) = (&session.task, &session.oracle.opened);
    let (memory, layout, plan) = (session.memory, session.layout, session.plan);
    let weights = session.oracle.played;
    let terms = Terms { machine, processes, task, opened, weights, memory, layout, plan };
    let wanted = (vec![Baseline::Eager], Vec::new());
    let baselines = Baselines::stage(&terms, process, wanted, &mut session.random)?;
    let seconds = baselines.ready.first().map_or(0.0, |ready| ready.seconds);
    session.baselines = Some(baselines);
    Ok(seconds)
}

/// Work for a call of about so many seconds, or of the next longer one in which work can be chosen
/// finely, and what more of it takes.
fn slope(
    mut seconds: f64,
    mut time: impl FnMut(u32) -> Result<f64, JudgeError>,
) -> Result<Slope, JudgeError> {
    loop {
        let mut steps = 1000;
        for _ in 0..3 {
            let scale = (seconds / time(steps)?).clamp(1e-3, 1e3);
            steps = (f64::from(steps) * scale).clamp(16.0, 1e9) as u32;
        }
        let more = steps + (steps / 4).max(1);
        // In turn, so that a drift of the machine hits both; the least, because whatever disturbs makes
        // a call slower.
        let (mut short, mut long) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..3 {
            short = short.min(time(steps)?);
            long = long.min(time(more)?);
        }
        let slope = Slope::between((steps, short), (more, long));
        if slope.per_step <= FINE * slope.seconds || steps > 1000 {
            return Ok(slope);
        }
        seconds *= 2.0;
    }
}

fn trial(kind: Kind, verdict: &Verdict) -> Result<Trial, JudgeError> {
    let (Some(speedup), Some(time)) = (verdict.speedup.eager, verdict.times_ms.candidate) else {
        let why = verdict.failure.as_ref().map(|failure| failure.message.clone());
        let found = verdict.integrity.first().map(|finding| finding.message.clone());
        return Err(broken(why.or(found).unwrap_or_default()));
    };
    let conditions = verdict.conditions.as_ref();
    Ok(Trial {
        kind,
        microseconds: 1e3 * time.value,
        speedup,
        rounds: verdict.times_ms.rounds.unwrap_or(0),
        variation: conditions.and_then(|c| c.variation).unwrap_or(0.0),
    })
}

fn broken(why: impl Into<Cause>) -> JudgeError {
    JudgeError::infrastructure("judge the self-calibration kernel", why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::facts::Device;
    use crate::testing::{own_judge, shared_judge};

    #[test]
    fn work_steps_match_the_requested_duration() {
        let time = |steps: u32| Ok(3e-6 + 2e-9 * f64::from(steps));
        for seconds in DURATIONS {
            let found = slope(seconds, time).unwrap();
            assert!((found.seconds / seconds - 1.0).abs() < 0.05, "{found:?}");
            assert!((found.per_step / 2e-9 - 1.0).abs() < 1e-6);
        }
        // Calls so short that one step is much of them are made longer.
        let coarse = |steps: u32| Ok(3e-6 + 1e-6 * f64::from(steps));
        let found = slope(20e-6, coarse).unwrap();
        assert!(found.per_step <= FINE * found.seconds && found.seconds < 700e-6, "{found:?}");
    }

    /// The whole way on the cpu device. What a busy machine finds is not tested: whether kernels are
    /// right, timed on both sides and kept is.
    #[test]
    fn self_calibration_is_measured_and_kept_on_disk() {
        let judge = shared_judge();
        let seen = std::cell::Cell::new(0);
        let effort = Effort { pairs: Some(4), seconds: None };
        let calibration =
            judge.calibrate_exactly(effort, &|trials| seen.set(trials.len())).unwrap();
        assert!(seen.get() > 0 && calibration.trials.len() == seen.get());
        let exactness = calibration.exactness.clone().unwrap();
        assert_eq!(exactness.identical_faster.unwrap().of as usize, seen.get());
        assert!(exactness.variation.unwrap() > 0.0);
        let ratio = exactness.identical_ratio.unwrap();
        assert!((0.5..2.0).contains(&ratio), "{ratio}: not the same kernel on both sides");
        assert_eq!(judge.machine.fingerprint("", "").exactness, Some(exactness.clone()));
        let again = own_judge(Device::Cpu);
        assert_eq!(again.machine.fingerprint("", "").exactness, Some(exactness), "kept on disk");
    }
}
