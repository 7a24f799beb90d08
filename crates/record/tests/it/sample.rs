//! A run as it would be recorded: three episodes that end well, badly and not at all. The tests of
//! `report` use it too.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use warpwright_record::candidate::Candidate;
use warpwright_record::conditions::{Conditions, Spread};
use warpwright_record::event::{
    Budget, EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome, RunOutcome,
};
use warpwright_record::exactness::{Exactness, Rate};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::inputs::InputFamily;
use warpwright_record::interval::Interval;
use warpwright_record::libraries::{Libraries, Library};
use warpwright_record::message::{Message, ToolCall, ToolResult, ToolStatus};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{
    AblationResult, Check, Diagnostic, Element, Failure, FailureClass, Isolation, IsolationLevel,
    KernelResources, Mismatch, PhaseSeconds, Profile, Provenance, Reward, Severity, Speedup, Stage,
    Tier, Times, VERDICT_VERSION, Verdict,
};
use warpwright_record::writer::RunWriter;

pub(crate) const REFERENCE: &str = "import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x, residual):
        return torch.nn.functional.gelu(x + self.bias) + residual

def get_inputs():
    return [torch.randn(4096, 4096), torch.randn(4096, 4096)]

def get_init_inputs():
    return [4096]
";

pub(crate) const MODEL: &str = "import torch
import cuda_extension


class ModelNew(torch.nn.Module):
    \"\"\"Bias, GELU and residual in one pass.\"\"\"

    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x, residual):
        out = torch.empty_like(x)
        cuda_extension.bias_gelu(x, self.bias, residual, out, x.numel(), x.shape[-1])
        return out
";

pub(crate) const KERNEL: &str = "#include <cuda_runtime.h>

// One float4 per thread: the chain is bound by memory, so every byte is touched once.
__device__ __forceinline__ float gelu(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

__global__ void bias_gelu_kernel(const float4* __restrict__ x, const float* __restrict__ bias,
                                 const float4* __restrict__ residual, float4* __restrict__ out,
                                 long n4, int columns) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n4) return;
    float4 v = x[i], r = residual[i];
    int c = (int)((i * 4) % columns);
    /* the row is a multiple of four wide */
    out[i] = make_float4(gelu(v.x + bias[c]) + r.x, gelu(v.y + bias[c + 1]) + r.y,
                         gelu(v.z + bias[c + 2]) + r.z, gelu(v.w + bias[c + 3]) + r.w);
}

extern \"C\" int bias_gelu(const float* x, const float* bias, const float* residual, float* out,
                         long n, int columns, cudaStream_t stream) {
    long n4 = n / 4;
    bias_gelu_kernel<<<(n4 + 255) / 256, 256, 0, stream>>>(
        (const float4*)x, bias, (const float4*)residual, (float4*)out, n4, columns);
    return cudaGetLastError();
}
";

pub(crate) fn interval(value: f64, part: f64) -> Interval {
    Interval { value, low: value * (1.0 - part), high: value * (1.0 + part) }
}

pub(crate) fn candidate(extra: &str) -> Candidate {
    Candidate::from_files(BTreeMap::from([
        ("model_new.py".to_owned(), MODEL.as_bytes().to_vec()),
        ("kernels/bias_gelu.cu".to_owned(), format!("{KERNEL}{extra}").into_bytes()),
    ]))
}

pub(crate) fn fingerprint(device: &str) -> Fingerprint {
    let cpu = device == "cpu";
    let pick = |a: &str, b: &str| if cpu { a.to_owned() } else { b.to_owned() };
    Fingerprint {
        device: device.to_owned(),
        hardware: pick("Intel Xeon Platinum 8480", "NVIDIA H200"),
        cores: if cpu { 2 } else { 16 },
        driver: pick("", "580.82.07"),
        compiler: pick("g++ 12.2.0", "nvcc 13.0.88"),
        torch: "2.11.0+cu130".to_owned(),
        python: "3.12.3".to_owned(),
        clocks: pick("", "SM 1980 MHz, memory 3201 MHz"),
        warpwright: "0.1.0".to_owned(),
        bandwidth_bytes_per_second: (!cpu).then_some(4_120_000_000_000),
        exactness: (!cpu).then(|| Exactness {
            identical_faster: Rate::new(1, 300),
            identical_ratio: Some(1.0),
            variation: Some(0.004),
            ..Exactness::default()
        }),
    }
}

