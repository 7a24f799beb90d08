//! Wire formats: convert a conversation to a request, and a stream to an answer.

use std::fmt::Debug;

use serde_json::Value;
use thiserror::Error;
use warpwright_record::message::{Message, StopReason, ToolStatus, Usage};

use super::key::Key;
use super::sse;
use crate::elide::clip_line;
use crate::tools::specification::ToolSpecification;

/// Maximum bytes of text, reasoning and arguments of one answer.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Maximum calls of one answer.
pub(super) const MAX_CALLS: usize = 256;
/// Maximum bytes of a server's message in an error.
const MAX_WORDS: usize = 600;

/// One API. Implementations hold no state; the state of one answer is in its [`Assembler`].
pub trait WireFormat: Debug + Send + Sync {
    /// The URL of a request, given the base URL without a trailing slash.
    fn url(&self, base: &str) -> String;

    /// The headers with the key, and other headers that the format requires.
    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)>;

    /// The request's body, which requests a stream.
    fn body(&self, request: &Request<'_>) -> Value;

    /// A new assembler of a streamed answer.
    fn assembler(&self) -> Box<dyn Assembler>;

    /// Reads an unstreamed answer, from servers without streaming.
    fn whole(&self, body: &Value) -> Result<Answer, WireError>;
}

/// Assembles one streamed answer.
pub trait Assembler {
    /// Adds an event; `true` after the last one.
    fn event(&mut self, event: &sse::Event) -> Result<bool, WireError>;

    /// The answer, after the stream has ended.
    fn finish(self: Box<Self>) -> Result<Answer, WireError>;
}

/// A request, independent of the format.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The model's name on its server.
    pub model: &'a str,
    /// The system prompt.
    pub system: &'a str,
    /// The conversation, oldest first.
    pub entries: &'a [Entry],
    /// The tools.
    pub tools: &'a [ToolSpecification],
    /// Sampling parameters.
    pub sampling: &'a Sampling,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A user message.
    User(String),
    /// A message of the model.
    Said(Message),
    /// The results of the previous message's calls, in the same order.
    Results(Vec<Shown>),
}

/// A tool result for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Id of the call.
    pub call: String,
    /// The tool's status.
    pub status: ToolStatus,
    /// The text, or a placeholder for it.
    pub text: String,
}

/// Sampling parameters. `None`: the server's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Temperature.
    pub temperature: Option<f64>,
    /// Maximum tokens of one answer, including reasoning.
    pub max_output_tokens: Option<u64>,
    /// Reasoning effort in the server's terms, e.g. `high`.
    pub reasoning_effort: Option<String>,
    /// Whether to request token ids and log-probabilities.
    pub token_ids: bool,
}

/// An answer, independent of the format.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The model's name, as the server reports it.
    pub model: String,
    /// Text.
    pub text: String,
    /// Reasoning.
    pub reasoning: String,
    /// Calls, in order.
    pub calls: Vec<AnsweredCall>,
    /// Why it ends.
    pub stop: StopReason,
    /// Token counts, without cost.
    pub usage: Option<Usage>,
    /// Data that the next request must repeat verbatim.
    pub echo: Option<Value>,
    /// Token ids of the context, if the server returns them.
    pub prompt_ids: Option<Vec<u32>>,
    /// The sampled tokens.
    pub sampled_ids: Vec<u32>,
    /// Their log-probabilities.
    pub logprobs: Vec<f32>,
}

/// A call as received: its id may be missing or a duplicate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The server's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, possibly malformed.
    pub arguments: String,
}

/// Why an answer could not be assembled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The stream ended before the answer did.
    #[error("the answer ended early")]
    Truncated,
    /// It does not match the format.
    #[error("the answer has an unexpected format: {0}")]
    Garbage(String),
    /// The server reported an error within its answer.
    #[error("the server reported an error: {0}")]
    Server(String),
    /// It exceeds the size limit.
    #[error("the answer is larger than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
}

impl Answer {
    /// Refuses an answer that exceeds the size limit.
    pub(super) fn check(&self) -> Result<(), WireError> {
        let calls: usize = self.calls.iter().map(|c| c.arguments.len() + c.name.len()).sum();
        let bytes = self.text.len() + self.reasoning.len() + calls;
        if bytes > MAX_ANSWER_BYTES || self.calls.len() > MAX_CALLS {
            return Err(WireError::TooLarge);
        }
        Ok(())
    }
}

/// The arguments of a call: the parsed JSON, or the text itself if it is not JSON.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(serde_json::Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// A tool's name in a form that servers accept; a model may have used any text.
pub(super) fn tool_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(64).map(allowed).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// The JSON of an event or a body.
pub(super) fn json(text: &str) -> Result<Value, WireError> {
    serde_json::from_str(text)
        .map_err(|error| WireError::Garbage(format!("{error} in {}", clip_line(text, 120))))
}

/// The server's error message, from the body of an error in any of the formats.
pub(super) fn words(body: &str) -> String {
    let text = serde_json::from_str::<Value>(body).ok().and_then(|body| error_words(&body));
    let text = text.unwrap_or_else(|| body.to_owned());
    clip_line(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_WORDS)
}

/// `error.message`, `error`, `message` or `detail`, with the error's type or code before it.
pub(super) fn error_words(body: &Value) -> Option<String> {
    let error = ["error", "message", "detail"].iter().find_map(|name| body.get(name))?;
    if error.is_null() {
        return None;
    }
    let Some(object) = error.as_object() else {
        return Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned));
    };
    let kind = ["code", "type"].iter().find_map(|name| object.get(*name)?.as_str());
    let message = object.get("message").and_then(Value::as_str);
    Some(match (kind, message) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (None, Some(message)) => message.to_owned(),
        _ => error.to_string(),
    })
}

/// A text field; empty if missing.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A count; 0 if missing.
pub(super) fn count(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// The elements of an array; empty if it is missing or null.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_json_arguments_are_kept_as_text() {
        assert_eq!(arguments(r#"{"command": "ls"}"#), json!({"command": "ls"}));
        assert_eq!(arguments(" "), json!({}));
        assert_eq!(arguments("{\"command\": \"l"), json!("{\"command\": \"l"));
    }

    #[test]
    fn error_message_is_found_in_every_format_and_truncated() {
        assert_eq!(words(r#"{"error":{"message":"no","type":"bad","code":null}}"#), "bad: no");
        assert_eq!(words(r#"{"error":"no"}"#), "no");
        assert_eq!(words(r#"{"detail":[{"msg":"no"}]}"#), r#"[{"msg":"no"}]"#);
        assert_eq!(words("<html>\n  Bad gateway"), "<html> Bad gateway");
        assert!(words(&"x".repeat(100_000)).len() < 700);
    }

    #[test]
    fn invalid_tool_name_is_replaced_with_an_accepted_one() {
        assert_eq!(tool_name("Bash"), "Bash");
        assert_eq!(tool_name("rm -rf é"), "rm_-rf__");
        assert_eq!(tool_name(""), "_");
    }
}
