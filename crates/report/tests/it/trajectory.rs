//! Trajectories, shown and exported.

use std::path::Path;

use roxmltree::{Document, ParsingOptions};
use serde_json::{Value, json};
use warpwright_record::dialogue;
use warpwright_record::event::{EpisodeId, Event, Outcome};
use warpwright_record::history::History;
use warpwright_record::message::{
    Generation, Message, StopReason, Tokens, ToolCall, ToolResult, ToolStatus, Usage,
};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::RunWriter;
use warpwright_report::html::write_trajectory;
use warpwright_report::trajectory::export::{Exported, Form, export};
use warpwright_report::trajectory::show::{Colour, Length, show};

use crate::{sample, suite};

const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}";

/// The parts of a message.
struct Said {
    text: &'static str,
    calls: &'static [&'static str],
    elided: &'static [&'static str],
    stop: StopReason,
    tokens: Option<Tokens>,
}

fn tokens(kept: u64, prompt: &[u32], sampled: &[u32]) -> Tokens {
    let logprobs = sampled.iter().map(|id| -0.5 * *id as f32).collect();
    Tokens { kept, prompt: prompt.to_vec(), sampled: sampled.to_vec(), logprobs }
}

/// Four messages: one is truncated, and the last omits the result of the call `a`.
fn dialogue_of_four() -> Vec<Said> {
    let done = StopReason::Done;
    vec![
        Said {
            text: HOSTILE,
            calls: &["a", "b"],
            elided: &[],
            stop: done,
            tokens: Some(tokens(0, &[1, 2, 3], &[4, 5])),
        },
        Said {
            text: "I was cut",
            calls: &[],
            elided: &[],
            stop: StopReason::Length,
            tokens: Some(tokens(5, &[6], &[7])),
        },
        Said {
            text: "",
            calls: &["c"],
            elided: &[],
            stop: done,
            tokens: Some(tokens(7, &[8], &[9])),
        },
        Said {
            text: "Done.",
            calls: &[],
            elided: &["a"],
            stop: done,
            tokens: Some(tokens(3, &[10], &[11, 12])),
        },
    ]
}

fn write(dir: &Path, said: Vec<Said>, outcome: Outcome) {
    let run = RunWriter::create(dir, RunInfo::default()).unwrap();
    let episode = EpisodeId(0);
    let setup = sample::setup(&run, "relu", "cuda:0");
    run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
    let candidate = sample::candidate("");
    let turns = said.len() as u32;
    for (turn, said) in (1..).zip(said) {
        let calls: Vec<ToolCall> = said
            .calls
            .iter()
            .map(|id| ToolCall {
                id: (*id).to_owned(),
                name: "Bash".to_owned(),
                arguments: if *id == "b" { json!("{not json") } else { json!({"command": "ls"}) },
            })
            .collect();
        let usage =
            Usage { input_tokens: 100, cached_tokens: 50, output_tokens: 7, dollars: Some(0.01) };
        let generation = Generation {
            model: "model-a".into(),
            usage,
            attempts: 2,
            elided: said.elided.iter().map(|id| (*id).to_owned()).collect(),
            echo: None,
            tokens: said.tokens,
        };
        let message = Message {
            text: said.text.to_owned(),
            reasoning: if turn == 1 { format!("think {HOSTILE}") } else { String::new() },
            calls: calls.clone(),
            stop: said.stop,
            generation: Some(Box::new(generation)),
        };
        run.append(&Event::MessageSaid { episode, turn, message, seconds: 1.0 }).unwrap();
        for call in calls {
            let lines: Vec<String> = (0..40).map(|n| format!("{} line {n}", call.id)).collect();
            let result = ToolResult {
                status: if call.id == "b" { ToolStatus::Error } else { ToolStatus::Ok },
                text: if call.id == "b" { HOSTILE.to_owned() } else { lines.join("\n") },
                call: call.id,
                verdicts: Vec::new(),
                findings: Vec::new(),
            };
            run.append(&Event::ToolFinished { episode, turn, result, seconds: 0.5 }).unwrap();
        }
        let files = Vec::new();
        run.append(&Event::TurnFinished { episode, turn, files, elapsed_seconds: 1.0 }).unwrap();
    }
    let verdict = sample::measured("relu", "cuda:0", &candidate, 2.0);
    run.append(&Event::EpisodeFinished {
        episode,
        outcome,
        final_verdict: Some(Box::new(verdict)),
        best_verdict: None,
        candidate: None,
        turns,
        seconds: 9.0,
    })
    .unwrap();
}

