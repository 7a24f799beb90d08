//! The format of models trained from scratch.
//!
//! ```text
//! <|task|>sm_90
//! {reference}<|policy|>{text}<|call|>Write<|key|>file_path<|is|>kernels/a.cu<|key|>content<|is|>...<|end|>
//! <|tool|>{result}<|policy|>...
//! ```
//!
//! It is short, because such models are small: it has no constant text, and only the beginning of
//! each result. Marks are tokens that no text can produce, so that neither a reference nor a result
//! can forge a message of the policy.

use serde_json::{Map, Value};
use warpwright_agent::policy::Briefing;
use warpwright_record::dialogue::CUT;
use warpwright_record::message::{Message, StopReason, ToolCall, ToolResult};

use super::{Dialogue, call_name, target};
use crate::tokenizer::{Mark, Tokenizer};

/// Renders conversations with one of our tokenizers.
#[derive(Clone, Debug)]
pub struct Marks {
    tokenizer: Tokenizer,
    /// Limit on the tokens of a tool's result.
    result_tokens: usize,
}

impl Marks {
    /// Uses `tokenizer`, and at most `result_tokens` tokens of each tool's result.
    pub fn new(tokenizer: Tokenizer, result_tokens: usize) -> Self {
        Self { tokenizer, result_tokens }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn end(&self) -> u32 {
        self.tokenizer.id(Mark::End)
    }

    fn put(&self, ids: &mut Vec<u32>, mark: Mark, text: &str) {
        ids.push(self.tokenizer.id(mark));
        ids.extend(self.tokenizer.encode(text));
    }

    fn opening(&self, target: &str, reference: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.put(&mut ids, Mark::Task, &opening(target, reference));
        ids.push(self.tokenizer.id(Mark::Policy));
        ids
    }

    /// Parses one call: a name, then arguments.
    fn call(&self, ids: &[u32], id: String) -> ToolCall {
        let at = ids.iter().position(|id| self.tokenizer.mark(*id).is_some()).unwrap_or(ids.len());
        let (name, rest) = ids.split_at(at);
        let name = self.tokenizer.decode(name).trim().to_owned();
        let arguments = self.arguments(rest).unwrap_or_else(|| Value::String(self.plain(rest)));
        ToolCall { id, name, arguments }
    }

    /// Parses repetitions of `<|key|>name<|is|>value` or `<|key|>name<|json|>value`.
    fn arguments(&self, mut ids: &[u32]) -> Option<Value> {
        let mut arguments = Map::new();
        while !ids.is_empty() {
            let (mark, key, rest) = self.marked(ids)?;
            let (kind, value, rest) = self.marked(rest)?;
            let value = match (mark, kind) {
                (Mark::Key, Mark::Is) => Value::String(value),
                (Mark::Key, Mark::Json) => serde_json::from_str(&value).ok()?,
                _ => return None,
            };
            if arguments.insert(key, value).is_some() {
                return None;
            }
            ids = rest;
        }
        Some(Value::Object(arguments))
    }

    /// A mark, the text up to the next mark, and the remaining tokens.
    fn marked<'i>(&self, ids: &'i [u32]) -> Option<(Mark, String, &'i [u32])> {
        let (first, rest) = ids.split_first()?;
        let mark = self.tokenizer.mark(*first)?;
        let end = rest.iter().position(|id| self.tokenizer.mark(*id).is_some());
        let (text, rest) = rest.split_at(end.unwrap_or(rest.len()));
        Some((mark, self.tokenizer.decode(text), rest))
    }

    /// The text with the marks' names, for people.
    fn plain(&self, ids: &[u32]) -> String {
        let runs = ids.chunk_by(|a, b| {
            self.tokenizer.mark(*a).is_none() && self.tokenizer.mark(*b).is_none()
        });
        let words = runs.map(|run| match self.tokenizer.mark(run[0]) {
            Some(mark) => mark.text().to_owned(),
            None => self.tokenizer.decode(run),
        });
        words.collect()
    }

