//! The judge on the cpu device with torch, compilers and jails: correct and wrong candidates.

use crate::support::{Case, body, judge_all, judge_one, shared_judge};
use warpwright_judge::{Device, JudgeError, SessionPool};
use warpwright_record::verdict::{FailureClass, PhaseSeconds, Reward, Stage, Verdict};
use warpwright_task::Task;

/// y = gelu-free so that the truth is easy to see: a bias and a clamp.
const TASK: &str = r"
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size, low):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(size))
        self.low = low

    def forward(self, x):
        return torch.clamp(x + self.bias, min=self.low)

def get_inputs():
    return [torch.randn(256, 512)]

def get_init_inputs():
    return [512, -0.5]
";

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void bias_clamp(const float* x, const float* bias, float* out, int n, int columns, float low) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i] + bias[i % columns], low);
}
extern "C" void bias_clamp_launcher(const float* x, const float* bias, float* out, int n, int columns,
                                    float low, cudaStream_t stream) {
    bias_clamp<<<(n + 255) / 256, 256, 0, stream>>>(x, bias, out, n, columns, low);
}
"#;

/// A ModelNew around the body of forward.
fn model(forward: &str) -> String {
    format!(
        "import torch\nimport torch.nn as nn\nimport cuda_extension\n\n\
         class ModelNew(nn.Module):\n\
         \x20   def __init__(self, size, low):\n\
         \x20       super().__init__()\n\
         \x20       self.bias = nn.Parameter(torch.randn(size))\n\
         \x20       self.low = low\n\n\
         \x20   def forward(self, x):\n{}\n",
        body(forward)
    )
}

const HONEST: &str = "out = torch.empty_like(x)\n\
    cuda_extension.bias_clamp_launcher(x, self.bias, out, x.numel(), x.shape[1], self.low)\n\
    return out";

fn judge_case(case: &Case, stage: Stage) -> Verdict {
    judge_one(Device::Cpu, case, stage)
}

fn case(forward: &str) -> Case {
    Case {
        task: TASK.into(),
        model: model(forward),
        kernels: vec![("bias_clamp.cu", KERNEL.into())],
    }
}

/// The task with another forward pass of the reference.
fn referring(forward: &str) -> Case {
    let plain = "return torch.clamp(x + self.bias, min=self.low)";
    assert!(TASK.contains(plain));
    Case { task: TASK.replace(plain, forward), ..case(HONEST) }
}

fn doubts(verdict: &Verdict) -> Vec<&String> {
    verdict.caveats.iter().filter(|caveat| caveat.contains("float64")).collect()
}

/// Nobody may take a lack of memory for a reference that does not run in float64: with all the memory
/// there is, it is done without and the verdict says so.
#[test]
fn a_caveat_reports_that_float64_exceeds_memory() {
    let verdict = judge_case(
        &referring(
            "if x.dtype == torch.float64: raise torch.OutOfMemoryError('Tried to allocate 12 GiB')\n\
             \x20       return torch.clamp(x + self.bias, min=self.low)",
        ),
        Stage::Verified,
    );
    assert!(verdict.verified, "{verdict:#?}");
    let doubts = doubts(&verdict);
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    assert!(
        doubts[0].starts_with("outputs in float64 do not fit the device's memory"),
        "{doubts:?}"
    );
}

/// `deepcopy` does not copy what a closure holds.
#[test]
fn a_reference_whose_closure_holds_its_weights_runs_in_float64() {
    let verdict = judge_case(
        &referring(
            "call = self.__dict__.setdefault('call', lambda x: nn.functional.linear(\n\
             \x20           x.new_zeros(1, 4), x.new_zeros(self.bias.numel(), 4), self.bias))\n\
             \x20       return torch.clamp(x + call(x), min=self.low)",
        ),
        Stage::Verified,
    );
    assert!(verdict.verified, "{verdict:#?}");
    assert!(doubts(&verdict).is_empty(), "{:?}", verdict.caveats);
}

