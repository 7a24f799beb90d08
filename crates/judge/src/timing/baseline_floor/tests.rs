//! Simulated windows: the floor has no effect on an idle host and a bounded effect on a busy one.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpwright_record::interval::Interval;

use super::*;
use crate::timing::baseline::Baseline;
use crate::timing::measure::{
    Levels, Ready, Rounds, Summary, Unequal, Windows, remember, summarise,
};
use crate::timing::plan::BUSY_ROUNDS;
use crate::timing::sequential::Interim;

/// Seconds of a call of the candidate; the baseline's true ones are `TRUTH` times that.
const CALL: f64 = 60e-6;
const TRUTH: f64 = 1.02;
const CALLS: usize = 200;

/// 1, with a standard deviation of a hundredth, normally distributed (a sum of twelve).
fn noisy(random: &mut StdRng) -> f64 {
    let sum: f64 = (0..12).map(|_| random.random::<f64>()).sum();
    1.0 + 0.01 * (sum - 6.0)
}

fn ready() -> Ready {
    Ready {
        which: Baseline::Compile,
        calls: CALLS,
        later: CALLS,
        seconds: TRUTH * CALL,
        history: History::default(),
    }
}

/// Windows of `count` rounds on a host that slows `busy` of the baseline's windows by 10 to 60 %.
fn rounds(count: usize, busy: f64, random: &mut StdRng) -> Rounds {
    let mut draw = |seconds: f64, busy: f64| -> Windows {
        let window = |_| {
            let slower = if random.random_bool(busy) { random.random_range(1.1..1.6) } else { 1.0 };
            CALLS as f64 * seconds * slower * noisy(random)
        };
        Windows::of(CALLS, (0..count).map(window))
    };
    Rounds {
        own_nothing: Vec::new(),
        shared: Vec::new(),
        nothing: vec![0.0; count],
        candidate: draw(CALL, 0.0),
        baselines: vec![(Baseline::Compile, draw(TRUTH * CALL, busy))],
    }
}

fn over(summary: &Summary) -> f64 {
    summary.speedup.compile.unwrap().value
}

/// One session's verdicts: with and without the limit.
fn session(
    verdicts: usize,
    count: usize,
    busy: f64,
    random: &mut StdRng,
) -> Vec<(Summary, Summary)> {
    let mut ready = [ready()];
    let verdict = |_| {
        let rounds = rounds(count, busy, random);
        let limited = summarise(
            &rounds,
            &Levels::of_baselines(&ready, &rounds),
            (Interim::at_all(1), Unequal::default()),
        );
        remember(&mut ready, &rounds);
        (limited, summarise(&rounds, &Levels::default(), (Interim::at_all(1), Unequal::default())))
    };
    (0..verdicts).map(verdict).collect()
}

#[test]
fn an_idle_host_leaves_speedups_unchanged() {
    let mut random = StdRng::seed_from_u64(21);
    for count in [7, 21] {
        let (mut shift, mut told, mut all) = (0.0, 0, 0);
        for _ in 0..100 {
            for (limited, free) in session(20, count, 0.0, &mut random) {
                shift += over(&limited) / over(&free) - 1.0;
                told += limited.caveats.len();
                all += 1;
            }
        }
        let shift = shift / f64::from(all);
        assert!(shift.abs() < 0.003, "{shift} on average of {count} rounds");
        assert!(told as f64 <= 0.02 * f64::from(all), "{told} caveats in {all} verdicts");
    }
}

#[test]
fn on_a_busy_host_the_speedup_is_near_the_true_one() {
    let mut random = StdRng::seed_from_u64(22);
    let mut without = f64::MIN;
    for _ in 0..50 {
        // Of the first two verdicts' 42 windows at times fewer than three are quiet.
        for (limited, free) in session(12, 21, 0.8, &mut random).into_iter().skip(2) {
            let limited_over = over(&limited) / TRUTH;
            assert!((limited_over - 1.0).abs() < 0.035, "{limited_over}");
            assert_eq!(limited.caveats.len(), 1, "{:?}", limited.caveats);
            without = without.max(over(&free) / TRUTH);
        }
    }
    assert!(without > 1.2, "{without}: the control was not disturbed");
}

