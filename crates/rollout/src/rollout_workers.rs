//! Plays the episodes of a stage concurrently, and records them.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use warpwright_agent::episode::{self, Start};
use warpwright_agent::policy::Policy;
use warpwright_learn::online::{Judged, Play, Rollouts};
use warpwright_record::event::{Budget, EpisodeId, Event, EventLine, RunOutcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::run::{FORMAT_VERSION, RunInfo};
use warpwright_record::verdict::Profile;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_task::Task;

use crate::device_context::DeviceContext;
use crate::episode::EpisodeBuilder;
use crate::error::RolloutError;
use crate::verdict_cache::{CachingJudge, Verdicts};
use crate::voided::{ROUNDS, unmentioned};

/// Concurrent episodes on all devices: while some are judged, others sample. More if the episodes
/// of as many tasks as the devices keep open are more.
const AT_ONCE: usize = 64;

/// Settings of rollouts, common to all stages.
pub struct RolloutConfig<'a> {
    /// The devices that judge.
    pub devices: Arc<[DeviceContext<'a>]>,
    /// The verdict cache.
    pub verdicts: &'a Verdicts,
    /// Rules of precision and comparison.
    pub profile: Profile,
    /// Limit on the policy's messages per episode.
    pub turns: u32,
    /// Ends the rollouts when it is set.
    pub stop: &'a AtomicBool,
    /// The command line, for the records.
    pub command: String,
}

impl RolloutConfig<'_> {
    /// The same with another limit on messages.
    #[must_use]
    pub fn with_turns(&self, turns: u32) -> Self {
        Self { devices: Arc::clone(&self.devices), turns, command: self.command.clone(), ..*self }
    }
}

/// Creates the policy of an episode.
pub type Make<'a> = Box<dyn Fn() -> Box<dyn Policy> + Sync + 'a>;

/// Plays the episodes of one stage.
pub struct RolloutWorkers<'a, 'f> {
    config: &'a RolloutConfig<'f>,
    tasks: &'a [Task],
    /// Name of the policy in the record.
    policy: &'static str,
    make: Make<'a>,
    record: RunWriter,
    /// When the record was opened.
    since: jiff::Timestamp,
    folder: PathBuf,
    /// The recorded episodes that a batch still needs.
    history: Mutex<History>,
    /// Called after each episode.
    ended: Box<dyn Fn() + Sync + 'a>,
    /// First episode numbers of the running batches.
    asked: Mutex<BTreeSet<EpisodeId>>,
    /// Number of unfinished episodes per task.
    left: Left,
    /// Whether the running batches are cancelled.
    abandoned: AtomicBool,
}

impl<'a, 'f> RolloutWorkers<'a, 'f> {
    /// Opens the record in `folder`, or creates it.
    pub fn open(
        config: &'a RolloutConfig<'f>,
        tasks: &'a [Task],
        policy: &'static str,
        make: Make<'a>,
        folder: &Path,
    ) -> Result<Self, RolloutError> {
        let dir = folder.join("record");
        let (record, history) = if dir.join("run.json").exists() {
            let record = RunWriter::resume(&dir, ResumePolicy::SameProgram)?;
            (record, History::read(&RunReader::open(&dir)?)?)
        } else {
            let about = serde_json::json!({ "version": 1, "purpose": "train" });
            let info = RunInfo { command: config.command.clone(), config: about };
            (RunWriter::create(&dir, info)?, History::default())
        };
        Ok(Self {
            config,
            tasks,
            policy,
            make,
            record,
            since: jiff::Timestamp::now(),
            folder: folder.to_owned(),
            history: Mutex::new(history),
            ended: Box::new(|| {}),
            asked: Mutex::default(),
            left: Left::default(),
            abandoned: AtomicBool::new(false),
        })
    }

    /// Sets a function that is called after each episode.
    #[must_use]
    pub fn watched(mut self, ended: impl Fn() + Sync + 'a) -> Self {
        self.ended = Box::new(ended);
        self
    }

    /// Closes the record after the last episode.
    pub fn close(self) -> Result<(), RolloutError> {
        self.record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
        Ok(self.record.close()?)
    }

    fn stops(&self) -> bool {
        self.config.stop.load(Ordering::SeqCst) || self.abandoned.load(Ordering::SeqCst)
    }

