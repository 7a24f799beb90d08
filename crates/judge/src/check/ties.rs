//! Elements near a tie: the last bit of an intermediate result decides their value.
//!
//! If a reference rounds, compares or searches, honest programs may disagree on an element near a tie:
//! slightly above 12.5 rounds to 12 or 13. The judge compares an element that differs from the float64
//! reference and from the reference in its own precision with several programs, each of which has float32's
//! error in every operator (`ties.py`). The element is correct if one of them has it: the exact integer, or,
//! for floating outputs, a value beyond a jump. An element that is only less exact is decided by the
//! tolerance.

use crate::check::compare::{Outside, Terms};
use crate::process::wire::Said;

/// How many times what is allowed two values are apart between which there is a jump.
const JUMP: f64 = 16.0;

/// Elements of one output that are outside its tolerance.
#[derive(Clone, Debug)]
pub(crate) struct Doubtful {
    /// Its position among the outputs, and behind them the changed inputs.
    pub(crate) output: usize,
    pub(crate) outside: Vec<Outside>,
    pub(crate) terms: Terms,
}

impl Doubtful {
    pub(crate) fn places(&self) -> Vec<u64> {
        self.outside.iter().map(|element| element.index).collect()
    }

    /// Whether some program has each of them.
    pub(crate) fn all_said(&self, said: &Said) -> bool {
        let has = |k: usize, element: &Outside| {
            let values = said.programs.iter().filter_map(|program| *program.get(k)?);
            values.into_iter().any(|value| self.is(element, value))
        };
        self.outside.iter().enumerate().all(|(k, element)| has(k, element))
    }

    fn is(&self, &Outside { got, want, .. }: &Outside, value: f64) -> bool {
        if !self.terms.dtype.is_real() {
            return got.to_bits() == value.to_bits();
        }
        let (allowed, beyond) = (self.terms.allowed(value), JUMP * self.terms.allowed(want));
        (got - value).abs() <= allowed && (value - want).abs() > beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::dtype::Dtype;
    use crate::check::tolerance::{Steps, Tolerance};

    fn doubtful(dtype: Dtype, atol: f64, outside: &[(f64, f64)]) -> Doubtful {
        let tolerance = Tolerance { atol, rtol: 0.0 };
        let terms = Terms { tolerance, steps: Steps::default(), dtype, poison: None };
        let element =
            |(k, &(got, want)): (usize, &(f64, f64))| Outside { index: k as u64, got, want };
        Doubtful { output: 0, outside: outside.iter().enumerate().map(element).collect(), terms }
    }

    fn said(programs: &[&[Option<f64>]]) -> Said {
        Said { programs: programs.iter().map(|program| program.to_vec()).collect() }
    }

    #[test]
    fn an_integer_is_correct_if_an_honest_program_agrees() {
        let found = doubtful(Dtype::I8, 0.0, &[(12.0, 13.0), (-4.0, -5.0)]);
        assert!(found.all_said(&said(&[&[Some(12.0), Some(-5.0)], &[Some(13.0), Some(-4.0)]])));
        assert!(!found.all_said(&said(&[&[Some(12.0), Some(-5.0)], &[Some(13.0), Some(-6.0)]])));
        assert!(!found.all_said(&said(&[&[Some(12.0), None]])), "not finite there");
        assert!(!found.all_said(&said(&[&[Some(12.0)]])), "a program that says less");
        assert!(!found.all_said(&said(&[])), "nobody was asked");
    }

    #[test]
    fn ties_accept_floats_only_across_a_jump() {
        let found = doubtful(Dtype::F32, 1e-3, &[(0.5, 0.75)]);
        assert!(found.all_said(&said(&[&[Some(0.7500)], &[Some(0.5004)]])));
        assert!(!found.all_said(&said(&[&[Some(0.502)]])), "not within what is allowed");
        let near = doubtful(Dtype::F32, 1e-3, &[(0.752, 0.75)]);
        assert!(!near.all_said(&said(&[&[Some(0.7515)]])), "less exact, and no jump");
    }
}
