//! A policy with one parameter, and episodes of one token for it.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use thiserror::Error;
use warpwright_learn::engine::{Description, Engine, Loss, Passed, Row, Scores, Step, Which};
use warpwright_learn::online::{Judged, Play, Rollouts};
use warpwright_record::event::{EpisodeId, Outcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::message::{Generation, StopReason, Tokens};
use warpwright_record::reader::RunReader;

use crate::sample;

#[derive(Debug, Error)]
#[error("no")]
pub(crate) struct Never;

/// A policy with one parameter: the odds of token 1 in any context. It counts its steps and notes
/// learning rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Coin {
    pub(crate) odds: f64,
    slope: f64,
    pub(crate) rates: Vec<f64>,
}

impl Coin {
    fn logprob(&self, id: u32) -> f64 {
        let one = 1.0 / (1.0 + (-self.odds).exp());
        if id == 1 { one.ln() } else { (1.0 - one).ln() }
    }
}

impl Engine for Coin {
    type Error = Never;

    fn describe(&mut self) -> Result<Description, Never> {
        Err(Never)
    }

    fn begin_critic(&mut self) -> Result<(), Never> {
        Err(Never)
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, Never> {
        let of = |row: &Row| {
            let ids = row.actions.iter().map(|at| row.ids[*at as usize]);
            let logprobs: Vec<f32> = ids.map(|id| self.logprob(id) as f32).collect();
            Scores { entropies: vec![0.5; logprobs.len()], logprobs, values: vec![] }
        };
        Ok(rows.iter().map(of).collect())
    }

    fn backward(&mut self, rows: &[Row], _: &Loss, over: f64) -> Result<Passed, Never> {
        for row in rows {
            for (at, advantage) in row.actions.iter().zip(&row.advantages) {
                let chosen = f64::from(u8::from(row.ids[*at as usize] == 1));
                let one = self.logprob(1).exp();
                self.slope -= f64::from(*advantage) * (chosen - one) / over;
            }
        }
        Ok(Passed { loss: self.slope, scores: self.score(rows)? })
    }

    fn step(&mut self, _: Which, step: &Step) -> Result<f64, Never> {
        self.odds -= step.lr * self.slope;
        self.rates.push(step.lr);
        Ok(std::mem::take(&mut self.slope).abs())
    }

    fn save(&mut self, _: &Path) -> Result<(), Never> {
        Err(Never)
    }
}

/// Episodes of one token, sampled with the play's seed. Token 1 is verified, token 0 is not. All
/// rewards of task 2 are equal.
pub(crate) struct Table {
    pub(crate) good: Episode,
    pub(crate) bad: Episode,
    pub(crate) asked: Mutex<Vec<Play>>,
    /// Notified of each request; and the number of waits for concurrent requests that timed out.
    pub(crate) told: Condvar,
    pub(crate) alone: AtomicU32,
    /// A play ends when an episode this far beyond its own is requested, if its number is below the
    /// second number.
    pub(crate) awaits: (u32, u32),
    /// How long that is waited for.
    pub(crate) patience: Duration,
    pub(crate) abandoned: AtomicBool,
    /// One in this many episodes fails with an infrastructure failure.
    pub(crate) fails_every: u32,
    /// Numbers of episodes whose message is truncated.
    pub(crate) cut: Range<u32>,
}

impl Table {
    pub(crate) fn new(fails_every: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        sample::finish(sample::write_run(&path));
        let mut history = History::read(&RunReader::open(&path).unwrap()).unwrap();
        let [good, bad] = [0, 1].map(|n| history.episodes.remove(&EpisodeId(n)).unwrap());
        Self {
            good,
            bad,
            asked: Mutex::default(),
            told: Condvar::new(),
            alone: AtomicU32::new(0),
            awaits: (0, 0),
            patience: Duration::from_mins(2),
            abandoned: AtomicBool::new(false),
            fails_every,
            cut: 0..0,
        }
    }

    /// Episodes requested since the last call.
    pub(crate) fn asked(&self) -> Vec<Play> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Rollouts for Table {
    type Error = Never;

    fn tasks(&self) -> usize {
        3
    }

    fn judged(&self) -> Judged {
        let judged = self.asked.lock().unwrap().len() as u64;
        Judged { judged, repeated: 2 * judged, seconds: 0.5 * judged as f64 }
    }

    fn abandon(&self) {
        let _asked = self.asked.lock().unwrap();
        self.abandoned.store(true, Ordering::SeqCst);
        self.told.notify_all();
    }

    fn play(&self, plays: &[Play], room: &(dyn Fn() + Sync)) -> Result<Vec<Episode>, Never> {
        self.asked.lock().unwrap().extend(plays);
        self.told.notify_all();
        let last = plays.iter().map(|play| play.number).max().unwrap();
        room();
        let (beyond, below) = self.awaits;
        if last < below {
            let asked = self.asked.lock().unwrap();
            let waits = |asked: &mut Vec<Play>| {
                let is_alone = asked.iter().all(|play| play.number < last + beyond);
                is_alone && !self.abandoned.load(Ordering::SeqCst)
            };
            let waited = self.told.wait_timeout_while(asked, self.patience, waits).unwrap();
            self.alone.fetch_add(u32::from(waited.1.timed_out()), Ordering::SeqCst);
        }
        let of = |play: &Play| {
            let token = if play.task == 2 { 1 } else { (play.seed >> 40) as u32 % 2 };
            let mut episode = if token == 1 { self.good.clone() } else { self.bad.clone() };
            episode.turns.truncate(1);
            episode.setup.task = format!("task {}", play.task);
            let tokens =
                Tokens { kept: 0, prompt: vec![5], sampled: vec![token], logprobs: vec![-0.7] };
            episode.turns[0].message.generation =
                Some(Box::new(Generation { tokens: Some(tokens), ..Generation::default() }));
            if self.cut.contains(&play.number) {
                episode.turns[0].message.stop = StopReason::Length;
            }
            if self.fails_every > 0 && play.number.is_multiple_of(self.fails_every) {
                let message = "the GPU is lost".to_owned();
                episode.end.as_mut().unwrap().outcome = Outcome::Infrastructure { message };
            }
            episode
        };
        Ok(plays.iter().map(of).collect())
    }
}
