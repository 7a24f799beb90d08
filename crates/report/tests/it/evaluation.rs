//! Figures of a run over a suite, compared with hand-computed figures.

use std::path::Path;

use warpwright_record::event::{EpisodeId, Event, Outcome, TooLarge};
use warpwright_record::fit::{Fit, MemoryUse};
use warpwright_record::interval::Interval;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::RunWriter;
use warpwright_report::evaluation::rows::RowState;
use warpwright_report::evaluation::schema::schemas;
use warpwright_report::evaluation::table::tables;
use warpwright_report::evaluation::{Evaluation, Scored};

use crate::suite::{self, attempt, right};
use crate::{sample, suite::ComesTo};

fn read() -> Evaluation {
    let dir = tempfile::tempdir().unwrap();
    drop(suite::write(dir.path()));
    Evaluation::read(dir.path()).unwrap()
}

fn table<'a>(evaluation: &'a Evaluation, policy: &str) -> &'a Scored {
    evaluation.tables.iter().find(|table| table.policy == policy).unwrap()
}

fn near(interval: Option<Interval>, value: f64) {
    let interval = interval.unwrap();
    assert!((interval.value - value).abs() < 1e-9, "{interval:?}, not {value}");
    assert!(interval.low <= interval.value && interval.value <= interval.high);
}

