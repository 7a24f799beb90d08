//! The judge on a GPU. `make test-gpu` runs these tests.

use std::time::Instant;

use crate::support::{Case, bias_relu, config, convolution, judge_all, shared_judge};
use warpwright_judge::{Device, JudgeConfig, JudgeError, LocalJudge, StoredPlan, agree};
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{
    Answer, Findings, Inspection, KernelCounters, SanitizerCheck, SanitizerOutcome, SanitizerReport,
};
use warpwright_record::verdict::{FailureClass, Profile, Stage, Tier, Verdict};
use warpwright_task::Task;
use warpwright_test_support::{Need, missing};

const GPU: Device = Device::Cuda(0);

fn task() -> String {
    bias_relu::task(8192, 4096)
}

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void bias_relu(const float4* x, const float4* bias, float4* out, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i], b = bias[i % columns];
    out[i] = make_float4(fmaxf(v.x + b.x, 0.f), fmaxf(v.y + b.y, 0.f), fmaxf(v.z + b.z, 0.f),
                         fmaxf(v.w + b.w, 0.f));
}
__global__ void wild(float* out) { out[(1ll << 40) + threadIdx.x] = 1.f; }
__global__ void forever(volatile int* stop) { while (*stop != 12345) {} }
__global__ void slowly(const float4* x, const float4* bias, float4* out, int n, int columns) {
    long long start = clock64();
    while (clock64() - start < 2000000000ll) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i], b = bias[i % columns];
        out[i] = make_float4(fmaxf(v.x + b.x, 0.f), fmaxf(v.y + b.y, 0.f), fmaxf(v.z + b.z, 0.f),
                             fmaxf(v.w + b.w, 0.f));
    }
}
extern "C" void launch(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    bias_relu<<<(n / 4 + 255) / 256, 256, 0, s>>>((const float4*)x, (const float4*)bias, (float4*)out, n / 4,
                                                  columns / 4);
}
extern "C" int launch_wild(float* out, cudaStream_t s) {
    wild<<<1, 32, 0, s>>>(out);
    return cudaStreamSynchronize(s);
}
extern "C" void launch_wild_unchecked(float* out, cudaStream_t s) { wild<<<1, 32, 0, s>>>(out); }
extern "C" int launch_too_large(float* out, cudaStream_t s) {
    wild<<<1, 4096, 0, s>>>(out);
    return cudaGetLastError();
}
extern "C" void launch_forever(float* out, cudaStream_t s) { forever<<<1, 1, 0, s>>>((int*)out); }
"#;

fn candidate(forward: &str) -> Candidate {
    Case { task: task(), model: bias_relu::model(forward), kernels: vec![("k.cu", KERNEL.into())] }
        .candidate()
}

const HONEST: &str = "out = torch.empty_like(x)\n\
    cuda_extension.launch(x, self.bias, out, x.numel(), x.shape[1])\n\
    return out";

fn honest_still_works(verdicts: &[Verdict]) {
    let last = verdicts.last().unwrap();
    assert!(last.verified, "the GPU is not usable afterwards: {last:#?}");
}

#[test]
fn gpu_an_honest_kernel_is_verified_and_measured() {
    let verdict = judge_all(GPU, &task(), [candidate(HONEST)], Stage::Measured).remove(0);
    eprintln!("{:#?}\n{:#?}\n{:#?}", verdict.times_ms, verdict.speedup, verdict.seconds);
    eprintln!(
        "floor {:?} checks {:#?} kernels {:?}",
        verdict.floor_ms, verdict.checks, verdict.kernels
    );
    assert!(verdict.verified, "{verdict:#?}");
    assert!(verdict.checks.iter().any(|c| c.name == "timed call"));
    assert!(verdict.speedup.reduce_overhead.is_some());
    let time = verdict.times_ms.candidate.unwrap();
    assert!(time.value > 0.5 * verdict.floor_ms.unwrap(), "{time:?}");
    assert!(!verdict.kernels.is_empty());
}

