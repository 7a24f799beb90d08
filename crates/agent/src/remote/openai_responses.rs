//! OpenAI's responses (`POST /responses`), used without state on the server (`store: false`).
//!
//! Reasoning arrives as items with encrypted content, which must be sent back verbatim and in
//! place. An answer with such items is stored as its list of items. Tool calls in that list are
//! stored as positions only: the call itself is in the message.

use serde_json::{Value, json};
use warpwright_record::message::{Message, StopReason, Usage};

use super::key::Key;
use super::sse;
use super::wire::{
    Answer, AnsweredCall, Assembler, Entry, MAX_CALLS, Request, WireError, WireFormat, count,
    error_words, json as parse, list, text, tool_name,
};

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl WireFormat for OpenAiResponses {
    fn url(&self, base: &str) -> String {
        format!("{base}/responses")
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose()))).into_iter().collect()
    }

    fn body(&self, request: &Request<'_>) -> Value {
        let mut input = Vec::new();
        for entry in request.entries {
            match entry {
                Entry::User(text) => input.push(json!({ "role": "user", "content": text })),
                Entry::Said(message) => input.extend(said(message)),
                Entry::Results(results) => input.extend(results.iter().map(|result| {
                    json!({
                        "type": "function_call_output",
                        "call_id": result.call,
                        "output": result.text,
                    })
                })),
            }
        }
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    // Strict schemas have no optional arguments.
                    "strict": false,
                })
            })
            .collect();
        let mut body = json!({
            "model": request.model,
            "instructions": request.system,
            "input": input,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "stream": true,
        });
        // An empty list is refused.
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        let sampling = request.sampling;
        if let Some(temperature) = sampling.temperature {
            body["temperature"] = json!(temperature);
        }
        if let Some(most) = sampling.max_output_tokens {
            body["max_output_tokens"] = json!(most);
        }
        if let Some(effort) = &sampling.reasoning_effort {
            body["reasoning"] = json!({ "effort": effort });
        }
        body
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<Items>::default()
    }

    fn whole(&self, body: &Value) -> Result<Answer, WireError> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(WireError::Server(error_words(body).unwrap_or_default()));
        }
        if !body.get("output").is_some_and(Value::is_array) {
            return Err(WireError::Garbage("it has no `output`".to_owned()));
        }
        let items = Items { response: Some(body.clone()), ..Items::default() };
        Box::new(items).finish()
    }
}

/// A message of the model, as it is sent back.
fn said(message: &Message) -> Vec<Value> {
    let mut calls = message.calls.iter().map(|call| {
        let arguments = match &call.arguments {
            // The text as it was: it is no JSON.
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        json!({
            "type": "function_call",
            "call_id": call.id,
            "name": tool_name(&call.name),
            "arguments": arguments,
        })
    });
    let echo = message.generation.as_ref().and_then(|generation| generation.echo.as_ref());
    let mut items = Vec::new();
    if let Some(echoed) = echo.and_then(Value::as_array) {
        for item in echoed {
            if text(item, "type") == "function_call" {
                items.extend(calls.next());
            } else {
                items.push(item.clone());
            }
        }
    } else if !message.text.is_empty() || message.calls.is_empty() {
        items.push(json!({ "role": "assistant", "content": message.text }));
    }
    items.extend(calls);
    items
}

/// An answer under construction.
#[derive(Default)]
struct Items {
    /// Finished items by position.
    done: Vec<(u64, Value)>,
    /// The response of the last event.
    response: Option<Value>,
    bytes: usize,
}

impl Assembler for Items {
    fn event(&mut self, event: &sse::Event) -> Result<bool, WireError> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let mut body = parse(&event.data)?;
        self.bytes += event.data.len();
        if self.bytes > 16 * super::wire::MAX_ANSWER_BYTES || self.done.len() > 4 * MAX_CALLS {
            return Err(WireError::TooLarge);
        }
        match text(&body, "type") {
            "response.output_item.done" => {
                self.done.push((count(&body, "/output_index"), body["item"].take()));
            }
            "response.completed" | "response.incomplete" => {
                self.response = Some(body["response"].take());
                return Ok(true);
            }
            "response.failed" => {
                let error = error_words(&body["response"]).unwrap_or_default();
                return Err(WireError::Server(error));
            }
            "error" => return Err(WireError::Server(error_words(&body).unwrap_or_default())),
            // The pieces: the finished item repeats them.
            _ => {}
        }
        Ok(false)
    }

    fn finish(mut self: Box<Self>) -> Result<Answer, WireError> {
        let Some(response) = self.response.take() else { return Err(WireError::Truncated) };
        // Some servers leave the output out at the end.
        self.done.sort_by_key(|(index, _)| *index);
        let streamed: Vec<Value> = self.done.into_iter().map(|(_, item)| item).collect();
        let whole = list(&response, "output");
        let items = if whole.is_empty() { streamed.as_slice() } else { whole };
        let mut answer = Answer {
            model: text(&response, "model").to_owned(),
            stop: stop(&response),
            usage: usage(&response),
            ..Answer::default()
        };
        let mut echo = Vec::new();
        let mut has_reasoning = false;
        for item in items {
            match text(item, "type") {
                "message" => message(item, &mut answer, &mut echo),
                "function_call" => {
                    let (call_id, id) = (text(item, "call_id"), text(item, "id"));
                    answer.calls.push(AnsweredCall {
                        id: if call_id.is_empty() { id } else { call_id }.to_owned(),
                        name: text(item, "name").to_owned(),
                        arguments: text(item, "arguments").to_owned(),
                    });
                    echo.push(json!({ "type": "function_call" }));
                }
                "reasoning" => {
                    has_reasoning = true;
                    for part in list(item, "content").iter().chain(list(item, "summary")) {
                        if !answer.reasoning.is_empty() {
                            answer.reasoning.push('\n');
                        }
                        answer.reasoning.push_str(text(part, "text"));
                    }
                    echo.push(item.clone());
                }
                _ => {}
            }
        }
        answer.echo = has_reasoning.then_some(Value::Array(echo));
        answer.check()?;
        Ok(answer)
    }
}

fn message(item: &Value, answer: &mut Answer, echo: &mut Vec<Value>) {
    let mut said = String::new();
    for part in list(item, "content") {
        said.push_str(text(part, "text"));
        if text(part, "type") == "refusal" {
            said.push_str(text(part, "refusal"));
            answer.stop = StopReason::Refused;
        }
    }
    echo.push(json!({ "role": "assistant", "content": said }));
    answer.text.push_str(&said);
}

fn stop(response: &Value) -> StopReason {
    let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
    match reason {
        Some("content_filter") => StopReason::Refused,
        Some(_) => StopReason::Length,
        None if text(response, "status") == "incomplete" => StopReason::Length,
        None => StopReason::Done,
    }
}

fn usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    Some(Usage {
        input_tokens: count(usage, "/input_tokens"),
        cached_tokens: count(usage, "/input_tokens_details/cached_tokens"),
        output_tokens: count(usage, "/output_tokens"),
        dollars: None,
    })
}
