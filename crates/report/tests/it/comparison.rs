//! Two runs, task by task.

use warpwright_record::fit::Fit;
use warpwright_record::verdict::WorkloadVerdict;
use warpwright_report::evaluation::Evaluation;
use warpwright_report::evaluation::compare::{Comparison, text};
use warpwright_report::evaluation::gap::Gap;

use crate::suite::{self, Attempt, ComesTo, attempt, right};

const NAMES: [&str; 6] =
    ["level1-1_a", "level1-2_b", "level1-3_c", "level2-1_d", "level2-2_e", "level2-3_f"];

fn evaluation(policy: &'static str, comes_to: [ComesTo; 6], device: &str) -> Evaluation {
    let dir = tempfile::tempdir().unwrap();
    let attempts: Vec<Attempt> =
        NAMES.iter().zip(comes_to).map(|(name, c)| attempt(policy, name, c)).collect();
    drop(suite::write_attempts(dir.path(), &NAMES, &attempts, device));
    let mut evaluation = Evaluation::read(dir.path()).unwrap();
    evaluation.run = format!("runs/{policy}");
    for row in &mut evaluation.rows {
        // Each policy writes its own kernels.
        row.candidate = row.candidate.take().map(|hash| format!("{policy} {hash}"));
    }
    evaluation
}

fn before() -> Evaluation {
    let wrong = ComesTo::Wrong;
    evaluation("before", [right(2.0), right(2.0), right(2.0), wrong, right(2.0), wrong], "cuda:0")
}

fn after() -> Evaluation {
    let broken = ComesTo::Broken;
    let all = [right(3.0), right(1.5), right(2.01), right(1.2), ComesTo::Wrong, broken];
    evaluation("after", all, "cuda:1")
}

