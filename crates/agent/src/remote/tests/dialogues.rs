//! Each format's answers, streamed and in one piece, and what goes back to the server after them.

use serde_json::Value;
use warpwright_record::message::{Message, StopReason, ToolResult, ToolStatus, Usage};

use super::server::{Say, Server};
use super::{briefing, endpoint, fixture, quick};
use crate::policy::{Past, Policy};
use crate::remote::anthropic::Anthropic;
use crate::remote::openai_chat::OpenAiChat;
use crate::remote::openai_responses::OpenAiResponses;
use crate::remote::policy::{Prices, RemotePolicy, RemoteSettings};
use crate::remote::wire::{Sampling, WireFormat};

pub(super) fn settings() -> RemoteSettings {
    RemoteSettings {
        name: "openai:test-model".to_owned(),
        model: "test-model".to_owned(),
        sampling: Sampling::default(),
        context_tokens: 100_000,
        prices: Some(Prices { input: 1.0, cached: 0.1, output: 10.0 }),
    }
}

fn policy(format: Box<dyn WireFormat>, server: &Server) -> RemotePolicy {
    RemotePolicy::new(endpoint(format, server, quick()), settings())
}

/// `chat/text.sse` or `.json` as the answer.
fn say(name: &str) -> Say {
    let body = fixture(name);
    if name.contains(".json") { Say::json(200, body) } else { Say::stream(body) }
}

fn format_of(name: &str) -> Box<dyn WireFormat> {
    match name.split('/').next() {
        Some("openai_chat") => Box::new(OpenAiChat),
        Some("openai_responses") => Box::new(OpenAiResponses),
        _ => Box::new(Anthropic),
    }
}

/// The first message, when the server answers with this fixture.
fn message(name: &str) -> Message {
    let server = Server::start(vec![say(name)]);
    policy(format_of(name), &server).begin(&briefing()).unwrap()
}

fn result(call: &str, text: &str) -> ToolResult {
    let status = if text.starts_with("failed") { ToolStatus::Error } else { ToolStatus::Ok };
    ToolResult {
        call: call.to_owned(),
        status,
        text: text.to_owned(),
        verdicts: Vec::new(),
        findings: Vec::new(),
    }
}

/// Sends the model's message and the results back; returns the messages of the second request.
fn second_request(name: &str) -> Value {
    let server = Server::start(vec![say(name)]);
    let mut policy = policy(format_of(name), &server);
    let message = policy.begin(&briefing()).unwrap();
    let results: Vec<_> = message
        .calls
        .iter()
        .map(|call| result(&call.id, &format!("failed {}", call.name)))
        .collect();
    policy.next(&results).unwrap();
    let mut body = server.asked()[1].body.clone();
    let field = if body.get("input").is_some() { "input" } else { "messages" };
    body[field].take()
}

#[test]
fn first_request_has_the_skill_the_task_and_the_tools() {
    for name in ["openai_chat/text.sse", "openai_responses/text.sse", "anthropic/text.sse"] {
        let server = Server::start(vec![say(name)]);
        policy(format_of(name), &server).begin(&briefing()).unwrap();
        let body = &server.asked()[0].body;
        let text = body.to_string();
        for part in ["Write kernels.", "class Model: ...", "\"Bash\"", "command line", "test-model"]
        {
            assert!(text.contains(part), "{name}: no {part} in {text}");
        }
        assert_eq!(body["stream"], true, "{name}");
    }
}

#[test]
fn text_and_usage_are_read_in_every_format() {
    for name in ["openai_chat/text.sse", "openai_responses/text.sse", "anthropic/text.sse"] {
        let message = message(name);
        assert_eq!(message.text, "The kernels are done.", "{name}");
        assert_eq!((message.calls.len(), message.stop), (0, StopReason::Done), "{name}");
        let generation = message.generation.unwrap();
        assert_eq!((generation.model.as_str(), generation.attempts), ("test-model-2026", 1));
        let dollars = Some((176.0 + 102.4 + 340.0) / 1e6);
        let usage = Usage { input_tokens: 1200, cached_tokens: 1024, output_tokens: 34, dollars };
        assert_eq!(generation.usage, usage, "{name}");
        assert_eq!((generation.echo, generation.tokens), (None, None), "{name}");
    }
}