fn exported(dir: &Path, form: Form) -> (Vec<Value>, Exported) {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("out.jsonl");
    let counts = export(&[dir], form, &path).unwrap();
    assert_eq!(fs_err::read_dir(out.path()).unwrap().count(), 1, "nothing else is left behind");
    let text = fs_err::read_to_string(path).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), counts)
}

fn the_dialogue(form: Form) -> (Vec<Value>, Exported) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), dialogue_of_four(), Outcome::Stopped);
    exported(dir.path(), form)
}

fn roles(line: &Value) -> Vec<String> {
    let messages = line["messages"].as_array().unwrap();
    let role = |m: &Value| {
        let weight = m["weight"].as_u64().map(|w| format!(" {w}")).unwrap_or_default();
        format!("{}{weight}", m["role"].as_str().unwrap())
    };
    messages.iter().map(role).collect()
}

#[test]
fn each_context_is_a_line_and_each_message_trains_once() {
    let (lines, counts) = the_dialogue(Form::OpenAi);
    assert_eq!((counts.episodes, counts.lines), (1, 2));
    let opening = ["system", "user", "assistant 1", "tool", "tool", "assistant 1", "user"];
    assert_eq!(roles(&lines[0])[..7], opening);
    assert_eq!(roles(&lines[0])[7..], ["assistant 1"], "its result nobody saw in this context");
    assert_eq!(
        roles(&lines[1])[2..],
        [
            "assistant 0",
            "tool",
            "tool",
            "assistant 0",
            "user",
            "assistant 0",
            "tool",
            "assistant 1"
        ]
    );
    let content = |line: usize, message: usize| lines[line]["messages"][message]["content"].clone();
    assert_eq!(content(0, 0), "# Writing CUDA kernels\n");
    assert_eq!(content(0, 1), dialogue::first_user_message("relu", sample::REFERENCE));
    assert!(content(0, 3).as_str().unwrap().starts_with("a line 0\n"));
    assert_eq!(content(1, 3), "[left out to make room: 389 bytes in 40 lines]");
    assert_eq!(content(1, 4), HOSTILE, "data is not changed");
    assert_eq!(content(0, 6), dialogue::CUT);
    let first = &lines[0]["messages"][2];
    assert_eq!(first["reasoning_content"], format!("think {HOSTILE}"));
    let call = &first["tool_calls"][0];
    assert_eq!(call["function"], json!({"name": "Bash", "arguments": "{\"command\":\"ls\"}"}));
    assert_eq!(first["tool_calls"][1]["function"]["arguments"], "{not json");
    assert_eq!(lines[0]["messages"][3]["tool_call_id"], call["id"]);
    for (part, line) in lines.iter().enumerate() {
        let metadata = &line["metadata"];
        assert_eq!(
            (metadata["part"].as_u64(), metadata["parts"].as_u64()),
            (Some(part as u64), Some(2))
        );
        assert_eq!(metadata["verified"], true);
        assert_eq!(metadata["reward"]["paper"], 3.0);
        assert_eq!(metadata["outcome"], "stopped");
        assert_eq!(metadata["model"], "model-a");
        assert_eq!(metadata["fingerprint"]["hardware"], "NVIDIA H200");
    }
}