/// The launch plan that was stored with a verdict.
fn stored(judge: &LocalJudge, verdict: &Verdict) -> StoredPlan {
    let hash = verdict.plan.unwrap();
    let file = judge.plan_file(hash).unwrap().unwrap();
    println!("a plan of {} bytes", file.len());
    StoredPlan::read(&file, hash).unwrap()
}

#[test]
fn gpu_stored_plan_is_measured_again() {
    let judge = shared_judge(GPU);
    let verdict = judge_all(GPU, &task(), [candidate(HONEST)], Stage::Measured).remove(0);
    let stored = stored(judge, &verdict);
    assert_eq!(stored.candidate(), verdict.candidate);
    // From the file alone, in a new session of the task that is in it.
    let mut session = judge.task(&stored.task()).unwrap();
    let again = session.replay(&stored, verdict.plan.unwrap(), Stage::Measured).unwrap();
    assert!(again.verified && again.tier == Tier::Device, "{again:#?}");
    assert_eq!((again.plan, &again.candidate), (verdict.plan, &verdict.candidate));
    let times = [&verdict, &again].map(|verdict| verdict.times_ms.candidate.unwrap());
    assert!(agree(times[0], times[1]), "{times:?}");
    assert_eq!(again.provenance.unwrap().own_kernels, verdict.provenance.unwrap().own_kernels);
    // Another task, or another seed, is refused by name.
    let other = Task::from_source("case", bias_relu::task(4096, 4096));
    let refused =
        judge.task(&other).unwrap().replay(&stored, verdict.plan.unwrap(), Stage::Verified);
    assert!(matches!(refused, Err(JudgeError::NotReplayable { .. })), "{refused:?}");
    let seeded = LocalJudge::open(JudgeConfig { seed: 2, ..config(GPU) }).unwrap();
    let mut session = seeded.task(&stored.task()).unwrap();
    let refused = session.replay(&stored, verdict.plan.unwrap(), Stage::Verified).unwrap_err();
    assert!(refused.to_string().contains("seed 1"), "{refused}");
}

#[test]
fn gpu_repeats_in_new_contexts_confirm_verdicts() {
    let judge = LocalJudge::open(JudgeConfig { repeat_rate: 1.0, ..config(GPU) }).unwrap();
    let before = judge.voids().unwrap().len();
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let wild = HONEST
        .replace("launch(x, self.bias, out, x.numel(), x.shape[1])", "launch_wild_unchecked(out)");
    let candidates = [candidate(HONEST), candidate(&wild), candidate(HONEST)];
    let verdicts = candidates.map(|candidate| session.judge(&candidate, Stage::Measured).unwrap());
    for verdict in &verdicts {
        assert_eq!(verdict.tier, Tier::Device, "{:?}", verdict.caveats);
        assert!(verdict.seconds.repeat > 0.0 && !judge.is_void(verdict).unwrap(), "{verdict:#?}");
    }
    let [first, fault, last] = &verdicts;
    assert!(first.verified && !fault.verified && last.verified, "{fault:#?}");
    let turns = [first, last].map(|verdict| verdict.replayer.clone().unwrap());
    assert_ne!(turns[0].id, turns[1].id, "a fault ends the replayer");
    assert_eq!(judge.voids().unwrap().len(), before, "nothing disagreed");
    // Without luck none is repeated.
    let usual = shared_judge(GPU)
        .task(&Task::from_source("case", task()))
        .unwrap()
        .judge(&candidate(HONEST), Stage::Verified)
        .unwrap();
    assert!(usual.seconds.repeat <= 0.0, "{}", usual.seconds.repeat);
}

