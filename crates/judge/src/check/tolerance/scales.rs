//! Tolerances by magnitude, for outputs whose elements differ much in magnitude (`scales.py`).
//!
//! A tolerance relative to the root mean square of the whole output would hide errors of every small
//! element. Elements of a magnitude class have a tolerance from the errors of that class, and never a looser
//! one than the whole output.

use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::Profile;

use super::{CEILING, Errors, Tolerance, uncapped};
use crate::check::dtype::Dtype;
use crate::process::wire::{OutputNote, ScaleErrors};

/// Classes at the most: the largest, which are 64 binades. What is smaller is compared as the least of them.
const MOST: usize = 8;

/// Absolute tolerances of elements whose truth is below a magnitude, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    /// `(below, atol)`.
    steps: [(f64, f64); MOST],
    count: usize,
}

impl Steps {
    /// Of one output in one call; none where its elements have one scale, nothing is known of their
    /// errors, or the profile allows what it allows.
    pub(crate) fn of(
        (profile, family): (Profile, InputFamily),
        dtype: Dtype,
        (note, whole): (&OutputNote, Tolerance),
        known: &[ScaleErrors],
    ) -> Self {
        let mut found = Self::default();
        let Some(least) = smallest(dtype) else { return found };
        if profile == Profile::Paper || note.truth != "float64" {
            return found;
        }
        for scale in &note.scales[note.scales.len().saturating_sub(MOST)..] {
            let Some(errors) = known.iter().find(|errors| same(errors.below, scale.below)) else {
                continue;
            };
            let class = OutputNote {
                beyond: scale.beyond,
                rms: scale.rms,
                scales: Vec::new(),
                ..note.clone()
            };
            let errors = Errors {
                noise: errors.noise,
                honest: errors.honest,
                lower: errors.lower,
                ..Errors::default()
            };
            let allowed = uncapped(profile, dtype, &class, &errors, family).atol;
            // The spread of a class says nothing: it is what its ends are.
            let atol = allowed.min(CEILING * scale.rms).max(least).min(whole.atol);
            if let Some(place) = found.steps.get_mut(found.count) {
                *place = (scale.below, atol);
                found.count += 1;
            }
        }
        found
    }

    /// One step.
    #[cfg(test)]
    pub(crate) fn one(below: f64, atol: f64) -> Self {
        let mut steps = Self { count: 1, ..Self::default() };
        steps.steps[0] = (below, atol);
        steps
    }

    /// What is allowed of an element with this truth, where the whole output is allowed `atol`.
    pub(crate) fn atol(&self, truth: f64, atol: f64) -> f64 {
        let size = truth.abs();
        self.steps[..self.count].iter().find(|(below, _)| size < *below).map_or(atol, |step| step.1)
    }

    /// The least of all: what is within it is right whatever its size.
    pub(crate) fn least(&self, atol: f64) -> f64 {
        self.steps[..self.count].iter().fold(atol, |least, step| least.min(step.1))
    }
}

/// What an honest program may take for zero; `None` of what has no scales.
fn smallest(dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::F64 => Some(f64::MIN_POSITIVE),
        // Many flush what is less.
        Dtype::F32 | Dtype::Bf16 => Some(f64::from(f32::MIN_POSITIVE)),
        Dtype::F16 => Some(2f64.powi(-24)),
        _ => None,
    }
}

