//! Many concurrent episodes: no event is lost or duplicated, no process or file is left.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use warpwright_record::event::Event;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;

use crate::judging::recorded;
use crate::program::{KERNEL, Program, TASK};

const EPISODES: usize = 64;

/// Peak resource use of a run of the program, and the processes that it started.
#[derive(Default)]
struct Watched {
    resident_kib: u64,
    descriptors: usize,
    /// Process id and start time, which together identify a process uniquely.
    started: HashSet<(i32, u64)>,
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Parent and start time of every process, from `/proc/*/stat`.
fn processes() -> BTreeMap<i32, (i32, u64)> {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may hold anything, in parentheses: state, parent, ...
        let after: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((pid, (after.get(1)?.parse().ok()?, after.get(19)?.parse().ok()?)))
    })
    .collect()
}

impl Watched {
    fn look(&mut self, pid: u32) {
        let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        self.resident_kib = self.resident_kib.max(field(&status, "VmRSS:"));
        let descriptors = fs_err::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.descriptors = self.descriptors.max(descriptors);
        let all = processes();
        for (&child, &(_, start)) in &all {
            let mut at = child;
            while let Some(&(parent, _)) = all.get(&at)
                && parent > 1
            {
                if parent == pid as i32 {
                    self.started.insert((child, start));
                    break;
                }
                at = parent;
            }
        }
    }

    fn still_alive(&self) -> usize {
        let all = processes();
        let alive = |(pid, start): &&(i32, u64)| all.get(pid).is_some_and(|(_, s)| s == start);
        self.started.iter().filter(alive).count()
    }
}

/// Runs the program to its end, or kills it once so many events are on disk; returns its exit code.
fn run(
    program: &Program,
    arguments: &[&str],
    kill_after: Option<usize>,
    watched: &mut Watched,
) -> Option<i32> {
    let temporary = program.path("temporary");
    fs_err::create_dir_all(&temporary).unwrap();
    let mut child = program
        .command(arguments)
        .env("TMPDIR", &temporary)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let log = program.path("run/events.jsonl");
    let written = || fs_err::read(&log).map_or(0, |text| text.split(|b| *b == b'\n').count() - 1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        watched.look(child.id());
        for _ in 0..20 {
            if kill_after.is_some_and(|events| written() >= events) {
                child.kill().unwrap();
                return child.wait().unwrap().code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Checks that the record has every event once and that each episode ended.
fn check_record(run: &Path) {
    let reader = RunReader::open(run).unwrap();
    let lines: Vec<_> = reader.events().unwrap().map(Result::unwrap).collect();
    assert!(lines.iter().zip(0..).all(|(line, seq)| line.seq == seq), "events lost or doubled");
    let ended = lines.iter().filter(|line| matches!(line.event, Event::EpisodeFinished { .. }));
    let ids: HashSet<_> = ended.clone().filter_map(|line| line.event.episode()).collect();
    assert_eq!((ended.count(), ids.len()), (EPISODES, EPISODES));
    let history = History::read(&reader).unwrap();
    for episode in history.episodes.values() {
        assert_eq!(episode.turns.len(), 4);
        assert!(episode.end.as_ref().unwrap().final_verdict.is_some());
    }
}

fn check_nothing_is_left(program: &Program, watched: &Watched) {
    assert!(watched.started.len() >= EPISODES, "{} processes seen", watched.started.len());
    let patience = Instant::now();
    while watched.still_alive() > 0 && patience.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(watched.still_alive(), 0, "processes are left");
    let left: Vec<_> = fs_err::read_dir(program.path("temporary")).unwrap().collect();
    assert!(left.is_empty(), "temporary files are left: {left:?}");
    assert!(watched.resident_kib < 1 << 20, "{} KiB resident", watched.resident_kib);
    assert!(watched.descriptors < 40 * EPISODES, "{} descriptors", watched.descriptors);
}

fn scene() -> Program {
    let program = Program::new();
    program.write("task.py", TASK);
    // Refused before anything is compiled: the loop and the tools are at work, and little else.
    recorded(&program, "task", &KERNEL.replace("* 0.5f;", "* 0.5f; asm volatile(\"nop;\");"));
    program
}

const MANY: [&str; 12] = [
    "optimize",
    "task.py",
    "--policy",
    "replay:recorded",
    "--device",
    "cpu",
    "--attempts",
    "64",
    "--jobs",
    "64",
    "--out",
    "run",
];

#[test]
fn sixty_four_concurrent_episodes_leave_no_processes_or_files() {
    let program = scene();
    let mut watched = Watched::default();
    // Killed in the middle, then resumed.
    let killed = run(&program, &MANY, Some(2 * EPISODES), &mut watched);
    assert_eq!(killed, None, "it was killed");
    let code = run(&program, &["optimize", "--resume", "run"], None, &mut watched);
    assert_eq!(code, Some(3));
    check_record_of_resumed(&program.path("run"));
    // Only what the first process left when it was killed may lie there.
    fs_err::remove_dir_all(program.path("temporary")).unwrap();
    fs_err::create_dir_all(program.path("temporary")).unwrap();
    fs_err::remove_dir_all(program.path("run")).unwrap();
    let code = run(&program, &MANY, None, &mut watched);
    assert_eq!(code, Some(3));
    check_record(&program.path("run"));
    check_nothing_is_left(&program, &watched);
}

/// As [`check_record`], for a run whose episodes may have been resumed.
fn check_record_of_resumed(run: &Path) {
    let reader = RunReader::open(run).unwrap();
    let lines: Vec<_> = reader.events().unwrap().map(Result::unwrap).collect();
    assert!(lines.iter().zip(0..).all(|(line, seq)| line.seq == seq), "events lost or doubled");
    let history = History::read(&reader).unwrap();
    assert_eq!(history.episodes.len(), EPISODES);
    for episode in history.episodes.values() {
        let numbers: Vec<u32> = episode.turns.iter().map(|turn| turn.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert!(episode.end.as_ref().unwrap().final_verdict.is_some());
    }
}

/// Repeats runs: memory and descriptors stay below their limits.
#[test]
fn long_sixty_four_concurrent_episodes_leak_nothing_in_twenty_runs() {
    let program = scene();
    let mut peaks = Vec::new();
    for _ in 0..20 {
        let mut watched = Watched::default();
        let _ = fs_err::remove_dir_all(program.path("run"));
        assert_eq!(run(&program, &MANY, None, &mut watched), Some(3));
        check_record(&program.path("run"));
        check_nothing_is_left(&program, &watched);
        peaks.push((watched.resident_kib, watched.descriptors));
    }
    println!("peak KiB and descriptors by run: {peaks:?}");
}
