//! Kinds of operations on a GPU: streams, attributes of launches, tensor maps, transfers, matrix products.

use serde_json::json;

use crate::device::Gpu;
use crate::gpu::{arena, go, ready, stage, start};
use crate::plans::{self, BLOCK};

#[test]
fn gpu_streams_wait_for_each_other() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::streams(), &[0]);
    for graph in [false, true] {
        arena.write(0, &[1.0; 1024]);
        // All calls share their memory, so a call that overlaps the next one spoils it.
        let calls = 8;
        go(&mut replayer, &[BLOCK, 2 * BLOCK].repeat(calls), calls, graph);
        let expected = (0..calls).fold(1.0f32, |x, _| (x + 1.0) * 2.0 + 3.0);
        let found = arena.floats(0, 1024);
        assert!(found == vec![expected; 1024], "graph {graph}: {expected} {:?}", &found[..4]);
    }
}

#[test]
fn gpu_programmatic_launches_never_overlap_calls() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::programmatic(), &[]);
    let calls = 10;
    let offsets: Vec<u64> = (0..calls).map(|call| call * BLOCK).collect();
    for graph in [false, true] {
        go(&mut replayer, &offsets, calls as usize, graph);
        let times: Vec<Vec<u64>> = offsets.iter().map(|at| arena.longs(*at, 3)).collect();
        println!(
            "graph {graph}: begin and end of the first kernel, begin of the second: {times:?}"
        );
        for [before, after] in times.array_windows() {
            assert!(after[0] >= before[1], "graph {graph}: a call begins before the last ends");
        }
        // Positive control: within a call they overlap, except in a graph.
        let overlapping = times.iter().filter(|call| call[2] < call[1]).count();
        assert_eq!(overlapping > 0, !graph, "graph {graph}: {overlapping} of {calls} overlap");
    }
}

#[test]
fn gpu_cluster_and_cooperative_launches_have_their_attributes() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    for graph in [false, true] {
        ready(&mut replayer, &plans::clusters(), &[]);
        go(&mut replayer, &[0], 1, graph);
        assert_eq!(arena.words(0, 8), [64, 65, 66, 67, 64, 65, 66, 67], "graph: {graph}");
        replayer.done(json!({"do": "unload"}));
        ready(&mut replayer, &plans::cooperative(16), &[]);
        go(&mut replayer, &[0, BLOCK], 1, graph);
        assert_eq!(arena.words(1024, 16), [136; 16], "graph: {graph}");
        replayer.done(json!({"do": "unload"}));
    }
}

#[test]
fn gpu_tensor_map_names_the_block_of_its_call() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::tile(), &[]);
    let values = |call: u64| -> Vec<f32> {
        (0..1024u16).map(|i| f32::from(i) + 2000.0 * call as f32).collect()
    };
    let offsets: Vec<u64> = (0..6).map(|block| block * BLOCK).collect();
    for graph in [false, true] {
        arena.write(0, &vec![0.0; 6 * 1024]);
        for call in 0..3 {
            arena.write(call * 2 * BLOCK, &values(call));
        }
        go(&mut replayer, &offsets, 3, graph);
        for call in 0..3 {
            let all = values(call);
            let expected: Vec<f32> = (0..64).map(|i| all[(16 + i / 8) * 32 + 8 + i % 8]).collect();
            let found = arena.floats((call * 2 + 1) * BLOCK, 64);
            assert_eq!(found, expected, "graph {graph}, call {call}");
        }
    }
}

