//! One line per episode: what a person wants to know first.

use std::collections::BTreeSet;
use std::fmt::Write;

use warpwright_record::event::Outcome;
use warpwright_record::fit::Fit;
use warpwright_record::history::{Episode, History};
use warpwright_record::interval::Interval;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{
    Dtype, FailureClass, Profile, Reward, Speedup, Stage, Verdict, WorkloadVerdict,
};

use crate::text::one_line;

/// The outcome of one episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Task.
    pub task: String,
    /// Policy.
    pub policy: String,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// The dtype that the task was cast to; `None`: it kept its own.
    pub dtype: Option<Dtype>,
    /// How `--fit` scaled the task down; `None`: it has its own size.
    pub fit: Option<Fit>,
    /// Whether a call computed gradients too.
    pub backward: bool,
    /// Whether the candidate is verified, and if not, why.
    pub standing: Standing,
    /// Whether the episode finished; `false` if it was killed or interrupted, or still runs.
    pub finished: bool,
    /// Milliseconds per call of the candidate.
    pub time_ms: Option<Interval>,
    /// Speed-up over each baseline.
    pub speedup: Speedup,
    /// The same for each workload; empty for a task with one set of inputs.
    pub workloads: Vec<WorkloadVerdict>,
    /// Rewards of the verdict that counts.
    pub reward: Option<Reward>,
    /// Turns taken.
    pub turns: u32,
    /// Why there is no verified candidate; `None` where there is one. One line, harmless to a terminal; it may be the
    /// policy's or the candidate's word.
    pub reason: Option<String>,
}

/// Where and when a run was measured: `recorded on NVIDIA H200 on 2026-11-30`. Without a verdict, the
/// processor stands for the device.
pub fn recorded_on(reader: &RunReader, history: &History) -> String {
    let header = reader.header();
    let measured: BTreeSet<&str> = (history.episodes.values())
        .filter_map(|episode| Some(episode.standing()?.fingerprint.hardware.as_str()))
        .collect();
    let hardware = if measured.is_empty() {
        header.machine.cpu.clone()
    } else {
        measured.into_iter().collect::<Vec<_>>().join(" and ")
    };
    format!("recorded on {hardware} on {}", header.created.strftime("%Y-%m-%d"))
}

/// Characters of [`Summary::reason`] at most.
const REASON_WIDTH: usize = 300;

/// Status of the candidate that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Verified.
    Verified,
    /// Failed, with this class of failure.
    Failed(FailureClass),
    /// Rejected by an integrity finding.
    Dishonest,
    /// Built, but not verified against the reference.
    NotCompared,
    /// There is no verdict.
    NoVerdict,
    /// An infrastructure error ended the episode.
    Infrastructure,
}

impl Standing {
    /// The status in one verdict.
    pub fn of(verdict: &Verdict) -> Self {
        match &verdict.failure {
            _ if verdict.verified => Self::Verified,
            _ if !verdict.integrity.is_empty() => Self::Dishonest,
            Some(failure) => Self::Failed(failure.class),
            None if verdict.stage == Stage::Built => Self::NotCompared,
            None => Self::NoVerdict,
        }
    }

    /// Label for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Failed(class) => class_words(class),
            Self::Dishonest => "integrity finding",
            Self::NotCompared => "built, not compared",
            Self::NoVerdict => "no verdict",
            Self::Infrastructure => "infrastructure error",
        }
    }
}

/// A class of failure in words.
pub(crate) fn class_words(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Build => "does not build",
        FailureClass::ForbiddenImport => "forbidden import",
        FailureClass::ForbiddenCall => "forbidden call",
        FailureClass::Load => "does not load",
        FailureClass::StateDict => "state_dict does not fit",
        FailureClass::Exception => "raised an exception",
        FailureClass::Launch => "launch failed",
        FailureClass::IllegalAddress => "illegal address",
        FailureClass::OutOfResources => "out of resources",
        FailureClass::OutOfMemory => "out of memory",
        FailureClass::Hang => "hangs",
        FailureClass::Crash => "crashed",
        FailureClass::Shape => "wrong shape, dtype or place",
        FailureClass::NonFinite => "not finite",
        FailureClass::Mismatch => "wrong values",
        FailureClass::MutatedInput => "changed its inputs",
        FailureClass::NotRecordable => "cannot be recorded",
        FailureClass::Integrity => "integrity finding",
    }
}