#[test]
fn the_messages_form_has_arguments_as_objects() {
    let (lines, _) = the_dialogue(Form::Messages);
    let calls = &lines[0]["messages"][2]["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], json!({"command": "ls"}));
    assert_eq!(calls[1]["function"]["arguments"], "{not json", "what is no JSON stays a text");
    assert_eq!(lines[0]["messages"][3]["name"], "Bash");
}

#[test]
fn tokens_are_split_where_the_context_changed() {
    let (lines, counts) = the_dialogue(Form::Tokens);
    assert_eq!((counts.episodes, counts.lines), (1, 2));
    assert_eq!(lines[0]["ids"], json!([1, 2, 3, 4, 5, 6, 7, 8, 9]));
    assert_eq!(lines[0]["response_mask"], json!([0, 0, 0, 1, 1, 0, 1, 0, 1]));
    let logprobs = json!([null, null, null, -2.0, -2.5, null, -3.5, null, -4.5]);
    assert_eq!(lines[0]["rollout_log_probs"], logprobs);
    assert_eq!(lines[0]["turns"], json!([1, 1, 1, 1, 1, 2, 2, 3, 3]));
    // Three tokens are kept; none of them is trained on again.
    assert_eq!(lines[1]["ids"], json!([1, 2, 3, 10, 11, 12]));
    assert_eq!(lines[1]["response_mask"], json!([0, 0, 0, 0, 1, 1]));
    assert_eq!(lines[1]["turns"], json!([1, 1, 1, 4, 4, 4]));
    assert_eq!(lines[1]["metadata"]["reward"]["paper"], 3.0);
}

#[test]
fn sampled_token_kept_as_context_is_trained_on_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut said = dialogue_of_four();
    said[3].tokens = Some(tokens(5, &[10], &[11]));
    write(dir.path(), said, Outcome::Stopped);
    let (lines, _) = exported(dir.path(), Form::Tokens);
    assert_eq!(lines[1]["ids"], json!([1, 2, 3, 4, 5, 10, 11]));
    assert_eq!(lines[1]["response_mask"], json!([0, 0, 0, 0, 0, 0, 1]));
    let actions: u64 = lines
        .iter()
        .flat_map(|line| line["response_mask"].as_array().unwrap())
        .map(|action| action.as_u64().unwrap())
        .sum();
    assert_eq!(actions, 5, "one for each sampled token");
}

#[test]
fn episodes_without_valid_tokens_are_counted() {
    for (broken, expected) in [
        (None, Exported { episodes: 1, lines: 2, ..Exported::default() }),
        (Some(0), Exported { with_some_tokens: 1, ..Exported::default() }),
        (Some(1), Exported { without_tokens: 1, ..Exported::default() }),
        (Some(2), Exported { inconsistent_tokens: 1, ..Exported::default() }),
        (Some(3), Exported { inconsistent_tokens: 1, ..Exported::default() }),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut said = dialogue_of_four();
        match broken {
            Some(0) => said[1].tokens = None,
            Some(1) => said.iter_mut().for_each(|said| said.tokens = None),
            Some(2) => said[1].tokens = Some(tokens(99, &[], &[1])),
            Some(3) => said[1].tokens.as_mut().unwrap().logprobs.push(0.0),
            _ => {}
        }
        write(dir.path(), said, Outcome::Stopped);
        assert_eq!(exported(dir.path(), Form::Tokens).1, expected, "{broken:?}");
    }
}

#[test]
fn episodes_without_a_reward_are_excluded_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    drop(suite::write(dir.path()));
    let (lines, counts) = exported(dir.path(), Form::Messages);
    let expected =
        Exported { episodes: 9, lines: 9, infrastructure: 1, unfinished: 1, ..Exported::default() };
    assert_eq!(counts, expected);
    let nothing = lines.iter().find(|line| {
        line["metadata"]["policy"] == "beta" && line["metadata"]["task"] == "level1-2_softmax"
    });
    assert_eq!(nothing.unwrap()["metadata"]["reward"]["paper"], -1.0, "no candidate is wrong");
}

fn shown(length: Length, colour: Colour) -> String {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), dialogue_of_four(), Outcome::Looping);
    let reader = RunReader::open(dir.path()).unwrap();
    let history = History::read(&reader).unwrap();
    show(&reader, EpisodeId(0), &history.episodes[&EpisodeId(0)], length, colour).unwrap()
}

