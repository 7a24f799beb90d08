//! Learning from what the policy does now: episodes are played, an update is made of them, and so on.
//!
//! ```text
//! ┌─► tasks of the next update ─► Rollouts (the agent loop, the judge) ─► episodes ─► update ─► State ─┐
//! └────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Which tasks come next, and by which seeds they are played, follows from the state and the number of
//! the update: a run that goes on from a state does what one that was never interrupted does. That is also
//! how a run is taken back when an alarm says so: it goes on from a state before, which [`State::shelf`] names.
//!
//! With [`Online::max_staleness`] the episodes of later updates begin while the last ones of this are played:
//!
//! ```text
//! update n      ████████▓▓▓▓ learn        those that end last keep few busy
//! update n + 1          ████████▓▓▓▓ learn
//! ```
//!
//! They are drawn from weights that are at most so many updates older than those that they move; each token carries
//! the probability that it was drawn with. What the tasks of an update follow from is then as much older too.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use warpwright_record::history;
use warpwright_record::verdict::Scheme;

use crate::engine::Engine;
use crate::group::is_flat;
use crate::moments::mean;
use crate::monitor::Alarm;
use crate::outcome;
use crate::run_monitor::{self, Update};
use crate::schedule::LrSchedule;
use crate::update::{Algorithm, Steps, UpdateError, update};

mod flight;

use self::flight::Flight;

/// Plays episodes with the policy as it is now.
pub trait Rollouts: Sync {
    /// Our own failure.
    type Error: std::error::Error + Send + 'static;

    /// How many tasks there are.
    fn tasks(&self) -> usize;

    /// Plays these; in their order. An episode that was played before and is in the record is not
    /// played again. Calls `room` when there is room for others beside them; it may be called for others then.
    fn play(
        &self,
        plays: &[Play],
        room: &(dyn Fn() + Sync),
    ) -> Result<Vec<history::Episode>, Self::Error>;

    /// What is played now is not needed: no more of it begins, and `play` fails.
    fn abandon(&self);

    /// What the judge was asked since this began.
    fn judged(&self) -> Judged {
        Judged::default()
    }
}

/// What a judge was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Candidates that were judged.
    pub judged: u64,
    /// Those of which a verdict that was kept was given again.
    pub repeated: u64,
    /// Seconds that the former waited for their verdicts, all together.
    pub seconds: f64,
}

impl std::ops::Sub for Judged {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            judged: self.judged - before.judged,
            repeated: self.repeated - before.repeated,
            seconds: self.seconds - before.seconds,
        }
    }
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
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Optimizer steps of an update.
    pub steps: Steps,
    /// How the policy's learning rate changes from update to update.
    pub schedule: LrSchedule,
    /// Number of updates.
    pub total_training_steps: u32,
    /// The first updates, in which only the critic is trained.
    pub critic_warmup_steps: u32,
    /// Tasks (prompts) per update; all tasks if there are fewer.
    pub train_batch_size: usize,
    /// Episodes per task and update.
    pub rollout_n: usize,
    /// Which of a verdict's rewards counts.
    pub reward: Scheme,
    /// Sampling weight of a task whose last episodes were a zero-variance group; other tasks have weight 1.
    pub zero_variance_sample_weight: f64,
    /// Alarms that end the stage.
    pub halt_on: Vec<Alarm>,
    /// Alarms that roll the policy back and halve its learning rate; at most [`MOST_BACK`] times, then they end
    /// the stage. If the update is at fault ([`Alarm::is_of_update`]) it is made again from the same episodes.
    /// If its episodes are, an earlier update was at fault: the run goes back to a checkpoint of
    /// [`State::shelf`] and samples new episodes.
    pub rollback_on: Vec<Alarm>,
    /// Target KL divergence between the policies before and after an update, nats per episode (mean per action
    /// times actions per episode). The learning rate begins at a tenth of `steps` and is then set from the KL of
    /// the last updates, since KL grows with the square of the rate; it never exceeds that of `steps`. Four times
    /// the target raises [`Alarm::Divergence`].
    ///
    /// Such schedules are known from continuous control (Rudin et al., arXiv 2109.11978, appendix); here they
    /// make an update depend less on the optimizer's moments.
    pub lr_kl_target_per_episode: Option<f64>,
    /// Off-policy staleness limit: episodes may begin at most this many updates before the update that trains on
    /// them.
    pub max_staleness: u32,
    /// Seed of the task order and of all sampling.
    pub seed: u64,
}

