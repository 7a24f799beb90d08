//! One episode's conversation, and the part of it that the model sees.
//!
//! When the context nears the model's limit, the oldest tool results are replaced by a line with the omitted
//! size. The model's own messages never change, because training uses them. The omitted results are recorded with
//! the message that they were omitted for, so that a resumed episode shows the model the same context.

use std::collections::BTreeSet;

use warpwright_record::dialogue::{CUT, GO_ON, NOT_RUN, left_out};
use warpwright_record::message::{Message, StopReason, ToolResult, ToolStatus};

use super::wire::{Entry, Shown};

/// Assumed bytes per token of an unknown tokenizer; low, so that the estimated token count is high.
const BYTES_PER_TOKEN: f64 = 3.0;
/// Fraction of the limit that one elision frees. Every elision invalidates the server's prefix cache, so it
/// should be rare.
const FREED_SHARE: f64 = 0.3;
/// Results up to this length, bytes, are not replaced.
const MIN_BYTES: usize = 256;

/// The conversation.
#[derive(Clone, Debug, Default)]
pub struct Context {
    entries: Vec<Entry>,
    elided: BTreeSet<String>,
    /// Bytes of the context at the last answer, and its token count by the server.
    measured: Option<(usize, u64)>,
    /// Bytes that every request carries: system prompt and tools.
    fixed_bytes: usize,
}

impl Context {
    /// Begins a conversation. `fixed_bytes` is the size of system prompt and tools.
    pub fn new(fixed_bytes: usize, first: String) -> Self {
        Self { entries: vec![Entry::User(first)], fixed_bytes, ..Self::default() }
    }

    /// Appends the model's message. Call it before [`Self::answered`].
    pub fn said(&mut self, message: Message) {
        if let Some(generation) = &message.generation {
            self.elided.extend(generation.elided.iter().cloned());
            if generation.usage.input_tokens > 0 {
                self.measured = Some((self.bytes(), generation.usage.input_tokens));
            }
        }
        self.entries.push(Entry::Said(message));
    }

    /// Appends the results of the message's calls; none after a message without calls.
    pub fn answered(&mut self, results: &[ToolResult]) {
        let Some(Entry::Said(message)) = self.entries.last() else { return };
        if message.calls.is_empty() {
            let text = if message.stop == StopReason::Length { CUT } else { GO_ON };
            self.entries.push(Entry::User(text.to_owned()));
            return;
        }
        let shown = message.calls.iter().map(|call| {
            let result = results.iter().find(|result| result.call == call.id);
            result.map_or_else(
                || Shown {
                    call: call.id.clone(),
                    status: ToolStatus::Error,
                    text: NOT_RUN.to_owned(),
                },
                |result| Shown {
                    call: call.id.clone(),
                    status: result.status,
                    text: result.text.clone(),
                },
            )
        });
        let shown = shown.collect();
        self.entries.push(Entry::Results(shown));
    }

    /// Omits the oldest results until the context fits `limit` tokens with room to spare. Returns
    /// the calls whose results are newly omitted. The newest results are omitted last.
    pub fn make_room(&mut self, limit: u64) -> Vec<String> {
        if self.tokens() <= limit as f64 {
            return Vec::new();
        }
        let goal = limit as f64 * (1.0 - FREED_SHARE);
        let mut newly = Vec::new();
        let candidates: Vec<String> = self
            .entries
            .iter()
            .filter_map(|entry| if let Entry::Results(shown) = entry { Some(shown) } else { None })
            .flatten()
            .filter(|shown| shown.text.len() > MIN_BYTES && !self.elided.contains(&shown.call))
            .map(|shown| shown.call.clone())
            .collect();
        for call in candidates {
            if self.tokens() <= goal {
                break;
            }
            self.elided.insert(call.clone());
            newly.push(call);
        }
        newly
    }

