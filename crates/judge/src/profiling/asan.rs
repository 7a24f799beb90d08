//! Reports of `AddressSanitizer`, which stands in for memcheck on the cpu device.
//!
//! ```text
//! ==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000014 at pc 0x...
//! WRITE of size 4 at 0x602000000014 thread T0
//!     #0 0x7f2c in scale(hostcuda::Index const&, float*) kernels/k.cu:5
//! 0x602000000014 is located 0 bytes after 4-byte region [...]
//! ```

use warpwright_record::findings::{MAX_KERNELS, SanitizerFinding};

use super::clean::{MAX_LINE, MAX_NAME, clean};

const HEAD: &str = "ERROR: AddressSanitizer: ";

/// Distinct findings in order, and how many there were.
pub(crate) fn parse(text: &str) -> (Vec<SanitizerFinding>, u64) {
    let mut findings: Vec<SanitizerFinding> = Vec::new();
    let mut total = 0;
    let mut reports = text.split(HEAD);
    // What comes before the first is not a report.
    let _ = reports.next();
    for report in reports {
        total += 1;
        let finding = finding(report);
        let same = |known: &SanitizerFinding| {
            (&known.what, &known.file, known.line) == (&finding.what, &finding.file, finding.line)
        };
        match findings.iter().position(same) {
            Some(at) => findings[at].times += 1,
            None if findings.len() < MAX_KERNELS => findings.push(finding),
            None => {}
        }
    }
    (findings, total)
}

fn finding(report: &str) -> SanitizerFinding {
    let mut lines = report.lines();
    let head = lines.next().unwrap_or_default();
    let kind = head.split(' ').next().unwrap_or_default();
    let mut found = SanitizerFinding {
        what: clean(kind, MAX_NAME),
        address: head
            .split_once(" on address ")
            .or_else(|| head.split_once(" on unknown address "))
            .and_then(|(_, rest)| rest.split(' ').next())
            .filter(|address| address.starts_with("0x"))
            .map(|address| clean(address, MAX_NAME)),
        times: 1,
        ..SanitizerFinding::default()
    };
    let mut frames = true;
    // The first stack is the access; what comes after an empty line is about the memory.
    for line in lines.take(200) {
        let body = line.trim();
        if body.starts_with("==") {
            break;
        } else if body.is_empty() {
            frames = false;
        } else if let Some(access) = access(body) {
            found.what = clean(&format!("{}: {access}", found.what), MAX_LINE);
        } else if frames && found.file.is_none() {
            if let Some((kernel, file, row)) = frame(body) {
                found.kernel = Some(kernel);
                found.file = Some(file);
                found.line = Some(row);
            }
        } else if body.contains(" is located ") && found.details.is_empty() {
            found.details.push(clean(body, MAX_LINE));
        }
    }
    found
}

/// `WRITE of size 4` of such a line.
fn access(body: &str) -> Option<&str> {
    let known = body.starts_with("WRITE of size ") || body.starts_with("READ of size ");
    known.then(|| body.split(" at ").next().unwrap_or(body))
}

/// Function, file and line of `#0 0x7f2c in f(int) kernels/k.cu:5:3`, if the file is the candidate's.
fn frame(body: &str) -> Option<(String, String, u32)> {
    let (_, place) = body.strip_prefix('#')?.split_once(" in ")?;
    let (function, file) = place.rsplit_once(' ')?;
    let mut parts = file.split(':');
    let path = parts.next()?;
    let line = parts.next()?.parse().ok()?;
    // Absolute paths are ours: headers, torch, the interpreter.
    let at = path.rfind("kernels/").filter(|_| path.contains(".cu") || path.contains(".cpp"))?;
    let function = function.replace("hostcuda::Index const&, ", "");
    Some((clean(&function, MAX_NAME), clean(&path[at..], MAX_NAME), line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From GCC 12's AddressSanitizer, shortened.
    const REPORT: &str = include_str!("../../tests/fixtures/asan.txt");

    #[test]
    fn an_overflow_has_its_kernel_and_line() {
        let (findings, total) = parse(REPORT);
        assert_eq!(total, 1);
        let found = &findings[0];
        assert_eq!(found.what, "heap-buffer-overflow: WRITE of size 4");
        assert_eq!(found.kernel.as_deref(), Some("bias_relu<8>"));
        assert_eq!((found.file.as_deref(), found.line), (Some("kernels/k.cu"), Some(5)));
        assert!(found.address.as_ref().is_some_and(|address| address.starts_with("0x7")));
        assert!(found.details[0].contains("0 bytes to the right of 524288-byte region"));
    }

    #[test]
    fn text_without_a_report_is_no_finding() {
        assert_eq!(parse("Segmentation fault\n"), (Vec::new(), 0));
    }

    proptest! {
        #[test]
        fn hostile_reports_are_survived(text in r"(ERROR: AddressSanitizer: |#0 0x1 in |kernels/a.cu:|WRITE of size |[a-z0-9: /\n]|é){0,300}") {
            let (findings, total) = parse(&text);
            prop_assert!(findings.len() <= MAX_KERNELS && findings.len() as u64 <= total);
        }
    }
}