#[test]
fn changed_verdicts_are_listed_and_differences_are_paired() {
    let comparison = Comparison::of(&before(), &after(), None, None).unwrap();
    let names = |list: &[warpwright_report::evaluation::compare::Changed]| -> Vec<String> {
        list.iter().map(|changed| changed.task.clone()).collect()
    };
    assert_eq!(comparison.tasks, 5);
    assert_eq!(comparison.only_a, ["level2-3_f"], "our own failure is no verdict");
    assert_eq!(names(&comparison.faster), ["level1-1_a"]);
    assert_eq!(names(&comparison.slower), ["level1-2_b"]);
    assert_eq!(names(&comparison.gained), ["level2-1_d"]);
    assert_eq!(names(&comparison.lost), ["level2-2_e"]);
    assert_eq!(comparison.unchanged, 1, "2.00 and 2.01 cannot be told apart");
    let difference = comparison.pass_rate_difference.unwrap();
    assert!(difference.value.abs() < 1e-12 && difference.low < 0.0 && difference.high > 0.0);
    let ratio = comparison.geomean_ratio.eager.unwrap();
    let expected = (3.0 / 2.0 * 1.5 / 2.0 * 2.01 / 2.0f64).cbrt();
    assert!((ratio.value - expected).abs() < 1e-9);
    let ratio = comparison.geomean_ratio_failures_as_one.eager.unwrap();
    let expected = (3.0 / 2.0 * 1.5 / 2.0 * 2.01 / 2.0 * 1.2 / 2.0f64).powf(0.2);
    assert!((ratio.value - expected).abs() < 1e-9);
    // Won on the first and the third, lost on the second and the last two.
    let logs = |ratios: &[f64]| ratios.iter().map(|ratio| ratio.ln()).sum::<f64>();
    let best = std::f64::consts::SQRT_2;
    let (won, lost) = (logs(&[1.5, 2.01 / 2.0]), logs(&[0.75, 1.2 / best, 1.0 / best]));
    let closed = comparison.gap_closed.unwrap().value;
    assert!((closed - (won + lost) / won).abs() < 1e-9, "{closed}");
    let faster = comparison.faster_rate_difference.best.unwrap().value;
    assert!((faster + 0.4).abs() < 1e-12, "{faster}");
    insta::assert_snapshot!(text(&comparison, None), @r#"
    A: runs/before, policy before, device cuda:0
    B: runs/after, policy after, device cuda:1
    5 tasks judged in both, profile strict
    1 tasks judged in A only
    ────────────────────────────────────────────────────────────────────────────────────────────────────
     B against A                              over eager          over compile        over the best
    ────────────────────────────────────────────────────────────────────────────────────────────────────
     speed-up geomean ratio, passed in both   1.04x [0.75–1.50]   1.04x [0.75–1.50]   1.04x [0.75–1.50]
     the same, failures as 1x                 0.93x [0.65–1.27]   0.93x [0.75–1.21]   0.93x [0.75–1.21]
     faster rate, B minus A                        0 % [-60–60]       -20 % [-60–0]       -40 % [-80–0]
    ────────────────────────────────────────────────────────────────────────────────────────────────────
    pass rate, B minus A, in percentage points: 0 % [-60–60]
    gap closed, from A to the fastest of both: -94.5 % [-23832.4–82.3]
    gained: failed in A, passed in B: 1
      level2-1_d: wrong values -> 0.84x [0.83–0.86]
    lost: passed in A, failed in B: 1
      level2-2_e: 1.41x [1.38–1.44] -> wrong values
    faster beyond the intervals: 1
      level1-1_a: 1.41x [1.38–1.44] -> 2.11x [2.07–2.15]
    slower beyond the intervals: 1
      level1-2_b: 1.41x [1.38–1.44] -> 1.06x [1.03–1.08]
    1 tasks unchanged within their intervals
    Note: the second run has 1 planned tasks that were not judged.
    Intervals are 95 %, by bootstrap over paired tasks. Speed-ups in the lists are over the best baseline.
    "#);
}

#[test]
fn run_without_correct_candidates_has_faster_rate_zero() {
    let nothing = evaluation("before", [ComesTo::Wrong; 6], "cuda:0");
    let comparison = Comparison::of(&nothing, &after(), None, None).unwrap();
    let faster = comparison.faster_rate_difference.best.unwrap().value;
    assert!((faster - 0.4).abs() < 1e-12, "{faster}");
    let backwards = Comparison::of(&after(), &nothing, None, None).unwrap();
    assert!((backwards.faster_rate_difference.best.unwrap().value + faster).abs() < 1e-12);
    assert!(backwards.gap_closed.unwrap().value < 0.0);
}

#[test]
fn run_compared_with_itself_has_no_difference() {
    let run = before();
    let comparison = Comparison::of(&run, &run, None, None).unwrap();
    assert_eq!(comparison.unchanged, 6);
    let ratio = comparison.geomean_ratio.best.unwrap();
    assert!((ratio.low - 1.0).abs() < 1e-12 && (ratio.high - 1.0).abs() < 1e-12);
    assert!(comparison.caveats.is_empty());
}

#[test]
fn incomparable_runs_are_refused() {
    let run = before();
    let all = [right(2.0); 6];
    let said = |b: &Evaluation| Comparison::of(&run, b, None, None).unwrap_err().to_string();
    assert_eq!(
        said(&evaluation("after", all, "cpu")),
        "failed to compare runs/before with runs/after: their device differs: cuda and cpu"
    );
    let mut other = after();
    let print = other.tables[0].fingerprint.as_mut().unwrap();
    print.hardware = "NVIDIA A100".into();
    assert_eq!(
        said(&other),
        "failed to compare runs/before with runs/after: their hardware differs: NVIDIA H200 and NVIDIA A100"
    );
    let mut other = after();
    other.tables[0].profile = warpwright_record::verdict::Profile::Tf32;
    assert!(said(&other).ends_with("their profile differs: strict and tf32"));
    let mut other = after();
    other.rows.iter_mut().for_each(|row| row.task.insert(0, 'x'));
    assert!(said(&other).ends_with("no task was judged in both"));
    assert!(Comparison::of(&run, &after(), None, None).is_ok(), "positive control");
}

#[test]
fn differing_fingerprints_give_a_caveat() {
    let mut other = after();
    let print = other.tables[0].fingerprint.as_mut().unwrap();
    print.torch = "2.12.0".into();
    let comparison = Comparison::of(&before(), &other, None, None).unwrap();
    assert!(comparison.caveats[0].contains("torch 2.11.0+cu130 and 2.12.0"));
}

#[test]
fn comparison_of_several_policies_needs_a_named_one() {
    let dir = tempfile::tempdir().unwrap();
    drop(suite::write(dir.path()));
    let run = Evaluation::read(dir.path()).unwrap();
    let error = Comparison::of(&run, &run, None, None).unwrap_err();
    assert!(error.to_string().ends_with("there are several; the run has alpha, beta"), "{error}");
    let error = Comparison::of(&run, &run, Some("gamma"), None).unwrap_err();
    assert!(error.to_string().contains("there is none of this name"), "{error}");
    let comparison = Comparison::of(&run, &run, Some("alpha"), Some("beta")).unwrap();
    assert_eq!((comparison.a.policy.as_str(), comparison.b.policy.as_str()), ("alpha", "beta"));
    assert_eq!(comparison.tasks, 4);
}

/// Compared with the definition, written out: tasks a, b and d have a possible gain; c is already
/// fastest; infrastructure failures count on neither side.
#[test]
fn closed_gap_is_the_achieved_share_of_the_possible_gain() {
    let (wrong, broken) = (ComesTo::Wrong, ComesTo::Broken);
    let from = evaluation("from", [right(2.0), wrong, right(4.0), wrong, broken, wrong], "cuda:0");
    let to =
        evaluation("to", [right(3.0), right(2.0), right(4.0), wrong, right(9.0), broken], "cuda:0");
    let best = evaluation(
        "best",
        [right(4.0), right(4.0), right(1.0), right(3.0), wrong, wrong],
        "cuda:0",
    );
    let over = |evaluation: &Evaluation, n: usize| {
        let row = evaluation.rows.iter().find(|row| row.task == NAMES[n]).unwrap();
        row.measured.best.map_or(0.0, |best| best.value.ln())
    };
    let gap = Gap::of(&from, &to, &[&from, &to, &best]);
    let won: f64 = [0, 1].map(|n| over(&to, n) - over(&from, n)).iter().sum();
    let could: f64 = [0, 1, 3].map(|n| over(&best, n) - over(&from, n)).iter().sum();
    assert!(won > 0.0 && could > won);
    let closed = gap.closed.unwrap();
    assert!((closed.value - won / could).abs() < 1e-12, "{closed:?}, {won} of {could}");
    assert!(closed.low <= closed.value && closed.value <= closed.high);
    assert_eq!((gap.tasks, gap.open), (4, 3));
    let nothing = Gap::of(&best, &from, &[&best]);
    assert!(nothing.closed.is_some_and(|closed| closed.value < 0.0), "{nothing:?}");
    assert_eq!(Gap::of(&to, &to, &[&to]).closed, None);
}

#[test]
fn runs_of_different_dtypes_are_not_compared() {
    let mut cast = before();
    for row in &mut cast.rows {
        row.dtype = Some(warpwright_record::verdict::Dtype::Bf16);
    }
    let cast = Evaluation::from_rows("cast", cast.rows);
    assert_eq!(cast.tables[0].rules(), "strict, cast to bf16");
    let error = Comparison::of(&before(), &cast, None, None).unwrap_err();
    assert!(error.to_string().contains("dtype"), "{error}");
    assert!(Comparison::of(&cast, &cast, None, None).is_ok(), "positive control");
    // Rows of both in one run are two tables.
    let rows = before().rows.into_iter().chain(cast.rows).collect();
    assert_eq!(Evaluation::from_rows("both", rows).tables.len(), 2);
}

#[test]
fn scaled_tasks_are_compared_only_at_equal_sizes() {
    let scaled = |to: u64, tasks: usize| {
        let mut rows = before().rows;
        for row in &mut rows[..tasks] {
            row.fit = Some(Fit {
                dimension: "batch_size".to_owned(),
                from: 64,
                to,
                workloads: Vec::new(),
            });
        }
        Evaluation::from_rows("scaled", rows)
    };
    let all = before().rows.len();
    let error = Comparison::of(&before(), &scaled(16, all), None, None).unwrap_err();
    assert!(error.to_string().contains("size of tasks differs: full and scaled down"), "{error}");
    let error = Comparison::of(&scaled(16, all), &scaled(8, all), None, None).unwrap_err();
    assert!(error.to_string().contains("no task was judged in both"), "{error}");
    let alone = Comparison::of(&scaled(16, all), &scaled(16, all), None, None).unwrap();
    // One task at two sizes: each is compared with its like only.
    let mut rows = scaled(16, all).rows;
    let mut earlier = rows[0].clone();
    earlier.fit.as_mut().unwrap().to = 32;
    earlier.verified = false;
    rows.insert(0, earlier);
    let twice = Evaluation::from_rows("twice", rows);
    assert_eq!(twice.notes.len(), 1, "{:?}", twice.notes);
    assert_eq!(twice.overall.tasks as usize, all);
    let compared = Comparison::of(&twice, &scaled(16, all), None, None).unwrap();
    assert_eq!(compared.pass_rate_difference, alone.pass_rate_difference);
    assert_eq!(compared.tasks, alone.tasks);
    assert!(compared.caveats[0].contains("other sizes"), "{:?}", compared.caveats);
    // Beside others they are in a table of their own, the second, and left out.
    let some = scaled(16, 2);
    assert_eq!(
        some.tables.iter().map(|table| table.scaled_down).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(some.tables[1].rules(), "strict, scaled down by --fit");
    assert_eq!(some.overall.tasks, some.tables[0].overall.tasks);
    let compared = Comparison::of(&before(), &some, None, None).unwrap();
    assert_eq!(compared.tasks as usize, all - 2);
    assert!(compared.caveats.iter().any(|caveat| caveat.starts_with("2 tasks of the second run")));
}

#[test]
fn tasks_are_compared_only_on_equal_workloads() {
    let on = |names: &[&str], refused: &[&str], tasks: usize| {
        let mut rows = after().rows;
        for row in &mut rows[..tasks] {
            let judged = names.iter().map(|name| WorkloadVerdict {
                refused: None,
                verified: row.verified,
                ..WorkloadVerdict::refused((*name).to_owned(), false, String::new())
            });
            let refused = refused.iter().map(|name| {
                WorkloadVerdict::refused((*name).to_owned(), false, "too large".to_owned())
            });
            // A failure ends judging.
            let count = if row.verified { usize::MAX } else { 1 };
            row.workloads = judged.take(count).chain(refused).collect();
        }
        Evaluation::from_rows("workloads", rows)
    };
    let all = after().rows.len();
    let (both, one) = (on(&["a", "b"], &[], all), on(&["a"], &["b"], 2));
    let compared = |a: &Evaluation, b: &Evaluation| Comparison::of(a, b, None, None);
    let same = compared(&both, &on(&["b", "a"], &["c"], all)).unwrap();
    assert_eq!(same.tasks, compared(&after(), &after()).unwrap().tasks, "positive control");
    assert!(!same.caveats.iter().any(|caveat| caveat.contains("other workloads")));
    // Of two tasks with one workload the other was refused.
    let some = on(&["a", "b"], &[], 2);
    let verified = some.rows[..2].iter().filter(|row| row.verified).count();
    let told = compared(&some, &one).unwrap();
    assert_eq!((verified > 0, told.tasks as usize), (true, same.tasks as usize - verified));
    let caveat = format!(
        "{verified} tasks were judged on other workloads in one of the runs; those attempts are left out"
    );
    assert!(told.caveats.contains(&caveat), "{:?}", told.caveats);
}
