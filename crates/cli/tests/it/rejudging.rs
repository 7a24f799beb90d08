//! `rejudge`: candidates of earlier runs by today's rules, with real verdicts of the cpu device.

use std::collections::BTreeMap;
use std::time::Duration;

use warpwright_record::candidate::Candidate;
use warpwright_record::event::{EpisodeId, Event, Outcome, RunOutcome};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::MARKS_FILE;
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{FailureClass, Verdict};
use warpwright_record::writer::RunWriter;

use crate::program::{KERNEL, MODEL_NEW, Program, TASK};
use crate::sample;

/// A candidate for [`TASK`] with this kernel.
fn candidate(kernel: &str) -> Candidate {
    let files = [("model_new.py", MODEL_NEW), ("kernels/relu_add.cu", kernel)];
    let bytes = |(name, text): (&str, &str)| (name.to_owned(), text.as_bytes().to_vec());
    Candidate::from_files(files.into_iter().map(bytes).collect::<BTreeMap<_, _>>())
}

/// Records a run: a wrong candidate that older rules verified, one that does not build, one whose files are lost, and
/// an episode without a candidate. None is timed, so that the verdicts take little time.
fn scene() -> Program {
    let program = Program::new();
    let wrong = candidate(&KERNEL.replace("1.0f,", "2.0f,"));
    let broken = candidate(&KERNEL.replace("0.5f;", "0.5f"));
    let lost = candidate(&KERNEL.replace("0.5f;", "0.25f;"));
    let run = RunWriter::create(&program.path("run"), RunInfo::default()).unwrap();
    let verified = |task, candidate| sample::measured(task, "cpu", candidate, 2.0);
    let old = Verdict { version: 1, ..verified("wrong", &wrong) };
    let failed = sample::failed("broken", &broken, sample::build_failure());
    let episodes = [
        ("wrong", Some((&wrong, old))),
        ("broken", Some((&broken, failed))),
        ("lost", Some((&lost, verified("lost", &lost)))),
        ("none", None),
    ];
    for (number, (task, judged)) in (0..).zip(episodes) {
        let episode = EpisodeId(number);
        let mut setup = sample::setup(&run, task, "cpu");
        setup.source = run.put_blob(TASK.as_bytes()).unwrap();
        run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
        let stored = judged.as_ref().map(|(files, _)| run.put_candidate(files).unwrap());
        let ended = Event::EpisodeFinished {
            episode,
            outcome: Outcome::BudgetTurns,
            final_verdict: judged.map(|(_, verdict)| Box::new(verdict)),
            best_verdict: None,
            candidate: stored,
            turns: 3,
            seconds: 1.0,
        };
        run.append(&ended).unwrap();
    }
    run.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    run.close().unwrap();
    let reader = RunReader::open(&program.path("run")).unwrap();
    let history = History::read(&reader).unwrap();
    let end = history.episodes[&EpisodeId(2)].end.as_ref().unwrap();
    let files = &end.candidate.as_ref().unwrap().files;
    let kernel = files.iter().find(|file| file.path == "kernels/relu_add.cu").unwrap();
    fs_err::remove_file(kernel.blob.path(&program.path("run"))).unwrap();
    program
}

