//! A verdict turned into words for the templates.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::verdict::{
    Check, Diagnostic, Failure, IntegrityFinding, IsolationLevel, KernelResources, Severity, Stage,
    Verdict, WorkloadVerdict,
};

use super::model::{Chip, ratio, standing_chip};
use super::plot;
use crate::figures;
use crate::live::verdict_words;
use crate::summary::{Standing, baseline_name, class_words};

#[derive(Serialize)]
pub(super) struct VerdictView {
    result: Chip,
    candidate: String,
    stage: &'static str,
    best: Option<[String; 2]>,
    /// Whether the whole interval says that the candidate is faster.
    faster: bool,
    best_over: String,
    floor: Option<FloorView>,
    moved: String,
    prepare: Option<String>,
    checks: Vec<CheckView>,
    failure: Option<FailureView>,
    integrity: Vec<FindingView>,
    kernels: Vec<KernelView>,
    diagnostics: Vec<DiagnosticView>,
    isolation: Chip,
    enforced: Vec<String>,
    missing: Vec<String>,
    caveats: Vec<String>,
    /// Name, time, speed-up over the best baseline and its interval, and which that was.
    workloads: Vec<WorkloadView>,
    /// The machine while it was timed, in one line.
    conditions: Option<String>,
    phases: Vec<PhaseView>,
    fingerprint: Vec<[String; 2]>,
}

#[derive(Serialize)]
struct WorkloadView {
    name: String,
    held_out: bool,
    result: Chip,
    time: String,
    best: Option<[String; 2]>,
    best_over: String,
}

#[derive(Serialize)]
struct FloorView {
    time: String,
    /// The floor as a share of the candidate's time, in percent.
    reached: Option<String>,
}

#[derive(Serialize)]
struct CheckView {
    name: String,
    passed: bool,
    error: String,
    reference: String,
    lower: Option<String>,
    atol: String,
    rtol: String,
    truth: String,
}

#[derive(Serialize)]
struct FailureView {
    class: &'static str,
    message: String,
    cuda_error: Option<i32>,
    diagnostics: Vec<DiagnosticView>,
    mismatch: Option<MismatchView>,
    output: String,
}

#[derive(Serialize)]
struct MismatchView {
    output: u32,
    check: String,
    share: String,
    error: String,
    atol: String,
    rtol: String,
    examples: Vec<[String; 2]>,
}

#[derive(Serialize)]
struct DiagnosticView {
    place: String,
    severity: Chip,
    message: String,
    excerpt: String,
}

#[derive(Serialize)]
struct FindingView {
    class: String,
    message: String,
}

#[derive(Serialize)]
struct KernelView {
    name: String,
    arch: String,
    registers: u32,
    spills: String,
    spilled: bool,
    shared: String,
    stack: String,
}

#[derive(Serialize)]
struct PhaseView {
    name: &'static str,
    seconds: String,
    percent: String,
}

pub(super) fn view(verdict: &Verdict) -> VerdictView {
    let standing = Standing::of(verdict);
    let full = verdict.isolation.level == IsolationLevel::Full;
    let over = verdict.speedup.best_baseline.as_deref().map(baseline_name);
    VerdictView {
        result: standing_chip(standing),
        candidate: verdict.candidate.clone(),
        stage: match verdict.stage {
            Stage::Built => "built",
            Stage::Verified => "built and verified",
            Stage::Measured => "built, verified and timed",
        },
        best: verdict.speedup.best.as_ref().map(ratio),
        faster: verdict.speedup.best.is_some_and(|best| best.low > 1.0),
        best_over: over.unwrap_or_else(|| "the best baseline".to_owned()),
        floor: verdict.floor_ms.map(|floor| FloorView {
            time: figures::time(floor),
            reached: verdict
                .times_ms
                .candidate
                .filter(|time| time.value > 0.0)
                .map(|time| format!("{:.0} %", 100.0 * floor / time.value)),
        }),
        moved: figures::bytes(verdict.unavoidable_bytes),
        prepare: verdict.times_ms.prepare.map(figures::time),
        checks: verdict.checks.iter().map(check).collect(),
        failure: verdict.failure.as_ref().map(failure),
        integrity: verdict.integrity.iter().map(finding).collect(),
        kernels: verdict.kernels.iter().map(kernel).collect(),
        diagnostics: verdict.diagnostics.iter().map(diagnostic).collect(),
        isolation: Chip {
            label: if full { "full isolation" } else { "partial isolation" }.to_owned(),
            class: if full { "good" } else { "warn" },
        },
        enforced: verdict.isolation.enforced.clone(),
        missing: verdict.isolation.missing.clone(),
        caveats: caveats(verdict),
        workloads: verdict.workloads.iter().map(workload).collect(),
        conditions: verdict.conditions.as_ref().map(ToString::to_string).filter(|c| !c.is_empty()),
        phases: phases(verdict),
        fingerprint: fingerprint(&verdict.fingerprint),
    }
}

fn workload(workload: &WorkloadVerdict) -> WorkloadView {
    let (label, class) = match (&workload.refused, workload.verified) {
        (Some(_), _) => ("refused", "warn"),
        (None, true) => ("verified", "good"),
        (None, false) => ("failed", "bad"),
    };
    let (time, over) = (workload.times_ms.candidate, workload.speedup.best_baseline.as_deref());
    WorkloadView {
        name: workload.name.clone(),
        held_out: workload.held_out,
        result: Chip { label: label.to_owned(), class },
        time: time.map_or_else(String::new, |time| figures::time(time.value)),
        best: workload.speedup.best.as_ref().map(ratio),
        best_over: over.map(baseline_name).unwrap_or_default(),
    }
}