/// Replays a captured graph: with copies of inputs and results and captured anew for other weights, or
/// with the addresses of the first call.
const GRAPH: &str = r#"
static int capture(cudaGraphExec_t* made, const float* x, const float* bias, float* out, int n, int columns) {
    cudaStream_t own;
    cudaGraph_t graph;
    if (cudaError_t e = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking)) return e;
    if (cudaError_t e = cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal)) return e;
    bias_relu<<<(n / 4 + 255) / 256, 256, 0, own>>>((const float4*)x, (const float4*)bias, (float4*)out,
                                                    n / 4, columns / 4);
    if (cudaError_t e = cudaStreamEndCapture(own, &graph)) return e;
    if (cudaError_t e = cudaGraphInstantiate(made, graph, 0)) return e;
    cudaGraphDestroy(graph);
    return cudaStreamDestroy(own);
}
extern "C" int launch_replay(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    static cudaGraphExec_t graph = nullptr;
    static const float* known = nullptr;
    static float *in = nullptr, *result = nullptr;
    const size_t bytes = n * sizeof(float);
    if (!in && (cudaMalloc(&in, bytes) || cudaMalloc(&result, bytes))) return cudaErrorMemoryAllocation;
    if (known != bias) {
        if (graph) cudaGraphExecDestroy(graph);
        if (int e = capture(&graph, in, bias, result, n, columns)) return e;
        known = bias;
    }
    if (cudaError_t e = cudaMemcpyAsync(in, x, bytes, cudaMemcpyDeviceToDevice, s)) return e;
    if (cudaError_t e = cudaGraphLaunch(graph, s)) return e;
    return cudaMemcpyAsync(out, result, bytes, cudaMemcpyDeviceToDevice, s);
}
extern "C" int launch_stale(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    static cudaGraphExec_t graph = nullptr;
    if (!graph) if (int e = capture(&graph, x, bias, out, n, columns)) return e;
    return cudaGraphLaunch(graph, s);
}
"#;

#[test]
fn gpu_a_stale_cuda_graph_fails_and_a_fresh_one_passes() {
    let replaying = |launcher: &str| {
        let forward = HONEST.replace("launch(", &format!("{launcher}("));
        let model = bias_relu::model(&forward);
        Case { task: task(), model, kernels: vec![("k.cu", format!("{KERNEL}{GRAPH}"))] }
            .candidate()
    };
    let both = [replaying("launch_replay"), replaying("launch_stale")];
    let verdicts = judge_all(GPU, &task(), both, Stage::Measured);
    let [honest, stale] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert!(honest.verified && honest.times_ms.candidate.is_some(), "{honest:#?}");
    let failure = stale.failure.as_ref().unwrap_or_else(|| panic!("{stale:#?}"));
    // It writes where its first results lay: what they would be now is wrong, or was never written.
    let wrong = matches!(failure.class, FailureClass::Mismatch | FailureClass::NonFinite);
    assert!(wrong, "{}", failure.message);
}

/// Runners made ahead have their contexts and map the arena while another candidate has the device:
/// its fault is not theirs.
#[test]
fn gpu_an_idle_runner_survives_another_candidates_fault() {
    let judge = shared_judge(GPU);
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let wild = "out = torch.empty_like(x)\ncuda_extension.launch_wild_unchecked(out)\nreturn out";
    for _ in 0..2 {
        let verdict = session.judge(&candidate(wild), Stage::Verified).unwrap();
        let failure = verdict.failure.unwrap();
        assert_eq!(failure.class, FailureClass::IllegalAddress, "{}", failure.message);
        std::thread::sleep(std::time::Duration::from_secs(20));
        let verdict = session.judge(&candidate(HONEST), Stage::Verified).unwrap();
        eprintln!("{:#?}", verdict.seconds);
        assert!(verdict.verified, "{verdict:#?}");
        assert!(verdict.seconds.start < 1.0, "it started one: {:?}", verdict.seconds);
    }
}