    /// The conversation as the model sees it.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().map(|entry| self.shown(entry)).collect()
    }

    /// Whether the conversation has a call with this id.
    pub fn has_call(&self, id: &str) -> bool {
        self.entries.iter().any(|entry| match entry {
            Entry::Said(message) => message.calls.iter().any(|call| call.id == id),
            _ => false,
        })
    }

    /// Estimated tokens of the next request.
    fn tokens(&self) -> f64 {
        let per_token = self.measured.map_or(BYTES_PER_TOKEN, |(bytes, tokens)| {
            (bytes as f64 / tokens as f64).clamp(1.0, 8.0)
        });
        self.bytes() as f64 / per_token
    }

    fn bytes(&self) -> usize {
        let of = |entry: &Entry| match entry {
            Entry::User(text) => text.len(),
            Entry::Said(message) => {
                let calls =
                    message.calls.iter().map(|c| c.name.len() + c.arguments.to_string().len());
                // What is echoed is about as long as what is said of it.
                message.text.len() + message.reasoning.len() + calls.sum::<usize>()
            }
            Entry::Results(shown) => shown.iter().map(|s| self.text_of(s).len()).sum(),
        };
        self.fixed_bytes + self.entries.iter().map(of).sum::<usize>()
    }

    fn shown(&self, entry: &Entry) -> Entry {
        let Entry::Results(results) = entry else { return entry.clone() };
        let shown = results
            .iter()
            .map(|shown| Shown { text: self.text_of(shown).into_owned(), ..shown.clone() });
        Entry::Results(shown.collect())
    }

    fn text_of<'a>(&self, shown: &'a Shown) -> std::borrow::Cow<'a, str> {
        if !self.elided.contains(&shown.call) {
            return shown.text.as_str().into();
        }
        left_out(&shown.text).into()
    }
}

#[cfg(test)]
mod tests {
    use warpwright_record::message::{Generation, ToolCall, Usage};

    use super::*;

    fn message(id: &str, input_tokens: u64) -> Message {
        let usage = Usage { input_tokens, ..Usage::default() };
        Message {
            text: "a word".to_owned(),
            calls: vec![ToolCall {
                id: id.to_owned(),
                name: "Read".to_owned(),
                arguments: serde_json::json!({}),
            }],
            generation: Some(Box::new(Generation { usage, ..Generation::default() })),
            ..Message::default()
        }
    }

    fn result(id: &str, bytes: usize) -> ToolResult {
        let text = "x".repeat(bytes);
        ToolResult {
            call: id.to_owned(),
            status: ToolStatus::Ok,
            text,
            verdicts: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn texts(context: &Context) -> Vec<String> {
        let of = |entry| match entry {
            Entry::Results(shown) => shown.into_iter().map(|s: Shown| s.text).collect(),
            _ => Vec::new(),
        };
        context.entries().into_iter().flat_map(of).collect()
    }

    #[test]
    fn oldest_results_are_dropped_first_and_messages_never() {
        let mut context = Context::new(300, "begin".to_owned());
        for id in ["a", "b", "c"] {
            context.said(message(id, 0));
            context.answered(&[result(id, 3000)]);
        }
        let before = context.clone();
        assert_eq!(context.make_room(4000), Vec::<String>::new(), "positive control");
        assert_eq!(context.make_room(3050), ["a"]);
        let texts = texts(&context);
        assert_eq!(texts[0], "[left out to make room: 3000 bytes in 1 lines]");
        assert_eq!((texts[1].len(), texts[2].len()), (3000, 3000));
        let said = |context: &Context| -> Vec<Entry> {
            context.entries().into_iter().filter(|e| matches!(e, Entry::Said(_))).collect()
        };
        assert_eq!(said(&context), said(&before));
    }

    #[test]
    fn token_count_of_the_server_replaces_the_estimate() {
        let mut context = Context::new(0, "x".repeat(6000));
        // 6000 bytes were 1000 tokens, not 2000.
        context.said(message("a", 1000));
        context.answered(&[result("a", 6000)]);
        assert_eq!(context.make_room(2100), Vec::<String>::new());
        assert_eq!(context.make_room(1900), ["a"]);
    }

    #[test]
    fn truncated_message_is_answered_with_a_notice() {
        let mut context = Context::new(0, "begin".to_owned());
        context.said(Message { stop: StopReason::Length, ..Message::default() });
        context.answered(&[]);
        assert_eq!(context.entries().last(), Some(&Entry::User(CUT.to_owned())));
    }
}
