//! The event enum: everything that happens in a run, in the order in which it happens. Display,
//! report, metrics, resumption and training are consumers of this one stream.
//!
//! Rules for changing it: fields may be added with `#[serde(default)]`; a variant added, or a
//! meaning changed, raises [`crate::run::FORMAT_VERSION`].

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::blob::BlobHash;
use crate::fit::Fit;
use crate::message::{Message, ToolResult};
use crate::verdict::{Dtype, Profile, Verdict};
use crate::void::VoidTurns;

/// One line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// [`crate::run::FORMAT_VERSION`] of the writer of this line.
    pub version: u32,
    /// 0 for the first line, then one more each.
    pub seq: u64,
    /// When it was appended.
    pub time: jiff::Timestamp,
    /// What happened.
    pub event: Event,
}

/// Number of an episode within its run, from 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct EpisodeId(pub u32);

impl fmt::Display for EpisodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Memory of a device that a task needs and that a judge may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TooLarge {
    /// Bytes that the task needs at least, if that is known.
    pub needed_bytes: Option<u64>,
    /// Bytes that the judge may use.
    pub available_bytes: u64,
}

/// What happened. Turns count from 1 within an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "events are written or read one at a time")]
pub enum Event {
    /// Always the first event.
    RunStarted {
        /// Version of the program that began the run.
        program: String,
        /// The command line, for people.
        command: String,
    },
    /// A later process took the run up again.
    RunResumed {
        /// Version of that program.
        program: String,
        /// Whether the user insisted although the versions differ.
        forced: bool,
        /// Bytes of a half-written last event that were dropped.
        torn_bytes: u64,
    },
    /// A policy begins to work on a task.
    EpisodeStarted {
        /// Number within the run.
        episode: EpisodeId,
        /// What it works on and under which rules.
        setup: EpisodeSetup,
    },
    /// The episode goes on in another process. Whatever was recorded of `turn` and later turns
    /// before this event, and an outcome, are superseded.
    EpisodeResumed {
        /// The episode.
        episode: EpisodeId,
        /// The first turn that will be taken anew.
        turn: u32,
    },
    /// The policy answered.
    MessageSaid {
        /// The episode.
        episode: EpisodeId,
        /// The turn this message begins.
        turn: u32,
        /// Text and calls.
        message: Message,
        /// Seconds the policy took.
        seconds: f64,
    },
    /// A call of this turn's message came to its end. Results come in the order of the calls.
    ToolFinished {
        /// The episode.
        episode: EpisodeId,
        /// The turn.
        turn: u32,
        /// What it came to.
        result: ToolResult,
        /// Seconds the tool took.
        seconds: f64,
    },
    /// The judge gave a verdict. One that a tool call caused also appears in that call's result;
    /// this event is the one to count.
    VerdictGiven {
        /// The episode.
        episode: EpisodeId,
        /// The turn whose tool call asked for it; absent for the final, fresh one.
        turn: Option<u32>,
        /// The verdict; its `stage` says how far judging was asked to go.
        verdict: Box<Verdict>,
        /// The candidate's files, so that every judged candidate is archived.
        files: Vec<StoredFile>,
    },
    /// Verdicts that were given before do not count any more.
    VerdictsVoided {
        /// Which.
        voided: VoidTurns,
    },
    /// A turn is over. The episode can be resumed from here.
    TurnFinished {
        /// The episode.
        episode: EpisodeId,
        /// The turn.
        turn: u32,
        /// The workspace's writable files at this moment.
        files: Vec<StoredFile>,
        /// Seconds of the episode's time budget used so far, over all processes.
        elapsed_seconds: f64,
    },
    /// The episode is over. With outcome `interrupted` or `infrastructure` it may be resumed.
    EpisodeFinished {
        /// The episode.
        episode: EpisodeId,
        /// Why it ended.
        outcome: Outcome,
        /// The fresh verdict on the final candidate, if there was one.
        final_verdict: Option<Box<Verdict>>,
        /// The best verdict given on the way: by `reward.speedup`, then the newest.
        best_verdict: Option<Box<Verdict>>,
        /// The final candidate.
        candidate: Option<StoredCandidate>,
        /// Turns taken.
        turns: u32,
        /// Seconds used, over all processes.
        seconds: f64,
    },
    /// A task cannot be judged against; no policy works on it.
    TaskRefused {
        /// The task's name.
        task: String,
        /// Why.
        message: String,
        /// What its author can do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// Where it could be judged, and there is nothing to earn on it: the reasons, a word each. See
        /// `warpwright task lint`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        degenerate: Vec<String>,
        /// Where a device with more memory could judge it: what it needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        too_large: Option<TooLarge>,
    },
    /// What is being done now, for displays. Says nothing that other events do not say.
    Progress {
        /// The episode, if it is about one.
        episode: Option<EpisodeId>,
        /// E.g. `compiling the baselines`.
        text: String,
    },
    /// Something a reader of the record should know.
    Note {
        /// The episode, if it is about one.
        episode: Option<EpisodeId>,
        /// How serious.
        level: NoteLevel,
        /// One or two sentences.
        text: String,
    },
    /// The last event of a run that ended on its own terms.
    RunFinished {
        /// How.
        outcome: RunOutcome,
    },
}

