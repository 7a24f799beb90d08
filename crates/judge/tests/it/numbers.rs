//! Precision and input families on the cpu device: which results are correct, and on which inputs.

use crate::support::{Case, body, convolution, judge_all, shared_judge};
use warpwright_judge::{Bar, Device, SessionPool, Sharing};
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{FailureClass, Profile, Stage, Verdict};
use warpwright_task::Task;

/// A task without weights.
fn task(arguments: &str, result: &str, inputs: &str) -> String {
    format!(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\
         class Model(nn.Module):\n\
         \x20   def forward(self, {arguments}):\n\
         \x20       return {result}\n\n\
         def get_inputs():\n\
         \x20   return [{inputs}]\n"
    )
}

/// A candidate whose forward calls one launcher.
fn candidate(task: &str, arguments: &str, forward: &str, kernel: &str) -> Case {
    let model = format!(
        "import torch\nimport torch.nn as nn\nimport cuda_extension\n\n\
         class ModelNew(nn.Module):\n\
         \x20   def forward(self, {arguments}):\n{}\n",
        body(forward)
    );
    Case { task: task.into(), model, kernels: vec![("k.cu", kernel.into())] }
}

fn verified(task: &str, cases: &[Case]) -> Vec<Verdict> {
    judge_all(Device::Cpu, task, cases.iter().map(Case::candidate), Stage::Verified)
}

/// A product of what `operand` makes of each element; sums run in order, the worst of the honest
/// orders.
fn product(operand: &str, sum: &str) -> String {
    format!(
        r#"
#include <cuda_runtime.h>
/* Rounds to the nearest number with `bits` stored bits of fraction. */
__device__ float rounded(float x, int bits) {{
    unsigned drop = 23 - bits, raw = __float_as_uint(x);
    raw += (1u << (drop - 1)) - 1 + (raw >> drop & 1);
    return __uint_as_float(raw & ~((1u << drop) - 1));
}}
__device__ float operand(float x) {{ return {operand}; }}
__global__ void product(const float* a, const float* b, float* out, int m, int n, int k) {{
    int row = blockIdx.x, column = threadIdx.x;
    if (column >= n) return;
    float sum = 0.f, small = 0.f;
    for (int i = 0; i < k; ++i) {{
        float x = a[row * k + i], y = b[i * n + column];
        {sum}
    }}
    out[row * n + column] = sum + small;
}}
extern "C" void product_launcher(const float* a, const float* b, float* out, int m, int n, int k,
                                 cudaStream_t stream) {{
    product<<<m, n, 0, stream>>>(a, b, out, m, n, k);
}}
"#
    )
}

const PLAIN_SUM: &str = "sum = fmaf(operand(x), operand(y), sum);";
/// As tensor cores multiply float32 numbers in three TF32 products. The corrections have a sum of their
/// own (Ootomo and Yokota 2022, arXiv 2203.03341): in one sum three times as many terms would follow each
/// other as in the plain order, which nobody writes and is refused in some draws of `normal`.
const SPLIT_SUM: &str = "float h = rounded(x, 10), l = rounded(x - h, 10);
        float g = rounded(y, 10), s = rounded(y - g, 10);
        small = fmaf(l, g, small); small = fmaf(h, s, small); sum = fmaf(h, g, sum);";

const MULTIPLY: &str = "out = torch.empty(a.shape[0], b.shape[1])\n\
    cuda_extension.product_launcher(a, b, out, a.shape[0], b.shape[1], a.shape[1])\n\
    return out";

