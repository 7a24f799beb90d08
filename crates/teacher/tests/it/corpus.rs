//! Operators by shapes, element types and memory layouts, against torch.

use std::collections::BTreeMap;

use warpwright_record::verdict::Profile;

use crate::bench::{Bench, Case, device};

/// Cases of the fixed sample.
const SAMPLE: u64 = 32;

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
fn long_other_samples_agree_with_torch() {
    for seed in 3..6 {
        conform(seed, 200, None);
    }
}

#[test]
fn long_reductions_and_norms_agree_with_torch() {
    conform(7, 150, Some("reduction"));
    conform(8, 100, Some("norm"));
}

#[test]
fn long_scans_agree_with_torch() {
    conform(9, 60, Some("scan"));
}

/// A reference with one input and no weights.
fn reference(forward: &str, input: &str) -> String {
    format!(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    \
         def forward(self, x: torch.Tensor):\n        return {forward}\n\n\n\
         def get_inputs():\n    x = {input}\n    return [x]\n\n\n\
         def get_init_inputs():\n    return []\n"
    )
}

/// Shapes larger than the sampled cases: rows beyond the registers, columns that threads share,
/// tiles of a scan, with infinities and NaN among the elements.
#[test]
fn long_rows_and_columns_agree_with_torch() {
    let odd = "torch.randn(7, 16400).mul(3).index_put((torch.tensor([0, 1, 2, 3]), \
               torch.tensor([5, 16399, 7, 8])), torch.tensor([float('inf'), -float('inf'), \
               float('nan'), 80.0])).index_fill(0, torch.tensor([4]), -float('inf'))";
    let cases = [
        ("softmax", "torch.softmax(x, -1)", odd),
        ("logsumexp", "torch.logsumexp(x, -1) + x.mean(-1)", odd),
        ("log_softmax", "torch.log_softmax(x, -1)", odd),
        ("running_logsumexp", "torch.logcumsumexp(x[:, :2048], 1)", odd),
        ("running_logsumexp_odd", "torch.logcumsumexp(x[:, :1021], 1) * 2", odd),
        ("running_sum", "x[3:4].cumsum(1)", odd),
        ("running_sum_down", "x.t()[:700].contiguous().cumsum(0) + x[3, :7]", odd),
        ("running_logsumexp_down", "torch.logcumsumexp(x.t()[:513].contiguous(), 0)", odd),
        ("running_product", "torch.cumprod(1 + x[5:, :300] * 0.01, 1)", odd),
        ("column_moments", "torch.std_mean(x, 0)", "5 + torch.randn(20000, 40)"),
        ("equal_columns", "x.var(0)", "torch.full((20000, 40), 0.5)"),
        ("column_extrema", "x.amax(0) - x.argmin(0)", "torch.randn(3000, 36)"),
        ("odd_columns", "(x * x).sum(0).sqrt()", "torch.randn(3000, 37)"),
        (
            "pairs",
            "(x.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1).add(0.01).rsqrt().sum(-1)",
            "torch.randn(513, 3)",
        ),
        ("short_rows", "torch.softmax(x, -1).square().sum(-1)", "torch.randn(1001, 5)"),
        ("short_places", "x.argmax(-1)", "torch.randn(1001, 24)"),
    ];
    let sources: BTreeMap<String, String> = cases
        .iter()
        .map(|(name, forward, input)| ((*name).to_owned(), reference(forward, input)))
        .collect();
    let bench = Bench::new();
    let traced = bench.trace_sources(&sources);
    assert_eq!(traced.len(), cases.len());
    for name in ["cpu", "cuda:0"] {
        let wrong = bench.conform(&traced, &device(name), false);
        assert!(wrong.is_empty(), "{} wrong for {name}:\n{}", wrong.len(), wrong.join("\n"));
    }
    bench.compile_for(&traced, &device("cuda:0"), "sm_90");
}

#[test]
fn sizes_that_fit_no_vector_compile() {
    let sources = BTreeMap::from([
        ("columns".to_owned(), reference("x.sum(1)", "torch.randn(128, 64, 4095)")),
        ("rows".to_owned(), reference("x.softmax(-1)", "torch.randn(64, 2047)")),
        ("elements".to_owned(), reference("x * 2 + 1", "torch.randn(513, 4095)")),
    ]);
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources);
    assert_eq!(cases.len(), 3);
    let artifact = bench.compile_for(&cases, &device("cuda:0"), "sm_90");
    assert_eq!(artifact.kernels.len(), 3, "{:#?}", artifact.kernels);
}

#[test]
fn tensors_beyond_31_bits_use_64_bit_indices() {
    // 3e9 elements are read where 2.4e6 are written; 2^31 elements are written.
    let sources = BTreeMap::from([
        ("slice".to_owned(), reference("x[:, :8] * 2", "torch.randn(300_000, 10_000)")),
        ("whole".to_owned(), reference("x + 1", "torch.randn(65_536, 32_768)")),
        ("small".to_owned(), reference("x + 1", "torch.randn(512, 512)")),
    ]);
    let bench = Bench::new();
    let cases = bench.trace_sources(&sources);
    let wide = |case: &Case| {
        let files =
            warpwright_teacher::translate(&case.trace, &device("cuda:0"), Profile::Strict, false)
                .unwrap();
        let text: String =
            files.into_iter().filter(|f| f.0.starts_with("kernels/")).map(|f| f.1).collect();
        (text.contains("(long long)"), text.contains("int64_t"))
    };
    let found: BTreeMap<&str, (bool, bool)> =
        cases.iter().map(|c| (c.name.as_str(), wide(c))).collect();
    assert_eq!(found["slice"], (true, false));
    assert_eq!(found["whole"], (false, true));
    assert_eq!(found["small"], (false, false));
    bench.compile_for(&cases, &device("cuda:0"), "sm_90");
}

#[test]
fn state_carried_between_calls_is_refused() {
    let model = |body: &str| {
        reference("x", "torch.randn(4, 8)")
            .replace("        return x\n", &format!("        {body}\n"))
            .replace(
                "    def forward",
                "    def __init__(self):\n        super().__init__()\n        \
                 self.state = torch.randn(4, 8)\n\n    def forward",
            )
    };
    let sources = BTreeMap::from([
        ("carried".to_owned(), model("self.state = self.state + x\n        return self.state * 2")),
        (
            "written".to_owned(),
            model(
                "self.state.copy_(x)\n        self.state = self.state.tanh()\n        return self.state + x",
            ),
        ),
    ]);
    let bench = Bench::new();
    let (good, bad): (Vec<Case>, Vec<Case>) =
        bench.trace_sources(&sources).into_iter().partition(|c| c.name == "written");
    let wrong = bench.conform(&good, &device("cpu"), false);
    assert!(wrong.is_empty(), "{wrong:?}");
    let refusal =
        warpwright_teacher::translate(&bad[0].trace, &device("cpu"), Profile::Strict, false)
            .unwrap_err();
    assert!(refusal.contains("forward changes state"), "{refusal}");
}
