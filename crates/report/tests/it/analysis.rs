//! Analyses of run folders.

use warpwright_record::event::{EpisodeId, Event};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::COPY_CAVEAT;
use warpwright_report::analysis::gap::GapTable;
use warpwright_report::analysis::merge::{self, merge};
use warpwright_report::analysis::pool::Pool;
use warpwright_report::analysis::roofline::RooflineTable;
use warpwright_report::analysis::step_times::StepTimes;
use warpwright_report::analysis::stored;
use warpwright_report::analysis::verdict_times::VerdictTimes;

use crate::sample;
use crate::suite::{self, ComesTo, attempt, right};

fn history(device: &str) -> (tempfile::TempDir, History) {
    let dir = tempfile::tempdir().unwrap();
    let names = ["level1-1_a", "level1-2_b", "level1-3_c", "level1-4_d"];
    let attempts = [
        attempt("p", names[0], right(2.0)),
        attempt("p", names[1], right(1.0)),
        attempt("p", names[2], ComesTo::Wrong),
        attempt("p", names[3], ComesTo::Nothing),
    ];
    drop(suite::write_attempts(dir.path(), &names, &attempts, device));
    let history = History::read(&RunReader::open(dir.path()).unwrap()).unwrap();
    (dir, history)
}

#[test]
fn roofline_counts_tasks_with_room_and_those_won() {
    let (_dir, history) = history("cuda:0");
    let table = RooflineTable::of("run", &history).unwrap();
    assert_eq!((table.judged, table.verified, table.with_room, table.won), (3, 2, 2, 1));
    let first = &table.episodes[0];
    // The sample's fastest baseline takes 0.1625 ms, eager 0.231 ms, the roofline 0.0489 ms.
    assert!((first.head_room.unwrap() - 0.1625 / 0.0489).abs() < 1e-9);
    assert!((first.over_floor.unwrap() - 0.231 / 2.0 / 0.0489).abs() < 1e-9);
    let results: Vec<&str> = table.episodes.iter().map(|row| row.result.as_str()).collect();
    assert_eq!(results, ["verified", "verified", "wrong values", "not judged"]);
    let text = table.text(None);
    assert!(text.contains("2 of 3 verified; 1 of 2 with room won (50 %)"), "{text}");
}

#[test]
fn roofline_of_the_cpu_device_has_no_floor() {
    let (_dir, history) = history("cpu");
    let table = RooflineTable::of("run", &history).unwrap();
    assert_eq!((table.verified, table.with_room, table.won), (2, 0, 0));
    assert_eq!((table.episodes[0].over_floor, table.episodes[0].head_room), (None, None));
    assert!(table.text(None).contains("2 of 3 verified; 0 of 0 with room won"));
}

#[test]
fn roofline_of_a_run_without_episodes_is_refused() {
    let error = RooflineTable::of("runs/empty", &History::default()).unwrap_err();
    assert_eq!(error.to_string(), "failed to analyse runs/empty: there is no episode");
    assert!(error.hint().is_some_and(|hint| hint.contains("warpwright eval")));
}

#[test]
fn verdict_times_count_each_measured_verdict_once() {
    let (_dir, history) = history("cuda:0");
    let times = VerdictTimes::of("run", &history).unwrap();
    // Two verified episodes, each with a verdict on the way and a final one.
    let verdicts: u32 = times.deciles.iter().map(|part| part.verdicts).sum();
    assert_eq!((verdicts, times.deciles.len()), (4, 4));
    let shortest = &times.deciles[0];
    assert!((shortest.shortest_ms - 0.1155).abs() < 1e-9);
    assert!((shortest.device - (1.4 + 2.2 + 6.1)).abs() < 1e-9);
    assert!((shortest.rounds - 7.0).abs() < 1e-12);
}

#[test]
fn copied_verdicts_are_not_counted() {
    let (dir, name) = (tempfile::tempdir().unwrap(), "level1-1_a");
    let attempts = [attempt("p", name, right(2.0))];
    let run = suite::write_attempts(dir.path(), &[name], &attempts, "cuda:0");
    let candidate = sample::candidate("");
    let mut verdict = Box::new(sample::measured(name, "cuda:0", &candidate, 9.0));
    verdict.caveats.push(format!("this verdict is a copy: {COPY_CAVEAT} judged 3 s before"));
    let (episode, files) = (EpisodeId(0), run.put_candidate(&candidate).unwrap().files);
    run.append(&Event::VerdictGiven { episode, turn: Some(1), verdict, files }).unwrap();
    drop(run);
    let reader = RunReader::open(dir.path()).unwrap();
    let times = VerdictTimes::of("run", &History::read(&reader).unwrap()).unwrap();
    assert_eq!(times.deciles.iter().map(|part| part.verdicts).sum::<u32>(), 2);
    assert_eq!(StepTimes::read(&reader, 1).unwrap().steps[0].measured, 2);
}

