//! The workloads of a verdict, in words.

use warpwright_record::verdict::WorkloadVerdict;

use crate::figures;
use crate::text::one_line;

/// Workloads that a line names.
const NAMED: usize = 12;
/// Characters of a workload's name that it shows.
const NAME_WIDTH: usize = 40;

/// A candidate's speed-up over the best baseline on each workload, in one line; `None` where the task has one set of
/// inputs.
pub(crate) fn line(workloads: &[WorkloadVerdict]) -> Option<String> {
    if workloads.is_empty() {
        return None;
    }
    let mut each: Vec<String> = workloads.iter().take(NAMED).map(one).collect();
    if workloads.len() > NAMED {
        each.push(format!("and {} more", workloads.len() - NAMED));
    }
    Some(format!("workloads: {}", each.join(", ")))
}

fn one(workload: &WorkloadVerdict) -> String {
    let name = one_line(&workload.name, NAME_WIDTH);
    let result = match (&workload.refused, workload.speedup.best) {
        (Some(_), _) => "refused".to_owned(),
        (None, _) if !workload.verified => "failed".to_owned(),
        (None, Some(best)) => figures::speedup(&best),
        (None, None) => "verified".to_owned(),
    };
    let held_out = if workload.held_out { " (held out)" } else { "" };
    format!("{name}{held_out} {result}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpwright_record::interval::Interval;
    use warpwright_record::verdict::Speedup;

    #[test]
    fn each_workload_is_told_in_one_line() {
        assert_eq!(line(&[]), None);
        let refused = WorkloadVerdict::refused("c\u{1b}[2J".to_owned(), false, "no".to_owned());
        let best = Some(Interval { value: 2.0, low: 1.9, high: 2.1 });
        let speedup = Speedup { best, ..Speedup::default() };
        let good = |name: &str, held_out| WorkloadVerdict {
            verified: true,
            speedup: speedup.clone(),
            ..WorkloadVerdict {
                refused: None,
                ..WorkloadVerdict::refused(name.to_owned(), held_out, String::new())
            }
        };
        let told = line(&[good("a", false), good("b", true), refused]).unwrap();
        assert!(told.starts_with("workloads: a 2.00x [1.90"), "{told}");
        assert!(told.contains(", b (held out) 2.00x"), "{told}");
        assert!(told.ends_with(" refused") && !told.contains('\u{1b}'), "{told}");
        let many = vec![good("a", false); 14];
        assert!(line(&many).unwrap().ends_with("and 2 more"));
    }
}
