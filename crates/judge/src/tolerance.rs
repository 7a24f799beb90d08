//! How far from the truth a result may be.
//!
//! `strict`, `tf32` and `as-run` scale the tolerance to the errors that honest implementations in
//! the same precision make against float64 on such inputs, and keep it below the error of the next
//! lower precision where that can be told from them. All three are measured per task
//! (`families.rs`, `calibration.py`). `paper` is the paper's fixed tolerance against eager.
//!
//! The largest error over all elements is what decides. A second statistic, the root mean square,
//! tells float32 from TF32 no better (`docs/decisions/0012`).

use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;

use crate::dtype::Dtype;
use crate::wire::OutputNote;

/// Elements within `atol + rtol * |truth|` are right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
}

/// What is known of the errors of one output on inputs of one family, each the largest over all
/// elements, in units of the output's root mean square.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Errors {
    /// Of the same-precision reference: the largest seen so far. One call can be lucky.
    pub(crate) noise: f64,
    /// Of an honest implementation that sums in another order, by a model.
    pub(crate) honest: f64,
    /// Of one in the next lower precision, where known.
    pub(crate) lower: Option<f64>,
    /// Largest magnitude of the truth.
    pub(crate) largest: f64,
}

/// How many times the same-precision reference's own error is allowed at the most. Another order of
/// summation stays within a small multiple.
const SLACK: f64 = 16.0;
/// How many times it is allowed at the least, also where lower precision is no further away.
/// Products in several parts were seen at 5 times.
const LEAST_SLACK: f64 = 8.0;
/// The same where both sides compute in TF32 or as the user does: what lies below is bfloat16, 8
/// times less exact.
const LEAST_LOOSE_SLACK: f64 = 3.0;
/// How many times the model of other orders is allowed. Measured sums in order were up to 3 times
/// their model's root mean square further out than its own largest.
const HONEST_SLACK: f64 = 3.0;
/// Lower precision's error must lie so many times outside, if it can.
const MARGIN: f64 = 2.0;
/// It is told from honest noise if its largest error is so many times what is allowed.
const SEPARATE: f64 = 1.25;
/// Units in the last place, relative to the root mean square, allowed where eager is exact.
const FLOOR_ULPS: f64 = 8.0;
/// Relative units in the last place of the element itself.
const ELEMENT_ULPS: f64 = 2.0;
/// Without a float64 truth eager's error is unknown; this many units in the last place stand in.
const BLIND_ULPS: f64 = 512.0;

/// Tolerance for one output on inputs of one family.
pub(crate) fn tolerance(
    profile: Profile,
    dtype: Dtype,
    note: &OutputNote,
    known: &Errors,
    family: InputFamily,
) -> Tolerance {
    let Some(epsilon) = dtype.epsilon() else {
        return Tolerance { atol: 0.0, rtol: 0.0 };
    };
    if profile == Profile::Paper {
        return Tolerance { atol: 1e-2, rtol: 1e-2 };
    }
    if note.truth != "float64" {
        // Under `tf32` what a product in TF32 is off from the same precision is known.
        let products = LEAST_LOOSE_SLACK * known.noise;
        return Tolerance {
            atol: (BLIND_ULPS * epsilon).max(products) * note.rms,
            rtol: (BLIND_ULPS * epsilon).min(0.05),
        };
    }
    let own = note.error.max(known.noise * note.rms);
    let scaled = match known.lower {
        None => SLACK * own,
        Some(lower) => {
            let least = if profile == Profile::Strict { LEAST_SLACK } else { LEAST_LOOSE_SLACK };
            let below = (lower * note.rms / MARGIN).max(least * own);
            // On hard inputs honest algorithms differ: a variance in one pass, with a shift that
            // happens to be an outlier, loses three digits.
            if family.is_hard() { below } else { below.min(SLACK * own) }
        }
    };
    let allowed = scaled.max(HONEST_SLACK * known.honest * note.rms);
    Tolerance { atol: allowed + FLOOR_ULPS * epsilon * note.rms, rtol: ELEMENT_ULPS * epsilon }
}

