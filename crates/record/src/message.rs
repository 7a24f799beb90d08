//! One conversation between a policy and its tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a policy says in one turn: text, then tool calls. No call ends the episode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Free text, shown to people and kept for training.
    pub text: String,
    /// Calls to run, in order.
    pub calls: Vec<ToolCall>,
}

/// A request to run one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Unique within the episode; the result names it.
    pub id: String,
    /// Tool name: `Bash`, `Read`, `Write`, `Edit`.
    pub name: String,
    /// Arguments as the tool's JSON schema says.
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