fn conditions(cuda: bool) -> Conditions {
    let read = |low, high| if cuda { Spread::of([low, high, high]) } else { None };
    Conditions {
        sm_mhz: read(1965, 1980),
        memory_mhz: read(3201, 3201),
        celsius: read(41, 44),
        watts: read(310, 402),
        other_processes: cuda.then(Vec::new),
        host_load: Some(0.02),
        empty_window: Some(1.03),
        variation: Some(0.004),
        ..Conditions::default()
    }
}

/// A verified and measured verdict: `speedup` times as fast as eager.
pub(crate) fn measured(task: &str, device: &str, candidate: &Candidate, speedup: f64) -> Verdict {
    let (eager, compile, graphs) = (0.2310, 0.1642, 0.1625);
    let time = eager / speedup;
    let cuda = device != "cpu";
    let speedup = Speedup {
        eager: Some(interval(speedup, 0.012)),
        compile: Some(interval(compile / time, 0.015)),
        reduce_overhead: cuda.then(|| interval(graphs / time, 0.02)),
        max_autotune: None,
        best: Some(interval(if cuda { graphs } else { compile } / time, 0.02)),
        best_baseline: Some(if cuda { "reduce_overhead" } else { "compile" }.to_owned()),
    };
    Verdict {
        version: VERDICT_VERSION,
        tier: Tier::Host,
        plan: None,
        replayer: None,
        task: task.to_owned(),
        candidate: candidate.hash().to_owned(),
        device: device.to_owned(),
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        stage: Stage::Measured,
        verified: true,
        failure: None,
        integrity: Vec::new(),
        checks: ["fresh inputs 1", "fresh inputs 2", "other weights", "timed call"]
            .into_iter()
            .enumerate()
            .map(|(i, name)| Check {
                name: name.to_owned(),
                family: InputFamily::Own,
                passed: true,
                max_abs_error: 2.4e-7 * (1.0 + i as f64),
                reference_max_abs_error: 2.1e-7,
                lower_precision_max_abs_error: Some(4.8e-4),
                atol: 1.9e-6,
                rtol: 1.3e-6,
                truth: "float64".to_owned(),
            })
            .collect(),
        times_ms: Times {
            candidate: Some(interval(time, 0.01)),
            eager: Some(interval(eager, 0.008)),
            compile: Some(interval(compile, 0.009)),
            reduce_overhead: cuda.then(|| interval(graphs, 0.012)),
            max_autotune: None,
            prepare: Some(0.4),
            rounds: Some(7),
        },
        reward: Reward::verified(&speedup),
        speedup,
        workloads: Vec::new(),
        floor_ms: cuda.then_some(0.0489),
        unavoidable_bytes: 201_343_000,
        libraries: Libraries { allowed: Library::ALL.to_vec(), used: vec![Library::Cutlass] },
        kernels: vec![KernelResources {
            name: "bias_gelu_kernel(float4 const*, float const*, float4 const*, float4*)".into(),
            arch: "sm_90".to_owned(),
            registers: 32,
            spill_store_bytes: 0,
            spill_load_bytes: 0,
            shared_bytes: 0,
            stack_bytes: 0,
        }],
        provenance: Some(Provenance {
            own_kernels: 1,
            library_calls: Vec::new(),
            ablation: AblationResult::FailedWithoutKernels,
        }),
        diagnostics: Vec::new(),
        isolation: Isolation {
            level: if cuda { IsolationLevel::Full } else { IsolationLevel::Partial },
            enforced: vec!["mount namespace".into(), "network namespace".into(), "seccomp".into()],
            missing: if cuda { Vec::new() } else { vec!["memory limit by cgroup".into()] },
        },
        caveats: if cuda { Vec::new() } else { vec!["clocks were not locked".into()] },
        conditions: Some(conditions(cuda)),
        memory: None,
        seconds: PhaseSeconds {
            record: 0.0,
            build: 0.92,
            start: 0.3,
            load: 1.4,
            baselines: 11.3,
            wait: 0.4,
            verify: 2.2,
            measure: 6.1,
            inputs: 0.25,
            windows: 0.5,
            end: 0.125,
            repeat: 0.0,
        },
        fingerprint: fingerprint(device),
    }
}

/// A verdict that found something wrong.
pub(crate) fn failed(task: &str, candidate: &Candidate, failure: Failure) -> Verdict {
    let good = measured(task, "cuda:0", candidate, 1.0);
    Verdict {
        stage: if failure.class == FailureClass::Build { Stage::Built } else { Stage::Verified },
        verified: false,
        checks: Vec::new(),
        times_ms: Times::default(),
        conditions: None,
        memory: None,
        speedup: Speedup::default(),
        workloads: Vec::new(),
        reward: Reward::unverified(),
        libraries: Libraries::default(),
        kernels: Vec::new(),
        provenance: None,
        failure: Some(failure),
        ..good
    }
}