/// Whether a result of the next lower precision would be refused on such inputs.
pub(crate) fn separates(
    profile: Profile,
    dtype: Dtype,
    known: &Errors,
    family: InputFamily,
) -> bool {
    let note = OutputNote {
        error: 0.0,
        rms: 1.0,
        largest: known.largest,
        agrees: true,
        truth: "float64".to_owned(),
        own: None,
    };
    let allowed = tolerance(profile, dtype, &note, known, family);
    known.lower.is_some_and(|l| l >= SEPARATE * (allowed.atol + allowed.rtol * known.largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(error: f64) -> OutputNote {
        OutputNote {
            error,
            rms: 1.0,
            largest: 4.0,
            agrees: true,
            truth: "float64".into(),
            own: None,
        }
    }

    fn known(noise: f64, lower: f64) -> Errors {
        Errors { noise, honest: 0.0, lower: Some(lower), largest: 4.0 }
    }

    const OWN: InputFamily = InputFamily::Own;

    #[test]
    fn a_result_of_lower_precision_fails_under_strict() {
        // A float32 pointwise chain errs by about one unit in the last place of the largest value.
        let unknown = Errors::default();
        let float32 = tolerance(Profile::Strict, Dtype::F32, &note(4.0 * 6e-8), &unknown, OWN);
        assert!(float32.atol + float32.rtol < 4.0 * 2f64.powi(-11), "TF32 must be outside");
        assert!(float32.atol > 1e-7, "another order of float32 operations must be inside");
    }

    #[test]
    fn a_lucky_call_does_not_shrink_the_tolerance() {
        let lucky = tolerance(Profile::Strict, Dtype::F32, &note(0.0), &known(1e-5, 1.0), OWN);
        assert!(lucky.atol > 1e-5);
    }

    #[test]
    fn integers_are_exact() {
        let exact = tolerance(Profile::Strict, Dtype::I64, &note(0.0), &known(1.0, 2.0), OWN);
        assert_eq!(exact, Tolerance { atol: 0.0, rtol: 0.0 });
    }

    /// TF32 errs 12 times as much as cuBLAS's float32 on uniform operands of 4096 terms, products in
    /// three TF32 parts at most 1.8 times.
    #[test]
    fn where_lower_precision_is_near_the_tolerance_lies_between() {
        let near = known(1e-5, 12e-5);
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(0.9e-5), &near, OWN);
        assert!((5e-5..12e-5 / SEPARATE).contains(&allowed.atol), "{allowed:?}");
        assert!(separates(Profile::Strict, Dtype::F32, &near, OWN));
        let nearer = known(1e-5, 6e-5);
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(0.9e-5), &nearer, OWN);
        assert!(allowed.atol > 5e-5, "honest programs come first: {allowed:?}");
        assert!(!separates(Profile::Strict, Dtype::F32, &nearer, OWN));
    }

    #[test]
    fn other_orders_of_summation_are_honest_also_where_eager_is_exact() {
        let honest = Errors { honest: 1e-5, ..known(1e-7, 1e-3) };
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(1e-7), &honest, OWN);
        assert!(allowed.atol > 2e-5);
        assert!(separates(Profile::Strict, Dtype::F32, &honest, OWN));
    }

    #[test]
    fn hard_inputs_give_algorithms_room_but_not_lower_precision() {
        let errors = known(1e-6, 2e-3);
        let plain = tolerance(Profile::Strict, Dtype::F32, &note(1e-6), &errors, OWN);
        let hard =
            tolerance(Profile::Strict, Dtype::F32, &note(1e-6), &errors, InputFamily::Outliers);
        assert!(hard.atol > 10.0 * plain.atol && hard.atol <= 1.1e-3, "{plain:?} {hard:?}");
    }

    #[test]
    fn where_there_is_no_truth_products_in_tf32_are_known_to_be_off() {
        let blind = OutputNote { truth: "same precision".into(), ..note(0.0) };
        let allowed = |noise| tolerance(Profile::Tf32, Dtype::F32, &blind, &known(noise, 1.0), OWN);
        assert!(allowed(0.0).atol < 1e-4, "{:?}", allowed(0.0));
        assert!(allowed(1e-3).atol >= 3e-3);
    }

    #[test]
    fn bfloat16_is_told_from_tf32_under_tf32() {
        let errors = known(1e-3, 8e-3);
        assert!(separates(Profile::Tf32, Dtype::F32, &errors, OWN));
        let allowed = tolerance(Profile::Tf32, Dtype::F32, &note(1e-3), &errors, OWN);
        assert!(allowed.atol > 2.5e-3, "other TF32 programs are honest: {allowed:?}");
    }
}