#[test]
fn an_honest_kernel_is_verified_measured_and_rewarded() {
    let verdict = judge_case(&case(HONEST), Stage::Measured);
    assert!(verdict.verified, "{verdict:#?}");
    let timed = verdict.checks.iter().filter(|c| c.name == "timed call").count();
    assert!(verdict.checks.len() > 5 + timed, "{:#?}", verdict.checks);
    assert!(verdict.checks.iter().any(|c| c.name == "timed call"));
    assert!(verdict.checks.iter().all(|c| c.truth == "float64" && c.passed));
    let eager = verdict.speedup.eager.unwrap();
    assert!(eager.low <= eager.value && eager.value <= eager.high);
    assert!(verdict.times_ms.candidate.unwrap().value > 0.0);
    assert!(verdict.speedup.compile.is_some() && verdict.speedup.reduce_overhead.is_none());
    assert!(verdict.reward.paper >= 1.0);
    assert!(verdict.floor_ms.unwrap() > 0.0);
    let memory = verdict.memory.unwrap();
    // Processes with torch; windows of many calls of 0.5 MiB of inputs and as much of results.
    let processes = [memory.oracle_bytes, memory.baseline_bytes.unwrap()];
    assert!(processes.iter().all(|bytes| *bytes > 64 << 20), "{memory:?}");
    assert!(memory.candidate_bytes > 1 << 20, "{memory:?}");
    assert_eq!(memory.peak_bytes, memory.candidate_bytes + processes.iter().sum::<u64>());
}

/// Each differs from the honest candidate in one respect and fails for that reason.
#[test]
fn each_wrong_candidate_has_its_failure_class() {
    let cases = [
        ("return torch.clamp(x + self.bias, min=self.low)", FailureClass::ForbiddenCall),
        ("return torch.empty_like(x)", FailureClass::NonFinite),
        ("return torch.zeros_like(x)", FailureClass::Mismatch),
        ("return torch.empty(512, 256)", FailureClass::Shape),
        ("return torch.empty(256, 512, dtype=torch.float16)", FailureClass::Shape),
        ("return [torch.empty_like(x)]", FailureClass::Shape),
        ("return x", FailureClass::Integrity),
        ("return self.bias.expand(256, 512)", FailureClass::Shape),
        ("raise ValueError('no')", FailureClass::Exception),
        ("import os; os.kill(os.getpid(), 11)", FailureClass::Crash),
        ("import os; os._exit(0)", FailureClass::Crash),
        ("keep = []\nwhile True: keep.append(torch.empty(1 << 22))", FailureClass::OutOfMemory),
        ("import time; time.sleep(600)", FailureClass::Hang),
        (
            "cuda_extension.bias_clamp_launcher(x, self.bias, x, x.numel(), x.shape[1], self.low)\n\
             out = torch.empty_like(x)\n\
             cuda_extension.bias_clamp_launcher(x, self.bias * 0 if False else self.bias, out, x.numel(), x.shape[1], self.low)\n\
             return out",
            FailureClass::MutatedInput,
        ),
        (
            "cuda_extension.bias_clamp_launcher(x.half(), self.bias, x, 1, 1, 0.0)",
            FailureClass::Exception,
        ),
        ("return cuda_extension.missing(x)", FailureClass::Exception),
    ];
    let candidates = std::iter::once(HONEST).chain(cases.iter().map(|(forward, _)| *forward));
    let candidates = candidates.map(|forward| case(forward).candidate());
    let mut verdicts = judge_all(Device::Cpu, TASK, candidates, Stage::Verified);
    let honest = verdicts.remove(0);
    assert!(honest.verified, "positive control: {honest:#?}");
    for ((forward, class), verdict) in cases.into_iter().zip(verdicts) {
        assert!(!verdict.verified, "{forward}");
        let reward = verdict.reward;
        assert_eq!(reward, Reward::unverified());
        if class == FailureClass::Integrity {
            assert_eq!(verdict.integrity.len(), 1, "{forward}: {verdict:#?}");
            continue;
        }
        let failure = verdict.failure.unwrap_or_else(|| panic!("{forward}"));
        assert_eq!(failure.class, class, "{forward}: {}", failure.message);
    }
}

#[test]
fn renamed_weights_fail_as_state_dict() {
    let mut wrong = case(HONEST);
    wrong.model = wrong.model.replace("self.bias =", "self.offset =");
    let verdict = judge_case(&wrong, Stage::Verified);
    assert_eq!(verdict.failure.unwrap().class, FailureClass::StateDict);
}

