//! `warpwright-engine`: an engine in a process of its own. Requests come over a socket that is its
//! standard input; it ends when the other side hangs up. `warpwright` starts it.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpwright_engine::{
    Compute, Deviation, EngineError, LocalEngine, Lora, ModelConfig, Replicas, Rounding, Settings,
};
use warpwright_learn::engine::Refusal;
use warpwright_learn::engine::{Engine, Sampler};
use warpwright_learn::remote::serve;

/// Computes with a model's weights, for a program that learns.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "\
Standard input must be a socket: requests come there, in the format of warpwright_learn::wire.
Nothing is read before the model is loaded; what goes wrong until then is said on standard error."
)]
struct Args {
    /// A checkpoint: config.json and safetensors, of ours or of transformers.
    #[arg(long, value_name = "FOLDER", required_unless_present = "initial")]
    model: Option<PathBuf>,
    /// Begin with weights that know nothing, of the shape in this config.json.
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    initial: Option<PathBuf>,
    /// What the first weights are drawn by.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of the GPU; without, the host computes. Named several times, they share the work.
    #[arg(long, value_name = "N")]
    gpu: Vec<usize>,
    /// The type of products.
    #[arg(long, value_name = "TYPE", default_value = "float32", value_parser = types())]
    compute: Compute,
    /// The type of the optimiser's moments.
    #[arg(long, value_name = "TYPE", default_value = "float32", value_parser = types())]
    moments: Compute,
    /// Most tokens of one pass.
    #[arg(long, value_name = "N", default_value_t = Settings::default().pass_tokens)]
    pass_tokens: usize,
    /// Compute blocks again on the way back instead of keeping what they need.
    #[arg(long)]
    recompute: bool,
    /// Most sequences that are drawn at once.
    #[arg(long, value_name = "N", default_value_t = Settings::default().slots)]
    slots: usize,
    /// On a GPU, draw without CUDA graphs.
    #[arg(long)]
    no_graphs: bool,
    /// On a GPU in bfloat16, learn and draw by torch's kernels alone, where there are some of our own.
    #[arg(long)]
    no_fused: bool,
    /// Threads that compute on the host; without, as many as libtorch takes.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Train adapters of this rank (LoRA) instead of the model; what is saved are these, as PEFT has them.
    #[arg(long, value_name = "RANK", requires = "model", value_parser = clap::value_parser!(u32).range(1..))]
    lora: Option<u32>,
    /// What adapters' products are multiplied by: PEFT's lora_alpha / r.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.0)]
    lora_scale: f64,
    /// For experiments: round the sampler's matrices.
    #[arg(long, value_name = "TYPE", default_value = "none", value_parser = roundings())]
    sampler_rounding: Rounding,
    /// For experiments: sample with the weights of so many updates ago.
    #[arg(long, value_name = "N", default_value_t = 0)]
    sampler_behind: usize,
}

fn types() -> impl TypedValueParser<Value = Compute> {
    PossibleValuesParser::new(["float32", "bfloat16"]).map(|name| match name.as_str() {
        "bfloat16" => Compute::Bfloat16,
        _ => Compute::Float32,
    })
}

fn roundings() -> impl TypedValueParser<Value = Rounding> {
    PossibleValuesParser::new(["none", "bfloat16", "fp8"]).map(|name| match name.as_str() {
        "bfloat16" => Rounding::Bfloat16,
        "fp8" => Rounding::Fp8,
        _ => Rounding::None,
    })
}

impl Args {
    fn settings(&self, gpu: Option<usize>) -> Settings {
        Settings {
            gpu,
            compute: self.compute,
            moments: self.moments,
            pass_tokens: self.pass_tokens,
            recompute: self.recompute,
            slots: self.slots,
            unread: None,
            graphs: !self.no_graphs,
            fused: !self.no_fused,
            threads: self.threads,
            lora: self.lora.map(|rank| Lora { rank, scale: self.lora_scale }),
            sampler: Deviation { rounding: self.sampler_rounding, behind: self.sampler_behind },
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

    /// One on each GPU.
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

/// clap asks for a model.
fn nothing() -> EngineError {
    EngineError::Request { message: "no model is named".to_owned() }
}

/// Answers on standard input until the other side hangs up.
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

/// What libtorch throws comes as a panic and becomes an answer; of its words the first line is enough.
fn say_less_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let words = panic.payload_as_str().unwrap_or("a thread died without words");
        let line = words.split("\\n").next().and_then(|words| words.lines().next());
        // Nobody may be left to read it.
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
            // Nobody may be left to read it.
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}