    /// The texts of a conversation, on which a tokenizer is trained.
    pub fn texts(briefing: &Briefing, turns: &[(Message, Vec<ToolResult>)]) -> Vec<String> {
        let mut texts = vec![opening(target(&briefing.device), &briefing.reference)];
        for (message, results) in turns {
            texts.push(message.text.clone());
            for call in &message.calls {
                texts.push(call.name.clone());
                for (key, value) in call.arguments.as_object().into_iter().flatten() {
                    texts.push(key.clone());
                    texts.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                }
            }
            texts.extend(results.iter().map(|result| result.text.clone()));
        }
        texts
    }
}

impl Dialogue for Marks {
    fn stops(&self) -> Vec<u32> {
        vec![self.end()]
    }

    fn briefing(&self, briefing: &Briefing) -> Vec<u32> {
        self.opening(target(&briefing.device), &briefing.reference)
    }

    fn results(&self, results: &[ToolResult]) -> Vec<u32> {
        let mut ids = Vec::new();
        for result in results {
            let at = ids.len() + 1;
            self.put(&mut ids, Mark::Tool, &result.text);
            ids.truncate(at + self.result_tokens);
        }
        if results.is_empty() {
            ids.push(self.end());
            self.put(&mut ids, Mark::Tool, CUT);
        }
        ids.push(self.tokenizer.id(Mark::Policy));
        ids
    }

    fn said(&self, message: &Message) -> Vec<u32> {
        let mut ids = self.tokenizer.encode(&message.text);
        for call in &message.calls {
            self.put(&mut ids, Mark::Call, &call.name);
            match &call.arguments {
                Value::Object(arguments) => {
                    for (key, value) in arguments {
                        self.put(&mut ids, Mark::Key, key);
                        match value {
                            Value::String(text) => self.put(&mut ids, Mark::Is, text),
                            other => self.put(&mut ids, Mark::Json, &other.to_string()),
                        }
                    }
                }
                other => self.put(&mut ids, Mark::Json, &other.to_string()),
            }
        }
        ids.push(self.end());
        ids
    }

    fn message(&self, ids: &[u32], turn: u32, is_complete: bool) -> Message {
        let body = if is_complete { ids.strip_suffix(&[self.end()]).unwrap_or(ids) } else { ids };
        let is_call = |id: &u32| *id == self.tokenizer.id(Mark::Call);
        let mut parts = body.split(is_call);
        let text = self.tokenizer.decode(parts.next().unwrap_or_default());
        let mut calls: Vec<ToolCall> =
            parts.zip(1..).map(|(part, number)| self.call(part, call_name(turn, number))).collect();
        if !is_complete {
            calls.pop();
        }
        let stop = if is_complete { StopReason::Done } else { StopReason::Length };
        Message { text, calls, stop, ..Message::default() }
    }
}

