//! Inspections on the cpu device: profiles of the host's launcher, and `AddressSanitizer`.

use crate::support::{Case, bias_relu, shared_judge};
use warpwright_judge::Device;
use warpwright_record::findings::{
    Answer, CallProfile, Findings, Inspection, SanitizerCheck, SanitizerOutcome,
};
use warpwright_record::verdict::FailureClass;
use warpwright_task::Task;

fn task() -> String {
    bias_relu::task(256, 512)
}

/// Line 5 writes `past` elements too many.
const KERNEL: &str = r#"#include <cuda_runtime.h>
template <int kPast>
__global__ void bias_relu(const float* x, const float* bias, float* out, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + kPast) out[i] = fmaxf(x[i < n ? i : 0] + bias[i % columns], 0.f);
}
__global__ void scale(float* out, int n, float by) {
    __shared__ float shared[64];
    shared[threadIdx.x % 64] = by;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] *= shared[threadIdx.x % 64];
}
extern "C" void launch(const float* x, const float* bias, float* out, int n, int columns, int past, cudaStream_t s) {
    int blocks = (n + 255) / 256;
    if (past) bias_relu<8><<<blocks + 1, 256, 0, s>>>(x, bias, out, n, columns);
    else bias_relu<0><<<blocks, 256, 0, s>>>(x, bias, out, n, columns);
    scale<<<dim3(blocks), dim3(64, 4), 16, s>>>(out, n, 1.f);
    scale<<<dim3(blocks), dim3(64, 4), 16, s>>>(out, n, 1.f);
}
"#;

fn case(forward: &str) -> Case {
    Case { task: task(), model: bias_relu::model(forward), kernels: vec![("k.cu", KERNEL.into())] }
}

fn launching(past: u32) -> Case {
    case(&format!(
        "out = torch.empty_like(x)\n\
         cuda_extension.launch(x, self.bias, out, x.numel(), x.shape[1], {past})\n\
         return out"
    ))
}

fn inspect_all(questions: &[(Case, Inspection)]) -> Vec<Findings> {
    let judge = shared_judge(Device::Cpu);
    let mut session = judge.task(&Task::from_source("case", task())).unwrap();
    let ask = |(case, inspection): &(Case, Inspection)| {
        session.inspect(&case.candidate(), inspection).unwrap()
    };
    questions.iter().map(ask).collect()
}

fn sanitize(checks: &[SanitizerCheck]) -> Inspection {
    Inspection::Sanitize { checks: checks.to_vec() }
}

fn profile(findings: &Findings) -> &CallProfile {
    let Answer::Kernels { profile } = &findings.answer else { panic!("{findings:#?}") };
    profile
}

