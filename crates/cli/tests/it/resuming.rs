//! Killed and interrupted runs resume where they stopped. A training run resumes only with its own files.

use std::time::Duration;

use warpwright_record::event::{Event, RunOutcome};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::FailureClass;

use crate::judging::recorded;
use crate::program::{KERNEL, Program, TASK};

const BEGIN: [&str; 9] = [
    "optimize",
    "task.py",
    "--policy",
    "replay:recorded",
    "--device",
    "cpu",
    "--out",
    "run",
    "--json",
];

fn scene() -> Program {
    let program = Program::new();
    program.write("task.py", TASK);
    // It does not build: the end is a verdict, without the minute that timing takes.
    recorded(&program, "task", &KERNEL.replace("0.5f;", "0.5f"));
    program
}

/// Number of events of the run on disk.
fn written(program: &Program) -> usize {
    let log = fs_err::read(program.path("run/events.jsonl"));
    log.map_or(0, |bytes| bytes.split(|b| *b == b'\n').count() - 1)
}

/// Starts the run and sends it `signal` once `events` events are on disk. Returns its exit code.
fn cut(
    program: &Program,
    arguments: &[&str],
    events: usize,
    signal: rustix::process::Signal,
) -> Option<i32> {
    let mut child = program
        .command(arguments)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while written(program) < events {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).unwrap();
    child.wait().unwrap().code()
}

fn check_whole(program: &Program) {
    let reader = RunReader::open(&program.path("run")).unwrap();
    let events: Vec<_> = reader.events().unwrap().map(|line| line.unwrap().event).collect();
    assert!(matches!(events.last(), Some(Event::RunFinished { .. })));
    let history = History::read(&reader).unwrap();
    let episode = history.episodes.values().next().unwrap();
    assert_eq!(episode.turns.len(), 4);
    let end = episode.end.as_ref().unwrap();
    let failure = end.final_verdict.as_ref().unwrap().failure.as_ref().unwrap();
    assert_eq!(failure.class, FailureClass::Build);
}

/// A run that `signal` ended with this exit code after so many events. Where a run was over before the signal
/// came, another one is begun.
fn cut_scene(events: usize, signal: rustix::process::Signal, code: Option<i32>) -> Program {
    let tries = std::iter::repeat_with(|| {
        let program = scene();
        let ended = cut(&program, &BEGIN, events, signal);
        (program, ended)
    });
    let found = tries.take(20).find(|(_, ended)| *ended == code);
    found.unwrap().0
}

/// For each pair: kills a run after the first number of events, resumes it, kills it after the second, and resumes it
/// to its end.
fn kill_and_resume(places: &[(usize, usize)]) {
    for (first, second) in places {
        let program = cut_scene(*first, rustix::process::Signal::KILL, None);
        let resume = ["optimize", "--resume", "run", "--json"];
        cut(&program, &resume, *second, rustix::process::Signal::KILL);
        let ran = program.run(&resume);
        assert_eq!(ran.code, Some(3), "killed at {first} and {second}: {}", ran.show());
        assert_eq!(ran.object()["failure"]["class"], "build");
        check_whole(&program);
        // Once more changes nothing.
        let again = program.run(&resume);
        assert_eq!(again.code, Some(3));
        assert!(again.stderr.contains("complete"), "{}", again.show());
    }
}

#[test]
fn killed_run_resumes_without_losing_events() {
    kill_and_resume(&[(5, 11)]);
}

#[test]
fn long_run_killed_after_any_event_resumes() {
    kill_and_resume(&[(1, 2), (2, 4), (3, 7), (4, 9), (6, 12), (8, 14), (10, 16), (12, 18)]);
}

