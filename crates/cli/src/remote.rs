//! Options of models behind an endpoint, and the endpoints created from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::{Deserialize, Serialize};
use warpwright_agent::remote::anthropic::Anthropic;
use warpwright_agent::remote::endpoint::{Endpoint, Limits, OpenError};
use warpwright_agent::remote::key::Key;
use warpwright_agent::remote::openai_chat::OpenAiChat;
use warpwright_agent::remote::openai_responses::OpenAiResponses;
use warpwright_agent::remote::policy::{Prices, RemoteSettings};
use warpwright_agent::remote::wire::{Sampling, WireFormat};

use crate::environment;
use crate::failure::Failure;
use crate::printer::Printer;

/// Options of models behind an endpoint; recorded in `run.json`.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(
    next_help_heading = "Options of models behind an endpoint (openai:, responses:, anthropic:)"
)]
#[serde(default)]
pub(crate) struct PolicyArgs {
    /// Base URL of the endpoint, e.g. `http://127.0.0.1:8000/v1`.
    ///
    /// By default the value of `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`, else the public API of the
    /// service.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Environment variable with the API key; by default `OPENAI_API_KEY` or `ANTHROPIC_API_KEY`.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_env: Option<String>,
    /// Sampling temperature; by default the server decides.
    #[arg(long, value_name = "T", value_parser = not_negative)]
    pub(crate) temperature: Option<f64>,
    /// Maximum output tokens per message, including reasoning; 32000 by default with `anthropic:`.
    ///
    /// Other servers use their own default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_output_tokens: Option<u64>,
    /// Context length of the model in tokens; by default 128000, and 200000 with `anthropic:`.
    ///
    /// When a conversation comes near this length, the policy omits the oldest tool results.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1024..))]
    pub(crate) context_tokens: Option<u64>,
    /// Reasoning effort, e.g. `high`; with `anthropic:` also a token budget.
    #[arg(long, value_name = "EFFORT")]
    pub(crate) reasoning_effort: Option<String>,
    /// Record token ids and log-probabilities, for training (vLLM and SGLang, `openai:` only).
    #[arg(long)]
    pub(crate) token_ids: bool,
    /// Maximum concurrent requests per endpoint; 32 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_requests: Option<u32>,
    /// Price of a million input tokens, in US dollars.
    #[arg(long, value_name = "DOLLARS", value_parser = not_negative, requires = "price_out")]
    pub(crate) price_in: Option<f64>,
    /// Price of a million output tokens, in US dollars.
    #[arg(long, value_name = "DOLLARS", value_parser = not_negative, requires = "price_in")]
    pub(crate) price_out: Option<f64>,
    /// Price of a million cached input tokens, in US dollars; by default that of `--price-in`.
    #[arg(long, value_name = "DOLLARS", value_parser = not_negative, requires = "price_in")]
    pub(crate) price_cached: Option<f64>,
}

/// All options of [`PolicyArgs`]. They conflict with `--resume`: the record has their values.
pub(crate) const OPTIONS: [&str; 11] = [
    "base_url",
    "key_env",
    "temperature",
    "max_output_tokens",
    "context_tokens",
    "reasoning_effort",
    "token_ids",
    "max_requests",
    "price_in",
    "price_out",
    "price_cached",
];

/// A wire format, by its prefix in the name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wire {
    OpenAiChat,
    OpenAiResponses,
    Anthropic,
}

impl Wire {
    /// Parses the part of a policy's name before the colon.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic]
            .into_iter()
            .find(|wire| wire.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
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

impl PolicyArgs {
    /// The settings of one policy.
    pub(crate) fn settings(&self, wire: Wire, model: &str) -> RemoteSettings {
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
pub(crate) type BaseUrls = BTreeMap<String, String>;

/// The base URL of a wire format.
pub(crate) fn base_url(wire: Wire, args: &PolicyArgs, known: &BaseUrls) -> String {
    let variable = || environment::get(wire.variables().0)?.into_string().ok();
    let recorded = || known.get(wire.name()).cloned();
    recorded()
        .or_else(|| args.base_url.clone())
        .or_else(variable)
        .unwrap_or_else(|| wire.service().to_owned())
}

/// The endpoint of a wire format. Opens no connection.
pub(crate) fn endpoint(
    wire: Wire,
    args: &PolicyArgs,
    base_url: &str,
    stop: Arc<AtomicBool>,
    printer: Option<Printer>,
) -> Result<Arc<Endpoint>, Failure> {
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
        return Err(Failure::usage(message, hint));
    }
    let mut limits = Limits::default();
    if let Some(most) = args.max_requests {
        limits.requests = most as usize;
    }
    let opened = Endpoint::new(wire.format(), base_url, key, args.key_env.is_some(), limits, stop);
    let endpoint = opened.map_err(|error| match &error {
        OpenError::Url { .. } => {
            let hint = "write it like `--base-url http://127.0.0.1:8000/v1`".to_owned();
            Failure::usage(error.to_string(), hint)
        }
        OpenError::PlainKey { .. } => {
            let hint = format!(
                "use https, unset {variable}, or pass --key-env {variable} to send the key unencrypted"
            );
            Failure::usage(error.to_string(), hint)
        }
        OpenError::Thread(_) => Failure::infrastructure(error.to_string(), None),
    })?;
    Ok(Arc::new(match printer {
        Some(printer) => endpoint.with_notice(Box::new(move |text| printer.say(text))),
        None => endpoint,
    }))
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a number of at least 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_record_and_default_in_older_records() {
        let args = PolicyArgs {
            temperature: Some(0.5),
            price_in: Some(3.0),
            price_out: Some(15.0),
            token_ids: true,
            ..PolicyArgs::default()
        };
        let json = serde_json::to_value(&args).unwrap();
        assert_eq!(serde_json::from_value::<PolicyArgs>(json).unwrap(), args);
        let none: PolicyArgs = serde_json::from_str("{}").unwrap();
        assert_eq!(none, PolicyArgs::default());
        let settings = args.settings(Wire::Anthropic, "m");
        assert_eq!((settings.name.as_str(), settings.context_tokens), ("anthropic:m", 200_000));
        assert_eq!(settings.prices, Some(Prices { input: 3.0, cached: 3.0, output: 15.0 }));
    }

    #[test]
    fn resume_conflicts_with_every_endpoint_option() {
        let command = PolicyArgs::augment_args(clap::Command::new("any"));
        let mut all: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
        all.retain(|id| *id != "help");
        assert_eq!(all, OPTIONS);
    }

    #[test]
    fn a_recorded_url_wins_over_the_command_line() {
        let args = PolicyArgs { base_url: Some("http://b".to_owned()), ..PolicyArgs::default() };
        assert_eq!(base_url(Wire::Anthropic, &args, &BaseUrls::new()), "http://b");
        let known = BaseUrls::from([("anthropic".to_owned(), "http://a".to_owned())]);
        assert_eq!(base_url(Wire::Anthropic, &args, &known), "http://a");
    }
}