impl Summary {
    /// Summarises one episode.
    pub fn of(episode: &Episode) -> Self {
        let verdict = episode.standing();
        let end = episode.end.as_ref();
        let broken = end.is_some_and(|end| matches!(end.outcome, Outcome::Infrastructure { .. }));
        let standing = match verdict {
            Some(verdict) if verdict.verified => Standing::Verified,
            _ if broken => Standing::Infrastructure,
            Some(verdict) => Standing::of(verdict),
            None => Standing::NoVerdict,
        };
        let setup = &episode.setup;
        Self {
            task: setup.task.clone(),
            policy: setup.policy.clone(),
            device: setup.device.clone(),
            profile: setup.profile,
            dtype: setup.dtype,
            fit: setup.fit.clone(),
            backward: setup.backward,
            standing,
            finished: end.is_some_and(|end| end.outcome != Outcome::Interrupted) && !broken,
            time_ms: verdict.and_then(|v| v.times_ms.candidate),
            speedup: verdict.map(|v| v.speedup.clone()).unwrap_or_default(),
            workloads: verdict.map(|v| v.workloads.clone()).unwrap_or_default(),
            reward: verdict.map(|v| v.reward),
            turns: end.map_or(episode.turns.len() as u32, |end| end.turns),
            reason: (standing != Standing::Verified).then(|| why_not(episode, verdict)),
        }
    }

    /// The task, with the dtype that it was cast to, and how it was scaled down, and whether it has gradients.
    pub fn task_and_variant(&self) -> String {
        let mut task = one_line(&self.task, 60);
        if let Some(dtype) = self.dtype {
            let _ = write!(task, " ({dtype})");
        }
        if let Some(fit) = &self.fit {
            let _ = write!(task, " ({})", one_line(&fit.to_string(), 60));
        }
        if self.backward {
            task.push_str(" (backward)");
        }
        task
    }

    /// Summarises every episode of a run, in order.
    pub fn all(history: &History) -> Vec<Self> {
        history.episodes.values().map(Self::of).collect()
    }

    /// `verified` or the failure, with `, unfinished` if the episode did not finish.
    pub fn result(&self) -> String {
        let words = self.standing.words();
        let over = self.finished || self.standing == Standing::Infrastructure;
        if over { words.to_owned() } else { format!("{words}, unfinished") }
    }
}

/// Why an episode has no verified candidate: the verdict's reason; without a verdict, how the episode ended and what the
/// policy said last.
fn why_not(episode: &Episode, verdict: Option<&Verdict>) -> String {
    let finding = verdict.and_then(|v| Some(v.integrity.first()?.message.as_str()));
    let failure = verdict.and_then(|v| Some(v.failure.as_ref()?.message.as_str()));
    let outcome = episode.end.as_ref().map_or(&Outcome::Interrupted, |end| &end.outcome);
    let reason = match (finding.or(failure), outcome) {
        (Some(reason), _) => reason.to_owned(),
        (None, Outcome::Infrastructure { message }) => message.clone(),
        (None, outcome) => {
            let last = episode.turns.last().map_or("", |turn| turn.message.text.as_str());
            match one_line(last, REASON_WIDTH).as_str() {
                "" => format!("no candidate was judged: {}", outcome.words()),
                said => format!("{}: {said}", outcome.words()),
            }
        }
    };
    one_line(&reason, REASON_WIDTH)
}

/// A baseline's name as people call it; the keys are those of the verdict's JSON.
pub(crate) fn baseline_name(key: &str) -> String {
    match key {
        "compile" => "torch.compile".to_owned(),
        "reduce_overhead" => "reduce-overhead".to_owned(),
        "max_autotune" => "max-autotune".to_owned(),
        other => other.to_owned(),
    }
}