#[test]
fn episode_is_shown_as_a_conversation() {
    insta::assert_snapshot!(shown(Length::Folded, Colour::None), @r#"
    episode 0: relu, policy teacher on cuda:0, profile strict, seed 7
    system
        # Writing CUDA kernels
    user
        The task is `relu`. Its reference, `model.py`:

        ```python
        import torch
        import torch.nn as nn

        class Model(nn.Module):
            def __init__(self, features):
                super().__init__()
                self.bias = nn.Parameter(torch.randn(features))
        ... 8 lines left out ...
            return [4096]
        ```

        Write `model_new.py` and kernels under `kernels/` as your instructions say: verify them, profile them, and make them faster. Work with the tools. When you are d…

    turn 1, 1.0 s
      reasoning
        think <script>alert(1)</script>\x1b[2J\u{202e}
        <script>alert(1)</script>\x1b[2J\u{202e}
      -> Bash command=ls
      <- ok, 0.5 s
        a line 0
        a line 1
        a line 2
        a line 3
        a line 4
        a line 5
        a line 6
        a line 7
        a line 8
        a line 9
        ... 26 lines left out ...
        a line 36
        a line 37
        a line 38
        a line 39
      -> Bash, arguments are not a JSON object:
        {not json
      <- error, 0.5 s
        <script>alert(1)</script>\x1b[2J\u{202e}
      model-a: 100 prompt tokens (50 cached), 7 completion tokens, 0.0100 US dollars, 2 requests

    turn 2, 1.0 s
        I was cut
      truncated: token limit reached
      model-a: 100 prompt tokens (50 cached), 7 completion tokens, 0.0100 US dollars, 2 requests

    turn 3, 1.0 s
      -> Bash command=ls
      <- ok, 0.5 s
        c line 0
        c line 1
        c line 2
        c line 3
        c line 4
        c line 5
        c line 6
        c line 7
        c line 8
        c line 9
        ... 26 lines left out ...
        c line 36
        c line 37
        c line 38
        c line 39
      model-a: 100 prompt tokens (50 cached), 7 completion tokens, 0.0100 US dollars, 2 requests

    turn 4, 1.0 s
      1 older results elided from the context from this turn on
        Done.
      model-a: 100 prompt tokens (50 cached), 7 completion tokens, 0.0100 US dollars, 2 requests

    ended: going round in circles, 4 turns, 9.0 s
      final verdict: verified, 1.41x [1.38–1.44] over reduce-overhead, 116 µs
      reward: paper 3, speedup 1.38, bounded 1.46
    "#);
}

#[test]
fn full_length_omits_nothing() {
    let text = shown(Length::Full, Colour::None);
    assert!(text.contains("a line 20") && !text.contains("left out ..."));
    assert!(!shown(Length::Folded, Colour::None).contains("a line 20"), "positive control");
}

#[test]
fn only_own_escape_sequences_reach_the_terminal() {
    assert!(!shown(Length::Full, Colour::None).contains('\u{1b}'));
    let coloured = shown(Length::Full, Colour::Terminal);
    assert!(coloured.contains("\u{1b}[1m") && coloured.contains("\\x1b[2J"));
    assert!(!coloured.contains("\u{1b}[2J") && !coloured.contains('\u{202e}'));
}

#[test]
fn trajectory_page_is_well_formed_and_escapes_markup() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), dialogue_of_four(), Outcome::Stopped);
    let reader = RunReader::open(dir.path()).unwrap();
    let history = History::read(&reader).unwrap();
    let out = dir.path().join("page.html");
    write_trajectory(&reader, EpisodeId(0), &history.episodes[&EpisodeId(0)], &out).unwrap();
    let html = fs_err::read_to_string(out).unwrap();
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(html.trim_start(), options).unwrap();
    assert!(document.descendants().all(|n| !n.has_tag_name("script")));
    assert!(!html.contains('\u{1b}') && !html.contains('\u{202e}'));
    let text: String =
        document.descendants().filter(roxmltree::Node::is_text).filter_map(|n| n.text()).collect();
    for part in [
        "think <script>alert(1)</script>\\x1b[2J",
        "truncated: token limit reached",
        "1 older result elided",
        "verified, 1.41x",
        "The task is `relu`",
        "reward: paper 3",
    ] {
        assert!(text.contains(part), "not there: {part}");
    }
}
