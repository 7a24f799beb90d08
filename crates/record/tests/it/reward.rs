//! The rewards compared with a second, plain implementation, and at their thresholds.

use proptest::prelude::*;
use warpwright_record::interval::Interval;
use warpwright_record::verdict::{Reward, Speedup};

fn around(low: f64) -> Interval {
    Interval { value: low * 1.02, low, high: low * 1.04 }
}

fn speedup(eager: Option<f64>, compile: Option<f64>, best: Option<f64>) -> Speedup {
    Speedup {
        eager: eager.map(around),
        compile: compile.map(around),
        best: best.map(around),
        ..Speedup::default()
    }
}

/// An independent implementation of the design.
fn plain(verified: bool, eager: f64, compile: f64, best: f64) -> [f64; 3] {
    if !verified {
        return [-1.0; 3];
    }
    let mut paper = 1.0;
    if eager > 1.05 {
        paper = 2.0;
        if compile > 1.05 {
            paper = 3.0;
        }
    }
    let bounded = if best < 0.5f64.sqrt() {
        0.5
    } else if best > 4.0 {
        3.0
    } else if (0.95..=1.05).contains(&best) {
        1.0
    } else {
        1.0 + best.ln() / 2.0f64.ln()
    };
    [paper, best, bounded]
}

proptest! {
    #[test]
    fn rewards_match_their_definitions(
        verified in any::<bool>(),
        eager in 0.01..20.0f64,
        compile in 0.01..20.0f64,
        best in prop_oneof![0.01..20.0f64, 0.9..1.1f64],
    ) {
        let reward = Reward::of(verified, &speedup(Some(eager), Some(compile), Some(best)));
        let [paper, raw, bounded] = plain(verified, eager, compile, best);
        prop_assert_eq!(reward.paper, paper);
        prop_assert_eq!(reward.speedup, raw);
        prop_assert!((reward.bounded - bounded).abs() < 1e-12);
    }

    #[test]
    fn reward_never_falls_with_speedup(a in 0.0..20.0f64, more in 0.0..5.0f64) {
        let reward = |s: f64| Reward::verified(&speedup(Some(s), Some(s), Some(s)));
        let (low, high) = (reward(a), reward(a + more));
        prop_assert!(low.paper <= high.paper);
        prop_assert!(low.speedup <= high.speedup);
        prop_assert!(low.bounded <= high.bounded);
    }

    #[test]
    fn correct_candidate_always_earns_more_than_a_wrong_one(s in any::<f64>()) {
        let right = Reward::verified(&speedup(Some(s), Some(s), Some(s)));
        let wrong = Reward::unverified();
        prop_assert!(right.paper > wrong.paper);
        prop_assert!(right.speedup > wrong.speedup);
        prop_assert!(right.bounded > wrong.bounded);
    }
}

#[test]
fn speedup_of_exactly_five_percent_is_below_the_threshold() {
    let at = |s: f64| Reward::verified(&speedup(Some(s), Some(s), Some(s)));
    assert_eq!((at(1.05).paper, at(1.050_001).paper), (1.0, 3.0));
    assert_eq!((at(0.95).bounded, at(1.05).bounded), (1.0, 1.0));
    assert_eq!((at(1e9).bounded, at(1e-9).bounded), (3.0, 0.5));
    let eager_only = Reward::verified(&speedup(Some(2.0), Some(1.0), Some(1.0)));
    assert_eq!(eager_only.paper, 2.0);
}

#[test]
fn unmeasured_speedup_earns_only_correctness() {
    let reward = Reward::verified(&Speedup::default());
    assert_eq!(reward, Reward { paper: 1.0, speedup: 0.0, bounded: 0.5 });
}
