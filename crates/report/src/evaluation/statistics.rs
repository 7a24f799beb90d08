//! Intervals by the percentile bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*,
//! 1993, chapter 13). What is resampled are tasks: they are what a suite is a sample of.
//!
//! Every statistic here is a ratio of sums over tasks: a mean is one whose denominators are 1, and
//! a geometric mean is the exponential of one over logarithms. The seed is fixed, so that the same
//! rows give the same figures, and all statistics over the same tasks see the same resamples.

use warpwright_record::interval::Interval;

/// Resamples drawn for one interval.
pub const RESAMPLES: usize = 10_000;

/// Where the stream of random numbers begins.
const SEED: u64 = 0x5761_7270_7772_6967;

/// The ends of a two-sided 95 % interval, as quantiles.
const ENDS: [f64; 2] = [0.025, 0.975];

/// What one task adds to a statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Term {
    /// To the numerator.
    pub sum: f64,
    /// To the denominator: 1 where the task counts, 0 where it is left out.
    pub weight: f64,
}

impl Term {
    /// A task that counts once, with this value.
    pub fn counted(value: f64) -> Self {
        Self { sum: value, weight: 1.0 }
    }

    /// A task that is left out.
    pub fn left_out() -> Self {
        Self::default()
    }
}

impl From<Option<f64>> for Term {
    fn from(value: Option<f64>) -> Self {
        value.map_or_else(Self::left_out, Self::counted)
    }
}

/// The ratio of sums over tasks and its 95 % interval. `None` when no task counts.
///
/// A resample in which no task counts has no ratio and is passed over.
pub fn ratio(terms: &[Term]) -> Option<Interval> {
    ratio_of(terms, RESAMPLES)
}

/// [`ratio`] of logarithms, as a factor: the geometric mean of what they are logarithms of.
pub fn geometric(terms: &[Term]) -> Option<Interval> {
    ratio(terms).map(|i| Interval { value: i.value.exp(), low: i.low.exp(), high: i.high.exp() })
}

fn ratio_of(terms: &[Term], resamples: usize) -> Option<Interval> {
    let value = quotient(terms.iter().copied())?;
    let mut stream = SplitMix(SEED);
    let count = terms.len() as u64;
    let mut drawn: Vec<f64> = (0..resamples)
        .filter_map(|_| quotient(terms.iter().map(|_| terms[stream.below(count) as usize])))
        .collect();
    drawn.sort_by(f64::total_cmp);
    let [low, high] = ENDS.map(|end| quantile(&drawn, end));
    Some(Interval { value, low: low.unwrap_or(value), high: high.unwrap_or(value) })
}

fn quotient(terms: impl Iterator<Item = Term>) -> Option<f64> {
    let (sum, weight) =
        terms.fold((0.0, 0.0), |(sum, weight), term| (sum + term.sum, weight + term.weight));
    (weight > 0.0).then(|| sum / weight)
}

/// Quantile of sorted values, interpolated linearly (type 7 of Hyndman and Fan, *The American
/// Statistician* 50, 1996). `None` without values.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = (sorted.len().checked_sub(1)?) as f64 * q;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    let (low, high) = (*sorted.get(below)?, *sorted.get(above)?);
    Some(low + (high - low) * (at - at.floor()))
}

/// Unbiased estimate of the chance that at least one of `k` attempts is right, from `n` attempts of
/// which `c` were: `1 - C(n - c, k) / C(n, k)` (Chen et al., *Evaluating Large Language Models
/// Trained on Code*, arXiv 2107.03374, equation 1), as the product that cannot overflow. `None`
/// when there were fewer than `k` attempts, or `k` is 0.
pub fn pass_at_k(n: u32, c: u32, k: u32) -> Option<f64> {
    if k == 0 || n < k || c > n {
        return None;
    }
    if n - c < k {
        return Some(1.0);
    }
    let none: f64 = (n - c + 1..=n).map(|i| 1.0 - f64::from(k) / f64::from(i)).product();
    Some(1.0 - none)
}

/// SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA
/// 2014): small, and good enough to draw indices. Kept here so that no update of a dependency
/// changes published intervals.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`; the bias of the multiplication is under `bound / 2^64`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The mean; `None` without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn means(values: impl IntoIterator<Item = f64>) -> Vec<Term> {
        values.into_iter().map(Term::counted).collect()
    }

    /// Standard normal values by Box and Muller, from the stream itself at another seed.
    fn normals(count: usize, seed: u64) -> Vec<f64> {
        let mut stream = SplitMix(seed);
        let mut uniform = || (stream.next() >> 11) as f64 / (1u64 << 53) as f64;
        (0..count)
            .map(|_| {
                let (u, v) = (1.0 - uniform(), uniform());
                (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
            })
            .collect()
    }

    #[test]
    fn splitmix_is_splitmix() {
        // The reference implementation's first outputs for seed 1234567.
        let mut stream = SplitMix(1_234_567);
        let first = [stream.next(), stream.next(), stream.next()];
        let known =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, known);
    }

    #[test]
    fn a_proportion_has_the_interval_of_a_binomial() {
        for (n, right) in [(400, 120), (250, 200), (1000, 500)] {
            let values = (0..n).map(|i| if i < right { 1.0 } else { 0.0 });
            let interval = ratio(&means(values)).unwrap();
            let p = f64::from(right) / f64::from(n);
            let half = 1.96 * (p * (1.0 - p) / f64::from(n)).sqrt();
            assert!((interval.value - p).abs() < 1e-12);
            // One step of the proportion is 1/n; the bootstrap's ends lie on steps.
            let room = 1.0 / f64::from(n) + 0.05 * half;
            assert!((interval.low - (p - half)).abs() < room, "{interval:?} {p} {half}");
            assert!((interval.high - (p + half)).abs() < room, "{interval:?} {p} {half}");
        }
    }

    #[test]
    fn a_log_normal_mean_has_the_interval_of_a_normal() {
        let logs = normals(500, 9);
        let interval = geometric(&means(logs.iter().map(|x| 0.5 + 0.8 * x))).unwrap();
        let mean = logs.iter().sum::<f64>() / 500.0;
        let spread = (logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 500.0).sqrt();
        let (centre, half) = (0.5 + 0.8 * mean, 1.96 * 0.8 * spread / 500f64.sqrt());
        assert!((interval.value.ln() - centre).abs() < 1e-12);
        assert!((interval.low.ln() - (centre - half)).abs() < 0.05 * half, "{interval:?}");
        assert!((interval.high.ln() - (centre + half)).abs() < 0.05 * half, "{interval:?}");
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        // 200 samples of 60 tasks with p = 0.4: about 94 % of the intervals hold 0.4. Fewer than
        // 88 % would happen by chance once in ten thousand times.
        let mut stream = SplitMix(77);
        let covered = (0..200)
            .filter(|_| {
                let tasks = (0..60).map(|_| if stream.below(10) < 4 { 1.0 } else { 0.0 });
                let interval = ratio_of(&means(tasks), 1000).unwrap();
                (interval.low..=interval.high).contains(&0.4)
            })
            .count();
        assert!((176..=200).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn tasks_that_are_left_out_count_for_nothing() {
        let mut terms = means([1.0, 2.0, 4.0]);
        terms.push(Term::left_out());
        assert!((ratio(&terms).unwrap().value - 7.0 / 3.0).abs() < 1e-12);
        assert_eq!(ratio(&[Term::left_out(); 3]), None);
        assert_eq!(ratio(&[]), None);
        let one = ratio(&means([3.0])).unwrap();
        assert_eq!(one, Interval { value: 3.0, low: 3.0, high: 3.0 });
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    /// The estimator counted out: the share of `k`-subsets with a right attempt among them.
    fn by_counting(n: u32, c: u32, k: u32) -> f64 {
        let subsets = (0u32..1 << n).filter(|set| set.count_ones() == k);
        let (all, good) = subsets.fold((0u32, 0u32), |(all, good), set| {
            (all + 1, good + u32::from(set & ((1 << c) - 1) != 0))
        });
        f64::from(good) / f64::from(all)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pass_at_k_is_the_share_of_subsets(n in 1u32..11, c in 0u32..11, k in 1u32..11) {
            match pass_at_k(n, c, k) {
                Some(value) => prop_assert!((value - by_counting(n, c, k)).abs() < 1e-9),
                None => prop_assert!(k > n || c > n),
            }
        }

        /// The value lies in its interval, and both within the values.
        #[test]
        fn intervals_hold_their_value(values in prop::collection::vec(-5.0f64..5.0, 1..30)) {
            let interval = ratio_of(&means(values.iter().copied()), 200).unwrap();
            let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
            prop_assert!(min - 1e-9 <= interval.low && interval.low <= interval.high);
            prop_assert!(interval.high <= max + 1e-9);
            prop_assert!(min - 1e-9 <= interval.value && interval.value <= max + 1e-9);
        }

        /// Shifting every value shifts the interval; the order of tasks does not matter to the value.
        #[test]
        fn intervals_move_with_their_values(
            values in prop::collection::vec(-5.0f64..5.0, 2..20), shift in -3.0f64..3.0
        ) {
            let still = ratio_of(&means(values.iter().copied()), 200).unwrap();
            let moved = ratio_of(&means(values.iter().map(|v| v + shift)), 200).unwrap();
            for (a, b) in [(still.low, moved.low), (still.value, moved.value), (still.high, moved.high)] {
                prop_assert!((a + shift - b).abs() < 1e-9);
            }
        }
    }
}
