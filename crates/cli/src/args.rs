//! Argument types of the command line. Help, man pages and completions are generated from them.
//! The first paragraph of a doc comment is what `-h` prints; `--help` prints all of them.

pub(crate) mod analyze;
pub(crate) mod bench;
pub(crate) mod compose;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod extract;
#[cfg(test)]
mod reference;
pub(crate) mod rejudge;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod serve;
pub(crate) mod shard;
pub(crate) mod synth;
pub(crate) mod task;
pub(crate) mod train;
pub(crate) mod trajectory;
mod values;
pub(crate) mod watch;
pub(crate) mod worker;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use warpwright_record::libraries::LibrarySet;
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_rollout::environment;

use self::shard::Shard;
use self::values::positive;
pub(crate) use self::values::{
    BaselinesArg, Bytes, DtypeArg, IsolationArg, ProfileArg, StageArg, TierArg,
};

/// Makes PyTorch modules faster with verified CUDA kernels.
#[derive(Debug, Parser)]
#[command(
    name = "warpwright",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  warpwright doctor
  warpwright optimize model.py
  warpwright judge model.py --candidate workspace/
  warpwright eval --suite suites/starter

Exit codes: 0 success; 2 usage error; 3 not verified; 4 infrastructure failure;
5 isolation not available; 6 record of another version; 7 disk full; 130 interrupted.
`-h` prints a summary of the options of a command, `--help` the details."
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Optimise PyTorch modules: a policy writes kernels, the judge verifies and times them.
    ///
    /// A task is a Python file in KernelBench form: a class `Model`, a function `get_inputs()` and, where
    /// the constructor of `Model` takes arguments, a function `get_init_inputs()`. Folders, .jsonl files
    /// and .parquet files hold several tasks.
    ///
    /// The judge measures the final candidate of each episode afresh. With several attempts or policies,
    /// the command reports the best one.
    ///
    /// Exits with 0 when every task has a verified kernel and with 3 when a task has none.
    /// `docs/guides/optimise-a-module.md` is a walk-through.
    Optimize(Optimize),
    /// Evaluate policies on a suite of tasks: pass rates and speed-ups.
    ///
    /// Each figure is computed from the final candidate of each episode, which the judge measures afresh.
    /// The tables also show the best-of-trajectory figures. One run has one profile.
    ///
    /// Exits with 0 when the policies worked on every task, whatever the figures are.
    /// `docs/reference/evaluation-metrics.md` defines each figure.
    Eval(Eval),
    /// Verify one candidate against its task, and time it.
    ///
    /// Exits with 0 when the candidate is verified and with 3 when it is not. With `--stage built` it
    /// exits with 0 when the candidate builds.
    Judge(JudgeArgs),
    /// Verify and time again what a verdict of the device tier was given on: its launch plan.
    ///
    /// The plan was stored with the verdict. It is launched without the candidate's host code, with fresh
    /// inputs. The command prints the figures of the verdict and of the replay, and whether they differ by
    /// no more than noise allows.
    ///
    /// Exits with 0 when the candidate is verified and with 3 when it is not.
    Replay(replay::ReplayArgs),
    /// Write verified kernels as a Python package of torch operators.
    ///
    /// RUN is a run folder, or the JSON of `judge --json`. The package has modules that replace the references: they
    /// launch the plan that was judged on the shapes that were judged, and call the reference otherwise. Its host code
    /// is generated from the plan; of the candidate's own host code it has nothing.
    ///
    /// Exits with 0 when the package was written, and with 2 when a verdict cannot be exported.
    /// `docs/guides/deploy-a-kernel.md` is a walk-through.
    Export(export::ExportArgs),
    /// Judge the final candidates of earlier runs again, by today's rules.
    ///
    /// RUN is a run folder of `optimize`, `eval`, `judge --out` or `train`, or the folder `record` of one
    /// stage of `train`. The judge verifies and measures each final candidate afresh, with the profile, the
    /// seed and the baselines of the run. The command writes a new run folder, which `report`, `compare` and
    /// `analyze` read, and says which verdicts changed and why. The earlier run gets a file `rejudged.json`:
    /// its reports say from then on which of its figures no longer hold.
    ///
    /// Times are compared where hardware, driver, torch, compiler and tier are the same, and never on the cpu
    /// device.
    ///
    /// Running the same command again resumes it. Exits with 0 when every candidate was judged, whatever
    /// the verdicts are.
    Rejudge(rejudge::RejudgeArgs),
    /// Print the results of runs as a table and write them as an HTML page.
    ///
    /// For a single run of `eval` or `train`, the page shows the evaluation or the training metrics.
    Report(Report),
    /// Compare two runs of `eval`, task by task.
    ///
    /// Exits with 2 when the runs cannot be compared: their devices or profiles differ, or they have no
    /// task in common.
    Compare(trajectory::Compare),
    /// Analyse evaluations and training runs: gap closed, best of N, roofline, times, plots.
    ///
    /// Each analysis reads run folders or files and prints a table. None needs Python, torch or a device.
    Analyze(analyze::AnalyzeArgs),
    /// Show episodes as conversations, or export them as training data.
    Trajectory(trajectory::Trajectory),
    /// Check this machine: what works, what is missing, and the command that fixes it.
    ///
    /// Exits with 0 when the machine can judge and with 4 when it cannot.
    Doctor(Doctor),
    /// Synthesise training tasks: compose them, try them in the judge, keep the sound ones.
    ///
    /// The composer builds each task from the catalogue of operators, or asks a model for it. A task is
    /// kept when it passes the checks of `task lint`, when one eager call takes a time inside
    /// `--runtime-range`, and when it is no copy of a task of the given suites or of the data set.
    ///
    /// Running the same command again resumes it. Next to the data set the command writes a log of all
    /// proposals with the reason of each refusal, and a card that describes the data set.
    Synth(synth::SynthArgs),
    /// Lint, show and compose tasks, or remove them from a data set.
    Task(task::TaskArgs),
    /// Train a policy: pretraining, supervised fine-tuning, RL on the judge's measurements.
    Train(train::TrainArgs),
    /// Compare training configurations: several arms, several seeds each, the same budget.
    Experiment(experiment::ExperimentArgs),
    /// Show the live metrics of a training run in this terminal.
    ///
    /// `watch` reads the run folder every second. The run may be in progress in another terminal,
    /// finished or stopped. The left and right arrow keys select a stage; `q` quits. When standard output
    /// is not a terminal, `watch` prints one frame as text. `warpwright report` writes an HTML page.
    Watch(watch::WatchArgs),
    /// Serve the judge over HTTP.
    ///
    /// The root URL, e.g. `http://127.0.0.1:8000/`, is a dashboard. `GET /openapi.json` describes the API.
    ///
    /// On the first interrupt the server finishes the requests that it has accepted, for at most
    /// `--drain` seconds. A second interrupt ends it at once. `docs/reference/http-api.md` and
    /// `docs/guides/run-a-judge-fleet.md` have more.
    Serve(serve::ServeArgs),
    /// Judge candidates on this host for a server on another host, over NATS.
    ///
    /// The worker and the `warpwright serve` of its fleet must have the same version, profile, baselines,
    /// seed, isolation, `--require-tier` and hardware. When one of them differs, the server refuses the
    /// worker, and the worker exits.
    ///
    /// On the first interrupt the worker finishes the candidates that it has begun. A second interrupt
    /// ends it at once. `docs/guides/run-a-judge-fleet.md` has more.
    Worker(worker::WorkerArgs),
    /// Benchmark the judge on this machine: latency, throughput, serving overhead.
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Write man pages into a folder.
    #[command(hide = true)]
    Man(Man),
}

