//! The results as text: outcomes, and reasons by count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{RecordReport, TrialOutcome};

/// The results as tables.
pub(crate) fn render(report: &RecordReport) -> String {
    let mut text = String::new();
    let share = report.share.map_or_else(String::new, |share| format!(", {:.1} %", 100.0 * share));
    let _ = writeln!(
        text,
        "{} candidates, {} that a tier accepts, {} of these recorded{share}\n",
        report.candidates, report.admissible, report.recorded
    );
    let mut reasons: BTreeMap<(TrialOutcome, String), usize> = BTreeMap::new();
    for row in &report.rows {
        *reasons.entry((row.outcome, general(&row.reason))).or_default() += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|((outcome, _), count)| (*outcome, std::cmp::Reverse(*count)));
    for ((outcome, reason), count) in reasons {
        let _ = writeln!(text, "{count:>5}  {:<12} {reason}", outcome.name());
    }
    text
}

/// A reason without its numbers, so that the same reason of several candidates is one row.
fn general(reason: &str) -> String {
    let mut out = String::with_capacity(reason.len());
    let mut inside = false;
    for c in reason.chars() {
        match (c.is_ascii_digit(), inside) {
            (true, true) => {}
            // A digit within a name belongs to it: `conv2d`.
            (true, false) if !out.ends_with(|last: char| last.is_alphanumeric() || last == '_') => {
                out.push('N');
                inside = true;
            }
            _ => {
                inside = false;
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;

    fn row(candidate: &str, outcome: TrialOutcome, reason: &str) -> Row {
        let (candidate, reason) = (candidate.to_owned(), reason.to_owned());
        Row { candidate, outcome, launches: 1, others: 0, reason, seconds: 1.0 }
    }

    #[test]
    fn reasons_are_counted_without_their_numbers() {
        let report = RecordReport::of(vec![
            row("c", TrialOutcome::Refused, "byte 8 of parameter 12"),
            row("a", TrialOutcome::Refused, "byte 4 of parameter 1"),
            row("d", TrialOutcome::Forbidden, "torch operator conv2d"),
            row("b", TrialOutcome::Recorded, ""),
        ]);
        assert_eq!((report.candidates, report.admissible, report.recorded), (4, 3, 1));
        let text = render(&report);
        assert!(text.contains("33.3 %"), "{text}");
        assert!(text.contains("    2  refused      byte N of parameter N"), "{text}");
        assert!(text.contains("    1  forbidden    torch operator conv2d"), "{text}");
    }
}
