//! Population mean and variance.

/// Mean; 0 of an empty slice.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean squared distance from the mean; 0 of an empty slice.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    values.iter().map(|v| (v - centre).powi(2)).sum::<f64>() / values.len().max(1) as f64
}
