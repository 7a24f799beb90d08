//! Learning from what the policy does now: episodes are played, an update is made of them, and so on.
//!
//! ```text
//! ┌─► tasks of the next update ─► Rollouts (the agent loop, the judge) ─► episodes ─► update ─► State ─┐
//! └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Which tasks come next, and by which seeds they are played, follows from the state and the number of
//! the update: a run that goes on from a state does what one that was never interrupted does.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::history;
use warpwright_record::message::StopReason;

use crate::engine::Engine;
use crate::group::is_flat;
use crate::monitor::Alarm;
use crate::outcome::{self, Scheme};
use crate::update::{Report, Rule, Steps, UpdateError, update};

/// Plays episodes with the policy as it is now.
pub trait Rollouts {
    /// Our own failure.
    type Error: std::error::Error + 'static;

    /// How many tasks there are.
    fn tasks(&self) -> usize;

    /// Plays these; in their order. An episode that was played before and is in the record is not
    /// played again.
    fn play(&mut self, plays: &[Play]) -> Result<Vec<history::Episode>, Self::Error>;
}

/// An episode to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Play {
    /// Its number in the record.
    pub number: u32,
    /// Number of its task, from 0.
    pub task: usize,
    /// What decides its draws.
    pub seed: u64,
}

/// How it is learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Online {
    /// By what rule.
    pub rule: Rule,
    /// How weights move.
    pub steps: Steps,
    /// Whether the policy's learning rate falls linearly from update to update, to reach nothing after the
    /// last.
    pub anneals: bool,
    /// How many updates.
    pub updates: u32,
    /// Of these the first, in which only the critic moves.
    pub critic_first: u32,
    /// Tasks of an update; fewer where there are fewer.
    pub tasks: usize,
    /// Episodes of each.
    pub episodes: usize,
    /// Which of a verdict's rewards counts.
    pub reward: Scheme,
    /// How often a task is taken whose last episodes all came to the same, as a share of how often
    /// another is: they say little about what is better.
    pub flat_share: f64,
    /// Alarms that end it.
    pub stop_at: Vec<Alarm>,
    /// What decides the tasks and all draws.
    pub seed: u64,
}

/// What came of an update and of the episodes before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// Its number, from 0.
    pub number: u32,
    /// Episodes that ended by our own failure: nothing is learned from them.
    pub failed: usize,
    /// Share of the others that ended verified.
    pub passed: f64,
    /// Share of them that are faster than eager by their reward (`paper`, 2 or more).
    pub faster: f64,
    /// Share of them in which a message was cut short.
    pub cut: f64,
    /// Their mean number of turns.
    pub turns: f64,
    /// Their mean number of tokens that the policy drew.
    pub tokens: f64,
    /// What came of the update.
    pub report: Report,
    /// Seconds that the episodes took.
    pub play_seconds: f64,
    /// Seconds that the update took.
    pub learn_seconds: f64,
}

/// Everything but weights that is needed to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Updates that were made.
    pub updates: Vec<Update>,
    /// By task, whether its last episodes all came to the same.
    pub flat: BTreeMap<usize, bool>,
}

/// Why it could not go on.
#[derive(Debug, Error)]
pub enum OnlineError<E: std::error::Error + 'static, R: std::error::Error + 'static> {
    /// No update could be made.
    #[error(transparent)]
    Update(#[from] UpdateError<E>),
    /// No episode could be played.
    #[error(transparent)]
    Rollouts(R),
    /// All episodes of an update ended by our own failure.
    #[error(
        "failed to learn from update {number}: none of its {episodes} episodes can be used: {why}"
    )]
    NoEpisodes {
        /// The update's number, from 0.
        number: u32,
        /// How many there were.
        episodes: usize,
        /// What is wrong with the first.
        why: String,
    },
}