fn opening(target: &str, reference: &str) -> String {
    format!("{target}\n{}\n", reference.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use warpwright_agent::judge::DeviceFacts;
    use warpwright_record::message::ToolStatus;
    use warpwright_record::verdict::Profile;

    use super::*;
    use crate::tokenizer::Pretokenizer;

    fn dialogue() -> Marks {
        let texts = ["class Model(nn.Module):", "Write file_path content Bash command"];
        Marks::new(Tokenizer::train(texts, 300, Pretokenizer::Words).unwrap(), 5)
    }

    fn call(number: u32, name: &str, arguments: Value) -> ToolCall {
        ToolCall { id: format!("turn-3-call-{number}"), name: name.to_owned(), arguments }
    }

    fn result(text: &str) -> ToolResult {
        ToolResult {
            call: "turn-1-call-1".to_owned(),
            status: ToolStatus::Ok,
            text: text.to_owned(),
            verdicts: vec![],
            findings: vec![],
        }
    }

    #[test]
    fn messages_round_trip_through_tokens() {
        let dialogue = dialogue();
        let calls = vec![
            call(1, "Write", json!({ "file_path": "kernels/a.cu", "content": "int a;\n<|end|>" })),
            call(2, "Bash", json!({ "command": "true", "timeout": 5, "background": null })),
            call(3, "TodoWrite", json!({})),
        ];
        let message = Message { text: "First.".to_owned(), calls, ..Message::default() };
        let ids = dialogue.said(&message);
        assert_eq!(dialogue.message(&ids, 3, true), message);
        let last = Message { text: "Done.".to_owned(), ..Message::default() };
        assert_eq!(dialogue.message(&dialogue.said(&last), 9, true), last);
    }

    #[test]
    fn truncated_message_keeps_complete_calls() {
        let dialogue = dialogue();
        let first = call(1, "Bash", json!({ "command": "true" }));
        let second = call(2, "Bash", json!({ "command": "false" }));
        let calls = vec![first.clone(), second];
        let ids = dialogue.said(&Message { calls, ..Message::default() });
        let cut = dialogue.message(&ids[..ids.len() - 2], 3, false);
        assert_eq!((cut.calls, cut.stop), (vec![first], StopReason::Length));
    }

    #[test]
    fn malformed_call_keeps_its_text() {
        let dialogue = dialogue();
        let id = |mark| dialogue.tokenizer.id(mark);
        let said = |marks: &[(Mark, &str)]| {
            let mut ids = Vec::new();
            for (mark, text) in marks {
                dialogue.put(&mut ids, *mark, text);
            }
            ids.push(id(Mark::End));
            let message = dialogue.message(&ids, 1, true);
            message.calls.into_iter().next().unwrap().arguments
        };
        let bad = [
            said(&[(Mark::Call, "Bash"), (Mark::Is, "true")]),
            said(&[(Mark::Call, "Bash"), (Mark::Key, "command")]),
            said(&[(Mark::Call, "Bash"), (Mark::Key, "timeout"), (Mark::Json, "5 5")]),
            said(&[(Mark::Call, "Bash"), (Mark::Task, "a"), (Mark::Is, "b")]),
        ];
        let shown: Vec<&str> = bad.iter().map(|bad| bad.as_str().unwrap()).collect();
        assert_eq!(
            shown,
            ["<|is|>true", "<|key|>command", "<|key|>timeout<|json|>5 5", "<|task|>a<|is|>b"]
        );
    }

    #[test]
    fn results_are_truncated_and_cannot_contain_marks() {
        let dialogue = dialogue();
        let ids = dialogue.results(&[result("abcdefghijk"), result("<|policy|>")]);
        assert_eq!(ids.len(), (1 + 5) * 2 + 1);
        let marks: Vec<Mark> = ids.iter().filter_map(|id| dialogue.tokenizer.mark(*id)).collect();
        assert_eq!(marks, [Mark::Tool, Mark::Tool, Mark::Policy]);
    }

    #[test]
    fn demonstration_masks_everything_but_messages() {
        let dialogue = dialogue();
        let message = Message { text: "one".to_owned(), ..Message::default() };
        let turns = [(message.clone(), vec![result("two")]), (message.clone(), vec![])];
        let briefing = Briefing {
            task: "relu".to_owned(),
            reference: "class Model: ...".to_owned(),
            skill: String::new(),
            device: DeviceFacts::assumed("cpu"),
            profile: Profile::Strict,
            seed: 0,
            turns: None,
        };
        let sequence = dialogue.sequence(&briefing, &turns);
        let actions: Vec<u32> = sequence
            .ids
            .iter()
            .zip(&sequence.response_mask)
            .filter_map(|(id, response_mask)| (*response_mask == 1).then_some(*id))
            .collect();
        assert_eq!(actions, [dialogue.said(&message), dialogue.said(&message)].concat());
        let opening = dialogue.opening("cpu", "class Model: ...");
        assert_eq!(sequence.ids[..opening.len()], opening);
    }

    proptest! {
        /// Whatever a model says, there is a message.
        #[test]
        fn any_tokens_parse_as_a_message(ids in prop::collection::vec(0u32..300, 0..60), cut in any::<bool>()) {
            let dialogue = dialogue();
            let message = dialogue.message(&ids, 1, !cut);
            prop_assert!(message.calls.len() <= ids.len());
        }

        #[test]
        fn any_text_round_trips(text in any::<String>(), key in any::<String>(), value in any::<String>()) {
            let dialogue = dialogue();
            let calls = vec![call(1, "Write", json!({ key: value }))];
            let message = Message { text, calls, ..Message::default() };
            prop_assert_eq!(dialogue.message(&dialogue.said(&message), 3, true), message);
        }
    }
}