/// A verdict as one chip among a turn's steps.
pub(super) fn short(verdict: &Verdict) -> Chip {
    Chip { label: verdict_words(verdict), class: standing_chip(Standing::of(verdict)).class }
}

/// How many different fingerprints there are, not counting clocks, which differ between any two
/// measurements, and what the machine is known to measure by.
pub(super) fn fingerprints<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> usize {
    let of = |verdict: &Verdict| {
        let (clocks, exactness) = (String::new(), None);
        let still = Fingerprint { clocks, exactness, ..verdict.fingerprint.clone() };
        serde_json::to_string(&still).unwrap_or_default()
    };
    verdicts.map(of).collect::<BTreeSet<_>>().len()
}

fn check(check: &Check) -> CheckView {
    CheckView {
        name: check.name.clone(),
        passed: check.passed,
        error: figures::error(check.max_abs_error),
        reference: figures::error(check.reference_max_abs_error),
        lower: check.lower_precision_max_abs_error.map(figures::error),
        atol: figures::error(check.atol),
        rtol: figures::error(check.rtol),
        truth: check.truth.clone(),
    }
}

fn failure(failure: &Failure) -> FailureView {
    FailureView {
        class: class_words(failure.class),
        message: failure.message.clone(),
        cuda_error: failure.cuda_error,
        diagnostics: failure.diagnostics.iter().map(diagnostic).collect(),
        mismatch: failure.mismatch.as_ref().map(|m| MismatchView {
            output: m.output,
            check: m.check.clone(),
            share: format!(
                "{} of {} elements ({})",
                figures::count(m.elements),
                figures::count(m.of),
                percent(m.elements as f64 / m.of.max(1) as f64)
            ),
            error: figures::error(m.max_abs_error),
            atol: figures::error(m.atol),
            rtol: figures::error(m.rtol),
            examples: m
                .examples
                .iter()
                .map(|element| {
                    let index: Vec<String> = element.index.iter().map(u64::to_string).collect();
                    [format!("[{}]", index.join(", ")), element.text.clone()]
                })
                .collect(),
        }),
        output: failure.output_tail.clone(),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.01 => "under 0.01 %".to_owned(),
        p if p < 1.0 => format!("{p:.2} %"),
        p => format!("{p:.0} %"),
    }
}

fn diagnostic(diagnostic: &Diagnostic) -> DiagnosticView {
    let mut place = diagnostic.file.clone().unwrap_or_default();
    for number in [diagnostic.line, diagnostic.column].into_iter().flatten() {
        let _ = write!(place, ":{number}");
    }
    let (label, class) = match diagnostic.severity {
        Severity::Error => ("error", "bad"),
        Severity::Warning => ("warning", "warn"),
        Severity::Note => ("note", "plain"),
    };
    DiagnosticView {
        place,
        severity: Chip { label: label.to_owned(), class },
        message: diagnostic.message.clone(),
        excerpt: diagnostic.excerpt.clone(),
    }
}

fn finding(finding: &IntegrityFinding) -> FindingView {
    FindingView { class: finding.class.replace('_', " "), message: finding.message.clone() }
}

fn kernel(kernel: &KernelResources) -> KernelView {
    let spilled = kernel.spill_store_bytes > 0 || kernel.spill_load_bytes > 0;
    KernelView {
        name: kernel.name.clone(),
        arch: kernel.arch.clone(),
        registers: kernel.registers,
        spills: if spilled {
            format!("{} B stored, {} B loaded", kernel.spill_store_bytes, kernel.spill_load_bytes)
        } else {
            "none".to_owned()
        },
        spilled,
        shared: figures::bytes(kernel.shared_bytes.into()),
        stack: figures::bytes(kernel.stack_bytes.into()),
    }
}

fn phases(verdict: &Verdict) -> Vec<PhaseView> {
    let s = &verdict.seconds;
    let parts = [
        ("build", s.build),
        ("start", s.start),
        ("load", s.load),
        ("verify", s.verify),
        ("measure", s.measure),
    ];
    let shares = plot::shares(&parts.map(|(_, seconds)| seconds));
    let view = |((name, seconds), share): ((&'static str, f64), f64)| PhaseView {
        name,
        seconds: figures::seconds(seconds),
        percent: format!("{share:.2}"),
    };
    parts.into_iter().zip(shares).map(view).collect()
}

fn fingerprint(f: &Fingerprint) -> Vec<[String; 2]> {
    let bandwidth = f.bandwidth_bytes_per_second.map(|b| format!("{}/s", figures::bytes(b)));
    let rows = [
        ("device", f.device.clone()),
        ("hardware", f.hardware.clone()),
        ("cores", f.cores.to_string()),
        ("driver", f.driver.clone()),
        ("compiler", f.compiler.clone()),
        ("torch", f.torch.clone()),
        ("Python", f.python.clone()),
        ("clocks", f.clocks.clone()),
        ("measured bandwidth", bandwidth.unwrap_or_default()),
        ("timing accuracy", f.exactness.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("warpwright", f.warpwright.clone()),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    rows.map(|(name, value)| [name.to_owned(), value]).collect()
}

/// What was weaker than the rules ask; first, that these were older rules.
fn caveats(verdict: &Verdict) -> Vec<String> {
    let old = verdict.is_by_old_rules().then(|| {
        let version = verdict.version;
        format!("judged under old rules (verdict version {version}) that accepted known attacks: judge it again")
    });
    old.into_iter().chain(verdict.caveats.iter().cloned()).collect()
}