#[test]
fn every_planned_task_has_a_row() {
    let evaluation = read();
    let rows: Vec<String> = evaluation
        .rows
        .iter()
        .map(|r| {
            let reason = r.reason.clone().unwrap_or_default();
            format!("{} {} {}: {}; {reason}.", r.policy, r.task, r.attempt, r.result)
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @r#"
    alpha level1-1_relu 0: verified; .
    alpha level1-2_softmax 0: verified; .
    alpha level1-2_softmax 1: wrong values; .
    alpha level2-1_conv_bias 0: wrong values; .
    alpha level2-2_gemm_scale 0: verified; .
    alpha level3-1_mlp 0: infrastructure error; the oracle died.
    alpha level3-2_broken 0: task refused; it raised <script>alert(1)</script>.
    alpha level3-3_later 0: unfinished; never begun.
    beta level1-1_relu 0: verified; .
    beta level1-2_softmax 0: no verdict; .
    beta level2-1_conv_bias 0: wrong values; .
    beta level2-2_gemm_scale 0: verified; .
    beta level3-1_mlp 0: unfinished; killed, or still going on.
    beta level3-2_broken 0: task refused; it raised <script>alert(1)</script>.
    beta level3-3_later 0: unfinished; never begun.
    "#);
    assert!(!evaluation.complete);
    assert!(evaluation.kernelbench);
}

#[test]
fn figures_match_hand_computed_values() {
    let evaluation = read();
    let alpha = &table(&evaluation, "alpha").overall;
    // relu right; softmax right in one of two attempts; conv_bias wrong; gemm_scale right.
    assert_eq!(alpha.tasks, 4);
    near(alpha.pass_rate, (1.0 + 0.5 + 0.0 + 1.0) / 4.0);
    // Over eager: relu 3.4, softmax 1.9 faster; gemm_scale 0.8 not.
    near(alpha.faster_rate.eager, (1.0 + 0.5) / 4.0);
    // compile takes 0.1642 ms where eager takes 0.2310 ms.
    let part = 0.1642 / 0.2310;
    near(alpha.faster_rate.compile, (1.0 + 0.5) / 4.0);
    near(alpha.geomean_speedup.eager, (3.4 * 1.9 * 0.8f64).cbrt());
    near(alpha.geomean_speedup.compile, (3.4 * 1.9 * 0.8f64).cbrt() * part);
    // Over all tasks: softmax's failed attempt counts as 1, and so does conv_bias.
    let logs = 3.4f64.ln() + 1.9f64.ln() / 2.0 + 0.8f64.ln();
    near(alpha.geomean_speedup_failures_as_one.eager, (logs / 4.0).exp());
    // Best seen: conv_bias was right on the way; relu was faster there.
    let seen = &alpha.best_in_trajectory;
    near(seen.pass_rate, (1.0 + 0.5 + 1.0 + 1.0) / 4.0);
    near(seen.geomean_speedup.eager, (3.6 * 1.9 * 1.6 * 0.8f64).powf(0.25));
    // The paper's convention needs no margin: conv_bias at 1.6 over eager is 1.137 over compile.
    near(alpha.paper_convention.faster_rate.compile, (1.0 + 0.5 + 1.0) / 4.0);
    let passes: Vec<(u32, u32)> = alpha.pass_at_k.iter().map(|p| (p.k, p.tasks)).collect();
    assert_eq!(passes, [(1, 4), (2, 1)], "one task had two attempts");
    near(Some(alpha.pass_at_k[1].value), 1.0);
    near(alpha.best_attempt.as_ref().unwrap().pass_rate, 3.0 / 4.0);
    // fast_p: 0 is the pass rate; above 1.9 only relu is left (1.9 is not above itself).
    let at = |p: f64| {
        alpha.fast_p.eager.iter().find(|point| (point.p - p).abs() < 1e-9).map(|f| f.share)
    };
    near(at(0.0), 2.5 / 4.0);
    near(at(1.0), 1.5 / 4.0);
    near(at(2.0), 1.0 / 4.0);
    near(at(5.0), 0.0);
    let beta = &table(&evaluation, "beta").overall;
    assert_eq!(beta.tasks, 4);
    near(beta.pass_rate, 2.0 / 4.0);
    assert_eq!(beta.best_attempt, None);
}

#[test]
fn unjudged_attempts_are_counted_separately() {
    let evaluation = read();
    let alpha = &table(&evaluation, "alpha");
    let out = alpha.overall.not_judged;
    assert_eq!((out.refused, out.infrastructure, out.unfinished), (1, 1, 1));
    let out = alpha.levels["level3"].not_judged;
    assert_eq!((out.refused, out.infrastructure, out.unfinished), (1, 1, 1));
    assert_eq!(alpha.levels["level3"].pass_rate, None, "no task of it counts");
    assert_eq!(alpha.levels["level1"].tasks, 2);
    let out = table(&evaluation, "beta").overall.not_judged;
    assert_eq!((out.refused, out.infrastructure, out.unfinished), (1, 0, 2));
    let cost = &alpha.overall.cost;
    assert_eq!((cost.attempts, cost.turns, cost.usage.input_tokens), (5, 10, 5000));
    assert_eq!(cost.usage.dollars, Some(1.25));
}

#[test]
fn episode_without_a_candidate_counts_as_a_failure() {
    let evaluation = read();
    let row = |r: &&warpwright_report::evaluation::rows::Row| {
        r.policy == "beta" && r.task == "level1-2_softmax"
    };
    let row = evaluation.rows.iter().find(row).unwrap();
    assert_eq!((row.state, row.verified), (RowState::Judged, false));
    assert_eq!(row.result, "no verdict");
}

#[test]
fn devices_and_profiles_are_never_averaged_together() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    let evaluation = Evaluation::read(dir.path()).unwrap();
    let devices: Vec<&str> = evaluation.tables.iter().map(|t| t.device.as_str()).collect();
    assert_eq!(devices, ["cuda:0", "cpu"]);
    let text = tables(&evaluation, None);
    assert!(text.contains("this says nothing about a GPU"));
    assert_eq!(
        text.matches("on this machine: identical kernels called faster 1 of 300").count(),
        1
    );
}

#[test]
fn figures_of_different_fingerprints_are_not_averaged() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["level1-1_a", "level1-2_b"];
    let attempts = [attempt("alpha", names[0], right(2.0)), attempt("alpha", names[1], right(3.0))];
    let run = suite::write_attempts(dir.path(), &names, &attempts, "cuda:0");
    let good = Evaluation::read(dir.path()).unwrap();
    assert!(good.overall.geomean_speedup.eager.is_some(), "the same, under one fingerprint");
    let candidate = sample::candidate("");
    let mut verdict = sample::measured("level1-3_c", "cuda:0", &candidate, 2.0);
    verdict.fingerprint.torch = "2.12.0".into();
    let episode = EpisodeId(7);
    let setup = sample::setup(&run, "level1-3_c", "cuda:0");
    let setup = warpwright_record::event::EpisodeSetup { policy: "alpha".into(), ..setup };
    run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
    run.append(&Event::EpisodeFinished {
        episode,
        outcome: Outcome::Stopped,
        final_verdict: Some(Box::new(verdict)),
        best_verdict: None,
        candidate: None,
        turns: 1,
        seconds: 1.0,
    })
    .unwrap();
    let mixed = Evaluation::read(dir.path()).unwrap().overall;
    assert_eq!(mixed.tasks, 3);
    near(mixed.pass_rate, 1.0);
    assert_eq!(mixed.geomean_speedup.eager, None);
    assert!(mixed.fast_p.best.is_empty());
    assert!(mixed.caveats.iter().any(|c| c.contains("2 different fingerprints")));
}

