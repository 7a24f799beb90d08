//! Loading, staging and running calls on a GPU.

use serde_json::{Value as Json, json};
use warpwright_plan::LaunchPlan;
use warpwright_replay::wire;

use crate::device::{GRAIN, Gpu, Lent};
use crate::plans::{self, BLOCK, folder};
use crate::replayer::Replayer;

/// Bytes of the arena.
const ARENA: u64 = 2 * GRAIN;
/// Where inputs lie.
const APART: u64 = 4 * GRAIN;

/// Starts a replayer over this arena.
pub(crate) fn start(arena: &Lent<'_>, cublas: Option<&str>) -> Replayer {
    start_with(arena, &[("--cublas", cublas)])
}

/// Starts a replayer with libraries.
pub(crate) fn start_with(arena: &Lent<'_>, libraries: &[(&str, Option<&str>)]) -> Replayer {
    let numbers = [("--device", 0), ("--arena-bytes", arena.bytes), ("--apart-at", APART)];
    let numbers = numbers.into_iter().chain([("--apart-bytes", 2 * GRAIN)]);
    let mut arguments: Vec<String> =
        numbers.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect();
    for (option, path) in libraries {
        arguments.extend(path.iter().flat_map(|path| [(*option).to_owned(), (*path).to_owned()]));
    }
    let mut replayer = Replayer::start(arena.descriptor(), &arguments);
    assert_eq!(replayer.greet(), json!({}), "the start");
    replayer
}

pub(crate) fn arena(gpu: &Gpu) -> Lent<'_> {
    gpu.memory(ARENA)
}

pub(crate) fn load(plan: &LaunchPlan) -> Json {
    json!({"do": "load", "plan": plan, "artifact": folder()})
}

pub(crate) fn stage(offsets: &[u64], calls: usize, graph: bool) -> Json {
    json!({"do": "stage", "calls": calls, "at": wire::words(offsets), "graph": graph})
}

/// Loads a plan whose lasting blocks lie at these offsets.
#[track_caller]
#[expect(clippy::print_stdout, reason = "shown where a test fails")]
pub(crate) fn ready(replayer: &mut Replayer, plan: &LaunchPlan, lasting: &[u64]) {
    let loaded = replayer.done(load(plan));
    println!("loaded in {}", loaded["seconds"]);
    replayer.done(json!({"do": "settle", "at": lasting}));
}

/// Stages and runs.
#[track_caller]
pub(crate) fn go(replayer: &mut Replayer, offsets: &[u64], calls: usize, graph: bool) -> Json {
    replayer.done(stage(offsets, calls, graph));
    replayer.done(json!({"do": "turn"}));
    replayer.done(json!({"do": "go", "graph": graph}))
}

fn ramp(first: f32) -> Vec<f32> {
    (0..1024u16).map(|i| first + f32::from(i)).collect()
}

#[test]
fn gpu_calls_compute_right_results_directly_and_as_graph() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    let plan = plans::elementwise();
    ready(&mut replayer, &plan, &[0]);
    for (round, graph) in [(1u16, false), (2, true), (3, false)] {
        let inputs = gpu.memory(GRAIN);
        let answer = replayer
            .ask_with(json!({"do": "inputs", "bytes": inputs.bytes}), Some(inputs.descriptor()));
        assert_eq!(answer, json!({}));
        let calls = 50u64;
        let mut offsets = Vec::new();
        for call in 0..calls {
            inputs.write(call * BLOCK, &ramp(f32::from(round) * 100.0 + call as f32));
            let own = BLOCK + call * 2 * BLOCK;
            offsets.extend([APART + call * BLOCK, own, own + BLOCK]);
        }
        let answer = go(&mut replayer, &offsets, calls as usize, graph);
        assert_eq!(answer, json!({"launches": 2 * calls}), "round {round}");
        for call in 0..calls {
            let expected: Vec<f32> =
                ramp(f32::from(round) * 100.0 + call as f32).iter().map(|x| x * 3.0).collect();
            let found = arena.floats(BLOCK + call * 2 * BLOCK, 1024);
            assert!(found == expected, "round {round}, call {call}: {:?}", &found[..8]);
        }
    }
    for graph in [false, true] {
        assert_eq!(go(&mut replayer, &[], 0, graph), json!({"launches": 0}), "an empty window");
    }
    replayer.done(json!({"do": "unload"}));
    let refused = replayer.ask(json!({"do": "go"}));
    assert_eq!(refused["error"]["kind"], "request", "{refused}");
    ready(&mut replayer, &plan, &[0]);
    let (status, printed) = replayer.close();
    assert_eq!((status.code(), printed.as_str()), (Some(0), ""));
}

