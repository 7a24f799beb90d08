use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn series(samples: &[f64], unequal: f64) -> Series {
    Series { samples: samples.to_vec(), unequal: vec![unequal; samples.len()] }
}

/// A normal number, by the sum of twelve even ones.
fn normal(random: &mut StdRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// By hand: medians 2 and 8 have the mean 4. Logarithms `m - d, m, m + d` have the variance `d^2`.
#[test]
fn mean_of_two_workloads_is_the_published_formula() {
    let around = |value: f64, d: f64| series(&[value / d.exp(), value, value * d.exp()], 0.0);
    let mean = |a: &Series, b: &Series| super::mean(&[a, b]).unwrap();
    let found = mean(&around(2.0, 0.01), &around(8.0, 0.01));
    // Equal variances: 4 degrees of freedom, and a quantile of 2.776 by the tables.
    let half = 2.777 * (2.0 * MEDIAN * 1e-4 / 3.0).sqrt() / 2.0;
    assert!((found.value - 4.0).abs() < 1e-9, "{found:?}");
    assert!(((found.high / 4.0).ln() - half).abs() < 1e-9, "{found:?} {half}");
    assert!(((4.0 / found.low).ln() - half).abs() < 1e-9, "{found:?}");
    // One varies: 2 degrees of freedom, 4.303.
    let half = 4.303 * (MEDIAN * 1e-4 / 3.0).sqrt() / 2.0;
    let found = mean(&around(2.0, 0.01), &around(8.0, 0.0));
    assert!(((found.high / 4.0).ln() - half).abs() < 1e-9, "{found:?}");
}

#[test]
fn common_part_of_workloads_is_not_averaged_out() {
    let one = series(&[2.0; 3], 0.01);
    for count in [1, 2, 5, 40] {
        let mean = mean(&vec![&one; count]).unwrap();
        assert!((mean.value - 2.0).abs() < 1e-9 && (mean.low - 1.98).abs() < 1e-9, "{mean:?}");
    }
    let nothing_known = series(&[2.0; 3], 7.0);
    assert!(mean(&[&one, &nothing_known]).unwrap().low.abs() < 1e-300);
}

#[test]
fn bad_samples_have_no_mean() {
    assert_eq!(mean(&[]), None);
    for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        assert_eq!(mean(&[&series(&[1.0, bad, 1.0], 0.0)]), None);
    }
    assert_eq!(mean(&[&series(&[1.0], 0.0)]), None);
    assert!(series(&[1.0, 2.0, 3.0], 0.0).interval((0, 0)).is_some());
    assert_eq!(series(&[1.0, 2.0, 3.0], 0.0).interval((0, 2)), None);
}

/// How often the interval of the mean over `workloads` misses, simulated: rounds vary by `noise`, one in twenty by
/// five times that, and a window of 8 ms is off by what the processes of a judge differ by, in `common` or in each
/// workload on its own. `interval` is asked for the interval; returns the rate of misses to either side.
fn misses(
    (workloads, noise, common): (usize, f64, bool),
    interval: &dyn Fn(&[Series]) -> Interval,
) -> f64 {
    const TRIALS: usize = 4_000;
    const WINDOW: f64 = 8e-3;
    let mut random = StdRng::seed_from_u64(29);
    let mut missed = 0;
    for _ in 0..TRIALS {
        let off = |random: &mut StdRng| (15e-6 + 24e-6 * normal(random)) / WINDOW;
        let of_all = off(&mut random);
        let mut truth = 0.0;
        let all: Vec<Series> = (0..workloads)
            .map(|i| {
                // Of other speed-ups, and of noise that differs threefold.
                let (log, noise) = (0.2 * i as f64, noise * (1 + i % 3) as f64);
                truth += log / workloads as f64;
                let off = if common { of_all } else { off(&mut random) };
                let round = |_| {
                    let hiccup = if random.random_bool(0.05) { 5.0 } else { 1.0 };
                    (log + off + hiccup * noise * normal(&mut random)).exp()
                };
                let rounds = crate::check::share::rounds(7, workloads);
                series(&(0..rounds).map(round).collect::<Vec<_>>(), 45e-6 / WINDOW)
            })
            .collect();
        let Interval { low, high, .. } = interval(&all);
        missed += usize::from(truth.exp() < low || truth.exp() > high);
    }
    missed as f64 / TRIALS as f64
}

