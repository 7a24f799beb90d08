//! Whether a task can earn anything: decided once, when it is opened for judging, from the checks that
//! looking at a task without a candidate uses.
//!
//! Some reasons leave nothing to compare, or an answer that could be written down beforehand: such a
//! task is refused by everybody. The others leave a task on which a candidate can be right, and no
//! achievement is to be: it is refused where rewards are learnt from, and elsewhere judged for no reward.

use crate::error::JudgeError;
use crate::examination::Objection;
use crate::families::Families;
use crate::tolerance::Tolerance;
use crate::wire::{Examined, Opened};
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

/// Error of an honest program, in units of an output's root mean square, from which on results jump.
const JUMP: f64 = 1.0;
/// How the names of answers begin that are an input (`examiner.py`).
const INPUT: &str = "input ";
/// Tolerance of a look under the paper's rules, relative to an output's largest magnitude: by the
/// paper's own, zeros are right wherever results are small.
const PAPER: f64 = 1e-6;

/// What opening a task has shown without comparing anything.
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

/// What two draws of its inputs show.
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

/// What calibration shows: honest programs whose sums have other orders give anything.
pub(crate) fn after_calibration(families: &Families, outputs: usize) -> Vec<Objection> {
    let honest = |output| families.errors(InputFamily::Own, output).honest;
    let jumps = (0..outputs).filter(|output| honest(*output) > JUMP);
    jumps.map(|output| Objection::Discontinuous { output, error: honest(output) }).collect()
}

/// A tolerance with which a look under the paper's rules tells zeros from small results.
pub(crate) fn narrow(largest: f64) -> Tolerance {
    Tolerance { atol: PAPER * largest, rtol: 0.0 }
}

/// An error where the task is to be refused for these reasons.
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

/// The sentence that verdicts and errors have.
pub(crate) fn told(reasons: &[Objection]) -> String {
    let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    all.join("; ")
}
