//! On-policy training: the policy plays episodes, a training step follows, and so on.
//!
//! ```text
//! ┌─► tasks of the next step ─► Rollouts (the agent loop, the judge) ─► episodes ─► update ─► State ─┐
//! └──────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The state and the training step's number determine the step's tasks and seeds. A run that is
//! resumed from a state therefore gives the same result as an uninterrupted run. An alarm of
//! [`Online::rollback_on`] rolls a run back in the same way: it resumes from an earlier checkpoint,
//! which [`State::rollback_checkpoints`] names.
//!
//! With [`Online::max_staleness`] the episodes of later steps begin while the last episodes of this
//! step are still running:
//!
//! ```text
//! step n        ████████▓▓▓▓ update       the last episodes leave workers idle
//! step n + 1            ████████▓▓▓▓ update
//! ```
//!
//! Those episodes are sampled from weights at most `max_staleness` steps older than the weights
//! that they train. Each token has the log-probability that it was sampled with. The information
//! from which tasks are selected is older by as many steps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::verdict::Scheme;

use crate::engine::Engine;
use crate::group::is_zero_variance;
use crate::moments::mean;
use crate::monitor::Alarm;
use crate::outcome;
use crate::run_monitor::{self, Update};
use crate::schedule::LrSchedule;
use crate::update::{Algorithm, Steps, UpdateError, update};

mod in_flight;

use self::in_flight::InFlight;

pub use crate::rollouts::{Judged, Play, Rollouts};

/// Settings of a training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Online {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Optimizer steps of a training step.
    pub steps: Steps,
    /// Schedule of the policy's learning rate over the training steps.
    pub schedule: LrSchedule,
    /// Number of training steps.
    pub total_training_steps: u32,
    /// Number of first training steps that train the critic only.
    pub critic_warmup_steps: u32,
    /// Tasks (prompts) per training step; all tasks if there are fewer.
    pub train_batch_size: usize,
    /// Episodes per task and training step.
    pub rollout_n: usize,
    /// Which of a verdict's rewards is used.
    pub reward: Scheme,
    /// Sampling weight of a task whose last episodes were a zero-variance group; other tasks have weight 1.
    pub zero_variance_sample_weight: f64,
    /// Alarms that end the stage.
    pub halt_on: Vec<Alarm>,
    /// Alarms that roll the policy back and halve its learning rate; at most [`MAX_ROLLBACKS`]
    /// times, then they end the stage. If the training step is at fault ([`Alarm::is_of_update`]),
    /// it is repeated from the same episodes. If its episodes are at fault, an earlier step was:
    /// the run resumes from a checkpoint of [`State::rollback_checkpoints`] and samples new
    /// episodes.
    pub rollback_on: Vec<Alarm>,
    /// Target KL divergence between the policies before and after an update, nats per episode (mean per action
    /// times actions per episode). The learning rate begins at a tenth of `steps` and is then set from the KL of
    /// the last updates, since KL grows with the square of the rate; it never exceeds that of `steps`. Four times
    /// the target raises [`Alarm::Divergence`].
    ///
    /// Such schedules are known from continuous control (Rudin et al., arXiv 2109.11978, appendix); here they
    /// make an update depend less on the optimizer's moments.
    pub lr_kl_target_per_episode: Option<f64>,
    /// Off-policy staleness limit: an episode may begin at most this many training steps before the
    /// step that trains on it.
    pub max_staleness: u32,
    /// Seed of the task order and of all sampling.
    pub seed: u64,
}

/// Maximum number of rollbacks. A learning rate that was halved this often is not the fault.
pub const MAX_ROLLBACKS: usize = 6;

/// A checkpoint is kept for rollback every this many training steps, if none of these raised an
/// alarm. Two are kept, so that the older one has been followed by this many steps without an
/// alarm.
pub const ROLLBACK_CHECKPOINT_INTERVAL: u32 = 5;
const ROLLBACK_CHECKPOINTS: usize = 2;

/// Constants of [`Online::lr_kl_target_per_episode`]: the first learning rate as a share of the
/// maximum, bounds of its change per step, the number of steps that it is estimated from, and the
/// multiple of the target that is an alarm.
const FIRST_RATE: f64 = 0.1;
const SLOWER: f64 = 0.5;
const FASTER: f64 = 2.0;
const KL_UPDATES: usize = 5;
const TOO_FAR: f64 = 4.0;