/// Kills a run repeatedly, each time a random while after a random number of further events, also in the middle of
/// a line or a blob, until one process finishes it.
fn kill_at_random_moments(seed: u64) {
    use rand::{RngExt, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let program = scene();
    let mut kills = 0;
    let ended = loop {
        // The first command again until there is something to resume.
        let resume = ["optimize", "--resume", "run", "--json"];
        let begun = program.path("run/run.json").exists();
        let arguments: &[&str] = if begun { &resume } else { &BEGIN };
        let mut child = program
            .command(arguments)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let events = written(&program) + random.random_range(0..8);
        let pause = Duration::from_millis(random.random_range(0..300));
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if kills < 5 && written(&program) >= events {
                std::thread::sleep(pause);
                child.kill().unwrap();
                break child.wait().unwrap().code();
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        match code {
            None => kills += 1,
            Some(code) => break code,
        }
    };
    assert_eq!(ended, 3, "seed {seed}, after {kills} kills");
    check_whole(&program);
}

#[test]
fn run_killed_at_random_moments_resumes() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    kill_at_random_moments(seed);
}

#[test]
fn long_run_killed_at_many_random_moments_resumes() {
    for _ in 0..10 {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        kill_at_random_moments(seed);
    }
}

#[test]
fn interrupted_run_resumes_to_its_end() {
    let program = cut_scene(4, rustix::process::Signal::INT, Some(130));
    let reader = RunReader::open(&program.path("run")).unwrap();
    let history = History::read(&reader).unwrap();
    assert_eq!(history.outcome, Some(RunOutcome::Interrupted));
    let ran = program.run(&["optimize", "--resume", "run", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    check_whole(&program);
}

/// A configuration of training; `tables` name its model and data.
fn training(tables: &str) -> String {
    format!(
        "[tasks]\ntrain = [\"task.py\"]\n\n[demos]\nepisodes_per_task = 1\n\n\
         [sft]\nlr = 1e-3\ntotal_epochs = 1\n\n{tables}"
    )
}

/// The runs begin, and end before they compute anything.
#[test]
fn training_with_replaced_files_does_not_resume() {
    let program = Program::new();
    program.write("task.py", TASK);
    let sizes = [
        ("vocab_size", 512),
        ("hidden_size", 32),
        ("intermediate_size", 64),
        ("num_hidden_layers", 1),
        ("num_attention_heads", 2),
        ("num_key_value_heads", 1),
        ("head_dim", 16),
        ("max_position_embeddings", 256),
    ];
    let keys: String = sizes.map(|(name, size)| format!("{name} = {size}\n")).concat();
    let data = "sources = [\"code\"]\nfit = { lr = 1e-3, total_epochs = 1 }\n";
    program.write("scratch.toml", &training(&format!("[model]\n{keys}\n[pretrain]\n{data}")));
    program.write("code/one.py", "one = 1\n");

    program.write("pretrained.toml", &training("[pretrained]\npath = \"chat\"\n"));
    let mut model = serde_json::json!({
        "model_type": "qwen3", "rope_theta": 1e4, "rms_norm_eps": 1e-6, "tie_word_embeddings": true
    });
    for (name, size) in sizes {
        model[name] = size.into();
    }
    program.write("chat/config.json", &model.to_string());
    program.write("chat/model.safetensors", "weights");

    let train = |config: &str| {
        let ran = program.run(&["train", "sft", config, "--device", "cpu"]);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        ran.stderr
    };
    for (config, ends, file, differs) in [
        (
            "scratch.toml",
            "stage demos is not done",
            "code/one.py",
            "the content of `pretrain.sources` [\"code\"] differs",
        ),
        (
            "pretrained.toml",
            "failed to load the model",
            "chat/model.safetensors",
            "the content of `pretrained.path` \"chat\" differs: model.safetensors",
        ),
    ] {
        let told = train(config);
        assert!(told.contains(ends), "{told}");
        program.write(file, "replaced = 2\n");
        let told = train(config);
        assert!(told.contains("failed to resume the run") && told.contains(differs), "{told}");
        assert!(told.contains("restore what differs"), "{told}");
    }
}
