//! Whether all is right: what nearly every comparison of a verified candidate comes to, in a fraction of
//! the time that it takes to say what is wrong.

use crate::tolerance::Tolerance;

/// The largest error where every element is right and every truth finite; `None` otherwise. It has no
/// branches, so that the compiler may compare several at a time.
pub(super) fn all_right(gots: &[f64], wants: &[f64], tolerance: Tolerance) -> Option<f64> {
    const LANES: usize = 8;
    let mut largest = [0.0_f64; LANES];
    let mut right = true;
    let mut look = |lanes: &mut [f64; LANES], gots: &[f64], wants: &[f64]| {
        for ((largest, g), w) in lanes.iter_mut().zip(gots).zip(wants) {
            let error = (g - w).abs();
            // False where either is NaN.
            right &= error <= tolerance.atol + tolerance.rtol * w.abs();
            right &= w.is_finite();
            *largest = if error > *largest { error } else { *largest };
        }
    };
    for (gots, wants) in gots.chunks(LANES).zip(wants.chunks(LANES)) {
        look(&mut largest, gots, wants);
    }
    right.then(|| largest.into_iter().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { atol: 1e-3, rtol: 1e-3 };

    /// More than one turn of all lanes, and some elements beyond.
    fn truths() -> Vec<f64> {
        (0..21).map(|i| f64::from(i) - 10.0).collect()
    }

    #[test]
    fn the_largest_error_is_told_where_all_are_right() {
        let wants = truths();
        for at in 0..wants.len() {
            let mut gots = wants.clone();
            gots[at] += 0.9e-3;
            let error = (gots[at] - wants[at]).abs();
            assert_eq!(all_right(&gots, &wants, TOLERANCE), Some(error));
        }
    }

    #[test]
    fn one_that_is_wrong_is_seen_wherever_it_is() {
        let wants = truths();
        for at in 0..wants.len() {
            let off = 1.1 * (TOLERANCE.atol + TOLERANCE.rtol * wants[at].abs());
            for got in [wants[at] + off, wants[at] - off, f64::NAN, f64::INFINITY] {
                let mut gots = wants.clone();
                gots[at] = got;
                assert_eq!(all_right(&gots, &wants, TOLERANCE), None, "{got} at {at}");
            }
        }
    }

    /// Relative to an infinite truth everything would be near enough.
    #[test]
    fn what_is_not_finite_is_left_to_the_exact_way() {
        for truth in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            for got in [truth, 1.0] {
                let (mut gots, mut wants) = (truths(), truths());
                (gots[9], wants[9]) = (got, truth);
                assert_eq!(all_right(&gots, &wants, TOLERANCE), None);
            }
        }
    }
}
