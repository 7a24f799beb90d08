//! The policy `native:CHECKPOINT`: a model that `warpwright train` trained, or a chat model of the
//! Qwen3 family, with an engine of its own. `native` alone is the shipped model, with the built-in
//! policy for operators that it does not know.

mod fallback;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use warpwright_agent::policy::Policy;
use warpwright_learn::engine::Engine as _;
use warpwright_native::{Dialogue, Native, SamplingConfig, Settings};

use crate::engine::{Engine, EngineConfig, EngineHost, StartEngine, Weights};
use crate::error::{RolloutError, chain};
use crate::natives::fallback::WithTeacher;
use crate::shipped;

/// A model with its engine.
pub struct NativeModel {
    engine: Engine,
    dialogue: Arc<dyn Dialogue>,
    settings: Settings,
    /// The operators that it knows, if the built-in policy handles the others.
    known: Option<BTreeSet<String>>,
}

/// The tokenizer and sampling parameters of a checkpoint.
struct Words {
    sampling: SamplingConfig,
    dialogue: Arc<dyn Dialogue>,
}

/// Sampling parameters of a checkpoint without `sampling.json`.
const USUAL: SamplingConfig = SamplingConfig {
    temperature: 1.0,
    top_p: 1.0,
    max_new_tokens: 8192,
    max_tool_result_tokens: 8192,
};

/// Whether the folder has a checkpoint.
pub fn look(folder: &Path) -> Result<(), RolloutError> {
    words(folder).map(|_| ())
}

fn words(folder: &Path) -> Result<Words, RolloutError> {
    let failed = |reason: String| {
        let hint = "give the `checkpoint` folder of a stage of `warpwright train`, or a Hugging Face folder of \
            a Qwen3 model"
            .to_owned();
        let message = format!("failed to find a model in {}: {reason}", folder.display());
        RolloutError::usage(message, hint)
    };
    if !["config.json", "adapter_config.json"].iter().any(|name| folder.join(name).is_file()) {
        return Err(failed("it has no config.json".to_owned()));
    }
    let sampling = SamplingConfig::load(folder).map_err(|error| failed(chain(&error)))?;
    let sampling = sampling.unwrap_or(USUAL);
    let dialogue =
        warpwright_native::load(&folder.join("tokenizer.json"), sampling.max_tool_result_tokens);
    let dialogue = dialogue.map_err(|error| failed(chain(&error)))?;
    Ok(Words { sampling, dialogue })
}

impl NativeModel {
    /// Starts the engine of the shipped model.
    pub fn shipped(host: &EngineHost<'_>, cache: &Path) -> Result<Self, RolloutError> {
        let mut model = Self::open(host, &shipped::policy(cache)?)?;
        shipped::POLICY.clone_into(&mut model.settings.model);
        model.known = Some(shipped::known_operators()?);
        Ok(model)
    }

    /// Starts an engine, and waits until it has loaded the checkpoint.
    pub fn open(host: &EngineHost<'_>, folder: &Path) -> Result<Self, RolloutError> {
        let Words { sampling, dialogue } = words(folder)?;
        let weights = Weights::Checkpoint(folder.to_owned());
        let config = EngineConfig::for_sampling(!host.gpus.is_empty());
        let engine = host.start(&config, &weights, None)?;
        let loaded = engine.shared.clone().describe();
        let loaded = loaded.map_err(|error| engine.failure("load the model", &error))?;
        let settings = Settings {
            model: folder.display().to_string(),
            sampling: sampling.sampling(),
            positions: loaded.positions as usize,
        };
        Ok(Self { engine, dialogue, settings, known: None })
    }

    /// The policy of one episode.
    pub fn policy(&self) -> Box<dyn Policy> {
        let draws = Arc::new(self.engine.shared.clone());
        let native = Native::new(draws, Arc::clone(&self.dialogue), self.settings.clone());
        match &self.known {
            None => Box::new(native),
            Some(known) => Box::new(WithTeacher::new(Box::new(native), known.clone())),
        }
    }
}