/// The second call reads what was exchanged; before and after it something else lies there.
#[test]
fn gpu_exchanged_inputs_are_there_for_their_call_only() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::elementwise(), &[0]);
    let inputs = gpu.memory(GRAIN);
    replayer.ask_with(json!({"do": "inputs", "bytes": inputs.bytes}), Some(inputs.descriptor()));
    // All calls read the same place, of which the last quarter is exchanged.
    inputs.write(0, &ramp(0.0));
    let offsets: Vec<u64> = (0..3)
        .flat_map(|call| [APART, BLOCK + 2 * call * BLOCK, 2 * BLOCK + 2 * call * BLOCK])
        .collect();
    let text = |value: f32| format!("{:08x}", value.to_bits().swap_bytes()).repeat(256);
    let at = APART + 768 * 4;
    let exchange =
        json!({"do": "exchange", "call": 1, "at": at, "own": text(5.0), "other": text(7.0)});
    replayer.done(stage(&offsets, 3, false));
    replayer.done(exchange.clone());
    replayer.done(json!({"do": "go"}));
    let results = || {
        let last = |call: u64| arena.floats(BLOCK + 2 * call * BLOCK, 1024)[1023];
        format!("{} {} {}", last(0), last(1), last(2))
    };
    assert_eq!(results(), "3069 15 21");
    // It holds for one window.
    replayer.done(stage(&offsets, 3, false));
    replayer.done(json!({"do": "go"}));
    assert_eq!(results(), "21 21 21");
    // An empty window writes both.
    replayer.done(stage(&[], 0, false));
    let mut empty = exchange.clone();
    empty["call"] = json!(0);
    replayer.done(empty.clone());
    replayer.done(json!({"do": "go"}));
    assert_eq!(format!("{:?}", inputs.floats(768 * 4, 1)), "[7.0]");
    for (field, value) in [
        ("call", json!(1)),
        ("at", json!(0)),
        ("at", json!(APART + GRAIN - 4)),
        ("other", json!("00")),
    ] {
        let mut bad = empty.clone();
        bad[field] = value;
        let refused = replayer.ask(bad);
        assert_eq!(refused["error"]["kind"], "request", "{field}: {refused}");
    }
}

#[test]
fn gpu_launches_are_left_out_until_blocks_are_placed_anew() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::elementwise(), &[0]);
    let inputs = gpu.memory(GRAIN);
    replayer.ask_with(json!({"do": "inputs", "bytes": inputs.bytes}), Some(inputs.descriptor()));
    inputs.write(0, &ramp(1.0));
    let result = || format!("{:?}", arena.floats(BLOCK, 2));
    for (left_out, expected) in [(true, "[0.5, 0.5]"), (false, "[3.0, 6.0]")] {
        arena.write(BLOCK, &[0.5, 0.5]);
        replayer.done(json!({"do": "settle", "at": [0], "without_launches": left_out}));
        go(&mut replayer, &[APART, BLOCK, 2 * BLOCK], 1, false);
        assert_eq!(result(), expected, "without launches: {left_out}");
    }
}