#[test]
fn a_cpu_profile_has_launches_and_no_hardware_counters() {
    let questions =
        [Inspection::Counters, Inspection::Kernels].map(|inspection| (launching(0), inspection));
    let [counters, findings] = inspect_all(&questions).try_into().unwrap();
    let Answer::Unavailable { reason, .. } = counters.answer else { panic!("{counters:#?}") };
    assert_eq!(reason, "the cpu device has no hardware counters");
    let profile = profile(&findings);
    assert!((profile.launches - 3.0).abs() < 1e-9, "{profile:#?}");
    let of = |name: &str| {
        let found = profile.kernels.iter().find(|k| k.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {profile:#?}"))
    };
    let (relu, scale) = (of("bias_relu<0>"), of("scale"));
    assert!((scale.launches - 2.0).abs() < 1e-9);
    assert_eq!((relu.grid, relu.block), ([512, 1, 1], [256, 1, 1]));
    assert_eq!((scale.grid, scale.block, scale.shared_bytes), ([512, 1, 1], [64, 4, 1], 16));
    assert!(relu.total_us > 0.0 && scale.total_us > 0.0);
    assert!(profile.wall_us >= profile.busy_us, "{profile:#?}");
    // 512 KiB in, 512 KiB out, 2 KiB of bias.
    assert_eq!(profile.unavoidable_bytes, (1 << 20) + 2048);
    assert!(profile.roof_share.unwrap() > 0.0);
    assert_eq!(findings.candidate, launching(0).candidate().hash());
}

#[test]
fn asan_finds_only_the_planted_overflow() {
    let both = sanitize(&[SanitizerCheck::Memcheck, SanitizerCheck::Racecheck]);
    let findings = inspect_all(&[(launching(0), both.clone()), (launching(1), both)]);
    let reports = |findings: &Findings| {
        let Answer::Sanitized { reports } = &findings.answer else { panic!("{findings:#?}") };
        reports.clone()
    };
    let clean = reports(&findings[0]);
    assert_eq!(clean[0].outcome, SanitizerOutcome::Complete, "{clean:#?}");
    assert!(clean[0].findings.is_empty(), "{clean:#?}");
    assert!(matches!(clean[1].outcome, SanitizerOutcome::Unavailable { .. }), "{clean:#?}");
    let wild = reports(&findings[1]);
    let found = wild[0].findings.first().unwrap_or_else(|| panic!("{wild:#?}"));
    assert!(found.what.starts_with("heap-buffer-overflow: WRITE"), "{found:#?}");
    assert_eq!((found.file.as_deref(), found.line), (Some("kernels/k.cu"), Some(5)), "{found:#?}");
}

#[test]
fn failures_before_launch_have_the_verdicts_class() {
    let broken = Case { kernels: vec![("k.cu", "nonsense".into())], ..launching(0) };
    let cases = [
        (broken, Inspection::Kernels, FailureClass::Build),
        (case("raise ValueError('no')"), Inspection::Kernels, FailureClass::Exception),
        (case("return x + 1"), Inspection::Kernels, FailureClass::ForbiddenCall),
        (case("import os; os._exit(0)"), Inspection::Kernels, FailureClass::Crash),
    ];
    let questions: Vec<_> = cases.iter().map(|(c, i, _)| (c.clone(), i.clone())).collect();
    for (findings, (_, _, class)) in inspect_all(&questions).iter().zip(&cases) {
        let Answer::Failed { failure } = &findings.answer else { panic!("{findings:#?}") };
        assert_eq!(failure.class, *class, "{findings:#?}");
    }
}

/// A candidate that ends its process is not taken for a tool that does not work.
#[test]
fn a_candidate_that_exits_stops_the_sanitizer_early() {
    let memcheck = sanitize(&[SanitizerCheck::Memcheck]);
    let questions = [
        (case("import os; os._exit(0)"), memcheck.clone()),
        (case("raise ValueError('no')"), memcheck.clone()),
        (Case { model: "x = 1".into(), ..launching(0) }, memcheck),
    ];
    let findings = inspect_all(&questions);
    for (findings, word) in findings.iter().zip(["ended", "ValueError"]) {
        let Answer::Sanitized { reports } = &findings.answer else { panic!("{findings:#?}") };
        let SanitizerOutcome::Stopped { message } = &reports[0].outcome else {
            panic!("{reports:#?}")
        };
        assert!(message.contains(word), "{message}");
    }
    let Answer::Failed { failure } = &findings[2].answer else { panic!("{findings:#?}") };
    assert_eq!(failure.class, FailureClass::Load);
}

/// The process can write into three files and make no others; what it writes into them, also after
/// our own code has, must not lead our reading astray.
#[test]
fn a_forged_report_is_no_infrastructure_error() {
    // The report is forged only where making another file beside it was refused.
    let forge = |report: &str, trace: &str| {
        case(&format!(
            "import atexit, os, sys\n\
             def late():\n\
             \x20   for flag, text in (('--report', {report:?}), ('--trace', {trace:?})):\n\
             \x20       path = sys.argv[sys.argv.index(flag) + 1]\n\
             \x20       try:\n\
             \x20           os.symlink('/etc/passwd', path + '.link')\n\
             \x20       except OSError:\n\
             \x20           open(path, 'w').write(text)\n\
             atexit.register(late)\n\
             return torch.empty_like(x)"
        ))
    };
    let cases = [
        forge(
            "{\"done\": true, \"calls\": 4294967295, \"seconds\": 1e308}",
            "{\"traceEvents\": [{\"cat\": \"kernel\"}]}",
        ),
        forge("{\"calls\": -1}", "[[[[[["),
    ];
    let questions: Vec<_> = cases.map(|case| (case, Inspection::Kernels)).into();
    let findings = inspect_all(&questions);
    let forged = profile(&findings[0]);
    assert!(forged.calls == u32::MAX && forged.wall_us.is_finite(), "{forged:#?}");
    assert!(matches!(findings[1].answer, Answer::Failed { .. }), "{:#?}", findings[1].answer);
}
