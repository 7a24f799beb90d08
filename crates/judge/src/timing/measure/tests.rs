//! Statistics of measurements, on simulated windows.

use std::time::Duration;

use rand::{RngExt, SeedableRng};

use super::*;
use crate::device::cpu;
use crate::device::gpu::{LAUNCH, UNEQUAL};

fn windows(calls: usize, seconds: Vec<f64>) -> Windows {
    Windows::of(calls, seconds)
}

/// What later, longer windows say of a call is what the first ones do.
#[test]
fn windows_of_different_lengths_give_equal_times() {
    let lengths = || [4usize, 4, 4, 4, 4, 4, 4, 15, 15, 15, 15].into_iter();
    let of = |call: f64| Windows(lengths().map(|n| (n, 2e-4 + n as f64 * call)).collect());
    let rounds = Rounds {
        own_nothing: Vec::new(),
        shared: Vec::new(),
        nothing: vec![2e-4; 11],
        candidate: of(1e-3),
        baselines: vec![(Baseline::Eager, of(1.5e-3))],
    };
    let Summary { times, speedup, .. } =
        summarise(&rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()));
    let over = speedup.eager.unwrap();
    assert!((over.low - 1.5).abs() < 1e-9 && (over.high - 1.5).abs() < 1e-9, "{over:?}");
    assert!((times.candidate.unwrap().value - 1.0).abs() < 1e-9);
    assert!(rounds.variation().unwrap() < 1e-9);
}

/// A process that answers sooner than the baselines' has its own empty windows taken from its windows.
#[test]
fn own_empty_windows_count_for_the_candidate_only() {
    let of = |nothing: f64| Windows((0..11).map(|_| (4, nothing + 4e-3)).collect());
    let mut rounds = Rounds {
        nothing: vec![2e-4; 11],
        own_nothing: vec![1e-4; 11],
        shared: Vec::new(),
        candidate: of(1e-4),
        baselines: vec![(Baseline::Eager, of(2e-4))],
    };
    let times = |rounds: &Rounds| {
        let summary =
            summarise(rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()));
        summary.times.candidate.unwrap().value
    };
    assert!((times(&rounds) - 1.0).abs() < 1e-9);
    rounds.forget(3);
    assert_eq!((rounds.nothing.len(), rounds.own_nothing.len()), (10, 10));
    rounds.own_nothing.clear();
    assert!(times(&rounds) < 0.98, "the control sees the difference");
}

/// What empty windows vary by moves every window of a measurement alike, so the windows do not show it.
#[test]
fn interval_contains_the_error_of_empty_windows() {
    let nothing: Vec<f64> = (0..11).map(|i| 2e-4 + 4e-5 * f64::from(i - 5)).collect();
    let interval = |nothing: Vec<f64>, own: Vec<f64>, unequal: f64| {
        let rounds = Rounds {
            nothing,
            own_nothing: own,
            shared: Vec::new(),
            candidate: windows(4, vec![4.2e-3; 11]),
            baselines: vec![(Baseline::Eager, windows(4, vec![8.2e-3; 11]))],
        };
        let unequal = Unequal { window: unequal, call: 0.0 };
        let told = summarise(&rounds, &Levels::default(), (Interim::at_all(2), unequal));
        (told.times.candidate.unwrap(), told.speedup.eager.unwrap())
    };
    // Ranks 2 and 10 of 11 samples: four steps of 40 us from the median, of a window of 4 ms.
    let (time, over) = interval(nothing.clone(), vec![], 0.0);
    assert!((time.low - 0.96).abs() < 1e-9 && (time.high - 1.04).abs() < 1e-9, "{time:?}");
    assert!((over.low - 2.0 * 0.96).abs() < 1e-9, "one error moves both times: {over:?}");
    // The baseline's is half as large a share.
    let (_, over) = interval(nothing.clone(), nothing.clone(), 0.0);
    assert!((over.low - 2.0 * 0.94).abs() < 1e-9, "two errors add up: {over:?}");
    // What processes differ by contains it.
    let (time, _) = interval(nothing, vec![], 4e-4);
    assert!((time.low - 0.9).abs() < 1e-9, "{time:?}");
    let (time, over) = interval(vec![2e-4; 11], vec![], 0.0);
    assert!((time.high - time.low).abs() < 1e-9 && (over.high - over.low).abs() < 1e-9);
}