pub(crate) fn build_failure() -> Failure {
    Failure {
        class: FailureClass::Build,
        message: "kernels/bias_gelu.cu does not compile".to_owned(),
        diagnostics: vec![Diagnostic {
            file: Some("kernels/bias_gelu.cu".to_owned()),
            line: Some(13),
            column: Some(16),
            severity: Severity::Error,
            message: "identifier \"residuall\" is undefined".to_owned(),
            excerpt: "  12 |     if (i >= n4) return;\n  13 |     float4 v = x[i], \
                      r = residuall[i];\n     |                          ^"
                .to_owned(),
        }],
        mismatch: None,
        cuda_error: None,
        output_tail: String::new(),
    }
}

pub(crate) fn mismatch() -> Failure {
    Failure {
        class: FailureClass::Mismatch,
        message: "output 0 differs from the oracle on `fresh inputs 2`".to_owned(),
        diagnostics: Vec::new(),
        mismatch: Some(Mismatch {
            output: 0,
            check: "fresh inputs 2".to_owned(),
            family: InputFamily::Own,
            elements: 4_096,
            of: 16_777_216,
            max_abs_error: f64::INFINITY,
            atol: 1.9e-6,
            rtol: 1.3e-6,
            examples: vec![Element {
                index: vec![0, 4095],
                expected: Some(1.5),
                got: None,
                text: "expected 1.5, got nan".to_owned(),
            }],
        }),
        cuda_error: None,
        output_tail: "<script>alert('from the candidate')</script>\n\u{1b}[31mred\u{1b}[0m".into(),
    }
}

pub(crate) fn setup(run: &RunWriter, task: &str, device: &str) -> EpisodeSetup {
    EpisodeSetup {
        task: task.to_owned(),
        source: run.put_blob(REFERENCE.as_bytes()).unwrap(),
        shown: None,
        skill: Some(run.put_blob(b"# Writing CUDA kernels\n").unwrap()),
        policy: "teacher".to_owned(),
        device: device.to_owned(),
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        seed: 7,
        attempt: 0,
        level: None,
        budget: Budget { turns: Some(8), seconds: Some(600.0), ..Budget::default() },
    }
}

/// One whole turn: a message with one call, its result, its verdicts, the snapshot.
pub(crate) fn turn(
    run: &RunWriter,
    episode: EpisodeId,
    number: u32,
    (text, name, arguments): (&str, &str, serde_json::Value),
    output: &str,
    verdict: Option<Verdict>,
    candidate: &Candidate,
) -> Vec<Event> {
    let stored = run.put_candidate(candidate).unwrap();
    let call = ToolCall { id: format!("call_{number}"), name: name.to_owned(), arguments };
    let bad = verdict.as_ref().is_some_and(|v| !v.verified);
    let mut events = vec![Event::MessageSaid {
        episode,
        turn: number,
        message: Message { text: text.to_owned(), calls: vec![call.clone()], ..Message::default() },
        seconds: 0.02,
    }];
    if let Some(verdict) = verdict.clone() {
        let verdict = Box::new(verdict);
        let files = stored.files.clone();
        events.push(Event::VerdictGiven { episode, turn: Some(number), verdict, files });
    }
    let result = ToolResult {
        call: call.id,
        status: if bad { ToolStatus::Error } else { ToolStatus::Ok },
        text: output.to_owned(),
        verdicts: verdict.into_iter().collect(),
        findings: Vec::new(),
    };
    events.push(Event::ToolFinished { episode, turn: number, result, seconds: 3.1 });
    let elapsed_seconds = 4.0 * f64::from(number);
    events.push(Event::TurnFinished {
        episode,
        turn: number,
        files: stored.files,
        elapsed_seconds,
    });
    events
}

/// Writes the sample run into `dir` and leaves it open.
pub(crate) fn write_run(dir: &Path) -> RunWriter {
    let info = RunInfo {
        command: "warpwright optimize examples/ --device cuda:0".to_owned(),
        config: json!({"device": "cuda:0", "profile": "strict", "seed": 7}),
    };
    let run = RunWriter::create(dir, info).unwrap();
    for event in good_episode(&run).into_iter().chain(bad_episode(&run)).chain(killed_episode(&run))
    {
        run.append(&event).unwrap();
    }
    run
}

