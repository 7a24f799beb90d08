//! Anthropic's messages (`POST /v1/messages`), which other servers offer too.
//!
//! Thinking blocks carry signatures and must be sent back verbatim and in place. An answer with
//! such blocks is stored as its list of blocks. Tool calls in that list are stored as positions
//! only: the call itself is in the message.

use serde_json::{Value, json};
use warpwright_record::message::{Message, StopReason, ToolStatus, Usage};

use super::key::Key;
use super::sse;
use super::wire::{
    Answer, AnsweredCall, Assembler, Entry, MAX_CALLS, Request, Shown, WireError, WireFormat,
    count, error_words, json as parse, list, text, tool_name,
};

/// Requested version of the API.
const VERSION: &str = "2023-06-01";
/// The API requires a limit; current models accept this one.
const MAX_TOKENS: u64 = 32_000;
/// Replaces an answer without text: the API refuses empty ones.
const SILENCE: &str = "(no text)";

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

impl WireFormat for Anthropic {
    fn url(&self, base: &str) -> String {
        // Anthropic's own variable for the base URL has no version in it; others write one.
        format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base))
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        headers.extend(key.map(|key| ("x-api-key", key.expose().to_owned())));
        headers
    }

    fn body(&self, request: &Request<'_>) -> Value {
        let mut messages: Vec<Value> = request
            .entries
            .iter()
            .map(|entry| match entry {
                Entry::User(text) => user(&[json!({ "type": "text", "text": text })]),
                Entry::Said(message) => json!({ "role": "assistant", "content": said(message) }),
                Entry::Results(results) => user(&results.iter().map(result).collect::<Vec<_>>()),
            })
            .collect();
        // The prefix up to here is read again in the next turn.
        let last = messages.last_mut().and_then(|m| m["content"].as_array_mut()?.last_mut());
        if let Some(block) = last {
            block["cache_control"] = json!({ "type": "ephemeral" });
        }
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                })
            })
            .collect();
        let system = json!([{
            "type": "text",
            "text": request.system,
            "cache_control": { "type": "ephemeral" },
        }]);
        let sampling = request.sampling;
        let mut body = json!({
            "model": request.model,
            "system": system,
            "messages": messages,
            "max_tokens": sampling.max_output_tokens.unwrap_or(MAX_TOKENS),
            "stream": true,
        });
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        if let Some(temperature) = sampling.temperature {
            body["temperature"] = json!(temperature);
        }
        if let Some(effort) = &sampling.reasoning_effort {
            // A number is a budget in tokens, as older models have it.
            if let Ok(budget) = effort.parse::<u64>() {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
            } else {
                body["thinking"] = json!({ "type": "adaptive" });
                body["output_config"] = json!({ "effort": effort });
            }
        }
        body
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<Blocks>::default()
    }

    fn whole(&self, body: &Value) -> Result<Answer, WireError> {
        if text(body, "type") == "error" {
            return Err(WireError::Server(error_words(body).unwrap_or_default()));
        }
        if !body.get("content").is_some_and(Value::is_array) {
            return Err(WireError::Garbage("it has no `content`".to_owned()));
        }
        let mut blocks = Blocks::default();
        blocks.start(body);
        blocks.delta(body);
        for (index, block) in (0..).zip(list(body, "content")) {
            blocks.list.push(Block { index, value: block.clone(), input: String::new() });
        }
        Box::new(blocks).finish()
    }
}

fn user(content: &[Value]) -> Value {
    json!({ "role": "user", "content": content })
}

fn result(shown: &Shown) -> Value {
    json!({
        "type": "tool_result",
        "tool_use_id": shown.call,
        "content": shown.text,
        "is_error": shown.status != ToolStatus::Ok,
    })
}

/// A message of the model, as it is sent back.
fn said(message: &Message) -> Vec<Value> {
    let mut calls = message.calls.iter().map(|call| {
        // The API wants an object; what was none is shown as it was.
        let input = match &call.arguments {
            object @ Value::Object(_) => object.clone(),
            other => json!({ "not_an_object": other }),
        };
        json!({ "type": "tool_use", "id": call.id, "name": tool_name(&call.name), "input": input })
    });
    let echo = message.generation.as_ref().and_then(|generation| generation.echo.as_ref());
    let mut content = Vec::new();
    if let Some(blocks) = echo.and_then(Value::as_array) {
        for block in blocks {
            if text(block, "type") == "tool_use" {
                content.extend(calls.next());
            } else {
                content.push(block.clone());
            }
        }
    } else if !message.text.trim().is_empty() {
        content.push(json!({ "type": "text", "text": message.text }));
    }
    content.extend(calls);
    // Thinking alone is refused, too.
    let speaks = |block: &Value| ["text", "tool_use"].contains(&text(block, "type"));
    if !content.iter().any(speaks) {
        content.push(json!({ "type": "text", "text": SILENCE }));
    }
    content
}

