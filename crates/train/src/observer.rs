//! What happens in training, for the program that shows it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use warpwright_judge::Used;
use warpwright_learn::fit::Epoch;
use warpwright_learn::monitor::Alarm;
use warpwright_learn::online::Back;
use warpwright_learn::run_monitor::Update;
use warpwright_report::evaluation::Evaluation;
use warpwright_report::evaluation::gap::Gap;

use crate::error::TrainError;
use crate::stage::Stage;

/// Sees what happens in training, from any of its threads.
pub trait Observer: Send + Sync {
    /// Something happened. Training waits until this returns.
    fn observe(&self, event: &TrainEvent<'_>);
}

/// Something that happened.
#[derive(Debug)]
pub enum TrainEvent<'a> {
    /// The inputs of the run in this folder are complete; its stages begin.
    Begun(&'a Path),
    /// A stage was already done.
    AlreadyDone(Stage),
    /// A stage ended.
    Ended {
        /// The stage.
        stage: Stage,
        /// Its duration in this process.
        took: Duration,
        /// Whether it is done; otherwise it was interrupted or failed.
        is_done: bool,
    },
    /// How a stage used a device.
    DeviceUse {
        /// `cuda:N` or `cpu`.
        device: String,
        /// Time per purpose.
        used: &'a Used,
        /// Duration of the stage.
        of: Duration,
    },
    /// The verdicts of all stages.
    Verdicts {
        /// Number of measured candidates.
        measured: u64,
        /// Number of verdicts from the verdict cache.
        cached: u64,
    },
    /// An episode ended.
    Episodes {
        /// Name of the stage, or of the evaluated policy.
        name: &'a str,
        /// Number of ended episodes.
        done: usize,
        /// Number of all episodes.
        of: usize,
    },
    /// A reference was traced for stage `pretrain`.
    Traced {
        /// Number of traced references.
        done: usize,
        /// Number of all references.
        of: usize,
    },
    /// The tokenizer is trained next.
    TrainingTokenizer,
    /// The texts of stage `pretrain`.
    Corpus {
        /// Number of tasks.
        tasks: usize,
        /// Number of kernels.
        kernels: usize,
        /// Number of their tokens.
        kernel_tokens: usize,
        /// Number of tokens of source code.
        source_tokens: usize,
        /// Number of kernels that are longer than the model's context and left out.
        too_long: usize,
        /// Numbers of tasks without kernels, by reason.
        without: &'a BTreeMap<String, usize>,
    },
    /// The demonstrations of stage `sft`.
    Demonstrations {
        /// Number of demonstrations that are trained on.
        count: usize,
        /// Number of their tokens.
        tokens: usize,
        /// Tokens of the longest demonstration, also of one that is left out.
        longest: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
        /// Number of demonstrations that are longer than the model's context and left out.
        left_out: usize,
        /// The model's context in tokens.
        positions: usize,
    },
    /// The episodes that rejection fine-tuning trains on.
    Selected {
        /// Number of these episodes.
        kept: usize,
        /// Number of collected episodes.
        of: usize,
        /// Numbers of the others by reason.
        left_out: &'a BTreeMap<String, usize>,
    },
    /// A step of an epoch is done.
    Steps {
        /// The stage.
        stage: Stage,
        /// Number of the epoch, from 0.
        epoch: u32,
        /// Steps that are done.
        made: usize,
        /// Steps of an epoch.
        of: usize,
    },
    /// An epoch is done.
    Epoch(Stage, &'a Epoch),
    /// A training step of reinforcement learning is done.
    Update {
        /// The stage.
        stage: Stage,
        /// The step.
        update: &'a Update,
        /// Number of the stage's training steps.
        of: u32,
    },
    /// An alarm discarded training steps.
    RolledBack(Stage, Back),
    /// An alarm ended a stage.
    Halted {
        /// The stage.
        stage: Stage,
        /// Training steps that are done.
        made: usize,
        /// Training steps of the stage.
        of: u32,
        /// The alarm.
        alarm: Alarm,
    },
    /// The results of a policy on the held-out tasks.
    Evaluated {
        /// Its name in the evaluation.
        name: &'a str,
        /// The results.
        evaluation: &'a Evaluation,
    },
    /// How far one policy closed the gap that another one left.
    Gap {
        /// The two policies.
        name: &'a str,
        /// The gap.
        gap: &'a Gap,
    },
    /// A run of an experiment begins.
    Arm {
        /// The arm's name.
        name: &'a str,
        /// The run's seed.
        seed: u64,
        /// Number of the run, from 1.
        number: usize,
        /// Number of all runs.
        of: usize,
    },
    /// A run of an experiment failed for good.
    ArmFailed(&'a TrainError),
    /// A checkpoint has no optimizer state, which starts at zero.
    NoOptimizerState(&'a Path),
    /// The metrics of a step were not written for TensorBoard.
    MetricsNotWritten(&'a std::io::Error),
    /// The report page was not written.
    ReportNotWritten(&'a TrainError),
    /// A line from the parts below, such as a warning about a task.
    Notice(&'a str),
}
