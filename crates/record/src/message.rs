//! One conversation between a policy and its tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a policy says in one turn: text, then tool calls. No call ends the episode, unless `stop`
/// says that there was more to come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Free text, shown to people and kept for training.
    pub text: String,
    /// What a model thought before it spoke, where it says so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Calls to run, in order.
    pub calls: Vec<ToolCall>,
    /// Why it ends here.
    #[serde(default, skip_serializing_if = "StopReason::is_done")]
    pub stop: StopReason,
    /// How a model came to it; absent for policies without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Box<Generation>>,
}

/// Why a message ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It is complete.
    #[default]
    Done,
    /// It was cut at the most tokens allowed.
    Length,
    /// The model or its server declined to answer.
    Refused,
}

impl StopReason {
    /// Whether the message is complete.
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// How a model came to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Generation {
    /// The model, as its server names it.
    pub model: String,
    /// Tokens and cost.
    pub usage: Usage,
    /// Requests that were sent until one succeeded.
    pub attempts: u32,
    /// Calls whose results were shown in full until now and are left out of the context from this
    /// message on, to make room. What was left out earlier stays out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elided: Vec<String>,
    /// What the wire format wants back word for word in later requests, e.g. signed reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<serde_json::Value>,
    /// The tokens themselves, where the server returns them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// Tokens of one or more requests. Counts are the server's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the context, cached ones included.
    pub input_tokens: u64,
    /// Of these, tokens that the server had cached.
    pub cached_tokens: u64,
    /// Tokens that were sampled, reasoning included.
    pub output_tokens: u64,
    /// US dollars, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dollars: Option<f64>,
}

/// What a server says of a message's tokens. The context of a message is the first `kept` tokens of
/// the context and message before it, then `prompt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Tokens shared with the previous message's context and tokens. Less than all of them where the
    /// context was changed: training starts a new sequence there.
    pub kept: u64,
    /// Context tokens after those.
    pub prompt: Vec<u32>,
    /// The sampled tokens.
    pub sampled: Vec<u32>,
    /// Log-probability (natural) of each sampled token, under the distribution it was drawn from.
    pub logprobs: Vec<f32>,
}

impl Usage {
    /// Adds another message's.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens += other.input_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        if let Some(more) = other.dollars {
            *self.dollars.get_or_insert(0.0) += more;
        }
    }
}

/// A request to run one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Unique within the episode; the result names it.
    pub id: String,
    /// Tool name, e.g. `Bash`.
    pub name: String,
    /// Arguments as the tool's JSON schema says; a string where the policy's were no JSON.
    pub arguments: serde_json::Value,
}

/// What a tool call came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The call's id.
    pub call: String,
    /// Whether the tool did what was asked.
    pub status: ToolStatus,
    /// What the policy sees: capped, the middle elided and said so.
    pub text: String,
    /// Verdicts that the call caused, newest last, for policies that read data rather than text.
    /// Hashes into the record's blobs are not needed: a verdict is small.
    pub verdicts: Vec<crate::verdict::Verdict>,
    /// What tools saw in the candidate's process during the call, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<crate::findings::Findings>,
}

/// Outcome of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Done.
    Ok,
    /// Refused or failed; the text says why.
    Error,
    /// Stopped at its deadline.
    TimedOut,
}