#[test]
fn streamed_calls_and_reasoning_equal_unstreamed_ones() {
    for (streamed, whole) in [
        ("openai_chat/calls.sse", "openai_chat/calls.json"),
        ("openai_responses/reasoning_calls.sse", "openai_responses/reasoning_calls.json"),
        ("openai_responses/empty_output.sse", "openai_responses/reasoning_calls.json"),
        ("anthropic/thinking_calls.sse", "anthropic/thinking_calls.json"),
    ] {
        let message = message(streamed);
        assert_eq!(message, self::message(whole), "{streamed}");
        assert_eq!(message.text, "Two files.");
        let calls: Vec<_> = message
            .calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.to_string()))
            .collect();
        let read = r#"{"file_path":"model.py"}"#.to_owned();
        assert_eq!(
            calls,
            [("Read", read), ("Bash", r#"{"command":"ls é"}"#.to_owned())],
            "{streamed}"
        );
        let reasons = !streamed.starts_with("openai_chat");
        assert_eq!(message.reasoning == "A row per block.", reasons, "{streamed}");
        assert_eq!(message.generation.unwrap().echo.is_some(), reasons, "{streamed}");
    }
}

#[test]
fn truncation_and_refusal_set_the_stop_reason() {
    for name in ["openai_chat/length.sse", "openai_responses/length.sse", "anthropic/length.sse"] {
        let message = message(name);
        assert_eq!(message.stop, StopReason::Length, "{name}");
        let arguments = message.calls[0].arguments.as_str().unwrap();
        assert!(arguments.ends_with("__glo"), "{name}: {arguments}");
    }
    for name in [
        "openai_chat/content_filter.sse",
        "openai_chat/refusal.json",
        "openai_responses/content_filter.sse",
        "openai_responses/refusal.json",
        "anthropic/refusal.sse",
    ] {
        let message = message(name);
        assert_eq!((message.stop, message.calls.len()), (StopReason::Refused, 0), "{name}");
        assert_eq!(!message.text.is_empty(), name.ends_with("refusal.json"), "{name}");
    }
}

#[test]
fn error_in_a_response_body_is_an_error() {
    for (name, words) in [
        ("openai_responses/failed.sse", "server_error: The model failed"),
        ("openai_responses/cut.sse", "ended early"),
        ("anthropic/overloaded.sse", "overloaded_error: Overloaded"),
        ("anthropic/cut.sse", "ended early"),
        ("anthropic/error.json", "overloaded_error: Overloaded"),
    ] {
        let server = Server::start(vec![say(name)]);
        let error = policy(format_of(name), &server).begin(&briefing()).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
        assert_eq!(server.asked().len(), 4, "{name}: tried again");
    }
}

#[test]
fn missing_and_duplicate_call_ids_are_replaced() {
    let server = Server::start(vec![say("openai_chat/bad_ids.sse")]);
    let mut policy = policy(Box::new(OpenAiChat), &server);
    let first = policy.begin(&briefing()).unwrap();
    let shown = |message: &Message| -> Vec<String> {
        message.calls.iter().map(|c| format!("{} {}", c.id, c.arguments)).collect()
    };
    let expected = [
        r#"call_a {"command":"a"}"#,
        r#"call_b {"command":"b"}"#,
        r#"call_2 "{\"command\": \"c""#,
        r#"call_a_2 {"command":"d"}"#,
    ];
    assert_eq!(shown(&first), expected);
    let results: Vec<_> = first.calls.iter().map(|call| result(&call.id, "ok")).collect();
    let second = policy.next(&results).unwrap();
    let all: Vec<_> = first.calls.iter().chain(&second.calls).map(|call| &call.id).collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 8, "{all:?}");
}

