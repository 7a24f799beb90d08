//! Plans on the cpu device: what kernels compute, and what they cannot do.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use warpwright_plan::image::Image;
use warpwright_replay::wire;

use crate::replayer::Replayer;

const ARENA: u64 = 1 << 20;
/// Places of blocks.
const KEPT: u64 = 4096;
const RESULTS: [u64; 2] = [8192, 16384];

/// Numbers of kernels.
const ADD: usize = 0;
const COUNT: usize = 1;
const FAILS: usize = 2;
const TRIES: usize = 3;

/// The library, built once per process.
struct Built {
    _folder: tempfile::TempDir,
    library: PathBuf,
    /// Offsets of the entries, as kernels are named.
    kernels: Vec<String>,
}

#[expect(clippy::disallowed_types, reason = "the test starts a compiler")]
#[expect(clippy::unwrap_used, reason = "a test fails here")]
fn built() -> Built {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("host.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/host.c");
    let done = std::process::Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Werror"])
        .arg("-o")
        .args([&library, &source])
        .status()
        .unwrap();
    assert!(done.success());
    let image = Image::read_host(&fs_err::read(&library).unwrap()).unwrap();
    let mut offsets: Vec<u64> = image
        .kernels
        .keys()
        .map(|name| u64::from_str_radix(name.trim_start_matches("0x"), 16).unwrap())
        .collect();
    offsets.sort_unstable();
    let kernels = offsets.iter().map(|offset| format!("kernel@{offset:#x}")).collect();
    Built { _folder: folder, library, kernels }
}

fn launch(kernel: usize, block: u32, number: i32) -> Json {
    let number = format!("{:08x}", number.swap_bytes());
    json!({"op": {"launch": {
        "kernel": kernel, "grid": [2, 1, 1], "block": [4, 1, 1], "shared": 0,
        "args": [
            {"bytes": "0000000000000000", "relocations": [{"at": 0, "to": {"block": block, "offset": 0}}]},
            {"bytes": number},
        ],
    }}})
}

impl Built {
    /// A plan with a lasting block and a result.
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    fn plan(&self, prepare: &[Json], forward: &[Json]) -> Json {
        let bytes = fs_err::read(&self.library).unwrap();
        let kernel = |name: &String| json!({"module": 0, "name": name, "params": [8, 4]});
        json!({
            "version": 1, "producer": {"kind": "hostcuda", "compiler": "cc"},
            "modules": [{
                "hash": blake3::hash(&bytes).to_hex().as_str(), "file": "host.so", "offset": 0,
                "bytes": bytes.len(),
            }],
            "kernels": self.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "tensor_maps": [], "constants": [],
            "blocks": [
                {"bytes": 64, "role": "kept"},
                {"bytes": 64, "role": {"call": {"born": 0, "freed": null}}},
            ],
            "prepare": prepare, "forward": forward,
            "outputs": {"tree": {"tensor": 0}, "tensors": [{
                "at": {"block": 1, "offset": 0}, "shape": [8], "strides": [1], "dtype": "int32",
            }]},
        })
    }

    /// A replayer that has loaded and prepared a plan.
    #[expect(clippy::unwrap_used, reason = "a test fails here")]
    fn load(&self, prepare: &[Json], forward: &[Json]) -> (Replayer, File) {
        let arena = tempfile::tempfile().unwrap();
        arena.set_len(ARENA).unwrap();
        let arguments = ["--device", "cpu", "--arena-bytes", &ARENA.to_string()].map(str::to_owned);
        let mut replayer = Replayer::start(arena.as_fd(), &arguments);
        let greeting = replayer.greet();
        assert!(greeting.get("error").is_none(), "{greeting}");
        let folder = self.library.parent().unwrap();
        let plan = self.plan(prepare, forward);
        replayer.done(json!({"do": "load", "plan": plan, "artifact": folder}));
        replayer.done(json!({"do": "settle", "at": [KEPT]}));
        if !prepare.is_empty() {
            replayer.done(json!({"do": "prepare"}));
        }
        (replayer, arena)
    }
}

/// Plays two calls; the answer to "go".
fn play(replayer: &mut Replayer) -> Json {
    replayer.done(json!({"do": "stage", "calls": 2, "at": wire::words(&RESULTS)}));
    replayer.ask(json!({"do": "go"}))
}

