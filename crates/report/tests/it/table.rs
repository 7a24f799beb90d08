//! The table at the end of a run.

use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_report::summary::Summary;
use warpwright_report::table::table;

use crate::sample;

fn summaries() -> Vec<Summary> {
    let dir = tempfile::tempdir().unwrap();
    drop(sample::write_run(dir.path()));
    Summary::all(&History::read(&RunReader::open(dir.path()).unwrap()).unwrap())
}

#[test]
fn table_has_one_row_per_episode() {
    insta::assert_snapshot!(table(&summaries(), None), @r#"
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     task                            result                 time         vs eager            vs torch.compile    vs reduce-overhead   reward   turns
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
     bias_gelu_residual              verified                  69.0 µs   3.35x [3.31–3.39]   2.38x [2.35–2.42]    2.36x [2.31–2.40]        3       6
     row_softmax <b>&"hostile"</b>   wrong values                    —                   —                   —                    —       -1       1
     rmsnorm                         verified, unfinished   144 µs cpu   1.60x [1.58–1.62]   1.14x [1.12–1.15]                    —        3       2
    ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    2 of 3 verified; speed-ups with 95 % intervals, reward `paper`
    Times marked cpu were measured on the host and say nothing about a GPU.
    row_softmax <b>&"hostile"</b>: output 0 differs from the oracle on `fresh inputs 2`
    "#);
}

#[test]
fn table_fits_a_narrow_terminal() {
    let text = table(&summaries(), Some(80));
    let widest =
        text.lines().take_while(|line| !line.contains("95 %")).map(|l| l.chars().count()).max();
    assert!(widest.unwrap() <= 80, "{text}");
}

#[test]
fn table_without_episodes_is_empty() {
    insta::assert_snapshot!(table(&[], None), @r#"
    ───────────────────────────────────────
     task   result   time   reward   turns
    ───────────────────────────────────────
    ───────────────────────────────────────
    0 of 0 verified; speed-ups with 95 % intervals, reward `paper`
    "#);
}