#[test]
fn run_without_episodes_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    drop(RunWriter::create(dir.path(), RunInfo::default()).unwrap());
    let evaluation = Evaluation::read(dir.path()).unwrap();
    assert_eq!(evaluation.overall.tasks, 0);
    assert_eq!(tables(&evaluation, None), "The run has no episodes.");
}

#[test]
fn suite_of_broken_tasks_counts_only_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let run = suite::write_attempts(dir.path(), &["level1-1_a"], &[], "cpu");
    let (task, message) = ("level1-1_a".to_owned(), "no forward".to_owned());
    run.append(&Event::TaskRefused {
        task,
        message,
        hint: None,
        degenerate: Vec::new(),
        too_large: None,
    })
    .unwrap();
    drop(run);
    // Whose attempts they would have been is in the run's settings.
    let reader = warpwright_record::reader::RunReader::open(dir.path()).unwrap();
    let history = warpwright_record::history::History::read(&reader).unwrap();
    let mut plan = warpwright_report::evaluation::rows::Plan::from_config(&reader.header().config);
    plan.policies.push("teacher".into());
    let evaluation = Evaluation::of("run", &history, &plan);
    assert_eq!(evaluation.overall.not_judged.refused, 1);
    assert_eq!(evaluation.rows[0].reason.as_deref(), Some("no forward"));
    assert!(evaluation.complete);
}

#[test]
fn degenerate_tasks_are_listed_after_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let first = attempt("teacher", "level1-1_a", right(2.0));
    let names = ["level1-1_a", "level1-2_b"];
    let run = suite::write_attempts(dir.path(), &names, &[first], "cpu");
    let (task, message) = ("level1-2_b".to_owned(), "its results are constant".to_owned());
    let degenerate = vec!["constant".to_owned()];
    run.append(&Event::TaskRefused { task, message, hint: None, degenerate, too_large: None })
        .unwrap();
    drop(run);
    let evaluation = Evaluation::read(dir.path()).unwrap();
    assert_eq!(evaluation.overall.tasks, 1);
    assert_eq!(evaluation.overall.not_judged.degenerate, 1);
    assert_eq!(evaluation.rows[1].state, RowState::Degenerate);
    assert!(evaluation.complete);
    let text = tables(&evaluation, None);
    assert!(text.contains("Excluded, task degenerate: 1"), "{text}");
    assert!(text.contains("its results are constant"), "{text}");
}

#[test]
fn tasks_too_large_are_no_infrastructure_errors() {
    let dir = tempfile::tempdir().unwrap();
    let first = attempt("teacher", "level1-1_a", right(2.0));
    let names = ["level1-1_a", "level1-2_b"];
    let run = suite::write_attempts(dir.path(), &names, &[first], "cpu");
    let (task, message) = ("level1-2_b".to_owned(), "it needs at least 9 MiB".to_owned());
    let too_large = Some(TooLarge { needed_bytes: Some(9 << 20), available_bytes: 8 << 20 });
    let degenerate = Vec::new();
    run.append(&Event::TaskRefused { task, message, hint: None, degenerate, too_large }).unwrap();
    drop(run);
    let evaluation = Evaluation::read(dir.path()).unwrap();
    let left_out = evaluation.overall.not_judged;
    assert_eq!((evaluation.overall.tasks, left_out.too_large, left_out.infrastructure), (1, 1, 0));
    assert_eq!(evaluation.rows[1].state, RowState::TooLarge);
    assert!(evaluation.complete);
    let text = tables(&evaluation, None);
    assert!(text.contains("Excluded, task too large: 1"), "{text}");
}