#[test]
fn gpu_every_way_of_failing_has_its_class_and_harms_nobody_else() {
    let launch =
        |name: &str| format!("out = torch.empty_like(x)\ncuda_extension.{name}(out)\nreturn out");
    let cases = [
        ("return torch.relu(x + self.bias)".to_owned(), FailureClass::ForbiddenCall),
        ("return torch.empty_like(x)".to_owned(), FailureClass::NonFinite),
        (launch("launch_wild"), FailureClass::IllegalAddress),
        (launch("launch_wild_unchecked"), FailureClass::IllegalAddress),
        (launch("launch_too_large"), FailureClass::Launch),
        (launch("launch_forever"), FailureClass::Hang),
        (
            "keep = []\nwhile True: keep.append(torch.empty_like(x))".to_owned(),
            FailureClass::OutOfMemory,
        ),
        ("return torch.empty(4096, 8192, device=x.device)".to_owned(), FailureClass::Shape),
        ("return torch.empty(8192, 4096)".to_owned(), FailureClass::Shape),
    ];
    let mut candidates: Vec<Candidate> = Vec::new();
    for (forward, _) in &cases {
        candidates.push(candidate(forward));
    }
    candidates.push(candidate(HONEST));
    let judge = shared_judge(GPU);
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let mut verdicts = Vec::new();
    for candidate in &candidates {
        let started = Instant::now();
        let verdict = session.judge(candidate, Stage::Verified).unwrap();
        // How long after its deadline a wedged kernel's slot is free is filed under docs/results.
        let seconds = started.elapsed().as_secs_f64() - verdict.seconds.build;
        let class = verdict.failure.as_ref().map(|failure| failure.class);
        eprintln!("{class:?}: {seconds:.2} s besides its build");
        verdicts.push(verdict);
    }
    honest_still_works(&verdicts);
    for ((forward, class), verdict) in cases.iter().zip(&verdicts) {
        let failure = verdict.failure.as_ref().unwrap_or_else(|| panic!("{forward}: {verdict:#?}"));
        assert_eq!(failure.class, *class, "{forward}: {}", failure.message);
        let says_what_to_do = failure.message.contains("allocate less");
        assert_eq!(says_what_to_do, *class == FailureClass::OutOfMemory, "{}", failure.message);
    }
}

/// The runner says "done" while a kernel on a stream that nobody waits for is still writing.
#[test]
fn gpu_late_writes_of_another_stream_are_detected() {
    let late = KERNEL.to_owned()
        + r#"
extern "C" void launch_late(const float* x, const float* bias, float* out, int n, int columns, cudaStream_t s) {
    static cudaStream_t other = nullptr;
    if (!other) cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    slowly<<<128, 256, 0, other>>>((const float4*)x, (const float4*)bias, (float4*)out, n / 4, columns / 4);
}
"#;
    let forward = HONEST.replace("launch(", "launch_late(");
    // torch.cuda.synchronize waits for every stream; a cheat replaces it.
    let model = "import torch\ntorch.cuda.synchronize = lambda *_: None\n".to_owned();
    let base = candidate(&forward);
    let mut files = base.files().clone();
    let text = String::from_utf8(files["model_new.py"].clone()).unwrap();
    files.insert("model_new.py".into(), (model + &text).into_bytes());
    files.insert("kernels/k.cu".into(), late.into_bytes());
    let cheat = Candidate::from_files(files);
    // Recorders would refuse the call, because nothing waits for its stream.
    let wanted = JudgeConfig { tier: Some(Tier::Host), ..config(GPU) };
    let judge = LocalJudge::open(wanted).unwrap();
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let candidates = [cheat, candidate(HONEST)];
    let verdicts = candidates.map(|each| session.judge(&each, Stage::Verified).unwrap());
    honest_still_works(&verdicts);
    // Found as a late write, or, when the kernel is later still, as results that are not there.
    assert!(!verdicts[0].verified, "{:#?}", verdicts[0]);
    let failed = verdicts[0].failure.as_ref().map(|f| f.class);
    let late = verdicts[0].integrity.first().is_some_and(|f| f.class == "late_write");
    // The memory of results held NaN, or a number that no result is.
    let missing = matches!(failed, Some(FailureClass::NonFinite | FailureClass::Mismatch));
    assert!(late || missing, "{:#?}", verdicts[0]);
}