pub(crate) fn good_episode(run: &RunWriter) -> Vec<Event> {
    let (episode, task) = (EpisodeId(0), "bias_gelu_residual");
    let (first, second) = (candidate(""), candidate("// eight items per thread\n"));
    let mut events = vec![Event::EpisodeStarted { episode, setup: setup(run, task, "cuda:0") }];
    let write = |content: &str| {
        (
            "Fuse the chain into one kernel: it is bound by memory.",
            "Write",
            json!({"file_path": "kernels/bias_gelu.cu", "content": content}),
        )
    };
    events.extend(turn(run, episode, 1, write(KERNEL), "wrote 1474 bytes", None, &first));
    let compile = ("", "Bash", json!({"command": "bash utils/compile.sh"}));
    let wrong = failed(task, &first, build_failure());
    let text = "kernels/bias_gelu.cu:13:16: error: identifier \"residuall\" is undefined";
    events.extend(turn(run, episode, 2, compile, text, Some(wrong), &first));
    let profile = || ("Measure it.", "Bash", json!({"command": "python3 -m utils.profiling"}));
    for (number, speedup, candidate) in [(3, 1.9, &first), (4, 3.4, &second), (5, 3.1, &first)] {
        let verdict = measured(task, "cuda:0", candidate, speedup);
        let text = format!("verified; {speedup:.2} times as fast as eager");
        events.extend(turn(run, episode, number, profile(), &text, Some(verdict), candidate));
    }
    let message = Message {
        text: "The second variant is the best.".into(),
        calls: Vec::new(),
        ..Message::default()
    };
    events.push(Event::MessageSaid { episode, turn: 6, message, seconds: 0.01 });
    let stored = run.put_candidate(&second).unwrap();
    let final_verdict = Box::new(measured(task, "cuda:0", &second, 3.35));
    let best_verdict = Some(Box::new(measured(task, "cuda:0", &second, 3.4)));
    let (verdict, files) = (final_verdict.clone(), stored.files.clone());
    events.push(Event::VerdictGiven { episode, turn: None, verdict, files });
    events.push(Event::EpisodeFinished {
        episode,
        outcome: Outcome::Stopped,
        final_verdict: Some(final_verdict),
        best_verdict,
        candidate: Some(stored),
        turns: 6,
        seconds: 41.5,
    });
    events
}

pub(crate) fn bad_episode(run: &RunWriter) -> Vec<Event> {
    let (episode, task) = (EpisodeId(1), "row_softmax <b>&\"hostile\"</b>");
    let hostile = candidate("// </pre><script>alert(1)</script>\n");
    let mut events = vec![Event::EpisodeStarted { episode, setup: setup(run, task, "cuda:0") }];
    let verify = (
        "<img src=x onerror=alert(2)> Now verify.",
        "Bash",
        json!({"command": "python3 -m utils.verification # </details><script>"}),
    );
    let wrong = failed(task, &hostile, mismatch());
    let text = "wrong: <script>alert('tool')</script>";
    events.extend(turn(run, episode, 1, verify, text, Some(wrong.clone()), &hostile));
    let text = "the baseline could not be compiled with max-autotune".to_owned();
    let level = NoteLevel::Warning;
    events.push(Event::Note { episode: Some(episode), level, text });
    events.push(Event::EpisodeFinished {
        episode,
        outcome: Outcome::BudgetTurns,
        final_verdict: Some(Box::new(wrong)),
        best_verdict: None,
        candidate: Some(run.put_candidate(&hostile).unwrap()),
        turns: 1,
        seconds: 9.0,
    });
    events
}

pub(crate) fn killed_episode(run: &RunWriter) -> Vec<Event> {
    let (episode, task) = (EpisodeId(2), "rmsnorm");
    let candidate = candidate("// rmsnorm\n");
    let mut events = vec![Event::EpisodeStarted { episode, setup: setup(run, task, "cpu") }];
    let call = ("Measure.", "Bash", json!({"command": "python3 -m utils.profiling"}));
    let verdict = measured(task, "cpu", &candidate, 1.6);
    events.extend(turn(run, episode, 1, call, "1.60 times", Some(verdict), &candidate));
    let message = Message {
        text: "One more variant.".into(),
        calls: vec![ToolCall {
            id: "call_2".into(),
            name: "Edit".into(),
            arguments: json!({"file_path": "kernels/bias_gelu.cu", "old_string": "256", "new_string": "128"}),
        }],
        ..Message::default()
    };
    events.push(Event::MessageSaid { episode, turn: 2, message, seconds: 0.02 });
    events
}

pub(crate) fn finish(run: RunWriter) {
    run.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    run.close().unwrap();
}