/// How often a run may be taken back: a rate that was halved so often is not what is wrong.
pub const MOST_BACK: usize = 6;

/// A policy is put on the shelf every so many updates, if none of these raised an alarm; two lie there, so that
/// one has proved itself for that long.
pub const SHELF_EVERY: u32 = 5;
const SHELF_HOLDS: usize = 2;

/// Of [`Online::lr_kl_target_per_episode`]: the first rate as a share of the most, bounds of what one update does to it, by how many
/// updates, and when it is an alarm.
const FIRST_RATE: f64 = 0.1;
const SLOWER: f64 = 0.5;
const FASTER: f64 = 2.0;
const KL_UPDATES: usize = 5;
const TOO_FAR: f64 = 4.0;

/// An update that was made and thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Back {
    /// The update's number, from 0.
    pub number: u32,
    /// Why.
    pub alarm: Alarm,
    /// How many updates are left, where others were thrown away with it; else it is made again from the same
    /// episodes.
    #[serde(default)]
    pub to: Option<u32>,
    /// Later updates whose episodes had begun; they are discarded too.
    pub staleness: u32,
}

impl Back {
    /// The number of the update that comes next.
    pub fn next(&self) -> u32 {
        self.to.unwrap_or(self.number)
    }
}

/// Why [`Online::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All updates are made, an alarm ended it, or `each` did.
    Here,
    /// It is to go on from the weights after as many updates as the state has now, more carefully.
    Back(Back),
}

/// Everything but weights that is needed to go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Updates that were made.
    pub updates: Vec<Update>,
    /// By task, whether its last episodes all came to the same.
    pub flat: BTreeMap<usize, bool>,
    /// The same of the last updates, the oldest first, where tasks of the next were chosen before that was known.
    #[serde(default)]
    pub lately: Vec<BTreeMap<usize, bool>>,
    /// Updates that were thrown away.
    #[serde(default)]
    pub back: Vec<Back>,
    /// After how many updates there was a policy that the run may go back to. Whoever keeps weights keeps
    /// those as well; what is before the first is the policy that the run began with.
    #[serde(default)]
    pub shelf: Vec<u32>,
}

impl State {
    /// How often episodes were played for an update: those of updates that were thrown away with later ones
    /// are in the record, and their numbers are used.
    fn played(&self) -> u32 {
        let thrown =
            self.back.iter().filter_map(|back| Some(back.number + 1 + back.staleness - back.to?));
        self.updates.len() as u32 + thrown.sum::<u32>()
    }

    /// Throws away the update that comes next, and those before it which made its episodes what they are.
    fn go_back(&mut self, alarm: Alarm, staleness: u32) -> Back {
        let number = self.updates.len() as u32;
        let to = (!alarm.is_of_update()).then(|| self.shelf.first().copied().unwrap_or(0));
        let back = Back { number, alarm, to, staleness };
        self.updates.truncate(back.next() as usize);
        self.shelf.retain(|kept| *kept <= back.next());
        self.back.push(back);
        back
    }

    /// What the tasks of an update follow from that is so many after the next one: what is known when its episodes may
    /// first begin, `max_staleness` updates before.
    fn flat_for(&self, after: usize, max_staleness: usize) -> BTreeMap<usize, bool> {
        let known = (self.lately.len() + after).saturating_sub(max_staleness);
        let mut flat = self.flat.clone();
        flat.extend(self.lately.iter().take(known).flatten());
        flat
    }

