//! Benchmark of the engine: training steps and sampling. Targets on an H200 with 28M parameters: a step
//! in 46 ms (PyTorch eager), better 22.5 ms (`torch.compile`); sampling 200,000 tokens per second.
//!
//!     engine [--gpu N]... [--shape SHAPE] [--json FILE]
//!
//! `--shape rows` measures the engine calls of a PPO training step, with the default and with other numbers
//! of tokens per micro-batch, and sampling for episodes of several messages.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]

use std::collections::HashMap;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use tch::Cuda;
use warpwright_engine::{Dtype, LocalEngine, Lora, Replicas, Settings, peak_bytes};
use warpwright_learn::engine::{
    Completion, Engine, Loss, Prompt, Row, SampleRequest, Sampler, Sampling, Step, Which,
};
use warpwright_learn::model_config::ModelConfig;
use warpwright_learn::recipe::Recipe;

#[derive(Parser)]
struct Args {
    /// Index of the GPU; without it, the host. Several share the work.
    #[arg(long)]
    gpu: Vec<usize>,
    /// The model and the work.
    #[arg(long, value_enum, default_value_t = Shape::Usual)]
    shape: Shape,
    /// Where to write the measurements.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shape {
    /// 2M parameters, short rows.
    Small,
    /// 28M parameters, the shape of the PyTorch measurement.
    Usual,
    /// The shape of the shipped policy, with the episodes of a training step
    /// (`configs/rows-on-h200.toml`).
    Rows,
    /// Qwen3-0.6B's shape, fully trained.
    #[value(name = "qwen3-0.6b")]
    Qwen600m,
    /// Qwen3-4B's shape, fully trained.
    #[value(name = "qwen3-4b")]
    Qwen4b,
    /// Qwen3-8B's shape, with LoRA adapters of rank 32.
    #[value(name = "qwen3-8b")]
    Qwen8b,
}

/// The work of a measurement.
struct Load {
    config: ModelConfig,
    lora: Option<Lora>,
    /// Rows of a step, and tokens of each.
    rows: usize,
    tokens: usize,
    /// Sequences sampled at once, and tokens of each.
    drawn: u32,
    new: u32,
    times: usize,
}

impl Shape {
    fn load(self) -> Load {
        let usual = ModelConfig {
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
            ..usual.clone()
        };
        let rows = ModelConfig {
            vocab_size: 2048,
            intermediate_size: 640,
            num_hidden_layers: 6,
            num_key_value_heads: 2,
            max_position_embeddings: 6144,
            ..small.clone()
        };
        // As in their config.json on the hub.
        let qwen = |hidden, feed, layers, heads| ModelConfig {
            vocab_size: 151_936,
            hidden_size: hidden,
            intermediate_size: feed,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            num_key_value_heads: 8,
            head_dim: 128,
            max_position_embeddings: 4096,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: hidden < 4096,
        };
        let load = |config, tokens, new| Load {
            config,
            lora: None,
            rows: 32,
            tokens,
            drawn: 256,
            new,
            times: 10,
        };
        let large =
            |config, lora| Load { lora, rows: 8, drawn: 64, times: 3, ..load(config, 2048, 128) };
        match self {
            Self::Small => load(small, 512, 256),
            Self::Usual => load(usual, 1024, 512),
            Self::Rows => Load { rows: 96, times: 5, ..load(rows, 1280, 512) },
            Self::Qwen600m => large(qwen(1024, 3072, 28, 16), None),
            Self::Qwen4b => large(qwen(2560, 9728, 36, 32), None),
            Self::Qwen8b => large(qwen(4096, 12_288, 36, 32), Some(Lora { rank: 32, scale: 2.0 })),
        }
    }
}