#[test]
fn short_outlier_windows_do_not_lower_the_level() {
    for (windows, short) in [(6, 1), (12, 2)] {
        let mut history = History::default();
        history.add(&vec![CALL; windows - short]);
        let level = history.level(&vec![0.1 * CALL; short]);
        assert_eq!(level, Some(CALL), "{short} of {windows}");
    }
}

/// As where a window was tried that is shorter than a stall of the host.
#[test]
fn windows_as_short_as_empty_ones_are_ignored() {
    let mut history = History::default();
    history.add(&[1e-7; 9]);
    assert_eq!(history.level(&[1e-7; 5]), None);
    assert_eq!(history.level(&[CALL; 6]), Some(CALL));
}

#[test]
fn few_windows_give_no_level_and_old_ones_expire() {
    let mut history = History::default();
    history.add(&[CALL; 3]);
    assert_eq!(history.level(&[CALL; 2]), None);
    assert_eq!(history.level(&[CALL; 3]), Some(CALL));
    history.add(&[2.0 * CALL; NEWEST]);
    assert_eq!(history.level(&[]), Some(2.0 * CALL));
    assert_eq!(limit(None, &mut [CALL, 9.0 * CALL]), 0);
}

#[test]
fn a_caveat_counts_the_disturbed_windows() {
    let mut windows = [1.0, 1.02, 1.035, 1.05, 1.5, 1.1, 1.0];
    let disturbed = limit(Some(1.0), &mut windows);
    let counted = windows.map(|seconds| (100.0 * seconds).round() as u32);
    assert_eq!(counted, [100, 102, 103, 103, 103, 103, 100]);
    insta::assert_snapshot!(
        caveat("compile", disturbed, 7).unwrap(),
        @"3 of 7 windows of compile were disturbed, as on a busy host; each counts as at most 3 % slower than the fastest"
    );
    assert_eq!(caveat("compile", 1, 7), None);
    assert_eq!(caveat("compile", 2, 8), None);
}

