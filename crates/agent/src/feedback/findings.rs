//! Findings as text for a policy: what `--kernels`, `--counters` and `--sanitize` print.

use std::fmt::Write;

use warpwright_record::findings::{
    ActivityKind, Answer, CallProfile, Findings, KernelCounters, KernelTime, Occupancy,
    OccupancyLimit, SanitizerFinding, SanitizerOutcome, SanitizerReport,
};

use crate::elide::clip_line;

/// Maximum length of a kernel's name.
const MAX_NAME_BYTES: usize = 160;
/// Maximum length of a tool's line.
const MAX_LINE_BYTES: usize = 400;
/// If kernels run for less than this fraction of a call's time, the call is launch-bound.
const LAUNCH_BOUND: f64 = 0.7;

/// Whether the inspection gave an answer and found no error.
pub fn good(findings: &Findings) -> bool {
    match &findings.answer {
        Answer::Kernels { .. } | Answer::Counters { .. } => true,
        Answer::Failed { .. } | Answer::Unavailable { .. } => false,
        Answer::Sanitized { reports } => {
            let stopped =
                |r: &SanitizerReport| matches!(r.outcome, SanitizerOutcome::Stopped { .. });
            let errors = |r: &SanitizerReport| r.findings.iter().any(|f| !f.warning);
            !reports.iter().any(|r| stopped(r) || errors(r))
                && reports.iter().any(|r| r.outcome == SanitizerOutcome::Complete)
        }
    }
}

/// The findings as text.
pub fn render(findings: &Findings) -> String {
    let mut text = String::new();
    match &findings.answer {
        Answer::Kernels { profile } => render_profile(&mut text, profile),
        Answer::Counters { kernels, left_out } => {
            line(&mut text, &format!("COUNTERS of {} launches of one call", kernels.len()));
            for kernel in kernels {
                render_counters(&mut text, kernel);
            }
            if *left_out > 0 {
                line(&mut text, &format!("[... {left_out} more launches]"));
            }
        }
        Answer::Sanitized { reports } => {
            for report in reports {
                render_report(&mut text, report);
            }
        }
        Answer::Failed { failure } => super::render_failure(&mut text, failure),
        Answer::Unavailable { reason, hint } => {
            line(&mut text, &format!("NOT AVAILABLE here: {}", clip_line(reason, MAX_LINE_BYTES)));
            if let Some(hint) = hint {
                line(&mut text, &format!("hint: {}", clip_line(hint, MAX_LINE_BYTES)));
            }
        }
    }
    for caveat in &findings.caveats {
        line(&mut text, &format!("note: {caveat}"));
    }
    text
}

fn render_profile(text: &mut String, profile: &CallProfile) {
    let CallProfile { calls, wall_us, busy_us, gap_us, launches, .. } = profile;
    line(text, &format!("KERNELS of one call (mean of {calls} after warm-up)"));
    line(
        text,
        &format!(
            "{wall_us:.1} us a call with tracing on: {busy_us:.1} us in {launches:.1} kernels and \
             copies, {gap_us:.1} us in gaps between them"
        ),
    );
    if profile.kernels.is_empty() {
        line(text, "no kernel was seen: forward launched none");
        return;
    }
    line(
        text,
        &format!(
            "{:>7} {:>7} {:>8}  {:<25} {:>4} {:>7}  {:<9}  kernel",
            "us", "share", "launches", "grid x block", "regs", "shared", "occupancy"
        ),
    );
    for kernel in &profile.kernels {
        render_kernel(text, kernel);
    }
    if profile.left_out > 0 {
        line(text, &format!("[... {} more kernels]", profile.left_out));
    }
    render_roof(text, profile);
    if *launches >= 2.0 && *gap_us > (1.0 - LAUNCH_BOUND) * (busy_us + gap_us) {
        line(
            text,
            "the device waits for launches: fewer, larger kernels would help more than faster ones",
        );
    }
}