impl Command {
    /// Whether the command prints one JSON object on stdout.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Self::Optimize(args) => args.common.host.json,
            Self::Eval(args) => args.common.host.json,
            Self::Judge(args) => args.common.host.json,
            Self::Replay(args) => args.host.json,
            Self::Export(args) => args.json,
            Self::Rejudge(args) => args.json,
            Self::Report(args) => args.json,
            Self::Compare(args) => args.json,
            Self::Analyze(args) => args.json,
            Self::Trajectory(args) => match &args.action {
                trajectory::TrajectoryAction::Show(args) => args.json,
                trajectory::TrajectoryAction::Export(args) => args.json,
            },
            Self::Doctor(args) => args.json,
            Self::Synth(args) => args.common.host.json,
            Self::Task(args) => args.wants_json(),
            Self::Train(args) => args.common.host.json,
            Self::Experiment(args) => args.common.host.json,
            Self::Serve(args) => args.common.host.json,
            Self::Worker(args) => args.common.host.json,
            Self::Bench(args) => args.wants_json(),
            Self::Watch(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

/// `optimize`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright optimize model.py
  warpwright optimize examples/ --out runs/examples --max-minutes 10
  warpwright optimize model.py --backward
  warpwright optimize model.py --attempts 4 --jobs 4 --device cuda:0
  warpwright optimize examples/workloads/rms_norm.py --held-out-shapes 1
  warpwright optimize --model model.py:build --inputs inputs.py --separate
  warpwright optimize --resume runs/examples")]
pub(crate) struct Optimize {
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::AsRun)]
    pub(crate) profile: ProfileArg,
    /// Halve the batch dimension of a task that is too large for the device until it fits.
    ///
    /// The batch dimension is the first of the tensors that `get_inputs` makes, if it is a constant with a name, such
    /// as `batch_size = 4096`. The result is another task: verdicts, tables and the agent's `model.py` name both
    /// sizes, and figures of it are never combined with those of full size. By default such a task is refused.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) fit: bool,
    /// Cast parameters, buffers and floating inputs of reference and candidate to this dtype.
    ///
    /// Truth is then the float64 result for the cast values, as for any half-precision task. The agent's
    /// `model.py` shows the cast. A reference that fails under it is refused. Figures of different dtypes
    /// are never combined.
    #[arg(long, value_enum, conflicts_with = "resume")]
    pub(crate) dtype: Option<DtypeArg>,
    /// Judge forward and backward: a call computes the outputs, and then the gradients of inputs and parameters.
    ///
    /// `ModelNew` has a method `backward(*grad_outputs)`. Autograd is the reference and the baseline. A task
    /// whose source sets `backward = True` needs no option. Figures with and without it are never combined.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) backward: bool,
    /// A whole model instead of tasks.
    #[command(flatten)]
    pub(crate) whole: extract::ModelArgs,
    /// Policies, attempts and limits of episodes.
    #[command(flatten)]
    pub(crate) episodes: Episodes,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// `eval`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright eval --suite suites/starter --policy teacher
  warpwright eval --suite KernelBench/KernelBench --levels 1,2 --device cuda:0,cuda:1
  warpwright eval --suite tasks.parquet --profile tf32 --attempts 3
  warpwright eval --suite suites/starter --dtype bf16
  warpwright eval --suite KernelBench/KernelBench --fit --memory-limit 24GiB
  warpwright eval --suite suites/starter --backward
  warpwright eval --resume runs/starter")]
pub(crate) struct Eval {
    /// Suite of tasks; the same as a positional TASK. May be repeated.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) suite: Vec<PathBuf>,
    /// Evaluate only tasks of these levels, e.g. `1,3`.
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', conflicts_with = "resume")]
    pub(crate) levels: Vec<u8>,
    /// Evaluate only shard K of N, e.g. `2/4`: splits a suite over several machines.
    ///
    /// Shard K has the tasks K, K+N, K+2N, ... of the suite, so that each shard has tasks of every level.
    #[arg(long, value_name = "K/N", value_parser = shard::parse, conflicts_with = "resume")]
    pub(crate) shard: Option<Shard>,
    /// Evaluate degenerate tasks too, and count them.
    ///
    /// On a degenerate task no reward can be earned, for example because its output is constant or does
    /// not depend on its inputs. Without this option, `eval` lists such tasks separately and no policy
    /// works on them.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) include_degenerate: bool,
    /// Also write the rows to this .jsonl, .parquet or .html file. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Vec<PathBuf>,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Halve the batch dimension of a task that is too large for the device until it fits.
    ///
    /// The batch dimension is the first of the tensors that `get_inputs` makes, if it is a constant with a name, such
    /// as `batch_size = 4096`. The result is another task: verdicts, tables and the agent's `model.py` name both
    /// sizes, and figures of it are never combined with those of full size. By default such a task is refused.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) fit: bool,
    /// Cast parameters, buffers and floating inputs of reference and candidate to this dtype.
    ///
    /// Truth is then the float64 result for the cast values, as for any half-precision task. The agent's
    /// `model.py` shows the cast. A reference that fails under it is refused. Figures of different dtypes
    /// are never combined.
    #[arg(long, value_enum, conflicts_with = "resume")]
    pub(crate) dtype: Option<DtypeArg>,
    /// Judge forward and backward: a call computes the outputs, and then the gradients of inputs and parameters.
    ///
    /// `ModelNew` has a method `backward(*grad_outputs)`. Autograd is the reference and the baseline. A task
    /// whose source sets `backward = True` needs no option. Figures with and without it are never combined.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) backward: bool,
    /// Policies, attempts and limits of episodes.
    #[command(flatten)]
    pub(crate) episodes: Episodes,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of the commands that run episodes.
#[derive(Args, Debug)]
pub(crate) struct Episodes {
    /// Tasks: .py, .jsonl or .parquet files, or folders of .py files.
    #[arg(value_name = "TASK", conflicts_with = "resume")]
    pub(crate) tasks: Vec<PathBuf>,
    /// Hold out N workloads of each task from the agent; the final candidate is judged on them too.
    ///
    /// The workloads are those of `get_workloads` in the task. The seed of the run draws the N. The agent's
    /// `model.py` does not have them, and no verdict during the episode is about them. Each task needs more
    /// than N workloads, and literals as defaults of `get_inputs`.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "resume")]
    pub(crate) held_out_shapes: usize,
    /// Policy that writes the kernels. May be repeated; each policy works on every task.
    ///
    /// `teacher`: the built-in policy.
    ///
    /// `teacher:exhaustive`: the built-in policy; it measures every version that it can write. Raise
    /// `--max-turns` with it.
    ///
    /// `openai:MODEL` (chat completions), `responses:MODEL`, `anthropic:MODEL`: a model behind an HTTP
    /// endpoint.
    ///
    /// `native`: the small model that comes with the program. The built-in policy takes the tasks with
    /// operators that this model was not trained on, and the tasks where it ends without a verified
    /// kernel.
    ///
    /// `native:CHECKPOINT`: a checkpoint of `train`, or a chat model of the Qwen3 family.
    ///
    /// `replay:RUN_DIR`: the recorded messages of an earlier run.
    #[arg(long, value_name = "POLICY", default_value = "teacher")]
    pub(crate) policy: Vec<String>,
    /// Run folder; by default a new folder under `warpwright-runs/`.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Resume the run in this folder, with the settings that it was started with.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "max_turns", "max_minutes"],
        conflicts_with_all = self::remote::OPTIONS)]
    pub(crate) resume: Option<PathBuf>,
    /// Skill template: the instructions in the prompt, instead of the built-in ones.
    ///
    /// `docs/concepts/agent.md` lists the placeholders of a template.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) skill: Option<PathBuf>,
    /// With `--resume`: also resume a run that another version of the program wrote.
    #[arg(long, requires = "resume")]
    pub(crate) force: bool,
    /// Number of episodes per policy and task; each episode has its own seed.
    #[arg(long, value_name = "K", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,
    /// Number of concurrent episodes; by default 4 per GPU, 1 on the cpu device.
    ///
    /// Each device runs at least one episode. Measurements on one device never overlap.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) jobs: Option<u32>,
    /// Maximum turns per episode; by default 150 with `optimize`, 200 with `eval`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Maximum minutes per episode, without its final measurement; no limit by default.
    #[arg(long, value_name = "MINUTES", value_parser = positive)]
    pub(crate) max_minutes: Option<f64>,
    /// Maximum tokens that a model may read and write per episode; no limit by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Maximum minutes of device time that judging may use per episode; no limit by default.
    #[arg(long, value_name = "MINUTES", value_parser = positive)]
    pub(crate) max_device_minutes: Option<f64>,
    /// Options of models behind an endpoint.
    #[command(flatten)]
    pub(crate) remote: self::remote::PolicyArgs,
}