/// Kernels with one fault each, beside the honest one.
const FAULTY: &str = r#"
#include <cuda_runtime.h>
__global__ void strided(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long j = i * 33 % n;
    if (i < n) out[j] = x[j];
}
__global__ void past_the_end(float* out, long long n) { out[n + threadIdx.x] = 1.f; }
__global__ void racing(float* out) {
    __shared__ float shared[64];
    shared[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = shared[63 - threadIdx.x];
}
__global__ void reading(const float* from, float* out) { out[threadIdx.x] = from[threadIdx.x] + 1.f; }
extern "C" void launch_strided(const float* x, float* out, long long n, cudaStream_t s) {
    strided<<<(unsigned)((n + 255) / 256), 256, 0, s>>>(x, out, n);
}
extern "C" void launch_past_the_end(float* out, long long n, cudaStream_t s) {
    past_the_end<<<1, 32, 0, s>>>(out, n);
}
extern "C" void launch_racing(float* out, cudaStream_t s) { racing<<<1, 64, 0, s>>>(out); }
extern "C" void launch_reading(const float* from, float* out, cudaStream_t s) {
    reading<<<1, 64, 0, s>>>(from, out);
}
"#;

fn faulty(forward: &str) -> Candidate {
    let base = candidate(&format!("out = torch.empty_like(x)\n{forward}\nreturn out"));
    let mut files = base.files().clone();
    files.insert("kernels/faulty.cu".into(), FAULTY.into());
    Candidate::from_files(files)
}

fn inspect_all(questions: &[(Candidate, Inspection)]) -> Vec<Findings> {
    let judge = shared_judge(GPU);
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let found: Vec<Findings> =
        questions.iter().map(|(c, i)| session.inspect(c, i).unwrap()).collect();
    // Whatever the faulty ones did, the GPU still judges.
    let verdict = session.judge(&candidate(HONEST), Stage::Verified).unwrap();
    assert!(verdict.verified, "{verdict:#?}");
    found
}

#[test]
fn gpu_a_profile_names_the_kernel_and_its_resources() {
    let findings = inspect_all(&[(candidate(HONEST), Inspection::Kernels)]).remove(0);
    eprintln!("{findings:#?}");
    let Answer::Kernels { profile } = &findings.answer else { panic!("{findings:#?}") };
    let [kernel] = profile.kernels.as_slice() else { panic!("{profile:#?}") };
    assert!(kernel.name.contains("bias_relu"), "{kernel:#?}");
    assert!((kernel.launches - 1.0).abs() < 1e-9);
    assert_eq!((kernel.grid, kernel.block), ([32768, 1, 1], [256, 1, 1]));
    assert!(kernel.registers.is_some_and(|n| n > 0));
    assert!(kernel.occupancy.is_some_and(|o| o.share() > 0.5), "{kernel:#?}");
    // 268 MB and nothing else: near the roof, and not faster than memory.
    let share = profile.roof_share.unwrap();
    assert!((0.5..1.3).contains(&share), "{share}");
}

fn counters(findings: &Findings) -> Option<Vec<KernelCounters>> {
    match &findings.answer {
        Answer::Counters { kernels, .. } => Some(kernels.clone()),
        Answer::Unavailable { reason, .. } if reason == "this host has no `ncu`" => None,
        _ => panic!("{findings:#?}"),
    }
}

#[test]
fn gpu_counters_distinguish_strided_and_coalesced_loads() {
    let strided = faulty("cuda_extension.launch_strided(x, out, x.numel())");
    let questions = [(candidate(HONEST), Inspection::Counters), (strided, Inspection::Counters)];
    let findings = inspect_all(&questions);
    eprintln!("{findings:#?}");
    let (Some(coalesced), Some(strided)) = (counters(&findings[0]), counters(&findings[1])) else {
        missing(Need::Ncu);
        return;
    };
    let sectors = |kernels: &[KernelCounters], name: &str| {
        let kernel = kernels.iter().find(|k| k.name.contains(name));
        let kernel = kernel.unwrap_or_else(|| panic!("no {name} in {kernels:#?}"));
        assert!(kernel.time_us.unwrap() > 1.0 && kernel.dram_bytes.unwrap() > 1 << 20);
        kernel.load_sectors_per_request.unwrap()
    };
    // Loads of float4 need 16 sectors, also when coalesced.
    assert!(sectors(&coalesced, "bias_relu") < 16.5, "{coalesced:#?}");
    assert!(sectors(&strided, "strided") > 30.0, "{strided:#?}");
    assert!(strided.iter().any(|k| k.hints.iter().any(|h| h.contains("not coalesced"))));
}

fn report(findings: &Findings) -> Option<SanitizerReport> {
    let Answer::Sanitized { reports } = &findings.answer else { panic!("{findings:#?}") };
    let report = reports[0].clone();
    match &report.outcome {
        SanitizerOutcome::Unavailable { reason }
            if reason == "this host has no `compute-sanitizer`" =>
        {
            None
        }
        SanitizerOutcome::Unavailable { reason } => panic!("{reason}"),
        _ => Some(report),
    }
}

#[test]
fn gpu_sanitizers_find_only_the_planted_faults() {
    use SanitizerCheck::{Initcheck, Memcheck, Racecheck};
    let past = "cuda_extension.launch_past_the_end(out, out.numel())";
    let reading = "cuda_extension.launch_reading(torch.empty_like(x), out)";
    let cases = [
        (past, Memcheck, "Invalid __global__ write of size 4 bytes", "past_the_end"),
        ("cuda_extension.launch_racing(out)", Racecheck, "Race reported", "racing"),
        (reading, Initcheck, "Uninitialized __global__ memory read", "reading"),
    ];
    let ask = |check| Inspection::Sanitize { checks: vec![check] };
    let mut questions = Vec::new();
    for (forward, check, ..) in &cases {
        questions.push((faulty(forward), ask(*check)));
        questions.push((candidate(HONEST), ask(*check)));
    }
    let findings = inspect_all(&questions);
    eprintln!("{findings:#?}");
    for (pair, (forward, _, what, kernel)) in findings.chunks(2).zip(&cases) {
        let (Some(planted), Some(honest)) = (report(&pair[0]), report(&pair[1])) else {
            missing(Need::ComputeSanitizer);
            return;
        };
        assert_eq!(honest.outcome, SanitizerOutcome::Complete, "{honest:#?}");
        assert!(honest.findings.is_empty(), "{honest:#?}");
        let found = planted.findings.iter().find(|f| f.what.starts_with(what));
        let found = found.unwrap_or_else(|| panic!("{forward}: {planted:#?}"));
        assert!(found.kernel.as_ref().is_some_and(|k| k.contains(kernel)), "{found:#?}");
        assert_eq!(found.file.as_deref(), Some("faulty.cu"), "{found:#?}");
        assert!(found.line.is_some());
    }
}

/// Torch's own default computes convolutions in TF32. Under `strict` the reference's error is
/// float32's, far below that of TF32's operands; under `tf32` it is TF32's.
#[test]
fn gpu_reference_convolutions_use_tf32_only_on_request() {
    let strict = convolution::check(GPU, Profile::Strict);
    let tf32 = convolution::check(GPU, Profile::Tf32);
    eprintln!("{strict:#?}\n{tf32:#?}");
    let lower = strict.lower_precision_max_abs_error.unwrap();
    assert!(strict.reference_max_abs_error * 50.0 < lower, "{strict:#?}");
    assert!(tf32.reference_max_abs_error * 4.0 > lower, "positive control: {tf32:#?}");
    assert!(strict.atol < lower && tf32.atol > lower / 4.0);
}