fn main() {
    let args = Args::parse();
    let load = args.shape.load();
    let on = |gpu| Settings {
        gpu,
        dtype: if gpu.is_some() { Dtype::Bfloat16 } else { Dtype::Float32 },
        // A large model's activations would need more memory than the model.
        gradient_checkpointing: load.config.hidden_size >= 1024,
        max_token_len: load.tokens * load.rows.div_ceil(args.gpu.len().max(1)),
        max_num_seqs: (load.drawn as usize).div_ceil(args.gpu.len().max(1)),
        lora: load.lora,
        fused_kernels: false,
        ..Settings::default()
    };
    let measured = match args.gpu[..] {
        [] | [_] if matches!(args.shape, Shape::Rows) => {
            let settings = on(args.gpu.first().copied());
            let asked = |max_token_len| {
                let settings = Settings { fused_kernels: true, max_token_len, ..settings };
                let mut engine = LocalEngine::initial(&load.config, 1, settings).unwrap();
                engine.begin_critic().unwrap();
                update(&mut engine, &load, &args.gpu, max_token_len)
            };
            let mut measured = [16_384, 32_768, 65_536, 131_072].map(asked).to_vec();
            let speaking = |(unread, at_once)| {
                let settings =
                    Settings { fused_kernels: true, max_num_seqs: 192, unread, ..settings };
                let mut engine = LocalEngine::initial(&load.config, 1, settings).unwrap();
                speak(&mut engine, at_once, unread)
            };
            let ways =
                [(None, 16), (None, 32), (None, 64), (None, 192), (Some(1), 32), (Some(32), 32)];
            measured.extend(ways.map(speaking));
            measured
        }
        [] | [_] => {
            let settings = on(args.gpu.first().copied());
            let begin = |settings| LocalEngine::initial(&load.config, 1, settings).unwrap();
            let fused = Settings { fused_kernels: true, ..settings };
            let mut measured = Vec::new();
            if settings.gpu.is_some() {
                // First: peak memory counts from the start of the process.
                measured.push(train(&mut begin(fused), &load, &args.gpu, "own kernels"));
            }
            measured.push(train(&mut begin(settings), &load, &args.gpu, "torch's"));
            if load.config.hidden_size < 1024 {
                let without = Settings { cuda_graphs: false, ..settings };
                measured.push(draw(&mut begin(without), &load, &args.gpu, "one by one"));
            }
            if settings.gpu.is_some() {
                measured.push(draw(&mut begin(settings), &load, &args.gpu, "graphs"));
                measured.push(draw(&mut begin(fused), &load, &args.gpu, "graphs, own kernels"));
                let read = Settings { unread: Some(1), ..fused };
                measured.push(draw(
                    &mut begin(read),
                    &load,
                    &args.gpu,
                    "the same, each token read",
                ));
            }
            measured
        }
        _ => {
            let settings: Vec<Settings> = args.gpu.iter().map(|gpu| on(Some(*gpu))).collect();
            let mut engine = Replicas::initial(&load.config, 1, &settings).unwrap();
            let trained = train(&mut engine, &load, &args.gpu, "torch's");
            vec![trained, draw(&mut engine, &load, &args.gpu, "graphs")]
        }
    };
    for line in &measured {
        println!("{line}");
    }
    let parameters = load.config.parameters();
    let told = json!({ "parameters": parameters, "gpus": args.gpu, "measured": measured });
    if let Some(file) = args.json {
        fs_err::write(file, told.to_string()).unwrap();
    }
}

