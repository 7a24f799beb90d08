//! Parses the log of `compute-sanitizer` and groups its records by error and location.
//!
//! ```text
//! ========= Invalid __global__ write of size 4 bytes
//! =========     at kernel(float *)+0xb0 in k.cu:4
//! =========     by thread (0,0,0) in block (0,0,0)
//! =========     Access to 0x7f2caec00400 is out of bounds
//! =========     Saved host backtrace up to driver entry point at kernel launch time
//! =========         Host Frame: ...
//! =========
//! ========= ERROR SUMMARY: 1 error
//! ```

use warpwright_record::findings::{MAX_KERNELS, SanitizerFinding};

use super::clean::{MAX_LINE, MAX_NAME, clean, triple};

const PREFIX: &str = "=========";
/// Most details kept of a finding.
const MAX_DETAILS: usize = 4;

/// A parsed log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Distinct findings in order.
    pub(crate) findings: Vec<SanitizerFinding>,
    /// As the tool counted; at least what was printed.
    pub(crate) total: u64,
    /// Whether the log ends with a summary: the run finished.
    pub(crate) complete: bool,
    /// The tool's message about its own failure.
    pub(crate) trouble: Option<String>,
}

/// Reads a log. What is not understood is skipped.
pub(crate) fn parse(text: &str) -> Log {
    let mut log = Log::default();
    let mut open: Option<SanitizerFinding> = None;
    for line in text.lines() {
        // What the candidate printed lies elsewhere; still, only lines of the tool's form count.
        let Some(rest) = line.strip_prefix(PREFIX) else { continue };
        let body = rest.trim();
        if body.is_empty() {
            log.take(open.take());
        } else if let Some(summary) = summary(body) {
            log.take(open.take());
            log.complete = true;
            log.total = log.total.max(summary);
        } else if rest.starts_with("    ") {
            if let Some(finding) = &mut open {
                detail(finding, body);
            }
        } else {
            log.take(open.take());
            open = log.header(body);
        }
    }
    log.take(open);
    let printed = log.findings.iter().map(|f| f.times).sum();
    log.total = log.total.max(printed);
    log
}

impl Log {
    /// A line that begins a record, or says something about the run.
    fn header(&mut self, body: &str) -> Option<SanitizerFinding> {
        let plain = ["COMPUTE-SANITIZER", "Target application returned an error", "LEAK SUMMARY"];
        if plain.iter().any(|known| body.starts_with(known)) {
            return None;
        }
        let race = body.contains("reported between") || body.contains("hazard");
        if let (Some(error), false) = (body.strip_prefix("Error: "), race) {
            self.trouble.get_or_insert_with(|| clean(error, MAX_LINE));
            return None;
        }
        let warning = body.starts_with("Warning: ");
        let what = body.trim_start_matches("Error: ").trim_start_matches("Warning: ");
        let mut finding = SanitizerFinding {
            what: clean(what, MAX_LINE),
            warning,
            times: 1,
            ..SanitizerFinding::default()
        };
        // Race reported between Write access at race(float *)+0xb0 in k.cu:5
        if let Some((what, place)) = what.split_once(" access at ") {
            finding.what = clean(&format!("{what} access"), MAX_LINE);
            locate(&mut finding, place);
        }
        Some(finding)
    }

    /// Files a finished record under those that are the same but for thread and address.
    fn take(&mut self, finding: Option<SanitizerFinding>) {
        let Some(finding) = finding else { return };
        let same = |known: &&mut SanitizerFinding| {
            (&known.what, &known.kernel, &known.file, known.line)
                == (&finding.what, &finding.kernel, &finding.file, finding.line)
        };
        if let Some(known) = self.findings.iter_mut().find(same) {
            known.times = known.times.saturating_add(finding.times);
        } else if self.findings.len() < MAX_KERNELS {
            self.findings.push(finding);
        }
    }
}

/// `ERROR SUMMARY: 66 errors`, `RACECHECK SUMMARY: 1 hazard displayed (...)`; not the line on how
/// many were not printed.
fn summary(body: &str) -> Option<u64> {
    let (kind, rest) = body.split_once(" SUMMARY: ")?;
    if !matches!(kind, "ERROR" | "RACECHECK") || rest.contains("not printed") {
        return Some(0).filter(|_| matches!(kind, "ERROR" | "RACECHECK"));
    }
    rest.split(' ').next()?.parse().ok()
}

/// An indented line of a record.
fn detail(finding: &mut SanitizerFinding, body: &str) {
    if body.starts_with("Host Frame:") || body.starts_with("Saved host backtrace") {
        return;
    }
    if let (Some(place), None) = (body.strip_prefix("at "), &finding.kernel) {
        locate(finding, place);
    } else if let Some(place) = body.strip_prefix("by thread ") {
        finding.thread = triple(place);
        finding.block = place.split_once(" in block ").and_then(|(_, block)| triple(block));
    } else if let Some(rest) =
        ["Access to ", "Access at ", "Address "].iter().find_map(|p| body.strip_prefix(p))
    {
        let (address, said) = rest.split_once(' ').unwrap_or((rest, ""));
        finding.address = Some(clean(address, MAX_NAME)).filter(|a| a.starts_with("0x"));
        note(finding, said);
    } else {
        // `and Read access at race(float *)+0xc0 in k.cu:5 [256 hazards]`
        if let Some((_, count)) = body.rsplit_once('[')
            && let Some(hazards) = count.strip_suffix(" hazards]").and_then(|n| n.parse().ok())
        {
            finding.times = hazards;
        }
        note(finding, body);
    }
}

