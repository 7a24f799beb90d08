//! The device tier of the cpu device: candidates are recorded, and a process without Python runs their kernels.

use crate::support::bias_relu::{model, task};
use crate::support::{Case, config, shared_judge};
use warpwright_judge::{Device, JudgeConfig, LocalJudge};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{AblationResult, FailureClass, Stage, Tier, Verdict};
use warpwright_task::Task;

/// Two launches with an intermediate between them.
const KERNELS: &str = r#"
#include <chrono>
#include <cuda_runtime.h>
__global__ void add(const float* x, const float* bias, float* out, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) { DEED; }
    if (i < n) out[i] = x[i] + bias[i % columns];
}
__global__ void clamp(const float* sum, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(sum[i], 0.0f);
}
extern "C" int bias_relu_launcher(const float* x, const float* bias, float* sum, float* out, int n,
                                  int columns, cudaStream_t stream) {
    add<<<(n + 255) / 256, 256, 0, stream>>>(x, bias, sum, n, columns);
    clamp<<<(n + 255) / 256, 256, 0, stream>>>(sum, out, n);
    return (int)cudaGetLastError();
}
"#;

const FORWARD: &str = "scratch, out = torch.empty_like(x), torch.empty_like(x)\n\
    cuda_extension.bias_relu_launcher(x, self.bias, scratch, out, x.numel(), x.shape[1])\n\
    return out";

fn candidate(deed: &str, forward: &str) -> Candidate {
    let kernels = vec![("bias_relu.cu", KERNELS.replace("DEED", deed))];
    Case { task: String::new(), model: model(forward), kernels }.candidate()
}

/// A judge that must use the device tier.
fn judge() -> LocalJudge {
    LocalJudge::open(JudgeConfig { tier: Some(Tier::Device), ..config(Device::Cpu) }).unwrap()
}

fn judged(judge: &LocalJudge, candidates: &[Candidate], stage: Stage) -> Vec<Verdict> {
    let mut session = judge.task(&Task::from_source("bias_relu", task(256, 512))).unwrap();
    candidates.iter().map(|candidate| session.judge(candidate, stage).unwrap()).collect()
}

#[test]
fn plans_of_the_cpu_device_are_verified_and_measured() {
    let verdict = judged(&judge(), &[candidate("", FORWARD)], Stage::Measured).remove(0);
    assert!(verdict.verified, "{:#?}", verdict.failure);
    assert_eq!((verdict.tier, &verdict.integrity[..]), (Tier::Device, &[][..]));
    let provenance = verdict.provenance.clone().unwrap();
    assert_eq!((provenance.own_kernels, provenance.ablation), (2, AblationResult::NotRun));
    assert!(verdict.speedup.best.is_some(), "{verdict:#?}");
}

/// System calls are tried in `crates/replay/tests/it/host.rs`.
#[cfg(target_arch = "x86_64")]
#[test]
fn replayed_kernels_have_no_clock() {
    // Compilers keep what may tell.
    let tell = |ticks: &str| format!("if ({ticks} == 1) out[0] = 1.0f");
    let instruction = tell("__builtin_ia32_rdtsc()");
    let library = tell("std::chrono::steady_clock::now().time_since_epoch().count()");
    let candidates = ["", &instruction, &library].map(|deed| candidate(deed, FORWARD));
    let mut verdicts = judged(&judge(), &candidates, Stage::Verified).into_iter();
    let honest = verdicts.next().unwrap();
    assert!(honest.verified && honest.tier == Tier::Device, "control: {:#?}", honest.failure);
    for verdict in verdicts {
        let failure = verdict.failure.unwrap();
        let told = "launch add: it read the processor's time-stamp counter";
        assert!(failure.message.contains(told), "{}", failure.message);
        let judged = (failure.class, verdict.tier);
        assert_eq!(judged, (FailureClass::ForbiddenCall, Tier::Device));
    }
    for verdict in judged(shared_judge(Device::Cpu), &candidates[1..], Stage::Verified) {
        assert!(verdict.verified && verdict.tier == Tier::Host, "control: {:#?}", verdict.failure);
    }
}

#[test]
fn wrong_and_unrecordable_candidates_fail_in_the_device_tier() {
    let wrong = FORWARD.replace("return out", "return scratch");
    let torch = FORWARD.replace("return out", "return torch.relu(scratch)");
    let crash = "int* nowhere = (int*)8; *nowhere = 1";
    let candidates = [candidate("", &wrong), candidate("", &torch), candidate(crash, FORWARD)];
    let verdicts = judged(&judge(), &candidates, Stage::Verified);
    let failures: Vec<_> =
        verdicts.iter().map(|verdict| verdict.failure.clone().unwrap()).collect();
    let classes: Vec<_> = failures.iter().map(|failure| failure.class).collect();
    let expected = [FailureClass::Mismatch, FailureClass::NotRecordable, FailureClass::Crash];
    assert_eq!(classes, expected, "{failures:#?}");
    assert!(failures[1].message.contains("torch operator relu"), "{}", failures[1].message);
    assert!(failures[2].message.contains("SIGSEGV"), "{}", failures[2].message);
}

/// The kernels of an attack of the corpus, and a model with them. `halves`: the bodies of forward and backward behind
/// what they allocate.
fn step(head: &str, halves: [&str; 2]) -> Candidate {
    let attack =
        include_str!("../../../../tests/integrity/attacks/replaces_clone_between_halves.md");
    let kernels = attack.split("```cuda\n").nth(1).unwrap().split("```").next().unwrap();
    let [forward, backward] = halves;
    let model = format!(
        "import sys\nimport torch\nimport cuda_extension as e\n{head}\n\nclass ModelNew(torch.nn.Module):\n    \
         def __init__(self, features, eps=1e-6):\n        super().__init__()\n        \
         self.weight, self.eps = torch.nn.Parameter(torch.ones(features)), eps\n\n    \
         def forward(self, x):\n        out, f = torch.empty_like(x), x.new_empty(x.shape[0])\n        \
         self.saved = (x, f, out)\n        {forward}\n        return out\n\n    \
         def backward(self, g):\n        x, f, out = self.saved\n        w, (r, n) = self.weight, x.shape\n        \
         dx, dw = torch.empty_like(x), torch.empty_like(w)\n        {backward}\n        \
         e.rms_backward(x, w, f, g, dx, r, n)\n        e.rms_backward_weight(x, f, g, dw, r, n)\n        \
         return dx, dw\n"
    );
    let kernels = vec![("step.cu", kernels.to_owned())];
    Case { task: String::new(), model, kernels }.candidate()
}

#[test]
fn outputs_of_a_step_are_copied_before_backward() {
    let task = include_str!("../../../../tests/integrity/tasks/rms_norm_step.py");
    let no_copy = "f = sys.modules['warpwright_oracle.steps']._copies\n\
                   f.__defaults__ = (lambda t: t,) + f.__defaults__[1:]";
    let launch = "e.rms_forward(x, self.weight, out, f, x.shape[0], x.shape[1], self.eps)";
    let candidates = [step("", [launch, "pass"]), step(no_copy, ["pass", launch])];
    let judge = judge();
    let mut session = judge.task(&Task::from_source("step", task)).unwrap();
    let [honest, late] =
        candidates.map(|candidate| session.judge(&candidate, Stage::Verified).unwrap());
    assert!(honest.verified && honest.tier == Tier::Device, "control: {:#?}", honest.failure);
    let failure = late.failure.unwrap();
    assert_eq!(failure.class, FailureClass::NotRecordable, "{}", failure.message);
    assert!(failure.message.contains("outputs are final"), "{}", failure.message);
}
