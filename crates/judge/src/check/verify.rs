//! Compares one call's results with the oracle.

use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{Check, Failure, FailureClass, IntegrityFinding, Profile};

use crate::check::claims::{self, Located, Reference, Refused, Wanted};
use crate::check::compare::{Compared, Poison, Terms, compare, equal_bytes};
use crate::check::dtype::Dtype;
use crate::check::families::Draw;
use crate::check::stated;
use crate::check::ties::Doubtful;
use crate::check::tolerance::{Silent, Steps, Tolerance, tells, tolerance};
use crate::device::arena::Zone;
use crate::error::JudgeError;
use crate::process::candidate::LoadedCandidate;
use crate::process::failure::Trouble;
use crate::process::failure::failure;
use crate::process::oracle::Oracle;
use crate::process::played::Played;
use crate::process::wire::{Expected, Place, Reordered, Value};

/// The result of comparing one call.
pub(crate) struct Looked {
    pub(crate) check: Check,
    pub(crate) failure: Option<Failure>,
    pub(crate) integrity: Option<IntegrityFinding>,
    /// Honest programs need not agree on these inputs: nothing was compared.
    pub(crate) void: bool,
    /// Of a mismatch, the elements that may be near a tie, if that can be all of them.
    doubtful: Option<Vec<Doubtful>>,
}

impl Looked {
    /// Before anything was found.
    fn at(name: &str, draw: Draw) -> Self {
        let check = blank(name, draw.family);
        Self { check, failure: None, integrity: None, void: false, doubtful: Some(Vec::new()) }
    }

    fn mismatches(&self) -> bool {
        self.failure.as_ref().is_some_and(|found| found.class == FailureClass::Mismatch)
    }