/// KernelBench draws nearly all operands so, and TF32's error is least on them.
#[test]
fn on_uniform_operands_lower_precision_fails_and_honest_orders_pass() {
    let task = task("a, b", "a @ b", "torch.rand(64, 4096), torch.rand(4096, 64)");
    let by = |operand: &str, sum: &str| candidate(&task, "a, b", MULTIPLY, &product(operand, sum));
    let cases = [
        by("x", PLAIN_SUM),
        by("x", SPLIT_SUM),
        by("rounded(x, 10)", PLAIN_SUM),
        by("rounded(x, 7)", PLAIN_SUM),
    ];
    let verdicts = verified(&task, &cases);
    for honest in &verdicts[..2] {
        assert!(honest.verified, "{:#?}\n{:#?}", honest.failure, honest.checks);
        let families: Vec<InputFamily> = honest.checks.iter().map(|c| c.family).collect();
        assert!(families.contains(&InputFamily::Own), "{families:?}");
        assert!(families.iter().any(|f| *f != InputFamily::Own), "{families:?}");
        assert!(honest.caveats.iter().all(|c| !c.contains("cannot be told")));
    }
    for lower in &verdicts[2..] {
        let failure = lower.failure.as_ref().unwrap();
        assert_eq!(failure.class, FailureClass::Mismatch, "{failure:#?}");
        let check = lower.checks.last().unwrap();
        let lower = check.lower_precision_max_abs_error.unwrap();
        assert!(lower > check.atol && check.atol > check.reference_max_abs_error, "{check:#?}");
    }
}

fn pointwise(expression: &str) -> String {
    format!(
        r#"
#include <cuda_runtime.h>
#include <math.h>
__global__ void each(const float* x, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = {expression};
}}
extern "C" void each_launcher(const float* x, float* out, int n, cudaStream_t stream) {{
    each<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n);
}}
"#
    )
}

const EACH: &str = "out = torch.empty_like(x)\n\
    cuda_extension.each_launcher(x, out, x.numel())\n\
    return out";

/// The examiner compares wrong answers itself, in the oracle. Here each is played by a candidate, and fails
/// as the examiner says, or passes as it says.
#[test]
fn counterfeit_objections_agree_with_verdicts() {
    let judge = shared_judge(Device::Cpu);
    let objections = |name: &str, source: &str| -> Vec<String> {
        let task = Task::from_source(name, source.to_owned());
        let found = SessionPool::new(judge).examine(&task, None, Bar::Sound, Sharing::Own).unwrap();
        found.objections.iter().map(ToString::to_string).collect()
    };
    let sound = task("x", "torch.tanh(x)", "torch.randn(64, 512)");
    assert_eq!(objections("sound", &sound), Vec::<String>::new());
    let before = "__device__ float last[64 * 512];\n\
        __device__ float swapped(float* at, float now) { float was = *at; *at = now; return was; }\n\
        __global__";
    let bits = "__float_as_uint(tanhf(x[i]))";
    let half = format!("__uint_as_float(({bits} + 0xfffu + ({bits} >> 13 & 1u)) & ~0x1fffu)");
    let answers = [
        ("zeros", "0.f"),
        ("its mean", "0.001f"),
        ("input 0", "x[i]"),
        ("the previous result", "swapped(last + i, tanhf(x[i]))"),
        ("half precision", half.as_str()),
        ("the first half only", "i < n / 2 ? tanhf(x[i]) : 0.f"),
        ("rows in another order", "tanhf(x[(i + n - 512) % n])"),
        ("memory that nobody wrote", "out[i]"),
    ];
    let kernel = |expression: &str| pointwise(expression).replacen("__global__", before, 1);
    let honest = ("the truth", "tanhf(x[i])");
    let cases: Vec<Case> = [honest]
        .iter()
        .chain(&answers)
        .map(|(_, expression)| candidate(&sound, "x", EACH, &kernel(expression)))
        .collect();
    let verdicts = verified(&sound, &cases);
    assert!(verdicts[0].verified, "positive control: {:#?}", verdicts[0].failure);
    for (verdict, (name, _)) in verdicts[1..].iter().zip(&answers) {
        let failure = verdict.failure.as_ref().map(|failure| failure.class);
        // Results lie where there are no numbers until a candidate writes some.
        let nothing = *name == "memory that nobody wrote";
        let wanted = if nothing { FailureClass::NonFinite } else { FailureClass::Mismatch };
        assert_eq!(failure, Some(wanted), "{name}");
    }
    let copied = task("x", "torch.where(x > 1e9, 0.5 * x, x)", "torch.randn(64, 512)");
    let told = "a candidate that returns input 0 would pass".to_owned();
    assert!(objections("copied", &copied).contains(&told), "{:?}", objections("copied", &copied));
    let verdicts = verified(&copied, &[candidate(&copied, "x", EACH, &kernel("x[i]"))]);
    assert!(verdicts[0].verified, "{:#?}", verdicts[0]);
}