    /// Plays the episodes planned for one device.
    fn work(
        &self,
        device: &DeviceContext<'_>,
        plan: &Mutex<Plan>,
        ended: &(dyn Fn() + Sync),
    ) -> Result<(), RolloutError> {
        while !self.stops() {
            let Some(play) = lock(plan).pop_front() else { break };
            let id = EpisodeId(play.number);
            let start = match lock(&self.history).episodes.get(&id) {
                None => Some(Start::Fresh),
                Some(known) => episode::resume_from(&RunReader::open(self.record.dir())?, known)?,
            };
            if let Some(start) = start {
                self.episode(device, play, start)?;
            }
            if self.left.was_last(play.task) {
                // The session of a finished task would block others from the device.
                device.judge.finished(&self.tasks[play.task]);
            }
            (self.ended)();
            ended();
        }
        Ok(())
    }

    fn episode(
        &self,
        device: &DeviceContext<'_>,
        play: Play,
        start: Start,
    ) -> Result<(), RolloutError> {
        let task = &self.tasks[play.task];
        let config = self.config;
        let judge = device.judge.task(task, config.stop);
        let tier = device.judge.tier();
        let cached = CachingJudge::new(&*judge, config.verdicts, task, (tier, play.seed));
        let path = self.folder.join("work").join(play.number.to_string());
        let builder = EpisodeBuilder {
            id: EpisodeId(play.number),
            device,
            task,
            profile: config.profile,
            seed: play.seed,
            attempt: play.number,
            budget: Budget { turns: Some(config.turns), ..Budget::default() },
            policy: self.policy.to_owned(),
            // Native models do not read it.
            keeps_skill: false,
            record: &self.record,
            stop: config.stop,
        };
        let mut policy = (self.make)();
        builder.play(&path, &cached, policy.as_mut(), start, &|event| self.note(event))?;
        if let Some(refusal) = judge.refusal() {
            let hint = "fix or remove the task, and run the same command again".to_owned();
            return Err(RolloutError::usage(refusal.message.clone(), hint));
        }
        // The record has its files.
        fs::remove_dir_all(&path).map_err(|error| RolloutError::io("remove a workspace", error))
    }

    fn note(&self, event: &Event) {
        let line = EventLine {
            version: FORMAT_VERSION,
            seq: 0,
            time: jiff::Timestamp::now(),
            event: event.clone(),
        };
        lock(&self.history).apply(line);
    }
}

impl Rollouts for RolloutWorkers<'_, '_> {
    type Error = RolloutError;

    fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn judged(&self) -> Judged {
        self.config.verdicts.count()
    }

    fn play(&self, plays: &[Play], room: &(dyn Fn() + Sync)) -> Result<Vec<Episode>, RolloutError> {
        let Some(first) = plays.iter().map(|play| EpisodeId(play.number)).min() else {
            return Ok(Vec::new());
        };
        {
            let mut asked = lock(&self.asked);
            asked.insert(first);
            // Earlier batches have been consumed.
            let oldest = *asked.first().unwrap_or(&first);
            lock(&self.history).episodes.retain(|id, _| *id >= oldest);
        }
        let played = self.play_planned(plays, room);
        lock(&self.asked).remove(&first);
        played
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }
}

impl RolloutWorkers<'_, '_> {
    fn play_planned(
        &self,
        plays: &[Play],
        room: &(dyn Fn() + Sync),
    ) -> Result<Vec<Episode>, RolloutError> {
        self.play_all(plays, room)?;
        for _ in 0..ROUNDS {
            let again = self.void(plays)?;
            if again.is_empty() {
                break;
            }
            self.play_all(&again, &|| {})?;
        }
        let mut history = lock(&self.history);
        let taken =
            plays.iter().filter_map(|play| history.episodes.remove(&EpisodeId(play.number)));
        Ok(taken.collect())
    }

    /// Records which verdicts have become void. Returns the plays that ended with one: they are to be measured
    /// again before they are trained on.
    fn void(&self, plays: &[Play]) -> Result<Vec<Play>, RolloutError> {
        let each = self.config.devices.iter().map(|device| device.judge.voids());
        let all = each.collect::<Result<Vec<_>, _>>()?;
        let news = unmentioned(all.into_iter().flatten(), &lock(&self.history), Some(self.since));
        for voided in news {
            let event = Event::VerdictsVoided { voided };
            self.record.append(&event)?;
            self.note(&event);
        }
        let history = lock(&self.history);
        let open = |play: &&Play| {
            let episode = history.episodes.get(&EpisodeId(play.number));
            episode.is_some_and(|episode| episode.end.is_none())
        };
        Ok(plays.iter().filter(open).copied().collect())
    }

