//! A run beside the one in which its candidates were judged again.

use std::path::Path;

use serde_json::json;
use warpwright_record::event::{EpisodeId, Event, Outcome, RunOutcome};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::{MARKS_FILE, Mark, Marks, Origin, REJUDGED_VERSION};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{IntegrityFinding, Reward, Verdict};
use warpwright_record::writer::RunWriter;
use warpwright_report::rejudged::{Rejudged, notes};

use crate::sample;

/// What an episode of a run came to.
enum End {
    Verdict(Box<Verdict>),
    Refused,
    Lost,
}

fn measured(speedup: f64) -> Verdict {
    sample::measured("task", "cuda:0", &sample::candidate(""), speedup)
}

fn wrong() -> Verdict {
    sample::failed("task", &sample::candidate(""), sample::mismatch())
}

fn dishonest() -> Verdict {
    let class = "late_write".to_owned();
    let finding = IntegrityFinding { class, message: "it wrote after the end".to_owned() };
    Verdict { integrity: vec![finding], failure: None, ..wrong() }
}

/// Writes a run with an episode for each end. `of`: the run that it judges again.
fn write(dir: &Path, ends: Vec<End>, of: Option<&Path>) -> History {
    let config = of.map_or_else(
        || json!({}),
        |older| {
            let header = RunReader::open(older).unwrap().header().clone();
            let origin = Origin {
                version: REJUDGED_VERSION,
                run: older.display().to_string(),
                created: header.created,
                program: header.program,
                command: header.command,
                only: "all".to_owned(),
            };
            json!({ "rejudged": origin })
        },
    );
    let run = RunWriter::create(dir, RunInfo { command: "test".to_owned(), config }).unwrap();
    for (number, end) in (0..).zip(ends) {
        let episode = EpisodeId(number);
        let setup = sample::setup(&run, &format!("task-{number}"), "cuda:0");
        let task = setup.task.clone();
        let candidate = Some(run.put_candidate(&sample::candidate("")).unwrap());
        let (outcome, final_verdict) = match end {
            End::Refused => {
                let message = "it is degenerate".to_owned();
                let refused = Event::TaskRefused {
                    task,
                    message,
                    hint: None,
                    degenerate: vec![],
                    too_large: None,
                };
                run.append(&refused).unwrap();
                continue;
            }
            End::Lost => {
                (Outcome::Infrastructure { message: "a blob is missing".to_owned() }, None)
            }
            End::Verdict(verdict) => (Outcome::Stopped, Some(verdict)),
        };
        run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
        let end = Event::EpisodeFinished {
            episode,
            outcome,
            final_verdict,
            best_verdict: None,
            candidate,
            turns: 0,
            seconds: 1.0,
        };
        run.append(&end).unwrap();
    }
    run.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    run.close().unwrap();
    History::read(&RunReader::open(dir).unwrap()).unwrap()
}

fn verdict(verdict: Verdict) -> End {
    End::Verdict(Box::new(verdict))
}

#[test]
fn each_change_has_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let capped =
        Verdict { reward: Reward::verified(&measured(3.0).speedup).capped(), ..measured(3.0) };
    let mut other = measured(9.0);
    other.fingerprint.hardware = "NVIDIA H100".to_owned();
    let pairs = vec![
        (measured(2.0), verdict(measured(2.01)), None),
        (measured(2.0), verdict(measured(1.0)), Some("slower")),
        (measured(2.0), verdict(wrong()), Some("verified -> mismatch")),
        (wrong(), verdict(measured(2.0)), Some("mismatch -> verified")),
        (measured(2.0), verdict(dishonest()), Some("verified -> integrity: late_write")),
        (measured(3.0), verdict(capped), Some("reward full -> capped")),
        (measured(2.0), End::Refused, Some("verified -> task refused")),
        (wrong(), verdict(wrong()), None),
        (measured(2.0), verdict(other), None),
        (measured(2.0), End::Lost, None),
    ];
    let (mut old, mut new, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for (before, after, change) in pairs {
        old.push(verdict(before));
        new.push(after);
        expected.push(change);
    }
    expected.pop();
    let old = write(&dir.path().join("old"), old, None);
    let new = write(&dir.path().join("new"), new, Some(&dir.path().join("old")));
    let found = Rejudged::of(&old, &new);
    let changes: Vec<_> = found.rows.iter().map(|row| row.change.as_deref()).collect();
    assert_eq!(changes, expected);
    assert_eq!((found.judged, found.changed), (9, 6));
    assert_eq!(found.not_judged.len(), 1);
    assert_eq!(
        found.caveats,
        ["times of 1 candidate are not compared: hardware was `NVIDIA H200`, and is `NVIDIA H100`"]
    );
    let text = found.text(None);
    for part in [
        "6 of 9 verdicts changed, 1 candidates not judged",
        "task-4: it wrote after the end",
        "task-6: it is degenerate",
        "task-9: not judged: a blob is missing",
        "task refused",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn older_run_is_marked_beside_named_and_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let (old, far) = (dir.path().join("run"), dir.path().join("far/again"));
    write(&old, vec![verdict(measured(2.0))], None);
    assert!(notes(&old, &[]).unwrap().is_empty());
    write(&far, vec![verdict(wrong())], Some(&old));
    assert!(notes(&old, &[]).unwrap().is_empty(), "it is elsewhere");
    let named = notes(&old, &[&old, &far]).unwrap();
    assert_eq!(named.len(), 1);
    assert!(
        named[0].starts_with("figures here no longer hold: 1 of 1 verdicts changed"),
        "{named:?}"
    );
    let newer = notes(&far, &[]).unwrap();
    assert!(newer[0].starts_with("the candidates are those of "), "{newer:?}");
    // Beside it.
    write(&dir.path().join("run-rejudged"), vec![verdict(measured(2.0))], Some(&old));
    let beside = notes(&old, &[]).unwrap();
    assert!(
        beside[0].starts_with("its verdicts hold: 1 candidates were judged again"),
        "{beside:?}"
    );
    // Marked.
    let mark = Mark {
        run: far.display().to_string(),
        time: jiff::Timestamp::UNIX_EPOCH,
        program: "0.1.0".to_owned(),
        device: "cuda:0".to_owned(),
        only: "all".to_owned(),
        judged: 1,
        changed: 1,
        reasons: [("verified -> mismatch".to_owned(), 1)].into(),
    };
    Marks::add(&old, mark).unwrap();
    let marked = notes(&old, &[&far]).unwrap();
    assert_eq!(marked.len(), 2, "{marked:?}");
    assert!(marked[0].ends_with("1 verified -> mismatch"), "{marked:?}");
    fs_err::write(old.join(MARKS_FILE), "\u{1b}[31m{").unwrap();
    let damaged = notes(&old, &[]).unwrap();
    assert!(damaged[0].contains("is not known"), "{damaged:?}");
}