/// A rollback: a training step that was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Back {
    /// The discarded training step's number, from 0.
    pub number: u32,
    /// The alarm that caused it.
    pub alarm: Alarm,
    /// Number of training steps that remain, if earlier ones were discarded as well. `None` if the
    /// step is repeated from the same episodes.
    #[serde(default)]
    pub to: Option<u32>,
    /// Number of later training steps whose episodes had begun; these are discarded too.
    pub staleness: u32,
}

impl Back {
    /// Number of the training step that follows.
    pub fn next(&self) -> u32 {
        self.to.unwrap_or(self.number)
    }
}

/// Why [`Online::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All training steps are done, or an alarm or `each` ended the run.
    Here,
    /// Roll back: resume from the weights after as many training steps as the state now has, with a
    /// lower learning rate.
    Back(Back),
}

/// Everything except the weights that a run needs to resume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Training steps that were made.
    pub updates: Vec<Update>,
    /// By task, whether its last episodes were a zero-variance group.
    pub zero_variance: BTreeMap<usize, bool>,
    /// The same of the latest training steps, oldest first, which the selection of tasks does not
    /// use yet (staleness).
    #[serde(default)]
    pub lately: Vec<BTreeMap<usize, bool>>,
    /// Rollbacks so far.
    #[serde(default)]
    pub back: Vec<Back>,
    /// Training steps after which a checkpoint is kept for rollback, ascending. Whoever stores
    /// checkpoints must keep these too. Before the first, a rollback goes to the policy that the
    /// run began with.
    #[serde(default)]
    pub rollback_checkpoints: Vec<u32>,
}

impl State {
    /// Number of batches of episodes that were played. Those of discarded training steps are in the
    /// record, and their numbers are taken.
    fn played(&self) -> u32 {
        let thrown =
            self.back.iter().filter_map(|back| Some(back.number + 1 + back.staleness - back.to?));
        self.updates.len() as u32 + thrown.sum::<u32>()
    }

    /// Discards the training step that follows, and the earlier ones that are at fault for its
    /// episodes.
    fn go_back(&mut self, alarm: Alarm, staleness: u32) -> Back {
        let number = self.updates.len() as u32;
        let to = (!alarm.is_of_update())
            .then(|| self.rollback_checkpoints.first().copied().unwrap_or(0));
        let back = Back { number, alarm, to, staleness };
        self.updates.truncate(back.next() as usize);
        self.rollback_checkpoints.retain(|kept| *kept <= back.next());
        self.back.push(back);
        back
    }

    /// The zero-variance groups that select the tasks of the training step `after` steps after the
    /// next one: those known when its episodes may first begin, `max_staleness` steps earlier.
    fn zero_variance_for(&self, after: usize, max_staleness: usize) -> BTreeMap<usize, bool> {
        let known = (self.lately.len() + after).saturating_sub(max_staleness);
        let mut zero_variance = self.zero_variance.clone();
        zero_variance.extend(self.lately.iter().take(known).flatten());
        zero_variance
    }

    fn may_go_back(&self) -> bool {
        self.back.len() < MAX_ROLLBACKS
    }
}

/// Why a run could not continue.
#[derive(Debug, Error)]
pub enum OnlineError<E: std::error::Error + 'static, R: std::error::Error + 'static> {
    /// The training step failed.
    #[error(transparent)]
    Update(#[from] UpdateError<E>),
    /// The rollouts failed.
    #[error(transparent)]
    Rollouts(R),
    /// All episodes of a training step ended with an infrastructure failure.
    #[error("failed to train at step {number}: none of its {episodes} episodes can be used: {why}")]
    NoEpisodes {
        /// The training step's number, from 0.
        number: u32,
        /// Number of its episodes.
        episodes: usize,
        /// The fault of the first episode.
        why: String,
    },
}

impl Online {
    /// Trains from a state until all training steps are done, or an alarm or `each` ends the run.
    /// `each` is called after every training step, when the engine has applied it.
    pub fn run<E: Engine, R: Rollouts>(
        &self,
        engine: &mut E,
        rollouts: &R,
        state: &mut State,
        mut each: impl FnMut(&mut E, &State) -> ControlFlow<()>,
    ) -> Result<Ended, OnlineError<E::Error, R::Error>>
    where
        E::Error: 'static,
    {
        std::thread::scope(|scope| {
            let mut flight = InFlight::new(scope, rollouts, self.max_staleness as usize);
            let ended = self.go(engine, rollouts, &mut flight, state, &mut each);
            if flight.is_under_way() {
                rollouts.abandon();
            }
            ended
        })
    }

