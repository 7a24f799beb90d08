//! How fast the engine is: a step of training, and drawing. To reach on an H200 with 28M parameters: a step in
//! 46 ms (PyTorch eager), better 22.5 ms (`torch.compile`); 200,000 tokens a second.
//!
//!     engine [--gpu N] [--small] [--json FILE]

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]

use std::time::Instant;

use clap::Parser;
use serde_json::{Value, json};
use tch::Cuda;
use warpwright_engine::{Compute, LocalEngine, ModelConfig, Settings};
use warpwright_learn::engine::{Engine, Loss, Prompt, Row, Sampling, Step, Which};

#[derive(Parser)]
struct Args {
    /// Number of the GPU; without, the host.
    #[arg(long)]
    gpu: Option<usize>,
    /// A model of some 2M parameters and short rows, instead of 28M.
    #[arg(long)]
    small: bool,
    /// Where to write what was measured.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    #[arg(long, hide = true)]
    bench: bool,
}

/// Rows of training, and tokens of each.
const ROWS: usize = 32;
/// Sequences that are drawn at once.
const DRAWN: u32 = 256;
const TIMES: usize = 10;

fn main() {
    let args = Args::parse();
    // The shape that PyTorch was measured with.
    let big = ModelConfig {
        vocab_size: 1024,
        hidden_size: 512,
        intermediate_size: 1536,
        num_hidden_layers: 8,
        num_attention_heads: 8,
        num_key_value_heads: 8,
        head_dim: 64,
        max_position_embeddings: 1024,
        rope_theta: 1e4,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    };
    let small = ModelConfig {
        vocab_size: 4096,
        hidden_size: 192,
        intermediate_size: 512,
        num_hidden_layers: 4,
        num_attention_heads: 6,
        num_key_value_heads: 3,
        head_dim: 32,
        ..big.clone()
    };
    let (config, tokens, new) = if args.small { (small, 512, 256) } else { (big, 1024, 512) };
    let compute = if args.gpu.is_some() { Compute::Bfloat16 } else { Compute::Float32 };
    let settings =
        Settings { gpu: args.gpu, compute, slots: DRAWN as usize, ..Settings::default() };
    let mut measured = vec![train(&config, settings, tokens)];
    for graphs in [false, true] {
        if args.gpu.is_some() || !graphs {
            measured.push(draw(&config, Settings { graphs, ..settings }, new));
        }
    }
    for line in &measured {
        println!("{line}");
    }
    let parameters = config.parameters();
    let told = json!({ "parameters": parameters, "gpu": args.gpu, "measured": measured });
    if let Some(file) = args.json {
        fs_err::write(file, told.to_string()).unwrap();
    }
}

fn wait(settings: Settings) {
    if let Some(gpu) = settings.gpu {
        Cuda::synchronize(gpu as i64);
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Gradients of all rows and a step.
fn train(config: &ModelConfig, settings: Settings, tokens: usize) -> Value {
    let mut engine = LocalEngine::initial(config, 1, settings).unwrap();
    let row = |number: usize| Row {
        ids: (0..tokens).map(|at| ((number + 7 * at) % 1000) as u32).collect(),
        actions: (1..tokens as u32).collect(),
        ..Row::default()
    };
    let rows: Vec<Row> = (0..ROWS).map(row).collect();
    let over = (ROWS * (tokens - 1)) as f64;
    let (mut forth, mut steps) = (Vec::new(), Vec::new());
    for number in 0..TIMES + 3 {
        wait(settings);
        let began = Instant::now();
        engine.backward(&rows, &Loss::Likelihood, over).unwrap();
        wait(settings);
        let back = began.elapsed().as_secs_f64();
        engine.step(Which::Policy, &Step { rate: 1e-4, ..Step::default() }).unwrap();
        wait(settings);
        if number >= 3 {
            forth.push(back);
            steps.push(began.elapsed().as_secs_f64());
        }
    }
    let seconds = median(steps);
    json!({
        "what": "training", "rows": ROWS, "tokens": tokens, "ms": seconds * 1e3,
        "gradients_ms": median(forth) * 1e3, "tokens_per_second": over / seconds,
    })
}

/// So many new tokens after short prompts.
fn draw(config: &ModelConfig, settings: Settings, new: u32) -> Value {
    let mut engine = LocalEngine::initial(config, 1, settings).unwrap();
    let sampling = Sampling { most: new, ..Sampling::default() };
    let prompts: Vec<Vec<u32>> = (0..DRAWN).map(|i| vec![i + 1; 8]).collect();
    let mut seconds = Vec::new();
    for number in 0..5 {
        wait(settings);
        let began = Instant::now();
        engine.sample(&Prompt::numbered(prompts.clone(), number), &sampling).unwrap();
        seconds.push(began.elapsed().as_secs_f64());
    }
    let first = seconds[0];
    let seconds = median(seconds[2..].to_vec());
    json!({
        "what": "drawing", "graphs": settings.graphs, "at_once": DRAWN, "new": new, "first_seconds": first,
        "tokens_per_second": f64::from(DRAWN * new) / seconds, "step_ms": seconds / f64::from(new) * 1e3,
    })
}
