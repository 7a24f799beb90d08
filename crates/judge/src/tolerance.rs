//! How far from the truth a result may be.
//!
//! `strict`, `tf32` and `as-run` scale the tolerance to the error that an honest implementation in
//! the same precision, PyTorch's own, makes against float64 on the same inputs. `paper` is the
//! paper's fixed tolerance against eager. Per-task calibration is a later issue's.

use warpwright_record::verdict::Profile;

use crate::dtype::Dtype;
use crate::wire::OutputNote;

/// Elements within `atol + rtol * |truth|` are right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
}

/// How many times eager's own largest error is allowed. Another order of summation stays within a
/// small multiple; the next lower precision is three orders of magnitude away (float32 2^-24,
/// TF32 2^-11), so the exact value matters little.
const SLACK: f64 = 16.0;
/// Units in the last place, relative to the root mean square, allowed where eager is exact.
const FLOOR_ULPS: f64 = 8.0;
/// Relative units in the last place of the element itself.
const ELEMENT_ULPS: f64 = 2.0;
/// Without a float64 truth eager's error is unknown; this many units in the last place stand in.
const BLIND_ULPS: f64 = 512.0;

/// Tolerance for one output. `noise` is the largest error of the same-precision reference seen so
/// far in units of the output's root mean square: one call can be lucky, many are not.
pub(crate) fn tolerance(
    profile: Profile,
    dtype: Dtype,
    note: &OutputNote,
    noise: f64,
) -> Tolerance {
    let Some(epsilon) = dtype.epsilon() else {
        return Tolerance { atol: 0.0, rtol: 0.0 };
    };
    if profile == Profile::Paper {
        return Tolerance { atol: 1e-2, rtol: 1e-2 };
    }
    if note.truth != "float64" {
        return Tolerance {
            atol: BLIND_ULPS * epsilon * note.rms,
            rtol: (BLIND_ULPS * epsilon).min(0.05),
        };
    }
    let own = note.error.max(noise * note.rms);
    Tolerance { atol: SLACK * own + FLOOR_ULPS * epsilon * note.rms, rtol: ELEMENT_ULPS * epsilon }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(error: f64) -> OutputNote {
        OutputNote { error, rms: 1.0, largest: 4.0, truth: "float64".into(), own: None }
    }

    #[test]
    fn a_result_of_lower_precision_fails_under_strict() {
        // A float32 pointwise chain errs by about one unit in the last place of the largest value.
        let float32 = tolerance(Profile::Strict, Dtype::F32, &note(4.0 * 6e-8), 0.0);
        assert!(float32.atol + float32.rtol < 4.0 * 2f64.powi(-11), "TF32 must be outside");
        assert!(float32.atol > 1e-7, "another order of float32 operations must be inside");
    }

    #[test]
    fn a_lucky_call_does_not_shrink_the_tolerance() {
        let lucky = tolerance(Profile::Strict, Dtype::F32, &note(0.0), 1e-5);
        assert!(lucky.atol > 1e-5);
    }

    #[test]
    fn integers_are_exact() {
        let exact = tolerance(Profile::Strict, Dtype::I64, &note(0.0), 1.0);
        assert_eq!(exact, Tolerance { atol: 0.0, rtol: 0.0 });
    }
}
