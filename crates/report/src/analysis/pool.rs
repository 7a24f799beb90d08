//! The judged episodes of several evaluations, pooled.

use std::collections::{BTreeMap, BTreeSet};

use super::{AnalysisError, list};
use crate::evaluation::finals::Finals;
use crate::evaluation::rows::{Row, RowState};
use crate::evaluation::{Evaluation, SCALED_DOWN, call};
use crate::text::one_line;
use warpwright_record::verdict::Dtype;

/// Judged rows that can be compared: of one profile and one kind of hardware.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    rows: Vec<&'a Row>,
    finals: Finals<'a>,
}

impl<'a> Pool<'a> {
    /// The judged rows of `evaluations`.
    ///
    /// # Errors
    /// [`AnalysisError::Empty`] if there are none, [`AnalysisError::Mixed`] if they have several
    /// profiles or kinds of hardware.
    pub fn of(evaluations: &'a [Evaluation]) -> Result<Self, AnalysisError> {
        let rows = evaluations.iter().flat_map(|evaluation| &evaluation.rows);
        let rows: Vec<&Row> = rows.filter(|row| row.state == RowState::Judged).collect();
        if rows.is_empty() {
            return Err(AnalysisError::Empty {
                run: list(evaluations.iter().map(|evaluation| evaluation.run.as_str())),
                what: "judged episode",
                cure: "name evaluations with episodes that have ended",
            });
        }
        // A row without a measured candidate has no fingerprint.
        let prints = rows.iter().filter_map(|row| row.fingerprint.as_ref());
        let hardware: BTreeSet<&str> = prints.map(|print| print.hardware.as_str()).collect();
        let profiles: BTreeSet<&str> = rows.iter().map(|row| row.profile.name()).collect();
        let dtypes: BTreeSet<&str> =
            rows.iter().map(|row| row.dtype.map_or("their own", Dtype::name)).collect();
        let size = |row: &&Row| if row.fit.is_some() { SCALED_DOWN } else { "full" };
        let sizes: BTreeSet<&str> = rows.iter().map(size).collect();
        let calls: BTreeSet<&str> = rows.iter().map(|row| call(row.backward)).collect();
        let facts = [
            ("profiles", profiles),
            ("dtypes", dtypes),
            ("sizes of tasks", sizes),
            ("kinds of call", calls),
            ("kinds of hardware", hardware),
        ];
        for (what, found) in facts {
            if found.len() > 1 {
                return Err(AnalysisError::Mixed { what, found: list(found) });
            }
        }
        let mut scaled: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for row in &rows {
            let sizes = scaled.entry(&row.task).or_default();
            sizes.extend(row.fit.as_ref().map(ToString::to_string));
        }
        for (task, sizes) in scaled {
            if sizes.len() > 1 {
                let sizes = sizes.iter().map(|size| one_line(size, 60));
                let found =
                    format!("{}: {}", one_line(task, 60), sizes.collect::<Vec<_>>().join(", "));
                return Err(AnalysisError::Mixed { what: "sizes of one task", found });
            }
        }
        let finals = Finals::of(rows.iter().copied());
        Ok(Self { rows, finals })
    }

    /// The rows.
    pub fn rows(&self) -> &[&'a Row] {
        &self.rows
    }