/// An answer under construction.
#[derive(Default)]
struct Blocks {
    model: String,
    list: Vec<Block>,
    usage: Option<Usage>,
    stop: Option<String>,
    bytes: usize,
}

struct Block {
    index: u64,
    value: Value,
    /// JSON text of a call, received so far.
    input: String,
}

impl Assembler for Blocks {
    fn event(&mut self, event: &sse::Event) -> Result<bool, WireError> {
        let body = parse(&event.data)?;
        self.bytes += event.data.len();
        if self.bytes > 16 * super::wire::MAX_ANSWER_BYTES || self.list.len() > 4 * MAX_CALLS {
            return Err(WireError::TooLarge);
        }
        match text(&body, "type") {
            "message_start" => self.start(&body["message"]),
            "content_block_start" => self.list.push(Block {
                index: count(&body, "/index"),
                value: body["content_block"].clone(),
                input: String::new(),
            }),
            "content_block_delta" => self.grow(&body)?,
            "message_delta" => self.delta(&json!({
                "stop_reason": body.pointer("/delta/stop_reason"),
                "usage": body.get("usage"),
            })),
            "message_stop" => return Ok(true),
            "error" => return Err(WireError::Server(error_words(&body).unwrap_or_default())),
            // `ping`, `content_block_stop`, and whatever is added: the format asks to ignore it.
            _ => {}
        }
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Result<Answer, WireError> {
        let Some(stop) = &self.stop else { return Err(WireError::Truncated) };
        let mut answer = Answer {
            model: self.model,
            stop: match stop.as_str() {
                "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
                "refusal" => StopReason::Refused,
                _ => StopReason::Done,
            },
            usage: self.usage,
            ..Answer::default()
        };
        let mut echo = Vec::new();
        let mut has_thinking = false;
        for Block { value, input, .. } in self.list {
            match text(&value, "type") {
                "text" => {
                    answer.text.push_str(text(&value, "text"));
                    // Refused when it comes back: a block without a word.
                    if !text(&value, "text").trim().is_empty() {
                        echo.push(json!({ "type": "text", "text": text(&value, "text") }));
                    }
                }
                "tool_use" => {
                    let arguments = if input.is_empty() {
                        value.get("input").map(Value::to_string).unwrap_or_default()
                    } else {
                        input
                    };
                    answer.calls.push(AnsweredCall {
                        id: text(&value, "id").to_owned(),
                        name: text(&value, "name").to_owned(),
                        arguments,
                    });
                    echo.push(json!({ "type": "tool_use" }));
                }
                "thinking" | "redacted_thinking" => {
                    has_thinking = true;
                    answer.reasoning.push_str(text(&value, "thinking"));
                    echo.push(value);
                }
                _ => {}
            }
        }
        answer.echo = has_thinking.then_some(Value::Array(echo));
        answer.check()?;
        Ok(answer)
    }
}

impl Blocks {
    fn start(&mut self, message: &Value) {
        text(message, "model").clone_into(&mut self.model);
        self.count(message.get("usage"));
    }

    fn delta(&mut self, delta: &Value) {
        if let Some(stop) = delta.get("stop_reason").and_then(Value::as_str) {
            self.stop = Some(stop.to_owned());
        }
        self.count(delta.get("usage"));
    }

    fn grow(&mut self, body: &Value) -> Result<(), WireError> {
        let index = count(body, "/index");
        let block = self.list.iter_mut().rfind(|block| block.index == index);
        let Some(block) = block else {
            return Err(WireError::Garbage(format!("block {index} has a delta but no start")));
        };
        let delta = &body["delta"];
        let field = match text(delta, "type") {
            "input_json_delta" => {
                block.input.push_str(text(delta, "partial_json"));
                return Ok(());
            }
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "signature_delta" => "signature",
            _ => return Ok(()),
        };
        let Some(fields) = block.value.as_object_mut() else {
            return Err(WireError::Garbage(format!("block {index} is not an object")));
        };
        match fields.entry(field).or_insert_with(|| json!("")) {
            Value::String(known) => known.push_str(text(delta, field)),
            other => *other = json!(text(delta, field)),
        }
        Ok(())
    }

    /// Counts of a later event replace those of an earlier one, if present.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let known = self.usage.get_or_insert_default();
        let cached = count(usage, "/cache_read_input_tokens");
        let input =
            count(usage, "/input_tokens") + count(usage, "/cache_creation_input_tokens") + cached;
        if input > 0 {
            (known.input_tokens, known.cached_tokens) = (input, cached);
        }
        known.output_tokens = known.output_tokens.max(count(usage, "/output_tokens"));
    }
}