    fn may_go_back(&self) -> bool {
        self.back.len() < MOST_BACK
    }
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
        rollouts: &R,
        state: &mut State,
        mut each: impl FnMut(&mut E, &State) -> ControlFlow<()>,
    ) -> Result<Ended, OnlineError<E::Error, R::Error>>
    where
        E::Error: 'static,
    {
        std::thread::scope(|scope| {
            let mut flight = Flight::new(scope, rollouts, self.max_staleness as usize);
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
        flight: &mut Flight<'s, '_, R>,
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
            // Updates after this one of which episodes may begin now.
            let later = self.max_staleness.min(self.total_training_steps - 1 - number);
            let flown = flight.next(|after| {
                let flat =
                    (after <= later as usize).then(|| state.flat_for(after, max_staleness))?;
                Some(self.plays(state.played() + after as u32, rollouts.tasks(), &flat))
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
            let flat = by_task.into_iter().map(|(task, rewards)| {
                (task, is_flat(&rewards, self.steps.zero_variance_tolerance))
            });
            state.lately.push(flat.collect());
            let known = state.lately.len().saturating_sub(max_staleness);
            state.flat.extend(state.lately.drain(..known).flatten());
            state.updates.push(made);
            self.shelve(state);
            if each(engine, state).is_break() {
                break;
            }
        }
        Ok(Ended::Here)
    }

    /// Whether there is nothing more to do.
    pub fn is_over(&self, state: &State) -> bool {
        state.updates.len() >= self.total_training_steps as usize || self.alarm(state).is_some()
    }

    /// The alarm that ends it, if one has been raised.
    pub fn alarm(&self, state: &State) -> Option<Alarm> {
        let last = state.updates.last()?;
        let ends = Self::raised(last, &self.halt_on);
        ends.or_else(|| Self::raised(last, &self.rollback_on).filter(|_| !state.may_go_back()))
    }

    /// The first of an update's alarms that is among these.
    fn raised(update: &Update, among: &[Alarm]) -> Option<Alarm> {
        update.report.alarms.iter().copied().find(|alarm| among.contains(alarm))
    }

    /// Updates that say nothing about the policy's course.
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
                // Of those before, the rates of the updates since know.
                let next = state.updates.len() as u32;
                state.back.iter().filter(|back| back.next() == next).count()
            }
        };
        steps.policy.lr *= 0.5f64.powi(halved as i32);
        steps
    }

    /// Puts the policy as it is now on the shelf, if it has earned it.
    fn shelve(&self, state: &mut State) {
        let number = state.updates.len() as u32;
        let lately = state.updates.iter().rev().take(SHELF_EVERY as usize);
        let is_sound =
            lately.map(|update| Self::raised(update, &self.rollback_on)).all(|a| a.is_none());
        if !self.rollback_on.is_empty() && number.is_multiple_of(SHELF_EVERY) && is_sound {
            state.shelf.push(number);
            let too_many = state.shelf.len().saturating_sub(SHELF_HOLDS);
            state.shelf.drain(..too_many);
        }
    }

    /// The episodes of an update: tasks drawn without putting back, each with its episodes.
    fn plays(&self, number: u32, tasks: usize, flat: &BTreeMap<usize, bool>) -> Vec<Play> {
        let mut random = StdRng::seed_from_u64(self.seed.rotate_left(17) ^ u64::from(number));
        let weight = |task: &usize| {
            let is_flat = flat.get(task).copied().unwrap_or(false);
            if is_flat { self.zero_variance_sample_weight.max(1e-6) } else { 1.0 }
        };
        // The largest of u^(1/w): weighted draws without replacement (Efraimidis and Spirakis, 2006).
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

/// The learning rate, at most `most`, with which the next update is expected to have KL divergence `target`. Batches
/// differ: the steepest of the last few updates counts.
fn lr_for_kl(target: f64, most: f64, updates: &[Update]) -> f64 {
    let moved =
        updates.iter().rev().filter_map(|update| Some((update.lr, update.kl_per_episode()?)));
    let lately: Vec<(f64, f64)> = moved.take(KL_UPDATES).collect();
    let Some((last, _)) = lately.first() else { return FIRST_RATE * most };
    // The divergence grows with the rate's square.
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