    /// The final kernels of all rows.
    pub fn finals(&self) -> &Finals<'a> {
        &self.finals
    }

    /// The rows of one policy.
    pub fn rows_of(&self, policy: &str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().copied().filter(move |row| row.policy == policy)
    }

    /// Names of the policies, sorted.
    pub fn policies(&self) -> BTreeSet<&'a str> {
        self.rows.iter().map(|row| row.policy.as_str()).collect()
    }

    /// The policy of this name, else the one policy whose name ends with it.
    ///
    /// # Errors
    /// [`AnalysisError::Policy`] if none or several match.
    pub fn policy(&self, name: &str) -> Result<&'a str, AnalysisError> {
        let policies = self.policies();
        if let Some(policy) = policies.get(name).copied() {
            return Ok(policy);
        }
        let found: Vec<&str> =
            policies.iter().copied().filter(|policy| policy.ends_with(name)).collect();
        match found[..] {
            [policy] => Ok(policy),
            _ => Err(AnalysisError::Policy {
                name: name.to_owned(),
                count: found.len(),
                policies: list(policies),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use warpwright_record::fit::Fit;
    use warpwright_record::verdict::Profile;

    use super::*;
    use crate::analysis::sample::{evaluation, row};

    #[test]
    fn policy_is_chosen_by_name_or_by_suffix() {
        let rows = ["a/rft", "b/ppo", "c/ppo", "ppo"].map(|policy| row(policy, "t", None));
        let evaluations = [evaluation(rows)];
        let pool = Pool::of(&evaluations).unwrap();
        assert_eq!(pool.policy("rft").unwrap(), "a/rft");
        assert_eq!(pool.policy("ppo").unwrap(), "ppo");
        let message = |name| pool.policy(name).unwrap_err().to_string();
        assert_eq!(
            message("/ppo"),
            "failed to choose a policy: `/ppo` matches 2 of a/rft, b/ppo, c/ppo, ppo"
        );
        assert!(message("sft").contains("`sft` matches 0 of"));
    }

    #[test]
    fn evaluations_without_a_judged_episode_are_refused() {
        let mut unjudged = row("a", "t", None);
        unjudged.state = RowState::Refused;
        for rows in [vec![], vec![unjudged]] {
            let error = Pool::of(&[evaluation(rows)]).unwrap_err();
            let message = "failed to analyse runs/sample: there is no judged episode";
            assert_eq!(error.to_string(), message);
            assert!(error.hint().is_some_and(|hint| hint.contains("that have ended")));
        }
    }

    #[test]
    fn several_profiles_or_kinds_of_hardware_are_refused() {
        let one = row("a", "t", Some(2.0));
        let mut other = one.clone();
        other.profile = Profile::Tf32;
        let error = Pool::of(&[evaluation([one.clone(), other])]).unwrap_err();
        assert!(error.to_string().ends_with("several profiles: strict, tf32"), "{error}");
        let mut other = one.clone();
        other.dtype = Some(Dtype::Bf16);
        let error = Pool::of(&[evaluation([one.clone(), other])]).unwrap_err();
        assert!(error.to_string().ends_with("several dtypes: bf16, their own"), "{error}");
        let mut other = one.clone();
        let fit =
            |to| Some(Fit { dimension: "batch".to_owned(), from: 8, to, workloads: Vec::new() });
        other.fit = fit(4);
        let error = Pool::of(&[evaluation([one.clone(), other.clone()])]).unwrap_err();
        assert!(
            error.to_string().ends_with("sizes of tasks: full, scaled down by --fit"),
            "{error}"
        );
        let mut smaller = other.clone();
        smaller.fit = fit(2);
        let error = Pool::of(&[evaluation([other.clone(), smaller.clone()])]).unwrap_err();
        let message = "several sizes of one task: t: batch 2 of 8, batch 4 of 8";
        assert!(error.to_string().ends_with(message), "{error}");
        smaller.task = "u".to_owned();
        assert!(Pool::of(&[evaluation([other, smaller])]).is_ok(), "each task has one size");
        let mut other = one.clone();
        other.backward = true;
        let error = Pool::of(&[evaluation([one.clone(), other])]).unwrap_err().to_string();
        assert!(error.ends_with("several kinds of call: forward, forward and backward"), "{error}");
        let mut other = one.clone();
        other.fingerprint.as_mut().unwrap().hardware = "NVIDIA H100".to_owned();
        let error = Pool::of(&[evaluation([one.clone(), other])]).unwrap_err();
        assert!(error.to_string().ends_with("NVIDIA H100, NVIDIA H200"), "{error}");
        assert!(Pool::of(&[evaluation([one.clone(), one])]).is_ok(), "positive control");
    }
}
