//! An evaluation and later runs of some of its tasks, merged into one evaluation.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{AnalysisError, list};
use crate::evaluation::rows::{Row, RowState};
use crate::evaluation::table::tables;
use crate::evaluation::{Evaluation, Scored, call};
use crate::table::trimmed;
use crate::text::one_line;
use warpwright_record::verdict::Dtype;

/// Merges evaluations of one policy: the last one that has a task counts for it, with all of its
/// attempts at the task.
///
/// # Errors
/// [`AnalysisError::Empty`] if they have no episode, [`AnalysisError::Mixed`] if they have several policies, profiles or kinds of device.
pub fn merge(evaluations: &[Evaluation]) -> Result<Evaluation, AnalysisError> {
    let tables = || evaluations.iter().flat_map(|evaluation| &evaluation.tables);
    let of = |name: fn(&Scored) -> &str| -> BTreeSet<&str> { tables().map(name).collect() };
    let device = |table: &Scored| if table.is_cpu() { "cpu" } else { "cuda" };
    let facts = [
        ("policies", of(|table| &table.policy)),
        ("profiles", of(|table| table.profile.name())),
        ("dtypes", of(|table| table.dtype.map_or("their own", Dtype::name))),
        ("kinds of call", of(|table| call(table.backward))),
        ("kinds of device", tables().map(device).collect()),
    ];
    for (what, found) in facts {
        if found.len() > 1 {
            return Err(AnalysisError::Mixed { what, found: list(found) });
        }
    }
    // Tasks in the order of the first evaluation that has them.
    let mut tasks: Vec<(&str, Vec<&Row>)> = Vec::new();
    for evaluation in evaluations {
        let mut begun = BTreeSet::new();
        for row in &evaluation.rows {
            let is_first = begun.insert(row.task.as_str());
            match tasks.iter_mut().find(|(task, _)| *task == row.task) {
                Some((_, rows)) if is_first => *rows = vec![row],
                Some((_, rows)) => rows.push(row),
                None => tasks.push((&row.task, vec![row])),
            }
        }
    }
    let rows: Vec<Row> = tasks.into_iter().flat_map(|(_, rows)| rows).cloned().collect();
    let runs: Vec<&str> = evaluations.iter().map(|evaluation| evaluation.run.as_str()).collect();
    let run = runs.join(", ");
    if rows.is_empty() {
        let cure = "name a run of `warpwright eval` that has begun an episode";
        return Err(AnalysisError::Empty { run, what: "episode", cure });
    }
    Ok(Evaluation::from_rows(&run, rows))
}

/// A merged evaluation as text for a terminal `width` columns wide: its tables, and the tasks without
/// a verified kernel.
pub fn text(merged: &Evaluation, width: Option<u16>) -> String {
    let mut text = format!("{}\n", tables(merged, width));
    let is_wrong = |row: &&Row| row.state == RowState::Judged && !row.verified;
    for row in merged.rows.iter().filter(is_wrong) {
        let (task, result) = (one_line(&row.task, 60), one_line(&row.result, 90));
        let _ = writeln!(text, "not verified: {task}: {result}");
    }
    trimmed(&text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warpwright_record::verdict::Profile;

    use super::*;
    use crate::analysis::sample::{evaluation, row};

    #[test]
    fn last_evaluation_of_a_task_counts() {
        let first = [row("p", "a", Some(2.0)), row("p", "b", None), row("p", "c", None)];
        let (mut again, mut refused) = (row("p", "b", None), row("p", "c", None));
        again.attempt = 1;
        refused.state = RowState::Refused;
        let later = [row("p", "b", Some(8.0)), again, refused];
        let merged = merge(&[evaluation(first), evaluation(later)]).unwrap();
        let rows: Vec<(&str, u32, bool)> =
            merged.rows.iter().map(|row| (row.task.as_str(), row.attempt, row.verified)).collect();
        assert_eq!(rows, [("a", 0, true), ("b", 0, true), ("b", 1, false), ("c", 0, false)]);
        let overall = &merged.tables[0].overall;
        assert_eq!((overall.tasks, overall.not_judged.refused), (2, 1));
        assert!((overall.pass_rate.unwrap().value - 0.75).abs() < 1e-12);
        assert!((overall.geomean_speedup.best.unwrap().value - 4.0).abs() < 1e-12);
        let text = text(&merged, None);
        assert!(text.contains("not verified: b: wrong values"), "{text}");
    }

    #[test]
    fn evaluations_of_several_policies_are_not_merged() {
        let one = row("p", "a", Some(2.0));
        let error = merge(&[evaluation([one.clone()]), evaluation([row("q", "a", None)])]);
        let message = "failed to combine the evaluations: they have several policies: p, q";
        assert_eq!(error.unwrap_err().to_string(), message);
        let mut other = one.clone();
        other.profile = Profile::Tf32;
        let error = merge(&[evaluation([one.clone()]), evaluation([other])]).unwrap_err();
        assert!(error.to_string().contains("several profiles: strict, tf32"), "{error}");
        let mut other = one.clone();
        other.dtype = Some(Dtype::Fp16);
        let error = merge(&[evaluation([one.clone()]), evaluation([other])]).unwrap_err();
        assert!(error.to_string().contains("several dtypes: fp16, their own"), "{error}");
        let mut other = one.clone();
        other.device = "cpu".to_owned();
        let error = merge(&[evaluation([one]), evaluation([other])]).unwrap_err();
        assert!(error.to_string().contains("several kinds of device: cpu, cuda"), "{error}");
    }

    #[test]
    fn evaluations_without_an_episode_are_not_merged() {
        let error = merge(&[evaluation([]), evaluation([])]).unwrap_err();
        let message = "failed to analyse runs/sample, runs/sample: there is no episode";
        assert_eq!(error.to_string(), message);
        let merged = merge(&[evaluation([]), evaluation([row("p", "a", None)])]).unwrap();
        assert_eq!(merged.rows.len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// An evaluation merged with itself has the same rows.
        #[test]
        fn evaluation_merged_with_itself_is_unchanged(
            passes in prop::collection::vec(any::<bool>(), 1..6)
        ) {
            let rows = passes
                .iter()
                .enumerate()
                .map(|(n, passes)| row("p", &format!("t{n}"), passes.then_some(2.0)));
            let one = evaluation(rows);
            let merged = merge(&[one.clone(), one.clone()]).unwrap();
            prop_assert_eq!(merged.rows, one.rows);
        }
    }
}
