//! OpenAI's chat completions (`POST /chat/completions`), with the extensions of vLLM, SGLang,
//! llama.cpp, Ollama and others.
//!
//! Extensions to OpenAI's API:
//!
//! - reasoning in `reasoning_content` (DeepSeek, SGLang, llama.cpp) or `reasoning` (vLLM, OpenRouter,
//!   Ollama), which is sent back in the same field;
//! - `reasoning_details` (OpenRouter), which is sent back verbatim;
//! - `return_token_ids`, `prompt_token_ids` and `token_ids` (vLLM, and SGLang if it has them);
//! - token ids in the names of log-probabilities (`token_id:7`, vLLM's
//!   `--return-tokens-as-token-ids`);
//! - `meta_info.output_token_logprobs` (SGLang).

use serde_json::{Map, Value, json};
use warpwright_record::message::{Message, StopReason, Usage};

use super::key::Key;
use super::sse;
use super::wire::{
    Answer, AnsweredCall, Assembler, Entry, MAX_CALLS, Request, Shown, WireError, WireFormat,
    count, error_words, json as parse, list, text, tool_name,
};

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

/// Names of the field that holds reasoning.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

impl WireFormat for OpenAiChat {
    fn url(&self, base: &str) -> String {
        format!("{base}/chat/completions")
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose()))).into_iter().collect()
    }

    fn body(&self, request: &Request<'_>) -> Value {
        let mut messages = vec![json!({ "role": "system", "content": request.system })];
        for entry in request.entries {
            match entry {
                Entry::User(text) => messages.push(json!({ "role": "user", "content": text })),
                Entry::Said(message) => messages.push(said(message)),
                Entry::Results(results) => messages.extend(results.iter().map(result)),
            }
        }
        let tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| json!({ "type": "function", "function": tool }))
            .collect();
        let mut body = json!({
            "model": request.model,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
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
            // OpenAI's reasoning models refuse `max_tokens`; servers of open models know both names.
            body["max_completion_tokens"] = json!(most);
        }
        if let Some(effort) = &sampling.reasoning_effort {
            body["reasoning_effort"] = json!(effort);
        }
        if sampling.token_ids {
            body["logprobs"] = json!(true);
            body["return_token_ids"] = json!(true);
        }
        body
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<Chat>::default()
    }

    fn whole(&self, body: &Value) -> Result<Answer, WireError> {
        let mut chat = Chat::default();
        chat.take(body)?;
        Box::new(chat).finish()
    }
}

fn result(shown: &Shown) -> Value {
    json!({ "role": "tool", "tool_call_id": shown.call, "content": shown.text })
}

