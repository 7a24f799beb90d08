//! What an episode of the record is to learning: its reward, and whether it is an example to follow.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::event::StoredFile;
use warpwright_record::history;
use warpwright_record::tokens::{NoTokens, sequences};
use warpwright_record::verdict::{Reward, Scheme};

use crate::batch::Episode;

/// The reward of an episode's outcome: of the final verdict, which is of a fresh measurement. `None`
/// where it is not over, or ended for no reason of its own: our failures are no reward.
pub fn reward(episode: &history::Episode, scheme: Scheme) -> Option<f64> {
    let end = episode.end.as_ref().filter(|end| !end.outcome.is_resumable())?;
    Some(end.final_verdict.as_ref().map_or(Reward::NOTHING, |verdict| verdict.reward.by(scheme)))
}

/// Why nothing is learned from an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Useless {
    /// It has no reward.
    #[error("it is not over, or ended for no reason of its own")]
    NoReward,
    /// It has no tokens as they were sampled.
    #[error("its tokens are not recorded, or not all of them")]
    NoTokens(NoTokens),
}

/// What is learned from.
pub fn learned(episode: &history::Episode, scheme: Scheme) -> Result<Episode, Useless> {
    let reward = reward(episode, scheme).ok_or(Useless::NoReward)?;
    let sequences = sequences(episode).map_err(Useless::NoTokens)?;
    Ok(Episode { task: episode.setup.task.clone(), sequences, reward })
}

/// Why an episode is no example to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing good came of it.
    Reward,
    /// A verdict on the way says that a result was not honestly earned.
    Integrity,
    /// A call's arguments were nothing that a tool could read.
    Call,
    /// A turn did what an earlier one had done, to the same files and with the same results.
    Loop,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reward => "reward",
            Self::Integrity => "integrity",
            Self::Call => "malformed call",
            Self::Loop => "redundant loop",
        })
    }
}

/// The first thing that keeps an episode from being an example, if there is one. Rejection fine-tuning
/// leaves such episodes out; value pretraining takes all.
pub fn fault(episode: &history::Episode, scheme: Scheme, above: f64) -> Option<Fault> {
    if reward(episode, scheme).is_none_or(|reward| reward <= above) {
        return Some(Fault::Reward);
    }
    let given = episode.turns.iter().flat_map(|turn| &turn.verdicts).chain(&episode.fresh);
    if given.into_iter().any(|given| !given.verdict.integrity.is_empty()) {
        return Some(Fault::Integrity);
    }
    let mut calls = episode.turns.iter().flat_map(|turn| &turn.message.calls);
    if calls.any(|call| !call.arguments.is_object()) {
        return Some(Fault::Call);
    }
    let done: Vec<Done<'_>> = episode.turns.iter().filter_map(Done::of).collect();
    let repeats = |(number, turn): (usize, &Done<'_>)| done[..number].contains(turn);
    done.iter().enumerate().any(repeats).then_some(Fault::Loop)
}

/// What a turn did, to what, and what came of it.
#[derive(PartialEq)]
struct Done<'e> {
    calls: Vec<(&'e str, &'e serde_json::Value)>,
    results: Vec<&'e str>,
    files: &'e [StoredFile],
}

impl<'e> Done<'e> {
    /// Of a turn that is over and did something.
    fn of(turn: &'e history::Turn) -> Option<Self> {
        let (files, _) = turn.snapshot.as_ref()?;
        let calls = turn.message.calls.iter().map(|call| (call.name.as_str(), &call.arguments));
        let calls: Vec<_> = calls.collect();
        let results = turn.results.iter().map(|(result, _)| result.text.as_str()).collect();
        (!calls.is_empty()).then_some(Self { calls, results, files })
    }
}
