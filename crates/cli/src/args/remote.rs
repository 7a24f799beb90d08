//! Options of models behind an endpoint.

use clap::Args;
use warpwright_rollout::remote::RemoteOptions;

use super::values::not_negative;

/// Options of models behind an endpoint.
#[derive(Args, Clone, Debug, Default)]
#[command(
    next_help_heading = "Options of models behind an endpoint (openai:, responses:, anthropic:)"
)]
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

impl PolicyArgs {
    /// The options for the record and for endpoints.
    pub(crate) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            base_url: self.base_url.clone(),
            key_env: self.key_env.clone(),
            temperature: self.temperature,
            max_output_tokens: self.max_output_tokens,
            context_tokens: self.context_tokens,
            reasoning_effort: self.reasoning_effort.clone(),
            token_ids: self.token_ids,
            max_requests: self.max_requests,
            price_in: self.price_in,
            price_out: self.price_out,
            price_cached: self.price_cached,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resume_conflicts_with_every_endpoint_option() {
        let command = PolicyArgs::augment_args(clap::Command::new("any"));
        let mut all: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
        all.retain(|id| *id != "help");
        assert_eq!(all, OPTIONS);
    }
}
