//! Compares the arms of an experiment, each of a few training runs.

use warpwright_record::interval::Interval;

/// 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom (Abramowitz and Stegun, table
/// 26.10).
const T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

/// Mean over runs with Student's 95 % confidence interval. The interval of a single run is
/// unbounded. `None` without runs.
pub fn mean(runs: &[f64]) -> Option<Interval> {
    let n = runs.len() as f64;
    let value = runs.iter().sum::<f64>() / n;
    match runs.len() {
        0 => None,
        1 => Some(Interval { value, low: f64::NEG_INFINITY, high: f64::INFINITY }),
        count => {
            let variance = runs.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (n - 1.0);
            let t = T.get(count - 2).copied().unwrap_or(T[T.len() - 1]);
            let half = t * (variance / n).sqrt();
            Some(Interval { value, low: value - half, high: value + half })
        }
    }
}

/// Fisher's exact test, two-sided. Returns the p-value under the hypothesis that runs of both arms
/// collapse equally often. `a` and `b` are `(collapsed, runs)` of each arm.
pub fn fisher(a: (usize, usize), b: (usize, usize)) -> f64 {
    let (runs, collapsed) = (a.1 + b.1, a.0 + b.0);
    let ways = |of: usize, taken: usize| -> f64 {
        if taken > of {
            return 0.0;
        }
        (0..taken).map(|i| (of - i) as f64 / (i + 1) as f64).product()
    };
    let chance = |x: usize| -> f64 {
        if x > collapsed {
            return 0.0;
        }
        ways(a.1, x) * ways(b.1, collapsed - x) / ways(runs, collapsed)
    };
    let seen = chance(a.0);
    let all = (0..=collapsed).map(chance);
    // Tables as likely as the observed one count, in spite of rounding.
    all.filter(|chance| *chance <= seen * (1.0 + 1e-9)).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mean_has_students_interval() {
        // By hand: s = 1.9235, so 3.2 +- 2.776 * s / sqrt(5).
        let found = mean(&[1.0, 2.0, 3.0, 4.0, 6.0]).unwrap();
        assert!((found.value - 3.2).abs() < 1e-12);
        assert!(
            (found.low - 0.8118).abs() < 1e-3 && (found.high - 5.5882).abs() < 1e-3,
            "{found:?}"
        );
        assert!(mean(&[1.0]).unwrap().low.is_infinite() && mean(&[]).is_none());
    }

    #[test]
    fn fisher_matches_published_and_hand_computed_values() {
        // docs/concepts/rl.md; the second by hand: 2 / C(10, 5).
        assert!((fisher((3, 3), (0, 3)) - 0.1).abs() < 1e-12);
        assert!((fisher((5, 5), (0, 5)) - 2.0 / 252.0).abs() < 1e-12);
        assert!((fisher((0, 5), (0, 5)) - 1.0).abs() < 1e-12);
        // The example of Wikipedia's article on the test.
        assert!((fisher((1, 10), (11, 14)) - 0.002_759_456).abs() < 1e-6);
    }

    proptest! {
        /// The same by dealing the collapsed runs out in every way.
        #[test]
        fn fisher_equals_enumeration(
            a in prop::collection::vec(any::<bool>(), 1..6),
            b in prop::collection::vec(any::<bool>(), 1..6),
        ) {
            let count = |runs: &[bool]| runs.iter().filter(|collapsed| **collapsed).count();
            let (n, k) = (a.len() + b.len(), count(&a) + count(&b));
            let mut ways = vec![0u32; k + 1];
            for dealt in 0u32..1 << n {
                if dealt.count_ones() as usize == k {
                    ways[(dealt & ((1 << a.len()) - 1)).count_ones() as usize] += 1;
                }
            }
            let seen = ways[count(&a)];
            let as_far: u32 = ways.iter().filter(|ways| **ways <= seen).sum();
            let all: u32 = ways.iter().sum();
            let expected = f64::from(as_far) / f64::from(all);
            let found = fisher((count(&a), a.len()), (count(&b), b.len()));
            prop_assert!((found - expected).abs() < 1e-9, "{} {}", found, expected);
        }
    }
}