/// `judge`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright judge model.py --candidate workspace/
  warpwright judge model.py --candidate model_new.py --profile paper --json
  warpwright judge model.py --candidate workspace/ --backward
  warpwright judge model.py --candidate workspace/ --server http://127.0.0.1:8000")]
pub(crate) struct JudgeArgs {
    /// Task: one .py file.
    #[arg(value_name = "TASK")]
    pub(crate) task: PathBuf,
    /// Candidate: a workspace folder with model_new.py, or one Python file with `ModelNew`.
    #[arg(long, value_name = "DIR_OR_FILE")]
    pub(crate) candidate: PathBuf,
    /// Last stage to run.
    #[arg(long, value_enum, default_value_t = StageArg::Measured)]
    pub(crate) stage: StageArg,
    /// Precision and comparison rules.
    #[arg(long, value_enum, default_value_t = ProfileArg::Strict)]
    pub(crate) profile: ProfileArg,
    /// Halve the batch dimension of a task that is too large for the device until it fits.
    ///
    /// The batch dimension is the first of the tensors that `get_inputs` makes, if it is a constant with a name, such
    /// as `batch_size = 4096`. The result is another task: verdicts, tables and the agent's `model.py` name both
    /// sizes, and figures of it are never combined with those of full size. By default such a task is refused.
    #[arg(long, conflicts_with = "server")]
    pub(crate) fit: bool,
    /// Cast parameters, buffers and floating inputs of reference and candidate to this dtype.
    ///
    /// Truth is then the float64 result for the cast values, as for any half-precision task. The agent's
    /// `model.py` shows the cast. A reference that fails under it is refused. Figures of different dtypes
    /// are never combined.
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<DtypeArg>,
    /// Judge forward and backward: a call computes the outputs, and then the gradients of inputs and parameters.
    ///
    /// `ModelNew` has a method `backward(*grad_outputs)`. Autograd is the reference and the baseline. A task
    /// whose source sets `backward = True` needs no option. Figures with and without it are never combined.
    #[arg(long)]
    pub(crate) backward: bool,
    /// Run folder to record the verdict in; by default the verdict is not recorded.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// URL of a `warpwright serve` that judges the candidate, instead of this machine.
    ///
    /// The server's profile, baselines, isolation and devices apply.
    #[arg(long, value_name = "URL", conflicts_with_all = ["profile", "device", "baselines",
        "require_isolation", "require_tier", "libraries"])]
    pub(crate) server: Option<String>,
    /// Bearer token for the server.
    #[arg(long, value_name = "TOKEN", env = environment::SERVER_TOKEN, hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// With `--server`: seconds to wait for the verdict.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, requires = "server",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) deadline: u64,
    /// Options of every command that judges.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of the commands that execute tasks.
