//! How far a result may be from the reference in float64.
//!
//! `strict`, `tf32` and `as-run` scale the tolerance to the errors that honest implementations in the same
//! precision have against float64 on such inputs, and keep it below the error of the next lower precision
//! where the two can be distinguished. All three are measured per task (`families.rs`, `calibration.py`).
//! `paper` is the paper's fixed tolerance against eager.
//!
//! The largest error over all elements decides. A second statistic, the root mean square, distinguishes
//! float32 from TF32 no better (`docs/decisions/0012`).

use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;

use crate::check::dtype::Dtype;
use crate::process::wire::{OutputNote, Reordered, ScaleErrors};

mod scales;

pub(crate) use scales::Steps;

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
    /// How far two draws of the task's own inputs are apart, as a standard deviation.
    pub(crate) between: Option<f64>,
}

impl Reordered {
    /// What is known of an output on the draw's family, with the error of honest programs on this draw where
    /// that is larger. With `held`, where a result in lower precision is refused as a rule, their usual error:
    /// it is larger where the draw's elements are, and not because of the worst of several programs.
    pub(crate) fn raise(
        &self,
        output: usize,
        held: bool,
        known: &mut Errors,
        scales: &mut [ScaleErrors],
    ) {
        let (notes, times) = if held { (&self.usual, 1.0) } else { (&self.notes, HERE) };
        let Some(note) = notes.get(output) else { return };
        known.honest = known.honest.max(times * note.honest.unwrap_or(0.0));
        for scale in scales {
            let here = note.scales.iter().find(|s| s.below.to_bits() == scale.below.to_bits());
            scale.honest = scale.honest.max(here.map_or(0.0, |here| times * here.honest));
        }
    }
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
/// The most and the least of formats of 16 bits: whoever sums in float32 and rounds once is nearer to the
/// truth than the same-precision reference, which rounds after every operator.
const SHORT_SLACK: (f64, f64) = (6.0, 3.0);
/// How many times the model of other orders is allowed. Measured sums in order were up to 3 times
/// their model's root mean square further out than its own largest.
const HONEST_SLACK: f64 = 3.0;
/// By how much the model's error on the very draw that a result is compared on counts more. Of 220 draws with
/// outliers, softmax over 65,536 terms in order was off by up to 4.4 times the model's largest of three; on 11
/// it was beyond what one draw of the family allows.
const HERE: f64 = 5.0 / HONEST_SLACK;
/// Factor by which the error of lower precision must exceed the tolerance, if possible.
const MARGIN: f64 = 2.0;
/// It is told from honest noise if its largest error is so many times what is allowed.
const SEPARATE: f64 = 1.25;
/// Units in the last place, relative to the root mean square, allowed where eager is exact.
const FLOOR_ULPS: f64 = 8.0;
/// The same in formats of 16 bits, in which programs round what they have summed in float32: a
/// result's own rounding is allowed relative to it, and no part of the errors that are measured.
const SHORT_FLOOR_ULPS: f64 = 4.0;
/// Relative units in the last place of the element itself.
const ELEMENT_ULPS: f64 = 2.0;
/// Largest error that is allowed, in units of the output's spread: whatever honest programs may be off
/// by, the output's mean, zeros and what another draw gives must be wrong. A quarter is far above any
/// honest error in an output that says something, and leaves two thirds of normal numbers outside around
/// their mean even where an honest error takes all of it (`CEILING` of `distance.py`).
const CEILING: f64 = 0.25;
/// Fewer elements have no spread of their own: what they are by chance near to says nothing.
const FEW: u64 = 64;
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
    let Tolerance { atol, rtol } = uncapped(profile, dtype, note, known, family);
    Tolerance { atol: atol.min(ceiling(note, known)), rtol }
}

/// The largest error at which an element still says something about the output: in units of how far
/// its elements are from their mean, and draws from each other.
fn ceiling(note: &OutputNote, known: &Errors) -> f64 {
    let within = if note.count < FEW { f64::INFINITY } else { note.spread };
    // If all draws give the same output, only the spread of its elements bounds the tolerance.
    let apart = known.between.filter(|between| *between > 0.0);
    let between = apart.map_or(f64::INFINITY, |between| between * note.rms);
    CEILING * within.min(between).min(note.rms)
}

/// Why comparing an output cannot tell a correct candidate from a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Silent {
    /// It has no elements.
    #[error("it has no elements")]
    Empty,
    /// No element is finite.
    #[error("no element is finite")]
    NeverFinite,
    /// It is an input, so it needs no computation.
    #[error("it is a view of an input")]
    View,
    /// Its values vary less than the rounding errors of correct programs.
    #[error(
        "its values vary less, across elements and inputs, than rounding errors of correct programs"
    )]
    Noise,
    /// The reference in its own precision disagrees with its float64 version.
    #[error("on most elements the reference is far from its own float64 results")]
    Apart,
}

