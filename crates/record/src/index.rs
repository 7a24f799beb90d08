//! `index.sqlite`: tables derived from the events, for queries over many runs. It holds nothing
//! that the events do not say; delete it and [`rebuild_index`] makes it again.

use std::path::{Path, PathBuf};

use fs_err as fs;
use rusqlite::{Connection, params};

use crate::error::WriteError;
use crate::event::EpisodeId;
use crate::history::{Episode, History};
use crate::reader::RunReader;
use crate::verdict::Verdict;

const TABLES: &str = "
CREATE TABLE episodes (
    episode     INTEGER PRIMARY KEY,
    task        TEXT NOT NULL,
    policy      TEXT NOT NULL,
    device      TEXT NOT NULL,
    profile     TEXT NOT NULL,
    seed        TEXT NOT NULL,
    outcome     TEXT,
    verified    INTEGER,
    speedup_low REAL,
    speedup     REAL,
    turns       INTEGER NOT NULL,
    seconds     REAL
);
CREATE TABLE verdicts (
    id           INTEGER PRIMARY KEY,
    episode      INTEGER NOT NULL REFERENCES episodes (episode),
    turn         INTEGER,
    candidate    TEXT NOT NULL,
    stage        TEXT NOT NULL,
    verified     INTEGER NOT NULL,
    failure      TEXT,
    candidate_ms REAL,
    eager_ms     REAL,
    compile_ms   REAL,
    speedup_low  REAL,
    speedup      REAL,
    reward_paper REAL NOT NULL,
    fingerprint  TEXT NOT NULL
);
CREATE INDEX verdicts_by_episode ON verdicts (episode);
";

/// Makes the index of the run in `dir` from its events, replacing one that is there. Returns its
/// path.
pub fn rebuild_index(dir: &Path) -> Result<PathBuf, WriteError> {
    let reader = RunReader::open(dir)?;
    let history = History::read(&reader)?;
    let path = crate::run::Layout::new(dir).index();
    let temporary = path.with_extension("sqlite.tmp");
    let _ = fs::remove_file(&temporary);
    fill(&temporary, &history).map_err(|source| {
        let _ = fs::remove_file(&temporary);
        let path = path.clone();
        if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
            let lost = "the derived index".to_owned();
            let intact = i64::try_from(history.events).unwrap_or(i64::MAX) - 1;
            return WriteError::Full { path, lost, intact };
        }
        WriteError::Index { path, source }
    })?;
    fs::rename(&temporary, &path).map_err(WriteError::io("put the index in its place"))?;
    Ok(path)
}

fn fill(path: &Path, history: &History) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    // The file is derived and renamed into place whole: a journal would only cost time.
    connection.pragma_update(None, "journal_mode", "off")?;
    connection.pragma_update(None, "synchronous", "off")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    for (id, episode) in &history.episodes {
        insert_episode(&transaction, *id, episode)?;
        for (turn, given) in episode.verdicts() {
            insert_verdict(&transaction, *id, turn, &given.verdict)?;
        }
    }
    transaction.commit()
}

fn insert_episode(db: &Connection, id: EpisodeId, episode: &Episode) -> rusqlite::Result<()> {
    let standing = episode.standing();
    let best = standing.and_then(|v| v.speedup.best);
    let setup = &episode.setup;
    db.execute(
        "INSERT INTO episodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id.0,
            setup.task,
            setup.policy,
            setup.device,
            word(&setup.profile),
            // SQLite's integers are signed; a seed uses all 64 bits.
            setup.seed.to_string(),
            episode.end.as_ref().map(|end| end.outcome.name()),
            standing.map(|v| v.verified),
            best.map(|i| i.low),
            best.map(|i| i.value),
            episode.turns.len() as i64,
            episode.end.as_ref().map(|end| end.seconds),
        ],
    )?;
    Ok(())
}

fn insert_verdict(
    db: &Connection,
    id: EpisodeId,
    turn: Option<u32>,
    verdict: &Verdict,
) -> rusqlite::Result<()> {
    let fingerprint = serde_json::to_string(&verdict.fingerprint).unwrap_or_default();
    db.execute(
        "INSERT INTO verdicts (episode, turn, candidate, stage, verified, failure, candidate_ms,
             eager_ms, compile_ms, speedup_low, speedup, reward_paper, fingerprint)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            id.0,
            turn,
            verdict.candidate,
            word(&verdict.stage),
            verdict.verified,
            verdict.failure.as_ref().map(|f| word(&f.class)),
            verdict.times_ms.candidate.map(|i| i.value),
            verdict.times_ms.eager.map(|i| i.value),
            verdict.times_ms.compile.map(|i| i.value),
            verdict.speedup.best.map(|i| i.low),
            verdict.speedup.best.map(|i| i.value),
            verdict.reward.paper,
            fingerprint,
        ],
    )?;
    Ok(())
}

/// A unit variant's name as in JSON.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}
