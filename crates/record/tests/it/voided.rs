//! Void verdicts in a record: every reader of the history forgets them.

use serde_json::json;
use warpwright_record::event::{EpisodeId, Event, Outcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{ReplayerTurn, Verdict};
use warpwright_record::void::VoidTurns;
use warpwright_record::writer::RunWriter;

use crate::sample;

const EPISODE: EpisodeId = EpisodeId(0);

/// The verdict of a replayer's turn.
fn verdict(id: &str, turn: u32, speedup: f64) -> Verdict {
    let measured = sample::measured("task", "cuda:0", &sample::candidate(""), speedup);
    Verdict { replayer: Some(ReplayerTurn { id: id.to_owned(), turn }), ..measured }
}

fn voided(after: u32, through: u32) -> VoidTurns {
    VoidTurns {
        replayer: "ab".to_owned(),
        after,
        through,
        time: jiff::Timestamp::UNIX_EPOCH,
        task: "task".to_owned(),
        candidate: "c0ffee".to_owned(),
        reason: "verified, then mismatch".to_owned(),
    }
}

/// An episode of two turns that ended with these verdicts, after which others became void.
fn episode(on_the_way: [&Verdict; 2], last: &Verdict, voided: VoidTurns) -> Episode {
    let dir = tempfile::tempdir().unwrap();
    let run = RunWriter::create(dir.path(), RunInfo::default()).unwrap();
    let setup = sample::setup(&run, "task", "cuda:0");
    let mut events = vec![Event::EpisodeStarted { episode: EPISODE, setup }];
    for (number, verdict) in (1..).zip(on_the_way) {
        let call = ("Try.", "Bash", json!({}));
        let candidate = sample::candidate("");
        let verdict = Some(verdict.clone());
        events.extend(sample::turn(&run, EPISODE, number, call, "", verdict, &candidate));
    }
    let last = Box::new(last.clone());
    events.push(Event::VerdictGiven {
        episode: EPISODE,
        turn: None,
        verdict: last.clone(),
        files: Vec::new(),
    });
    events.push(Event::EpisodeFinished {
        episode: EPISODE,
        outcome: Outcome::Stopped,
        final_verdict: Some(last),
        best_verdict: Some(Box::new(on_the_way[1].clone())),
        candidate: None,
        turns: 2,
        seconds: 1.0,
    });
    events.push(Event::VerdictsVoided { voided });
    for event in &events {
        run.append(event).unwrap();
    }
    let mut history = History::read(&RunReader::open(dir.path()).unwrap()).unwrap();
    assert_eq!(history.voided.len(), 1);
    history.episodes.remove(&EPISODE).unwrap()
}

fn speedup(verdict: &Verdict) -> f64 {
    verdict.speedup.eager.unwrap().value
}

#[test]
fn void_turns_cover_a_range_of_one_replayer() {
    let range = voided(2, 5);
    let covered = [1, 2, 3, 5, 6].map(|turn| range.covers(&verdict("ab", turn, 2.0)));
    assert_eq!(covered, [false, false, true, true, false]);
    assert!(!range.covers(&verdict("cd", 3, 2.0)), "another replayer");
    assert!(!range.covers(&Verdict { replayer: None, ..verdict("ab", 3, 2.0) }), "the host tier");
    assert!(!voided(5, 5).covers(&verdict("ab", 5, 2.0)), "the empty range");
}

#[test]
fn void_final_verdict_reopens_the_episode() {
    let way = [&verdict("ab", 1, 1.5), &verdict("ab", 3, 3.0)];
    let open = episode(way, &verdict("ab", 4, 2.9), voided(2, 4));
    assert!(open.end.is_none() && open.fresh.is_empty());
    // Both turns are done: only the final measurement is missing.
    let point = open.resume_point().unwrap();
    assert_eq!((point.next_turn, point.turns.len()), (3, 2));
    assert!((speedup(open.standing().unwrap()) - 1.5).abs() < 1e-9, "the other is void");
}

#[test]
fn void_best_verdict_gives_way_to_the_next() {
    let way = [&verdict("ab", 1, 1.5), &verdict("ab", 3, 3.0)];
    let ended = episode(way, &verdict("cd", 1, 1.4), voided(2, 4));
    let end = ended.end.as_ref().unwrap();
    assert!((speedup(end.best_verdict.as_ref().unwrap()) - 1.5).abs() < 1e-9);
    assert!((speedup(end.final_verdict.as_ref().unwrap()) - 1.4).abs() < 1e-9);
    assert!(ended.resume_point().is_none());
}

#[test]
fn voided_event_as_json() {
    let event = Event::VerdictsVoided { voided: voided(2, 5) };
    insta::assert_json_snapshot!(event, @r#"
    {
      "type": "verdicts_voided",
      "voided": {
        "replayer": "ab",
        "after": 2,
        "through": 5,
        "time": "1970-01-01T00:00:00Z",
        "task": "task",
        "candidate": "c0ffee",
        "reason": "verified, then mismatch"
      }
    }
    "#);
    assert_eq!((event.kind(), event.episode()), ("verdicts_voided", None));
}