#[expect(clippy::unwrap_used, reason = "a test fails here")]
fn numbers(arena: &File, at: u64) -> Vec<i32> {
    let mut bytes = [0; 64];
    arena.read_exact_at(&mut bytes, at).unwrap();
    bytes.chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn plans_run_on_the_cpu_device() {
    let built = built();
    let to = |block: u32, offset: u64| json!({"block": {"block": block, "offset": offset}});
    let filled = json!({"op": {"fill": {
        "to": to(1, 0), "value": 5, "element": 4, "width": 8, "height": 1, "pitch": 0,
    }}});
    let uploaded = json!({"op": {"upload": {"to": to(1, 60), "bytes": "2a000000"}}});
    let copied = json!({"op": {"copy": {
        "to": to(1, 32), "from": to(1, 0), "width": 8, "height": 2, "to_pitch": 16, "from_pitch": 8,
    }}});
    let forward =
        [filled, launch(ADD, 1, 2), launch(ADD, 0, 1), launch(ADD, 1, -10), copied, uploaded];
    let (mut replayer, arena) = built.load(&[launch(ADD, 0, 100)], &forward);
    assert_eq!(play(&mut replayer), json!({"launches": 12}));
    for at in RESULTS {
        let (first, rest) = (vec![-3; 8], vec![-3, -3, 0, 0, -3, -3, 0, 42]);
        assert_eq!(numbers(&arena, at), [first, rest].concat());
    }
    // 100 by `prepare`, and 1 by each call.
    assert_eq!(numbers(&arena, KEPT)[..8], [102; 8]);
    replayer.done(json!({"do": "unload"}));
    assert!(replayer.close().0.success());
}

#[test]
fn each_window_begins_with_the_variables_of_prepare() {
    let built = built();
    let (mut replayer, arena) = built.load(&[launch(COUNT, 0, 10)], &[launch(COUNT, 1, 1)]);
    for _ in 0..2 {
        assert_eq!(play(&mut replayer), json!({"launches": 2}));
        assert_eq!(RESULTS.map(|at| numbers(&arena, at)[0]), [11, 12]);
    }
    let (mut replayer, arena) = built.load(&[], &[launch(COUNT, 1, 1)]);
    assert_eq!(play(&mut replayer), json!({"launches": 2}));
    assert_eq!(RESULTS.map(|at| numbers(&arena, at)[0]), [1, 2]);
}

/// Whether the library does this in the process of the test.
#[expect(unsafe_code, reason = "a call of a foreign library")]
#[expect(clippy::unwrap_used, reason = "a test fails here")]
fn works_unconfined(library: &Path, what: i32) -> bool {
    // SAFETY: a library without initialisers; the function has this type.
    unsafe {
        let library = libloading::Library::new(library).unwrap();
        let function = *library.get::<unsafe extern "C" fn(i32) -> i32>(b"try_unconfined").unwrap();
        let worked = function(what) == 1;
        // Threads of its runtime still wait.
        std::mem::forget(library);
        worked
    }
}

#[test]
fn kernels_have_no_clock_no_files_no_threads() {
    let built = built();
    let several = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let of_team = if several { "time-stamp counter" } else { "(clone" };
    let forbidden = [
        (15, of_team),
        (0, "time-stamp counter"),
        (1, "time-stamp counter"),
        (2, "time-stamp counter"),
        (3, "number 228 (clock_gettime)"),
        (4, "number 2 (open)"),
        (5, "(openat)"),
        (6, "(futex)"),
        (7, "(mmap)"),
        (8, "(nanosleep)"),
        (9, "(prctl)"),
        (10, "(socket)"),
    ];
    for (what, why) in forbidden {
        assert!(works_unconfined(&built.library, what), "positive control {what}");
        let (mut replayer, arena) = built.load(&[], &[launch(TRIES, 1, what)]);
        let answer = play(&mut replayer);
        let error = &answer["error"];
        assert_eq!(error["kind"], "kernel", "{what}: {answer}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("launch kernel: it ") && message.contains(why), "{message}");
        assert_eq!(RESULTS.map(|at| numbers(&arena, at)[0]), [0, 0]);
    }
    // What is left to them.
    for (what, left) in [(11, 1), (12, 0)] {
        assert!(works_unconfined(&built.library, what), "positive control {what}");
        let (mut replayer, arena) = built.load(&[], &[launch(TRIES, 1, what)]);
        assert_eq!(play(&mut replayer), json!({"launches": 2}), "{what}");
        assert_eq!(RESULTS.map(|at| numbers(&arena, at)[0]), [left, left], "{what}");
    }
}

#[test]
fn failing_kernels_cost_an_executor_only() {
    let built = built();
    for (kernel, number, why) in [
        (TRIES, 13, "a segmentation fault (SIGSEGV)"),
        (TRIES, 14, "it aborted (SIGABRT)"),
        (FAILS, 9, "CUDA error 9"),
    ] {
        let (mut replayer, _arena) = built.load(&[], &[launch(kernel, 1, number)]);
        for _ in 0..2 {
            let answer = play(&mut replayer);
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with("launch kernel: ") && message.contains(why), "{answer}");
        }
        let gone = replayer.ask(json!({"do": "go"}));
        assert_eq!(gone["error"]["kind"], "request", "{gone}");
        replayer.done(json!({"do": "unload"}));
    }
}

#[test]
fn requests_of_a_gpu_are_refused_on_the_cpu_device() {
    let built = built();
    let (mut replayer, _arena) = built.load(&[], &[launch(ADD, 1, 1)]);
    for asked in [
        json!({"do": "facts"}),
        json!({"do": "occupancy", "kernel": 0, "threads": 1, "shared": 0}),
        json!({"do": "stage", "calls": 0, "at": "", "graph": true}),
        json!({"do": "go", "graph": true}),
        json!({"do": "go"}),
        json!({"do": "stage", "calls": 1, "at": wire::words(&[ARENA - 32])}),
    ] {
        let answer = replayer.ask(asked.clone());
        assert_eq!(answer["error"]["kind"], "request", "{asked}: {answer}");
    }
    assert_eq!(play(&mut replayer), json!({"launches": 2}), "the control");
}
