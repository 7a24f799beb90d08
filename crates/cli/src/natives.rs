//! The policy `native:CHECKPOINT`: a model that `warpwright train` made, with an engine of its own.

use std::path::Path;
use std::sync::Arc;

use warpwright_agent::policy::Policy;
use warpwright_learn::engine::Engine as _;
use warpwright_native::{Dialogue, Native, Settings, Speech, Tokenizer};

use crate::engine::{Engine, EngineConfig, Host, Weights};
use crate::failure::{Failure, chain};

/// A model that speaks.
pub(crate) struct NativeModel {
    engine: Engine,
    dialogue: Arc<Dialogue>,
    settings: Settings,
}

/// What is in a checkpoint beside weights.
struct Words {
    speech: Speech,
    tokenizer: Tokenizer,
}

/// Whether there is a checkpoint.
pub(crate) fn look(folder: &Path) -> Result<(), Failure> {
    words(folder).map(|_| ())
}

fn words(folder: &Path) -> Result<Words, Failure> {
    let failed = |reason: String| {
        let hint = "name the `checkpoint` folder of a stage of `warpwright train`".to_owned();
        let message = format!("failed to find a model in {}: {reason}", folder.display());
        Failure::usage(message, hint)
    };
    if !folder.join("config.json").is_file() {
        return Err(failed("there is no config.json".to_owned()));
    }
    let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"));
    let tokenizer = tokenizer.map_err(|error| failed(chain(&error)))?;
    let speech = Speech::load(folder).map_err(|error| failed(chain(&error)))?;
    Ok(Words { speech, tokenizer })
}

impl NativeModel {
    /// Starts its engine, and waits until that has loaded it.
    pub(crate) fn open(host: &Host<'_>, folder: &Path) -> Result<Self, Failure> {
        let Words { speech, tokenizer } = words(folder)?;
        let weights = Weights::Checkpoint(folder.to_owned());
        let engine = Engine::start(host, &EngineConfig::default(), &weights)?;
        let loaded = engine.shared.clone().describe();
        let loaded = loaded.map_err(|error| engine.failure("load a model", &error))?;
        let settings = Settings {
            model: folder.display().to_string(),
            sampling: speech.sampling(),
            positions: loaded.positions as usize,
        };
        let dialogue = Arc::new(Dialogue::new(tokenizer, speech.result_tokens));
        Ok(Self { engine, dialogue, settings })
    }

    /// The policy of one episode.
    pub(crate) fn policy(&self) -> Box<dyn Policy> {
        let draws = Arc::new(self.engine.shared.clone());
        Box::new(Native::new(draws, Arc::clone(&self.dialogue), self.settings.clone()))
    }
}
