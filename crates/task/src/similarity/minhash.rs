//! Near duplicates among many without comparing all pairs.
//!
//! Broder, "On the resemblance and containment of documents", 1997: the chance that the smallest hash
//! of two sets is the same is their Jaccard coefficient `J`. Banding as in Leskovec, Rajaraman and Ullman,
//! "Mining of massive datasets", chapter 3: `b` bands of `r` hashes each, and a pair is proposed where
//! all hashes of any band agree, which happens with chance
//!
//! ```text
//! P(J) = 1 - (1 - J^r)^b
//! ```
//!
//! With the 20 bands of 6 that a Dice coefficient of 0.9 (`J` = 0.82) is looked for with:
//!
//! | Dice | 0.5 | 0.6 | 0.7 | 0.8 | 0.85 | 0.9 | 0.95 |
//! |---|---|---|---|---|---|---|---|
//! | J | 0.33 | 0.43 | 0.54 | 0.67 | 0.74 | 0.82 | 0.90 |
//! | P | 0.027 | 0.12 | 0.390 | 0.841 | 0.972 | 0.9992 | 1 - 1e-7 |

use std::collections::{BTreeSet, HashMap};

use super::bag::{Bag, jaccard_of_dice};
use super::{mix, then};

/// Least chance with which a pair at the threshold is proposed.
const RECALL: f64 = 0.999;

/// Most hashes of a signature.
const MAX_HASHES: usize = 160;

/// Grouping of a signature's hashes into bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banding {
    /// Number of bands, `b`.
    pub bands: usize,
    /// Hashes per band, `r`.
    pub rows: usize,
}

impl Banding {
    /// The banding with the most hashes per band, hence the fewest needless comparisons, that proposes a pair with
    /// Dice coefficient `dice` with probability 0.999 or more, with at most 160 hashes. Below a coefficient of 0.09
    /// the probability is lower.
    pub fn for_dice(dice: f64) -> Self {
        let jaccard = jaccard_of_dice(dice.clamp(0.0, 1.0));
        let mut best = Self { bands: MAX_HASHES, rows: 1 };
        for rows in 2..=16 {
            // The fewest bands that do.
            let fits = (1..=MAX_HASHES / rows).map(|bands| Self { bands, rows });
            match fits.into_iter().find(|banding| banding.probability(jaccard) >= RECALL) {
                Some(banding) => best = banding,
                None => break,
            }
        }
        best
    }

    /// The probability that a pair with Jaccard coefficient `jaccard` is proposed.
    pub fn probability(&self, jaccard: f64) -> f64 {
        1.0 - (1.0 - jaccard.powi(self.rows as i32)).powi(self.bands as i32)
    }
}

/// Computes signatures; deterministic for a number of hashes.
#[derive(Clone, Debug)]
pub struct MinHasher {
    seeds: Vec<u64>,
}

impl MinHasher {
    /// With `hashes` hash functions.
    pub fn new(hashes: usize) -> Self {
        Self { seeds: (1..=hashes as u64).map(|i| mix(mix(i))).collect() }
    }

    /// The smallest hash of the bag's elements under each function; all ones for an empty bag.
    pub fn signature(&self, bag: &Bag) -> Vec<u64> {
        let mut smallest = vec![u64::MAX; self.seeds.len()];
        for element in bag.elements() {
            for (smallest, seed) in smallest.iter_mut().zip(&self.seeds) {
                *smallest = (*smallest).min(mix(element ^ seed));
            }
        }
        smallest
    }
}

/// Bags by the bands of their signatures.
#[derive(Clone, Debug)]
pub struct LshIndex {
    banding: Banding,
    hasher: MinHasher,
    /// One table per band.
    tables: Vec<HashMap<u64, Vec<u32>>>,
    len: u32,
}

impl LshIndex {
    /// Empty. It proposes pairs as [`Banding::for_dice`] says.
    pub fn for_dice(dice: f64) -> Self {
        let banding = Banding::for_dice(dice);
        Self {
            banding,
            hasher: MinHasher::new(banding.bands * banding.rows),
            tables: vec![HashMap::new(); banding.bands],
            len: 0,
        }
    }

    /// Its banding.
    pub fn banding(&self) -> Banding {
        self.banding
    }

    /// Adds a bag; its number, counted from 0.
    pub fn add(&mut self, bag: &Bag) -> u32 {
        let number = self.len;
        for (table, key) in self.tables.iter_mut().zip(keys(&self.hasher, self.banding, bag)) {
            table.entry(key).or_default().push(number);
        }
        self.len += 1;
        number
    }

    /// Numbers of the bags worth comparing with `bag`, in order.
    pub fn propose(&self, bag: &Bag) -> Vec<u32> {
        let keys = keys(&self.hasher, self.banding, bag);
        let found: BTreeSet<u32> = self
            .tables
            .iter()
            .zip(keys)
            .filter_map(|(table, key)| table.get(&key))
            .flatten()
            .copied()
            .collect();
        found.into_iter().collect()
    }
}

/// One key per band.
fn keys(hasher: &MinHasher, banding: Banding, bag: &Bag) -> Vec<u64> {
    let signature = hasher.signature(bag);
    signature.chunks(banding.rows).map(|rows| rows.iter().copied().fold(0, then)).collect()
}