#[test]
fn a_kernel_that_ignores_the_weights_fails_on_moved_weights() {
    let mut frozen = case(HONEST);
    frozen.task = frozen.task.replace("torch.randn(size)", "torch.zeros(size)");
    let honest = judge_case(&frozen, Stage::Verified);
    assert!(honest.verified, "positive control: {honest:#?}");
    frozen.kernels[0].1 = KERNEL.replace("x[i] + bias[i % columns]", "x[i]");
    let verdict = judge_case(&frozen, Stage::Verified);
    let failure = verdict.failure.unwrap();
    assert_eq!(failure.class, FailureClass::Mismatch);
    assert!(failure.message.starts_with("fresh inputs"), "{}", failure.message);
}

/// Moved weights leave the domain of a root that the constructor's are at the border of: everything is
/// played with the latter then.
#[test]
fn unsound_moved_weights_fall_back_to_initial_ones() {
    let root = |forward: &str| {
        let mut case = referring(forward);
        case.task = case.task.replace("torch.randn(size)", "torch.zeros(size)");
        case
    };
    let sound =
        judge_case(&root("return torch.clamp(x + self.bias, min=self.low)"), Stage::Verified);
    let named = |verdict: &Verdict| verdict.checks[0].name.clone();
    assert!(sound.verified, "positive control: {sound:#?}");
    assert_eq!(named(&sound), "initial weights");
    let unsound =
        root("return torch.clamp(x + self.bias, min=self.low) + 0 * (1e-3 + self.bias).sqrt()");
    let verdict = judge_case(&unsound, Stage::Verified);
    assert_eq!(named(&verdict), "other weights");
    assert!(verdict.checks.len() > 1 || verdict.failure.is_some(), "{verdict:#?}");
}

#[test]
fn a_half_precision_result_fails_under_strict() {
    let mut half = case(HONEST);
    half.kernels[0].1 = KERNEL
        .replace("#include <cuda_runtime.h>", "#include <cuda_runtime.h>\n#include <cuda_fp16.h>")
        .replace(
            "fmaxf(x[i] + bias[i % columns], low)",
            "__half2float(__float2half(fmaxf(x[i] + bias[i % columns], low)))",
        );
    let verdict = judge_case(&half, Stage::Verified);
    assert_eq!(verdict.failure.unwrap().class, FailureClass::Mismatch);
}

#[test]
fn a_cached_result_is_not_verified() {
    let cached = "if hasattr(self, 'kept'): return self.kept\n".to_owned()
        + &HONEST.replace("return out", "self.kept = out\nreturn out");
    let verdict = judge_case(&case(&cached), Stage::Verified);
    assert!(!verdict.verified);
}

/// A thread computes the result 5 s after the call has returned: everything is frozen by then. Without
/// the wait it is the same program.
#[test]
fn a_result_written_after_the_answer_fails() {
    let later = |wait: &str| {
        let body = format!(
            "import threading, time\n\
             out = torch.empty_like(x)\n\
             def work():\n    time.sleep({wait})\n    \
             cuda_extension.bias_clamp_launcher(x, self.bias, out, x.numel(), x.shape[1], self.low)\n\
             thread = threading.Thread(target=work, daemon=True)\n\
             thread.start()\n\
             if {wait} == 0: thread.join()\n\
             return out"
        );
        case(&body).candidate()
    };
    let verdicts = judge_all(Device::Cpu, TASK, [later("0"), later("5")], Stage::Verified);
    assert!(verdicts[0].verified, "positive control: {:#?}", verdicts[0]);
    assert!(!verdicts[1].verified, "{:#?}", verdicts[1]);
}

#[test]
fn a_candidate_without_kernels_may_only_move_bytes() {
    let task = TASK.replace("torch.clamp(x + self.bias, min=self.low)", "x.t().contiguous()");
    let honest = Case { task, model: model("return x.t().contiguous()"), kernels: vec![] };
    let verdict = judge_case(&honest, Stage::Verified);
    assert!(verdict.verified, "{verdict:#?}");
}

