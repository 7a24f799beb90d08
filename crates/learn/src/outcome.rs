//! An episode's reward, and whether the episode is fit for rejection fine-tuning.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::event::StoredFile;
use warpwright_record::history;
use warpwright_record::tokens::{NoTokens, sequences};
use warpwright_record::verdict::{Reward, Scheme};

use crate::batch::Episode;

/// The reward of an episode: that of its final verdict, which is measured afresh. `None` if the
/// episode is not over or ended with an infrastructure failure.
pub fn reward(episode: &history::Episode, scheme: Scheme) -> Option<f64> {
    let end = episode.end.as_ref().filter(|end| !end.outcome.is_resumable())?;
    Some(end.final_verdict.as_ref().map_or(Reward::NOTHING, |verdict| verdict.reward.by(scheme)))
}

/// Why an episode is not trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Useless {
    /// It has no reward.
    #[error("the episode is not over, or ended with an infrastructure failure")]
    NoReward,
    /// It has no recorded tokens.
    #[error("not all of the episode's tokens are recorded")]
    NoTokens(NoTokens),
}

/// The episode to train on.
pub fn learned(episode: &history::Episode, scheme: Scheme) -> Result<Episode, Useless> {
    let reward = reward(episode, scheme).ok_or(Useless::NoReward)?;
    let sequences = sequences(episode).map_err(Useless::NoTokens)?;
    Ok(Episode { task: episode.setup.task.clone(), sequences, reward })
}

/// Why an episode is excluded from rejection fine-tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Its reward is not above the bar.
    Reward,
    /// A verdict of the episode reports an integrity violation.
    Integrity,
    /// A tool call's arguments could not be parsed.
    Call,
    /// A turn repeated an earlier one: the same calls on the same files with the same results.
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

/// The first fault that excludes an episode from rejection fine-tuning, if any. Value pretraining
/// uses all episodes.
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

/// The calls of a turn, the files they applied to, and their results.
#[derive(PartialEq)]
struct Done<'e> {
    calls: Vec<(&'e str, &'e serde_json::Value)>,
    results: Vec<&'e str>,
    files: &'e [StoredFile],
}

impl<'e> Done<'e> {
    /// Of a turn that is over and made a call.
    fn of(turn: &'e history::Turn) -> Option<Self> {
        let (files, _) = turn.snapshot.as_ref()?;
        let calls = turn.message.calls.iter().map(|call| (call.name.as_str(), &call.arguments));
        let calls: Vec<_> = calls.collect();
        let results = turn.results.iter().map(|(result, _)| result.text.as_str()).collect();
        (!calls.is_empty()).then_some(Self { calls, results, files })
    }
}