/// Both come from the same power of two.
fn same(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tolerance::tolerance;
    use crate::process::wire::Scale;

    const FAMILY: InputFamily = InputFamily::Own;

    /// One in ten elements is -1e9, the others are about one.
    fn masked() -> (OutputNote, Vec<ScaleErrors>) {
        let scales = vec![Scale { below: 128.0, rms: 1.0, beyond: 1e-7 }];
        let note = OutputNote {
            rms: 3e8,
            spread: 3e8,
            largest: 1e9,
            beyond: 1e-7,
            scales,
            ..OutputNote::of_unit_size("float64")
        };
        let errors = ScaleErrors { below: 128.0, noise: 1e-7, honest: 2e-7, lower: Some(1e-3) };
        (note, vec![errors])
    }

    #[test]
    fn errors_of_large_elements_do_not_hide_small_ones() {
        let (note, known) = masked();
        let whole = tolerance(Profile::Strict, Dtype::F32, &note, &Errors::default(), FAMILY);
        assert!(whole.atol > 100.0, "positive control: zeros would pass, {whole:?}");
        let steps = Steps::of((Profile::Strict, FAMILY), Dtype::F32, (&note, whole), &known);
        let small = steps.atol(0.5, whole.atol);
        assert!((1e-6..1e-4).contains(&small), "{small}");
        assert!(same(steps.atol(-1e9, whole.atol), whole.atol), "large ones are judged as before");
        assert!(same(steps.least(whole.atol), small));
        let wild = [ScaleErrors { noise: 5.0, honest: 5.0, ..known[0] }];
        let steps = Steps::of((Profile::Strict, FAMILY), Dtype::F32, (&note, whole), &wild);
        assert!(steps.atol(0.5, whole.atol) <= 0.25, "zeros never pass");
    }

    #[test]
    fn the_largest_magnitude_classes_have_separate_tolerances() {
        let (mut note, _) = masked();
        let below = |i: i32| 2f64.powi(8 * i - 81);
        let class = |i| Scale { below: below(i), rms: below(i - 1), beyond: 1e-9 * below(i - 1) };
        note.scales = (0..12).map(class).collect();
        let of = |scale: &Scale| ScaleErrors {
            below: scale.below,
            noise: 1e-7,
            honest: 1e-7,
            lower: None,
        };
        let known: Vec<ScaleErrors> = note.scales.iter().map(of).collect();
        let whole = Tolerance { atol: 1e3, rtol: 0.0 };
        let steps = Steps::of((Profile::Strict, FAMILY), Dtype::F32, (&note, whole), &known);
        let largest = steps.atol(0.5 * below(11), whole.atol);
        assert!(largest < 1e-4 * below(11), "{largest}");
        assert!(steps.atol(0.5 * below(10), whole.atol) < largest);
        assert!(same(steps.atol(0.0, whole.atol), steps.atol(0.5 * below(4), whole.atol)));
    }

    /// The exponential of a steep softmax: float32 has no such numbers.
    #[test]
    fn elements_below_the_formats_range_may_be_zero() {
        let (mut note, mut known) = masked();
        note.scales = vec![Scale { below: 1e-60, rms: 1e-61, beyond: 1e-61 }];
        known[0] = ScaleErrors { below: 1e-60, noise: 1.0, honest: 1.0, lower: None };
        let whole = Tolerance { atol: 1e-7, rtol: 0.0 };
        let steps = Steps::of((Profile::Strict, FAMILY), Dtype::F32, (&note, whole), &known);
        assert!(steps.atol(9e-61, whole.atol) > 9e-61);
        let steps = Steps::of((Profile::Strict, FAMILY), Dtype::F64, (&note, whole), &known);
        assert!(steps.atol(9e-61, whole.atol) < 9e-61, "double has");
    }

    #[test]
    fn outputs_of_one_scale_have_one_tolerance() {
        let (masked, known) = masked();
        let plain = OutputNote::of_unit_size("float64");
        let whole = tolerance(Profile::Strict, Dtype::F32, &plain, &Errors::default(), FAMILY);
        let none = Steps::default();
        let of = |profile, note: &OutputNote, known: &[ScaleErrors]| {
            Steps::of((profile, FAMILY), Dtype::F32, (note, whole), known)
        };
        assert_eq!(of(Profile::Strict, &plain, &known), none);
        assert_eq!(of(Profile::Strict, &masked, &[]), none, "nothing is known of its errors");
        assert_eq!(of(Profile::Paper, &masked, &known), none);
        let blind = OutputNote { truth: "same precision".into(), ..masked };
        assert_eq!(of(Profile::Strict, &blind, &known), none);
        assert!(same(none.atol(0.5, whole.atol), whole.atol));
    }
}