#[test]
fn an_unusable_reference_is_refused_with_its_reason() {
    let judge = shared_judge(Device::Cpu);
    let forward = "return torch.clamp(x + self.bias, min=self.low)";
    for (from, to, expected) in [
        (forward, "return x + torch.rand_like(x)", "different outputs"),
        (forward, "raise ValueError('broken on purpose')", "broken on purpose"),
        (
            "import torch\n",
            "import torch\nimport not_installed_anywhere\n",
            "not_installed_anywhere",
        ),
    ] {
        let source = TASK.replacen(from, to, 1);
        let error = judge.task(&Task::from_source("case", source)).err().unwrap();
        let JudgeError::Reference { ref message, .. } = error else { panic!("{error}") };
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn inputs_beyond_all_memory_are_too_large() {
    let source = TASK.replacen("torch.randn(256, 512)", "torch.empty(1 << 50)", 1);
    let error = shared_judge(Device::Cpu).task(&Task::from_source("case", source)).err().unwrap();
    let JudgeError::TooLarge { needed: None, ref message, .. } = error else { panic!("{error}") };
    assert!(message.contains("allocate"), "{message}");
    assert!(error.to_string().contains("it needs more than the "), "{error}");
}

/// Nobody is to blame but the task, also where it shows late only.
#[test]
fn a_late_shape_change_is_the_references_error() {
    let late = "import itertools\ncount = itertools.count()\n\
                def get_inputs():\n    \
                return [torch.randn(256 if next(count) < 40 else 128, 512)]\n";
    let plain = "def get_inputs():\n    return [torch.randn(256, 512)]\n";
    assert!(TASK.contains(plain));
    let task = TASK.replace(plain, late);
    let judge = shared_judge(Device::Cpu);
    let judged = judge.task(&Task::from_source("case", task)).and_then(|mut session| {
        // How many draws one verdict takes is not said.
        (0..20).try_for_each(|i| {
            let text = format!("{}\n# {i}\n", model(HONEST));
            let kernels = vec![("bias_clamp.cu", KERNEL.into())];
            let case = Case { task: String::new(), model: text, kernels };
            session.judge(&case.candidate(), Stage::Verified).map(drop)
        })
    });
    let JudgeError::Reference { message, .. } = judged.unwrap_err() else { panic!() };
    assert!(message.contains("changes its shape from draw to draw"), "{message}");
}

#[test]
fn a_compiled_baseline_with_wrong_results_is_excluded() {
    let verdict = judge_case(
        &referring(
            "if torch.compiler.is_compiling(): return torch.zeros_like(x)\n\
             \x20       return torch.clamp(x + self.bias, min=self.low)",
        ),
        Stage::Measured,
    );
    assert!(verdict.verified, "{verdict:#?}");
    assert_eq!((verdict.speedup.compile, verdict.times_ms.compile), (None, None));
    assert_eq!(verdict.speedup.best_baseline.as_deref(), Some("eager"));
    let told = |text: &str| verdict.caveats.iter().any(|caveat| caveat.contains(text));
    assert!(
        told("baseline compile is left out: its results differ from eager"),
        "{:?}",
        verdict.caveats
    );
    assert!(told("eager is the only baseline left"), "{:?}", verdict.caveats);
}

/// Right, and no achievement.
#[test]
fn a_degenerate_task_earns_no_reward() {
    let task = TASK.replace("torch.clamp(x + self.bias, min=self.low)", "0 * (x + self.bias)");
    let kernel = KERNEL.replace("fmaxf(x[i] + bias[i % columns], low)", "0.0f * low");
    let kernels = vec![("bias_clamp.cu", kernel)];
    let verdict = judge_case(&Case { task, model: model(HONEST), kernels }, Stage::Verified);
    assert!(verdict.verified, "{verdict:#?}");
    assert_eq!(verdict.reward, Reward::UNEARNED);
    assert!(verdict.caveats[0].contains("degenerate"), "{:?}", verdict.caveats);
}

const BINDING: &str = r#"
#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAStream.h>
#include "../binding_registry.h"

extern "C" void bias_clamp_launcher(const float* x, const float* bias, float* out, int n, int columns,
                                    float low, cudaStream_t stream);

static torch::Tensor bias_clamp_forward(torch::Tensor x, torch::Tensor bias, double low) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto out = torch::empty_like(x);
    bias_clamp_launcher(x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), x.numel(),
                        x.size(1), low, c10::cuda::getCurrentCUDAStream().stream());
    return out;
}
static void register_bias_clamp(pybind11::module& m) { m.def("bias_clamp_forward", &bias_clamp_forward); }
REGISTER_BINDING(bias_clamp, register_bias_clamp);
"#;

/// The paper's workdir form, with a binding file and torch's headers.
#[test]
fn a_kernel_with_a_binding_is_verified() {
    let mut bound = case("return cuda_extension.bias_clamp_forward(x, self.bias, self.low)");
    bound.kernels.push(("bias_clamp_binding.cpp", BINDING.into()));
    let verdict = judge_case(&bound, Stage::Verified);
    assert!(verdict.verified, "{:#?}", verdict.failure);
}