    fn go<'s, E: Engine, R: Rollouts>(
        &self,
        engine: &mut E,
        rollouts: &R,
        flight: &mut InFlight<'s, '_, R>,
        state: &mut State,
        each: &mut dyn FnMut(&mut E, &State) -> ControlFlow<()>,
    ) -> Result<Ended, OnlineError<E::Error, R::Error>>
    where
        E::Error: 'static,
    {
        let (max_staleness, mut before) = (self.max_staleness as usize, rollouts.judged());
        while !self.is_over(state) {
            let number = state.updates.len() as u32;
            let began = Instant::now();
            // Later training steps whose episodes may begin now.
            let later = self.max_staleness.min(self.total_training_steps - 1 - number);
            let flown = flight.next(|after| {
                let zero_variance = (after <= later as usize)
                    .then(|| state.zero_variance_for(after, max_staleness))?;
                Some(self.plays(state.played() + after as u32, rollouts.tasks(), &zero_variance))
            });
            let (plays, played) = flown.unwrap_or_else(|panic| resume_unwind(panic));
            let played = played.map_err(OnlineError::Rollouts)?;
            let play_seconds = began.elapsed().as_secs_f64();
            let now = rollouts.judged();
            let judged = now - std::mem::replace(&mut before, now);
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
            let steps = self.steps_of(state);
            let report = update(engine, &self.algorithm_of(number), &steps, &learned)?;
            let lr = steps.policy.lr;
            let mut made = Update { number, lr, report, judged, play_seconds, ..Update::default() };
            made.failed = plays.len() - episodes.len();
            made.learn_seconds = began.elapsed().as_secs_f64();
            made.tell_of(episodes.iter().map(|(_, episode, _)| *episode));
            let by_task = by_task(episodes.iter().map(|(t, _, e)| (*t, e.reward)));
            made.rewards = by_task.iter().map(|(task, rewards)| (*task, mean(rewards))).collect();
            made.tell_entropies(|episode| episodes[episode].0);
            let of_course = run_monitor::alarms(&state.updates[self.warming(state)..], &made);
            made.report.alarms.extend(of_course);
            let too_far =
                self.lr_kl_target_per_episode.map_or(f64::INFINITY, |target| TOO_FAR * target);
            if made.kl_per_episode().is_some_and(|moved| moved > too_far)
                && !made.report.alarms.contains(&Alarm::Divergence)
            {
                made.report.alarms.push(Alarm::Divergence);
            }
            if let Some(alarm) =
                Self::raised(&made, &self.rollback_on).filter(|_| state.may_go_back())
            {
                return Ok(Ended::Back(state.go_back(alarm, later)));
            }
            let zero_variance = by_task.into_iter().map(|(task, rewards)| {
                (task, is_zero_variance(&rewards, self.steps.zero_variance_tolerance))
            });
            state.lately.push(zero_variance.collect());
            let known = state.lately.len().saturating_sub(max_staleness);
            state.zero_variance.extend(state.lately.drain(..known).flatten());
            state.updates.push(made);
            self.keep_for_rollback(state);
            if each(engine, state).is_break() {
                break;
            }
        }
        Ok(Ended::Here)
    }

    /// Whether the run has ended.
    pub fn is_over(&self, state: &State) -> bool {
        state.updates.len() >= self.total_training_steps as usize || self.alarm(state).is_some()
    }

    /// The alarm that ended the run, if any.
    pub fn alarm(&self, state: &State) -> Option<Alarm> {
        let last = state.updates.last()?;
        let ends = Self::raised(last, &self.halt_on);
        ends.or_else(|| Self::raised(last, &self.rollback_on).filter(|_| !state.may_go_back()))
    }

    /// The first of a training step's alarms that is in `among`.
    fn raised(update: &Update, among: &[Alarm]) -> Option<Alarm> {
        update.report.alarms.iter().copied().find(|alarm| among.contains(alarm))
    }

    /// Number of first training steps to ignore in trends of the policy: critic warm-up.
    fn warming(&self, state: &State) -> usize {
        state.updates.len().min(self.critic_warmup_steps as usize)
    }

