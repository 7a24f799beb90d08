//! Options of models behind an endpoint, and the endpoints created from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use warpwright_agent::remote::anthropic::Anthropic;
use warpwright_agent::remote::endpoint::{Endpoint, Limits, OpenError};
use warpwright_agent::remote::key::Key;
use warpwright_agent::remote::openai_chat::OpenAiChat;
use warpwright_agent::remote::openai_responses::OpenAiResponses;
use warpwright_agent::remote::policy::{Prices, RemoteSettings};
use warpwright_agent::remote::wire::{Sampling, WireFormat};

use crate::Notice;
use crate::environment;
use crate::error::RolloutError;

/// Options of models behind an endpoint; recorded in `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteOptions {
    /// Base URL of the endpoint; by default that of the environment, else the service's public one.
    pub base_url: Option<String>,
    /// Environment variable with the API key; by default that of the wire format.
    pub key_env: Option<String>,
    /// Sampling temperature; by default the server decides.
    pub temperature: Option<f64>,
    /// Limit on the output tokens of a message, including reasoning.
    pub max_output_tokens: Option<u64>,
    /// Context length of the model in tokens; by default that of the wire format.
    pub context_tokens: Option<u64>,
    /// Reasoning effort, by the server's name.
    pub reasoning_effort: Option<String>,
    /// Whether token ids and log-probabilities are recorded.
    pub token_ids: bool,
    /// Limit on the concurrent requests of an endpoint.
    pub max_requests: Option<u32>,
    /// Price of a million input tokens, in US dollars.
    pub price_in: Option<f64>,
    /// Price of a million output tokens, in US dollars.
    pub price_out: Option<f64>,
    /// Price of a million cached input tokens, in US dollars; by default `price_in`.
    pub price_cached: Option<f64>,
}

/// A wire format, by its prefix in the name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire {
    /// `openai:`: the Chat Completions API.
    OpenAiChat,
    /// `responses:`: the Responses API.
    OpenAiResponses,
    /// `anthropic:`: the Messages API.
    Anthropic,
}

impl Wire {
    /// Parses the part of a policy's name before the colon.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic]
            .into_iter()
            .find(|wire| wire.name() == name)
    }

    /// The prefix in the name of a policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "responses",
            Self::Anthropic => "anthropic",
        }
    }

    fn format(self) -> Box<dyn WireFormat> {
        match self {
            Self::OpenAiChat => Box::new(OpenAiChat),
            Self::OpenAiResponses => Box::new(OpenAiResponses),
            Self::Anthropic => Box::new(Anthropic),
        }
    }

    /// The public base URL of the service.
    fn service(self) -> &'static str {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
        }
    }

    /// The environment variables of the base URL and of the key.
    fn variables(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => {
                (environment::OPENAI_BASE_URL, environment::OPENAI_API_KEY)
            }
            Self::Anthropic => (environment::ANTHROPIC_BASE_URL, environment::ANTHROPIC_API_KEY),
        }
    }

    fn context_tokens(self) -> u64 {
        match self {
            Self::OpenAiChat | Self::OpenAiResponses => 128_000,
            Self::Anthropic => 200_000,
        }
    }
}

impl RemoteOptions {
    /// The settings of one policy.
    pub fn settings(&self, wire: Wire, model: &str) -> RemoteSettings {
        let prices = self.price_in.zip(self.price_out).map(|(input, output)| Prices {
            input,
            cached: self.price_cached.unwrap_or(input),
            output,
        });
        RemoteSettings {
            name: format!("{}:{model}", wire.name()),
            model: model.to_owned(),
            sampling: Sampling {
                temperature: self.temperature,
                max_output_tokens: self.max_output_tokens,
                reasoning_effort: self.reasoning_effort.clone(),
                token_ids: self.token_ids,
            },
            context_tokens: self.context_tokens.unwrap_or(wire.context_tokens()),
            prices,
        }
    }
}

/// The base URL per wire format of a run, stored in `run.json`: the environment may have changed
/// when the run is resumed.
pub type BaseUrls = BTreeMap<String, String>;

/// The base URL of a wire format.
pub fn base_url(wire: Wire, args: &RemoteOptions, known: &BaseUrls) -> String {
    let variable = || environment::get(wire.variables().0)?.into_string().ok();
    let recorded = || known.get(wire.name()).cloned();
    recorded()
        .or_else(|| args.base_url.clone())
        .or_else(variable)
        .unwrap_or_else(|| wire.service().to_owned())
}

/// The endpoint of a wire format. Opens no connection.
pub fn endpoint(
    wire: Wire,
    args: &RemoteOptions,
    base_url: &str,
    stop: Arc<AtomicBool>,
    notice: Option<&Notice>,
) -> Result<Arc<Endpoint>, RolloutError> {
    let variable = args.key_env.as_deref().unwrap_or(wire.variables().1);
    let value = environment::get(variable).and_then(|value| value.into_string().ok());
    let key = value.and_then(|value| Key::new(&value));
    if key.is_none() && (args.key_env.is_some() || base_url == wire.service()) {
        let hint = match &args.key_env {
            Some(_) => format!("set {variable} to the key"),
            None => format!(
                "set {variable} to your key, name another variable with --key-env, or name your own server with --base-url"
            ),
        };
        let message =
            format!("failed to find the API key for {base_url}: {variable} is not set or is empty");
        return Err(RolloutError::usage(message, hint));
    }
    let mut limits = Limits::default();
    if let Some(most) = args.max_requests {
        limits.requests = most as usize;
    }
    let opened = Endpoint::new(wire.format(), base_url, key, args.key_env.is_some(), limits, stop);
    let endpoint = opened.map_err(|error| match &error {
        OpenError::Url { .. } => {
            let hint = "write it like `--base-url http://127.0.0.1:8000/v1`".to_owned();
            RolloutError::usage(error.to_string(), hint)
        }
        OpenError::PlainKey { .. } => {
            let hint = format!(
                "use https, unset {variable}, or pass --key-env {variable} to send the key unencrypted"
            );
            RolloutError::usage(error.to_string(), hint)
        }
        OpenError::Thread(_) => RolloutError::infrastructure(error.to_string(), None),
    })?;
    Ok(Arc::new(match notice.cloned() {
        Some(notice) => endpoint.with_notice(Box::new(move |text| notice(text))),
        None => endpoint,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_record_and_default_in_older_records() {
        let args = RemoteOptions {
            temperature: Some(0.5),
            price_in: Some(3.0),
            price_out: Some(15.0),
            token_ids: true,
            ..RemoteOptions::default()
        };
        let json = serde_json::to_value(&args).unwrap();
        assert_eq!(serde_json::from_value::<RemoteOptions>(json).unwrap(), args);
        let none: RemoteOptions = serde_json::from_str("{}").unwrap();
        assert_eq!(none, RemoteOptions::default());
        let settings = args.settings(Wire::Anthropic, "m");
        assert_eq!((settings.name.as_str(), settings.context_tokens), ("anthropic:m", 200_000));
        assert_eq!(settings.prices, Some(Prices { input: 3.0, cached: 3.0, output: 15.0 }));
    }

    #[test]
    fn a_recorded_url_wins_over_the_command_line() {
        let args =
            RemoteOptions { base_url: Some("http://b".to_owned()), ..RemoteOptions::default() };
        assert_eq!(base_url(Wire::Anthropic, &args, &BaseUrls::new()), "http://b");
        let known = BaseUrls::from([("anthropic".to_owned(), "http://a".to_owned())]);
        assert_eq!(base_url(Wire::Anthropic, &args, &known), "http://a");
    }
}
