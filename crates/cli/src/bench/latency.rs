//! Latency: one candidate after another, with everything prepared that can be.

use std::time::Instant;

use serde::Serialize;
use warpwright_record::verdict::PhaseSeconds;

use super::{DeviceContext, Form, Subject, median};
use crate::failure::Failure;

/// Number of warm-up candidates: torch's headers are precompiled from the second candidate with a
/// binding on, and the benchmark has already judged one candidate.
const WARM_UP: usize = 1;

/// Latencies of the candidates of one form.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) form: Form,
    /// From the candidate's files to its verdict, seconds.
    pub(crate) seconds: Vec<f64>,
    /// Seconds by stage, in the same order.
    pub(crate) stages: Vec<PhaseSeconds>,
    /// Coefficients of variation of the candidates' windows.
    pub(crate) variation: Vec<f64>,
}

impl Latency {
    pub(crate) fn median(&self) -> f64 {
        median(self.seconds.clone())
    }

    /// Median seconds of a stage.
    pub(crate) fn stage(&self, of: impl Fn(&PhaseSeconds) -> f64) -> f64 {
        median(self.stages.iter().map(of).collect())
    }
}

pub(super) fn measure(
    at: &DeviceContext<'_>,
    subject: &mut Subject,
    form: Form,
    candidates: usize,
) -> Result<Latency, Failure> {
    for _ in 0..WARM_UP {
        at.judged(subject, form)?;
    }
    let mut found = Latency { form, seconds: vec![], stages: vec![], variation: vec![] };
    for _ in 0..candidates {
        let started = Instant::now();
        let verdict = at.judged(subject, form)?;
        found.seconds.push(started.elapsed().as_secs_f64());
        found.stages.push(verdict.seconds);
        found.variation.extend(verdict.conditions.and_then(|c| c.variation));
    }
    Ok(found)
}
