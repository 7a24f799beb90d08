//! Builds the verdict from the findings about a candidate.

use std::ops::ControlFlow;

use warpwright_build::{Artifact, Instrument, Outcome};
use warpwright_record::candidate::Candidate;
use warpwright_record::conditions::Conditions;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::fit::{Fit, WorkloadFit};
use warpwright_record::libraries::Libraries;
use warpwright_record::verdict::{
    Dtype, Reward, SCALED_DOWN, Speedup, Stage, Times, VERDICT_VERSION, Verdict,
};
use warpwright_task::Task;

use crate::admission::objection::{self, Objection};
use crate::check::findings::Findings;
use crate::error::JudgeError;
use crate::judge::machine::Machine;
use crate::judge::processes::Shared;
use crate::process::failure::failure;
use crate::process::wire::Versions;

/// Known facts of a task that was opened once.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) versions: Versions,
    pub(crate) unavoidable_bytes: u64,
    pub(crate) doubt: String,
    /// Caveats: rules that are weakened for this task.
    pub(crate) caveats: Vec<String>,
    /// Whether no more than 1 can be earned; a caveat says why.
    pub(crate) capped: bool,
    /// Why there is nothing to earn on it, if there is not.
    pub(crate) degenerate: Vec<Objection>,
}

/// How `--fit` scaled a task down, for the record; `None`: it has its own size.
pub fn fit_of(task: &Task) -> Option<Fit> {
    let fits = task.fits();
    let divisor = |fit: &&warpwright_task::Fit| fit.from / fit.to.max(1);
    let most = fits.iter().max_by_key(divisor)?;
    let (dimension, from, to) = (most.dimension.clone(), most.from, most.to);
    let of_workload = |fit: &warpwright_task::Fit| {
        let workload = fit.workload.clone()?;
        Some(WorkloadFit { workload, from: fit.from, to: fit.to })
    };
    Some(Fit { dimension, from, to, workloads: fits.iter().filter_map(of_workload).collect() })
}

/// The verdict on a task with workloads: it says how they were scaled down.
pub(crate) fn of_workloads(task: &Task, mut verdict: Verdict) -> Verdict {
    verdict.fit = fit_of(task);
    let caveat = verdict.fit.as_ref().map(|fit| format!("{SCALED_DOWN}{fit}"));
    if let Some(caveat) = caveat.filter(|caveat| !verdict.caveats.contains(caveat)) {
        verdict.caveats.insert(0, caveat);
    }
    verdict
}

/// Milliseconds that `bytes` take at the device's bandwidth; `None` if the bandwidth is unknown.
pub(crate) fn floor_ms(fingerprint: &Fingerprint, bytes: u64) -> Option<f64> {
    fingerprint.bandwidth_bytes_per_second.map(|per_second| 1e3 * bytes as f64 / per_second as f64)
}

/// Compiles a candidate, beside whatever runs on the device.
fn build(
    Shared { machine, processes }: Shared<'_>,
    task: &Task,
    candidate: &Candidate,
    found: &mut Findings,
) -> Result<Option<Artifact>, JudgeError> {
    match processes.build(machine, task, candidate, Instrument::default())? {
        Outcome::Built(artifact) => {
            found.seconds.build = artifact.seconds;
            Ok(Some(artifact))
        }
        Outcome::Failed(failed) => {
            found.seconds.build = failed.seconds;
            let mut told = failure(failed.class, failed.message);
            told.diagnostics = failed.diagnostics;
            told.output_tail = failed.raw_tail;
            found.failure = Some(told);
            Ok(None)
        }
    }
}

/// Compiles a candidate that is to be taken as far as `stage`: the verdict, if that was all or it failed, else
/// the artifact.
pub(crate) fn built(
    shared: Shared<'_>,
    task: &Task,
    known: &Known,
    candidate: &Candidate,
    stage: Stage,
) -> Result<ControlFlow<Verdict, Artifact>, JudgeError> {
    let mut found = Findings::default();
    let artifact = build(shared, task, candidate, &mut found)?;
    Ok(match artifact {
        Some(artifact) if stage > Stage::Built => ControlFlow::Continue(artifact),
        artifact => ControlFlow::Break(verdict(
            shared.machine,
            task,
            known,
            candidate.hash(),
            artifact.as_ref(),
            (stage, found),
        )),
    })
}

/// Builds the verdict from the findings. `candidate`: the hash of its files.
pub(crate) fn verdict(
    machine: &Machine,
    task: &Task,
    known: &Known,
    candidate: &str,
    artifact: Option<&Artifact>,
    (stage, mut found): (Stage, Findings),
) -> Verdict {
    let mut fingerprint = machine.fingerprint(&known.versions.torch, &known.versions.python);
    fingerprint.clocks = found.conditions.as_ref().map(Conditions::clocks).unwrap_or_default();
    let verified = stage > Stage::Built && !found.bad();
    if let Some(fit) = fit_of(task) {
        found.caveats.push(format!("{SCALED_DOWN}{fit}"));
    }
    if !known.doubt.is_empty() {
        found.caveats.push(known.doubt.clone());
    }
    if stage > Stage::Built {
        found.caveats.extend(known.caveats.iter().cloned());
    }
    if found.bad() {
        (found.times, found.speedup) = (Times::default(), Speedup::default());
    }
    let reward = Reward::of(verified, &found.speedup);
    let mut reward = if known.capped { reward.capped() } else { reward };
    if !known.degenerate.is_empty() {
        let reasons = objection::told(&known.degenerate);
        let caveat = format!("the task is degenerate, and nothing is earned on it: {reasons}");
        found.caveats.insert(0, caveat);
        if verified {
            reward = Reward::UNEARNED;
        }
    }
    let floor_ms = floor_ms(&fingerprint, known.unavoidable_bytes);
    Verdict {
        version: VERDICT_VERSION,
        tier: found.tier,
        plan: found.plan,
        replayer: found.replayer,
        task: task.name.clone(),
        candidate: candidate.to_owned(),
        device: machine.config.device.to_string(),
        profile: machine.config.profile,
        dtype: task.dtype().and_then(|dtype| Dtype::from_name(dtype.name())),
        fit: fit_of(task),
        backward: task.backward(),
        stage,
        verified,
        failure: found.failure,
        integrity: found.integrity,
        checks: found.checks,
        reward,
        times_ms: found.times,
        speedup: found.speedup,
        workloads: Vec::new(),
        floor_ms,
        unavoidable_bytes: known.unavoidable_bytes,
        libraries: Libraries {
            allowed: machine.libraries_for(task).list(),
            used: artifact.map(|a| a.libraries.clone()).unwrap_or_default(),
        },
        kernels: artifact.map(|a| a.kernels.clone()).unwrap_or_default(),
        provenance: found.provenance,
        diagnostics: artifact.map(|a| a.warnings.clone()).unwrap_or_default(),
        isolation: machine.isolation(),
        caveats: found.caveats,
        conditions: found.conditions,
        memory: found.memory,
        seconds: found.seconds,
        fingerprint,
    }
}