#[test]
fn gpu_prepared_variables_survive_staging() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::variables(), &[0]);
    let refused = replayer.ask(stage(&[BLOCK], 1, false));
    assert_eq!(refused["error"]["kind"], "request", "{refused}");
    // The second time for other weights, say: nothing is left of the first.
    for time in ["first", "second"] {
        arena.write(0, &[2.0; 1024]);
        replayer.done(json!({"do": "settle", "at": [0]}));
        assert_eq!(replayer.done(json!({"do": "prepare"})), json!({"launches": 5}));
        for graph in [false, true, false] {
            let when = format!("prepared for the {time} time, graph: {graph}");
            go(&mut replayer, &[BLOCK], 1, graph);
            assert_eq!(arena.floats(BLOCK, 4), [9.0, 9.0, 3.5, 4.5], "{when}");
            assert_eq!(arena.words(BLOCK + 16, 1), [2], "{when}: one in prepare, one in the call");
            let kept = arena.floats(0, 1024);
            let halved = [[1.0; 15].as_slice(), &[4.5; 2], &[1.0; 1006]].concat();
            assert!(kept[1..] == halved, "{when}: the kept block holds {:?}", &kept[..20]);
            assert_eq!(arena.words(0, 1), [1], "{when}: the count of prepare");
        }
        // Positive control: without staging the counter goes on.
        replayer.done(json!({"do": "go"}));
        assert_eq!(arena.words(BLOCK + 16, 1), [3]);
    }
}

#[test]
fn gpu_pinned_threads_keep_to_their_cores() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    let all = replayer.cores();
    let core = rustix::thread::sched_getcpu();
    assert!(all.iter().any(|cores| *cores != core.to_string()), "the control: {all:?}");
    assert_eq!(replayer.done(json!({"do": "pin", "cores": [core]})), json!({}));
    let pinned = replayer.cores();
    assert!(pinned.iter().all(|cores| *cores == core.to_string()), "{pinned:?}");
    for cores in [json!([]), json!([1 << 20])] {
        let refused = replayer.ask(json!({"do": "pin", "cores": cores}));
        assert_eq!(refused["error"]["kind"], "system", "{refused}");
    }
}

#[test]
fn gpu_fills_copies_and_uploads_write_what_they_should() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let mut replayer = start(&arena, None);
    ready(&mut replayer, &plans::transfers(), &[]);
    for graph in [false, true] {
        arena.write(0, &[0.0; 2048]);
        go(&mut replayer, &[0, BLOCK], 1, graph);
        let four = 0xaabb_ccdd_u32;
        let expected = [[four; 4], [0xccdd_ccdd; 4], [0xdddd_dddd; 4], [0; 4]].concat();
        let fills = arena.words(0, 16);
        assert_eq!(fills, expected, "graph {graph}: {fills:x?}");
        let row = [0x1122_3344, 0x0044_3344, 0, 0];
        let rows = arena.words(256, 16);
        assert_eq!(rows, [row, row, row, [0; 4]].concat(), "graph {graph}: {rows:x?}");
        assert_eq!(arena.words(BLOCK, 5), [four, four, four, four, 0], "graph: {graph}");
        let copied = arena.words(BLOCK + 64, 20);
        assert_eq!((copied[0], copied[16]), (four, 0xdddd_dddd), "graph {graph}: {copied:x?}");
        let uploaded = arena.longs(BLOCK + 512, 2);
        assert_eq!((uploaded[0], uploaded[1] % BLOCK), (7, 32), "graph {graph}: {uploaded:x?}");
    }
}

/// Where `WARPWRIGHT_CUBLAS` or the repository's environment has cuBLAS.
fn cublas() -> Option<String> {
    library("WARPWRIGHT_CUBLAS", "cu13/lib/libcublas.so.13")
}

/// Where a variable, or the repository's environment below `nvidia`, has a library.
pub(crate) fn library(variable: &str, below: &str) -> Option<String> {
    if let Ok(path) = std::env::var(variable) {
        return Some(path);
    }
    let environment = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/lib");
    let versions = fs_err::read_dir(environment).ok()?.filter_map(Result::ok);
    let library = format!("site-packages/nvidia/{below}");
    let mut paths = versions.map(|version| version.path().join(&library));
    paths.find(|path| path.exists()).and_then(|path| path.to_str().map(str::to_owned))
}