/// Its name has the letters of a product, but nothing is summed: no order of summation is allowed for.
#[test]
fn a_pointwise_operator_gets_no_summation_tolerance() {
    let task = task("x", "torch.lgamma(x)", "torch.rand(4, 65536) + 0.1");
    let verdicts = verified(&task, &[candidate(&task, "x", EACH, &pointwise("lgammaf(x[i])"))]);
    assert!(verdicts[0].verified, "{:#?}", verdicts[0].failure);
    let own = verdicts[0].checks.iter().filter(|check| check.family == InputFamily::Own);
    for check in own {
        let most = 16.0 * check.reference_max_abs_error + 2e-6;
        assert!(check.atol < 2.0 * most, "{check:#?}");
    }
}

/// A reference that takes negative numbers means them (decision 12), though its inputs have none.
#[test]
fn a_kernel_correct_only_on_positive_inputs_fails() {
    let task = task("x", "torch.relu(x) + 1", "torch.rand(256, 512)");
    let cases = ["fmaxf(x[i], 0.f) + 1.f", "x[i] + 1.f"]
        .map(|expression| candidate(&task, "x", EACH, &pointwise(expression)));
    let verdicts = verified(&task, &cases);
    assert!(verdicts[0].verified, "positive control: {:#?}", verdicts[0]);
    let failure = verdicts[1].failure.as_ref().unwrap();
    assert_eq!(failure.class, FailureClass::Mismatch);
    // Families are played in any order; each of these has negative numbers.
    let told =
        ["(normal)", "(slices)", "(ends)"].iter().any(|family| failure.message.contains(family));
    assert!(told, "{}", failure.message);
}

#[test]
fn a_logarithm_gets_no_negative_inputs() {
    let task = task("x", "torch.log(x)", "torch.rand(256, 512) + 0.1");
    let cases = [
        candidate(&task, "x", EACH, &pointwise("logf(x[i])")),
        // NaN for negative numbers, as a logarithm, and right for no others.
        candidate(&task, "x", EACH, &pointwise("x[i] < 0.f ? nanf(\"\") : logf(x[i]) * 0.999f")),
    ];
    let verdicts = verified(&task, &vec![cases[0].clone(); 3]);
    for verdict in &verdicts {
        assert!(verdict.verified, "{:#?}", verdict.failure);
        let played: Vec<InputFamily> = verdict.checks.iter().map(|check| check.family).collect();
        for refused in [InputFamily::Normal, InputFamily::Sparse, InputFamily::Integers] {
            assert!(!played.contains(&refused), "{played:?}");
        }
        assert!(played.iter().any(|family| *family != InputFamily::Own), "{played:?}");
    }
    assert!(!verified(&task, &cases[1..])[0].verified, "the task can be failed at all");
}

/// As a bound that is checked on a GPU: it takes the process.
#[test]
fn a_reference_that_crashes_on_other_inputs_keeps_its_own() {
    let task = task("x", "torch.relu(guard(x)) + 1", "torch.rand(64, 64)")
        + "\nimport os, signal\ndef guard(x):\n    \
           if x.min() < 0 or x.max() > 1: os.kill(os.getpid(), signal.SIGKILL)\n    return x\n";
    let case = candidate(&task, "x", EACH, &pointwise("x[i] + 1.f"));
    let verdict = verified(&task, &[case]).remove(0);
    assert!(verdict.verified, "{:#?}", verdict.failure);
    assert!(verdict.checks.iter().all(|check| check.family == InputFamily::Own));
    let told = verdict.caveats.iter().any(|c| c.contains("only the task's own inputs were used"));
    assert!(told, "{:?}", verdict.caveats);
}

