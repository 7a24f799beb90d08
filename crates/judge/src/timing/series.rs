//! Figures of single rounds, and the interval of their mean over the workloads of a task.
//!
//! The mean of a figure over `n` workloads is geometric: its logarithm is the mean of the logarithms of the workloads'
//! medians. Its error has two parts:
//!
//! - What rounds vary by is independent between workloads. With `s_i^2` the variance of the logarithms of workload
//!   `i`'s `r_i` rounds, the variance of the logarithm of its median is at most `v_i = (pi / 2) s_i^2 / r_i` (its limit
//!   for many normal samples; for three it is 0.449 `s_i^2`). The mean's standard error is `sqrt(v_1 + ... + v_n) / n`,
//!   and the half width Student's 97.5 % quantile times it. The quantile has
//!   `(v_1 + ... + v_n)^2 / (v_1^2 / (r_1 - 1) + ... + v_n^2 / (r_n - 1))` degrees of freedom (Satterthwaite, "An
//!   approximate distribution of estimates of variance components", Biometrics Bulletin 1946; Welch, Biometrika 1947),
//!   rounded down.
//! - What differs between the processes of candidate and baselines (`measure::Unequal`) no repetition averages
//!   out. All workloads are timed by processes of one judge on one machine, so this part is taken as common: it moves
//!   the mean by the mean of what it moves the workloads by, and is added to the half width. By Minkowski's inequality
//!   it moves the mean by no more, whatever the correlation between workloads is.
//!
//! The rounds of a workload are fixed before the first: an interval of these samples is no interval of a measurement
//! that stops when it likes what it sees.

use warpwright_record::interval::Interval;

use super::baseline::Baseline;
use super::stats;

/// Variance of a median over that of a mean, for many normal samples; less for few.
const MEDIAN: f64 = std::f64::consts::FRAC_PI_2;
/// Student's 97.5 % quantile by degrees of freedom, from 1 on, rounded up. More than these count as 30.
const QUANTILES: [f64; 30] = [
    12.707, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229, 2.201, 2.179, 2.161,
    2.145, 2.132, 2.120, 2.110, 2.101, 2.094, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.049, 2.046, 2.043,
];

/// A figure of each round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// Positive.
    pub(crate) samples: Vec<f64>,
    /// By which share each may be off for reasons that are the same in all rounds.
    pub(crate) unequal: Vec<f64>,
}

/// The samples of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    /// Milliseconds of a call of the candidate.
    pub(crate) candidate: Series,
    /// Milliseconds of a call of each baseline, and its speed-up.
    pub(crate) baselines: Vec<(Baseline, Series, Series)>,
}

/// The mean of a figure over one or several workloads. `None` without them, and where a sample is not positive and
/// finite or a workload has fewer than two.
pub(crate) fn mean(of: &[&Series]) -> Option<Interval> {
    let count = of.len() as f64;
    let (mut center, mut common, mut variance, mut weights) = (0.0, 0.0, 0.0, 0.0);
    for series in of {
        let Logs { median, variance: own, freedom, unequal } = series.logs()?;
        center += median / count;
        common += unequal / count;
        variance += own;
        weights += own * own / freedom;
    }
    // Rounds that are all alike have any.
    let freedom = if weights > 0.0 { variance * variance / weights } else { 1.0 };
    let half = common + quantile(freedom) * variance.sqrt() / count;
    (!of.is_empty()).then(|| Interval {
        value: center.exp(),
        low: (center - half).exp(),
        high: (center + half).exp(),
    })
}

/// What the mean needs of one workload.
struct Logs {
    median: f64,
    /// Of the median.
    variance: f64,
    freedom: f64,
    unequal: f64,
}

impl Series {
    fn logs(&self) -> Option<Logs> {
        let known = self.samples.iter().all(|sample| sample.is_finite() && *sample > 0.0);
        if !known || self.samples.len() < 2 {
            return None;
        }
        let logs: Vec<f64> = self.samples.iter().map(|sample| sample.ln()).collect();
        let (rounds, freedom) = (logs.len() as f64, (logs.len() - 1) as f64);
        let mean = logs.iter().sum::<f64>() / rounds;
        let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / freedom;
        // That of the lower end, which lies further off in logarithms.
        let unequal = -(-stats::rough(&self.unequal).clamp(0.0, 1.0)).ln_1p();
        let median = stats::rough(&logs);
        Some(Logs { median, variance: MEDIAN * spread / rounds, freedom, unequal })
    }

    /// The interval between the samples of a rank from either end, each moved outwards by its share. With rank 0, for
    /// which there are too few: that of [`mean`].
    pub(crate) fn interval(&self, (leaves, rank): (usize, usize)) -> Option<Interval> {
        if rank == 0 {
            return mean(&[self]);
        }
        let (samples, unequal) = (self.samples.get(leaves..)?, self.unequal.get(leaves..)?);
        let moved = |by: f64| -> Vec<f64> {
            samples.iter().zip(unequal).map(|(sample, share)| sample * (1.0 + by * share)).collect()
        };
        let value = stats::between(samples, rank)?.value;
        let low = stats::between(&moved(-1.0), rank)?.low;
        Some(Interval { value, low, high: stats::between(&moved(1.0), rank)?.high })
    }

    fn multiplied(&mut self, factor: f64) {
        self.samples.iter_mut().for_each(|sample| *sample *= factor);
    }
}

impl Measured {
    /// The time of a baseline, by its name.
    pub(crate) fn time_of(&self, name: &str) -> Option<&Series> {
        self.of(name).map(|(_, time, _)| time)
    }

    /// The speed-up over a baseline, by its name.
    pub(crate) fn speedup_over(&self, name: &str) -> Option<&Series> {
        self.of(name).map(|(_, _, speedup)| speedup)
    }

    fn of(&self, name: &str) -> Option<&(Baseline, Series, Series)> {
        self.baselines.iter().find(|(which, ..)| which.name() == name)
    }

    /// Where a call of the candidate counts as so many times longer.
    pub(crate) fn lengthen(&mut self, factor: f64) {
        self.candidate.multiplied(factor);
        self.baselines.iter_mut().for_each(|(_, _, speedup)| speedup.multiplied(1.0 / factor));
    }
}

fn quantile(freedom: f64) -> f64 {
    let known = QUANTILES.iter().enumerate().take_while(|(i, _)| (i + 1) as f64 <= freedom + 1e-9);
    known.last().map_or(QUANTILES[0], |(_, quantile)| *quantile)
}

#[cfg(test)]
mod tests;