/// What a single-file candidate adds to the kernel: a function on tensors.
const INLINE: &str = r"
#include <torch/types.h>
torch::Tensor bias_clamp(torch::Tensor x, torch::Tensor bias, double low) {
    auto out = torch::empty_like(x);
    bias_clamp_launcher(x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), x.numel(),
                        x.size(1), low, 0);
    return out;
}
";

/// KernelBench's single-file form, whose sources are strings in the Python file.
#[test]
fn a_single_file_with_inline_sources_is_verified() {
    // Renamed, because the name is a kernel's already.
    let kernel = KERNEL
        .replace("bias_clamp(", "bias_clamp_kernel(")
        .replace("bias_clamp<<<", "bias_clamp_kernel<<<");
    let cuda = kernel + INLINE;
    let head = [
        "from torch.utils.cpp_extension import load_inline",
        &format!("cuda_source = r'''{cuda}'''"),
        "cpp_source = 'torch::Tensor bias_clamp(torch::Tensor x, torch::Tensor bias, double low);'",
        "extension = load_inline(name='bias_clamp', cpp_sources=cpp_source, cuda_sources=cuda_source,",
        "                        functions=['bias_clamp'])\n",
    ]
    .join("\n");
    let model = model("return extension.bias_clamp(x, self.bias, self.low)");
    let single = Case {
        task: TASK.into(),
        model: head + &model.replace("import cuda_extension\n", ""),
        kernels: vec![],
    };
    let verdict = judge_case(&single, Stage::Verified);
    assert!(verdict.verified, "{:#?}", verdict.failure);
}

/// Thousands of duplicates, some at the same time: one is run, and the others say that they were not.
#[test]
fn identical_files_are_judged_once_unless_afresh() {
    let judge = shared_judge(Device::Cpu);
    let pool = SessionPool::new(judge);
    let (task, candidate) = (Task::from_source("task", TASK), case(HONEST).candidate());
    let repeated = Verdict::is_copy;
    let ask = || pool.verdict(&task, &candidate, Stage::Verified).unwrap();
    let first: Vec<Verdict> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(first.iter().all(|verdict| verdict.verified));
    assert_eq!(first.iter().filter(|verdict| !repeated(verdict)).count(), 1);

    for _ in 0..2000 {
        let verdict = ask();
        assert!(repeated(&verdict) && verdict.seconds == PhaseSeconds::default());
    }

    let fresh = pool.afresh(&task, &candidate, Stage::Verified).unwrap();
    assert!(fresh.verified && !repeated(&fresh) && fresh.seconds.verify > 0.0);
    // Another task of the same name is another question.
    let other = Task::from_source("task", TASK.replace("min=self.low", "min=self.low + 1"));
    let verdict = pool.verdict(&other, &candidate, Stage::Verified).unwrap();
    assert!(!repeated(&verdict) && !verdict.verified);
}

/// It is compiled before a session is asked for; its verdict is the one of its stage.
#[test]
fn a_build_failure_has_a_verdict_of_its_stage() {
    let judge = shared_judge(Device::Cpu);
    let pool = SessionPool::new(judge);
    let task = Task::from_source("task", TASK);
    let kernels = vec![("twice.cu", "int twice(int x) { return x + ; }".to_owned())];
    let broken = Case { kernels, ..case(HONEST) };
    let verdict = pool.afresh(&task, &broken.candidate(), Stage::Measured).unwrap();
    assert_eq!((verdict.stage, verdict.verified), (Stage::Measured, false));
    assert_eq!(verdict.reward, Reward::unverified());
    assert_eq!(verdict.failure.unwrap().class, FailureClass::Build);
    assert!(verdict.seconds.build > 0.0 && verdict.seconds.start == 0.0, "{:?}", verdict.seconds);
    // What can be is looked at, and what compiling took is not forgotten. Nobody compiled these files before.
    let mut new = case(HONEST);
    let now = format!("// {:?}\n", std::time::SystemTime::now());
    new.kernels[0].1.push_str(&now);
    let judged = || pool.afresh(&task, &new.candidate(), Stage::Verified).unwrap().seconds;
    let (first, again) = (judged(), judged());
    assert!(first.build > again.build, "{first:?}; from the cache {again:?}");
    assert!(first.verify > 0.0 && again.verify > 0.0, "{first:?} and {again:?}");
}