    /// Whether every element that is wrong is near a tie, and on a side where honest programs are too.
    fn ties(&self, oracle: &mut Oracle, (variant, draw): (&str, Draw)) -> Result<bool, JudgeError> {
        // Of some output there are too many, or some that no tie explains.
        let Some(found) = self.doubtful.as_deref().filter(|found| !found.is_empty()) else {
            return Ok(false);
        };
        for doubtful in found {
            let said = oracle.ties(variant, draw, (doubtful.output, &doubtful.places()))?;
            if !doubtful.all_said(&said) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What is wrong with a window of which a call left a part of its results as they were. By the same class
/// whatever they held: NaN, or a number that would else be a mismatch.
pub(crate) fn unwritten(played: &Played, name: &str) -> Option<Failure> {
    let call = played.unwritten()?;
    let text = format!(
        "{name}: call {} of {} had not written all of its results when the window was over",
        call + 1,
        played.order.len()
    );
    Some(failure(FailureClass::NonFinite, text))
}

/// Looks at calls of a window by what their truths alone say, in order. `None` of one that is not right by that:
/// then [`look`] says what is wrong, if anything is. `by_call` has the draw of each call of the window.
pub(crate) fn glances(
    oracle: &mut Oracle,
    candidate: &mut dyn LoadedCandidate,
    (played, variant): (&Played, &str),
    (calls, by_call): (&[usize], &[Draw]),
    (name, profile): (&dyn Fn(usize) -> String, Profile),
) -> Result<Vec<Option<Looked>>, Trouble> {
    let mut found = Vec::with_capacity(calls.len());
    while let Some(left) = calls.get(found.len()..).filter(|left| !left.is_empty()) {
        let draws: Vec<Draw> = left.iter().map(|&call| by_call[call]).collect();
        let truths = oracle.truths(variant, &draws)?;
        if truths.is_empty() {
            found.push(None);
            break;
        }
        for ((&call, draw), expected) in left.iter().zip(draws).zip(&truths) {
            let name = name(found.len());
            let (of, subject) = ((played, call), (expected, draw));
            found.push(glance(oracle, candidate, of, subject, (&name, profile))?);
        }
    }
    found.resize_with(calls.len(), || None);
    Ok(found)
}

/// See [`glances`].
fn glance(
    oracle: &Oracle,
    candidate: &mut dyn LoadedCandidate,
    (played, call): (&Played, usize),
    (expected, draw): (&Expected, Draw),
    (name, profile): (&str, Profile),
) -> Result<Option<Looked>, Trouble> {
    let claimed = played.claimed(call, candidate.arena())?;
    if !candidate.unchanged(played)? {
        return Ok(None);
    }
    let mut looked = Looked::at(name, draw);
    let terms = (profile, &Reordered::default());
    Comparison { oracle, candidate, played, call, expected, terms }.of(&claimed, &mut looked)?;
    let well = looked.check.passed && looked.failure.is_none() && looked.integrity.is_none();
    Ok((well && !looked.void).then_some(looked))
}

/// Looks at one call of a window that was played on these inputs.
pub(crate) fn look(
    oracle: &mut Oracle,
    candidate: &mut dyn LoadedCandidate,
    played: &Played,
    call: usize,
    question: (&str, Draw),
    name: &str,
    profile: Profile,
) -> Result<Looked, Trouble> {
    let (variant, draw) = question;
    let claimed = played.claimed(call, candidate.arena())?;
    let mut looked = Looked::at(name, draw);
    if !candidate.unchanged(played)? {
        looked.integrity = Some(IntegrityFinding {
            class: "late_write".to_owned(),
            message: "results were still being written after the window had ended".to_owned(),
        });
        return Ok(looked);
    }
    let Some(expected) = oracle.expected(variant, draw)? else {
        looked.void = true;
        return Ok(looked);
    };
    let honest = Reordered::default();
    let terms = (profile, &honest);
    Comparison { oracle, candidate, played, call, expected: &expected, terms }
        .of(&claimed, &mut looked)?;
    if looked.mismatches() {
        // Calibration has seen one draw of each family. Before a candidate is blamed, this one is looked at.
        let honest = oracle.reordered(variant, draw)?;
        if honest.astray {
            looked = Looked::at(name, draw);
            looked.void = true;
            return Ok(looked);
        }
        if !honest.notes.is_empty()
            && let Some(expected) = oracle.expected(variant, draw)?
        {
            looked = Looked::at(name, draw);
            let terms = (profile, &honest);
            Comparison { oracle, candidate, played, call, expected: &expected, terms }
                .of(&claimed, &mut looked)?;
        }
    }
    if looked.mismatches() && looked.ties(oracle, question)? {
        (looked.failure, looked.check.passed) = (None, true);
    }
    if let Some(found) = looked.failure.as_mut().filter(|f| f.class == FailureClass::Mismatch)
        && let Some(told) = unwritten(played, name)
    {
        (found.class, found.message) = (told.class, told.message);
    }
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

/// One call's results and inputs, about to be compared with what the reference makes of such inputs.
struct Comparison<'a> {
    oracle: &'a Oracle,
    candidate: &'a dyn LoadedCandidate,
    played: &'a Played,
    call: usize,
    expected: &'a Expected,
    /// The rules, and what is known of honest programs on this very draw.
    terms: (Profile, &'a Reordered),
}

/// One tensor to be compared: an output, or an input that the reference changes.
struct Pair<'a> {
    /// Its position among the outputs, and behind them the changed inputs.
    index: usize,
    got: Located,
    want: &'a Place,
    /// Poison in its memory before the window; `None` if there was none.
    poison: Option<Poison>,
}

impl Comparison<'_> {
    /// Looks at the claims against this call's own expectation, at the inputs, and at every element.
    fn of(&self, claimed: &Value, looked: &mut Looked) -> Result<(), JudgeError> {
        match self.silent(looked.check.family)? {
            None => {}
            // Of inputs that are not the task's own others are drawn.
            Some(_) if looked.check.family != InputFamily::Own => {
                looked.void = true;
                return Ok(());
            }
            Some(message) => {
                return Err(JudgeError::Reference {
                    task: self.oracle.name().to_owned(),
                    message,
                    hint: Some("make every output depend on the computation".to_owned()),
                });
            }
        }
        let located = match self.located(claimed)? {
            Ok(located) => located,
            Err(Refused::Shape(message)) => {
                looked.failure = Some(failure(FailureClass::Shape, message));
                return Ok(());
            }
            Err(Refused::Integrity { class, message }) => {
                looked.integrity = Some(IntegrityFinding { class: class.to_owned(), message });
                return Ok(());
            }
        };
        if !self.inputs_intact()? {
            let text = "forward changed one of its inputs, which the reference does not";
            looked.failure = Some(failure(FailureClass::MutatedInput, text));
            return Ok(());
        }
        let pairs = self.pairs(located)?;
        self.compare_all(&pairs, looked)
    }

    /// The inputs of the call, as they were placed.
    fn staged(&self) -> &[Place] {
        &self.played.sets[self.played.order[self.call]].tensors
    }

    fn located(&self, claimed: &Value) -> Result<Result<Vec<Located>, Refused>, JudgeError> {
        let zone_of = |input: usize| {
            let place = self.staged().get(input)?;
            Some(Zone { offset: place.offset?, bytes: place.bytes })
        };
        let notes = &self.expected.notes;
        let outputs = notes.get(..self.expected.outputs.tensors.len()).ok_or_else(no_truth)?;
        let wanted: Vec<Wanted<'_>> = outputs
            .iter()
            .map(|note| Wanted {
                shape: &note.shape,
                strides: &note.strides,
                dtype: &note.dtype,
                view_of: note.view_of.and_then(zone_of),
            })
            .collect();
        let reference = Reference {
            tree: &self.expected.outputs.tree,
            exact: self.expected.exact_tree.as_ref(),
            outputs: &wanted,
        };
        Ok(claims::check(claimed, reference, self.played.zone))
    }

    /// Whether the inputs are what they were, but for those that the reference changes.
    fn inputs_intact(&self) -> Result<bool, JudgeError> {
        let before = &self.expected.inputs.tensors;
        for (i, (ours, theirs)) in before.iter().zip(self.staged()).enumerate() {
            if self.expected.after.iter().any(|changed| changed.input == i) {
                continue;
            }
            let (Some(a), Some(b)) = (theirs.offset, ours.offset) else { continue };
            if !equal_bytes(self.candidate.arena(), a, &self.oracle.arena, b, ours.bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The outputs and the inputs that the reference changes, each beside its truth.
    fn pairs(&self, located: Vec<Located>) -> Result<Vec<Pair<'_>>, JudgeError> {
        let zone = self.played.zone;
        let truths = &self.expected.outputs.tensors;
        let outputs = located.into_iter().zip(truths).enumerate().map(|(index, (got, want))| {
            // A view of an input lies where nothing was overwritten.
            let poison = zone.contains(got.offset, 0).then_some(self.played.poison());
            Pair { index, got, want, poison }
        });
        let mut pairs: Vec<Pair<'_>> = outputs.collect();
        for changed in &self.expected.after {
            let got = self.staged().get(changed.input).and_then(Located::trusted);
            let got = got.ok_or_else(no_truth)?;
            pairs.push(Pair { index: pairs.len(), got, want: &changed.truth, poison: None });
        }
        if pairs.len() == self.expected.notes.len() { Ok(pairs) } else { Err(no_truth()) }
    }

    /// Why comparing says nothing, if it does: no element, or none of an output that has any, tells a
    /// right answer from a wrong one. What has no elements beside others, is a view, or has one value in
    /// every draw needs nobody to compute it, and cannot be what a check passes by.
    fn silent(&self, family: InputFamily) -> Result<Option<String>, JudgeError> {
        let families = &self.oracle.families;
        let (mut telling, mut first) = (0, None);
        for (index, note) in self.expected.notes.iter().enumerate() {
            if !families.compares(family, index) {
                continue;
            }
            let (dtype, _) = Dtype::parts(&note.dtype).ok_or_else(|| {
                JudgeError::infrastructure(
                    "compare an output",
                    format!("the judge does not know dtype {}", note.dtype),
                )
            })?;
            let Err(why) = tells(dtype, note, &families.errors(family, index)) else {
                telling += 1;
                continue;
            };
            let message =
                format!("output {index} cannot tell a correct candidate from a wrong one: {why}");
            if matches!(why, Silent::NeverFinite | Silent::Apart) {
                return Ok(Some(message));
            }
            first = first.or(Some(message));
        }
        let nothing =
            || "forward returns no tensor, so the judge has nothing to compare".to_owned();
        Ok((telling == 0).then(|| first.unwrap_or_else(nothing)))
    }

    fn compare_all(&self, pairs: &[Pair<'_>], looked: &mut Looked) -> Result<(), JudgeError> {
        let check = &mut looked.check;
        check.passed = true;
        let mut worst: Option<f64> = None;
        let families = &self.oracle.families;
        for Pair { index, got, want, poison } in pairs {
            if !families.compares(check.family, *index) {
                continue;
            }
            let note = &self.expected.notes[*index];
            let want = Located::trusted(want).ok_or_else(no_truth)?;
            let own = note.own.as_ref().and_then(Located::trusted);
            let mut known = families.errors(check.family, *index);
            let mut scales = families.scales(check.family, *index).to_vec();
            let (profile, honest) = self.terms;
            let dtype = got.dtype;
            // Where a result in lower precision is refused as a rule, it goes on being.
            let before = tolerance(profile, dtype, note, &known, check.family);
            let held = known.lower.is_some_and(|lower| lower * note.rms > before.atol);
            honest.raise(*index, held, &mut known, &mut scales);
            let allowed = tolerance(profile, dtype, note, &known, check.family);
            let steps = Steps::of((profile, check.family), dtype, (note, allowed), &scales);
            let terms = Terms { tolerance: allowed, steps, dtype, poison: *poison };
            let (mine, truths) = (self.candidate.arena(), &self.oracle.arena);
            let told = compare(mine, got, truths, &want, own.as_ref(), terms)?;
            // The entry shows the output that came closest to its tolerance.
            let share =
                told.max_abs_error / (allowed.atol + allowed.rtol * note.largest).max(1e-300);
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
                let outside = told.all_outside().map(<[_]>::to_vec);
                looked.doubtful = looked.doubtful.take().zip(outside).map(|(mut all, outside)| {
                    all.push(Doubtful { output: *index, outside, terms });
                    all
                });
                if looked.failure.is_none() {
                    let outputs = self.expected.outputs.tensors.len();
                    let changed = self.expected.after.get(index.wrapping_sub(outputs));
                    let what = changed.map(|changed| changed.input);
                    let fresh = families.fresh(*index);
                    // Where small elements have a tolerance of their own, theirs is told: it is what decided.
                    let atol = told.atol.unwrap_or(allowed.atol);
                    let allowed = Tolerance { atol, ..allowed };
                    looked.failure = Some(mismatch(&told, (*index, what), check, allowed, fresh));
                }
            } else if let Some(terms) = stated::terms(self.oracle.stated, check.family, terms)
                && let Some(reference) = note.stated.as_ref().and_then(Located::trusted)
            {
                let told = compare(mine, got, truths, &reference, None, terms)?;
                if stated::exceeded(&told) {
                    check.passed = false;
                    // Whether an element is near a tie does not matter to it.
                    looked.doubtful = None;
                    let fresh = families.fresh(*index);
                    let mut found = mismatch(&told, (*index, None), check, terms.tolerance, fresh);
                    found.message.push_str("; the workload states this tolerance");
                    looked.failure.get_or_insert(found);
                }
            }
        }
        Ok(())
    }
}

fn no_truth() -> JudgeError {
    JudgeError::infrastructure("compare an output", "the oracle sent no expected values")
}

/// `changed`: the input that it is, if it is none of the outputs. `fresh`: whether what was expected may
/// be told, as no later draw has it.
fn mismatch(
    told: &Compared,
    (index, changed): (usize, Option<usize>),
    check: &Check,
    allowed: Tolerance,
    fresh: bool,
) -> Failure {
    let mismatch = told.mismatch(index as u32, check, allowed, fresh);
    let first = mismatch.examples.first().map(|e| format!(", first {}", e.text));
    let (class, count, what) = if told.unwritten > 0 {
        let class =
            if told.non_finite > 0 { FailureClass::NonFinite } else { FailureClass::Mismatch };
        (class, told.unwritten, "were never written")
    } else if told.non_finite > 0 {
        let what = "are NaN or infinite where the reference is not";
        (FailureClass::NonFinite, told.non_finite, what)
    } else {
        (FailureClass::Mismatch, told.wrong, "are outside the tolerance")
    };
    let of = match changed {
        Some(input) => format!("input {input}, which the reference changes,"),
        None => format!("output {index}"),
    };
    let first = first.unwrap_or_default();
    let text = format!("{}: {count} of {} elements of {of} {what}{first}", check.name, told.count);
    let mut failure = failure(class, text);
    failure.mismatch = Some(mismatch);
    failure
}