#[test]
fn chat_completions_request_repeats_earlier_messages() {
    let messages = second_request("openai_chat/reasoning.sse");
    insta::assert_snapshot!(messages[2], @r#"
    {"role":"assistant","content":"Done.","reasoning_content":"A row per block."}
    "#);
    let messages = second_request("openai_chat/reasoning_details.sse");
    insta::assert_snapshot!(messages[2], @r#"
    {"role":"assistant","content":"Done.","reasoning":"Think more","reasoning_details":[{"type":"reasoning.text","text":"Think more","format":"f","index":0,"signature":"c2ln"}]}
    "#);
    let messages = second_request("openai_chat/calls.sse");
    insta::assert_snapshot!(format!("{}\n{}\n{}", messages[2], messages[3], messages[4]), @r#"
    {"role":"assistant","content":"Two files.","tool_calls":[{"id":"call_a","type":"function","function":{"name":"Read","arguments":"{\"file_path\":\"model.py\"}"}},{"id":"call_b","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"ls é\"}"}}]}
    {"role":"tool","tool_call_id":"call_a","content":"failed Read"}
    {"role":"tool","tool_call_id":"call_b","content":"failed Bash"}
    "#);
}

#[test]
fn anthropic_request_repeats_earlier_messages() {
    let messages = second_request("anthropic/thinking_calls.sse");
    insta::assert_snapshot!(messages[1], @r#"
    {"role":"assistant","content":[{"type":"thinking","thinking":"A row per block.","signature":"c2lnbmVk"},{"type":"redacted_thinking","data":"ZW5jcnlwdGVk"},{"type":"text","text":"Two files."},{"type":"tool_use","id":"toolu_a","name":"Read","input":{"file_path":"model.py"}},{"type":"tool_use","id":"toolu_b","name":"Bash","input":{"command":"ls é"}}]}
    "#);
    insta::assert_snapshot!(messages[2], @r#"
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a","content":"failed Read","is_error":true},{"type":"tool_result","tool_use_id":"toolu_b","content":"failed Bash","is_error":true,"cache_control":{"type":"ephemeral"}}]}
    "#);
    // A cut call has no object for arguments, and an answer without words is refused.
    let messages = second_request("anthropic/length.sse");
    insta::assert_snapshot!(messages[1], @r#"
    {"role":"assistant","content":[{"type":"tool_use","id":"toolu_a","name":"Write","input":{"not_an_object":"{\"file_path\": \"a.cu\", \"content\": \"__glo"}}]}
    "#);
    let messages = second_request("anthropic/refusal.sse");
    insta::assert_snapshot!(messages[1], @r#"
    {"role":"assistant","content":[{"type":"text","text":"(no text)"}]}
    "#);
}

#[test]
fn responses_request_repeats_earlier_messages() {
    let input = second_request("openai_responses/reasoning_calls.sse");
    let items: Vec<String> = input.as_array().unwrap()[1..].iter().map(Value::to_string).collect();
    insta::assert_snapshot!(items.join("\n"), @r#"
    {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"A row per block."}],"encrypted_content":"ZW5jcnlwdGVk"}
    {"role":"assistant","content":"Two files."}
    {"type":"function_call","call_id":"call_a","name":"Read","arguments":"{\"file_path\":\"model.py\"}"}
    {"type":"function_call","call_id":"call_b","name":"Bash","arguments":"{\"command\":\"ls é\"}"}
    {"type":"function_call_output","call_id":"call_a","output":"failed Read"}
    {"type":"function_call_output","call_id":"call_b","output":"failed Bash"}
    "#);
}

#[test]
fn token_ids_are_recorded_with_the_shared_prefix_length() {
    let server = Server::start(vec![say("openai_chat/vllm_tokens.sse"), {
        let body = String::from_utf8(fixture("openai_chat/vllm_tokens.sse")).unwrap();
        // The context of the second request: the first's, its answer but for the last token, more.
        Say::stream(body.replace("[1,2,3,4]", "[1,2,3,4,10,11,20,21]"))
    }]);
    let mut policy = policy(Box::new(OpenAiChat), &server);
    let first = policy.begin(&briefing()).unwrap().generation.unwrap().tokens.unwrap();
    assert_eq!((first.kept, first.prompt, first.sampled), (0, vec![1, 2, 3, 4], vec![10, 11, 12]));
    assert_eq!(first.logprobs, [-0.5, -0.25, 0.0]);
    let second = policy.next(&[]).unwrap().generation.unwrap().tokens.unwrap();
    assert_eq!((second.kept, second.prompt), (6, vec![20, 21]));
    let tokens = message("openai_chat/sglang_tokens.json").generation.unwrap().tokens.unwrap();
    assert_eq!((tokens.prompt, tokens.sampled), (vec![1, 2, 3], vec![10, 11]));
    assert_eq!(tokens.logprobs, [-0.5, -0.25]);
}

/// Small contexts, so that results are left out, and a cut in every turn: the next request is the
/// same, byte for byte.
#[test]
fn resumed_episode_sends_the_same_next_request() {
    let server = Server::start(vec![say("openai_chat/bad_ids.sse")]);
    let endpoint = endpoint(Box::new(OpenAiChat), &server, quick());
    let settings = RemoteSettings { context_tokens: 6000, ..settings() };
    let mut policy = RemotePolicy::new(endpoint.clone(), settings.clone());
    let mut past = Vec::new();
    let mut message = policy.begin(&briefing()).unwrap();
    let mut left_out = 0;
    for turn in 0..6 {
        let results: Vec<_> = message
            .calls
            .iter()
            .map(|call| result(&call.id, &format!("turn {turn} ").repeat(200)))
            .collect();
        past.push(Past { message, results: results.clone() });
        message = policy.next(&results).unwrap();
        let live = server.asked().last().unwrap().body.clone();
        let mut again = RemotePolicy::new(endpoint.clone(), settings.clone());
        let resumed = again.resume(&briefing(), &past).unwrap();
        assert_eq!(server.asked().last().unwrap().body, live, "turn {turn}");
        assert_eq!(resumed, message, "turn {turn}");
        left_out += message.generation.as_ref().unwrap().elided.len();
    }
    assert!(left_out >= 4, "positive control: {left_out} results were left out");
    let text = server.asked().last().unwrap().body.to_string();
    assert!(text.contains("left out to make room: 1400 bytes"), "{text}");
    assert!(text.contains("turn 5 turn 5"), "the newest result is there");
}