/// Whether comparing an output in one call tells a right answer from a wrong one.
pub(crate) fn tells(dtype: Dtype, note: &OutputNote, known: &Errors) -> Result<(), Silent> {
    let elements: u64 = note.shape.iter().product();
    if elements == 0 {
        return Err(Silent::Empty);
    }
    if note.count == 0 {
        return Err(if note.view_of.is_some() { Silent::View } else { Silent::NeverFinite });
    }
    let Some(epsilon) = dtype.epsilon() else { return Ok(()) };
    if 2 * note.apart > note.count {
        return Err(Silent::Apart);
    }
    if known.between == Some(0.0) {
        return Err(Silent::Noise);
    }
    let rounding = 0.5 * epsilon * note.rms;
    if rounding.max(note.beyond) > ceiling(note, known) { Err(Silent::Noise) } else { Ok(()) }
}

fn uncapped(
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
    let own = note.beyond.max(known.noise * note.rms);
    let (most, least) = if dtype.size() <= 2 { SHORT_SLACK } else { (SLACK, LEAST_SLACK) };
    let scaled = match known.lower {
        None => most * own,
        Some(lower) => {
            let least = if profile == Profile::Strict { least } else { LEAST_LOOSE_SLACK };
            let below = (lower * note.rms / MARGIN).max(least * own);
            // On hard inputs honest algorithms differ: a variance in one pass, with a shift that
            // happens to be an outlier, loses three digits.
            if family.is_hard() { below } else { below.min(most * own) }
        }
    };
    let allowed = scaled.max(HONEST_SLACK * known.honest * note.rms);
    let floor = if dtype.size() <= 2 { SHORT_FLOOR_ULPS } else { FLOOR_ULPS };
    Tolerance { atol: allowed + floor * epsilon * note.rms, rtol: ELEMENT_ULPS * epsilon }
}

impl OutputNote {
    /// Of an output whose root mean square is one.
    pub(crate) fn of_unit_size(truth: &str) -> Self {
        Self {
            dtype: String::new(),
            shape: vec![1 << 20],
            strides: vec![1],
            error: 0.0,
            beyond: 0.0,
            rms: 1.0,
            spread: 1.0,
            largest: 4.0,
            agrees: true,
            count: 1 << 20,
            apart: 0,
            view_of: None,
            truth: truth.to_owned(),
            own: None,
            stated: None,
            scales: Vec::new(),
        }
    }
}