    /// Plays episodes, on all devices.
    fn play_all(&self, plays: &[Play], room: &(dyn Fn() + Sync)) -> Result<(), RolloutError> {
        let left = AtomicUsize::new(plays.len());
        let ended = || {
            // Half of the batch is over: the rest leaves workers idle.
            if left.fetch_sub(1, Ordering::SeqCst) == plays.len().div_ceil(2) {
                room();
            }
        };
        self.left.add(plays);
        let plans = shared_out(plays, self.config.devices.len());
        let failed: Mutex<Option<RolloutError>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for (device, plan) in self.config.devices.iter().zip(&plans) {
                let (waiting, open) = {
                    let plan = lock(plan);
                    (plan.len(), of_first(&plan, device.judge.at_once()))
                };
                for _ in 0..waiting.min(open.max(AT_ONCE / plans.len()).max(1)) {
                    let (workers, plans, failed, ended) = (self, &plans, &failed, &ended);
                    scope.spawn(move || {
                        if let Err(failure) = workers.work(device, plan, ended) {
                            lock(failed).get_or_insert(failure);
                            // The other workers finish their current episodes.
                            for plan in plans {
                                lock(plan).clear();
                            }
                        }
                    });
                }
            }
        });
        if let Some(failure) = lock(&failed).take() {
            return Err(failure);
        }
        if self.stops() {
            return Err(RolloutError::Interrupted);
        }
        Ok(())
    }
}

/// The episodes to play on one device, in order.
type Plan = VecDeque<Play>;

/// Number of plays before the first one of a task beyond the first `tasks` tasks.
fn of_first(plan: &Plan, tasks: usize) -> usize {
    let mut known = HashSet::new();
    let is_among = |play: &&Play| {
        known.contains(&play.task) || { known.len() < tasks && known.insert(play.task) }
    };
    plan.iter().take_while(is_among).count()
}

/// Number of unfinished episodes per task, over all batches.
#[derive(Debug, Default)]
struct Left(Mutex<HashMap<usize, usize>>);

impl Left {
    fn add(&self, plays: &[Play]) {
        let mut left = lock(&self.0);
        for play in plays {
            *left.entry(play.task).or_default() += 1;
        }
    }

    /// Counts an episode of this task as finished; returns whether it was the last.
    fn was_last(&self, task: usize) -> bool {
        let mut left = lock(&self.0);
        let left = left.entry(task).or_default();
        *left = left.saturating_sub(1);
        *left == 0
    }
}

/// Assigns plays to this many devices. A task is always played on the same device: opening it and
/// preparing its baselines takes longer than a verdict, and baseline measurements are cached per
/// device.
fn shared_out(plays: &[Play], devices: usize) -> Vec<Mutex<Plan>> {
    let mut plans: Vec<Plan> = (0..devices).map(|_| Plan::default()).collect();
    for play in plays {
        plans[play.task % devices].push_back(*play);
    }
    plans.into_iter().map(Mutex::new).collect()
}

/// The guarded state stays usable after a panic of another worker.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plays_before_the_next_new_task_are_counted() {
        let tasks = [4, 4, 2, 4, 7, 2, 9];
        let plays = (0..).zip(tasks).map(|(number, task)| Play { number, task, seed: 0 });
        let plan: Plan = plays.collect();
        let of = |tasks| of_first(&plan, tasks);
        assert_eq!([0, 1, 2, 3, 4, 9].map(of), [0, 2, 4, 6, 7, 7]);
    }

    #[test]
    fn every_task_is_assigned_to_one_device() {
        let play = |number, task| Play { number, task, seed: 0 };
        let plays: Vec<Play> = (0..40).map(|n| play(n, n as usize * 7 % 5)).collect();
        for devices in 1..4 {
            let plans = shared_out(&plays, devices);
            assert_eq!(plans.len(), devices);
            let mut all = Vec::new();
            for (device, plan) in plans.into_iter().enumerate() {
                let plan = plan.into_inner().unwrap();
                assert!(plan.iter().is_sorted_by_key(|play| play.number), "in their order");
                assert!(plan.iter().all(|play| play.task % devices == device));
                all.extend(plan.iter().map(|play| play.number));
            }
            all.sort_unstable();
            assert_eq!(all, (0..40).collect::<Vec<_>>());
        }
        // Fewer plays than devices: the others have nothing to do.
        let plans = shared_out(&[play(0, 3)], 2);
        assert_eq!(plans.iter().map(|plan| lock(plan).len()).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn last_episode_is_detected_across_batches() {
        let play = |number, task| Play { number, task, seed: 0 };
        let left = Left::default();
        left.add(&[play(0, 3), play(1, 3), play(2, 5)]);
        assert_eq!([5, 3].map(|task| left.was_last(task)), [true, false]);
        left.add(&[play(3, 3)]);
        assert_eq!([3, 3].map(|task| left.was_last(task)), [false, true]);
    }
}
