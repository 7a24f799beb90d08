//! What an agent is told of a verdict on workloads of which it sees some.

use warpwright_record::fit::{Fit, WorkloadFit};
use warpwright_record::inputs::InputFamily;
use warpwright_record::verdict::{
    Check, Failure, FailureClass, IntegrityFinding, Mismatch, SCALED_DOWN, Times, Verdict,
    WorkloadVerdict,
};

use crate::sample;

/// A verdict on `seen` and on `hidden 7919`, which the candidate fails.
fn verdict() -> Verdict {
    let mut verdict = sample::measured("t", "cpu", &sample::candidate(""), 2.0);
    let workload = |name: &str, verified| WorkloadVerdict {
        refused: None,
        verified,
        ..WorkloadVerdict::refused(name.to_owned(), !verified, String::new())
    };
    verdict.workloads = vec![workload("seen", true), workload("hidden 7919", false)];
    verdict.verified = false;
    let mismatch = Mismatch {
        output: 0,
        check: "workload hidden 7919: fresh inputs".to_owned(),
        family: InputFamily::Own,
        elements: 3,
        of: 7919,
        max_abs_error: 1.0,
        atol: 0.0,
        rtol: 0.0,
        examples: vec![],
    };
    verdict.failure = Some(Failure {
        class: FailureClass::Mismatch,
        message: "workload hidden 7919: far off".to_owned(),
        diagnostics: vec![],
        mismatch: Some(mismatch),
        cuda_error: None,
        output_tail: "shape 7919".to_owned(),
    });
    verdict.integrity = vec![IntegrityFinding {
        class: "late_write".to_owned(),
        message: "workload hidden 7919: late".to_owned(),
    }];
    let first = verdict.checks[0].clone();
    let check = |name: &str| Check { name: name.to_owned(), ..first.clone() };
    verdict.checks =
        vec![check("workload seen: fresh inputs"), check("workload hidden 7919: fresh inputs")];
    verdict.caveats =
        ["workload seen: odd", "workload hidden 7919: odd", "odd"].map(str::to_owned).to_vec();
    let fit = |name: &str, from| WorkloadFit { workload: name.to_owned(), from, to: 2 };
    verdict.fit = Some(Fit {
        dimension: "rows".to_owned(),
        from: 7919,
        to: 2,
        workloads: vec![fit("seen", 8), fit("hidden 7919", 7919)],
    });
    verdict
        .caveats
        .push("the task is scaled down: rows 2 of 7919 in workload hidden 7919".to_owned());
    (verdict.unavoidable_bytes, verdict.floor_ms) = (7919, Some(79.19));
    verdict
}

#[test]
fn shown_verdict_tells_nothing_of_held_out_workloads() {
    let (all, shown) = (verdict(), verdict().shown());
    let text = serde_json::to_string(&shown).unwrap();
    assert!(!text.contains("hidden") && !text.contains("7919"), "{text}");
    assert!(serde_json::to_string(&all).unwrap().contains("7919"), "positive control");
    let failure = shown.failure.unwrap();
    assert_eq!(failure.class, FailureClass::Mismatch);
    assert!(failure.message.contains("held-out workload"), "{}", failure.message);
    assert_eq!((shown.checks.len(), shown.workloads.len()), (1, 1));
    assert_eq!(shown.caveats[..2], ["workload seen: odd", "odd"]);
    assert_eq!(shown.fit.unwrap().from, 8);
    assert_eq!((shown.times_ms, shown.reward), (Times::default(), all.reward));
}

#[test]
fn failure_on_a_seen_workload_is_shown() {
    let mut verdict = verdict();
    verdict.workloads[0].verified = false;
    verdict.workloads.pop();
    verdict.failure.as_mut().unwrap().message = "workload seen: far off".to_owned();
    let fit = verdict.fit.clone().unwrap();
    assert!(fit.to_string().contains("hidden"), "positive control");
    verdict.caveats = vec![format!("{SCALED_DOWN}{fit}"), "odd".to_owned()];
    let shown = verdict.shown();
    let text = serde_json::to_string(&(&shown.fit, &shown.caveats)).unwrap();
    assert!(!text.contains("hidden") && !text.contains("7919"), "held out, and not judged: {text}");
    assert_eq!((&shown.failure, shown.workloads.len()), (&verdict.failure, 1));
    let hidden = WorkloadVerdict::refused("x".to_owned(), true, "too large".to_owned());
    verdict.workloads.push(hidden);
    let shown = verdict.shown();
    assert_eq!(shown.failure, verdict.failure);
    assert_eq!(shown.workloads.len(), 1);
}
