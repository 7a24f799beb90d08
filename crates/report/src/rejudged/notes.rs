//! Sentences about runs whose candidates were judged again, for the reports of both runs.

use std::path::{Path, PathBuf};

use warpwright_record::error::ReadError;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::{Mark, Marks, Origin};

use super::Rejudged;
use crate::text::one_line;

/// Most newer runs that are mentioned, the newest.
const MENTIONED: usize = 3;
/// Characters of a path or a list at most.
const WIDTH: usize = 160;

/// Where the candidates of the run in `dir` are judged again unless another folder is named: beside it.
pub fn default_folder(dir: &Path, only: &str) -> PathBuf {
    let full = fs_err::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = full.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let more = match only {
        "all" => String::new(),
        only => format!("-{}", only.chars().map(plain).collect::<String>()),
    };
    dir.parent().filter(|parent| parent.is_dir()).map_or_else(
        || full.with_file_name(format!("{name}-rejudged{more}")),
        |parent| parent.join(format!("{name}-rejudged{more}")),
    )
}

/// What reports of the run in `dir` must say: which run its candidates came from, and which of its verdicts changed
/// when they were judged again. The newer runs are those in `rejudged.json`, one beside it, and those among `named`.
pub fn notes(dir: &Path, named: &[&Path]) -> Result<Vec<String>, ReadError> {
    let run = RunReader::open(dir)?;
    let mut notes = Vec::new();
    if let Some(origin) = Origin::of(run.header()) {
        notes.push(format!(
            "the candidates are those of {} (begun on {} by version {}), judged again",
            one_line(&origin.run, WIDTH),
            origin.created.strftime("%Y-%m-%d"),
            one_line(&origin.program, 20)
        ));
    }
    let marks = match Marks::read(dir) {
        Ok(marks) => marks.map(|marks| marks.runs).unwrap_or_default(),
        Err(error) => {
            let why = one_line(&error.to_string(), WIDTH);
            notes.push(format!("whether its candidates were judged again is not known: {why}"));
            Vec::new()
        }
    };
    let skipped = marks.len().saturating_sub(MENTIONED);
    notes.extend(marks.iter().skip(skipped).map(told));
    let beside = default_folder(dir, "all");
    for other in named.iter().copied().chain([beside.as_path()]) {
        let known = |mark: &Mark| same(Path::new(&mark.run), other);
        if marks.iter().any(known) || same(dir, other) {
            continue;
        }
        // A folder that is none of ours is nobody's mistake.
        let Ok(newer) = RunReader::open(other) else { continue };
        if !Origin::of(newer.header()).is_some_and(|origin| origin.is(run.header())) {
            continue;
        }
        let (old, new) = (History::read(&run)?, History::read(&newer)?);
        let found = Rejudged::of(&old, &new);
        let time = newer.header().created.strftime("%Y-%m-%d");
        let told = sentence(found.changed, found.judged, &time.to_string(), other);
        if !notes.contains(&told) {
            notes.push(told);
        }
    }
    Ok(notes)
}

fn told(mark: &Mark) -> String {
    let time = mark.time.strftime("%Y-%m-%d").to_string();
    let mut text = sentence(mark.changed, mark.judged, &time, Path::new(&mark.run));
    text = format!("{text}, judged on {}", one_line(&mark.device, 60));
    if mark.device == "cpu" {
        text.push_str(" without a comparison of times");
    }
    if mark.only != "all" {
        text = format!("{text}, with `--only {}`", one_line(&mark.only, 60));
    }
    if !mark.reasons.is_empty() {
        let reasons: Vec<String> =
            mark.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        text = format!("{text}: {}", one_line(&reasons.join(", "), WIDTH));
    }
    text
}

fn sentence(changed: u64, judged: u64, time: &str, run: &Path) -> String {
    let run = one_line(&run.display().to_string(), WIDTH);
    if judged == 0 {
        return format!("none of its candidates could be judged again on {time} ({run})");
    }
    if changed == 0 {
        return format!(
            "its verdicts hold: {judged} candidates were judged again on {time} ({run})"
        );
    }
    format!(
        "figures here no longer hold: {changed} of {judged} verdicts changed when the candidates were judged again \
         on {time} ({run})"
    )
}

fn same(one: &Path, other: &Path) -> bool {
    let full = |path: &Path| fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    full(one) == full(other)
}