#[test]
fn changed_verdicts_are_told_and_mark_the_run() {
    let program = scene();
    let ran = program.run(&["rejudge", "run", "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let told = ran.object();
    assert_eq!(
        (&told["judged"], &told["changed"], &told["not_judged"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!(told["by_reason"]["verified -> mismatch"], 1, "{}", ran.show());
    let rows = &told["runs"][0]["verdicts"]["rows"];
    assert_eq!((&rows[0]["old"]["rules"], &rows[0]["new"]["rules"]), (&1.into(), &2.into()));
    assert_eq!(rows[1]["change"], serde_json::Value::Null);
    assert!(program.path("run").join(MARKS_FILE).exists());

    // The new run has the format of any other, and the numbers of the older one.
    let reader = RunReader::open(&program.path("run-rejudged")).unwrap();
    let history = History::read(&reader).unwrap();
    assert_eq!(history.episodes.len(), 4);
    let verdict = |n| history.episodes[&EpisodeId(n)].end.as_ref().unwrap().final_verdict.clone();
    assert_eq!(verdict(0).unwrap().failure.unwrap().class, FailureClass::Mismatch);
    assert_eq!(verdict(1).unwrap().failure.unwrap().class, FailureClass::Build);
    assert_eq!((verdict(2), verdict(3)), (None, None));

    let report = program.run(&["report", "run"]);
    assert!(report.stdout.contains("figures here no longer hold: 1 of 2"), "{}", report.show());
    let page = fs_err::read_to_string(program.path("run/report.html")).unwrap();
    assert!(page.contains("figures here no longer hold"));
    let report = program.run(&["report", "run-rejudged"]);
    assert!(
        report.stdout.contains("the candidates are those of [folder]/run"),
        "{}",
        report.show()
    );
    let analyzed = program.run(&["analyze", "verdict-times", "run"]);
    assert!(analyzed.stderr.contains("figures here no longer hold"), "{}", analyzed.show());

    // Nothing is judged twice.
    let again = program.run(&["rejudge", "run", "--device", "cpu"]);
    assert_eq!(again.code, Some(0), "{}", again.show());
    assert!(again.stderr.contains("has been judged again already"), "{}", again.show());
    assert!(again.stdout.contains("verified -> mismatch"), "{}", again.show());

    // Only what changed: the wrong one.
    let changed = ["rejudge", "run", "--device", "cpu", "--only", "changed", "--json"];
    let changed = program.run(&changed).object();
    assert_eq!((&changed["judged"], &changed["changed"]), (&1.into(), &1.into()), "{changed}");
    let resumed = program.run(&["optimize", "--resume", "run-rejudged"]);
    assert_eq!(resumed.code, Some(2), "{}", resumed.show());
}

#[test]
fn killed_rejudging_resumes_without_repeats() {
    let program = scene();
    let arguments = ["rejudge", "run", "--device", "cpu", "--out", "new"];
    let mut child = program
        .command(&arguments)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let given = || {
        let log = fs_err::read_to_string(program.path("new/events.jsonl")).unwrap_or_default();
        log.matches("verdict_given").count()
    };
    while given() == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = program.run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("1 of 2 verdicts changed"), "{}", ran.show());
    let reader = RunReader::open(&program.path("new")).unwrap();
    let events = reader.events().unwrap().map(|line| line.unwrap().event);
    let verdicts = events.filter(|event| matches!(event, Event::VerdictGiven { .. }));
    assert!(verdicts.count() <= 3, "at most the verdict whose end was lost is repeated");
}

#[test]
fn runs_that_cannot_be_rejudged_name_the_cure() {
    let program = scene();
    let cases: [(&[&str], &str); 5] = [
        (&["rejudge", "none"], "there is no run.json"),
        (&["rejudge", "run", "--only", "changed"], "run `warpwright rejudge run` first"),
        (&["rejudge", "run", "--only", "tusk"], "its tasks are broken, lost, none, wrong"),
        (&["rejudge", "run", "--out", "run"], "name another folder with `--out`"),
        (&["rejudge", "run", "run"], "have different names"),
    ];
    for (arguments, cure) in cases {
        let ran = program.run(arguments);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        assert!(ran.stderr.contains(cure), "{cure}: {}", ran.show());
    }
    // An event that an older format had, and this one does not.
    let old = r#"{"format":1,"program":"0.0.9","created":"2026-01-02T03:04:05Z","command":"","config":null,"machine":{"system":"","kernel":"","arch":"","cpu":"","cores":2,"memory_bytes":0}}"#;
    program.write("old/run.json", old);
    program.write("old/events.jsonl", "{\"version\":1,\"seq\":0,\"event\":{\"type\":\"gone\"}}\n");
    let ran = program.run(&["rejudge", "old"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("its record has format 1"), "{}", ran.show());
    assert!(ran.stderr.contains("version 0.0.9 shows the run"), "{}", ran.show());
}

/// Records a run of candidates that do not build, each on a task with a source of its own; not closed, so that its
/// events are text.
fn damaged(tasks: &[&str]) -> (Program, Vec<std::path::PathBuf>) {
    let program = Program::new();
    let broken = candidate(&KERNEL.replace("0.5f;", "0.5f"));
    let run = RunWriter::create(&program.path("run"), RunInfo::default()).unwrap();
    let mut sources = Vec::new();
    for (number, task) in (0..).zip(tasks) {
        let episode = EpisodeId(number);
        let mut setup = sample::setup(&run, task, "cpu");
        setup.source = run.put_blob(format!("{TASK}\n# {task}\n").as_bytes()).unwrap();
        sources.push(setup.source.path(&program.path("run")));
        run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
        let failed = sample::failed(task, &broken, sample::build_failure());
        let ended = Event::EpisodeFinished {
            episode,
            outcome: Outcome::BudgetTurns,
            final_verdict: Some(Box::new(failed)),
            best_verdict: None,
            candidate: Some(run.put_candidate(&broken).unwrap()),
            turns: 3,
            seconds: 1.0,
        };
        run.append(&ended).unwrap();
    }
    run.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    (program, sources)
}

#[test]
fn tasks_with_lost_or_changed_sources_are_not_judged() {
    let (program, sources) = damaged(&["gone", "changed", "kept"]);
    fs_err::remove_file(&sources[0]).unwrap();
    // Another task, which could be judged.
    fs_err::remove_file(&sources[1]).unwrap();
    fs_err::write(&sources[1], TASK.replace("0.5", "0.25")).unwrap();
    let ran = program.run(&["rejudge", "run", "--device", "cpu", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let told = ran.object();
    assert_eq!((&told["judged"], &told["not_judged"]), (&1.into(), &2.into()), "{}", ran.show());
    let reader = RunReader::open(&program.path("run-rejudged")).unwrap();
    let history = History::read(&reader).unwrap();
    let end = |number| history.episodes[&EpisodeId(number)].end.as_ref().unwrap();
    for number in [0, 1] {
        assert_eq!(end(number).final_verdict, None);
        let Outcome::Infrastructure { message } = &end(number).outcome else {
            panic!("{:?}", end(number).outcome)
        };
        let name = sources[number as usize].file_name().unwrap().to_string_lossy().into_owned();
        assert!(message.contains(&name), "{message}");
    }
    assert!(end(2).final_verdict.is_some(), "the others are judged");
}

#[test]
fn verdict_that_cannot_be_read_is_named_with_its_line() {
    let (program, _) = damaged(&["kept", "odd"]);
    let events = program.path("run/events.jsonl");
    let text = fs_err::read_to_string(&events).unwrap();
    let last = text.rfind("\"verified\":false").expect("a verdict");
    let odd = format!("{}\"verified\":7{}", &text[..last], &text[last + 16..]);
    fs_err::write(&events, odd).unwrap();
    let line = text[..last].lines().count();
    let ran = program.run(&["rejudge", "run", "--device", "cpu"]);
    assert_ne!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stderr.contains("events.jsonl"), "{}", ran.show());
    assert!(ran.stderr.contains(&format!("line {line}")), "{}", ran.show());
    assert!(!program.path("run-rejudged").exists(), "nothing is begun");
}
