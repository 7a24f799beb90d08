//! Finds the code that computes a verified result: runs the candidate once more without its kernels.
//!
//! If a result is correct without the candidate's kernels, something else computed it: torch, after the
//! candidate removed the ban on its operators, or host code. The judge itself knows which kernels were
//! compiled and whether a run without them is correct; it asks the candidate nothing.
//!
//! This is no proof. A candidate that detects that its kernels do nothing can fail on purpose.

use warpwright_build::Instrument;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{AblationResult, IntegrityFinding};
use warpwright_task::Task;

use crate::error::JudgeError;
use crate::judge::processes::Shared;

/// Parts of a candidate that could compute, and whether the task computes anything.
#[derive(Clone, Copy)]
pub(super) struct Means {
    pub(super) kernels: bool,
    pub(super) libraries: bool,
    pub(super) computes: bool,
}

/// Results of the ablated runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conclusion {
    pub(super) result: AblationResult,
    pub(super) finding: Option<IntegrityFinding>,
    pub(super) caveat: Option<&'static str>,
}

/// Links the candidate without its kernels while it is loaded and verified: if it is verified, the builder
/// has that in its cache. Whatever fails here fails again when it is asked for.
pub(super) fn link_ahead(
    Shared { machine, processes }: Shared<'_>,
    task: &Task,
    candidate: &Candidate,
) {
    drop(processes.build_at_once(machine, task, candidate, Instrument::EmptyKernels));
}

pub(super) const LIBRARIES_ONLY: &str =
    "library calls only: no kernel of the candidate's own takes part in its results";

/// The finding on kernels that do nothing for the results.
pub(super) fn decoy_kernels() -> IntegrityFinding {
    IntegrityFinding {
        class: "decoy_kernels".to_owned(),
        message:
            "the results are right although the candidate's kernels did nothing: something else \
                  computes them"
                .to_owned(),
    }
}

/// Takes away one thing after the other until the result is wrong.
pub(super) fn conclude(
    means: Means,
    mut is_right_without: impl FnMut(Instrument) -> Result<bool, JudgeError>,
) -> Result<Conclusion, JudgeError> {
    let concluded = |result| Ok(Conclusion { result, finding: None, caveat: None });
    let found = |class: &str, message: &str| {
        let finding = IntegrityFinding { class: class.to_owned(), message: message.to_owned() };
        let finding = Some(finding);
        Ok(Conclusion { result: AblationResult::Passed, finding, caveat: None })
    };
    if !means.computes {
        return concluded(AblationResult::NotRun);
    }
    if means.kernels {
        if !is_right_without(Instrument::EmptyKernels)? {
            return concluded(AblationResult::FailedWithoutKernels);
        }
        // Kernels that are left over and never launched beside library calls hide nothing.
        let idle = means.libraries && is_right_without(Instrument::TrapKernels)?;
        if !idle {
            let finding = Some(decoy_kernels());
            return Ok(Conclusion { result: AblationResult::Passed, finding, caveat: None });
        }
    }
    if means.libraries && !is_right_without(Instrument::EmptyLibraries)? {
        let caveat = Some(LIBRARIES_ONLY);
        let result = AblationResult::FailedWithoutLibraries;
        return Ok(Conclusion { result, finding: None, caveat });
    }
    let message = "the results are right although the candidate runs no kernel of its own and no \
                   matrix product or convolution of cuBLAS or cuDNN: something else computes them";
    found("no_kernels", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conclusion on a candidate that is correct without these parts, and the runs that were tried.
    fn concluded(
        (kernels, libraries, computes): (bool, bool, bool),
        right_without: &[Instrument],
    ) -> (AblationResult, Option<String>, Vec<Instrument>) {
        let mut tried = Vec::new();
        let told = conclude(Means { kernels, libraries, computes }, |taken| {
            tried.push(taken);
            Ok(right_without.contains(&taken))
        });
        let told = told.unwrap_or(Conclusion {
            result: AblationResult::NotRun,
            finding: None,
            caveat: None,
        });
        assert_eq!(told.caveat.is_some(), told.result == AblationResult::FailedWithoutLibraries);
        (told.result, told.finding.map(|f| f.class), tried)
    }

    use AblationResult::{FailedWithoutKernels, FailedWithoutLibraries, NotRun, Passed};
    use Instrument::{EmptyKernels, EmptyLibraries, TrapKernels};

    #[test]
    fn kernels_are_ablated_in_one_more_run() {
        for libraries in [false, true] {
            let told = concluded((true, libraries, true), &[]);
            assert_eq!(told, (FailedWithoutKernels, None, vec![EmptyKernels]));
        }
    }

    #[test]
    fn kernels_without_effect_are_decoys() {
        let decoy = Some("decoy_kernels".to_owned());
        let told = concluded((true, false, true), &[EmptyKernels]);
        assert_eq!(told, (Passed, decoy.clone(), vec![EmptyKernels]));
        let told = concluded((true, true, true), &[EmptyKernels]);
        assert_eq!(told, (Passed, decoy, vec![EmptyKernels, TrapKernels]));
    }

    #[test]
    fn library_calls_alone_are_lawful_and_labelled() {
        let told = concluded((false, true, true), &[]);
        assert_eq!(told, (FailedWithoutLibraries, None, vec![EmptyLibraries]));
        // A kernel that is left over changes nothing.
        let told = concluded((true, true, true), &[EmptyKernels, TrapKernels]);
        assert_eq!(
            told,
            (FailedWithoutLibraries, None, vec![EmptyKernels, TrapKernels, EmptyLibraries])
        );
    }

    #[test]
    fn a_result_without_own_kernels_is_detected() {
        let nothing = Some("no_kernels".to_owned());
        assert_eq!(concluded((false, false, true), &[]), (Passed, nothing.clone(), vec![]));
        let told = concluded((false, true, true), &[EmptyLibraries]);
        assert_eq!(told, (Passed, nothing, vec![EmptyLibraries]));
    }

    #[test]
    fn a_task_without_computation_needs_no_kernel() {
        assert_eq!(concluded((false, false, false), &[]), (NotRun, None, vec![]));
    }
}
