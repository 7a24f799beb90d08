//! Tasks with several workloads: each verified and timed, one verdict.

use std::collections::BTreeSet;

use warpwright_judge::{Device, JudgeError, SessionPool};
use warpwright_record::inputs::InputFamily;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{FailureClass, Stage};
use warpwright_task::Task;

use crate::support::{Case, shared_judge};

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void relu_add_kernel(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + 1.0f, 0.0f) * 0.5f;
}
extern "C" int relu_add(const float* x, float* y, long long n, cudaStream_t stream) {
    relu_add_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
"#;

/// `relu(x + 1) / 2` with these workloads.
fn task(workloads: &str) -> Task {
    let source = format!(
        r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x + 1.0) * 0.5

def get_workloads():
    return {workloads}

def get_inputs(rows=64, columns=96):
    if rows == 13:
        raise ValueError('no thirteen rows')
    return [torch.randn(rows, columns)]
"
    );
    Task::from_source("relu_add", source)
}

/// A candidate that has the kernel work on so many elements.
fn case(elements: &str) -> Case {
    let model = format!(
        "import torch\nimport torch.nn as nn\nimport cuda_extension\n\n\
         class ModelNew(nn.Module):\n    def forward(self, x):\n        y = torch.empty_like(x)\n        \
         cuda_extension.relu_add(x, y, {elements})\n        return y\n"
    );
    Case { task: String::new(), model, kernels: vec![("relu_add.cu", KERNEL.to_owned())] }
}

#[test]
fn every_workload_is_verified_and_measured() {
    let pool = SessionPool::new(shared_judge(Device::Cpu));
    let task = task(
        "[{'name': 'small', 'arguments': {'rows': 64}}, {'name': 'large', 'arguments': {'rows': 300}}]",
    );
    let verdict = pool.afresh(&task, &case("x.numel()").candidate(), Stage::Measured).unwrap();
    assert!(verdict.verified, "{:?}", verdict.failure);
    assert_eq!(verdict.task, "relu_add");
    let [small, large] = verdict.workloads.as_slice() else { panic!("{:?}", verdict.workloads) };
    assert_eq!((small.name.as_str(), large.name.as_str()), ("small", "large"));
    for (mean, of) in [
        (verdict.speedup.eager, [small.speedup.eager, large.speedup.eager]),
        (verdict.times_ms.candidate, [small.times_ms.candidate, large.times_ms.candidate]),
    ] {
        let of: Vec<f64> = of.into_iter().flatten().map(|of| of.value).collect();
        let mean: Interval = mean.unwrap();
        assert!((mean.value - (of[0] * of[1]).sqrt()).abs() < 1e-9 * mean.value, "{mean:?} {of:?}");
        assert!(mean.low <= mean.value && mean.value <= mean.high);
    }
    assert_eq!(verdict.reward.speedup.to_bits(), verdict.speedup.best.unwrap().low.to_bits());
    let checks = |name: &str| {
        let of = format!("workload {name}: ");
        let checks = verdict.checks.iter().filter(move |check| check.name.starts_with(&of));
        checks.map(|check| check.family).collect::<Vec<_>>()
    };
    // Each on every family, as a task with one set of inputs.
    let (small, large) = (checks("small"), checks("large"));
    assert_eq!(small.len() + large.len(), verdict.checks.len());
    let families =
        |of: &[InputFamily]| of.iter().map(|family| family.name()).collect::<BTreeSet<&str>>();
    assert_eq!(families(&small), families(&large));
    assert!(families(&small).len() > 4, "{small:?}");
    // A copy, as for one workload.
    assert!(!verdict.is_copy());
    let first = pool.verdict(&task, &case("x.numel()").candidate(), Stage::Verified).unwrap();
    let again = pool.verdict(&task, &case("x.numel()").candidate(), Stage::Verified).unwrap();
    assert!(first.verified && !first.is_copy() && again.is_copy());
}

#[test]
fn shortcut_at_one_shape_fails_every_verdict() {
    let pool = SessionPool::new(shared_judge(Device::Cpu));
    let task = task("[{'rows': 64}, {'rows': 80}, {'rows': 100}]");
    // Wrong beyond 30, which inputs of the task are not: one family shows it, and at one shape only.
    let mut bounded = case("x.numel()");
    bounded.kernels[0].1 = KERNEL.replace(
        "fmaxf(x[i] + 1.0f, 0.0f) * 0.5f",
        "fmaxf((n == 100 * 96 ? fminf(x[i], 30.0f) : x[i]) + 1.0f, 0.0f) * 0.5f",
    );
    for _ in 0..3 {
        let verdict = pool.afresh(&task, &bounded.candidate(), Stage::Verified).unwrap();
        assert!(!verdict.verified);
        let failure = verdict.failure.unwrap();
        assert!(failure.message.starts_with("workload workload 3: "), "{}", failure.message);
    }
    let honest = pool.afresh(&task, &case("x.numel()").candidate(), Stage::Verified).unwrap();
    assert!(honest.verified, "{:?}", honest.failure);
}

