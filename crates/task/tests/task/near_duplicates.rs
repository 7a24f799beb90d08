//! The index's proposals, compared with all pairs.

use proptest::prelude::*;
use warpwright_task::similarity::{Bag, Banding, LshIndex, MinHasher};

/// Pseudo-random numbers, equal in every run.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (state ^ (state >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

/// Two bags of `size` features with the `common` first in common.
fn pair(size: usize, common: usize, seed: u64) -> (Bag, Bag) {
    let mut next = numbers(seed);
    let shared: Vec<u64> = (0..common).map(|_| next()).collect();
    let mut bag = || {
        let own = (common..size).map(|_| next()).collect::<Vec<_>>();
        Bag::from([shared.clone(), own].concat())
    };
    (bag(), bag())
}

/// The proposed share of pairs with a Dice coefficient of `common / 100`.
fn proposed(common: usize, pairs: u64) -> f64 {
    let found = (0..pairs).filter(|&seed| {
        let (a, b) = pair(100, common, seed * 7919 + common as u64);
        let mut index = LshIndex::for_dice(0.9);
        index.add(&a);
        !index.propose(&b).is_empty()
    });
    found.count() as f64 / pairs as f64
}

#[test]
fn banding_for_the_papers_threshold_matches_the_documentation() {
    let banding = Banding::for_dice(0.9);
    assert_eq!((banding.bands, banding.rows), (20, 6));
    for dice in [0.5, 0.7, 0.8, 0.9, 0.95, 1.0] {
        let banding = Banding::for_dice(dice);
        assert!(banding.probability(dice / (2.0 - dice)) >= 0.999, "{dice}: {banding:?}");
        assert!(banding.bands * banding.rows <= 160);
    }
}

/// Measured shares against `1 - (1 - J^r)^b`: five standard errors of 2,000 pairs.
#[test]
fn proposal_rate_matches_the_lsh_curve() {
    let banding = Banding::for_dice(0.9);
    for common in [40, 60, 70, 80, 90, 95] {
        let dice = common as f64 / 100.0;
        let expected = banding.probability(dice / (2.0 - dice));
        let measured = proposed(common, 2000);
        let error = (expected * (1.0 - expected) / 2000.0).sqrt();
        assert!(
            (measured - expected).abs() < 5.0 * error + 1e-3,
            "{dice}: {measured}, not {expected}"
        );
    }
}

#[test]
fn signatures_estimate_jaccards_coefficient() {
    let (a, b) = pair(300, 200, 1);
    let hasher = MinHasher::new(4000);
    let (of_a, of_b) = (hasher.signature(&a), hasher.signature(&b));
    let agree = of_a.iter().zip(&of_b).filter(|(x, y)| x == y).count() as f64 / 4000.0;
    assert!((agree - a.jaccard(&b)).abs() < 0.04, "{agree}, not {}", a.jaccard(&b));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Clusters of near copies; the oracle compares all pairs.
    #[test]
    fn near_duplicates_are_found_without_comparing_all_pairs(
        seed in any::<u64>(),
        sizes in prop::collection::vec(20usize..150, 4..10),
    ) {
        let mut next = numbers(seed);
        let mut bags = Vec::new();
        for size in sizes {
            let first: Vec<u64> = (0..size).map(|_| next() % 500).collect();
            for _ in 0..6 {
                let mut copy = first.clone();
                for _ in 0..next() as usize % (size / 8 + 1) {
                    let at = next() as usize % size;
                    copy[at] = next();
                }
                bags.push(Bag::from(copy));
            }
        }
        let mut index = LshIndex::for_dice(0.9);
        let (mut near, mut found) = (0, 0);
        for (i, bag) in bags.iter().enumerate() {
            let proposed = index.propose(bag);
            prop_assert!(proposed.is_sorted());
            for (j, other) in bags[..i].iter().enumerate() {
                if bag.dice(other) >= 0.9 {
                    near += 1;
                    found += usize::from(proposed.contains(&(j as u32)));
                }
            }
            prop_assert_eq!(index.add(bag) as usize, i);
        }
        // One miss in a thousand is expected at the threshold itself, fewer above it.
        prop_assert!(near - found <= 1 + near / 200, "{found} of {near}");
    }

    #[test]
    fn identical_bag_is_always_found(features in prop::collection::vec(any::<u64>(), 0..50)) {
        let bag = Bag::from(features);
        let mut index = LshIndex::for_dice(0.9);
        index.add(&bag);
        prop_assert_eq!(index.propose(&bag), vec![0]);
    }
}