/// Fewer samples than order statistics need have Student's interval.
#[test]
fn error_of_few_empty_windows_is_not_zero() {
    assert!(error_of_median(&[1e-4]) <= 0.0);
    let few = error_of_median(&[1.0e-4, 1.1e-4, 1.2e-4]);
    assert!((2e-5..6e-5).contains(&few), "{few}");
    assert!(error_of_median(&[1e-4; 3]) < 1e-12);
}

#[test]
fn the_best_baseline_is_the_fastest_one() {
    let rounds = Rounds {
        own_nothing: Vec::new(),
        shared: Vec::new(),
        nothing: vec![0.001; 9],
        candidate: windows(10, vec![0.011; 9]),
        baselines: vec![
            (Baseline::Eager, windows(4, vec![0.013; 9])),
            (Baseline::Compile, windows(5, vec![0.011; 9])),
        ],
    };
    let Summary { times, speedup, .. } =
        summarise(&rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()));
    assert_eq!(speedup.best_baseline.as_deref(), Some("compile"));
    assert!((speedup.best.unwrap().low - 2.0).abs() < 1e-9);
    assert!((speedup.eager.unwrap().value - 3.0).abs() < 1e-9);
    assert!((times.candidate.unwrap().value - 1.0).abs() < 1e-9);
}

/// Drift that hits a whole round cancels in the ratio; it would not in the quotient of medians
/// of times taken one contender after the other.
#[test]
fn drift_between_rounds_cancels() {
    let drift: Vec<f64> = (0..9).map(|i| 1.0 + 0.2 * f64::from(i)).collect();
    let rounds = Rounds {
        own_nothing: Vec::new(),
        shared: Vec::new(),
        nothing: vec![0.0; 9],
        candidate: windows(1, drift.iter().map(|d| 1e-3 * d).collect()),
        baselines: vec![(Baseline::Eager, windows(1, drift.iter().map(|d| 1.5e-3 * d).collect()))],
    };
    let over = summarise(&rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()))
        .speedup
        .eager
        .unwrap();
    assert!((over.low - 1.5).abs() < 1e-9 && (over.high - 1.5).abs() < 1e-9);
}

/// An identical kernel, noise of a tenth: between windows of m and of no calls the ratio's
/// interval is narrower than between windows of m and m / 2, for the same calls.
#[test]
fn empty_windows_give_narrower_intervals_than_half_windows() {
    let mut random = StdRng::seed_from_u64(5);
    let mut noisy = |t: f64| t * (1.0 + 0.1 * (random.random::<f64>() - 0.5));
    let (mut from_nothing, mut from_half) = (0.0, 0.0);
    for _ in 0..200 {
        let mut draw = |t: f64| -> Vec<f64> { (0..9).map(|_| noisy(t)).collect() };
        let rounds = Rounds {
            own_nothing: Vec::new(),
            shared: Vec::new(),
            nothing: draw(1e-4),
            candidate: windows(10, draw(10.1e-3)),
            baselines: vec![(Baseline::Eager, windows(10, draw(10.1e-3)))],
        };
        let width = |i: Interval| i.high - i.low;
        from_nothing += width(
            summarise(&rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()))
                .speedup
                .eager
                .unwrap(),
        );
        let mut slopes = || -> Vec<f64> {
            let (long, short) = (draw(10.1e-3), draw(5.1e-3));
            long.iter().zip(short).map(|(l, s)| (l - s) / 5.0).collect()
        };
        let (b, c) = (slopes(), slopes());
        let ratios: Vec<f64> = b.iter().zip(c).map(|(b, c)| b / c).collect();
        from_half += width(stats::median(&ratios).unwrap());
    }
    assert!(2.0 * from_nothing < from_half, "{from_nothing} and {from_half}");
}

#[test]
fn windows_shorter_than_empty_ones_tell_nothing() {
    let of = |candidate: Vec<f64>| Rounds {
        own_nothing: Vec::new(),
        shared: Vec::new(),
        nothing: vec![0.002, 0.011, 0.012, 0.010, 0.013],
        candidate: windows(1, candidate),
        baselines: Vec::new(),
    };
    assert!(of(vec![0.009, 0.010, 0.008, 0.030, 0.009]).tell_nothing());
    let some = of(vec![0.009, 0.020, 0.018, 0.030, 0.019]);
    assert!(!some.tell_nothing(), "one disturbed window is no more than that");
}

