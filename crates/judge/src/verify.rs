//! One call's results against the oracle.

use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{Check, Failure, FailureClass, IntegrityFinding, Profile};

use crate::claims::Located;
use crate::claims::{self, Refused};
use crate::compare::{Compared, compare, equal_bytes};
use crate::error::JudgeError;
use crate::failure::failure;
use crate::families::Draw;
use crate::oracle::Oracle;
use crate::runner::{Played, Runner, Trouble};
use crate::tolerance::{Tolerance, tolerance};
use crate::wire::Expected;

/// What looking at one call came to.
pub(crate) struct Looked {
    pub(crate) check: Check,
    pub(crate) failure: Option<Failure>,
    pub(crate) integrity: Option<IntegrityFinding>,
    /// Honest programs need not agree on these inputs: nothing was compared.
    pub(crate) void: bool,
}

/// Looks at one call of a window that was played on these inputs.
pub(crate) fn look(
    oracle: &mut Oracle,
    runner: &mut Runner,
    played: &Played,
    call: usize,
    question: (&str, Draw),
    name: &str,
    profile: Profile,
) -> Result<Looked, Trouble> {
    let (variant, draw) = question;
    let claimed = played.claimed(call, &runner.arena)?;
    let check = blank(name, draw.family);
    let mut looked = Looked { check, failure: None, integrity: None, void: false };
    if !runner.unchanged(played)? {
        looked.integrity = Some(IntegrityFinding {
            class: "late_write".to_owned(),
            message: "results were still being written after the window had ended".to_owned(),
        });
        return Ok(looked);
    }
    let aliasing = oracle.opened.aliases_input.then_some(runner.layout.inputs);
    let located = match claims::check(&claimed, &oracle.opened.sizes.outputs, played.zone, aliasing)
    {
        Ok(located) => located,
        Err(Refused::Shape(message)) => {
            looked.failure = Some(failure(FailureClass::Shape, message));
            return Ok(looked);
        }
        Err(Refused::Integrity { class, message }) => {
            looked.integrity = Some(IntegrityFinding { class: class.to_owned(), message });
            return Ok(looked);
        }
    };
    let Some(expected) = oracle.expected(variant, draw)? else {
        looked.void = true;
        return Ok(looked);
    };
    if !oracle.opened.mutates_input && !inputs_intact(oracle, runner, played, call, &expected)? {
        let text = "forward changed one of its inputs, which the reference does not";
        looked.failure = Some(failure(FailureClass::MutatedInput, text));
        return Ok(looked);
    }
    compare_all(oracle, runner, &located, &expected, profile, &mut looked)?;
    Ok(looked)
}

fn blank(name: &str, family: InputFamily) -> Check {
    let name = match family {
        InputFamily::Own => name.to_owned(),
        other => format!("{name} ({})", other.name()),
    };
    Check {
        name,
        family,
        passed: false,
        max_abs_error: 0.0,
        reference_max_abs_error: 0.0,
        lower_precision_max_abs_error: None,
        atol: 0.0,
        rtol: 0.0,
        truth: String::new(),
    }
}

fn inputs_intact(
    oracle: &Oracle,
    runner: &Runner,
    played: &Played,
    call: usize,
    expected: &Expected,
) -> Result<bool, JudgeError> {
    let staged = &played.sets[played.order[call]].tensors;
    for (ours, theirs) in expected.inputs.tensors.iter().zip(staged) {
        let (Some(a), Some(b)) = (theirs.offset, ours.offset) else { continue };
        if !equal_bytes(&runner.arena, a, &oracle.arena, b, ours.bytes)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn compare_all(
    oracle: &Oracle,
    runner: &Runner,
    located: &[Located],
    expected: &Expected,
    profile: Profile,
    looked: &mut Looked,
) -> Result<(), JudgeError> {
    let check = &mut looked.check;
    check.passed = true;
    let mut worst: Option<f64> = None;
    for (i, got) in located.iter().enumerate() {
        let note = &expected.notes[i];
        let want = Located::trusted(&expected.outputs.tensors[i]);
        let want = want.ok_or_else(|| JudgeError::infrastructure("compare", "no truth"))?;
        let own = note.own.as_ref().and_then(Located::trusted);
        let known = oracle.families.errors(check.family, i);
        let allowed = tolerance(profile, got.dtype, note, &known, check.family);
        let told = compare(&runner.arena, got, &oracle.arena, &want, own.as_ref(), allowed)?;
        // The entry shows the output that came closest to its tolerance.
        let share = told.max_abs_error / (allowed.atol + allowed.rtol * note.largest).max(1e-300);
        if worst.is_none_or(|w| share > w) {
            worst = Some(share);
            check.max_abs_error = told.max_abs_error;
            check.reference_max_abs_error = note.error;
            check.lower_precision_max_abs_error = known.lower.map(|lower| lower * note.rms);
            check.atol = allowed.atol;
            check.rtol = allowed.rtol;
            check.truth.clone_from(&note.truth);
        }
        if told.wrong > 0 {
            check.passed = false;
            if looked.failure.is_none() {
                looked.failure = Some(mismatch(&told, i, check, allowed));
            }
        }
    }
    Ok(())
}

fn mismatch(told: &Compared, output: usize, check: &Check, allowed: Tolerance) -> Failure {
    let first = told.examples.first().map(|e| format!(", first {}", e.text)).unwrap_or_default();
    let (class, what) = if told.non_finite > 0 {
        (FailureClass::NonFinite, "are NaN or infinite where the reference is not")
    } else {
        (FailureClass::Mismatch, "are outside the tolerance")
    };
    let count = if told.non_finite > 0 { told.non_finite } else { told.wrong };
    let text = format!(
        "{}: {count} of {} elements of output {output} {what}{first}",
        check.name, told.count
    );
    let mut failure = failure(class, text);
    failure.mismatch = Some(told.mismatch(output as u32, check, allowed));
    failure
}
