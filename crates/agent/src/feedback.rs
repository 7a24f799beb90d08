//! A verdict as text for a policy.
//!
//! `utils/compile.sh`, `utils.verification` and `utils.profiling` print this text. It contains only facts of the
//! verdict, so that a policy that reads the data gets the same facts.

pub mod findings;

use std::fmt::Write;

use warpwright_record::inputs::InputFamily;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Diagnostic, Failure, Mismatch, Severity, Stage, Tier, Verdict};

use crate::elide::{clip_line, elide_middle};

/// Maximum compiler messages shown.
const MAX_DIAGNOSTICS: usize = 12;
/// Maximum bytes shown of the candidate's own output.
const MAX_OUTPUT_BYTES: usize = 4_000;
/// Maximum bytes of one compiler message.
const MAX_MESSAGE_BYTES: usize = 1_500;

/// Whether the candidate reached the requested stage without a finding.
pub fn succeeded(verdict: &Verdict) -> bool {
    let right = verdict.stage == Stage::Built || verdict.verified;
    right && verdict.failure.is_none() && verdict.integrity.is_empty()
}

/// The verdict as text.
pub fn render(verdict: &Verdict) -> String {
    let mut text = String::new();
    for finding in &verdict.integrity {
        line(&mut text, &format!("INTEGRITY {}: {}", finding.class, finding.message));
    }
    match &verdict.failure {
        Some(failure) => render_failure(&mut text, failure),
        // What was found against its honesty has been told, and it is not right.
        None if !verdict.integrity.is_empty() => {}
        None => render_success(&mut text, verdict),
    }
    render_checks(&mut text, verdict);
    if verdict.failure.is_none() {
        render_diagnostics(&mut text, &verdict.diagnostics);
    }
    render_kernels(&mut text, verdict);
    for caveat in &verdict.caveats {
        line(&mut text, &format!("note: {caveat}"));
    }
    text
}

fn render_success(text: &mut String, verdict: &Verdict) {
    match verdict.stage {
        Stage::Built => {
            line(text, &format!("BUILD OK ({:.2} s)", verdict.seconds.build));
        }
        Stage::Verified => {
            line(text, &format!("VERIFICATION OK ({} checks)", verdict.checks.len()));
        }
        Stage::Measured => {
            line(text, "PROFILING OK");
            render_times(text, verdict);
        }
    }
}

fn render_times(text: &mut String, verdict: &Verdict) {
    let (times, speedup) = (&verdict.times_ms, &verdict.speedup);
    let how = match verdict.tier {
        // Without its Python, unlike the baselines.
        Tier::Device => " (device tier)",
        Tier::Host if verdict.device == "cpu" => " (cpu device)",
        Tier::Host => "",
    };
    if let Some(candidate) = &times.candidate {
        line(text, &format!("candidate        {} ms{how}", interval(candidate)));
    }
    let rows = [
        ("eager", &times.eager, &speedup.eager),
        ("compile", &times.compile, &speedup.compile),
        ("reduce-overhead", &times.reduce_overhead, &speedup.reduce_overhead),
        ("max-autotune", &times.max_autotune, &speedup.max_autotune),
    ];
    for (name, time, ratio) in rows {
        if let Some(time) = time {
            let ratio =
                ratio.as_ref().map_or_else(String::new, |r| format!("  speed-up {}x", interval(r)));
            line(text, &format!("{name:<16} {} ms{ratio}", interval(time)));
        }
    }
    if let (Some(best), Some(name)) = (&speedup.best, &speedup.best_baseline) {
        line(text, &format!("best baseline is {name}: speed-up {}x", interval(best)));
    }
    render_workloads(text, verdict);
    if let (Some(floor), Some(candidate)) = (verdict.floor_ms, &times.candidate)
        && candidate.value > 0.0
    {
        let share = 100.0 * floor / candidate.value;
        line(
            text,
            &format!(
                "floor {floor:.4} ms: {:.1} MB must move; the candidate is at {share:.0} % of that \
                 speed",
                verdict.unavoidable_bytes as f64 / 1e6
            ),
        );
    }
    if let Some(conditions) = &verdict.conditions {
        line(text, &format!("machine: {conditions}"));
    }
    if let Some(prepare) = times.prepare {
        line(text, &format!("prepare() took {prepare:.2} ms, once, not counted"));
    }
    let reward = &verdict.reward;
    line(
        text,
        &format!(
            "reward: paper {}, speedup {:.3}, bounded {:.3}",
            reward.paper, reward.speedup, reward.bounded
        ),
    );
}