// Without a heading of their own, clap lists them under the heading of the options before them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Device to judge on: `auto`, `cpu`, `cuda:N`, or `all` GPUs.
    ///
    /// `auto` selects `cuda:0`, and the cpu device when no GPU works. `judge` and `bench judge` take one
    /// device; the other commands also take a list, e.g. `cuda:0,cuda:1`.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = DeviceChoice::from_str,
        value_delimiter = ',')]
    pub(crate) device: Vec<DeviceChoice>,
    /// Random seed of the policy and of the reference's weights; the inputs of a verdict do not depend on it.
    ///
    /// The judge takes the seeds of the inputs from the system's entropy, so that no candidate can predict
    /// them. `train` also seeds the initial weights and the selection of tasks, `synth` the composed tasks,
    /// `task lint --sample` the selection of tasks.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Tier in which candidates are judged; by default `any`, and `device` where verdicts train on GPUs.
    ///
    /// The default of `train`, `experiment`, `serve` and `worker` is `device` on GPUs and `any` on the cpu
    /// device. The default of all other commands is `any`. Each verdict records its tier.
    #[arg(long, value_enum)]
    pub(crate) require_tier: Option<TierArg>,
    /// Most memory of each device that judging may use, e.g. `48GiB`; by default all that is free.
    ///
    /// A task that needs more is refused as too large. On a GPU, contexts of processes are not counted.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<Bytes>,
    /// Header libraries that candidates for a GPU may use, e.g. `cutlass,cccl`; by default those that a task allows.
    ///
    /// A task allows libraries by `libraries = ["cccl"]` in its source; what is named here is allowed besides.
    /// `none` forbids all, also those that a task allows.
    /// `cutlass` is CUTLASS and CuTe, `cccl` is cub and thrust. cuBLAS for matrix products and cuDNN for
    /// convolutions are always allowed. Each verdict says which libraries were allowed and used. On the cpu
    /// device there are none.
    #[arg(long, value_name = "NAMES")]
    pub(crate) libraries: Option<LibrarySet>,
    /// Options of this machine.
    #[command(flatten)]
    pub(crate) host: HostArgs,
}