/// Whether a result of the next lower precision would be refused on such inputs.
pub(crate) fn separates(
    profile: Profile,
    dtype: Dtype,
    known: &Errors,
    (family, truth): (InputFamily, &str),
) -> bool {
    let note = OutputNote { largest: known.largest, ..OutputNote::of_unit_size(truth) };
    let allowed = tolerance(profile, dtype, &note, known, family);
    let relative = if dtype.size() <= 2 { 0.0 } else { allowed.rtol * known.largest };
    known.lower.is_some_and(|l| l >= SEPARATE * (allowed.atol + relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(error: f64) -> OutputNote {
        OutputNote { error, beyond: error, ..OutputNote::of_unit_size("float64") }
    }

    fn known(noise: f64, lower: f64) -> Errors {
        Errors { noise, honest: 0.0, lower: Some(lower), largest: 4.0, between: Some(1.0) }
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
    fn the_tolerance_separates_nearby_lower_precision() {
        let near = known(1e-5, 12e-5);
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(0.9e-5), &near, OWN);
        assert!((5e-5..12e-5 / SEPARATE).contains(&allowed.atol), "{allowed:?}");
        assert!(separates(Profile::Strict, Dtype::F32, &near, (OWN, "float64")));
        let nearer = known(1e-5, 6e-5);
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(0.9e-5), &nearer, OWN);
        assert!(allowed.atol > 5e-5, "honest programs come first: {allowed:?}");
        assert!(!separates(Profile::Strict, Dtype::F32, &nearer, (OWN, "float64")));
    }

    #[test]
    fn exact_eager_results_still_allow_other_summation_orders() {
        let honest = Errors { honest: 1e-5, ..known(1e-7, 1e-3) };
        let allowed = tolerance(Profile::Strict, Dtype::F32, &note(1e-7), &honest, OWN);
        assert!(allowed.atol > 2e-5);
        assert!(separates(Profile::Strict, Dtype::F32, &honest, (OWN, "float64")));
    }

    #[test]
    fn honest_errors_on_a_sample_widen_its_tolerance() {
        let note = |honest, scale: f64| crate::process::wire::ErrorNote {
            largest: 1.0,
            noise: 0.0,
            honest: Some(honest),
            lower: None,
            between: None,
            varies: true,
            compared: true,
            scales: vec![ScaleErrors { below: 2.0, noise: 0.0, honest: scale, lower: None }],
        };
        let before = Errors { honest: 1e-5, ..known(1e-6, 1e-3) };
        let class = ScaleErrors { below: 2.0, noise: 0.0, honest: 1e-6, lower: None };
        let larger = |times: f64| (times * 4e-5, times * 3e-6);
        for (held, here, there, expected) in [
            (false, 4e-5, 3e-6, larger(HERE)),
            (true, 4e-5, 3e-6, larger(1.0)),
            (false, 1e-7, 1e-7, (1e-5, 1e-6)),
            (true, 1e-7, 1e-7, (1e-5, 1e-6)),
        ] {
            let (mut errors, mut scales) = (before, [class, ScaleErrors { below: 8.0, ..class }]);
            // What the other notes say is of no account.
            let (notes, other) = (vec![note(here, there)], vec![note(1.0, 1.0)]);
            let told = if held {
                Reordered { notes: other, usual: notes, astray: false }
            } else {
                Reordered { notes, usual: other, astray: false }
            };
            told.raise(0, held, &mut errors, &mut scales);
            assert_eq!((errors.honest, scales[0].honest), expected);
            assert_eq!(scales[1], ScaleErrors { below: 8.0, ..class }, "another class");
            let mut other = before;
            told.raise(1, held, &mut other, &mut []);
            assert_eq!(other, before, "another output");
        }
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
    fn tf32_error_widens_the_tolerance_without_float64() {
        let blind = OutputNote { truth: "same precision".into(), ..note(0.0) };
        let allowed = |noise| tolerance(Profile::Tf32, Dtype::F32, &blind, &known(noise, 1.0), OWN);
        assert!(allowed(0.0).atol < 1e-4, "{:?}", allowed(0.0));
        assert!(allowed(1e-3).atol >= 3e-3);
    }

    /// The error of the reference itself may be as large as the output is.
    #[test]
    fn no_tolerance_lets_the_mean_or_zeros_pass() {
        for profile in Profile::ALL {
            for (spread, between) in [(1e-3, 1.0), (1.0, 1e-3), (1e-3, 1e-3)] {
                let wild = OutputNote { spread, ..note(0.9) };
                let errors = Errors { between: Some(between), ..known(2.0, 8.0) };
                let allowed = tolerance(profile, Dtype::F32, &wild, &errors, OWN);
                assert!(allowed.atol <= 0.25e-3, "{profile} {allowed:?}");
            }
        }
    }

    #[test]
    fn an_uninformative_output_has_its_reason() {
        let float = |note: &OutputNote, errors: &Errors| tells(Dtype::F32, note, errors);
        let usual = note(1e-6);
        assert_eq!(float(&usual, &known(1e-6, 1e-3)), Ok(()));
        let empty = OutputNote { shape: vec![0, 3], count: 0, ..usual.clone() };
        assert_eq!(float(&empty, &Errors::default()), Err(Silent::Empty));
        let undefined = OutputNote { count: 0, ..usual.clone() };
        assert_eq!(float(&undefined, &Errors::default()), Err(Silent::NeverFinite));
        let view = OutputNote { count: 0, view_of: Some(1), ..usual.clone() };
        assert_eq!(float(&view, &Errors::default()), Err(Silent::View));
        let constant = OutputNote { spread: 0.0, ..usual.clone() };
        assert_eq!(float(&constant, &Errors::default()), Err(Silent::Noise));
        let frozen = Errors { between: Some(0.0), ..known(1e-6, 1e-3) };
        assert_eq!(float(&usual, &frozen), Err(Silent::Noise));
        assert!(tolerance(Profile::Strict, Dtype::F32, &usual, &frozen, OWN).atol > 1e-7);
        let torn = OutputNote { apart: 600_000, ..usual.clone() };
        assert_eq!(float(&torn, &known(1e-6, 1e-3)), Err(Silent::Apart));
        // A single number has no spread; what it is from draw to draw has.
        let single = OutputNote { shape: vec![], count: 1, spread: 0.0, ..usual };
        assert_eq!(float(&single, &known(1e-6, 1e-3)), Ok(()));
        assert_eq!(tells(Dtype::I64, &single, &Errors::default()), Ok(()));
    }

    #[test]
    fn float64_outputs_have_a_float64_tolerance() {
        let errors = Errors { honest: 2e-14, ..known(0.0, 5e-8) };
        let allowed = tolerance(Profile::Strict, Dtype::F64, &note(0.0), &errors, OWN);
        assert!(allowed.atol + allowed.rtol < 1e-12, "{allowed:?}");
        assert!(separates(Profile::Strict, Dtype::F64, &errors, (OWN, "float64")));
    }

    #[test]
    fn bfloat16_is_distinguished_from_tf32_under_tf32() {
        let errors = known(1e-3, 8e-3);
        assert!(separates(Profile::Tf32, Dtype::F32, &errors, (OWN, "float64")));
        let allowed = tolerance(Profile::Tf32, Dtype::F32, &note(1e-3), &errors, OWN);
        assert!(allowed.atol > 2.5e-3, "other TF32 programs are honest: {allowed:?}");
    }
}
