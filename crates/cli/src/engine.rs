//! Starts `warpwright-engine` in a jail, and says what became of it when it stops answering.

mod config;
mod neighbour;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warpwright_jail::{Child, Gpu, Jail, Limits, Spec, Stdin};
use warpwright_judge::Neighbour;
use warpwright_learn::remote::{RemoteEngine, RemoteError};
use warpwright_native::Batcher;

use crate::environment;
use crate::failure::{Failure, chain};
use crate::judging::Bench;
use crate::python;

pub(crate) use self::config::EngineConfig;
use self::neighbour::DeviceSharingEngine;

/// Name of the program.
const PROGRAM: &str = "warpwright-engine";
/// Longest that it may take to load a model, and to answer a request.
const PATIENCE: Duration = Duration::from_mins(30);
/// Longest that a run may take.
const LIFE: Duration = Duration::from_hours(24 * 30);

/// What it begins with.
#[derive(Clone, Debug)]
pub(crate) enum Weights {
    /// A checkpoint.
    Checkpoint(PathBuf),
    /// None: of the shape in this `config.json`, drawn by a seed.
    Initial(PathBuf, u64),
}

/// Adapters that are trained instead of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Adapters {
    /// Their rank.
    pub(crate) rank: u32,
    /// What their products are multiplied by.
    pub(crate) scale: f64,
}

/// Where it runs.
pub(crate) struct Host<'a> {
    pub(crate) jail: &'a Jail,
    /// The interpreter whose libtorch it takes.
    pub(crate) python: &'a Path,
    /// Numbers of its GPUs, which share the work; none: the host computes.
    pub(crate) gpus: Vec<u32>,
    /// Who judges on the same devices: while candidates are timed nothing is computed.
    pub(crate) neighbours: Vec<Neighbour>,
    /// The folder that it may write to.
    pub(crate) folder: Option<&'a Path>,
}

impl<'a> Host<'a> {
    /// On the devices of these judges, at least one.
    pub(crate) fn beside(benches: &'a [Bench], folder: Option<&'a Path>) -> Self {
        let number = |bench: &Bench| bench.device().strip_prefix("cuda:")?.parse().ok();
        Self {
            jail: &benches[0].jail,
            python: &benches[0].python,
            gpus: benches.iter().filter_map(number).collect(),
            neighbours: benches.iter().map(|bench| bench.judge.neighbour()).collect(),
            folder,
        }
    }
}

/// What an engine is spoken to by.
pub(crate) type Shared = Batcher<DeviceSharingEngine<RemoteEngine<UnixStream>>>;

/// An engine that runs.
pub(crate) struct Engine {
    /// Speaks to it.
    pub(crate) shared: Shared,
    child: Arc<Mutex<Child>>,
}

impl Engine {
    /// Starts one, and waits until it has loaded its model.
    pub(crate) fn start(
        host: &Host<'_>,
        config: &EngineConfig,
        weights: &Weights,
        adapters: Option<Adapters>,
    ) -> Result<Self, Failure> {
        let program = find()?;
        let failed = |reason: String| {
            Failure::infrastructure(format!("failed to start {PROGRAM}: {reason}"), None)
        };
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(|error| failed(error.to_string()))?;
        let mut spec = spec(host, config, weights, &program, theirs.into());
        if let Some(Adapters { rank, scale }) = adapters {
            spec = spec.args([format!("--lora-rank={rank}"), format!("--lora-scale={scale}")]);
        }
        let child = host.jail.spawn(spec).map_err(|error| failed(chain(&error)))?;
        let child = Arc::new(Mutex::new(child));
        match RemoteEngine::greet(ours) {
            Ok(engine) => {
                let engine = DeviceSharingEngine::new(engine, host.neighbours.clone());
                Ok(Self { shared: Batcher::new(engine), child })
            }
            Err(error) => Err(failed(said(&child).unwrap_or_else(|| chain(&error)))),
        }
    }

    /// A failure with what the engine said last, if it is gone.
    pub(crate) fn failure(&self, attempt: &str, error: &RemoteError) -> Failure {
        let why = if error.is_lost() { said(&self.child) } else { None };
        let why = why.unwrap_or_else(|| chain(error));
        let hint = "run the same command again: it goes on from the last checkpoint".to_owned();
        Failure::infrastructure(format!("failed to {attempt}: {why}"), hint)
    }
}

fn spec(
    host: &Host<'_>,
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

/// The model that a checkpoint's adapters are for, if it has any. What is wrong with their description
/// the engine says when it reads it.
fn adapted(folder: &Path) -> Option<PathBuf> {
    let text = fs_err::read(folder.join("adapter_config.json")).ok()?;
    let told: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(folder.join(told.get("base_model_name_or_path")?.as_str()?))
}

/// The last line that it printed to standard error, once it has ended.
fn said(child: &Mutex<Child>) -> Option<String> {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    // Its words may come a moment after its line is closed.
    let ended = child.wait_timeout(Duration::from_secs(2)).unwrap_or(true);
    let (_, stderr) = child.output_so_far();
    let text = stderr.text();
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    ended.then(|| last.trim_start_matches("error: ").to_owned())
}

/// The program: named by the environment, else beside this one.
fn find() -> Result<PathBuf, Failure> {
    let named = environment::get(environment::ENGINE).map(PathBuf::from);
    let beside = || {
        let here = std::env::current_exe().ok()?;
        Some(here.with_file_name(PROGRAM))
    };
    let path = named.or_else(beside).unwrap_or_else(|| PathBuf::from(PROGRAM));
    if path.is_file() {
        return Ok(path);
    }
    let hint = "`make engine` in the project builds it; WARPWRIGHT_ENGINE names one elsewhere";
    let message = format!("failed to find {PROGRAM}: there is no {}", path.display());
    Err(Failure::infrastructure(message, hint.to_owned()))
}
