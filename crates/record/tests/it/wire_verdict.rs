//! Wire form of the verdict.

use insta::assert_json_snapshot;
use warpwright_record::event::{EpisodeId, Event};
use warpwright_record::verdict::IntegrityFinding;

use crate::sample;

#[test]
fn verified_verdict_as_json() {
    let candidate = sample::candidate("");
    let mut verdict = sample::measured("bias_gelu", "cuda:0", &candidate, 2.0);
    verdict.checks.truncate(1);
    let event = Event::VerdictGiven {
        episode: EpisodeId(0),
        turn: None,
        verdict: Box::new(verdict),
        files: Vec::new(),
    };
    assert_json_snapshot!(event, @r#"
    {
      "type": "verdict_given",
      "episode": 0,
      "turn": null,
      "verdict": {
        "version": 2,
        "task": "bias_gelu",
        "candidate": "9ae6051ba0eeb20dd185bde435c719753b7115ffb89bf2c55781ff349978ef9f",
        "device": "cuda:0",
        "tier": "host",
        "profile": "strict",
        "stage": "measured",
        "verified": true,
        "failure": null,
        "integrity": [],
        "checks": [
          {
            "name": "fresh inputs 1",
            "family": "own",
            "passed": true,
            "max_abs_error": 0.00000024,
            "reference_max_abs_error": 0.00000021,
            "lower_precision_max_abs_error": 0.00048,
            "atol": 0.0000019,
            "rtol": 0.0000013,
            "truth": "float64"
          }
        ],
        "times_ms": {
          "candidate": {
            "value": 0.1155,
            "low": 0.114345,
            "high": 0.11665500000000001
          },
          "eager": {
            "value": 0.231,
            "low": 0.22915200000000002,
            "high": 0.232848
          },
          "compile": {
            "value": 0.1642,
            "low": 0.1627222,
            "high": 0.1656778
          },
          "reduce_overhead": {
            "value": 0.1625,
            "low": 0.16055,
            "high": 0.16445
          },
          "max_autotune": null,
          "prepare": 0.4,
          "rounds": 7
        },
        "speedup": {
          "eager": {
            "value": 2.0,
            "low": 1.976,
            "high": 2.024
          },
          "compile": {
            "value": 1.4216450216450216,
            "low": 1.4003203463203462,
            "high": 1.4429696969696968
          },
          "reduce_overhead": {
            "value": 1.406926406926407,
            "low": 1.3787878787878787,
            "high": 1.4350649350649352
          },
          "max_autotune": null,
          "best": {
            "value": 1.406926406926407,
            "low": 1.3787878787878787,
            "high": 1.4350649350649352
          },
          "best_baseline": "reduce_overhead"
        },
        "reward": {
          "paper": 3.0,
          "speedup": 1.3787878787878787,
          "bounded": 1.4634005208402427
        },
        "floor_ms": 0.0489,
        "unavoidable_bytes": 201343000,
        "libraries": {
          "allowed": [
            "cutlass",
            "cccl"
          ],
          "used": [
            "cutlass"
          ]
        },
        "kernels": [
          {
            "name": "bias_gelu_kernel(float4 const*, float const*, float4 const*, float4*)",
            "arch": "sm_90",
            "registers": 32,
            "spill_store_bytes": 0,
            "spill_load_bytes": 0,
            "shared_bytes": 0,
            "stack_bytes": 0
          }
        ],
        "provenance": {
          "own_kernels": 1,
          "library_calls": [],
          "ablation": "failed_without_kernels"
        },
        "diagnostics": [],
        "isolation": {
          "level": "full",
          "enforced": [
            "mount namespace",
            "network namespace",
            "seccomp"
          ],
          "missing": []
        },
        "caveats": [],
        "conditions": {
          "sm_mhz": {
            "min": 1965,
            "median": 1980,
            "max": 1980
          },
          "memory_mhz": {
            "min": 3201,
            "median": 3201,
            "max": 3201
          },
          "celsius": {
            "min": 41,
            "median": 44,
            "max": 44
          },
          "watts": {
            "min": 310,
            "median": 402,
            "max": 402
          },
          "throttling": [],
          "repeated_rounds": 0,
          "shared_rounds": 0,
          "other_processes": [],
          "host_load": 0.02,
          "empty_window": 1.03,
          "variation": 0.004
        },
        "seconds": {
          "build": 0.92,
          "record": 0.0,
          "start": 0.3,
          "load": 1.4,
          "baselines": 11.3,
          "wait": 0.4,
          "verify": 2.2,
          "measure": 6.1,
          "inputs": 0.25,
          "windows": 0.5,
          "end": 0.125
        },
        "fingerprint": {
          "device": "cuda:0",
          "hardware": "NVIDIA H200",
          "cores": 16,
          "driver": "580.82.07",
          "compiler": "nvcc 13.0.88",
          "torch": "2.11.0+cu130",
          "python": "3.12.3",
          "clocks": "SM 1980 MHz, memory 3201 MHz",
          "warpwright": "0.1.0",
          "bandwidth_bytes_per_second": 4120000000000,
          "exactness": {
            "identical_faster": {
              "times": 1,
              "of": 300,
              "rate": {
                "value": 0.0033333333333333335,
                "low": 0.0005886577218511581,
                "high": 0.018636693694531237
              }
            },
            "identical_slower": null,
            "identical_ratio": 1.0,
            "boundary_faster": null,
            "boundary_ratio": null,
            "faster_found": null,
            "slower_found": null,
            "variation": 0.004
          }
        }
      },
      "files": []
    }
    "#);
}

#[test]
fn failed_verdict_as_json() {
    let candidate = sample::candidate("");
    let mut failure = sample::mismatch();
    failure.diagnostics = sample::build_failure().diagnostics;
    let mut verdict = sample::failed("bias_gelu", &candidate, failure);
    let message = "the output changed after it was returned".to_owned();
    verdict.integrity.push(IntegrityFinding { class: "late_write".into(), message });
    assert_json_snapshot!(verdict, {
        ".fingerprint" => "[as above]",
        ".isolation" => "[as above]",
        ".seconds" => "[as above]",
        ".times_ms" => "[as above]",
        ".speedup" => "[as above]",
    }, @r#"
    {
      "version": 2,
      "task": "bias_gelu",
      "candidate": "9ae6051ba0eeb20dd185bde435c719753b7115ffb89bf2c55781ff349978ef9f",
      "device": "cuda:0",
      "tier": "host",
      "profile": "strict",
      "stage": "verified",
      "verified": false,
      "failure": {
        "class": "mismatch",
        "message": "output 0 differs from the oracle on `fresh inputs 2`",
        "diagnostics": [
          {
            "file": "kernels/bias_gelu.cu",
            "line": 13,
            "column": 16,
            "severity": "error",
            "message": "identifier \"residuall\" is undefined",
            "excerpt": "  12 |     if (i >= n4) return;\n  13 |     float4 v = x[i], r = residuall[i];\n     |                          ^"
          }
        ],
        "mismatch": {
          "output": 0,
          "check": "fresh inputs 2",
          "family": "own",
          "elements": 4096,
          "of": 16777216,
          "max_abs_error": null,
          "atol": 0.0000019,
          "rtol": 0.0000013,
          "examples": [
            {
              "index": [
                0,
                4095
              ],
              "expected": 1.5,
              "got": null,
              "text": "expected 1.5, got nan"
            }
          ]
        },
        "cuda_error": null,
        "output_tail": "<script>alert('from the candidate')</script>\n\u001b[31mred\u001b[0m"
      },
      "integrity": [
        {
          "class": "late_write",
          "message": "the output changed after it was returned"
        }
      ],
      "checks": [],
      "times_ms": "[as above]",
      "speedup": "[as above]",
      "reward": {
        "paper": -1.0,
        "speedup": -1.0,
        "bounded": -1.0
      },
      "floor_ms": 0.0489,
      "unavoidable_bytes": 201343000,
      "kernels": [],
      "provenance": null,
      "diagnostics": [],
      "isolation": "[as above]",
      "caveats": [],
      "conditions": null,
      "seconds": "[as above]",
      "fingerprint": "[as above]"
    }
    "#);
}
