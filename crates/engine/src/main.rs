//! `warpwright-engine`: an engine in a process of its own, started by `warpwright`. Requests arrive
//! over a socket on standard input. The process ends when the other side disconnects.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpwright_engine::{
    Deviation, Dtype, EngineError, LocalEngine, Lora, Replicas, SamplerDtype, Settings,
};
use warpwright_learn::engine::Refusal;
use warpwright_learn::engine::{Engine, Sampler};
use warpwright_learn::model_config::ModelConfig;
use warpwright_learn::remote::serve;

/// Trains and samples a model, for `warpwright`.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Standard input must be a socket: requests come there, in the format of warpwright_learn::wire.
It reads no request before the model is loaded; errors until then go to standard error."
)]
struct Args {
    /// A checkpoint: config.json and safetensors, of ours or of transformers.
    #[arg(long, value_name = "FOLDER", required_unless_present = "initial")]
    model: Option<PathBuf>,
    /// Initialize random weights with the shape in this config.json.
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    initial: Option<PathBuf>,
    /// Seed of the random weights.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Index of a GPU; give it several times to share the work. Without it, the engine uses the cpu.
    #[arg(long, value_name = "N")]
    gpu: Vec<usize>,
    /// Type of matrix products.
    #[arg(long, value_name = "TYPE", default_value = "float32", value_parser = types())]
    dtype: Dtype,
    /// Type of the optimizer's moments.
    #[arg(long, value_name = "TYPE", default_value = "float32", value_parser = types())]
    optimizer_state_dtype: Dtype,
    /// Tokens per forward and backward pass.
    #[arg(long, value_name = "N", default_value_t = Settings::default().max_token_len)]
    max_token_len: usize,
    /// Recompute the blocks' activations in the backward pass instead of keeping them.
    #[arg(long)]
    gradient_checkpointing: bool,
    /// Limit on the sequences that are sampled at the same time.
    #[arg(long, value_name = "N", default_value_t = Settings::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Sample without CUDA graphs.
    #[arg(long)]
    no_cuda_graphs: bool,
    /// Use torch's kernels instead of this program's fused kernels.
    #[arg(long)]
    no_fused_kernels: bool,
    /// Host threads; the default is libtorch's.
    #[arg(long, value_name = "N")]
    num_threads: Option<usize>,
    /// Train LoRA adapters of this rank instead of the model; checkpoints have PEFT's format.
    #[arg(long, value_name = "RANK", requires = "model", value_parser = clap::value_parser!(u32).range(1..))]
    lora_rank: Option<u32>,
    /// Scale of the adapters: PEFT's lora_alpha / r.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    lora_scale: f64,
    /// Round the sampler's matrices to this type, for experiments.
    #[arg(long, value_name = "TYPE", default_value = "same", value_parser = sampler_types())]
    sampler_dtype: SamplerDtype,
    /// Sample with the weights of this many updates ago, for experiments.
    #[arg(long, value_name = "N", default_value_t = 0)]
    sampler_lag: usize,
}

fn types() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["float32", "bfloat16"]).map(|name| match name.as_str() {
        "bfloat16" => Dtype::Bfloat16,
        _ => Dtype::Float32,
    })
}

fn sampler_types() -> impl TypedValueParser<Value = SamplerDtype> {
    PossibleValuesParser::new(["same", "bfloat16", "fp8"]).map(|name| match name.as_str() {
        "bfloat16" => SamplerDtype::Bfloat16,
        "fp8" => SamplerDtype::Fp8,
        _ => SamplerDtype::Same,
    })
}

impl Args {
    fn settings(&self, gpu: Option<usize>) -> Settings {
        Settings {
            gpu,
            dtype: self.dtype,
            optimizer_state_dtype: self.optimizer_state_dtype,
            max_token_len: self.max_token_len,
            gradient_checkpointing: self.gradient_checkpointing,
            max_num_seqs: self.max_num_seqs,
            unread: None,
            cuda_graphs: !self.no_cuda_graphs,
            fused_kernels: !self.no_fused_kernels,
            num_threads: self.num_threads,
            lora: self.lora_rank.map(|rank| Lora { rank, scale: self.lora_scale }),
            sampler: Deviation { dtype: self.sampler_dtype, lag: self.sampler_lag },
        }
    }

    fn engine(&self) -> Result<LocalEngine, EngineError> {
        let settings = self.settings(self.gpu.first().copied());
        match (&self.model, &self.initial) {
            (Some(folder), _) => LocalEngine::load(folder, settings),
            (None, Some(config)) => {
                LocalEngine::initial(&ModelConfig::read(config)?, self.seed, settings)
            }
            (None, None) => Err(nothing()),
        }
    }

    /// One replica per GPU.
    fn replicas(&self) -> Result<Replicas, EngineError> {
        let settings: Vec<Settings> =
            self.gpu.iter().map(|gpu| self.settings(Some(*gpu))).collect();
        match (&self.model, &self.initial) {
            (Some(folder), _) => Replicas::load(folder, &settings),
            (None, Some(config)) => {
                Replicas::initial(&ModelConfig::read(config)?, self.seed, &settings)
            }
            (None, None) => Err(nothing()),
        }
    }
}

/// clap requires a model, so this is unreachable.
fn nothing() -> EngineError {
    EngineError::Request { message: "no model was given".to_owned() }
}

/// Answers requests on standard input until the other side disconnects.
fn answer<E: Engine<Error = EngineError> + Sampler<Error = EngineError>>(
    mut engine: E,
) -> Result<(), String> {
    let line = std::io::stdin().as_fd().try_clone_to_owned();
    let mut line = line.map(UnixStream::from).map_err(|error| error.to_string())?;
    serve(&mut line, &mut engine, refuse).map_err(|error| chain(&error))
}

fn refuse(error: &EngineError) -> Refusal {
    Refusal { is_memory: matches!(error, EngineError::Memory { .. }), message: chain(error) }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

/// Exceptions of libtorch arrive as panics and become answers; the first line of their message is
/// printed.
fn say_less_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let words = panic.payload_as_str().unwrap_or("a thread died without a message");
        let line = words.split("\\n").next().and_then(|words| words.lines().next());
        // The reader may be gone.
        let _ = writeln!(std::io::stderr(), "warning: {}", line.unwrap_or_default());
    }));
}

fn main() -> ExitCode {
    let args = Args::parse();
    say_less_of_panics();
    let done = if args.gpu.len() > 1 {
        args.replicas().map_err(|error| chain(&error)).and_then(answer)
    } else {
        args.engine().map_err(|error| chain(&error)).and_then(answer)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // The reader may be gone.
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}
