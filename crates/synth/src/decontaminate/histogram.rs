//! Histogram of similarities.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of similarities in 20 bins of width 0.05.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Counts; the first bin begins at 0, the last includes 1.
    pub bins: Vec<u64>,
    /// The highest similarity counted; 0 if there is none.
    pub highest: f64,
}

/// Number of bins.
const BINS: usize = 20;

impl Default for Histogram {
    fn default() -> Self {
        Self { bins: vec![0; BINS], highest: 0.0 }
    }
}

impl Histogram {
    /// Counts a similarity in \[0, 1\].
    pub fn count(&mut self, similarity: f64) {
        // 0.95 is a little under 19 twentieths in binary.
        let bin = (similarity.clamp(0.0, 1.0) * BINS as f64 + 1e-9) as usize;
        self.bins[bin.min(BINS - 1)] += 1;
        self.highest = self.highest.max(similarity);
    }

    /// Number of similarities counted.
    pub fn total(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// Lower and upper edge of a bin.
    pub fn range(bin: usize) -> (f64, f64) {
        (bin as f64 / BINS as f64, (bin + 1) as f64 / BINS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_start_at_their_stated_edge() {
        for bin in 0..BINS {
            let mut histogram = Histogram::default();
            let (from, to) = Histogram::range(bin);
            histogram.count(from);
            histogram.count(to - 1e-6);
            assert_eq!(histogram.bins[bin], 2, "{from}");
        }
        let mut histogram = Histogram::default();
        histogram.count(1.0);
        assert_eq!((histogram.bins[BINS - 1], histogram.total()), (1, 1));
    }
}
