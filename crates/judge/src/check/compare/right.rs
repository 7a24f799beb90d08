//! Decides which elements are correct: one at a time, or a whole stretch at once. The second takes a fraction
//! of the time and suffices for nearly every comparison of a verified candidate.
//!
//! `native/compare.cu` implements the same rule; a GPU test compares both on the same bytes.

use crate::check::dtype::Dtype;
use crate::check::tolerance::{Steps, Tolerance};

/// What memory was filled with before a window, from some place of an arena on: eight bytes again
/// and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poison {
    /// Bytes from the arena's start.
    pub(crate) start: u64,
    /// As eight bytes in memory are read.
    pub(crate) word: u64,
}

impl Poison {
    /// The bits of an element of `size` bytes at `address` that nobody wrote.
    pub(crate) fn bits(self, address: u64, size: u64) -> u64 {
        let turned = self.word.rotate_right((address.wrapping_sub(self.start) % 8 * 8) as u32);
        if size >= 8 { turned } else { turned & ((1 << (8 * size)) - 1) }
    }
}

/// Rule by which the elements of one output are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) tolerance: Tolerance,
    /// What is allowed of small elements, where they are much smaller than others.
    pub(crate) steps: Steps,
    /// Of what was got.
    pub(crate) dtype: Dtype,
    /// Poison in memory before the call; `None` if memory was not poisoned.
    pub(crate) poison: Option<Poison>,
}

/// One element: what was got, the truth, and where it counts beside the truth the same-precision
/// reference's own answer, each as bits of its dtype and as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triple {
    pub(crate) got: (u64, f64),
    pub(crate) want: (u64, f64),
    pub(crate) own: Option<(u64, f64)>,
}

impl Terms {
    /// Whether an element is right.
    ///
    /// The reference's own answer counts where it is not what the truth is: where the reference
    /// overflows, or absorbs what float64 does not, programs that do as it does are honest, and
    /// programs that do as float64 does are. Infinity is right where the truth is beyond the dtype's
    /// range, or so near to its end that an honest error decides.
    pub(crate) fn right(&self, element: &Triple) -> bool {
        let Triple { got: (bits, got), want: (truth, want), own } = *element;
        if !self.dtype.is_real() {
            return bits == truth || own.is_some_and(|(own, _)| bits == own);
        }
        let allowed = self.allowed(want);
        if want.is_finite() {
            let beyond = got.is_infinite()
                && got.is_sign_positive() == want.is_sign_positive()
                && want.abs() + allowed >= self.dtype.limit();
            if (got - want).abs() <= allowed || beyond {
                return true;
            }
        } else if same(got, want) {
            return true;
        }
        own.is_some_and(|(_, own)| {
            let agrees = if own.is_finite() && want.is_finite() {
                (own - want).abs() <= allowed
            } else {
                same(own, want)
            };
            let near = own.is_finite() && (got - own).abs() <= self.allowed(own);
            !agrees && (near || same(got, own))
        })
    }

    /// How far from this truth an element may be.
    pub(crate) fn allowed(&self, truth: f64) -> f64 {
        self.steps.atol(truth, self.tolerance.atol) + self.tolerance.rtol * truth.abs()
    }

    /// What is allowed of elements of every size: what is within it needs no closer look.
    pub(super) fn least(&self) -> Tolerance {
        Tolerance { atol: self.steps.least(self.tolerance.atol), rtol: self.tolerance.rtol }
    }

    /// Whether an element of these bits at `address`, which is right as a number, was never written.
    ///
    /// Bits alone prove it only where no honest program gives them by chance. A finite number within
    /// the tolerance is as good as written: the patterns are no numbers that outputs have, and differ
    /// from window to window. So is a number of eight or sixteen bits that is no floating one (a
    /// saturated 127 is common), and what hardware gives for "not a number" (0x7fff in half precision):
    /// such an element is right in this window, and in one with the other pattern it is not.
    pub(crate) fn unwritten(&self, (bits, value): (u64, f64), address: u64) -> bool {
        let size = self.dtype.size();
        let telling = if self.dtype.is_real() {
            !value.is_finite() && !self.dtype.usual_nan(bits)
        } else {
            size >= 4
        };
        telling && self.holds_poison(bits, address)
    }

    /// Whether these bits are what was there before the window.
    pub(crate) fn holds_poison(&self, bits: u64, address: u64) -> bool {
        self.poison.is_some_and(|poison| bits == poison.bits(address, self.dtype.size()))
    }
}

/// Equal infinities, or NaN both.
fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) == Some(std::cmp::Ordering::Equal) || (a.is_nan() && b.is_nan())
}

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
    fn correct_elements_return_the_largest_error() {
        let wants = truths();
        for at in 0..wants.len() {
            let mut gots = wants.clone();
            gots[at] += 0.9e-3;
            let error = (gots[at] - wants[at]).abs();
            assert_eq!(all_right(&gots, &wants, TOLERANCE), Some(error));
        }
    }

    #[test]
    fn a_wrong_element_is_found_at_any_index() {
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
    fn non_finite_values_fall_back_to_the_exact_path() {
        for truth in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            for got in [truth, 1.0] {
                let (mut gots, mut wants) = (truths(), truths());
                (gots[9], wants[9]) = (got, truth);
                assert_eq!(all_right(&gots, &wants, TOLERANCE), None);
            }
        }
    }
}
