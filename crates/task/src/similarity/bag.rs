//! Multisets of features, and how much of them two have in common.

use std::cmp::Ordering;

use super::then;

/// A multiset of 64-bit features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bag {
    /// Sorted; an element as often as it occurs.
    features: Vec<u64>,
}

impl From<Vec<u64>> for Bag {
    fn from(mut features: Vec<u64>) -> Self {
        features.sort_unstable();
        Self { features }
    }
}

impl Bag {
    /// Number of features, with multiplicity.
    pub fn len(&self) -> usize {
        self.features.len()
    }

    /// Whether the bag is empty.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// Dice's coefficient `2 |A ∩ B| / (|A| + |B|)` over multisets (Dice, Ecology 26, 1945), in
    /// \[0, 1\]. 1 for two empty bags.
    pub fn dice(&self, other: &Self) -> f64 {
        match self.len() + other.len() {
            0 => 1.0,
            both => 2.0 * self.common(other) as f64 / both as f64,
        }
    }

    /// Upper bound of [`Bag::dice`] with a bag of `len` features: the smaller bag is a subset of the larger.
    pub fn dice_bound(&self, len: usize) -> f64 {
        match self.len() + len {
            0 => 1.0,
            both => 2.0 * self.len().min(len) as f64 / both as f64,
        }
    }

    /// Jaccard's coefficient `|A ∩ B| / |A ∪ B|` over multisets, in \[0, 1\]: what MinHash estimates.
    pub fn jaccard(&self, other: &Self) -> f64 {
        let common = self.common(other);
        match self.len() + other.len() - common {
            0 => 1.0,
            union => common as f64 / union as f64,
        }
    }

    /// The bag as a set: the second occurrence of a feature is another element than the first, and so
    /// on, so that Jaccard's coefficient of two such sets is that of the bags.
    pub(crate) fn elements(&self) -> impl Iterator<Item = u64> {
        let mut before = None;
        let mut count = 0;
        self.features.iter().map(move |&feature| {
            count = if before == Some(feature) { count + 1 } else { 0 };
            before = Some(feature);
            then(feature, count)
        })
    }

    fn common(&self, other: &Self) -> usize {
        let (mut a, mut b) = (self.features.iter().peekable(), other.features.iter().peekable());
        let mut common = 0;
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            match x.cmp(y) {
                Ordering::Less => drop(a.next()),
                Ordering::Greater => drop(b.next()),
                Ordering::Equal => {
                    common += 1;
                    a.next();
                    b.next();
                }
            }
        }
        common
    }
}

/// Jaccard's coefficient of two bags whose Dice coefficient is `dice`: `D / (2 - D)`.
pub(crate) fn jaccard_of_dice(dice: f64) -> f64 {
    dice / (2.0 - dice)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn bag() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(0u64..12, 0..30)
    }

    fn counts(values: &[u64]) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for &value in values {
            *counts.entry(value).or_insert(0) += 1;
        }
        counts
    }

    proptest! {
        /// The oracle counts occurrences in maps instead of merging sorted lists.
        #[test]
        fn dice_and_jaccard_match_counted_occurrences(a in bag(), b in bag()) {
            let (of_a, of_b) = (counts(&a), counts(&b));
            let common: usize =
                of_a.iter().map(|(x, n)| *n.min(of_b.get(x).unwrap_or(&0))).sum();
            let (bag_a, bag_b) = (Bag::from(a.clone()), Bag::from(b.clone()));
            if a.len() + b.len() > 0 {
                let dice = 2.0 * common as f64 / (a.len() + b.len()) as f64;
                prop_assert!((bag_a.dice(&bag_b) - dice).abs() < 1e-12);
                let jaccard = common as f64 / (a.len() + b.len() - common) as f64;
                prop_assert!((bag_a.jaccard(&bag_b) - jaccard).abs() < 1e-12);
                prop_assert!((jaccard_of_dice(dice) - jaccard).abs() < 1e-12);
            }
            prop_assert!(bag_a.dice(&bag_b) <= bag_a.dice_bound(b.len()));
            prop_assert_eq!(bag_a.dice(&bag_b).to_bits(), bag_b.dice(&bag_a).to_bits());
        }

        #[test]
        fn elements_form_a_set_with_the_bags_jaccard_coefficient(a in bag(), b in bag()) {
            let (bag_a, bag_b) = (Bag::from(a), Bag::from(b));
            let set_a: BTreeSet<u64> = bag_a.elements().collect();
            let set_b: BTreeSet<u64> = bag_b.elements().collect();
            prop_assert_eq!(set_a.len(), bag_a.len());
            let union = set_a.union(&set_b).count();
            if union > 0 {
                let jaccard = set_a.intersection(&set_b).count() as f64 / union as f64;
                prop_assert!((bag_a.jaccard(&bag_b) - jaccard).abs() < 1e-12);
            }
        }
    }
}
