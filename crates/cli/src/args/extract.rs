//! Arguments of `task extract`, and of whole models in `optimize`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use warpwright_rollout::device_choice::DeviceChoice;
use warpwright_rollout::regions::{ModelSource, RegionRequest};
use warpwright_rollout::{environment, gpu, python};

use super::{DtypeArg, IsolationArg};
use crate::failure::Failure;

/// `task extract`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpwright task extract --model model.py:build --inputs inputs.py --out regions
  warpwright task extract --model package.models:build --inputs inputs.py --cover 0.9 --out regions
  warpwright task extract --hf config.json --dtype bf16 --device cuda:0 --out regions")]
pub(crate) struct Extract {
    /// The model, and how it is divided.
    #[command(flatten)]
    pub(crate) whole: ModelArgs,
    /// Folder for the tasks and `regions.json`; new or empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Cast the model and its floating inputs to this dtype.
    #[arg(long, value_name = "DTYPE")]
    pub(crate) dtype: Option<DtypeArg>,
    /// Device to run the model on: `auto`, `cpu` or `cuda:N`.
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = DeviceChoice::from_str)]
    pub(crate) device: DeviceChoice,
    /// Random seed of weights and inputs.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Minimum isolation; with less, the command exits with 5.
    #[arg(long, value_enum, default_value_t = IsolationArg::Any)]
    pub(crate) require_isolation: IsolationArg,
    /// Python interpreter that has torch; by default one found in `.venv` or on the PATH.
    #[arg(long, value_name = "PATH", env = environment::PYTHON)]
    pub(crate) python: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    found.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// A whole model, and how it is divided.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// The model: a Python file or module, and a function without parameters that returns a torch.nn.Module.
    // Not required: `optimize` has the same options, and takes tasks as well.
    #[arg(long, value_name = "MODULE:FUNCTION", requires = "inputs")]
    pub(crate) model: Option<String>,
    /// The model as a configuration of transformers (`config.json`), with random weights.
    #[arg(long, value_name = "CONFIG", conflicts_with = "model")]
    pub(crate) hf: Option<PathBuf>,
    /// Python file with `get_inputs`, which returns the arguments of one call of the model.
    ///
    /// It returns a list of positional arguments or a dict of keyword arguments. `get_workloads` lists
    /// arguments for it by name, for several input sets: prefill and decode, several batch sizes. Without the
    /// file a model of transformers gets 128 tokens.
    #[arg(long, value_name = "FILE")]
    pub(crate) inputs: Option<PathBuf>,
    /// Share of the model's time that the tasks shall cover.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = share)]
    pub(crate) cover: f64,
    /// Most operators of a task; a larger module is divided.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_operators: u32,
    /// Least share of the model's time of a task.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    pub(crate) min_share: f64,
    /// Write a task for each shape of a region, instead of one with several workloads.
    ///
    /// The built-in policy writes kernels for one shape.
    #[arg(long)]
    pub(crate) separate: bool,
    /// Further folder with Python packages, e.g. where transformers is. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) packages: Vec<PathBuf>,
}

impl ModelArgs {
    /// Whether a model is named.
    pub(crate) fn is_named(&self) -> bool {
        self.model.is_some() || self.hf.is_some()
    }

    /// The request that the options make.
    pub(crate) fn request(
        &self,
        device: DeviceChoice,
        dtype: Option<DtypeArg>,
        seed: u64,
        python: Option<&Path>,
    ) -> Result<RegionRequest, Failure> {
        let model = match (&self.model, &self.hf) {
            (Some(model), _) => ModelSource::parse(model)?,
            (None, Some(config)) => ModelSource::Transformers { config: config.clone() },
            (None, None) => {
                let hint = "name it with --model or --hf".to_owned();
                return Err(Failure::usage("failed to find the model: none is named", hint));
            }
        };
        let gpu = match device {
            DeviceChoice::Cpu => None,
            DeviceChoice::Cuda(number) => Some(number),
            DeviceChoice::Auto => gpu::all().first().map(|gpu| gpu.number),
            DeviceChoice::All => {
                let hint = "name one device, e.g. `--device cuda:0`".to_owned();
                let message = "failed to open the devices: a whole model uses one";
                return Err(Failure::usage(message, hint));
            }
        };
        Ok(RegionRequest {
            model,
            inputs: self.inputs.clone(),
            gpu,
            dtype: dtype.map(DtypeArg::dtype),
            cover: self.cover,
            max_operators: self.max_operators,
            min_share: self.min_share,
            separate: self.separate,
            seed,
            python: python::require(python)?.executable,
            packages: self.packages.clone(),
        })
    }
}
