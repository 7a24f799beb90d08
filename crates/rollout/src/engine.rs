//! Starts `warpwright-engine` in a jail, and reports its last message when it dies.

mod config;
mod neighbour;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpwright_jail::{Child, Gpu, Jail, Limits, Spec, Stdin};
use warpwright_judge::Neighbour;
use warpwright_learn::remote::{RemoteEngine, RemoteError};
use warpwright_native::Batcher;

pub use self::config::EngineConfig;
use self::neighbour::DeviceSharingEngine;
use crate::environment;
use crate::error::{RolloutError, chain};
use crate::judge_host::JudgeHost;
use crate::python;

/// Name of the program.
const PROGRAM: &str = "warpwright-engine";
/// Limit on the time to load a model and to answer a request.
const PATIENCE: Duration = Duration::from_mins(30);
/// Limit on the time of a run.
const LIFE: Duration = Duration::from_hours(24 * 30);

/// The initial weights.
#[derive(Clone, Debug)]
pub enum Weights {
    /// A checkpoint.
    Checkpoint(PathBuf),
    /// Random weights of the shape in this `config.json`, with a seed.
    Initial(PathBuf, u64),
}

/// LoRA adapters to train instead of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adapters {
    /// Their rank.
    pub rank: u32,
    /// Scale of their product.
    pub scale: f64,
}

/// Where the engine runs.
pub struct EngineHost<'a> {
    /// The jail that it is started with.
    pub jail: &'a Jail,
    /// The interpreter whose libtorch it loads.
    pub python: &'a Path,
    /// Indices of its GPUs, which share the work; empty for the host.
    pub gpus: Vec<u32>,
    /// Judges on the same devices: the engine pauses while they time candidates.
    pub neighbours: Vec<Neighbour>,
    /// The folder that it may write to.
    pub folder: Option<&'a Path>,
}

impl<'a> EngineHost<'a> {
    /// On the devices of these judges, at least one.
    pub fn beside(hosts: &'a [JudgeHost], folder: Option<&'a Path>) -> Self {
        let number = |host: &JudgeHost| host.device().strip_prefix("cuda:")?.parse().ok();
        Self {
            jail: &hosts[0].jail,
            python: &hosts[0].python,
            gpus: hosts.iter().filter_map(number).collect(),
            neighbours: hosts.iter().map(|host| host.judge.neighbour()).collect(),
            folder,
        }
    }
}

/// The client of a running engine.
pub type Shared = Batcher<DeviceSharingEngine<RemoteEngine<UnixStream>>>;

/// Starts engines. A test starts another one than [`EngineHost`] does.
pub trait StartEngine: Sync {
    /// Starts an engine, and waits until it has loaded its model.
    fn start(
        &self,
        config: &EngineConfig,
        weights: &Weights,
        adapters: Option<Adapters>,
    ) -> Result<Engine, RolloutError>;
}

/// A running engine.
pub struct Engine {
    /// Its client.
    pub shared: Shared,
    /// Its last message, once it has ended.
    last_words: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

impl Engine {
    /// Greets an engine over a line. It pauses while one of the `neighbours` times a candidate.
    /// `last_words` returns its last message, once it has ended.
    pub fn greet(
        line: UnixStream,
        neighbours: Vec<Neighbour>,
        last_words: Box<dyn Fn() -> Option<String> + Send + Sync>,
    ) -> Result<Self, RolloutError> {
        match RemoteEngine::greet(line) {
            Ok(engine) => {
                let engine = DeviceSharingEngine::new(engine, neighbours);
                Ok(Self { shared: Batcher::new(engine), last_words })
            }
            Err(error) => Err(not_started(&last_words().unwrap_or_else(|| chain(&error)))),
        }
    }

    /// A failure, with the engine's last message if it has died.
    pub fn failure(&self, attempt: &str, error: &RemoteError) -> RolloutError {
        let why = if error.is_lost() { (self.last_words)() } else { None };
        let why = why.unwrap_or_else(|| chain(error));
        let hint = "run the same command again: it resumes from the last checkpoint".to_owned();
        RolloutError::infrastructure(format!("failed to {attempt}: {why}"), hint)
    }
}

fn not_started(reason: &str) -> RolloutError {
    RolloutError::infrastructure(format!("failed to start {PROGRAM}: {reason}"), None)
}

impl StartEngine for EngineHost<'_> {
    fn start(
        &self,
        config: &EngineConfig,
        weights: &Weights,
        adapters: Option<Adapters>,
    ) -> Result<Engine, RolloutError> {
        let program = find()?;
        let failed = |error: std::io::Error| not_started(&error.to_string());
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut spec = spec(self, config, weights, &program, theirs.into());
        if let Some(Adapters { rank, scale }) = adapters {
            spec = spec.args([format!("--lora-rank={rank}"), format!("--lora-scale={scale}")]);
        }
        let child = self.jail.spawn(spec).map_err(|error| not_started(&chain(&error)))?;
        let child = Mutex::new(child);
        Engine::greet(ours, self.neighbours.clone(), Box::new(move || said(&child)))
    }
}