fn render_workloads(text: &mut String, verdict: &Verdict) {
    if verdict.workloads.is_empty() {
        return;
    }
    line(text, "times and speed-ups above are geometric means over the workloads:");
    for workload in verdict.workloads.iter().filter(|workload| workload.refused.is_none()) {
        let speedup = &workload.speedup;
        let time = workload.times_ms.candidate.as_ref().map(interval).unwrap_or_default();
        let best = speedup.best.as_ref().zip(speedup.best_baseline.as_ref());
        let best = best.map(|(best, name)| format!("  {}x over {name}", interval(best)));
        let held_out = if workload.held_out { " (held out)" } else { "" };
        let (name, best) = (&workload.name, best.unwrap_or_default());
        line(text, &format!("  {name}{held_out}: {time} ms{best}"));
    }
}

fn render_failure(text: &mut String, failure: &Failure) {
    let class = serde_json::to_value(failure.class)
        .ok()
        .and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default();
    let code = failure.cuda_error.map_or_else(String::new, |c| format!(" (CUDA error {c})"));
    line(
        text,
        &format!(
            "FAILED {class}{code}: {}",
            elide_middle(failure.message.trim_end(), MAX_MESSAGE_BYTES)
        ),
    );
    if let Some(mismatch) = &failure.mismatch {
        render_mismatch(text, mismatch);
    }
    render_diagnostics(text, &failure.diagnostics);
    if !failure.output_tail.trim().is_empty() {
        line(text, "output of the candidate:");
        line(text, elide_middle(failure.output_tail.trim_end(), MAX_OUTPUT_BYTES).as_str());
    }
}

fn render_mismatch(text: &mut String, mismatch: &Mismatch) {
    let percent = 100.0 * mismatch.elements as f64 / mismatch.of.max(1) as f64;
    line(
        text,
        &format!(
            "output {} on {}: {} of {} elements ({percent:.3} %) are outside the tolerance \
             (atol {:.3e}, rtol {:.3e}); largest absolute error {:.3e}",
            mismatch.output,
            mismatch.check,
            mismatch.elements,
            mismatch.of,
            mismatch.atol,
            mismatch.rtol,
            mismatch.max_abs_error
        ),
    );
    if mismatch.family != InputFamily::Own {
        let what = mismatch.family.description();
        line(text, &format!("these inputs are {what}; the reference is defined on them"));
    }
    for element in &mismatch.examples {
        let index: Vec<String> = element.index.iter().map(u64::to_string).collect();
        line(text, &format!("  [{}] {}", index.join(", "), element.text));
    }
}

fn render_diagnostics(text: &mut String, diagnostics: &[Diagnostic]) {
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    // Errors first: a build that failed over one line may carry a hundred warnings.
    let ordered = diagnostics
        .iter()
        .filter(|d| d.severity == Severity::Error)
        .chain(diagnostics.iter().filter(|d| d.severity != Severity::Error && errors == 0));
    for diagnostic in ordered.clone().take(MAX_DIAGNOSTICS) {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let place = match (&diagnostic.file, diagnostic.line, diagnostic.column) {
            (Some(file), Some(row), Some(column)) => format!("{file}:{row}:{column}: "),
            (Some(file), Some(row), None) => format!("{file}:{row}: "),
            (Some(file), None, _) => format!("{file}: "),
            _ => String::new(),
        };
        let message = clip_line(diagnostic.message.trim_end(), MAX_MESSAGE_BYTES);
        line(text, &format!("{place}{severity}: {message}"));
        if !diagnostic.excerpt.trim().is_empty() {
            let excerpt = elide_middle(diagnostic.excerpt.trim_end(), MAX_MESSAGE_BYTES);
            line(text, &excerpt);
        }
    }
    let shown = ordered.clone().count().min(MAX_DIAGNOSTICS);
    if diagnostics.len() > shown {
        line(text, &format!("[... {} more compiler messages]", diagnostics.len() - shown));
    }
}

fn render_checks(text: &mut String, verdict: &Verdict) {
    for check in &verdict.checks {
        let mark = if check.passed { "ok  " } else { "FAIL" };
        line(
            text,
            &format!(
                "{mark} {}: largest error {:.3e}, the reference's own {:.3e}, atol {:.3e}, rtol \
                 {:.3e}, truth {}",
                check.name,
                check.max_abs_error,
                check.reference_max_abs_error,
                check.atol,
                check.rtol,
                check.truth
            ),
        );
    }
}

fn render_kernels(text: &mut String, verdict: &Verdict) {
    for kernel in &verdict.kernels {
        let spills = kernel.spill_store_bytes + kernel.spill_load_bytes;
        line(
            text,
            &format!(
                "kernel {} ({}): {} registers, {spills} bytes spilled, {} bytes shared, {} bytes \
                 stack",
                clip_line(&kernel.name, 200),
                kernel.arch,
                kernel.registers,
                kernel.shared_bytes,
                kernel.stack_bytes
            ),
        );
    }
}

fn interval(figure: &Interval) -> String {
    format!("{:.4} [{:.4}, {:.4}]", figure.value, figure.low, figure.high)
}

fn line(text: &mut String, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests;
