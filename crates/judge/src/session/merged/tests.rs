use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::libraries::Libraries;
use warpwright_record::verdict::{
    FailureClass, Isolation, Profile, ReplayerTurn, Tier, VERDICT_VERSION,
};
use warpwright_record::void::VoidTurns;

use super::*;
use crate::process::failure::failure;
use crate::timing::baseline::Baseline;

fn around(value: f64, by: f64) -> Interval {
    Interval { value, low: value / by, high: value * by }
}

/// Three rounds apart by a hundredth, in logarithms.
fn rounds(value: f64) -> Series {
    let samples = [-0.01_f64, 0.0, 0.01].map(|by| value * by.exp());
    Series { samples: samples.to_vec(), unequal: vec![0.0; 3] }
}

/// One over eager and `torch.compile`.
fn part(name: &str, eager: f64, compile: f64) -> Part {
    let speedup = Speedup {
        eager: Some(around(eager, 1.1)),
        compile: Some(around(compile, 1.1)),
        best: Some(around(eager.min(compile), 1.1)),
        best_baseline: Some(if eager < compile { "eager" } else { "compile" }.to_owned()),
        ..Speedup::default()
    };
    let times = Times {
        candidate: Some(around(1.0, 1.1)),
        eager: Some(around(eager, 1.1)),
        rounds: Some(7),
        ..Times::default()
    };
    let replayer = Some(ReplayerTurn { id: name.to_owned(), turn: 3 });
    let verdict = Verdict {
        version: VERDICT_VERSION,
        tier: Tier::Device,
        plan: None,
        replayer,
        task: format!("t.{name}"),
        candidate: "c".to_owned(),
        device: "cpu".to_owned(),
        profile: Profile::Strict,
        dtype: None,
        backward: false,
        fit: None,
        stage: Stage::Measured,
        verified: true,
        failure: None,
        integrity: vec![],
        checks: vec![],
        reward: Reward::of(true, &speedup),
        times_ms: times,
        speedup,
        workloads: vec![],
        floor_ms: None,
        unavoidable_bytes: 100,
        libraries: Libraries::default(),
        kernels: vec![],
        provenance: None,
        memory: None,
        diagnostics: vec![],
        isolation: Isolation::default(),
        caveats: vec!["weak".to_owned(), format!("odd {name}")],
        conditions: None,
        seconds: PhaseSeconds { verify: 1.0, build: 2.0, ..PhaseSeconds::default() },
        fingerprint: Fingerprint::default(),
    };
    let of = |which, speedup| (which, rounds(speedup), rounds(speedup));
    let measured = Measured {
        candidate: rounds(1.0),
        baselines: vec![of(Baseline::Eager, eager), of(Baseline::Compile, compile)],
    };
    let (name, capped, degenerate) = (name.to_owned(), false, false);
    Part { name, held_out: false, capped, degenerate, verdict, measured }
}

#[test]
fn speedups_of_workloads_become_their_geometric_mean() {
    let merged = merge("t", vec![part("a", 1.0, 4.0), part("b", 9.0, 1.0)], vec![]).unwrap();
    assert_eq!((merged.task.as_str(), merged.verified, merged.tier), ("t", true, Tier::Device));
    let value = |of: Option<Interval>| of.map(|of| (of.value * 1e6).round() / 1e6);
    assert_eq!(value(merged.speedup.eager), Some(3.0));
    assert_eq!(value(merged.speedup.compile), Some(2.0));
    assert_eq!(merged.speedup.best, merged.speedup.compile);
    assert_eq!(merged.speedup.best_baseline.as_deref(), Some("compile"));
    assert_eq!(merged.speedup.reduce_overhead, None);
    // By the interval of the mean.
    let low = merged.speedup.best.unwrap().low;
    assert_eq!(Some(low), series::mean(&[&rounds(4.0), &rounds(1.0)]).map(|mean| mean.low));
    assert!(low > 1.9 && low < 2.0, "{low}");
    assert_eq!(merged.reward.speedup.to_bits(), low.to_bits());
    assert_eq!((merged.times_ms.rounds, merged.seconds.verify), (Some(14), 2.0));
    assert_eq!(merged.seconds.build.to_bits(), 2.0_f64.to_bits(), "built once");
    assert_eq!(merged.caveats, ["weak", "workload a: odd a", "workload b: odd b"]);
    let names: Vec<&str> = merged.workloads.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(value(merged.workloads[1].speedup.eager), Some(9.0));
}

