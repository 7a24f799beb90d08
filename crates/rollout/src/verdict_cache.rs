//! The verdict cache of a training run. Policies write the same kernels again and again, and device
//! time is scarce.
//!
//! A candidate's files are measured `verdict_cache_samples` times. Later requests are answered with
//! one of these verdicts, chosen by the episode's seed. A verdict from the cache has a caveat that
//! says so.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use warpwright_agent::judge::{DeviceFacts, Judge, JudgeUnavailable};
use warpwright_judge::{Claimed, SingleFlight};
use warpwright_learn::online::Judged;
use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::{COPY_CAVEAT, Stage, Tier, Verdict};
use warpwright_task::Task;

use crate::error::RolloutError;

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    verdict: Verdict,
}

/// The verdict cache; see the module.
pub struct Verdicts {
    state: Mutex<State>,
    /// Keys that are being measured.
    flights: SingleFlight<String>,
    /// Verdicts kept per distinct candidate; 0 measures every request.
    most: usize,
}

struct State {
    kept: HashMap<String, Vec<Verdict>>,
    file: fs::File,
    count: Judged,
}

impl Verdicts {
    /// Opens the cache's file, or creates it. A truncated last line is dropped.
    pub fn open(path: &Path, most: usize) -> Result<Self, RolloutError> {
        let failed = |error: std::io::Error| RolloutError::io("open the verdict cache", error);
        let file = fs::OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(failed)?;
        let mut kept: HashMap<String, Vec<Verdict>> = HashMap::new();
        let (mut reader, mut whole, mut line) = (BufReader::new(&file), 0, Vec::new());
        while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            // A line without its line end would be joined with the next one.
            let read = line.strip_suffix(b"\n").map(serde_json::from_slice::<Line>);
            let Some(Ok(read)) = read else { break };
            whole += line.len() as u64;
            // Verdicts of older judging rules must not be reused: the candidate is measured again.
            if read.verdict.is_by_old_rules() {
                line.clear();
                continue;
            }
            let same = kept.entry(read.key).or_default();
            // A file merged from several runs can have more.
            if same.len() < most {
                same.push(read.verdict);
            }
            line.clear();
        }
        file.file().set_len(whole).map_err(failed)?;
        let state = Mutex::new(State { kept, file, count: Judged::default() });
        Ok(Self { state, flights: SingleFlight::default(), most })
    }

    /// Use of the judge since the cache was opened.
    pub fn count(&self) -> Judged {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cached verdict if there are enough of them, else a new one. Void ones are forgotten.
    pub(crate) fn take(
        &self,
        key: &str,
        seed: u64,
        is_void: impl Fn(&Verdict) -> Result<bool, JudgeUnavailable>,
        measure: impl FnOnce() -> Result<Verdict, JudgeUnavailable>,
    ) -> Result<Verdict, JudgeUnavailable> {
        if self.most == 0 {
            return self.timed(measure);
        }
        // Others with the same key wait: the running measurement may answer them.
        let key = key.to_owned();
        let cached = || self.cached(&key, seed, &is_void).transpose();
        match self.flights.claim(&key, cached) {
            Claimed::Known(verdict) => verdict,
            Claimed::Work(_claim) => {
                let verdict = self.timed(measure)?;
                let line = Line { key, verdict: verdict.clone() };
                let mut text = serde_json::to_vec(&line).map_err(|e| unkept(&e))?;
                text.push(b'\n');
                let mut state = self.lock();
                state.file.write_all(&text).map_err(|e| unkept(&e))?;
                state.kept.entry(line.key).or_default().push(line.verdict);
                Ok(verdict)
            }
        }
    }

    /// One of the cached verdicts, if there are enough of them.
    fn cached(
        &self,
        key: &str,
        seed: u64,
        is_void: &dyn Fn(&Verdict) -> Result<bool, JudgeUnavailable>,
    ) -> Result<Option<Verdict>, JudgeUnavailable> {
        let mut state = self.lock();
        if let Some(kept) = state.kept.get_mut(key) {
            let void = kept.iter().map(is_void).collect::<Result<Vec<_>, _>>()?;
            let mut void = void.into_iter();
            kept.retain(|_| void.next() != Some(true));
        }
        let Some(kept) = state.kept.get(key).filter(|kept| kept.len() >= self.most) else {
            return Ok(None);
        };
        let mut verdict = kept[(seed % kept.len() as u64) as usize].clone();
        verdict.caveats.push(format!(
            "{COPY_CAVEAT} measured {} time{} in this training run; this verdict is \
             one of these, from the verdict cache",
            kept.len(),
            if kept.len() == 1 { "" } else { "s" }
        ));
        state.count.repeated += 1;
        Ok(Some(verdict))
    }
}

