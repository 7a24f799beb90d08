//! Rows and evaluations for the tests of analyses.

use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::interval::Interval;
use warpwright_record::message::Usage;
use warpwright_record::verdict::Profile;

use crate::evaluation::Evaluation;
use crate::evaluation::rows::{Measured, Row, RowState};

pub(super) fn exact(value: f64) -> Interval {
    Interval { value, low: value, high: value }
}

/// A judged row: a final kernel with this speed-up over every baseline, `None` for an incorrect one.
/// The kernel is unlike those of other policies and speed-ups.
pub(super) fn row(policy: &str, task: &str, speedup: Option<f64>) -> Row {
    let interval = speedup.map(exact);
    let measured = Measured {
        time_ms: interval,
        eager: interval,
        compile: interval,
        best: interval,
        best_baseline: speedup.map(|_| "eager".to_owned()),
    };
    Row {
        task: task.to_owned(),
        level: Some("level1".to_owned()),
        policy: policy.to_owned(),
        attempt: 0,
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        device: "cuda:0".to_owned(),
        episode: Some(0),
        state: RowState::Judged,
        reason: None,
        outcome: Some("stopped".to_owned()),
        verified: speedup.is_some(),
        result: if speedup.is_some() { "verified" } else { "wrong values" }.to_owned(),
        integrity: Vec::new(),
        best_seen: speedup.map(|_| measured.clone()),
        measured,
        candidate: Some(format!("{policy} {speedup:?}")),
        turns: 3,
        seconds: 10.0,
        judge_seconds: 2.0,
        workloads: Vec::new(),
        usage: Usage::default(),
        memory: None,
        fingerprint: Some(Fingerprint {
            device: "cuda:0".to_owned(),
            hardware: "NVIDIA H200".to_owned(),
            ..Fingerprint::default()
        }),
    }
}

pub(super) fn evaluation(rows: impl IntoIterator<Item = Row>) -> Evaluation {
    Evaluation::from_rows("runs/sample", rows.into_iter().collect())
}