fn note(finding: &mut SanitizerFinding, text: &str) {
    if !text.trim().is_empty() && finding.details.len() < MAX_DETAILS {
        finding.details.push(clean(text, MAX_LINE));
    }
}

/// `kernel(float *)+0xb0 in k.cu:4`, `kernel(float *)+0xb0`, `0xb0 in kernel(float *)`.
fn locate(finding: &mut SanitizerFinding, place: &str) {
    let (code, file) = match place.rsplit_once(" in ") {
        Some((code, file)) => (code, Some(file)),
        None => (place, None),
    };
    let name = code.rsplit_once("+0x").map_or(code, |(name, _)| name);
    finding.kernel = Some(clean(name, MAX_NAME));
    if let Some((path, line)) = file.and_then(|file| file.rsplit_once(':')) {
        finding.file = Some(clean(path, MAX_NAME));
        finding.line = line.parse().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From compute-sanitizer 2025.3.1 on an H200, with fewer repetitions.
    const MEMCHECK: &str = include_str!("../../tests/fixtures/memcheck.txt");
    const RACECHECK: &str = include_str!("../../tests/fixtures/racecheck.txt");
    const INITCHECK: &str = include_str!("../../tests/fixtures/initcheck.txt");

    #[test]
    fn an_invalid_write_is_one_finding_however_many_threads_make_it() {
        let log = parse(MEMCHECK);
        assert!(log.complete && log.trouble.is_none());
        assert_eq!(log.total, 66);
        insta::assert_debug_snapshot!(log.findings, @r#"
        [
            SanitizerFinding {
                what: "Invalid __global__ write of size 4 bytes",
                warning: false,
                kernel: Some(
                    "out_of_bounds(float *, int)",
                ),
                file: Some(
                    "k.cu",
                ),
                line: Some(
                    4,
                ),
                thread: Some(
                    [
                        0,
                        0,
                        0,
                    ],
                ),
                block: Some(
                    [
                        0,
                        0,
                        0,
                    ],
                ),
                address: Some(
                    "0x7f2caec00400",
                ),
                details: [
                    "is out of bounds",
                    "and is 1 bytes after the nearest allocation at 0x7f2caec00000 of size 1,024 bytes",
                ],
                times: 3,
            },
        ]
        "#);
    }

    #[test]
    fn a_race_lists_both_accesses() {
        let log = parse(RACECHECK);
        assert!(log.complete);
        insta::assert_debug_snapshot!(log.findings, @r#"
        [
            SanitizerFinding {
                what: "Race reported between Write access",
                warning: false,
                kernel: Some(
                    "race(float *)",
                ),
                file: Some(
                    "k.cu",
                ),
                line: Some(
                    5,
                ),
                thread: None,
                block: None,
                address: None,
                details: [
                    "and Read access at race(float *)+0xc0 in k.cu:5 [256 hazards]",
                ],
                times: 256,
            },
        ]
        "#);
    }

    #[test]
    fn uninitialised_reads_are_found() {
        let log = parse(INITCHECK);
        assert_eq!((log.total, log.findings.len()), (64, 1));
        assert_eq!(log.findings[0].what, "Uninitialized __global__ memory read of size 4 bytes");
        assert_eq!(log.findings[0].address.as_deref(), Some("0x7f22aec00000"));
    }

    #[test]
    fn a_clean_log_differs_from_a_failed_start() {
        let clean = parse("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n");
        assert_eq!(clean, Log { complete: true, ..Log::default() });
        let never = parse(
            "========= COMPUTE-SANITIZER\n\
             ========= Error: Target application terminated before first instrumented API call\n",
        );
        assert!(!never.complete && never.trouble.is_some() && never.findings.is_empty());
        assert_eq!(parse(""), Log::default());
    }

    proptest! {
        #[test]
        fn hostile_logs_are_survived(
            lines in prop::collection::vec("(=========)?( |    )?(at |by thread |Address |[a-z]+ SUMMARY: )?.{0,40}", 0..200),
        ) {
            let log = parse(&lines.join("\n"));
            prop_assert!(log.findings.len() <= MAX_KERNELS);
            for finding in &log.findings {
                prop_assert!(finding.what.len() <= MAX_LINE && finding.details.len() <= MAX_DETAILS);
            }
        }

        #[test]
        fn damaged_logs_are_survived(at in any::<prop::sample::Index>(), with: char) {
            let mut text: Vec<char> = MEMCHECK.chars().collect();
            let at = at.index(text.len());
            text[at] = with;
            let log = parse(&text.into_iter().collect::<String>());
            prop_assert!(log.findings.len() <= 6);
        }
    }
}