#[test]
fn kernel_fixed_to_seen_shapes_fails_when_held_out() {
    let pool = SessionPool::new(shared_judge(Device::Cpu));
    let task = task(
        "[{'name': 'hidden', 'arguments': {'rows': 100}, 'held_out': True}, \
          {'name': 'a', 'arguments': {'rows': 64}}, {'name': 'b', 'arguments': {'rows': 80}}]",
    );
    let shown = task.shown().unwrap();
    let fixed = case("(64 if x.shape[0] == 64 else 80) * 96").candidate();
    let seen = pool.verdict(&shown, &fixed, Stage::Verified).unwrap();
    assert!(seen.verified, "{:?}", seen.failure);
    let names: Vec<&str> = seen.workloads.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let all = pool.afresh(&task, &fixed, Stage::Verified).unwrap();
    assert!(!all.verified);
    let failure = all.failure.unwrap();
    // What it leaves unwritten holds another poison in each window.
    let wrong = [FailureClass::Mismatch, FailureClass::NonFinite];
    assert!(wrong.contains(&failure.class), "{failure:?}");
    assert!(failure.message.starts_with("workload hidden: "), "{}", failure.message);
    let last = all.workloads.last().unwrap();
    assert!(last.held_out && !last.verified && all.workloads.len() == 3);
    // The control: a kernel for any shape passes there.
    let honest = pool.afresh(&task, &case("x.numel()").candidate(), Stage::Verified).unwrap();
    assert!(honest.verified, "{:?}", honest.failure);
    assert!(honest.workloads.iter().all(|each| each.verified) && honest.workloads.len() == 3);
}

#[test]
fn workload_that_does_not_open_is_refused_and_others_count() {
    let pool = SessionPool::new(shared_judge(Device::Cpu));
    let candidate = case("x.numel()").candidate();
    let one = task("[{'rows': 13}, {'rows': 64}]");
    pool.open(&one).unwrap();
    let verdict = pool.afresh(&one, &candidate, Stage::Verified).unwrap();
    assert!(verdict.verified, "{:?}", verdict.failure);
    assert_eq!(verdict.workloads.len(), 2);
    let refused = verdict.workloads.iter().find(|each| each.refused.is_some()).unwrap();
    assert_eq!(refused.name, "workload 1");
    assert!(verdict.caveats[0].contains("no thirteen rows"), "{:?}", verdict.caveats);
    // A verdict on held-out shapes has at least one.
    let hidden = |rows: &str| {
        task(&format!(
            "[{{'rows': 64}}, {{'name': 'x', 'arguments': {{'rows': 13}}, 'held_out': True}}{rows}]"
        ))
    };
    let none = pool.afresh(&hidden(""), &candidate, Stage::Verified).unwrap_err();
    assert!(matches!(none, JudgeError::Reference { .. }), "{none:?}");
    assert!(none.to_string().contains("no held-out workload can be judged"), "{none}");
    let another = ", {'name': 'y', 'arguments': {'rows': 72}, 'held_out': True}";
    let one = pool.afresh(&hidden(another), &candidate, Stage::Verified).unwrap();
    assert!(one.verified && one.workloads.len() == 3, "{:?}", one.workloads);
    let seen = pool.afresh(&hidden("").shown().unwrap(), &candidate, Stage::Verified).unwrap();
    assert!(seen.verified, "the agent works on the others");
    for work in [
        pool.open(&task("[{'rows': 13}]")),
        pool.afresh(&task("[{'rows': 13}]"), &candidate, Stage::Verified).map(drop),
    ] {
        assert!(matches!(work, Err(JudgeError::Reference { .. })), "{work:?}");
    }
    // Unreadable lists are the task's fault too.
    let computed = pool.open(&task("[dict(rows=n) for n in (1, 2)]"));
    assert!(matches!(computed, Err(JudgeError::Reference { .. })), "{computed:?}");
}

#[test]
fn tolerance_that_a_workload_states_is_enforced() {
    let pool = SessionPool::new(shared_judge(Device::Cpu));
    let stating = |rtol: &str| {
        task(&format!(
            "[{{'name': 'a', 'arguments': {{'rows': 64}}, 'tolerance': {{'atol': 0.0, 'rtol': {rtol}}}}}]"
        ))
    };
    let exact = case("x.numel()");
    // One rounding where the reference has two: well within the judge's own tolerance.
    let mut fused = case("x.numel()");
    fused.kernels[0].1 = KERNEL.replace(
        "fmaxf(x[i] + 1.0f, 0.0f) * 0.5f",
        "fmaxf(fmaf(x[i], 0.7f, x[i] * -0.2f) + 0.5f, 0.0f)",
    );
    let judged = |rtol: &str, case: &Case| {
        pool.afresh(&stating(rtol), &case.candidate(), Stage::Verified).unwrap()
    };
    let strict = judged("1e-9", &fused);
    let failure = strict.failure.expect("beyond 1e-9");
    assert_eq!(failure.class, FailureClass::Mismatch);
    assert!(failure.message.ends_with("the workload states this tolerance"), "{}", failure.message);
    // The controls: the stated tolerance decides, and it does not hit who does as the reference does.
    assert!(judged("1e-2", &fused).verified);
    assert!(judged("1e-9", &exact).verified);
}
