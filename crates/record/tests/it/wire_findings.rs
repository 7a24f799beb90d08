//! Wire form of findings.

use insta::assert_json_snapshot;
use serde_json::json;
use warpwright_record::findings::{
    Answer, FINDINGS_VERSION, Findings, Inspection, SanitizerCheck, SanitizerFinding,
    SanitizerOutcome, SanitizerReport,
};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::message::ToolResult;

fn findings() -> Findings {
    let found = SanitizerFinding {
        what: "Invalid __global__ write of size 4 bytes".into(),
        kernel: Some("k(float *)".into()),
        file: Some("k.cu".into()),
        line: Some(4),
        thread: Some([0, 0, 0]),
        block: Some([1, 0, 0]),
        times: 64,
        ..SanitizerFinding::default()
    };
    let report = SanitizerReport {
        check: SanitizerCheck::Memcheck,
        tool: "compute-sanitizer".into(),
        outcome: SanitizerOutcome::Stopped { message: "the context is gone".into() },
        findings: vec![found],
        total: 64,
    };
    Findings {
        version: FINDINGS_VERSION,
        task: "bias_gelu".into(),
        candidate: "c0ffee".into(),
        device: "cuda:0".into(),
        inspection: Inspection::Sanitize { checks: vec![SanitizerCheck::Memcheck] },
        answer: Answer::Sanitized { reports: vec![report] },
        caveats: Vec::new(),
        build_seconds: 1.5,
        run_seconds: 6.0,
        fingerprint: Fingerprint::default(),
    }
}

#[test]
fn sanitizer_findings_as_json() {
    let written = serde_json::to_value(findings()).unwrap();
    assert_eq!(serde_json::from_value::<Findings>(written.clone()).unwrap(), findings());
    let mut shown = written;
    shown.as_object_mut().unwrap().remove("fingerprint");
    assert_json_snapshot!(shown, @r#"
    {
      "version": 1,
      "task": "bias_gelu",
      "candidate": "c0ffee",
      "device": "cuda:0",
      "inspection": {
        "kind": "sanitize",
        "checks": [
          "memcheck"
        ]
      },
      "answer": {
        "kind": "sanitized",
        "reports": [
          {
            "check": "memcheck",
            "tool": "compute-sanitizer",
            "outcome": {
              "kind": "stopped",
              "message": "the context is gone"
            },
            "findings": [
              {
                "what": "Invalid __global__ write of size 4 bytes",
                "warning": false,
                "kernel": "k(float *)",
                "file": "k.cu",
                "line": 4,
                "thread": [
                  0,
                  0,
                  0
                ],
                "block": [
                  1,
                  0,
                  0
                ],
                "address": null,
                "details": [],
                "times": 64
              }
            ],
            "total": 64
          }
        ]
      },
      "caveats": [],
      "build_seconds": 1.5,
      "run_seconds": 6.0
    }
    "#);
}

/// Records from before findings existed are read, and written, unchanged.
#[test]
fn tool_result_without_findings_keeps_its_old_format() {
    let old = json!({"call": "a", "status": "ok", "text": "", "verdicts": []});
    let read: ToolResult = serde_json::from_value(old.clone()).unwrap();
    assert!(read.findings.is_empty());
    assert_eq!(serde_json::to_value(&read).unwrap(), old);
    let with = ToolResult { findings: vec![findings()], ..read };
    let again: ToolResult = serde_json::from_value(serde_json::to_value(&with).unwrap()).unwrap();
    assert_eq!(again, with);
}
