//! The local engine: computes with a model's weights, on libtorch.
//!
//! [`LocalEngine`] implements `warpwright_learn::engine::Engine` in this process, on the host or on
//! one GPU: a decoder of the Qwen3 family, a value head or a separate critic, their optimizers, and
//! a sampler.
//!
//! ```text
//! checkpoint ─► weights ─► model ──► hidden ─┬─► log-probabilities, entropies ─► losses ─► gradients ─► optimizer
//! (config.json,            (packed           ├─► values ──────────────────────┘
//!  safetensors)             rows)            └─► sampler (KV cache, a slot per sequence)
//! ```
//!
//! Rows are packed without padding (`model.rs`). Weights are float32 and are cast for each product,
//! so that small updates are not lost to rounding. Exceptions of libtorch become an [`EngineError`]
//! (`error.rs`). If the device runs out of memory, the engine uses smaller micro-batches.
//!
//! This is the only crate that links torch: a program that links it starts in seconds, not in
//! milliseconds.
//!
//! ```no_run
//! use warpwright_engine::{LocalEngine, Settings};
//! use warpwright_learn::engine::{Engine, Loss, Row, Step, Which};
//!
//! let mut engine = LocalEngine::load("Qwen3-0.6B".as_ref(), Settings::default())?;
//! let row = Row { ids: vec![785, 6722, 315, 9625], actions: vec![2, 3], ..Row::default() };
//! let passed = engine.backward(&[row], &Loss::Likelihood, 2.0)?;
//! let norm = engine.step(Which::Policy, &Step::default())?;
//! # Ok::<(), warpwright_engine::EngineError>(())
//! ```

mod adapters;
mod chances;
mod checkpoint;
mod decoder;
mod deviation;
mod error;
mod fused;
mod local;
mod losses;
mod model;
mod optimizer;
mod pass;
mod replicas;
mod sampler;
mod settings;
mod shim;
mod weights;

pub use deviation::{Deviation, SamplerDtype};
pub use error::EngineError;
pub use local::LocalEngine;
pub use replicas::Replicas;
pub use settings::{Dtype, Settings};
pub use shim::peak_bytes;
pub use weights::Lora;

/// A tiny model, with grouped heads and a head_dim that is not hidden_size / num_attention_heads.
#[cfg(test)]
fn tiny() -> warpwright_learn::model_config::ModelConfig {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    warpwright_learn::model_config::ModelConfig::read(&here.join("tests/tiny.json")).unwrap()
}
