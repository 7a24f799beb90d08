//! Statistics of a data set.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Combination, DataSet, Measured, Row, Split};

/// Maximum share of rows with the same number of operators. In the released data set 84 % have two.
const LARGEST_SHARE: f64 = 0.4;

/// Statistics of a data set. Maps are sorted by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Rows.
    pub rows: u64,
    /// Rows by level; rows without a level are not counted.
    pub levels: BTreeMap<u8, u64>,
    /// Splits in the order train, validation, test.
    pub splits: Vec<SplitStats>,
    /// Combinations of the test split that also occur in another split; 0 in a correct data set.
    pub test_combinations_trained_on: u64,
    /// Rows by number of operators.
    pub operator_counts: BTreeMap<u64, u64>,
    /// The number of operators that more than 40 % of the rows have, if there is one.
    pub over_forty_percent: Option<u64>,
    /// Rows by operator.
    pub operators: BTreeMap<String, u64>,
    /// Different combinations of operators.
    pub combinations: u64,
    /// Rows by `data_source`.
    pub data_sources: BTreeMap<String, u64>,
    /// Rows by composer; rows without provenance are not counted.
    pub composers: BTreeMap<String, u64>,
    /// Rows by catalogue (its BLAKE3).
    pub catalogues: BTreeMap<String, u64>,
    /// Rows that are mutations of others.
    pub mutated: u64,
    /// Rows with a traced graph.
    pub with_graph: u64,
    /// Measurements by fingerprint. Times under different fingerprints are never merged.
    pub devices: Vec<Device>,
}

/// Statistics of one split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SplitStats {
    /// The split.
    pub split: Split,
    /// Its rows.
    pub rows: u64,
    /// Its combinations of operators.
    pub combinations: u64,
}

/// Measurements under one fingerprint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Fingerprint, as in the rows.
    pub fingerprint: String,
    /// Rows measured under it.
    pub rows: u64,
    /// Eager times, in milliseconds.
    pub eager_ms: Quantiles,
    /// Compiled times, in milliseconds.
    pub compile_ms: Quantiles,
    /// Lower bounds by memory traffic, in milliseconds.
    pub floor_ms: Quantiles,
    /// Best baseline over lower bound.
    pub head_room: Quantiles,
}

/// Quantiles, interpolated linearly (type 7 of Hyndman and Fan, 1996).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Smallest.
    pub min: f64,
    /// 10 % quantile.
    pub p10: f64,
    /// Half lies below.
    pub median: f64,
    /// 90 % quantile.
    pub p90: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// `None` if there are no values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |share: f64| {
            let position = share * last as f64;
            let below = position as usize;
            let above = (below + 1).min(last);
            values[below] + (values[above] - values[below]) * (position - below as f64)
        };
        Some(Self { min: at(0.0), p10: at(0.1), median: at(0.5), p90: at(0.9), max: at(1.0) })
    }
}

impl Stats {
    pub(super) fn of(set: &DataSet) -> Self {
        let rows = set.rows();
        let mut operator_counts = BTreeMap::new();
        let mut operators = BTreeMap::new();
        let mut splits: BTreeMap<Split, (u64, BTreeSet<Combination>)> = BTreeMap::new();
        for row in rows {
            *operator_counts.entry(row.ops.len() as u64).or_insert(0) += 1;
            for operator in row.ops.iter().collect::<BTreeSet<_>>() {
                *operators.entry(operator.clone()).or_insert(0) += 1;
            }
            let (count, combinations) = splits.entry(set.split_of(row)).or_default();
            *count += 1;
            combinations.insert(row.combination());
        }
        let of_test = splits.get(&Split::Test).map(|(_, combinations)| combinations);
        let others = [Split::Train, Split::Validation];
        let trained_on = others
            .iter()
            .filter_map(|split| splits.get(split))
            .map(|(_, other)| of_test.map_or(0, |test| test.intersection(other).count()))
            .sum::<usize>();
        let over = |count: u64| count as f64 > LARGEST_SHARE * rows.len() as f64;
        Self {
            rows: rows.len() as u64,
            levels: counted(rows.iter().filter_map(|row| row.level)),
            splits: Split::ALL
                .into_iter()
                .map(|split| SplitStats {
                    split,
                    rows: splits.get(&split).map_or(0, |(count, _)| *count),
                    combinations: splits.get(&split).map_or(0, |(_, all)| all.len() as u64),
                })
                .collect(),
            test_combinations_trained_on: trained_on as u64,
            over_forty_percent: operator_counts
                .iter()
                .find(|(_, count)| over(**count))
                .map(|(operators, _)| *operators),
            operator_counts,
            operators,
            combinations: rows.iter().map(Row::combination).collect::<BTreeSet<_>>().len() as u64,
            data_sources: counted(rows.iter().map(|row| row.data_source.clone())),
            composers: counted(provenances(rows).map(|p| p.composer.clone())),
            catalogues: counted(provenances(rows).map(|p| p.catalogue.clone())),
            mutated: provenances(rows).filter(|p| p.parent.is_some()).count() as u64,
            with_graph: rows.iter().filter(|row| row.graph.is_some()).count() as u64,
            devices: devices(rows),
        }
    }
}

fn provenances(rows: &[Row]) -> impl Iterator<Item = &crate::Provenance> {
    rows.iter().filter_map(|row| row.provenance.as_ref())
}

fn counted<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

/// Statistics by fingerprint, the one with most rows first.
fn devices(rows: &[Row]) -> Vec<Device> {
    let mut by_fingerprint: BTreeMap<&str, Vec<&Measured>> = BTreeMap::new();
    for measured in rows.iter().filter_map(|row| row.measured.as_ref()) {
        by_fingerprint.entry(&measured.fingerprint).or_default().push(measured);
    }
    let mut devices: Vec<Device> = by_fingerprint
        .into_iter()
        .filter_map(|(fingerprint, measured)| {
            let of = |figure: fn(&Measured) -> f64| {
                Quantiles::of(measured.iter().map(|m| figure(m)).collect())
            };
            Some(Device {
                fingerprint: fingerprint.to_owned(),
                rows: measured.len() as u64,
                eager_ms: of(|m| m.eager_ms)?,
                compile_ms: of(|m| m.compile_ms)?,
                floor_ms: of(|m| m.floor_ms)?,
                head_room: of(Measured::head_room)?,
            })
        })
        .collect();
    devices.sort_by(|a, b| b.rows.cmp(&a.rows).then_with(|| a.fingerprint.cmp(&b.fingerprint)));
    devices
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_match_numpy() {
        // numpy.quantile([1, 2, 4, 8, 16], [0, 0.1, 0.5, 0.9, 1])
        let quantiles = Quantiles::of(vec![8.0, 1.0, 16.0, 2.0, 4.0]).unwrap();
        let expected = [1.0, 1.4, 4.0, 12.8, 16.0];
        let found = [quantiles.min, quantiles.p10, quantiles.median, quantiles.p90, quantiles.max];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        }
        assert_eq!(Quantiles::of(Vec::new()), None);
    }

    proptest! {
        #[test]
        fn quantiles_are_in_order(values in prop::collection::vec(-1e6..1e6_f64, 1..50)) {
            let q = Quantiles::of(values).unwrap();
            prop_assert!([q.min, q.p10, q.median, q.p90, q.max].is_sorted());
        }
    }
}
