//! How exactly a machine measures: what its judge said of kernels whose speed is known.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::Interval;

/// What the judge of a machine said of built-in kernels, timed against themselves and against others
/// that do more or less work by construction. What was not tried is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exactness {
    /// Identical kernels that were called over 5 % faster: false positives.
    pub identical_faster: Option<Rate>,
    /// Identical kernels that were called over 5 % slower.
    pub identical_slower: Option<Rate>,
    /// Median measured speed-up of identical kernels: 1 where neither side is favoured.
    pub identical_ratio: Option<f64>,
    /// Kernels 5 % faster, as exactly as work can be chosen, that were called over 5 % faster.
    pub boundary_faster: Option<Rate>,
    /// Median measured speed-up of those.
    pub boundary_ratio: Option<f64>,
    /// Kernels 7 % faster that were called over 5 % faster: rightly.
    pub faster_found: Option<Rate>,
    /// Kernels 7 % slower that were called over 5 % slower: rightly.
    pub slower_found: Option<Rate>,
    /// Median over all measurements of the coefficient of variation of a candidate's windows.
    pub variation: Option<f64>,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// So often.
    pub times: u32,
    /// Of so many.
    pub of: u32,
    /// From 0 to 1, with a 95 % interval (Wilson's score).
    pub rate: Interval,
}

/// The 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

impl Rate {
    /// `times` of `of`; `None` of none. The interval is that of Wilson, "Probable inference, the law
    /// of succession, and statistical inference", JASA 1927: it holds for rates near 0.
    pub fn new(times: u32, of: u32) -> Option<Self> {
        if of == 0 {
            return None;
        }
        let (n, p) = (f64::from(of), f64::from(times) / f64::from(of));
        let scale = 1.0 + Z * Z / n;
        let middle = (p + Z * Z / (2.0 * n)) / scale;
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
        let low = if times == 0 { 0.0 } else { (middle - half).max(0.0) };
        let high = if times == of { 1.0 } else { (middle + half).min(1.0) };
        Some(Self { times, of, rate: Interval { value: p, low, high } })
    }

    /// How often something held of these.
    pub fn count(all: impl IntoIterator<Item = bool>) -> Option<Self> {
        let (times, of) =
            all.into_iter().fold((0, 0), |(times, of), held| (times + u32::from(held), of + 1));
        Self::new(times, of)
    }
}

/// `0 of 30 (0 % to 11.4 %)`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| {
            let text = format!("{:.1}", 100.0 * share);
            text.strip_suffix(".0").unwrap_or(&text).to_owned()
        };
        let (low, high) = (percent(self.rate.low), percent(self.rate.high));
        write!(f, "{} of {} ({low} % to {high} %)", self.times, self.of)
    }
}

/// In one line: `identical kernels called faster 0 of 30 (0 % to 11.4 %), ...`.
impl fmt::Display for Exactness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = [
            ("identical kernels called faster", self.identical_faster),
            ("kernels at the 5 % margin called faster", self.boundary_faster),
            ("7 % faster found", self.faster_found),
            ("7 % slower found", self.slower_found),
        ];
        let mut parts: Vec<String> = rates
            .into_iter()
            .filter_map(|(name, rate)| Some(format!("{name} {}", rate?)))
            .collect();
        parts.extend(self.variation.map(|v| format!("windows vary by {:.1} %", 100.0 * v)));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine
    /// 1998, table I, method 3.
    #[test]
    fn intervals_match_published_values() {
        for (times, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let rate = Rate::new(times, of).unwrap().rate;
            assert!((rate.low - low).abs() < 5e-5 && (rate.high - high).abs() < 5e-5, "{rate:?}");
        }
        assert_eq!(Rate::new(0, 0), None);
        assert!(Rate::new(7, 7).unwrap().rate.high >= 1.0);
    }

    #[test]
    fn missing_measurements_are_omitted() {
        assert_eq!(Exactness::default().to_string(), "");
        let exactness = Exactness {
            identical_faster: Rate::count([false; 30]),
            faster_found: Rate::count([true, true]),
            variation: Some(0.004),
            ..Exactness::default()
        };
        assert_eq!(
            exactness.to_string(),
            "identical kernels called faster 0 of 30 (0 % to 11.4 %), 7 % faster found 2 of 2 \
             (34.2 % to 100 %), windows vary by 0.4 %"
        );
    }
}