/// A kernel at the margin whose windows are shorter by what is not the same in all processes earns
/// nothing by it, and one that is clearly faster is still called so.
#[test]
fn the_interval_includes_per_process_offsets() {
    let over = |speedup: f64, window: f64, unequal: f64| {
        let rounds = Rounds {
            own_nothing: Vec::new(),
            shared: Vec::new(),
            nothing: vec![3e-4; 7],
            candidate: windows(4, vec![3e-4 + window - 13e-6; 7]),
            baselines: vec![(Baseline::Eager, windows(4, vec![3e-4 + window * speedup; 7]))],
        };
        let unequal = Unequal { window: unequal, call: 0.0 };
        summarise(&rounds, &Levels::default(), (Interim::at_all(1), unequal)).speedup.eager.unwrap()
    };
    assert!(over(1.05, 4e-3, 0.0).low > 1.05, "the control sees nothing");
    assert!(over(1.05, 4e-3, UNEQUAL).low < 1.05);
    assert!(over(1.07, 4e-3, UNEQUAL).low > 1.05);
    assert!(over(1.055, 15e-3, UNEQUAL).low > 1.05, "long windows say more");
}

/// Identical kernels of 19 us were 0.76 us a call faster in the device tier; a kernel that is clearly faster is still
/// called so, and calls of 1 ms lose next to nothing.
#[test]
fn the_interval_includes_what_launching_costs_python() {
    let over = |call: f64, speedup: f64, saved: f64, launch: f64| {
        let calls = (15e-3 / call) as usize;
        let spent = calls as f64 * call;
        let rounds = Rounds {
            own_nothing: vec![3e-4; 7],
            shared: Vec::new(),
            nothing: vec![3e-4; 7],
            candidate: windows(calls, vec![3e-4 + spent - calls as f64 * saved; 7]),
            baselines: vec![(Baseline::Eager, windows(calls, vec![3e-4 + spent * speedup; 7]))],
        };
        let unequal = Unequal { window: UNEQUAL, call: launch };
        summarise(&rounds, &Levels::default(), (Interim::at_all(1), unequal)).speedup.eager.unwrap()
    };
    assert!(over(19e-6, 1.02, 0.76e-6, 0.0).low > 1.05, "the control sees nothing");
    assert!(over(19e-6, 1.02, 0.76e-6, LAUNCH).low < 1.05);
    assert!(over(19e-6, 1.08, 0.76e-6, LAUNCH).low > 1.05);
    let much = over(20e-6, 10.0, 18e-6, LAUNCH);
    assert!(much.low > 0.9 * much.value, "a kernel of 2 us that replaces 200 us: {much:?}");
    let [with, without] = [LAUNCH, 0.0].map(|launch| over(1e-3, 1.1, 0.0, launch).low);
    assert!(without - with < 0.002, "{with} {without}");
}

/// Measurements of a kernel as on a GPU: windows of 4 ms up to the first look and of 15 ms from then
/// on, with noise of their own, and processes that differ by a constant. The share called faster.
fn called_faster(truth: f64, unequal: f64, random: &mut rand::rngs::StdRng) -> f64 {
    const TRIALS: usize = 2000;
    let schedule = Schedule::sequential(21);
    let mut normal = || {
        let two: [f64; 2] = [random.random(), random.random()];
        (-2.0 * (1.0 - two[0]).ln()).sqrt() * (std::f64::consts::TAU * two[1]).cos()
    };
    let mut faster = 0;
    for _ in 0..TRIALS {
        let constant = -15e-6 + 24e-6 * normal();
        let (mut mine, mut theirs) = (windows(1, vec![]), windows(1, vec![]));
        let mut nothing = vec![];
        let over = loop {
            let calls = if nothing.len() < 7 { 4 } else { 15 };
            nothing.push(3e-4);
            let spent = calls as f64 * 1e-3;
            mine.push(calls, 3e-4 + spent * (1.0 + 0.006 * normal()) + constant);
            theirs.push(calls, 3e-4 + spent * truth * (1.0 + 0.006 * normal()));
            let Some(look) = schedule.look_after(nothing.len()) else { continue };
            let rounds = Rounds {
                own_nothing: Vec::new(),
                shared: Vec::new(),
                nothing: nothing.clone(),
                candidate: mine.clone(),
                baselines: vec![(Baseline::Eager, theirs.clone())],
            };
            let unequal = Unequal { window: unequal, call: 0.0 };
            let told = summarise(&rounds, &Levels::default(), (look, unequal));
            let bound = (nothing.len(), told.unequal);
            if nothing.len() == 21
                || crate::timing::sequential::decided(&told.speedup, told.times.candidate, bound)
            {
                break told.speedup.eager.unwrap();
            }
        };
        faster += usize::from(over.low > 1.05);
    }
    faster as f64 / TRIALS as f64
}