fn render_kernel(text: &mut String, kernel: &KernelTime) {
    let place = match kernel.kind {
        ActivityKind::Kernel => format!("{} x {}", extent(kernel.grid), extent(kernel.block)),
        ActivityKind::Copy => "copy".to_owned(),
        ActivityKind::Fill => "fill".to_owned(),
    };
    let moved = match (kernel.bytes, kernel.bandwidth_bytes_per_second) {
        (Some(bytes), Some(rate)) => {
            format!("  {:.2} MB at {:.1} GB/s", bytes as f64 / 1e6, rate / 1e9)
        }
        _ => String::new(),
    };
    line(
        text,
        &format!(
            "{:>7.1} {:>5.1} % {:>8.1}  {place:<25} {:>4} {:>7}  {:<9}  {}{moved}",
            kernel.total_us,
            100.0 * kernel.share,
            kernel.launches,
            kernel.registers.map_or_else(|| "-".to_owned(), |n| n.to_string()),
            kernel.shared_bytes,
            kernel.occupancy.as_ref().map_or_else(|| "-".to_owned(), occupancy),
            clip_line(&kernel.name, MAX_NAME_BYTES),
        ),
    );
}

fn render_roof(text: &mut String, profile: &CallProfile) {
    let (Some(rate), Some(share), Some(roof)) =
        (profile.bandwidth_bytes_per_second, profile.roof_share, profile.ceiling_bytes_per_second)
    else {
        return;
    };
    line(
        text,
        &format!(
            "{:.2} MB must move (inputs, parameters and outputs once): {:.1} GB/s while busy, {:.0} % \
             of the measured {:.1} GB/s",
            profile.unavoidable_bytes as f64 / 1e6,
            rate / 1e9,
            100.0 * share,
            roof as f64 / 1e9,
        ),
    );
    let low: Vec<&KernelTime> = profile
        .kernels
        .iter()
        .filter(|k| k.share > 0.2 && k.occupancy.is_some_and(|o| o.share() < 0.4))
        .collect();
    for kernel in low {
        if let Some(occupancy) = kernel.occupancy {
            line(
                text,
                &format!(
                    "{}: {} of {} warps fit a multiprocessor; {} in the way",
                    clip_line(&kernel.name, MAX_NAME_BYTES),
                    occupancy.warps,
                    occupancy.most_warps,
                    limit(occupancy.limit),
                ),
            );
        }
    }
}

fn occupancy(occupancy: &Occupancy) -> String {
    let by = match occupancy.limit {
        OccupancyLimit::Threads => "thr",
        OccupancyLimit::Blocks => "blk",
        OccupancyLimit::Registers => "reg",
        OccupancyLimit::SharedMemory => "shm",
    };
    format!("{:.0} % {by}", 100.0 * occupancy.share())
}

fn limit(limit: OccupancyLimit) -> &'static str {
    match limit {
        OccupancyLimit::Threads => "the number of threads is",
        OccupancyLimit::Blocks => "the number of blocks is",
        OccupancyLimit::Registers => "registers are",
        OccupancyLimit::SharedMemory => "shared memory is",
    }
}

fn render_counters(text: &mut String, kernel: &KernelCounters) {
    let name = clip_line(&kernel.name, MAX_NAME_BYTES);
    line(text, &format!("{name}  {} x {}", extent(kernel.grid), extent(kernel.block)));
    let mut figures = Vec::new();
    let mut push = |name: &str, value: Option<f64>, unit: &str, digits: usize| {
        if let Some(value) = value {
            figures.push(format!("{name} {value:.digits$}{unit}"));
        }
    };
    push("time", kernel.time_us, " us", 2);
    push("device memory", kernel.dram_bytes.map(|b| b as f64 / 1e6), " MB", 2);
    push("memory throughput", kernel.dram_percent, " %", 1);
    push("multiprocessor throughput", kernel.sm_percent, " %", 1);
    push("occupancy", kernel.achieved_occupancy_percent, " %", 1);
    push("of a possible", kernel.theoretical_occupancy_percent, " %", 1);
    push("L2 hits", kernel.l2_hit_percent, " %", 1);
    push("sectors per load request", kernel.load_sectors_per_request, "", 1);
    push("per store request", kernel.store_sectors_per_request, "", 1);
    push("bank conflicts", kernel.bank_conflicts.map(|n| n as f64), "", 0);
    push("registers", kernel.registers.map(f64::from), "", 0);
    line(text, &format!("  {}", figures.join(", ")));
    if !kernel.stalls.is_empty() {
        let stalls: Vec<String> = kernel
            .stalls
            .iter()
            .map(|s| format!("{} {:.1}", clip_line(&s.reason, MAX_NAME_BYTES), s.cycles))
            .collect();
        line(text, &format!("  warps wait (cycles per instruction): {}", stalls.join(", ")));
    }
    for hint in &kernel.hints {
        line(text, &format!("  -> {hint}"));
    }
}