fn wait(gpus: &[usize]) {
    for gpu in gpus {
        Cuda::synchronize(*gpu as i64);
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Peak memory of a GPU's tensors, in GiB.
fn peak(gpus: &[usize]) -> Option<f64> {
    gpus.first().map(|gpu| peak_bytes(*gpu).unwrap() as f64 / f64::from(1 << 30))
}

/// Backward passes over all rows, and an optimizer step.
fn train<E: Engine>(engine: &mut E, load: &Load, gpus: &[usize], how: &str) -> Value {
    let (rows, tokens) = (load.rows, load.tokens);
    let row = |number: usize| Row {
        ids: (0..tokens).map(|at| ((number + 7 * at) % 1000) as u32).collect(),
        actions: (1..tokens as u32).collect(),
        ..Row::default()
    };
    let all: Vec<Row> = (0..rows).map(row).collect();
    let over = (rows * (tokens - 1)) as f64;
    let (mut forth, mut steps) = (Vec::new(), Vec::new());
    for number in 0..load.times + 3 {
        wait(gpus);
        let began = Instant::now();
        engine.backward(&all, &Loss::Likelihood, over).unwrap();
        wait(gpus);
        let back = began.elapsed().as_secs_f64();
        engine.step(Which::Policy, &Step { lr: 1e-4, ..Step::default() }).unwrap();
        wait(gpus);
        if number >= 3 {
            forth.push(back);
            steps.push(began.elapsed().as_secs_f64());
        }
    }
    let seconds = median(steps);
    json!({
        "what": "training", "how": how, "rows": rows, "tokens": tokens, "ms": seconds * 1e3,
        "gradients_ms": median(forth) * 1e3, "tokens_per_second": over / seconds, "peak_gib": peak(gpus),
    })
}

/// The engine calls of a training step, one after the other, and the time of each.
fn update<E: Engine>(engine: &mut E, load: &Load, gpus: &[usize], max_token_len: usize) -> Value {
    let tokens = load.tokens;
    // Prompt tokens before the first action.
    let from = tokens / 6;
    let row = |number: usize| {
        let actions: Vec<u32> = (from as u32..tokens as u32).collect();
        let each = |value: f32| vec![value; actions.len()];
        Row {
            ids: (0..tokens).map(|at| ((number + 7 * at) % 1000) as u32).collect(),
            advantages: each(1.0),
            old_log_probs: each(-7.0),
            rollout_log_probs: each(-7.0),
            returns: each(0.5),
            values: each(0.4),
            actions,
        }
    };
    let all: Vec<Row> = (0..load.rows).map(row).collect();
    let over = (load.rows * (tokens - from)) as f64;
    let recipe = Recipe::robust();
    let step = Step { lr: 1e-4, ..Step::default() };
    let mut times = [const { Vec::new() }; 5];
    for number in 0..load.times + 3 {
        let mut took = |which: usize, ask: &mut dyn FnMut()| {
            wait(gpus);
            let began = Instant::now();
            ask();
            wait(gpus);
            if number >= 3 {
                times[which].push(began.elapsed().as_secs_f64());
            }
        };
        took(0, &mut || {
            engine.score(&all).unwrap();
        });
        let value = Loss::Value { clip: recipe.cliprange_value };
        took(1, &mut || {
            engine.backward(&all, &value, over).unwrap();
        });
        took(2, &mut || {
            engine.step(Which::Critic, &step).unwrap();
        });
        let policy = Loss::Policy(recipe.policy);
        took(3, &mut || {
            engine.backward(&all, &policy, over).unwrap();
        });
        took(4, &mut || {
            engine.step(Which::Policy, &step).unwrap();
        });
    }
    let [score, value, critic_step, policy, policy_step] = times.map(|of| median(of) * 1e3);
    json!({
        "what": "update", "max_token_len": max_token_len, "rows": load.rows, "tokens": tokens,
        "actions": tokens - from, "score_ms": score, "value_ms": value, "critic_step_ms": critic_step,
        "policy_ms": policy, "policy_step_ms": policy_step, "peak_gib": peak(gpus),
    })
}

/// Tokens of an episode's first prompt, of each of its messages, and of the prompt after it. Number
/// and length of messages are the mean of a run of `configs/rows-on-h200.toml`; there the first has
/// 1,023 tokens after a prompt of 112, and the second 45.
const FIRST: u32 = 400;
const MESSAGE: u32 = 530;
const TOLD: u32 = 60;
const MESSAGES: u32 = 2;
/// Tokens sampled per sequence before others may join.
const TURN: u32 = 32;

/// Concurrent episodes. When a message ends, the next one begins at the next turn with a longer
/// prompt; after the last message another episode begins.
fn speak<E: Sampler>(engine: &mut E, at_once: u32, unread: Option<u32>) -> Value {
    let ask = |ticket: u64, said: u32| SampleRequest {
        ticket,
        prompt: Prompt {
            ids: (0..FIRST + said * (MESSAGE + TOLD)).map(|at| (at * 7 + 1) % 2048).collect(),
            stream: ticket,
        },
        // Half to one and a half times as many, so that they do not end together.
        sampling: Sampling {
            max_new_tokens: MESSAGE / 2 + (ticket as u32 * 97) % MESSAGE,
            top_p: 0.95,
            ..Sampling::default()
        },
    };
    let mut requests: Vec<SampleRequest> = (0..u64::from(at_once)).map(|one| ask(one, 0)).collect();
    let (mut alone, mut joined) = (Vec::new(), Vec::new());
    let (mut next, mut said) = (u64::from(at_once), HashMap::new());
    let (mut tokens, mut joiners, mut began) = (0, 0, Instant::now());
    for number in 0..300 {
        if number == 100 {
            (tokens, joiners, began) = (0, 0, Instant::now());
            (alone, joined) = (Vec::new(), Vec::new());
        }
        let coming = requests.len();
        let turn = Instant::now();
        let over = engine.draw(std::mem::take(&mut requests), TURN).unwrap();
        let took = turn.elapsed().as_secs_f64();
        if coming > 0 { &mut joined } else { &mut alone }.push(took);
        joiners += coming;
        for Completion { ticket, sampled } in over {
            tokens += sampled.unwrap().ids.len();
            let messages = said.remove(&ticket).unwrap_or(0) + 1;
            let messages = if messages < MESSAGES { messages } else { 0 };
            said.insert(next, messages);
            requests.push(ask(next, messages));
            next += 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let turns = (alone.len() + joined.len()) as f64;
    let mean =
        |of: &[f64]| (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64 * 1e3);
    json!({
        "what": "speaking", "unread": unread, "at_once": at_once, "tokens_per_second": tokens as f64 / seconds,
        "joiners_a_turn": joiners as f64 / turns, "turn_ms": seconds / turns * 1e3,
        "nobody_joins_ms": mean(&alone), "somebody_joins_ms": mean(&joined), "alone": alone.len(),
    })
}

/// Samples this many tokens after short prompts.
fn draw<E: Sampler>(engine: &mut E, load: &Load, gpus: &[usize], how: &str) -> Value {
    let (drawn, new) = (load.drawn, load.new);
    let sampling = Sampling { max_new_tokens: new, ..Sampling::default() };
    let prompts: Vec<Vec<u32>> = (0..drawn).map(|i| vec![i + 1; 8]).collect();
    let mut seconds = Vec::new();
    for number in 0..5 {
        wait(gpus);
        let began = Instant::now();
        engine.sample(&Prompt::numbered(prompts.clone(), number), &sampling).unwrap();
        seconds.push(began.elapsed().as_secs_f64());
    }
    let first = seconds[0];
    let seconds = median(seconds[2..].to_vec());
    json!({
        "what": "drawing", "how": how, "at_once": drawn, "new": new, "first_seconds": first,
        "tokens_per_second": f64::from(drawn * new) / seconds, "step_ms": seconds / f64::from(new) * 1e3,
        "peak_gib": peak(gpus),
    })
}