#[test]
fn baseline_that_one_workload_lacks_counts_on_the_others() {
    let mut lacks = part("b", 3.0, 3.0);
    lacks.verdict.speedup.compile = None;
    lacks.verdict.speedup.best_baseline = Some("eager".to_owned());
    lacks.measured.baselines.pop();
    let merged = merge("t", vec![part("a", 3.0, 0.5), lacks], vec![]).unwrap();
    assert_eq!(merged.speedup.compile, None);
    let best = merged.speedup.best.unwrap().value;
    assert!((best - 1.5_f64.sqrt()).abs() < 1e-9, "3 over eager would be too much: {best}");
}

#[test]
fn the_first_failure_names_its_workload() {
    let mut wrong = part("b", 9.0, 9.0);
    wrong.verdict.verified = false;
    wrong.verdict.failure = Some(failure(FailureClass::Mismatch, "far off"));
    let merged = merge("t", vec![part("a", 9.0, 9.0), wrong], vec![]).unwrap();
    assert!(!merged.verified);
    assert_eq!(merged.failure.as_ref().unwrap().message, "workload b: far off");
    assert_eq!((merged.speedup.clone(), merged.reward), (Speedup::default(), Reward::unverified()));
    assert!(merged.workloads[0].verified && !merged.workloads[1].verified);
}

#[test]
fn a_refused_workload_is_told_and_not_counted() {
    let why = || WorkloadVerdict::refused("c".to_owned(), false, "too large".to_owned());
    let merged = merge("t", vec![part("a", 4.0, 4.0)], vec![why()]).unwrap();
    assert!(merged.verified && merged.reward.speedup > 3.0);
    assert_eq!(merged.caveats[0], "workload c: refused, and not judged: too large");
    assert_eq!(merged.workloads[1], why());
    assert!(merge("t", vec![], vec![why()]).is_none());
}

#[test]
fn a_single_workload_keeps_its_own_interval() {
    let merged = merge("t", vec![part("a", 4.0, 5.0)], vec![]).unwrap();
    assert_eq!(merged.speedup.best, Some(around(4.0, 1.1)));
    assert_eq!(merged.times_ms.candidate, Some(around(1.0, 1.1)));
}

#[test]
fn conditions_and_provenance_are_those_of_the_worst_workload() {
    let measured_at = |name: &str, host_load, kernels, ablation| {
        let mut part = part(name, 4.0, 4.0);
        part.verdict.conditions =
            Some(Conditions { host_load: Some(host_load), ..Conditions::default() });
        let library_calls = vec![name.to_owned()];
        part.verdict.provenance =
            Some(Provenance { own_kernels: kernels, library_calls, ablation });
        part
    };
    let quiet = || measured_at("a", 0.01, 3, AblationResult::FailedWithoutKernels);
    let merged =
        merge("t", vec![quiet(), measured_at("b", 0.5, 1, AblationResult::NotRun)], vec![]);
    let merged = merged.unwrap();
    assert_eq!(merged.conditions.unwrap().host_load, Some(0.5));
    let provenance = merged.provenance.unwrap();
    assert_eq!((provenance.own_kernels, provenance.ablation), (1, AblationResult::NotRun));
    assert_eq!(provenance.library_calls, ["a", "b"]);
    let of = |at: usize| merged.workloads[at].conditions.as_ref().unwrap().host_load;
    assert_eq!((of(0), of(1)), (Some(0.01), Some(0.5)));
    assert_eq!(merged.workloads[0].provenance.as_ref().unwrap().own_kernels, 3);
    let merged = merge("t", vec![quiet(), part("b", 4.0, 4.0)], vec![]).unwrap();
    assert_eq!(merged.provenance, None, "one has none");
}

#[test]
fn one_workload_caps_the_reward_of_all() {
    let mut capped = part("a", 4.0, 4.0);
    capped.capped = true;
    let merged = merge("t", vec![part("b", 4.0, 4.0), capped], vec![]).unwrap();
    assert_eq!((merged.reward.paper, merged.reward.bounded), (1.0, 1.0));
    let mut empty = part("a", 4.0, 4.0);
    empty.degenerate = true;
    let merged = merge("t", vec![part("b", 4.0, 4.0), empty], vec![]).unwrap();
    assert_eq!(merged.reward, Reward::UNEARNED);
}

#[test]
fn a_void_turn_of_one_workload_voids_the_verdict() {
    let merged = merge("t", vec![part("a", 4.0, 4.0), part("b", 4.0, 4.0)], vec![]).unwrap();
    let void = |replayer: &str| VoidTurns {
        replayer: replayer.to_owned(),
        after: 2,
        through: 3,
        time: jiff::Timestamp::UNIX_EPOCH,
        task: String::new(),
        candidate: String::new(),
        reason: String::new(),
    };
    assert!(void("b").covers(&merged));
    assert!(!void("c").covers(&merged));
}