/// Rows taken by indices, and weighted by a mask of zeros and ones in float32.
const GATHER: &str = r#"
#include <cuda_runtime.h>
__global__ void gather(const float* x, const float* at, const float* mask, float* out, int rows,
                       int columns) {
    int row = blockIdx.x, column = threadIdx.x;
    float m = mask[row];
    int from = (int)at[row];
    // Neither a whole number nor a row: no such input may come.
    if ((m != 0.f && m != 1.f) || at[row] != (float)from || from < 0 || from >= rows) m = 12345.f;
    out[row * columns + column] = x[from * columns + column] * m;
}
extern "C" void gather_launcher(const float* x, const float* at, const float* mask, float* out,
                                int rows, int columns, cudaStream_t stream) {
    gather<<<rows, columns, 0, stream>>>(x, at, mask, out, rows, columns);
}
"#;

#[test]
fn indices_and_masks_that_are_stored_as_floats_keep_their_values() {
    let task = task(
        "x, at, mask",
        "x[at.long()] * mask[:, None]",
        "torch.randn(128, 64), torch.randint(0, 128, (128,)).float(), \
         (torch.rand(128) < 0.5).float()",
    );
    let forward = "out = torch.empty_like(x)\n\
        cuda_extension.gather_launcher(x, at, mask, out, x.shape[0], x.shape[1])\n\
        return out";
    let case = candidate(&task, "x, at, mask", forward, GATHER);
    for verdict in verified(&task, &vec![case; 3]) {
        assert!(verdict.verified, "{:#?}", verdict.failure);
        assert!(verdict.checks.iter().any(|check| check.family != InputFamily::Own));
    }
}

/// The host has no TF32: there the same is shown of the model that calibration has of it.
#[test]
fn reference_convolutions_are_float32_and_tf32_is_detected() {
    let strict = convolution::check(Device::Cpu, Profile::Strict);
    let lower = strict.lower_precision_max_abs_error.unwrap();
    assert!(strict.reference_max_abs_error * 50.0 < lower, "{strict:#?}");
    assert!(strict.atol < lower, "{strict:#?}");
    let tf32 = convolution::check(Device::Cpu, Profile::Tf32);
    assert!(tf32.atol > lower && lower > strict.atol, "positive control: {tf32:#?}");
}

/// Rows normalised by a variance in one pass, shifted by the row's first element, and by `exp2f`
/// where the reference takes `exp`: as exact as is honest, by other ways than torch's.
const ROWS: &str = r#"
#include <cuda_runtime.h>
#include <math.h>
__global__ void normalised(const float* x, float* out, int columns) {
    const float* row = x + blockIdx.x * columns;
    float shift = row[0], sum = 0.f, squares = 0.f;
    for (int i = 0; i < columns; ++i) {
        float d = row[i] - shift;
        sum += d;
        squares = fmaf(d, d, squares);
    }
    float mean = sum / columns, variance = squares / columns - mean * mean;
    float scale = rsqrtf(variance + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        out[blockIdx.x * columns + i] = (row[i] - shift - mean) * scale;
    }
}
__global__ void softmax(const float* x, float* out, int columns) {
    const float* row = x + blockIdx.x * columns;
    const float log2e = 1.44269504f;
    float largest = -INFINITY, sum = 0.f;
    for (int i = 0; i < columns; ++i) {
        float next = fmaxf(largest, row[i] * log2e);
        sum = sum * exp2f(largest - next) + exp2f(fmaf(row[i], log2e, -next));
        largest = next;
    }
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        out[blockIdx.x * columns + i] = exp2f(fmaf(row[i], log2e, -largest)) / sum;
    }
}
extern "C" void normalised_launcher(const float* x, float* out, int rows, int columns, cudaStream_t s) {
    normalised<<<rows, 32, 0, s>>>(x, out, columns);
}
extern "C" void softmax_launcher(const float* x, float* out, int rows, int columns, cudaStream_t s) {
    softmax<<<rows, 32, 0, s>>>(x, out, columns);
}
"#;

