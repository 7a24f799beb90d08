//! Medians and their intervals, without assumptions on the distribution.

use warpwright_record::interval::Interval;

/// Fewest seconds that count as a call's time: no call through torch takes less.
pub(crate) const LEAST: f64 = 1e-7;

/// Median with a 95 % interval from order statistics (the sign test turned round): with `n`
/// samples, ranks `k` and `n + 1 - k` cover the median with probability
/// `1 - 2 * P(Binomial(n, 1/2) < k)`. `None` for fewer than six samples, where no two ranks reach
/// 95 %, and where a sample is not finite.
#[cfg(test)]
pub(crate) fn median(samples: &[f64]) -> Option<Interval> {
    between(samples, rank(samples.len())?)
}

/// Median, and the samples of ranks `k` and `n + 1 - k` around it. `None` where there are no such
/// ranks, and where a sample is not finite.
pub(crate) fn between(samples: &[f64], k: usize) -> Option<Interval> {
    let n = samples.len();
    if k == 0 || 2 * k > n || samples.iter().any(|s| !s.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(Interval { value: middle(&sorted), low: sorted[k - 1], high: sorted[n - k] })
}

/// Largest rank `k` with coverage of at least 95 %.
pub(crate) fn rank(n: usize) -> Option<usize> {
    let mut below = 0.0;
    let mut mass = 0.5f64.powi(n as i32);
    let mut k = 0;
    for i in 0..n {
        below += mass;
        if 2.0 * below > 0.05 {
            break;
        }
        k = i + 1;
        mass *= (n - i) as f64 / (i + 1) as f64;
    }
    (k > 0).then_some(k)
}

/// Coefficient of variation: the samples' standard deviation over their mean. `None` for fewer than
/// two.
pub(crate) fn variation(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|s| (s - mean).powi(2)).sum();
    (samples.len() > 1 && mean > 0.0).then(|| (squares / (n - 1.0)).sqrt() / mean)
}

fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n % 2 == 1 { sorted[n / 2] } else { f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]) }
}

/// Plain median, for choosing window lengths.
pub(crate) fn rough(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    if sorted.is_empty() { 0.0 } else { middle(&sorted) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn ranks_match_published_tables() {
        // Two-sided 95 % ranks for the median.
        for (n, k) in [(5, None), (6, Some(1)), (9, Some(2)), (15, Some(4)), (20, Some(6))] {
            assert_eq!(rank(n), k, "n = {n}");
        }
    }

    #[test]
    fn the_interval_covers_the_median_at_its_level() {
        let mut random = StdRng::seed_from_u64(7);
        let mut covered = 0;
        for _ in 0..4000 {
            // Skewed, as times are; the median of -ln U is ln 2.
            let samples: Vec<f64> = (0..15).map(|_| -random.random::<f64>().ln()).collect();
            let i = median(&samples).unwrap();
            covered +=
                i32::from(i.low <= std::f64::consts::LN_2 && std::f64::consts::LN_2 <= i.high);
        }
        assert!((3800..3960).contains(&covered), "{covered} of 4000");
    }

    #[test]
    fn variation_uses_the_sample_variance() {
        assert_eq!(variation(&[1.0]), None);
        assert_eq!(variation(&[3.0, 3.0, 3.0]), Some(0.0));
        // Deviations -1, 0, 1: variance 1, mean 4.
        assert!((variation(&[3.0, 4.0, 5.0]).unwrap() - 0.25).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn the_median_lies_inside_its_interval(samples in prop::collection::vec(0.0f64..1e6, 6..40)) {
            let i = median(&samples).unwrap();
            prop_assert!(i.low <= i.value && i.value <= i.high);
        }
    }
}