fn render_report(text: &mut String, report: &SanitizerReport) {
    let (check, tool) = (report.check.name(), &report.tool);
    match &report.outcome {
        SanitizerOutcome::Unavailable { reason } => {
            let reason = clip_line(reason, MAX_LINE_BYTES);
            line(text, &format!("{check}: NOT AVAILABLE here: {reason}"));
            return;
        }
        SanitizerOutcome::Complete if report.findings.is_empty() => {
            line(text, &format!("{check}: OK, nothing found ({tool})"));
            return;
        }
        SanitizerOutcome::Complete => {
            line(text, &format!("{check}: {} found ({tool})", report.total));
        }
        SanitizerOutcome::Stopped { message } => {
            let message = clip_line(message, MAX_LINE_BYTES);
            line(
                text,
                &format!("{check}: {} found, then it stopped: {message} ({tool})", report.total),
            );
        }
    }
    for finding in &report.findings {
        render_finding(text, finding);
    }
}

fn render_finding(text: &mut String, finding: &SanitizerFinding) {
    let level = if finding.warning { "warning" } else { "ERROR" };
    let mut place = String::new();
    if let Some(kernel) = &finding.kernel {
        let _ = write!(place, " in {}", clip_line(kernel, MAX_NAME_BYTES));
    }
    if let Some(file) = &finding.file {
        let _ = write!(place, " at {}", clip_line(file, MAX_NAME_BYTES));
        if let Some(row) = finding.line {
            let _ = write!(place, ":{row}");
        }
    }
    if let (Some([x, y, z]), Some([bx, by, bz])) = (finding.thread, finding.block) {
        let _ = write!(place, ", first in thread ({x},{y},{z}) of block ({bx},{by},{bz})");
    }
    if let Some(address) = &finding.address {
        let _ = write!(place, ", address {}", clip_line(address, MAX_NAME_BYTES));
    }
    let times =
        if finding.times > 1 { format!(" ({} times)", finding.times) } else { String::new() };
    line(text, &format!("  {level} {}{place}{times}", clip_line(&finding.what, MAX_LINE_BYTES)));
    for detail in &finding.details {
        line(text, &format!("    {}", clip_line(detail, MAX_LINE_BYTES)));
    }
}