/// As was measured: constants that differ made a tenth and more of kernels at the margin faster ones.
#[test]
fn per_process_offsets_earn_no_reward_at_the_margin() {
    let mut random = rand::rngs::StdRng::seed_from_u64(5);
    let [counted, ignored] = [UNEQUAL, 0.0].map(|u| called_faster(1.05, u, &mut random));
    assert!(counted < 0.025, "{counted}");
    assert!(ignored > 0.1, "{ignored}: the control sees nothing");
    let found = called_faster(1.07, UNEQUAL, &mut random);
    assert!(found > 0.95, "{found} of kernels 7 % faster");
}

#[test]
fn rounds_fit_the_budget() {
    let plan = Plan { budget: Duration::from_secs(8), ..cpu::WINDOWS };
    assert_eq!(schedule(&plan, 10.0).last(), 7);
    assert_eq!(schedule(&plan, 0.01).last(), 9);
    // Those of one workload of five; and no fewer than tell what windows vary by.
    let of_five = plan.shared_among(5);
    assert_eq!((schedule(&of_five, 0.01).last(), schedule(&of_five, 100.0).last()), (3, 3));
    assert_eq!(schedule(&plan.shared_among(2), 0.01).last(), 5);
    assert_eq!(schedule(&of_five.on_a_busy_host(), 0.01).last(), 5);
}

#[test]
fn few_rounds_have_an_interval_of_their_spread() {
    let rounds = Rounds {
        nothing: vec![1e-4; 3],
        candidate: Windows::of(10, [1.01e-2, 1.02e-2, 1.03e-2]),
        baselines: vec![(Baseline::Eager, Windows::of(10, [2.01e-2; 3]))],
        ..Rounds::default()
    };
    let look = Schedule::shared(3).look_after(3).unwrap();
    let summary = summarise(&rounds, &Levels::default(), (look, Unequal::default()));
    let over = summary.speedup.eager.unwrap();
    // Further apart than the samples are: these reach from 1.96 to 2.
    assert!(over.low < 1.95 && over.high > 2.01, "{over:?}");
    assert_eq!(summary.measured.speedup_over("eager").unwrap().samples.len(), 3);
    assert_eq!(summary.times.rounds, Some(3));
}

#[test]
fn short_windows_are_joined_to_long_ones() {
    let rounds = Rounds { nothing: vec![1e-4; 11], ..Rounds::default() };
    let mut windows = Windows::default();
    for noise in [-3e-4, 0.0, 3e-4, 1e-4, 1e-4, -2e-4, 5e-4] {
        windows.push(4, 1e-4 + 4e-3 + noise);
    }
    windows.push(15, 1e-4 + 15e-3);
    let joined = rounds.joined(&windows, 15);
    assert_eq!(joined.len(), 3, "the seventh goes with the eighth: {joined:?}");
    assert!(joined[..2].iter().all(|call| (call - 1e-3).abs() < 1e-9), "{joined:?}");
    assert!((joined[2] - (19e-3 + 5e-4) / 19.0).abs() < 1e-9, "{joined:?}");
    assert_eq!(rounds.joined(&Windows::of(4, [5e-3; 7]), 4).len(), 7);
}

#[test]
fn every_contender_gets_every_position() {
    let mut random = StdRng::seed_from_u64(3);
    let firsts: std::collections::BTreeSet<usize> =
        (0..100).map(|_| order(3, &mut random)[0]).collect();
    assert_eq!(firsts.len(), 4);
}
