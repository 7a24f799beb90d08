//! Killed and interrupted runs resume where they stopped.

use std::time::{Duration, Instant};

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

/// Starts the run and sends it `signal` once `events` events are on disk.
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
    let log = program.path("run/events.jsonl");
    let begun = Instant::now();
    loop {
        let written =
            fs_err::read(&log).map_or(0, |bytes| bytes.split(|b| *b == b'\n').count() - 1);
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if written >= events {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(4), "it never wrote {events} events");
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

/// For each pair: kills a run after the first number of events, resumes it, kills it after the second, and resumes it
/// to its end.
fn kill_and_resume(places: &[(usize, usize)]) {
    for (first, second) in places {
        let program = scene();
        cut(&program, &BEGIN, *first, rustix::process::Signal::KILL);
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

/// Kills a run repeatedly after random times, also in the middle of a line or a blob, until one process
/// finishes it.
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
        let patience = if kills < 5 { random.random_range(1..2500) } else { 240_000 };
        let end = Instant::now() + Duration::from_millis(patience);
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if Instant::now() >= end {
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
    let program = scene();
    let code = cut(&program, &BEGIN, 4, rustix::process::Signal::INT);
    assert_eq!(code, Some(130));
    let reader = RunReader::open(&program.path("run")).unwrap();
    let history = History::read(&reader).unwrap();
    assert_eq!(history.outcome, Some(RunOutcome::Interrupted));
    let ran = program.run(&["optimize", "--resume", "run", "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    check_whole(&program);
}