impl Online {
    /// Goes on from a state until all updates are made, an alarm ends it, or `each` does. `each` is told
    /// after every update, when everything that it learned is in the engine.
    pub fn run<E: Engine, R: Rollouts>(
        &self,
        engine: &mut E,
        rollouts: &mut R,
        state: &mut State,
        mut each: impl FnMut(&mut E, &State) -> ControlFlow<()>,
    ) -> Result<(), OnlineError<E::Error, R::Error>>
    where
        E::Error: 'static,
    {
        while !self.is_over(state) {
            let number = state.updates.len() as u32;
            let plays = self.plays(number, rollouts.tasks(), &state.flat);
            let began = Instant::now();
            let played = rollouts.play(&plays).map_err(OnlineError::Rollouts)?;
            let play_seconds = began.elapsed().as_secs_f64();
            let (mut episodes, mut useless) = (Vec::new(), None);
            for (play, episode) in plays.iter().zip(&played) {
                match outcome::learned(episode, self.reward) {
                    Ok(learned) => episodes.push((play.task, episode, learned)),
                    Err(why) => useless = useless.or(Some(why)),
                }
            }
            if episodes.is_empty() {
                let why = useless.map_or_else(String::new, |why| why.to_string());
                return Err(OnlineError::NoEpisodes { number, episodes: plays.len(), why });
            }
            let began = Instant::now();
            let learned: Vec<_> = episodes.iter().map(|(_, _, learned)| learned.clone()).collect();
            let report = update(engine, &self.rule_of(number), &self.steps_of(number), &learned)?;
            let mut made = Update { number, report, play_seconds, ..Update::default() };
            made.failed = plays.len() - episodes.len();
            made.learn_seconds = began.elapsed().as_secs_f64();
            made.tell_of(episodes.iter().map(|(_, episode, _)| *episode));
            for (task, rewards) in by_task(episodes.iter().map(|(t, _, e)| (*t, e.reward))) {
                state.flat.insert(task, is_flat(&rewards));
            }
            state.updates.push(made);
            if each(engine, state).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Whether there is nothing more to do.
    pub fn is_over(&self, state: &State) -> bool {
        state.updates.len() >= self.updates as usize || self.alarm(state).is_some()
    }

    /// The alarm that ends it, if one has been raised. While only the critic moves there is none: it is to
    /// get better first.
    pub fn alarm(&self, state: &State) -> Option<Alarm> {
        let last = state.updates.last().filter(|last| last.number >= self.critic_first)?;
        last.report.alarms.iter().copied().find(|alarm| self.stop_at.contains(alarm))
    }

    fn rule_of(&self, number: u32) -> Rule {
        match self.rule {
            Rule::Ppo { recipe, critic_steps, .. } if number < self.critic_first => {
                Rule::Ppo { recipe, critic_steps, critic_only: true }
            }
            rule => rule,
        }
    }

    fn steps_of(&self, number: u32) -> Steps {
        let mut steps = self.steps;
        if self.anneals {
            steps.policy.rate *= 1.0 - f64::from(number) / f64::from(self.updates.max(1));
        }
        steps
    }

    /// The episodes of an update: tasks drawn without putting back, each with its episodes.
    fn plays(&self, number: u32, tasks: usize, flat: &BTreeMap<usize, bool>) -> Vec<Play> {
        let mut random = StdRng::seed_from_u64(self.seed.rotate_left(17) ^ u64::from(number));
        let weight = |task: &usize| {
            let is_flat = flat.get(task).copied().unwrap_or(false);
            if is_flat { self.flat_share.max(1e-6) } else { 1.0 }
        };
        // The largest of u^(1/w): weighted draws without replacement (Efraimidis and Spirakis, 2006).
        let mut keyed: Vec<(f64, usize)> = (0..tasks)
            .map(|task| (random.random::<f64>().powf(1.0 / weight(&task)), task))
            .collect();
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
        keyed.truncate(self.tasks.max(1));
        let count = keyed.len() * self.episodes;
        let first = number * (self.tasks.max(1) * self.episodes) as u32;
        let drawn = keyed.iter().flat_map(|(_, task)| std::iter::repeat_n(*task, self.episodes));
        let numbered = (first..first + count as u32).zip(drawn);
        numbered
            .map(|(number, task)| {
                let seed = self.seed ^ (u64::from(number) + 1).wrapping_mul(0xD134_2543_DE82_EF95);
                Play { number, task, seed }
            })
            .collect()
    }
}

/// Rewards by task.
fn by_task(rewards: impl Iterator<Item = (usize, f64)>) -> BTreeMap<usize, Vec<f64>> {
    let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (task, reward) in rewards {
        by_task.entry(task).or_default().push(reward);
    }
    by_task
}

impl Update {
    fn tell_of<'e>(&mut self, episodes: impl Iterator<Item = &'e history::Episode>) {
        let mut count = 0.0;
        for episode in episodes {
            count += 1.0;
            let verdict = episode.end.as_ref().and_then(|end| end.final_verdict.as_ref());
            self.passed += f64::from(verdict.is_some_and(|v| v.verified));
            self.faster += f64::from(verdict.is_some_and(|v| v.reward.paper >= 2.0));
            let is_cut = |turn: &history::Turn| turn.message.stop == StopReason::Length;
            self.cut += f64::from(episode.turns.iter().any(is_cut));
            self.turns += episode.turns.len() as f64;
            let generations = episode.turns.iter().filter_map(|t| t.message.generation.as_ref());
            self.tokens += generations.map(|g| g.usage.output_tokens as f64).sum::<f64>();
        }
        for mean in
            [&mut self.passed, &mut self.faster, &mut self.cut, &mut self.turns, &mut self.tokens]
        {
            *mean /= f64::max(count, 1.0);
        }
    }
}

/// Mean rewards of the first and of the last fifth of the updates, all episodes alike: what a run came to.
/// `None` before the first update.
pub fn first_and_last(updates: &[Update]) -> Option<(f64, f64)> {
    let fifth = updates.len().div_ceil(5);
    let mean = |updates: &[Update]| {
        let count: usize = updates.iter().map(|update| update.report.episodes).sum();
        let sum: f64 = updates.iter().map(|u| u.report.reward * u.report.episodes as f64).sum();
        (count > 0).then(|| sum / count as f64)
    };
    Some((mean(&updates[..fifth])?, mean(&updates[updates.len() - fifth..])?))
}
