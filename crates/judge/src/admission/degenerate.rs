//! Whether a candidate can earn anything on a task. The judge decides it once, when it opens the task. It
//! uses the checks of an examination without a candidate.
//!
//! For some reasons nothing can be compared, or the answer could be written down in advance: every judge
//! refuses such a task. For the others a candidate can be correct without achieving anything: training
//! refuses such a task, and elsewhere it is judged without reward.

use crate::admission::objection::Objection;
use crate::check::families::Families;
use crate::check::tolerance::Tolerance;
use crate::error::JudgeError;
use crate::process::wire::{Examined, Opened};
use warpwright_record::inputs::InputFamily;

/// Treatment of a degenerate task whose candidates could still be verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Degenerate {
    /// The judge refuses the task, with the reasons.
    #[default]
    Refused,
    /// The judge judges its candidates. Verdicts name the reasons and earn no reward.
    Judged,
}

/// Results are discontinuous from this error of an honest program, in units of the output's root mean square.
const JUMP: f64 = 1.0;
/// Prefix of the names of trivial answers that return an input (`examiner.py`).
const INPUT: &str = "input ";
/// Tolerance of an examination under the paper's rules, relative to an output's largest magnitude. The
/// paper's own tolerance would accept zeros wherever results are small.
const PAPER: f64 = 1e-6;

/// Objections that opening a task shows without comparing anything.
pub(crate) fn at_opening(opened: &Opened) -> Vec<Objection> {
    let outputs = &opened.sizes.outputs.tensors;
    let mut reasons = Vec::new();
    if outputs.is_empty() && opened.sizes.changed.is_empty() {
        reasons.push(Objection::NoOutput);
    } else if !outputs.is_empty() && outputs.iter().all(|at| at.shape.contains(&0)) {
        reasons.push(Objection::Empty);
    }
    if opened.fixed_inputs {
        let tensors = opened.sizes.inputs.tensors.is_empty();
        reasons.push(if tensors { Objection::NoInputs } else { Objection::SameInputs });
    }
    if opened.only_views {
        reasons.push(Objection::OnlyViews);
    }
    if !opened.sizes.changed.is_empty() {
        reasons.push(Objection::ChangesInputs);
    }
    reasons
}

/// Objections that two samples of the inputs show.
pub(crate) fn at_a_glance(found: &Examined, fixed_inputs: bool) -> Vec<Objection> {
    let passes = |answer: &str| found.counterfeits.get(answer).is_some_and(|wrong| *wrong <= 0.0);
    let mut reasons = Vec::new();
    if !found.finite.is_empty() && found.finite.iter().all(|share| *share <= 0.0) {
        reasons.push(Objection::NothingFinite);
        return reasons;
    }
    let independent = passes("the previous result") && !fixed_inputs;
    if passes("zeros") || (independent && passes("its mean")) {
        reasons.push(Objection::Constant);
    } else if independent {
        reasons.push(Objection::Independent);
    }
    let handed_back = found
        .counterfeits
        .iter()
        .filter(|(answer, wrong)| answer.starts_with(INPUT) && **wrong <= 0.0);
    reasons
        .extend(handed_back.map(|(answer, _)| Objection::Counterfeit { answer: answer.clone() }));
    reasons
}

/// Objections that calibration shows: honest programs that sum in another order give arbitrary results.
pub(crate) fn after_calibration(families: &Families, outputs: usize) -> Vec<Objection> {
    let honest = |output| families.errors(InputFamily::Own, output).honest;
    let jumps = (0..outputs).filter(|output| honest(*output) > JUMP);
    jumps.map(|output| Objection::Discontinuous { output, error: honest(output) }).collect()
}

/// A tolerance that distinguishes zeros from small results under the paper's rules.
pub(crate) fn narrow(largest: f64) -> Tolerance {
    Tolerance { atol: PAPER * largest, rtol: 0.0 }
}

/// Fails if the task must be refused for these reasons.
pub(crate) fn refuse(
    task: &str,
    reasons: &[Objection],
    rule: Degenerate,
) -> Result<(), JudgeError> {
    let refused = match rule {
        Degenerate::Refused => !reasons.is_empty(),
        Degenerate::Judged => reasons.iter().any(Objection::leaves_nothing),
    };
    if refused {
        return Err(JudgeError::Degenerate { task: task.to_owned(), reasons: reasons.to_vec() });
    }
    Ok(())
}