fn spec(
    host: &EngineHost<'_>,
    config: &EngineConfig,
    weights: &Weights,
    program: &Path,
    line: OwnedFd,
) -> Spec {
    let limits = Limits {
        wall: LIFE,
        processes: 4096,
        open_files: 4096,
        file_bytes: 1 << 40,
        ..Limits::default()
    };
    let mut spec = Spec::new(program)
        .label(PROGRAM)
        .with_system()
        .with_python(host.python)
        .read_only(program)
        .limits(limits)
        .stdin(Stdin::Descriptor(line));
    if let Some(site) = python::find(Some(host.python)).and_then(|python| python.site_packages) {
        let torch = site.join("torch/lib");
        spec = spec.env("LD_LIBRARY_PATH", torch.to_string_lossy());
    }
    if let Some(folder) = host.folder {
        spec = spec.read_write(folder).cwd(folder);
    }
    let path = |path: &Path| path.to_string_lossy().into_owned();
    spec = match weights {
        Weights::Checkpoint(folder) => {
            if let Some(model) = adapted(folder) {
                spec = spec.read_only(model);
            }
            spec.read_only(folder).args(["--model".to_owned(), path(folder)])
        }
        Weights::Initial(config, seed) => {
            spec.args(["--initial".to_owned(), path(config), "--seed".to_owned(), seed.to_string()])
        }
    };
    for gpu in &host.gpus {
        spec = spec.gpu(Gpu::All).args(["--gpu".to_owned(), gpu.to_string()]);
    }
    if config.gradient_checkpointing {
        spec = spec.arg("--gradient-checkpointing");
    }
    if !config.cuda_graphs {
        spec = spec.arg("--no-cuda-graphs");
    }
    if !config.fused_kernels {
        spec = spec.arg("--no-fused-kernels");
    }
    spec.args([
        format!("--dtype={}", config.dtype.name()),
        format!("--optimizer-state-dtype={}", config.optimizer_state_dtype.name()),
        format!("--max-token-len={}", config.ppo_max_token_len),
        format!("--max-num-seqs={}", config.max_num_seqs),
        format!("--num-threads={}", config.num_threads),
        format!("--sampler-dtype={}", config.sampler_dtype.name()),
        format!("--sampler-lag={}", config.sampler_lag),
    ])
}

/// The base model of a checkpoint's adapters, if it has any. The engine reports faults of their
/// config when it reads it.
fn adapted(folder: &Path) -> Option<PathBuf> {
    let text = fs_err::read(folder.join("adapter_config.json")).ok()?;
    let told: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(folder.join(told.get("base_model_name_or_path")?.as_str()?))
}

/// The last line of its standard error, once it has ended.
fn said(child: &Mutex<Child>) -> Option<String> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // Its output may arrive shortly after the line closes.
    let ended = child.wait_timeout(Duration::from_secs(2)).unwrap_or(true);
    let (_, stderr) = child.output_so_far();
    let text = stderr.text();
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    ended.then(|| last.trim_start_matches("error: ").to_owned())
}

/// The program: named by the environment, else in this program's folder.
fn find() -> Result<PathBuf, RolloutError> {
    let named = environment::get(environment::ENGINE).map(PathBuf::from);
    let beside = || {
        let here = std::env::current_exe().ok()?;
        Some(here.with_file_name(PROGRAM))
    };
    let path = named.or_else(beside).unwrap_or_else(|| PathBuf::from(PROGRAM));
    if path.is_file() {
        return Ok(path);
    }
    let hint = "build it with `make engine`, or set WARPWRIGHT_ENGINE to its path";
    let message = format!("failed to find {PROGRAM}: {} does not exist", path.display());
    Err(RolloutError::infrastructure(message, hint.to_owned()))
}
