//! The live view, with and without a terminal.

use std::io::Write;
use std::sync::{Arc, Mutex};

use indicatif::{InMemoryTerm, ProgressDrawTarget};
use warpwright_record::event::{EpisodeId, Event, NoteLevel, Outcome};
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_report::live::LiveView;

use crate::sample;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn events() -> Vec<Event> {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    let reader = RunReader::open(dir.path()).unwrap();
    reader.events().unwrap().map(|line| line.unwrap().event).collect()
}

fn plain(events: &[Event]) -> String {
    let out = Shared::default();
    let mut view = LiveView::plain(Box::new(out.clone()));
    for event in events {
        view.observe(event);
    }
    let bytes = out.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn without_a_terminal_each_event_is_a_plain_line() {
    insta::assert_snapshot!(plain(&events()), @r#"
    bias_gelu_residual: policy teacher starts on cuda:0
    bias_gelu_residual: turn 1/8: Write kernels/bias_gelu.cu
    bias_gelu_residual: turn 2/8: bash utils/compile.sh
    bias_gelu_residual: turn 2: does not build: kernels/bias_gelu.cu does not compile
    bias_gelu_residual: turn 3/8: python3 -m utils.profiling
    bias_gelu_residual: turn 3: verified, 1.34x [1.31–1.36] over reduce-overhead, 122 µs
    bias_gelu_residual: turn 4/8: python3 -m utils.profiling
    bias_gelu_residual: turn 4: verified, 2.39x [2.34–2.44] over reduce-overhead, 67.9 µs
    bias_gelu_residual: turn 5/8: python3 -m utils.profiling
    bias_gelu_residual: turn 5: verified, 2.18x [2.14–2.22] over reduce-overhead, 74.5 µs
    bias_gelu_residual: turn 6/8: the policy is done; judging the final candidate
    bias_gelu_residual: done: verified, 2.36x [2.31–2.40] over reduce-overhead, 69.0 µs
    row_softmax <b>&"hostile"</b>: policy teacher starts on cuda:0
    row_softmax <b>&"hostile"</b>: turn 1/8: python3 -m utils.verification # </details><script>
    row_softmax <b>&"hostile"</b>: turn 1: wrong values: output 0 differs from the oracle on `fresh inputs 2`
    warning: row_softmax <b>&"hostile"</b>: the baseline could not be compiled with max-autotune
    row_softmax <b>&"hostile"</b>: done: wrong values: output 0 differs from the oracle on `fresh inputs 2` (out of turns)
    rmsnorm: policy teacher starts on cpu
    rmsnorm: turn 1/8: python3 -m utils.profiling
    rmsnorm: turn 1: verified, 1.14x [1.11–1.16] over torch.compile, 144 µs cpu
    rmsnorm: turn 2/8: Edit kernels/bias_gelu.cu
    "#);
}

#[test]
fn escape_sequences_of_a_candidate_are_neutralised() {
    let text = "\u{1b}]0;title\u{7}\u{1b}[2Jgone".to_owned();
    let lines = plain(&[Event::Note { episode: None, level: NoteLevel::Warning, text }]);
    assert_eq!(lines, "warning: \\x1b]0;title\\x07\\x1b[2Jgone\n");
}

#[test]
fn on_a_terminal_one_status_line_is_updated() {
    let term = InMemoryTerm::new(12, 120);
    let mut view = LiveView::terminal(ProgressDrawTarget::term_like(Box::new(term.clone())));
    let events = events();
    let mut events = events.iter();
    let turn_4 =
        |event: &&Event| event.turn() == Some(4) && matches!(event, Event::VerdictGiven { .. });
    for event in events.by_ref() {
        view.observe(event);
        if turn_4(&event) {
            break;
        }
    }
    // The spinner and the clock move by themselves.
    insta::with_settings!({filters => vec![(r"[⠀-⣿]", "*"), (r"00:00:0\d", "[time]")]}, {
        insta::assert_snapshot!(term.contents(), @r#"
        bias_gelu_residual: turn 3: verified, 1.34x [1.31–1.36] over reduce-overhead, 122 µs
        bias_gelu_residual: turn 4: verified, 2.39x [2.34–2.44] over reduce-overhead, 67.9 µs
        * bias_gelu_residual  turn 4/8  best 2.39x over reduce-overhead  python3 -m utils.profiling             [time] / 10:00
        "#);
    });
    for event in events.take_while(|event| event.episode() == Some(EpisodeId(0))) {
        view.observe(event);
    }
    insta::assert_snapshot!(term.contents(), @r#"
    bias_gelu_residual: turn 3: verified, 1.34x [1.31–1.36] over reduce-overhead, 122 µs
    bias_gelu_residual: turn 4: verified, 2.39x [2.34–2.44] over reduce-overhead, 67.9 µs
    ✓ bias_gelu_residual: verified, 2.36x [2.31–2.40] over reduce-overhead, 69.0 µs
    "#);
}

#[test]
fn resumed_run_shows_earlier_results() {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    let history = History::read(&RunReader::open(dir.path()).unwrap()).unwrap();
    let term = InMemoryTerm::new(12, 120);
    let mut view = LiveView::terminal(ProgressDrawTarget::term_like(Box::new(term.clone())));
    view.resume(&history);
    view.observe(&Event::EpisodeResumed { episode: EpisodeId(2), turn: 2 });
    insta::with_settings!({filters => vec![(r"[⠀-⣿]", "*")]}, {
        insta::assert_snapshot!(term.contents(), @r#"
        * rmsnorm  turn 1/8  best 1.14x over torch.compile cpu  resumed                                         00:00:04 / 10:00
        "#);
    });
}

#[test]
fn infrastructure_failure_is_shown_as_one() {
    let mut events = events();
    events.truncate(2);
    events.push(Event::EpisodeFinished {
        episode: EpisodeId(0),
        outcome: Outcome::Infrastructure { message: "the oracle died".into() },
        final_verdict: None,
        best_verdict: None,
        candidate: None,
        turns: 0,
        seconds: 1.0,
    });
    let text = plain(&events);
    assert!(text.ends_with("done: no verdict (error: the oracle died)\n"), "{text}");
}