#[test]
fn scaled_tasks_and_peak_memory_are_listed() {
    let mut rows = read().rows;
    let memory = |gib: u64| Some(MemoryUse::of(gib << 30, 1 << 30, None, false));
    (rows[0].memory, rows[1].memory) = (memory(70), memory(3));
    rows[0].fit =
        Some(Fit { dimension: "batch_size".to_owned(), from: 64, to: 16, workloads: Vec::new() });
    let (large, small) = (rows[0].task.clone(), rows[1].task.clone());
    let text = tables(&Evaluation::from_rows("run", rows), None);
    for told in [
        format!("most device memory while a task was judged: 71.0 GiB ({large})"),
        format!("most device memory while a task was judged: 4.0 GiB ({small})"),
        format!(
            "Too large for the device, scaled down by --fit: 1\n  {large}: batch_size 16 of 64"
        ),
    ] {
        assert!(text.contains(&told), "{told}:\n{text}");
    }
}

#[test]
fn tables_of_a_whole_evaluation() {
    insta::assert_snapshot!(tables(&read(), None), @r#"
    policy alpha, profile strict, device cuda:0, NVIDIA H200
    timing accuracy on this machine: identical kernels called faster 1 of 300 (0.1 % to 1.9 %), windows vary by 0.4 %
    ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     final candidates              tasks   pass rate           faster than eager   than compile      than the best     speed-up over eager   over compile        over the best
    ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     overall                           4     62.5 % [25–100]       37.5 % [0–75]     37.5 % [0–75]     37.5 % [0–75]     1.73x [0.80–3.40]   1.23x [0.57–2.42]   1.22x [0.56–2.39]
     level1                            2       75 % [50–100]       75 % [50–100]     75 % [50–100]     75 % [50–100]     2.54x [1.90–3.40]   1.81x [1.35–2.42]   1.79x [1.34–2.39]
     level2                            2        50 % [0–100]           0 % [0–0]         0 % [0–0]         0 % [0–0]     0.80x [0.80–0.80]   0.57x [0.57–0.57]   0.56x [0.56–0.56]
     level3                            0                   —                   —                 —                 —                     —                   —                   —
     overall, failures as 1x           4     62.5 % [25–100]       37.5 % [0–75]     37.5 % [0–75]     37.5 % [0–75]     1.39x [0.89–2.50]   1.12x [0.68–1.94]   1.12x [0.67–1.92]
     overall, best in trajectory       4   87.5 % [62.5–100]     62.5 % [25–100]   62.5 % [25–100]   62.5 % [25–100]     1.72x [0.99–2.94]   1.22x [0.71–2.09]   1.21x [0.70–2.07]
     overall, paper's convention       4   87.5 % [62.5–100]     62.5 % [25–100]   62.5 % [25–100]   62.5 % [25–100]     1.72x [0.99–2.94]   1.22x [0.71–2.09]   1.21x [0.70–2.07]
     overall, best attempt             4       75 % [25–100]        50 % [0–100]      50 % [0–100]      50 % [0–100]     1.73x [0.80–3.40]   1.23x [0.57–2.42]   1.22x [0.56–2.39]
    ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    pass@1 62.5 % [25–100]   pass@2 100 % [100–100]
    5 attempts, 10 turns, 1 min 40 s, judging 1 min 49 s; 5 000 prompt tokens (2 000 cached), 250 completion tokens, 1.25 US dollars
    Intervals are 95 %, by bootstrap over tasks. Faster: the lower bound of the speed-up is above 1.05. Speed-up: geometric mean over verified candidates.

    policy beta, profile strict, device cuda:0, NVIDIA H200
    timing accuracy on this machine: identical kernels called faster 1 of 300 (0.1 % to 1.9 %), windows vary by 0.4 %
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     final candidates              tasks   pass rate      faster than eager   than compile   than the best   speed-up over eager   over compile        over the best
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     overall                           4   50 % [0–100]        50 % [0–100]    25 % [0–75]     25 % [0–75]     1.99x [1.20–3.30]   1.41x [0.85–2.35]   1.40x [0.84–2.32]
     level1                            2   50 % [0–100]        50 % [0–100]   50 % [0–100]    50 % [0–100]     3.30x [3.30–3.30]   2.35x [2.35–2.35]   2.32x [2.32–2.32]
     level2                            2   50 % [0–100]        50 % [0–100]      0 % [0–0]       0 % [0–0]     1.20x [1.20–1.20]   0.85x [0.85–0.85]   0.84x [0.84–0.84]
     level3                            0              —                   —              —               —                     —                   —                   —
     overall, failures as 1x           4   50 % [0–100]        50 % [0–100]    25 % [0–75]     25 % [0–75]     1.41x [1.00–2.45]   1.19x [0.89–1.90]   1.18x [0.88–1.88]
     overall, best in trajectory       4   50 % [0–100]        50 % [0–100]    25 % [0–75]     25 % [0–75]     1.99x [1.20–3.30]   1.41x [0.85–2.35]   1.40x [0.84–2.32]
     overall, paper's convention       4   50 % [0–100]        50 % [0–100]    25 % [0–75]     25 % [0–75]     1.99x [1.20–3.30]   1.41x [0.85–2.35]   1.40x [0.84–2.32]
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    4 attempts, 8 turns, 1 min 20 s, judging 1 min 6 s; 4 000 prompt tokens (1 600 cached), 200 completion tokens, 1.00 US dollars
    Intervals are 95 %, by bootstrap over tasks. Faster: the lower bound of the speed-up is above 1.05. Speed-up: geometric mean over verified candidates.

    ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     KernelBench                        tasks   pass rate           faster than eager   than compile      over eager          over compile
    ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     overall       here: alpha strict       4   87.5 % [62.5–100]     62.5 % [25–100]   62.5 % [25–100]   1.72x [0.99–2.94]   1.22x [0.71–2.09]
                   here: beta strict        4        50 % [0–100]        50 % [0–100]       25 % [0–75]   1.99x [1.20–3.30]   1.41x [0.85–2.35]
                   Seed1.6 base           250                74 %              43.6 %            27.2 %               0.95x               0.69x
                   GLM 4.6                250              75.6 %              44.8 %            19.2 %               0.78x               0.57x
                   Kimi K2                250              66.8 %              40.8 %            22.8 %               0.93x               0.66x
                   Gemini 3 Pro           250              91.2 %              87.6 %            69.6 %               1.92x               1.42x
                   Claude Opus 4.5        250              95.2 %              90.4 %            66.4 %               1.99x               1.46x
                   CUDA Agent             250              98.8 %              98.4 %            96.8 %               2.60x               2.11x
     level1        here: alpha strict       2       75 % [50–100]       75 % [50–100]     75 % [50–100]   2.62x [1.90–3.60]   1.86x [1.35–2.56]
                   here: beta strict        2        50 % [0–100]        50 % [0–100]      50 % [0–100]   3.30x [3.30–3.30]   2.35x [2.35–2.35]
                   Seed1.6 base           100                90 %                63 %              51 %               1.65x               1.25x
                   GLM 4.6                100                86 %                57 %              32 %               0.99x               0.73x
                   Kimi K2                100                85 %                56 %              39 %               1.43x               1.00x
                   Gemini 3 Pro           100                95 %                90 %              72 %               1.99x               1.51x
                   Claude Opus 4.5        100                96 %                88 %              72 %               2.03x               1.54x
                   CUDA Agent             100               100 %                99 %              97 %               2.48x               1.87x
     level2        here: alpha strict       2     100 % [100–100]        50 % [0–100]      50 % [0–100]   1.13x [0.80–1.60]   0.80x [0.57–1.14]
                   here: beta strict        2        50 % [0–100]        50 % [0–100]         0 % [0–0]   1.20x [1.20–1.20]   0.85x [0.85–0.85]
                   Seed1.6 base           100                74 %                40 %              16 %               0.68x               0.50x
                   GLM 4.6                100                76 %                43 %              11 %               0.60x               0.42x
                   Kimi K2                100                65 %                40 %              15 %               0.93x               0.65x
                   Gemini 3 Pro           100                93 %                91 %              76 %               2.03x               1.46x
                   Claude Opus 4.5        100                98 %                97 %              69 %               2.24x               1.60x
                   CUDA Agent             100               100 %               100 %             100 %               3.27x               2.80x
     level3        here: alpha strict       0                   —                   —                 —                   —                   —
                   here: beta strict        0                   —                   —                 —                   —                   —
                   Seed1.6 base            50                42 %                12 %               2 %               0.60x               0.40x
                   GLM 4.6                 50                54 %                24 %              10 %               0.83x               0.62x
                   Kimi K2                 50                34 %                12 %               6 %               0.40x               0.29x
                   Gemini 3 Pro            50                80 %                76 %              52 %               1.58x               1.17x
                   Claude Opus 4.5         50                88 %                82 %              50 %               1.52x               1.10x
                   CUDA Agent              50                94 %                94 %              90 %               1.80x               1.52x
    ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    Compared with the paper (arXiv 2602.24286), by its convention: best candidate of the trajectory, faster
    is a point estimate above 1, speed-up over verified candidates. Its GPUs (H20), tolerance (1e-2) and
    timing differ from ours: compare with care.

    Excluded, task refused: 2
      level3-2_broken (alpha): it raised <script>alert(1)</script>
      level3-2_broken (beta): it raised <script>alert(1)</script>
    Excluded, infrastructure error: 1
      level3-1_mlp (alpha): the oracle died
    Excluded, unfinished: 3
      level3-3_later (alpha): never begun
      level3-1_mlp (beta): killed, or still going on
      level3-3_later (beta): never begun
    "#);
}

#[test]
fn papers_figures_are_shown_only_for_kernelbench() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["level1-1_a", "level4-1_b"];
    let attempts = names.map(|name| attempt("alpha", name, ComesTo::Wrong));
    drop(suite::write_attempts(dir.path(), &names, &attempts, "cuda:0"));
    let evaluation = Evaluation::read(dir.path()).unwrap();
    assert!(!evaluation.kernelbench);
    assert!(!tables(&evaluation, None).contains("arXiv"));
    // Our own suites count with leading zeros.
    let ours = tempfile::tempdir().unwrap();
    let names = ["level1-01_rotary_embedding", "level2-10_log_mel_energies"];
    let attempts = names.map(|name| attempt("alpha", name, ComesTo::Wrong));
    drop(suite::write_attempts(ours.path(), &names, &attempts, "cuda:0"));
    assert!(!Evaluation::read(ours.path()).unwrap().kernelbench);
}

#[test]
fn json_round_trips() {
    let evaluation = read();
    let text = serde_json::to_string(&evaluation).unwrap();
    let back: Evaluation = serde_json::from_str(&text).unwrap();
    assert_eq!(back, evaluation);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for scope in [&value["overall"], &value["levels"]["level1"]] {
        assert!(scope["tasks"].is_u64());
        for key in ["value", "low", "high"] {
            assert!(scope["pass_rate"][key].is_number());
            for baseline in ["eager", "compile", "best"] {
                assert!(scope["faster_rate"][baseline][key].is_number());
                assert!(scope["geomean_speedup"][baseline][key].is_number());
            }
        }
    }
}

#[test]
fn schema_files_match_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for (name, schema) in schemas() {
        let path = folder.join(format!("{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs_err::write(&path, &text).unwrap();
        }
        let stored = fs_err::read_to_string(&path).unwrap();
        assert!(stored == text, "schemas/{name}.schema.json is stale: set UPDATE_SCHEMAS=1 once");
    }
}