impl Verdicts {
    /// Measures a candidate and counts it.
    fn timed(
        &self,
        judge: impl FnOnce() -> Result<Verdict, JudgeUnavailable>,
    ) -> Result<Verdict, JudgeUnavailable> {
        let began = Instant::now();
        let verdict = judge();
        let mut state = self.lock();
        state.count.judged += u64::from(verdict.is_ok());
        state.count.seconds += began.elapsed().as_secs_f64();
        verdict
    }
}

fn unkept(error: &dyn std::error::Error) -> JudgeUnavailable {
    JudgeUnavailable { message: format!("failed to write the verdict to the cache: {error}") }
}

/// A judge that answers from the verdict cache.
pub struct CachingJudge<'a> {
    judge: &'a dyn Judge,
    verdicts: &'a Verdicts,
    /// Chooses among several cached verdicts.
    seed: u64,
    /// The task and the judging rules, as the key's first part.
    about: String,
    /// Whether only the final candidate is judged on all workloads.
    holds_out: bool,
}

impl<'a> CachingJudge<'a> {
    /// Answers from `verdicts` what they have, and asks `judge` for the rest. `tier` is the one that the judge
    /// requires: a run that is resumed with another does not answer with verdicts of the first.
    pub fn new(
        judge: &'a dyn Judge,
        verdicts: &'a Verdicts,
        task: &Task,
        (tier, seed): (Option<Tier>, u64),
    ) -> Self {
        let facts = judge.device();
        let source = BlobHash::of(task.source.as_bytes());
        let mut about = format!("{}/{}/{source}/{:?}", facts.device, facts.hardware, task.mode);
        if let Some(tier) = tier {
            about = format!("{about}/{}", tier.name());
        }
        if facts.libraries != LibrarySet::default() {
            about += "/";
            about += &facts.libraries.to_string();
        }
        Self { judge, verdicts, seed, about, holds_out: task.holds_out() }
    }
}

impl Judge for CachingJudge<'_> {
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable> {
        if stage == Stage::Measured && self.holds_out {
            let key = format!("{}/shown/{}", self.about, candidate.hash());
            let is_void = |verdict: &Verdict| self.judge.is_void(verdict);
            let judge = || self.judge.judge(candidate, stage);
            return self.verdicts.take(&key, self.seed, is_void, judge);
        }
        if stage == Stage::Measured {
            return self.measure_afresh(candidate);
        }
        self.verdicts.timed(|| self.judge.judge(candidate, stage))
    }

    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        let key = format!("{}/{}", self.about, candidate.hash());
        let is_void = |verdict: &Verdict| self.judge.is_void(verdict);
        self.verdicts.take(&key, self.seed, is_void, || self.judge.measure_afresh(candidate))
    }

    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable> {
        self.judge.inspect(candidate, inspection)
    }

    fn plan_file(&self, hash: BlobHash) -> Option<Vec<u8>> {
        self.judge.plan_file(hash)
    }

    fn is_void(&self, verdict: &Verdict) -> Result<bool, JudgeUnavailable> {
        self.judge.is_void(verdict)
    }

    fn device(&self) -> DeviceFacts {
        self.judge.device()
    }
}

#[cfg(test)]
mod tests;
