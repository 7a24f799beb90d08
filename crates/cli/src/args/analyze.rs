//! Arguments of `analyze`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `analyze`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze gap rft/checkpoint ppo/checkpoint evals/*.json
  warpwright analyze roofline runs/starter
  warpwright analyze step-times runs/rows-on/ppo/record --episodes 96
  warpwright analyze plot runs/critic critic.svg")]
pub(crate) struct AnalyzeArgs {
    /// The analysis.
    #[command(subcommand)]
    pub(crate) action: AnalyzeAction,
    /// Print one JSON object on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The analyses.
#[derive(Debug, Subcommand)]
pub(crate) enum AnalyzeAction {
    /// Compute how much of the gap to the fastest known kernels a policy closes, from another policy.
    ///
    /// The score of an episode is the log-speed-up of its final kernel over the best baseline, 0 if the
    /// kernel is not verified. A kernel that ended several episodes, of any policy, counts with the mean of
    /// its measurements. The score of a task is the mean over its episodes.
    ///
    /// The fastest known kernel of a task is the fastest final kernel of any policy in any evaluation. All
    /// evaluations need one profile and one kind of hardware. `compare` compares two runs only.
    Gap(GapArgs),
    /// Compare two policies by the best of N episodes per task.
    ///
    /// Of N episodes of a task, the one counts whose kernel was the fastest in the verdicts that the policy
    /// saw. Its speed-up is that of its final kernel, measured afresh, as in `analyze gap`. Each figure is
    /// the mean over all subsets of N episodes. N goes up to the smallest number of episodes of a task.
    BestOf(BestOfArgs),
    /// Merge an evaluation and later runs of some of its tasks into one evaluation.
    ///
    /// The last evaluation that has a task counts for it. All evaluations need one policy, one profile and
    /// one kind of device. With `--json` the command prints an object like that of `eval --json`, which
    /// `gap`, `best-of` and `merge` read. Speed-ups are left out if drivers or versions differ.
    Merge(MergeArgs),
    /// Compare the final kernels of a run with the memory roofline, by task.
    ///
    /// The floor is the time to move every input, parameter and output once. The command prints the time of
    /// the final kernel divided by the floor, and the head-room of the task: the time of its fastest baseline
    /// divided by the floor. A task has room if its head-room is at least 1.1. It is won if the lower bound
    /// of the speed-up over the best baseline is above 1.05.
    #[command(after_help = "\
Examples:
  warpwright analyze roofline runs/starter
  warpwright analyze roofline runs/starter --json")]
    Roofline(RunArgs),
    /// Show the durations of a run's verdicts by deciles of the candidate's call time.
    ///
    /// Only measured verdicts count; copies of earlier verdicts are left out. Seconds are medians.
    #[command(after_help = "\
Examples:
  warpwright analyze verdict-times runs/starter
  warpwright analyze verdict-times runs/starter --json")]
    VerdictTimes(RunArgs),
    /// Split the time of each RL training step: sampling, waiting for verdicts, the last episodes.
    ///
    /// Times are in seconds from the first episode of the step. With `max_staleness` above 0 steps overlap:
    /// a step then takes longer than the interval between steps.
    StepTimes(StepTimesArgs),
    /// Compare the training steps of two runs on the tasks that both trained on.
    ///
    /// The command prints the means of the metrics over every ten steps. Then, for every twenty steps, the
    /// difference of the rewards, second minus first, over tasks that both runs played in these steps. Both
    /// runs need the same `[tasks]` and seed, because a state identifies a task by its number.
    Steps(StepsArgs),
    /// Plot a metric of an experiment's arms by training step: the mean and the range over seeds.
    ///
    /// A run counts when its last RL stage is done. `docs/reference/training-metrics.md` lists the metrics.
    Plot(PlotArgs),
}

/// `analyze gap`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze gap rft/checkpoint ppo/checkpoint evals/*.json
  warpwright analyze gap teacher native runs/teacher runs/native runs/exhaustive --json")]
pub(crate) struct GapArgs {
    /// Policy that the gap begins at: its name in the evaluations, or the end of its name.
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// Policy that closes the gap.
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// Run folders of `eval`, or files with the output of `eval --json`.
    #[arg(value_name = "EVAL", required = true)]
    pub(crate) evaluations: Vec<PathBuf>,
}

/// `analyze best-of`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze best-of rft/checkpoint ppo/checkpoint evals/*.json
  warpwright analyze best-of teacher native runs/teacher runs/native --json")]
pub(crate) struct BestOfArgs {
    /// Policy: its name in the evaluations, or the end of its name.
    #[arg(value_name = "ONE")]
    pub(crate) one: String,
    /// Policy to compare with ONE.
    #[arg(value_name = "OTHER")]
    pub(crate) other: String,
    /// Run folders of `eval`, or files with the output of `eval --json`.
    #[arg(value_name = "EVAL", required = true)]
    pub(crate) evaluations: Vec<PathBuf>,
}

/// `analyze merge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze merge runs/kernelbench runs/kernelbench-again
  warpwright analyze merge first.json later.json --json > merged.json")]
pub(crate) struct MergeArgs {
    /// Run folders of `eval`, or files with the output of `eval --json`; the first run first.
    #[arg(value_name = "EVAL", required = true)]
    pub(crate) evaluations: Vec<PathBuf>,
}

/// `analyze roofline` and `analyze verdict-times`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Run folder: `--out` of `optimize` or `eval`, or `record` of a training stage.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
}

