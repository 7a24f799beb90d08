//! Products, convolutions and pooling by shapes, element types and layouts, against torch.

use crate::bench::{Bench, Case, device};

#[track_caller]
fn agree(bench: &Bench, family: &str, cases: &[Case]) {
    let wrong = bench.conform(cases, &device("cpu"), false);
    assert!(wrong.is_empty(), "{} wrong for cpu:\n{}", wrong.len(), wrong.join("\n"));
    // cuDNN has no counterpart on the host; its cuBLAS has no double precision.
    if !matches!(family, "convolution" | "recurrent") {
        let single: Vec<Case> =
            cases.iter().filter(|c| !c.model.contains("float64")).cloned().collect();
        let wrong = bench.conform(&single, &device("cuda:0"), false);
        assert!(wrong.is_empty(), "{} wrong for cuda:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[track_caller]
fn conform(family: &str, seed: u64, count: u64) {
    let bench = Bench::new();
    let cases = bench.trace(seed, count, Some(family));
    assert!(cases.len() as u64 * 10 >= count * 8, "torch itself ran only {}", cases.len());
    agree(&bench, family, &cases);
    // What it is for a GPU compiles, with the real libraries' headers.
    for some in cases.chunks(12) {
        bench.compile_for(some, &device("cuda:0"), "sm_90");
    }
}

#[test]
fn a_sample_of_heavy_operators_agrees_with_torch() {
    let bench = Bench::new();
    let mut all = Vec::new();
    for (family, count) in [("product", 7), ("convolution", 6), ("pool", 4), ("recurrent", 4)] {
        let cases = bench.trace(11, count, Some(family));
        // Products for a GPU run on the host too, on its cuBLAS.
        if family == "product" {
            agree(&bench, family, &cases);
            bench.compile_for(&cases[..2], &device("cuda:0"), "sm_90");
        } else {
            all.extend(cases);
        }
    }
    agree(&bench, "convolution", &all);
    bench.compile_for(&all[..2], &device("cuda:0"), "sm_90");
}

#[test]
fn long_products_agree_with_torch() {
    conform("product", 12, 160);
}

#[test]
fn long_convolutions_agree_with_torch() {
    conform("convolution", 13, 120);
}

#[test]
fn long_pooling_agrees_with_torch() {
    conform("pool", 14, 120);
}

#[test]
fn long_recurrent_layers_agree_with_torch() {
    conform("recurrent", 15, 44);
}