/// `128`, `8x4` or `8x4x2`.
fn extent([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (0 | 1, 0 | 1) => x.to_string(),
        (_, 0 | 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    }
}

fn line(text: &mut String, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use warpwright_record::findings::{FINDINGS_VERSION, Inspection, SanitizerCheck, Stall};
    use warpwright_record::fingerprint::Fingerprint;

    use super::*;

    fn of(answer: Answer) -> Findings {
        Findings {
            version: FINDINGS_VERSION,
            task: "t".to_owned(),
            candidate: "c".to_owned(),
            device: "cuda:0".to_owned(),
            inspection: Inspection::Kernels,
            answer,
            caveats: vec!["every call got the same inputs".to_owned()],
            build_seconds: 0.0,
            run_seconds: 1.0,
            fingerprint: Fingerprint::default(),
        }
    }

    fn kernel(name: &str, total_us: f64, share: f64) -> KernelTime {
        let limit = OccupancyLimit::Registers;
        KernelTime {
            name: name.to_owned(),
            kind: ActivityKind::Kernel,
            launches: 1.0,
            total_us,
            share,
            grid: [4096, 1, 1],
            block: [32, 8, 1],
            registers: Some(168),
            shared_bytes: 4096,
            occupancy: Some(Occupancy { blocks: 1, warps: 8, most_warps: 64, limit }),
            bytes: None,
            bandwidth_bytes_per_second: None,
        }
    }

    #[test]
    fn profile_is_rendered_as_a_table_with_explanations() {
        let fill = KernelTime {
            kind: ActivityKind::Fill,
            grid: [0; 3],
            block: [0; 3],
            registers: None,
            shared_bytes: 0,
            occupancy: None,
            bytes: Some(4_000_000),
            bandwidth_bytes_per_second: Some(4e11),
            ..kernel("Memset (Device)", 10.0, 0.1)
        };
        let profile = CallProfile {
            calls: 10,
            wall_us: 220.0,
            busy_us: 100.0,
            gap_us: 90.0,
            launches: 2.0,
            kernels: vec![kernel("gemm(float const*, float*)", 90.0, 0.9), fill],
            left_out: 3,
            unavoidable_bytes: 100_000_000,
            bandwidth_bytes_per_second: Some(1e12),
            roof_share: Some(0.25),
            ceiling_bytes_per_second: Some(4_000_000_000_000),
        };
        let findings = of(Answer::Kernels { profile });
        assert!(good(&findings));
        insta::assert_snapshot!(render(&findings), @r"
        KERNELS of one call (mean of 10 after warm-up)
        220.0 us a call with tracing on: 100.0 us in 2.0 kernels and copies, 90.0 us in gaps between them
             us   share launches  grid x block              regs  shared  occupancy  kernel
           90.0  90.0 %      1.0  4096 x 32x8                168    4096  12 % reg   gemm(float const*, float*)
           10.0  10.0 %      1.0  fill                         -       0  -          Memset (Device)  4.00 MB at 400.0 GB/s
        [... 3 more kernels]
        100.00 MB must move (inputs, parameters and outputs once): 1000.0 GB/s while busy, 25 % of the measured 4000.0 GB/s
        gemm(float const*, float*): 8 of 64 warps fit a multiprocessor; registers are in the way
        the device waits for launches: fewer, larger kernels would help more than faster ones
        note: every call got the same inputs
        ");
    }

    #[test]
    fn counters_are_rendered_with_hints() {
        let kernel = KernelCounters {
            name: "strided(float*)".to_owned(),
            grid: [8, 8, 1],
            block: [256, 1, 1],
            time_us: Some(12.5),
            dram_bytes: Some(64_000_000),
            load_sectors_per_request: Some(32.0),
            stalls: vec![Stall { reason: "long_scoreboard".to_owned(), cycles: 31.25 }],
            hints: vec!["loads are not coalesced".to_owned()],
            ..KernelCounters::default()
        };
        let findings = of(Answer::Counters { kernels: vec![kernel], left_out: 0 });
        insta::assert_snapshot!(render(&findings), @r"
        COUNTERS of 1 launches of one call
        strided(float*)  8x8 x 256
          time 12.50 us, device memory 64.00 MB, sectors per load request 32.0
          warps wait (cycles per instruction): long_scoreboard 31.2
          -> loads are not coalesced
        note: every call got the same inputs
        ");
    }

    #[test]
    fn sanitizer_is_good_only_if_a_check_ran_and_found_nothing() {
        let report = |check, outcome, findings: Vec<SanitizerFinding>| SanitizerReport {
            check,
            tool: "compute-sanitizer".to_owned(),
            outcome,
            total: findings.iter().map(|f| f.times).sum(),
            findings,
        };
        let clean = || report(SanitizerCheck::Memcheck, SanitizerOutcome::Complete, Vec::new());
        let none = || {
            let reason = "no tool".to_owned();
            report(SanitizerCheck::Racecheck, SanitizerOutcome::Unavailable { reason }, Vec::new())
        };
        let wild = SanitizerFinding {
            what: "Invalid __global__ write of size 4 bytes".to_owned(),
            kernel: Some("wild(float*)".to_owned()),
            file: Some("k.cu".to_owned()),
            line: Some(12),
            thread: Some([3, 0, 0]),
            block: Some([0, 0, 0]),
            address: Some("0x7f00".to_owned()),
            details: vec!["is out of bounds".to_owned()],
            times: 32,
            ..SanitizerFinding::default()
        };
        let warned = SanitizerFinding { warning: true, ..wild.clone() };
        let said = |reports| {
            let findings = of(Answer::Sanitized { reports });
            (good(&findings), render(&findings))
        };
        assert!(said(vec![clean(), none()]).0);
        assert!(!said(vec![none()]).0);
        let done = SanitizerOutcome::Complete;
        assert!(said(vec![report(SanitizerCheck::Racecheck, done.clone(), vec![warned])]).0);
        let (fine, text) = said(vec![report(SanitizerCheck::Memcheck, done, vec![wild]), none()]);
        assert!(!fine);
        insta::assert_snapshot!(text, @r"
        memcheck: 32 found (compute-sanitizer)
          ERROR Invalid __global__ write of size 4 bytes in wild(float*) at k.cu:12, first in thread (3,0,0) of block (0,0,0), address 0x7f00 (32 times)
            is out of bounds
        racecheck: NOT AVAILABLE here: no tool
        note: every call got the same inputs
        ");
    }
}
