//! A model behind an endpoint, as the author of tasks.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use warpwright_agent::remote::endpoint::EndpointError;
use warpwright_agent::remote::speaker::{Line, Speaker};
use warpwright_synth::{Author, AuthorError, Turn};

use crate::Notice;
use crate::error::RolloutError;
use crate::policies::PolicyName;
use crate::remote::{self, BaseUrls, RemoteOptions};

/// Name of the composer that uses no model.
const GRAMMAR: &str = "grammar";

/// Use of a model. Counts are the server's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Number of answers.
    pub answers: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens that the server had cached.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// US dollars, if prices are known.
    pub dollars: Option<f64>,
}

/// A model that writes tasks.
pub struct Model {
    speaker: Speaker,
    spent: Mutex<Spent>,
}

impl Model {
    /// The model that `--composer` names; `None` for the grammar. Opens no connection. Setting
    /// `stop` ends the wait for the server.
    pub fn open(
        composer: &str,
        options: &RemoteOptions,
        stop: &Arc<AtomicBool>,
        notice: &Notice,
    ) -> Result<Option<Arc<Self>>, RolloutError> {
        if composer == GRAMMAR {
            return Ok(None);
        }
        let Ok(PolicyName::Remote(wire, model)) = PolicyName::parse(composer) else {
            let hint = "composers are `grammar`, `openai:MODEL`, `responses:MODEL` and \
                `anthropic:MODEL`";
            return Err(RolloutError::usage(
                format!("failed to find the composer {composer}"),
                hint.to_owned(),
            ));
        };
        let url = remote::base_url(wire, options, &BaseUrls::new());
        let endpoint = remote::endpoint(wire, options, &url, Arc::clone(stop), Some(notice))?;
        let speaker = Speaker::new(endpoint, options.settings(wire, &model));
        Ok(Some(Arc::new(Self { speaker, spent: Mutex::default() })))
    }

    /// Use so far.
    pub fn spent(&self) -> Spent {
        *self.lock()
    }

    /// The sums are consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &EndpointError) -> AuthorError {
        let author = self.name().to_owned();
        let cure = match error {
            EndpointError::Interrupted { .. } => return AuthorError::Interrupted { author },
            EndpointError::Key { .. } => {
                "set a key that this server accepts, or name its variable with --key-env"
            }
            EndpointError::NotFound { .. } => {
                "name a model that this server has, or another server with --base-url"
            }
            EndpointError::Refused { .. } => {
                "fix what the server objects to, then run the same command again: it resumes"
            }
            EndpointError::Busy { .. } => {
                "wait, or lower --jobs, then run the same command again: it resumes"
            }
            EndpointError::Away { .. } | EndpointError::Failing { .. } => {
                "check that the server runs, then run the same command again: it resumes"
            }
        };
        AuthorError::Unreachable { author, reason: error.to_string(), cure: cure.to_owned() }
    }
}

impl Author for Model {
    fn name(&self) -> &str {
        self.speaker.name()
    }

    fn write(&self, system: &str, conversation: &[Turn]) -> Result<String, AuthorError> {
        let line = |turn: &Turn| match turn {
            Turn::Asked(text) => Line::User(text.clone()),
            Turn::Answered(text) => Line::Assistant(text.clone()),
        };
        let lines: Vec<Line> = conversation.iter().map(line).collect();
        let said = self.speaker.ask(system, &lines).map_err(|error| self.failed(&error))?;
        let mut spent = self.lock();
        spent.answers += 1;
        spent.input_tokens += said.usage.input_tokens;
        spent.cached_tokens += said.usage.cached_tokens;
        spent.output_tokens += said.usage.output_tokens;
        if let Some(dollars) = said.usage.dollars {
            *spent.dollars.get_or_insert_default() += dollars;
        }
        Ok(said.text)
    }
}

impl Spent {
    /// The summary line.
    pub fn line(&self, model: &str) -> String {
        let Self { answers, input_tokens, cached_tokens, output_tokens, dollars } = self;
        let dollars = dollars.map(|dollars| format!(", ${dollars:.2}")).unwrap_or_default();
        format!(
            "{model}: {answers} answers, {input_tokens} input tokens ({cached_tokens} cached), {output_tokens} output tokens{dollars}"
        )
    }
}