#[test]
fn gpu_matrix_products_are_right() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let Some(path) = cublas() else {
        println!("skipped: there is no cuBLAS; WARPWRIGHT_CUBLAS can name it");
        return;
    };
    let mut replayer = start(&arena, Some(&path));
    for batch in [1u16, 3] {
        ready(&mut replayer, &plans::product(u32::from(batch)), &[BLOCK]);
        let left: Vec<f32> = (0..32 * batch).map(|i| f32::from(i % 13)).collect();
        let right: Vec<f32> = (0..16 * batch).map(|i| f32::from(i % 7) - 3.0).collect();
        let expected: Vec<f32> = (0..usize::from(batch) * 8)
            .map(|i| {
                let (matrix, row, column) = (i / 8, i % 8 / 2, i % 2);
                let term =
                    |k| left[matrix * 32 + row * 8 + k] * right[matrix * 16 + k * 2 + column];
                (0..8).map(term).sum()
            })
            .collect();
        arena.write(BLOCK, &right);
        for graph in [false, true] {
            arena.write(0, &left);
            arena.write(2 * BLOCK, &[0.0; 2048]);
            go(&mut replayer, &[0, 2 * BLOCK, 3 * BLOCK], 1, graph);
            let found = arena.floats(2 * BLOCK, expected.len());
            assert_eq!(found, expected, "batch {batch}, graph {graph}");
        }
        replayer.done(json!({"do": "unload"}));
    }
}

#[test]
fn gpu_products_with_vectors_and_arrays_are_right() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let Some(path) = cublas() else {
        println!("skipped: there is no cuBLAS; WARPWRIGHT_CUBLAS can name it");
        return;
    };
    let mut replayer = start(&arena, Some(&path));
    ready(&mut replayer, &plans::other_products(), &[BLOCK]);
    let matrix: Vec<f32> = (0..32u16).map(|i| f32::from(i % 13)).collect();
    let vectors: Vec<f32> = (0..16u16).map(|i| f32::from(i % 7) - 3.0).collect();
    let expected: Vec<f32> = (0..8usize)
        .map(|i| (0..8).map(|k| matrix[k * 4 + i % 4] * vectors[i / 4 * 8 + k]).sum())
        .collect();
    arena.write(BLOCK, &matrix);
    for graph in [false, true] {
        arena.write(0, &vectors);
        arena.write(2 * BLOCK, &[7.0; 2048]);
        go(&mut replayer, &[0, 2 * BLOCK, 3 * BLOCK], 1, graph);
        let steps = |from: u64, count: usize| -> Vec<f32> {
            arena.floats(2 * BLOCK + from, 2 * count).into_iter().step_by(2).collect()
        };
        assert_eq!(steps(0, 4), expected[..4], "graph {graph}");
        assert_eq!(steps(64, 8), expected, "graph {graph}: both");
        assert_eq!(arena.floats(2 * BLOCK + 4, 1), [7.0], "between the steps");
        assert_eq!(arena.floats(2 * BLOCK + 256, 8), expected, "graph {graph}: arrays");
    }
}

#[test]
fn gpu_products_of_cublaslt_are_right() {
    let gpu = Gpu::open();
    let arena = arena(&gpu);
    let Some(path) = cublas() else {
        println!("skipped: there is no cuBLAS; WARPWRIGHT_CUBLAS can name it");
        return;
    };
    let mut replayer = start(&arena, Some(&path));
    let input: Vec<f32> = (0..96u16).map(|i| f32::from(i % 11) - 5.0).collect();
    let weight: Vec<f32> = (0..48u16).map(|i| f32::from(i % 7) - 3.0).collect();
    let bias: Vec<f32> = (0..6u16).map(f32::from).collect();
    let expected: Vec<f32> = (0..24usize)
        .map(|i| {
            let (row, column) = (i % 6, i / 6);
            let sum: f32 = (0..8).map(|k| weight[row * 8 + k] * input[column * 12 + k]).sum();
            (sum + bias[row]).max(0.0)
        })
        .collect();
    for time in ["first", "second"] {
        ready(&mut replayer, &plans::linear(), &[BLOCK, 2 * BLOCK]);
        arena.write(BLOCK, &weight);
        arena.write(2 * BLOCK, &bias);
        for graph in [false, true] {
            arena.write(0, &input);
            arena.write(3 * BLOCK, &[f32::NAN; 1024]);
            go(&mut replayer, &[0, 3 * BLOCK], 1, graph);
            let found = arena.floats(3 * BLOCK, 24);
            assert_eq!(found, expected, "loaded for the {time} time, graph {graph}");
        }
        replayer.done(json!({"do": "unload"}));
    }
}