impl Event {
    /// The variant's name as in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "run_started",
            Self::RunResumed { .. } => "run_resumed",
            Self::EpisodeStarted { .. } => "episode_started",
            Self::EpisodeResumed { .. } => "episode_resumed",
            Self::MessageSaid { .. } => "message_said",
            Self::ToolFinished { .. } => "tool_finished",
            Self::VerdictGiven { .. } => "verdict_given",
            Self::VerdictsVoided { .. } => "verdicts_voided",
            Self::TurnFinished { .. } => "turn_finished",
            Self::EpisodeFinished { .. } => "episode_finished",
            Self::TaskRefused { .. } => "task_refused",
            Self::Progress { .. } => "progress",
            Self::Note { .. } => "note",
            Self::RunFinished { .. } => "run_finished",
        }
    }

    /// The episode it is about.
    pub fn episode(&self) -> Option<EpisodeId> {
        match self {
            Self::RunStarted { .. }
            | Self::RunResumed { .. }
            | Self::TaskRefused { .. }
            | Self::VerdictsVoided { .. }
            | Self::RunFinished { .. } => None,
            Self::EpisodeStarted { episode, .. }
            | Self::EpisodeResumed { episode, .. }
            | Self::MessageSaid { episode, .. }
            | Self::ToolFinished { episode, .. }
            | Self::VerdictGiven { episode, .. }
            | Self::TurnFinished { episode, .. }
            | Self::EpisodeFinished { episode, .. } => Some(*episode),
            Self::Progress { episode, .. } | Self::Note { episode, .. } => *episode,
        }
    }

    /// The turn it belongs to.
    pub fn turn(&self) -> Option<u32> {
        match self {
            Self::EpisodeResumed { turn, .. }
            | Self::MessageSaid { turn, .. }
            | Self::ToolFinished { turn, .. }
            | Self::TurnFinished { turn, .. } => Some(*turn),
            Self::VerdictGiven { turn, .. } => *turn,
            _ => None,
        }
    }
}

/// What an episode works on and under which rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EpisodeSetup {
    /// The task's name.
    pub task: String,
    /// The reference's source.
    pub source: BlobHash,
    /// What the policy saw of it, where workloads are held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<BlobHash>,
    /// What the policy was told: the skill text for this device.
    pub skill: Option<BlobHash>,
    /// Name of the policy, e.g. `teacher`.
    pub policy: String,
    /// `cuda:N` or `cpu`.
    pub device: String,
    /// Policy of precision and comparison.
    pub profile: Profile,
    /// The dtype that reference, candidate and floating inputs are cast to; `None`: they keep their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// How `--fit` scaled the task down; `None`: it has its own size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<Fit>,
    /// Whether a call computes gradients too: forward, then backward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backward: bool,
    /// Seed of the episode.
    pub seed: u64,
    /// Number among the episodes of the same policy on the same task, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// The part of the suite the task belongs to, e.g. `level2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// When it ends at the latest.
    pub budget: Budget,
}

impl EpisodeSetup {
    /// The reference's source as the policy saw it.
    pub fn reference(&self) -> BlobHash {
        self.shown.unwrap_or(self.source)
    }
}

/// Limits of an episode; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Most turns.
    pub turns: Option<u32>,
    /// Most wall seconds, over all processes.
    pub seconds: Option<f64>,
    /// Most tokens a model may read and write, summed over all messages.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Most seconds of the device's time that judging may take.
    #[serde(default)]
    pub device_seconds: Option<f64>,
}

/// A file by name and content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredFile {
    /// Relative to the workspace, with `/`.
    pub path: String,
    /// Its bytes, in `blobs/`.
    pub blob: BlobHash,
}

/// A candidate whose files are in `blobs/`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredCandidate {
    /// As in [`Verdict::candidate`].
    pub hash: String,
    /// Its files, sorted by path.
    pub files: Vec<StoredFile>,
}

/// Why an episode ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// The policy made no further call.
    Stopped,
    /// The turns ran out.
    BudgetTurns,
    /// The time ran out.
    BudgetTime,
    /// The tokens ran out.
    BudgetTokens,
    /// The device's time ran out.
    BudgetDevice,
    /// The same calls with the same results, again and again.
    Looping,
    /// The model or its server declined to answer.
    Refused,
    /// The user interrupted; it can be resumed.
    Interrupted,
    /// Our own failure; never a reward.
    Infrastructure {
        /// What failed.
        message: String,
    },
}

impl Outcome {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::BudgetTurns => "budget_turns",
            Self::BudgetTime => "budget_time",
            Self::BudgetTokens => "budget_tokens",
            Self::BudgetDevice => "budget_device",
            Self::Looping => "looping",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::Infrastructure { .. } => "infrastructure",
        }
    }

    /// For people.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Stopped => "the policy stopped",
            Self::BudgetTurns => "out of turns",
            Self::BudgetTime => "out of time",
            Self::BudgetTokens => "out of tokens",
            Self::BudgetDevice => "out of device time",
            Self::Looping => "going round in circles",
            Self::Refused => "the model declined to answer",
            Self::Interrupted => "interrupted",
            Self::Infrastructure { .. } => "infrastructure error",
        }
    }

    /// Whether the episode can be taken up again: it ended for no reason of its own.
    pub fn is_resumable(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Infrastructure { .. })
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything asked for was done.
    Completed,
    /// The user interrupted; it can be resumed.
    Interrupted,
    /// It could not go on.
    Failed {
        /// Why.
        message: String,
    },
}

/// How serious a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoteLevel {
    /// Worth knowing.
    Info,
    /// Something was weaker than it should be.
    Warning,
}