/// The cpu device beside other programs: of ten windows six are up to eight times as long. A candidate
/// that is as quick as its baseline must not seem quicker, nor one that is twice as quick anything else.
#[test]
fn on_a_busy_host_equal_kernels_stay_equal() {
    let mut random = StdRng::seed_from_u64(23);
    let mut values = |faster: f64, count: usize, limited: bool| -> Vec<f64> {
        let measured = |_| {
            let mut draw = |seconds: f64| {
                let window = |_| {
                    let busy = random.random_bool(0.6);
                    let slower = if busy { random.random_range(1.1..8.0) } else { 1.0 };
                    CALLS as f64 * seconds * slower * noisy(&mut random)
                };
                Windows::of(CALLS, (0..count).map(window).collect::<Vec<_>>())
            };
            let (candidate, compile) = (draw(CALL), draw(faster * CALL));
            let baselines = vec![(Baseline::Compile, compile)];
            let rounds = Rounds {
                nothing: vec![0.0; count],
                own_nothing: Vec::new(),
                shared: Vec::new(),
                candidate,
                baselines,
            };
            let limits = Levels::of_all(&[ready()], &rounds);
            let levels = if limited { limits } else { Levels::default() };
            over(&summarise(&rounds, &levels, (Interim::at_all(1), Unequal::default())))
        };
        (0..1000).map(measured).collect()
    };
    let above = |values: &[f64]| values.iter().filter(|value| **value > 1.2).count();
    let free = above(&values(1.0, 9, false));
    assert!(free > 150, "the control shows it: {free}");
    assert!(above(&values(1.0, BUSY_ROUNDS, true)) < 5);
    let twice = values(2.0, BUSY_ROUNDS, true);
    let near = twice.iter().filter(|value| (1.8..2.2).contains(*value)).count();
    assert!(near > 990, "{near}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Whatever the windows and the history: no figure of a speed-up over a baseline rises, nor does
    /// the speed-up over the best of them, nor a baseline's time. Baselines are near each other, so
    /// that the limit changes which one is the best.
    #[test]
    fn the_limit_never_raises_a_speedup(
        history in prop::collection::vec(0.99f64..1.08, 0..40),
        rounds in prop::collection::vec((0.5f64..1.5, 0.99f64..1.08, 0.99f64..1.08), 7..22),
    ) {
        let windows = |of: fn(&(f64, f64, f64)) -> f64| Windows::of(1, rounds.iter().map(of));
        let rounds = Rounds {
            own_nothing: Vec::new(), shared: Vec::new(),
            nothing: vec![0.0; rounds.len()],
            candidate: windows(|r| r.0),
            baselines: vec![
                (Baseline::Eager, windows(|r| r.1)),
                (Baseline::Compile, windows(|r| r.2)),
            ],
        };
        let mut seen = History::default();
        seen.add(&history);
        let ready = [Baseline::Eager, Baseline::Compile]
            .map(|which| Ready { which, history: seen.clone(), ..ready() });
        let free = summarise(&rounds, &Levels::default(), (Interim::at_all(2), Unequal::default()));
        let limited = summarise(&rounds, &Levels::of_baselines(&ready, &rounds), (Interim::at_all(2), Unequal::default()));
        let lower = |a: Option<Interval>, b: Option<Interval>| {
            let (a, b) = (a.unwrap(), b.unwrap());
            a.low <= b.low && a.value <= b.value && a.high <= b.high
        };
        prop_assert!(lower(limited.speedup.eager, free.speedup.eager));
        prop_assert!(lower(limited.speedup.compile, free.speedup.compile));
        prop_assert!(lower(limited.times.eager, free.times.eager));
        prop_assert!(limited.speedup.best.unwrap().value <= free.speedup.best.unwrap().value);
        prop_assert_eq!(limited.times.candidate, free.times.candidate);
    }
}

#[test]
fn empty_windows_measure_the_host_load() {
    let mut quickest = Quickest::default();
    assert_eq!(quickest.add(&[]), None);
    let calm = [1e-4, 1.02e-4, 1.04e-4, 1e-4, 1.1e-4, 0.9e-4, 1e-4];
    assert_eq!(quickest.add(&calm), None, "too few to say");
    assert_eq!(quickest.add(&calm), None, "too few to say");
    let times = quickest.add(&calm).unwrap();
    assert!((times - 1.0).abs() < 1e-9 && slow_host(Some(times)).is_none(), "{times}");
    let busy = quickest.add(&[1.6e-4; 7]).unwrap();
    assert!((busy - 1.6).abs() < 1e-9, "{busy}");
    assert!(slow_host(Some(busy)).unwrap().contains("60 % longer"));
    // A long busy time does not become what is usual.
    for _ in 0..1000 {
        quickest.add(&[1.6e-4; 21]);
    }
    assert!((quickest.add(&[1.6e-4; 7]).unwrap() - 1.6).abs() < 1e-9);
}

/// Single windows vary by far more than their medians, and the quickest of thousands is quick.
#[test]
fn thousands_of_windows_keep_an_idle_host_idle() {
    let mut random = StdRng::seed_from_u64(23);
    let mut quickest = Quickest::default();
    let mut told = 0;
    for _ in 0..500 {
        // Skewed as waking up is: never below a bound, now and then far above it.
        let window = |_| 7e-5 + 2e-5 * -random.random_range(1e-9f64..1.0).ln();
        let windows: Vec<f64> = (0..21).map(window).collect();
        told += usize::from(slow_host(quickest.add(&windows)).is_some());
    }
    assert!(told < 40, "{told} of 500; of single windows it would be half");
}