/// A message of the model, as it is sent back.
fn said(message: &Message) -> Value {
    let calls: Vec<Value> = message
        .calls
        .iter()
        .map(|call| {
            // A JSON text in any case: servers parse it, also when the model's own was broken.
            let arguments = call.arguments.to_string();
            let function = json!({ "name": tool_name(&call.name), "arguments": arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        })
        .collect();
    let mut said = json!({ "role": "assistant", "content": message.text });
    if !calls.is_empty() {
        said["tool_calls"] = json!(calls);
    }
    let echo = message.generation.as_ref().and_then(|generation| generation.echo.as_ref());
    if let Some(echo) = echo {
        let field = text(echo, "reasoning_field");
        if REASONING_FIELDS.contains(&field) {
            said[field] = json!(message.reasoning);
        }
        if let Some(details) = echo.get("reasoning_details") {
            said["reasoning_details"] = details.clone();
        }
    }
    said
}

/// An answer under construction.
#[derive(Default)]
struct Chat {
    answer: Answer,
    /// Calls by the server's index; text before `done`.
    calls: Vec<(u64, AnsweredCall)>,
    finish: Option<String>,
    refusal: String,
    reasoning_field: Option<&'static str>,
    reasoning_details: Vec<Value>,
    /// Token ids from the names of log-probabilities.
    named_ids: Vec<u32>,
    done: bool,
}

impl Assembler for Chat {
    fn event(&mut self, event: &sse::Event) -> Result<bool, WireError> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        self.take(&parse(&event.data)?)?;
        if self.calls.len() > MAX_CALLS {
            return Err(WireError::TooLarge);
        }
        self.answer.check()?;
        Ok(false)
    }

    fn finish(mut self: Box<Self>) -> Result<Answer, WireError> {
        let finish = match (&self.finish, self.done) {
            (Some(finish), _) => finish.as_str(),
            // Some servers end a stream without a reason.
            (None, true) if !self.answer.text.is_empty() || !self.calls.is_empty() => "stop",
            (None, _) => return Err(WireError::Truncated),
        };
        self.answer.stop = match finish {
            "length" => StopReason::Length,
            "content_filter" => StopReason::Refused,
            _ => StopReason::Done,
        };
        if !self.refusal.is_empty() {
            self.answer.stop = StopReason::Refused;
            self.answer.text.push_str(&self.refusal);
        }
        self.answer.calls = std::mem::take(&mut self.calls).into_iter().map(|(_, c)| c).collect();
        if self.answer.sampled_ids.is_empty() {
            self.answer.sampled_ids = std::mem::take(&mut self.named_ids);
        }
        let mut echo = Map::new();
        if let Some(field) = self.reasoning_field {
            echo.insert("reasoning_field".to_owned(), json!(field));
        }
        if !self.reasoning_details.is_empty() {
            echo.insert("reasoning_details".to_owned(), json!(self.reasoning_details));
        }
        self.answer.echo = (!echo.is_empty()).then_some(Value::Object(echo));
        self.answer.check()?;
        Ok(self.answer)
    }
}

impl Chat {
    /// A chunk, or a whole answer: both have the same fields, in `delta` or in `message`.
    fn take(&mut self, body: &Value) -> Result<(), WireError> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(WireError::Server(error_words(body).unwrap_or_default()));
        }
        let Some(choices) = body.get("choices").and_then(Value::as_array) else {
            if body.get("usage").is_some() {
                self.usage(body);
                return Ok(());
            }
            return Err(WireError::Garbage("it has no `choices`".to_owned()));
        };
        if self.answer.model.is_empty() {
            text(body, "model").clone_into(&mut self.answer.model);
        }
        if let Some(ids) = ids(body.get("prompt_token_ids")) {
            self.answer.prompt_ids = Some(ids);
        }
        self.usage(body);
        let Some(choice) = choices.first() else { return Ok(()) };
        let said = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        self.answer.text.push_str(text(said, "content"));
        self.refusal.push_str(text(said, "refusal"));
        for field in REASONING_FIELDS {
            let reasoning = text(said, field);
            if !reasoning.is_empty() && self.reasoning_field.is_none_or(|known| known == field) {
                self.answer.reasoning.push_str(reasoning);
                self.reasoning_field = Some(field);
            }
        }
        self.details(list(said, "reasoning_details"));
        for (position, call) in (0..).zip(list(said, "tool_calls")) {
            self.call(position, call);
        }
        self.tokens(choice);
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn call(&mut self, position: u64, delta: &Value) {
        let id = text(delta, "id");
        let index = delta.get("index").and_then(Value::as_u64).unwrap_or(position);
        // A new id under a known index is another call: not every server counts.
        let known = self.calls.iter().rposition(|(i, call)| {
            *i == index && (id.is_empty() || call.id.is_empty() || call.id == id)
        });
        let at = known.unwrap_or_else(|| {
            self.calls.push((index, AnsweredCall::default()));
            self.calls.len() - 1
        });
        let call = &mut self.calls[at].1;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        let function = delta.get("function").unwrap_or(&Value::Null);
        let name = text(function, "name");
        // Most send the name once, whole; some repeat it in every chunk.
        if call.name != name {
            call.name.push_str(name);
        }
        match function.get("arguments") {
            Some(Value::String(piece)) => call.arguments.push_str(piece),
            Some(object @ Value::Object(_)) => call.arguments = object.to_string(),
            _ => {}
        }
    }

    /// Pieces of one detail have the same index and type; text and signature are concatenated.
    fn details(&mut self, details: &[Value]) {
        for detail in details {
            let same = |name: &str, known: &Value| known.get(name) == detail.get(name);
            let open = self.reasoning_details.last_mut().filter(|known| {
                detail.get("index").is_some() && same("index", known) && same("type", known)
            });
            let (Some(open), Some(fields)) =
                (open.and_then(Value::as_object_mut), detail.as_object())
            else {
                self.reasoning_details.push(detail.clone());
                continue;
            };
            for (name, value) in fields {
                match (open.get_mut(name), value) {
                    (Some(Value::String(known)), Value::String(more))
                        if ["text", "summary", "data", "signature"].contains(&name.as_str()) =>
                    {
                        known.push_str(more);
                    }
                    (Some(known), value) if known.is_null() => *known = value.clone(),
                    (None, value) => {
                        open.insert(name.clone(), value.clone());
                    }
                    _ => {}
                }
            }
        }
    }

    fn tokens(&mut self, choice: &Value) {
        if let Some(more) = ids(choice.get("token_ids")) {
            self.answer.sampled_ids.extend(more);
        }
        let content = choice.get("logprobs").map_or(&[][..], |logprobs| list(logprobs, "content"));
        for token in content {
            if let Some(logprob) = token.get("logprob").and_then(Value::as_f64) {
                self.answer.logprobs.push(logprob as f32);
            }
            let id = text(token, "token").strip_prefix("token_id:").and_then(|id| id.parse().ok());
            self.named_ids.extend::<Option<u32>>(id);
        }
        let sampled = choice.pointer("/meta_info/output_token_logprobs").and_then(Value::as_array);
        if let Some(sampled) = sampled {
            let pairs = sampled.iter().filter_map(|token| {
                let id = u32::try_from(token.get(1)?.as_u64()?).ok()?;
                Some((id, token.get(0)?.as_f64()? as f32))
            });
            (self.answer.sampled_ids, self.answer.logprobs) = pairs.unzip();
        }
    }

    fn usage(&mut self, body: &Value) {
        let Some(usage) = body.get("usage").filter(|usage| usage.is_object()) else { return };
        let cached = count(usage, "/prompt_tokens_details/cached_tokens")
            .max(count(usage, "/prompt_cache_hit_tokens"));
        self.answer.usage = Some(Usage {
            input_tokens: count(usage, "/prompt_tokens"),
            cached_tokens: cached,
            output_tokens: count(usage, "/completion_tokens"),
            dollars: None,
        });
    }
}

fn ids(value: Option<&Value>) -> Option<Vec<u32>> {
    let ids = value?.as_array()?;
    ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_arguments_are_sent_back_as_a_json_string() {
        let call = warpwright_record::message::ToolCall {
            id: "1".to_owned(),
            name: "no such tool".to_owned(),
            arguments: json!("{\"a\": "),
        };
        let message = Message { calls: vec![call], ..Message::default() };
        let function = &said(&message)["tool_calls"][0]["function"];
        insta::assert_snapshot!(function, @r#"{"name":"no_such_tool","arguments":"\"{\\\"a\\\": \""}"#);
    }
}