#[test]
fn equally_exact_algorithms_pass_on_all_inputs() {
    for (result, launcher) in [
        ("F.layer_norm(x, (768,))", "normalised_launcher"),
        ("torch.softmax(x, dim=-1)", "softmax_launcher"),
    ] {
        let task = task("x", result, "torch.rand(512, 768)");
        let forward = format!(
            "out = torch.empty_like(x)\n\
             cuda_extension.{launcher}(x, out, x.shape[0], x.shape[1])\n\
             return out"
        );
        let case = candidate(&task, "x", &forward, ROWS);
        let mut played = std::collections::BTreeSet::new();
        for verdict in verified(&task, &vec![case; 4]) {
            assert!(verdict.verified, "{result}: {:#?}", verdict.failure);
            played.extend(verdict.checks.iter().map(|check| check.family));
        }
        // Two that are drawn, beside the task's own and normal numbers.
        assert!(played.len() >= 4, "{played:?}");
    }
}

/// Relative to the root mean square of sentinels everything else is nothing.
#[test]
fn sentinels_do_not_hide_errors_of_other_elements() {
    let task = task(
        "x, mask",
        "torch.where(mask, torch.tanh(x), -1e9)",
        "torch.randn(256, 512), torch.rand(256, 512) < 0.9",
    );
    let kernel = |expression: &str| {
        pointwise(&format!("mask[i] ? {expression} : -1e9f"))
            .replace("const float* x,", "const float* x, const bool* mask,")
            .replace("(x, out, n)", "(x, mask, out, n)")
    };
    let forward = EACH.replace("(x, out,", "(x, mask, out,");
    let cases = ["tanhf(x[i])", "0.f", "0.99f * tanhf(x[i])"]
        .map(|expression| candidate(&task, "x, mask", &forward, &kernel(expression)));
    let verdicts = verified(&task, &cases);
    assert!(verdicts[0].verified, "positive control: {:#?}", verdicts[0]);
    for wrong in &verdicts[1..] {
        let failure = wrong.failure.as_ref().unwrap();
        assert_eq!(failure.class, FailureClass::Mismatch, "{failure:#?}");
        let mismatch = failure.mismatch.as_ref().unwrap();
        assert!(mismatch.atol < 1e-2, "what decided is told: {mismatch:#?}");
    }
}

/// `rows` of a softmax by one thread each.
fn rows(body: &str) -> String {
    format!(
        r#"
#include <cuda_runtime.h>
#include <math.h>
__global__ void softmax(const float* all, float* out, int n) {{
    const float* x = all + (long long)blockIdx.x * n;
    float* y = out + (long long)blockIdx.x * n;
    float largest = -INFINITY, sum = 0.f;
    {body}
    for (int i = 0; i < n; ++i) sum += expf(x[i] - largest);
    for (int i = 0; i < n; ++i) y[i] = expf(x[i] - largest) * (1.f / sum);
}}
extern "C" void softmax_launcher(const float* x, float* out, int rows, int n, cudaStream_t stream) {{
    softmax<<<rows, 1, 0, stream>>>(x, out, n);
}}
"#
    )
}

const SOFTMAX: &str = "out = torch.empty_like(x)\n\
    cuda_extension.softmax_launcher(x, out, x.shape[0], x.shape[1])\n\
    return out";
const LARGEST: &str = "for (int i = 0; i < n; ++i) largest = fmaxf(largest, x[i]);";

#[test]
fn an_unshifted_softmax_fails_in_every_verdict() {
    let task = task("x", "torch.softmax(x, dim=-1)", "torch.randn(64, 512)");
    let by = |body: &str| candidate(&task, "x", SOFTMAX, &rows(body));
    let unshifted = by("largest = 0.f;");
    let cases = [by(LARGEST), unshifted.clone(), unshifted.clone(), unshifted];
    let verdicts = verified(&task, &cases);
    assert!(verdicts[0].verified, "positive control: {:#?}", verdicts[0]);
    for verdict in &verdicts[1..] {
        assert!(!verdict.verified, "{:#?}", verdict.checks);
    }
}

/// Half of the terms are equal on some inputs: their roundings add up.
#[test]
fn sequential_sums_over_long_rows_pass() {
    let task = task("x", "torch.softmax(x, dim=-1)", "torch.randn(8, 65536)");
    let case = candidate(&task, "x", SOFTMAX, &rows(LARGEST));
    for verdict in verified(&task, &vec![case; 4]) {
        assert!(verdict.verified, "{:#?}\n{:#?}", verdict.failure, verdict.checks);
    }
}