    fn algorithm_of(&self, number: u32) -> Algorithm {
        match self.algorithm {
            Algorithm::Ppo { recipe, critic_steps_per_step, .. }
                if number < self.critic_warmup_steps =>
            {
                Algorithm::Ppo { recipe, critic_steps_per_step, critic_only: true }
            }
            algorithm => algorithm,
        }
    }

    fn steps_of(&self, state: &State) -> Steps {
        let mut steps = self.steps;
        let total = f64::from(self.total_training_steps.max(1));
        steps.policy.lr *= self.schedule.factor(state.updates.len() as f64, total);
        let halved = match self.lr_kl_target_per_episode {
            None => state.back.len(),
            Some(target) => {
                steps.policy.lr = lr_for_kl(target, steps.policy.lr, &state.updates);
                // Halvings of earlier rollbacks are already in the rates of the steps since.
                let next = state.updates.len() as u32;
                state.back.iter().filter(|back| back.next() == next).count()
            }
        };
        steps.policy.lr *= 0.5f64.powi(halved as i32);
        steps
    }

    /// Keeps a checkpoint of the current policy for rollback, if the interval has passed without an
    /// alarm.
    fn keep_for_rollback(&self, state: &mut State) {
        let number = state.updates.len() as u32;
        let lately = state.updates.iter().rev().take(ROLLBACK_CHECKPOINT_INTERVAL as usize);
        let is_sound =
            lately.map(|update| Self::raised(update, &self.rollback_on)).all(|a| a.is_none());
        if !self.rollback_on.is_empty()
            && number.is_multiple_of(ROLLBACK_CHECKPOINT_INTERVAL)
            && is_sound
        {
            state.rollback_checkpoints.push(number);
            let too_many = state.rollback_checkpoints.len().saturating_sub(ROLLBACK_CHECKPOINTS);
            state.rollback_checkpoints.drain(..too_many);
        }
    }

    /// The episodes of a training step: tasks sampled without replacement, each with its
    /// `rollout_n` episodes.
    fn plays(&self, number: u32, tasks: usize, zero_variance: &BTreeMap<usize, bool>) -> Vec<Play> {
        let mut random = StdRng::seed_from_u64(self.seed.rotate_left(17) ^ u64::from(number));
        let weight = |task: &usize| {
            let is_zero_variance = zero_variance.get(task).copied().unwrap_or(false);
            if is_zero_variance { self.zero_variance_sample_weight.max(1e-6) } else { 1.0 }
        };
        // The largest u^(1/w): weighted sampling without replacement (Efraimidis and Spirakis,
        // 2006).
        let mut keyed: Vec<(f64, usize)> = (0..tasks)
            .map(|task| (random.random::<f64>().powf(1.0 / weight(&task)), task))
            .collect();
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
        keyed.truncate(self.train_batch_size.max(1));
        let count = keyed.len() * self.rollout_n;
        let first = number * (self.train_batch_size.max(1) * self.rollout_n) as u32;
        let drawn = keyed.iter().flat_map(|(_, task)| std::iter::repeat_n(*task, self.rollout_n));
        let numbered = (first..first + count as u32).zip(drawn);
        numbered
            .map(|(number, task)| {
                let seed = self.seed ^ (u64::from(number) + 1).wrapping_mul(0xD134_2543_DE82_EF95);
                Play { number, task, seed }
            })
            .collect()
    }
}

/// The learning rate, at most `most`, with which the next training step is expected to have KL
/// divergence `target`. Batches differ, so the largest KL per squared rate of the last few steps
/// counts.
fn lr_for_kl(target: f64, most: f64, updates: &[Update]) -> f64 {
    let moved =
        updates.iter().rev().filter_map(|update| Some((update.lr, update.kl_per_episode()?)));
    let lately: Vec<(f64, f64)> = moved.take(KL_UPDATES).collect();
    let Some((last, _)) = lately.first() else { return FIRST_RATE * most };
    // The KL divergence grows with the square of the rate.
    let steepest = lately.iter().map(|(rate, moved)| moved / rate.powi(2)).fold(0.0, f64::max);
    let rate = (target / steepest).sqrt();
    rate.clamp(SLOWER * last, FASTER * last).min(most)
}

/// Rewards by task.
fn by_task(rewards: impl Iterator<Item = (usize, f64)>) -> BTreeMap<usize, Vec<f64>> {
    let mut by_task: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (task, reward) in rewards {
        by_task.entry(task).or_default().push(reward);
    }
    by_task
}
