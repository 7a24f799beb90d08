//! Operators by shapes, element types and memory layouts, against torch.

use crate::bench::{Bench, device};

/// Cases of the fixed sample.
const SAMPLE: u64 = 64;

#[track_caller]
fn conform(seed: u64, count: u64, family: Option<&str>) {
    let bench = Bench::new();
    let cases = bench.trace(seed, count, family);
    assert!(cases.len() as u64 * 10 >= count * 8, "torch itself ran only {}", cases.len());
    // What is written for a GPU runs on the host too, barriers and shuffles included.
    for name in ["cpu", "cuda:0"] {
        let wrong = bench.conform(&cases, &device(name), false);
        assert!(wrong.is_empty(), "{} wrong for {name}:\n{}", wrong.len(), wrong.join("\n"));
    }
    let wrong = bench.conform(&cases, &device("cuda:0"), true);
    assert!(wrong.is_empty(), "{} plain ones wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_sample_of_everything_agrees_with_torch() {
    let bench = Bench::new();
    let cases = bench.trace(1, SAMPLE, None);
    assert!(cases.len() as u64 >= SAMPLE * 9 / 10, "torch itself ran only {}", cases.len());
    for (name, cases) in [("cpu", &cases[..]), ("cuda:0", &cases[..cases.len() / 2])] {
        let wrong = bench.conform(cases, &device(name), false);
        assert!(wrong.is_empty(), "{} wrong for {name}:\n{}", wrong.len(), wrong.join("\n"));
    }
    let artifact = bench.compile_for(&cases[..12], &device("cuda:0"), "sm_90");
    assert!(artifact.kernels.iter().all(|k| k.spill_store_bytes == 0), "{:#?}", artifact.kernels);
}

#[test]
fn long_everything_agrees_with_torch() {
    conform(2, 520, None);
}

#[test]
fn long_other_draws_agree_with_torch() {
    for seed in 3..6 {
        conform(seed, 200, None);
    }
}

#[test]
fn long_reductions_and_norms_agree_with_torch() {
    conform(7, 150, Some("reduction"));
    conform(8, 100, Some("norm"));
}