#[test]
fn step_times_are_read_from_a_record() {
    let (dir, _) = history("cuda:0");
    let run = RunReader::open(dir.path()).unwrap();
    let times = StepTimes::read(&run, 2).unwrap();
    let steps: Vec<(u32, u32, u32)> =
        times.steps.iter().map(|step| (step.step, step.episodes, step.measured)).collect();
    // On the way and at the end; the verdicts of wrong candidates count too.
    assert_eq!(steps, [(1, 2, 4), (2, 2, 2)]);
}

#[test]
fn evaluations_are_read_from_run_folders_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    drop(suite::write(&run));
    let from_folder = stored::evaluation(&run).unwrap();
    let file = dir.path().join("eval.json");
    fs_err::write(&file, serde_json::to_string(&from_folder).unwrap()).unwrap();
    let from_file = stored::evaluation(&file).unwrap();
    assert_eq!(from_file.rows, from_folder.rows);
    let evaluations = [from_file];
    let gap = GapTable::of(&Pool::of(&evaluations).unwrap(), "beta", "alpha").unwrap();
    assert_eq!((gap.from.as_str(), gap.to.as_str(), gap.tasks.len()), ("beta", "alpha", 4));
    let error = merge(&evaluations).unwrap_err().to_string();
    assert!(error.ends_with("several policies: alpha, beta"), "{error}");
}

#[test]
fn merged_runs_have_the_tables_of_an_evaluation() {
    let (dir, _) = history("cuda:0");
    let first = stored::evaluation(dir.path()).unwrap();
    let (dir, _) = history("cuda:0");
    let mut later = stored::evaluation(dir.path()).unwrap();
    later.rows.truncate(1);
    let merged = merge(&[first.clone(), later]).unwrap();
    assert_eq!(merged.tables[0].overall.tasks, first.tables[0].overall.tasks);
    assert_eq!(merged.overall.pass_rate, first.overall.pass_rate);
    let text = merge::text(&merged, None);
    assert!(text.contains("not verified: level1-3_c: wrong values"), "{text}");
    assert!(text.contains("not verified: level1-4_d: no verdict"), "{text}");
}

#[test]
fn files_that_are_no_evaluation_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("eval.json");
    let error = |text: &str| {
        fs_err::write(&path, text).unwrap();
        stored::evaluation(&path).unwrap_err()
    };
    assert!(error("\n").to_string().ends_with("eval.json: the file is empty"));
    // Other objects of the program have a version too, which may be higher.
    for text in ["{}", "{\"version\": 99}", "{\"version\": 1, \"rows\": []}", "name,time"] {
        let error = error(text);
        let reason = "eval.json: it is not the output of `warpwright eval --json`: ";
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("eval --json")));
    }
    let newer = error("{\"version\": 99, \"rows\": []}");
    assert!(newer.to_string().ends_with("its format is 99, and this program reads format 1"));
    assert_eq!(newer.hint().as_deref(), Some("update warpwright"));
    let missing = stored::evaluation(&dir.path().join("missing.json")).unwrap_err();
    assert!(missing.to_string().starts_with("failed to read "), "{missing}");
    assert!(missing.hint().is_some_and(|hint| hint.contains("eval --json")));
}

#[test]
fn paths_that_are_no_run_folder_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(&file, "").unwrap();
    let missing = dir.path().join("missing");
    let expected = [
        (&folder, "the folder has no run.json"),
        (&file, "it is a file, not a run folder"),
        (&missing, "there is no such folder"),
    ];
    for (path, reason) in expected {
        let error = stored::record(path, "the cure").unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
        assert_eq!(error.hint().as_deref(), Some("the cure"));
    }
    // A folder as an evaluation.
    let error = stored::evaluation(&folder).unwrap_err();
    assert!(error.to_string().ends_with("the folder has no run.json"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("warpwright eval")));
    // A record that was cut.
    fs_err::write(folder.join("run.json"), "").unwrap();
    let error = stored::record(&folder, "the cure").unwrap_err();
    assert!(error.to_string().contains("run.json: line "), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.starts_with("copy the run folder again")));
}