#[test]
fn interval_of_the_mean_covers_it_at_its_level() {
    let of = |all: &[Series]| match all {
        [one] => one.interval((0, 1)).unwrap(),
        all => mean(&all.iter().collect::<Vec<_>>()).unwrap(),
    };
    for noise in [3e-4, 3e-3, 0.03] {
        // Where rounds hardly vary, what the processes differ by decides: by more than the allowance in 11 of 100, with
        // one workload as with many.
        let one = misses((1, noise, true), &of);
        assert!(one < 0.13, "{one}");
        for workloads in [2, 3, 5, 12] {
            for common in [true, false] {
                let missed = misses((workloads, noise, common), &of);
                // And three standard errors of the simulation.
                let told =
                    format!("{missed}, {one} of one: {workloads} workloads, {noise}, {common}");
                assert!(missed < one.max(0.05) + 0.015, "{told}");
            }
        }
    }
    // The control: with the parts of the workloads taken as independent, as they were, the mean's interval is too
    // narrow for what its workloads have in common.
    let independent = |all: &[Series]| {
        let each: Vec<Interval> = all.iter().map(|one| one.interval((0, 0)).unwrap()).collect();
        let count = each.len() as f64;
        let center = each.iter().map(|i| i.value.ln()).sum::<f64>() / count;
        let half = each.iter().map(|i| (i.high / i.value).ln().powi(2)).sum::<f64>().sqrt() / count;
        Interval { value: center.exp(), low: (center - half).exp(), high: (center + half).exp() }
    };
    let missed = misses((12, 3e-4, true), &independent);
    assert!(missed > 0.3, "{missed}: the control sees nothing");
}

#[test]
fn five_workloads_give_an_interval_as_wide_as_one() {
    use crate::check::share;
    // Speed-ups of single rounds on an H200 vary by about 0.26 % in windows of 8 ms.
    let mut random = StdRng::seed_from_u64(31);
    let mut width = |workloads: usize| {
        let (part, rounds) = (share::window(workloads), share::rounds(7, workloads));
        let noise = 2.6e-3 / part.sqrt();
        let widths = (0..400).map(|_| {
            let all: Vec<Series> = (0..workloads)
                .map(|_| {
                    let round = |_| (noise * normal(&mut random)).exp();
                    let samples: Vec<f64> = (0..rounds).map(round).collect();
                    series(&samples, 45e-6 / (8e-3 * part))
                })
                .collect();
            let mean = match all.as_slice() {
                [one] => one.interval((0, 1)).unwrap(),
                _ => mean(&all.iter().collect::<Vec<_>>()).unwrap(),
            };
            (mean.high / mean.low).ln()
        });
        widths.sum::<f64>() / 400.0
    };
    let (one, five) = (width(1), width(5));
    assert!((0.017..0.019).contains(&one), "{one}: 1.8 % was measured");
    assert!(five < 1.03 * one, "{five} of five, {one} of one");
}

#[test]
fn a_longer_call_moves_its_samples() {
    let over = series(&[3.0, 3.0], 0.0);
    let mut measured = Measured {
        candidate: series(&[1.0, 1.0], 0.0),
        baselines: vec![(Baseline::Compile, series(&[3.0, 3.0], 0.0), over)],
    };
    measured.lengthen(2.0);
    assert_eq!(measured.candidate.samples, [2.0, 2.0]);
    assert_eq!(measured.time_of("compile").unwrap().samples, [3.0, 3.0]);
    assert_eq!(measured.speedup_over("compile").unwrap().samples, [1.5, 1.5]);
    assert_eq!(measured.speedup_over("eager"), None);
}