/// `analyze step-times`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze step-times runs/rows-on/ppo/record --episodes 96
  warpwright analyze step-times runs/rows-on/ppo/record --episodes 96 --json")]
pub(crate) struct StepTimesArgs {
    /// Run folder of an RL stage: the folder `record` of the stage, e.g. `OUT/ppo/record`.
    #[arg(value_name = "RUN_DIR")]
    pub(crate) run: PathBuf,
    /// Number of episodes per training step: `train_batch_size` x `rollout_n`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) episodes: u32,
}

/// `analyze steps`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze steps runs/rejection runs/ppo
  warpwright analyze steps a/ppo/checkpoint/state.json b/ppo/checkpoint/state.json --json")]
pub(crate) struct StepsArgs {
    /// Run folder of `train`, or `state.json` or `done.json` of one of its RL stages.
    #[arg(value_name = "FIRST")]
    pub(crate) first: PathBuf,
    /// Run to compare with FIRST: a run folder or such a file too.
    #[arg(value_name = "SECOND")]
    pub(crate) second: PathBuf,
}

/// `analyze plot`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright analyze plot runs/critic critic.svg
  warpwright analyze plot runs/length out.svg --metric response_length/mean --label lambda-1=\"lambda 1\"")]
pub(crate) struct PlotArgs {
    /// Folder of an experiment: `--out` of `experiment`.
    #[arg(value_name = "EXPERIMENT_DIR")]
    pub(crate) experiment: PathBuf,
    /// SVG file to write.
    #[arg(value_name = "SVG")]
    pub(crate) out: PathBuf,
    /// Metric to plot, e.g. `judge/pass_rate`, `judge/faster_rate` or `actor/entropy`.
    #[arg(long, value_name = "METRIC", default_value = "critic/rewards/mean")]
    pub(crate) metric: String,
    /// Text of an arm in the legend; its name by default. May be repeated.
    #[arg(long, value_name = "ARM=TEXT", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(arm, _)| !arm.is_empty());
    let (arm, text) = parts.ok_or_else(|| "expected ARM=TEXT".to_owned())?;
    Ok((arm.to_owned(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_split_at_the_first_equals_sign() {
        let parts = |arm: &str, text: &str| Ok((arm.to_owned(), text.to_owned()));
        assert_eq!(label("lambda-1=lambda = 1"), parts("lambda-1", "lambda = 1"));
        assert!(label("lambda-1").is_err() && label("=text").is_err());
    }
}