#[test]
fn gpu_faulting_kernel_ends_the_context_with_its_error() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::faulting(), &[]);
    replayer.done(stage(&[0], 1, false));
    let expected = json!({"error": {
        "kind": "cuda", "trace": "",
        "message": "launch fault: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)",
    }});
    for request in ["go", "ping", "turn", "unload", "facts"] {
        assert_eq!(replayer.ask(json!({ "do": request })), expected, "{request}");
    }
    let inputs = gpu.memory(GRAIN);
    let request = json!({"do": "inputs", "bytes": inputs.bytes});
    assert_eq!(replayer.ask_with(request, Some(inputs.descriptor())), expected);
    assert_eq!(replayer.ask(json!({"do": "ping"})), expected, "the descriptor was taken");
    replayer.close();
    // Positive control: the same memory serves another process.
    let mut other = start(&arena, None);
    other.done(json!({"do": "ping"}));
}

#[test]
fn gpu_failed_launch_leaves_the_context_alive() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::cooperative(100_000), &[]);
    replayer.done(stage(&[0, BLOCK], 1, false));
    let answer = replayer.ask(json!({"do": "go"}));
    let message = "launch together: CUDA error 720 (CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)";
    assert_eq!(answer["error"]["message"], message, "{answer}");
    replayer.done(json!({"do": "ping"}));
    replayer.done(json!({"do": "unload"}));
    ready(&mut replayer, &plans::counting(64 << 10), &[]);
    go(&mut replayer, &[0], 1, false);
    assert_eq!(arena.words(0, 1), [1], "another plan runs, with more shared memory than is usual");
}

#[test]
fn gpu_staging_resets_device_variables() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::counting(0), &[]);
    for graph in [false, true] {
        go(&mut replayer, &[0, BLOCK, 2 * BLOCK], 3, graph);
        let counted = [0, 1, 2].map(|call| arena.words(call * BLOCK, 1)[0]);
        assert_eq!(counted, [1, 2, 3], "graph: {graph}");
        // Positive control: without staging the counter goes on.
        replayer.done(json!({"do": "go", "graph": graph}));
        assert_eq!(arena.words(0, 1), [4], "graph: {graph}");
    }
}

#[test]
fn gpu_facts_and_occupancy_are_answered() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    let facts = replayer.done(json!({"do": "facts"}));
    println!("{facts}");
    assert!(facts["attributes"]["16"].as_i64() > Some(0), "multiprocessors: {facts}");
    assert!(
        facts["total_memory"].as_u64() > Some(1 << 30)
            && facts["driver_version"].as_i64() >= Some(12000)
    );
    let loaded = replayer.done(load(&plans::elementwise()));
    println!("{loaded}");
    assert_eq!(loaded["kernels"][0]["name"], "scale");
    assert!(loaded["kernels"][0]["registers"].as_i64() > Some(0), "{loaded}");
    assert_eq!(loaded["needs"], json!(["vprintf"]), "{loaded}");
    let request = json!({"do": "occupancy", "kernel": 0, "threads": 256, "shared": 0});
    let occupancy = replayer.done(request);
    assert!(occupancy["blocks"].as_i64() >= Some(1), "{occupancy}");
}

#[test]
fn gpu_what_kernels_print_is_discarded() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::printing(), &[]);
    go(&mut replayer, &[0], 1, false);
    assert_eq!(arena.words(0, 1), [1], "the control: kernels ran");
    assert_eq!(replayer.close().1, "");
}

#[test]
fn gpu_bad_requests_leave_the_session_usable() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    let refuse = |replayer: &mut Replayer, request: Json| {
        let answer = replayer.ask(request.clone());
        assert_eq!(answer["error"]["kind"], "request", "{request}: {answer}");
    };
    for request in ["go", "prepare", "nonsense"] {
        refuse(&mut replayer, json!({ "do": request }));
    }
    refuse(&mut replayer, stage(&[0], 1, false));
    let plan = plans::elementwise();
    replayer.done(load(&plan));
    refuse(&mut replayer, load(&plan));
    refuse(&mut replayer, json!({"do": "settle", "at": [ARENA]}));
    replayer.done(json!({"do": "settle", "at": [0]}));
    refuse(&mut replayer, stage(&[APART, BLOCK, 2 * BLOCK], 1, false));
    replayer.done(stage(&[3 * BLOCK, BLOCK, 2 * BLOCK], 1, false));
    refuse(&mut replayer, json!({"do": "go", "graph": true}));
    replayer.done(json!({"do": "go"}));
}
