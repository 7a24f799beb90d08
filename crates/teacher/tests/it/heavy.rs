//! Products, convolutions and pooling by shapes, element types and layouts, against torch.

use std::collections::BTreeMap;

use warpwright_record::verdict::Profile;

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
    for (family, count) in [("product", 4), ("convolution", 4), ("pool", 2), ("recurrent", 2)] {
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

/// All combinations of strides, dilations, groups and paddings that give different phases: some
/// without taps, some that begin later, and outputs beyond all inputs.
#[test]
fn transposed_convolutions_of_any_kind_agree_with_torch() {
    let kinds = [
        ("2d(8, 6, 3, stride=2, padding=1, dilation=2)", "5, 6"),
        ("2d(8, 6, 3, stride=5, padding=1, dilation=2)", "4, 5"),
        ("2d(8, 12, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4)", "5, 6"),
        ("2d(8, 12, (3, 5), bias=False)", "4, 7"),
        ("2d(8, 8, 3, stride=3, dilation=2, groups=8)", "4, 5"),
        ("2d(8, 4, 2, stride=3, padding=1, output_padding=2, dilation=4)", "3, 4"),
        ("3d(8, 8, (3, 5, 7), 2, (1, 2, 3), (1, 1, 1), groups=4)", "3, 4, 5"),
        ("3d(4, 6, 3, stride=2, padding=1, dilation=2)", "3, 4, 3"),
        ("1d(8, 4, 5, stride=3, padding=2, output_padding=1, dilation=3)", "9"),
    ];
    let source = |(layer, size): (&str, &str)| {
        let channels = layer.split(['(', ',']).nth(1).unwrap();
        format!(
            "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ConvTranspose{layer}

    def forward(self, x):
        return self.layer(x)

def get_inputs():
    return [torch.randn(2, {channels}, {size})]

def get_init_inputs():
    return []
"
        )
    };
    let named = |(i, kind): (usize, &(&str, &str))| (format!("kind_{i}"), source(*kind));
    let sources: BTreeMap<String, String> = kinds.iter().enumerate().map(named).collect();
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources);
    assert_eq!(cases.len(), kinds.len());
    agree(&bench, "convolution", &cases);
    bench.compile_for(&cases[..3], &device("cuda:0"), "sm_90");
}

/// Algorithms for tensor cores copy their operands into another layout: two copies of a part's fit the
/// workspace. A part is a whole number of images, and small batches are left whole.
#[test]
fn large_batches_go_through_cudnn_in_parts() {
    let source = |batch: u32, after: &str| {
        format!(
            "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(64, 128, 3)

    def forward(self, x):
        return {after}

def get_inputs():
    return [torch.randn({batch}, 64, 256, 256)]

def get_init_inputs():
    return []
"
        )
    };
    let sources = BTreeMap::from([
        ("large".to_owned(), source(64, "self.layer(x)")),
        ("relu".to_owned(), source(64, "torch.relu(self.layer(x))")),
        ("small".to_owned(), source(4, "self.layer(x)")),
    ]);
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources);
    let text = |name: &str| -> String {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        let files =
            warpwright_teacher::translate(&case.trace, &device("cuda:0"), Profile::Tf32, false)
                .unwrap();
        files.into_iter().filter(|f| f.0.starts_with("kernels/")).map(|f| f.1).collect()
    };
    // 1 GiB of inputs and 2 GiB of outputs: an eighth of both takes 0.4 GiB.
    let (large, relu, small) = (text("large"), text("relu"), text("small"));
    assert!(large.contains("part < 8 "), "{large}");
    assert!(large.contains("const int x_dims[] = {8, 64, 256, 256}"), "{large}");
    assert!(relu.contains("part < 8 ") && relu.contains("BiasActivationForward"), "{relu}");
    assert!(!small.contains("part <"), "{small}");
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
