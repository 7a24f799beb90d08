//! Real runners of the cpu device: torch, jails.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value as Json, json};

use super::*;
use crate::device::arena::{HostArena, Poison};
use crate::device::device_arbiter::{DeviceArbiter, Purpose};
use crate::device::facts::Device;
use crate::device::health::{process_seconds, tree};
use crate::process::channel::NoAnswer;
use crate::testing::{forking_judge, own_judge, shared_judge};

const PATIENCE: Duration = Duration::from_mins(1);

fn pid(spare: &Spare) -> Pid {
    Pid::from_raw(spare.worker.pid() as i32).unwrap()
}

/// Pids of those that are ready, once there are `count` and none is under way.
fn settled(runner_pool: &RunnerPool, count: usize) -> Vec<Pid> {
    let end = Instant::now() + PATIENCE;
    loop {
        let state = runner_pool.shared.lock();
        if state.under_way == 0 && state.ready.len() >= count {
            return state.ready.iter().map(pid).collect();
        }
        drop(state);
        assert!(Instant::now() < end, "no runner became ready");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing_begun(runner_pool: &RunnerPool) -> bool {
    let state = runner_pool.shared.lock();
    state.ready.is_empty() && state.killers.is_empty()
}

#[test]
fn idle_runners_are_replaced_and_end_with_the_judge() {
    let judge = own_judge(Device::Cpu);
    let runner_pool = &judge.processes.runner_pool;
    assert!(nothing_begun(runner_pool), "opening a judge starts nothing");

    let alone = judge.machine.arbiter.alone(Purpose::Measurement);
    runner_pool.expect();
    until("a start that waits for the device", || judge.machine.arbiter.waiting() == 1);
    assert!(nothing_begun(runner_pool), "nothing starts beside a measured window");
    drop(alone);
    let [first] = settled(runner_pool, 1)[..] else { panic!("one is kept on the cpu device") };
    runner_pool.expect();
    assert_eq!(settled(runner_pool, 1), [first], "no more than are kept");
    assert_eq!(pid(&runner_pool.take().unwrap()), first, "positive control: the one that waited");

    runner_pool.expect();
    let dead = settled(runner_pool, 1)[0];
    kill_process(dead, Signal::KILL).unwrap();
    until("its death", || test_kill_process(dead).is_err());
    let living = runner_pool.take().unwrap();
    assert_ne!(pid(&living), dead);
    assert!(test_kill_process(pid(&living)).is_ok());

    runner_pool.expect();
    let waiting = settled(runner_pool, 1)[0];
    let runner_dirs = runner_pool.shared.runner_dirs().unwrap();
    let folder = living.runner_dir.shown().ancestors().nth(2).unwrap().to_owned();
    drop(runner_dirs);
    drop(living);
    assert!(test_kill_process(waiting).is_ok() && folder.exists(), "positive control");
    drop(judge);
    assert!(test_kill_process(waiting).is_err(), "the judge's end is theirs");
    assert!(!folder.exists());
}

#[test]
fn a_start_in_progress_is_awaited_or_killed() {
    let judge = own_judge(Device::Cpu);
    judge.processes.runner_pool.expect();
    let spare = judge.processes.runner_pool.take().unwrap();
    assert_eq!(
        judge.processes.runner_pool.shared.lock().starts,
        1,
        "it took the one that was under way"
    );
    drop(spare);
    // Executed, so that it has torch to import; and stopped, so that it never answers.
    judge.processes.host.forks.close();
    let shared = &judge.processes.runner_pool.shared;
    loop {
        judge.processes.runner_pool.expect();
        until("a process that starts", || !nothing_begun(&judge.processes.runner_pool));
        for pid in judge.processes.host.workers.pids().into_iter().flat_map(tree) {
            // It may have ended.
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::STOP);
        }
        let mut state = shared.lock();
        if !state.killers.is_empty() && state.ready.is_empty() {
            break;
        }
        // It was ready before it was stopped.
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop(ready);
    }
    let start = Instant::now();
    drop(judge);
    assert!(start.elapsed() < PATIENCE, "it waited for a process that never answers");
}

/// A runner that starts may do so while a candidate computes in the memory that they share.
#[test]
fn gpu_a_starting_runner_writes_outside_candidate_memory() {
    const LOOKED_AT: u64 = 256 << 20;
    let judge = own_judge(Device::Cuda(0));
    let arena = judge.processes.runner_pool.common_arena().unwrap().unwrap();
    arena.poison(0, arena.len(), Poison::NAN).unwrap();
    let runner = judge.processes.runner_pool.take().unwrap();
    let poisoned = |from: u64, bytes: u64| {
        let mut held = vec![0; bytes as usize];
        arena.read(from, &mut held).unwrap();
        held.chunks_exact(4).all(|word| word == Poison::NAN.word().to_le_bytes())
    };
    let candidates = judge.processes.runner_pool.shared.means.room.arena;
    assert!(poisoned(0, LOOKED_AT), "where weights lie");
    assert!(poisoned(candidates - LOOKED_AT, LOOKED_AT), "where results lie");
    assert!(!poisoned(candidates, arena.len() - candidates), "positive control");
    drop(runner);
}

/// Adopts a runner with this file as its artifact, and has it run `source` as a candidate; what that
/// raises.
fn said(spare: &mut Spare, file: &str, source: &str) -> String {
    let arena = Arena::Host(HostArena::create(ARENA).unwrap());
    said_in(spare, &arena, file, source)
}

const ARENA: u64 = 1 << 20;

/// The same in this memory.
fn said_in(spare: &mut Spare, arena: &Arena, file: &str, source: &str) -> String {
    fs_err::write(spare.runner_dir.shown().join(file), file).unwrap();
    let request = json!({"do": "adopt", "arena_bytes": ARENA, "populate": false});
    spare.worker.hand_over(&request, arena, PATIENCE, &DeviceArbiter::default()).unwrap();
    let request = json!({
        "do": "load",
        "source": source,
        "artifact": spare.runner_dir.shown().to_string_lossy(),
        "init": {"tree": {"tuple": []}, "tensors": []},
        "profile": "strict",
        "mode": "eval",
        "zone": {"offset": 0, "bytes": ARENA},
    });
    match spare.worker.ask::<Json>(&request, PATIENCE) {
        Err(NoAnswer::Complaint(complaint)) => complaint.message,
        other => panic!("{other:?}"),
    }
}

fn held_by(arena: &Arena) -> Vec<u8> {
    let mut bytes = vec![0; arena.len() as usize];
    arena.read(0, &mut bytes).unwrap();
    bytes
}

fn secrets(bytes: &[u8]) -> usize {
    bytes.windows(6).filter(|window| window == b"secret").count()
}

/// Memory that served one candidate and serves the next.
#[test]
fn a_reused_arena_holds_nothing_of_the_previous_candidate() {
    let judge = own_judge(Device::Cpu);
    let task = warpwright_task::Task::from_source("none", "");
    // Twice as much as the candidate is shown, and it takes the rest as well.
    let arena = judge.processes.runner_arena(&judge.machine, &task, (2 * ARENA, false)).unwrap();
    let source = "import ctypes, os, re, time, torch\n\
        kept = torch.zeros(1000, dtype=torch.uint8)\n\
        libc = ctypes.CDLL(None)\n\
        libc.mremap.restype = ctypes.c_void_p\n\
        libc.mremap.argtypes = [ctypes.c_void_p] + 2 * [ctypes.c_size_t] + [ctypes.c_int]\n\
        maps = [line for line in open('/proc/self/maps') if 'warpwright-arena' in line]\n\
        begin, end = (int(x, 16) for x in maps[0].split()[0].split('-'))\n\
        larger = libc.mremap(begin, 0, 2 * (end - begin), 1)\n\
        for at in (100, end - begin + 100, 2 * (end - begin) - 6):\n    \
            ctypes.memmove(larger + at, b'secret', 6)\n\
        # One that outlives its parent, its session and its group, and goes on writing.\n\
        if os.fork() == 0:\n    \
            os.setsid()\n    \
            if os.fork() == 0:\n        \
                counter = ctypes.c_uint64.from_address(larger + 4096)\n        \
                while True:\n            \
                    counter.value += 1\n    \
            os._exit(0)\n\
        raise ValueError('wrote')\n";
    let mut spare = judge.processes.runner_pool.take().unwrap();
    assert_eq!(said_in(&mut spare, &arena, "mine", source), "ValueError: wrote");
    let counted = || {
        let mut bytes = [0; 8];
        arena.read(4096, &mut bytes).unwrap();
        bytes
    };
    let (before, end) = (counted(), Instant::now() + PATIENCE);
    while counted() == before {
        assert!(Instant::now() < end, "positive control: a process of it writes");
    }
    assert_eq!(secrets(&held_by(&arena)), 3, "positive control: also beyond what it was shown");
    let (outcome, _) = spare.worker.kill();
    assert!(outcome.is_some(), "the jail tells that nothing in it is left");
    let before = counted();
    // What survived would write while another process starts.
    drop(judge.processes.runner_pool.take().unwrap());
    assert_eq!(counted(), before, "something that survived writes");
    assert_eq!(
        secrets(&held_by(&arena)),
        3,
        "positive control: it is there until the next takes it"
    );

    judge.processes.reuse(arena);
    let again = judge.processes.runner_arena(&judge.machine, &task, (2 * ARENA, false)).unwrap();
    let poison = crate::device::arena::Poison::NAN.word().to_le_bytes();
    assert!(held_by(&again).chunks_exact(4).all(|word| word == poison), "all of it is poisoned");
}

#[test]
fn a_runner_sees_its_own_folder_read_only_and_no_other_runners() {
    let judge = shared_judge();
    let mut other = judge.processes.runner_pool.take().unwrap();
    let theirs = other.runner_dir.shown().to_owned();
    let read = |path: &std::path::Path| {
        format!("raise ValueError('read ' + open({:?}).read())", path.to_string_lossy())
    };
    let told = said(&mut other, "theirs", &read(&theirs.join("theirs")));
    assert_eq!(told, "ValueError: read theirs", "positive control: to its own runner it is there");

    let mut mine = judge.processes.runner_pool.take().unwrap();
    let told = said(&mut mine, "mine", &read(&theirs.join("theirs")));
    assert!(theirs.join("theirs").exists());
    let refused = ["FileNotFoundError", "PermissionError"];
    assert!(refused.iter().any(|error| told.starts_with(error)), "{told}");

    let mut mine = judge.processes.runner_pool.take().unwrap();
    let own = mine.runner_dir.shown().join("mine");
    let source = format!("open({:?}, 'w').write('changed')", own.to_string_lossy());
    let told = said(&mut mine, "mine", &source);
    let refused = ["OSError: [Errno 30]", "PermissionError"];
    assert!(refused.iter().any(|error| told.starts_with(error)), "{told}");
    assert_eq!(fs_err::read_to_string(own).unwrap(), "mine");
}

#[test]
fn runners_are_forked_and_a_dead_server_restarts_once() {
    let Some(judge) = forking_judge(Device::Cpu) else { return };
    let forks = judge.processes.host.forks.of(Role::Runner);
    let kill_parent = || {
        let parent = forks.parent().expect("it lives");
        kill_process(Pid::from_raw(parent as i32).unwrap(), Signal::KILL).unwrap();
        until("its death", || forks.parent().is_none());
        parent
    };
    let counts = || {
        let told = judge.how_started();
        (told.forked, told.executed)
    };
    let mut first = judge.processes.runner_pool.take().unwrap();
    let second = judge.processes.runner_pool.take().unwrap();
    assert_eq!(counts(), (2, 0), "{:?}", judge.how_started());
    // The supervisor of each is the parent's child.
    for spare in [&first, &second] {
        let supervisor = parent_of(spare.worker.pid());
        assert_eq!(Some(parent_of(supervisor)), forks.parent());
    }
    let before = kill_parent();
    assert!(first.worker.answers(), "runners outlive their parent");
    drop((first, second));

    let third = judge.processes.runner_pool.take().unwrap();
    assert_eq!(counts(), (3, 0), "{:?}", judge.how_started());
    assert_ne!(forks.parent(), Some(before));
    kill_parent();
    drop(third);
    let mut fourth = judge.processes.runner_pool.take().unwrap();
    assert!(fourth.worker.answers());
    assert_eq!(counts(), (3, 1));
    assert!(judge.how_started().reason.is_none(), "it was gone before it was asked");
}

/// The parent of a process, as the host sees both.
fn parent_of(pid: u32) -> u32 {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

/// What a forked candidate has is what an executed one has, and no two draw the same numbers.
#[test]
fn a_forked_runner_shares_the_environment_but_not_random_state() {
    let Some(judge) = forking_judge(Device::Cpu) else { return };
    let about = "import os, signal, sys, threading, torch\n\
        handlers = [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)]\n\
        ignored = [l for l in open('/proc/self/status') if l.startswith('SigIgn')]\n\
        open_files = sorted(os.listdir('/proc/self/fd'))\n\
        raise ValueError(str([sorted(os.environ.items()), sys.argv, os.getcwd(), handlers, ignored, \
        open_files, threading.active_count(), torch.get_num_threads(), 'numpy' in sys.modules]))\n";
    let mut forked = judge.processes.runner_pool.take().unwrap();
    assert_eq!(judge.how_started().forked, 1, "{:?}", judge.how_started());
    let told = said(&mut forked, "mine", about);
    assert!(told.starts_with("ValueError: [[("), "{told}");
    let draw = "import random, torch\n\
        raise ValueError(f'drew {random.random()} {torch.rand(1).item()}')\n";
    let drawn: Vec<String> = (0..2)
        .map(|_| said(&mut judge.processes.runner_pool.take().unwrap(), "mine", draw))
        .collect();
    let both: Vec<Vec<&str>> = drawn.iter().map(|said| said.split(' ').collect()).collect();
    assert!(both[0][2] != both[1][2] && both[0][3] != both[1][3], "{drawn:?}");
    judge.processes.host.forks.close();
    let mut executed = judge.processes.runner_pool.take().unwrap();
    assert_eq!(judge.how_started().executed, 1);
    assert_eq!(said(&mut executed, "mine", about), told);
}

/// Prints what a start takes, from the request to the answer, and what memory is a runner's alone; see
/// docs/decisions/0019.
#[test]
fn long_a_fork_uses_less_processor_time_than_an_executed_runner() {
    let Some(judge) = forking_judge(Device::Cpu) else { return };
    let medians = [true, false].map(|forked| {
        if !forked {
            judge.processes.host.forks.close();
        }
        let memory = "with open('/proc/self/smaps_rollup') as lines:\n    \
            raise ValueError([line.strip() for line in lines if line.startswith('Private_Dirty')])\n";
        println!("{}", said(&mut judge.processes.runner_pool.take().unwrap(), "mine", memory));
        let starts = (0..11).map(|_| {
            let start = Instant::now();
            let spare = judge.processes.runner_pool.shared.start().unwrap();
            let seconds = start.elapsed().as_secs_f64();
            let used = tree(spare.worker.pid()).into_iter().filter_map(process_seconds);
            (seconds, used.sum::<f64>())
        });
        let (mut seconds, mut used): (Vec<f64>, Vec<f64>) = starts.unzip();
        seconds.sort_by(f64::total_cmp);
        used.sort_by(f64::total_cmp);
        println!("forked {forked}: {seconds:.3?} s; {used:.2?} s of a core");
        used[5]
    });
    assert!(medians[0] < medians[1], "{medians:?}");
}