/// Options of every judge on this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// Baselines to time.
    #[arg(long, value_enum, default_value_t = BaselinesArg::Default)]
    pub(crate) baselines: BaselinesArg,
    /// Minimum isolation; with less, the command exits with 5.
    #[arg(long, value_enum, default_value_t = IsolationArg::Any)]
    pub(crate) require_isolation: IsolationArg,
    /// Python interpreter that has torch; by default one found in `.venv` or on the PATH.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Cache folder for compiled artifacts; by default `~/.cache/warpwright`.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `report`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright report runs/examples
  warpwright report runs/* --out compared.html
  warpwright report runs/examples --recorded examples/recorded/h200")]
pub(crate) struct Report {
    /// Run folders.
    #[arg(value_name = "RUN_DIR", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Run folder of another machine, shown after the others and marked as recorded. May be repeated.
    #[arg(long, value_name = "RUN_DIR")]
    pub(crate) recorded: Vec<PathBuf>,
    /// HTML page to write; by default `report.html` in the first run folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `doctor`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright doctor
  warpwright doctor --calibrate --json
  warpwright doctor --calibrate --device cuda:0 --pairs 300")]
pub(crate) struct Doctor {
    /// Also measure the device: copy bandwidth, launch cost, and the judge's timing error.
    ///
    /// The timing error is measured on kernels whose speed ratio is known. The results are stored in the
    /// cache folder; later runs use them and print them.
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// With `--calibrate`: number of pairs of identical kernels to judge.
    ///
    /// The command also judges half as many pairs of kernels that differ in speed.
    #[arg(long, value_name = "N", requires = "calibrate")]
    pub(crate) pairs: Option<u32>,
    /// With `--calibrate`: seconds to judge such pairs for; by default 75 without `--pairs`.
    #[arg(long, value_name = "SECONDS", requires = "calibrate")]
    pub(crate) seconds: Option<u64>,
    /// With `--calibrate`: length of a timing window, instead of the device's default.
    ///
    /// The command prints the timing error of such windows and does not store it.
    #[arg(long, value_name = "MS", requires = "calibrate",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) window_ms: Option<u32>,
    /// With `--calibrate`: tier in which the kernels are judged.
    ///
    /// Baselines are called from Python. In the device tier candidates are not, so short calls look faster
    /// there by what Python costs; the command prints that and does not store it.
    #[arg(long, value_enum, value_name = "TIER", default_value_t = TierArg::Host, requires = "calibrate")]
    pub(crate) require_tier: TierArg,
    /// With `--calibrate`: device to measure.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = DeviceChoice::from_str)]
    pub(crate) device: DeviceChoice,
    /// Python interpreter that has torch; by default one found in `.venv` or on the PATH.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Cache folder for compiled artifacts; by default `~/.cache/warpwright`.
    #[arg(long, value_name = "DIR", env = environment::CACHE)]
    pub(crate) cache: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright completions bash > ~/.local/share/bash-completion/completions/warpwright
  warpwright completions fish > ~/.config/fish/completions/warpwright.fish")]
pub(crate) struct Completions {
    /// Shell to print the script for.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright man man/
  warpwright man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder to write into; it is created when it does not exist.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

#[cfg(test)]
mod tests;
