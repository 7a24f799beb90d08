//! A run of many concurrent episodes: the common part of `optimize` and `eval`.
//!
//! The plan is tasks x policies x attempts, in that order. The number of an episode is its index in
//! the plan, so that a resumed run knows which episodes are done. Each worker belongs to one device
//! and takes the next episode of the plan when its last one ends.

mod attempt;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_agent::episode::{self, Start};
use warpwright_agent::judge::DeviceFacts;
use warpwright_judge::{BaselineSet, Degenerate, Objection, SessionPool};
use warpwright_record::event::{EpisodeId, Event, NoteLevel, Outcome, RunOutcome};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::rejudged::Origin;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_task::Task;

use self::attempt::Attempt;
use crate::Notice;
use crate::device_choice::DeviceChoice;
use crate::device_context::DeviceContext;
use crate::device_use;
use crate::engine::EngineHost;
use crate::error::{RolloutError, chain};
use crate::fit;
use crate::judge_host::{HostFiles, JudgeHost, JudgeOptions};
use crate::plan::{Planned, plan, schedule};
use crate::policies::{self, Policies};
use crate::pool_judge::{Refusal, nothing_to_earn};
use crate::settings::Settings;
use crate::voided::{ROUNDS, unmentioned};

/// Sees what happens in a campaign, from any of its threads.
pub trait CampaignObserver: Sync {
    /// The episodes that earlier processes recorded, before the first event.
    fn resumed(&self, history: &History);

    /// An event, after it was recorded.
    fn observe(&self, event: &Event);

    /// The last event was observed.
    fn finished(&self);
}

/// What a campaign needs of the program that runs it.
pub struct Caller<'a> {
    /// Files of this machine.
    pub files: &'a HostFiles,
    /// The command line, for the record.
    pub command: String,
    /// Ends the campaign when it is set; the run can be resumed.
    pub stop: Arc<AtomicBool>,
    /// Receives lines for the user.
    pub notice: Notice,
    /// Sees what happens.
    pub observer: &'a dyn CampaignObserver,
}

/// Starts a run in a new folder and works on it to its end.
pub fn begin(
    mut settings: Settings,
    dir: &Path,
    devices: &[DeviceChoice],
    options: JudgeOptions,
    caller: &Caller<'_>,
) -> Result<Settings, RolloutError> {
    let hosts = JudgeHost::open_all(caller.files, devices, options, &caller.notice)?;
    settings.devices = hosts.iter().map(JudgeHost::device).collect();
    settings.base_urls = policies::base_urls(&settings.policies()?, &settings.remote);
    let config = serde_json::to_value(&settings).map_err(|error| {
        let message = format!("failed to encode the settings of the run: {error}");
        RolloutError::infrastructure(message, None)
    })?;
    let record = RunWriter::create(dir, RunInfo { command: caller.command.clone(), config })?;
    (caller.notice)(&format!("run: {}", dir.display()));
    Campaign { settings: &settings, hosts, record, dir: dir.to_owned(), caller }
        .work(&History::default())?;
    Ok(settings)
}

/// Resumes the run in `dir`.
pub fn resume(
    settings: &Settings,
    dir: &Path,
    force: bool,
    caller: &Caller<'_>,
) -> Result<(), RolloutError> {
    let reader = RunReader::open(dir)?;
    if let Some(origin) = Origin::of(reader.header()) {
        let message = format!(
            "failed to resume the run in {}: no policy works in it, its candidates are those of another run",
            dir.display()
        );
        let hint = format!("judge the rest with `warpwright rejudge {}`", origin.run);
        return Err(RolloutError::usage(message, hint));
    }
    let history = History::read(&reader)?;
    let insist = if force { ResumePolicy::Forced } else { ResumePolicy::SameProgram };
    if is_done(&history, settings) {
        if history.outcome != Some(RunOutcome::Completed) {
            // Killed between the last episode's end and the run's.
            let record = RunWriter::resume(dir, insist)?;
            record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
            record.close()?;
        }
        (caller.notice)("the run is complete, there is nothing to resume");
        return Ok(());
    }
    let record = RunWriter::resume(dir, insist)?;
    // What was appended meanwhile, and the order of the lock: read again under it.
    let history = History::read(&reader)?;
    let options = JudgeOptions {
        profile: settings.profile,
        seed: settings.seed,
        baselines: if settings.all_baselines { BaselineSet::All } else { BaselineSet::Usual },
        require_full_isolation: settings.require_full_isolation,
        degenerate: if settings.include_degenerate {
            Degenerate::Judged
        } else {
            Degenerate::Refused
        },
        tier: settings.require_tier.into(),
        libraries: settings.library_set(),
        // What is published is timed side by side.
        share_baselines: false,
        memory_limit: settings.memory_limit,
        window_ms: None,
    };
    let devices = settings.devices()?;
    let hosts = JudgeHost::open_all(caller.files, &devices, options, &caller.notice)?;
    Campaign { settings, hosts, record, dir: dir.to_owned(), caller }.work(&history)
}

/// Whether every planned episode has ended and needs no resumption. A refused task is tried again:
/// its package may be installed by now.
fn is_done(history: &History, settings: &Settings) -> bool {
    let over = |e: &Episode| e.end.is_some() && e.resume_point().is_none();
    plan(settings).iter().all(|planned| history.episodes.get(&planned.id).is_some_and(over))
}

/// The part of a run that this process does.
struct Campaign<'a> {
    settings: &'a Settings,
    hosts: Vec<JudgeHost>,
    record: RunWriter,
    dir: PathBuf,
    caller: &'a Caller<'a>,
}

/// State that the workers share.
struct Shared {
    tasks: Vec<Task>,
    /// Those that were scaled down because the device has no memory for them.
    scaled: Mutex<HashMap<usize, Task>>,
    /// Hashes of tasks whose workloads were opened, each to find out whether it has to be scaled down.
    fitted: Mutex<HashSet<String>>,
    policies: Policies,
    history: Mutex<History>,
    plan: Mutex<VecDeque<Planned>>,
    /// Tasks that cannot be judged.
    refused: Mutex<HashSet<usize>>,
    /// Tasks with a warning that no reward can be earned on them.
    degenerate: Mutex<HashSet<usize>>,
    /// Lost devices.
    lost: Mutex<HashSet<String>>,
    /// The failure that ended the run early.
    fatal: Mutex<Option<RolloutError>>,
}

/// Concurrent episodes per GPU: while one is measured, others build, trace and compile.
const JOBS_ON_GPU: usize = 4;

impl Shared {
    /// A task as it is worked on.
    fn task(&self, index: usize) -> Task {
        lock(&self.scaled).get(&index).unwrap_or(&self.tasks[index]).clone()
    }
}

/// Default number of concurrent episodes on a device.
fn jobs_on(device: &DeviceFacts) -> usize {
    if device.device == "cpu" { 1 } else { JOBS_ON_GPU }
}

/// The device for a worker's next episode.
enum Next {
    /// The worker's own device.
    Here,
    /// Another device: this GPU is lost, and the requested episode has not started.
    Elsewhere(RolloutError),
}

impl Campaign<'_> {
    /// Works on every unfinished episode, and ends the run.
    fn work(self, history: &History) -> Result<(), RolloutError> {
        self.caller.observer.resumed(history);
        let tasks = self.settings.tasks();
        let mut plan = plan(self.settings);
        schedule(&mut plan, |task| tasks[task].level);
        let shared = Shared {
            scaled: Mutex::new(fit::recorded(history, &tasks)),
            fitted: Mutex::default(),
            tasks,
            policies: Policies::open(
                self.settings.policies()?,
                &self.settings.remote,
                &self.settings.base_urls,
                &self.caller.stop,
                Some(&self.caller.notice),
            )?
            .with_engines(
                &EngineHost::beside(&self.hosts[..1], None),
                &self.hosts[0].judge.config().cache,
            )?,
            history: Mutex::new(history.clone()),
            plan: Mutex::new(plan),
            refused: Mutex::default(),
            degenerate: Mutex::default(),
            lost: Mutex::default(),
            fatal: Mutex::new(None),
        };
        let mut done = self.workers(&shared);
        for _ in 0..ROUNDS {
            let stopped = self.caller.stop.load(Ordering::SeqCst);
            if stopped || done.is_err() || lock(&shared.fatal).is_some() || !self.void(&shared)? {
                break;
            }
            done = self.workers(&shared);
        }
        self.caller.observer.finished();
        let fatal = lock(&shared.fatal).take();
        let failed = done.err().or(fatal).or_else(|| self.left_over(&shared));
        let outcome = match (&failed, self.broken()?) {
            (Some(failure), _) => RunOutcome::Failed { message: chain(failure) },
            (None, _) if self.caller.stop.load(Ordering::SeqCst) => RunOutcome::Interrupted,
            (None, Some(message)) => RunOutcome::Failed { message },
            (None, None) => RunOutcome::Completed,
        };
        let completed = outcome == RunOutcome::Completed;
        let ended = self.record.append(&Event::RunFinished { outcome }).map(|_| ());
        // What went wrong first is what the user needs to know.
        if let Some(failure) = failed {
            return Err(failure);
        }
        ended?;
        if completed {
            self.record.close()?;
        }
        Ok(())
    }

    /// Records which verdicts of the run have become void, and plans the episodes that ended with one: their final
    /// candidates are measured again. False if there are none.
    fn void(&self, shared: &Shared) -> Result<bool, RolloutError> {
        let reader = RunReader::open(&self.dir)?;
        let history = History::read(&reader)?;
        let each = self.hosts.iter().map(|host| host.judge.voids());
        let all = each.collect::<Result<Vec<_>, _>>()?;
        let news = unmentioned(all.into_iter().flatten(), &history, None);
        if news.is_empty() {
            return Ok(false);
        }
        for voided in news {
            let (replayer, reason) = (&voided.replayer, &voided.reason);
            let text = format!(
                "verdicts {} to {} of replayer {replayer} are void: {reason}; their candidates are measured again",
                voided.after + 1,
                voided.through
            );
            self.append(&Event::VerdictsVoided { voided })?;
            self.append(&Event::Note { episode: None, level: NoteLevel::Warning, text })?;
        }
        let history = History::read(&reader)?;
        let open = |planned: &Planned| {
            history.episodes.get(&planned.id).is_some_and(|episode| episode.end.is_none())
        };
        let again: VecDeque<Planned> = plan(self.settings).into_iter().filter(open).collect();
        let some = !again.is_empty();
        *lock(&shared.plan) = again;
        *lock(&shared.history) = history;
        Ok(some)
    }

    /// A failure if episodes of a lost GPU are left and no worker can take them.
    fn left_over(&self, shared: &Shared) -> Option<RolloutError> {
        let left = lock(&shared.plan).len();
        if left == 0 || self.caller.stop.load(Ordering::SeqCst) {
            return None;
        }
        let message = format!("failed to run {left} episodes: their GPU was lost");
        Some(RolloutError::infrastructure(
            message,
            "resume the run with `--resume` when the GPU is back".to_owned(),
        ))
    }

    /// The message of an episode that ended with an infrastructure failure; such a run can be
    /// resumed.
    fn broken(&self) -> Result<Option<String>, RolloutError> {
        let history = History::read(&RunReader::open(&self.dir)?)?;
        Ok(history.episodes.values().find_map(|episode| match &episode.end.as_ref()?.outcome {
            Outcome::Infrastructure { message } => Some(message.clone()),
            _ => None,
        }))
    }

    fn workers(&self, shared: &Shared) -> Result<(), RolloutError> {
        let pools: Vec<_> = self.hosts.iter().map(|b| SessionPool::new(&b.judge)).collect();
        let devices = self
            .hosts
            .iter()
            .zip(&pools)
            .map(|(host, pool)| {
                let (skill, profile) = (self.settings.skill.as_deref(), self.settings.profile);
                DeviceContext::new(host, pool, skill, profile)
            })
            .collect::<Result<Vec<_>, RolloutError>>()?;
        let jobs = self.settings.jobs.map_or_else(
            || devices.iter().map(|device| jobs_on(&device.facts)).sum(),
            |jobs| jobs as usize,
        );
        let workers = jobs.max(devices.len());
        let started = Instant::now();
        std::thread::scope(|scope| {
            for device in devices.iter().cycle().take(workers) {
                scope.spawn(move || {
                    if let Err(failure) = self.worker(shared, device) {
                        // The others end their calls and stop.
                        lock(&shared.fatal).get_or_insert(failure);
                        self.caller.stop.store(true, Ordering::SeqCst);
                    }
                });
            }
        });
        self.hosts.iter().try_for_each(|host| self.tell_use(host, started.elapsed()))
    }

    /// Records how busy a GPU was. More jobs could use the idle share.
    fn tell_use(&self, host: &JudgeHost, of: Duration) -> Result<(), RolloutError> {
        let used = host.judge.device_use();
        if host.device() == "cpu" || used.alone.is_zero() {
            return Ok(());
        }
        let text = device_use::describe(&host.device(), &used, of);
        self.append(&Event::Note { episode: None, level: NoteLevel::Info, text })
    }

    fn worker(&self, shared: &Shared, device: &DeviceContext<'_>) -> Result<(), RolloutError> {
        while !self.caller.stop.load(Ordering::SeqCst) {
            let Some(planned) = lock(&shared.plan).pop_front() else { break };
            let Some(start) = self.start(&lock(&shared.history), planned.id)? else { continue };
            if let Next::Elsewhere(failure) = self.episode(shared, device, planned, start)? {
                return self.retire(shared, device, planned, failure);
            }
        }
        Ok(())
    }

    /// Ends a worker whose GPU is lost. A worker of another device takes the episode, if there is
    /// one.
    fn retire(
        &self,
        shared: &Shared,
        device: &DeviceContext<'_>,
        planned: Planned,
        failure: RolloutError,
    ) -> Result<(), RolloutError> {
        let text = format!("{}; the other devices continue", chain(&failure));
        let mut lost = lock(&shared.lost);
        let first = lost.insert(device.facts.device.clone());
        if lost.len() == self.hosts.len() {
            return Err(failure);
        }
        drop(lost);
        lock(&shared.plan).push_front(planned);
        if first {
            let level = NoteLevel::Warning;
            self.append(&Event::Note { episode: None, level, text })?;
        }
        Ok(())
    }

    fn episode(
        &self,
        shared: &Shared,
        device: &DeviceContext<'_>,
        planned: Planned,
        start: Start,
    ) -> Result<Next, RolloutError> {
        if lock(&shared.refused).contains(&planned.task) {
            return Ok(Next::Here);
        }
        let mut start = start;
        loop {
            let task = shared.task(planned.task);
            let refusal = match self.attempt(shared, device, (planned, &task), start)? {
                Attempt::Over => return Ok(Next::Here),
                Attempt::Elsewhere(failure) => return Ok(Next::Elsewhere(failure)),
                Attempt::Refused(refusal) => Some(refusal),
                Attempt::Scaled => None,
            };
            let refusal = match refusal {
                Some(refusal) => self.scale_down(shared, planned.task, &task, refusal)?,
                None => None,
            };
            if let Some(refusal) = refusal {
                self.refuse(shared, planned, refusal)?;
                return Ok(Next::Here);
            }
            // Nothing of an attempt at another size is kept.
            start = Start::Fresh;
        }
    }

    /// Warns once that no reward can be earned on a task.
    fn warn(
        &self,
        shared: &Shared,
        task: usize,
        reasons: &[Objection],
    ) -> Result<(), RolloutError> {
        let Some(text) = nothing_to_earn(&shared.tasks[task].name, reasons) else {
            return Ok(());
        };
        if lock(&shared.degenerate).insert(task) {
            let level = NoteLevel::Warning;
            self.append(&Event::Note { episode: None, level, text })?;
        }
        Ok(())
    }

    /// Records once that a task cannot be judged.
    fn refuse(
        &self,
        shared: &Shared,
        planned: Planned,
        refusal: Refusal,
    ) -> Result<(), RolloutError> {
        let Refusal { message, hint, degenerate, too_large } = refusal;
        if !lock(&shared.refused).insert(planned.task) {
            return Ok(());
        }
        let task = shared.tasks[planned.task].name.clone();
        self.append(&Event::TaskRefused { task, message, hint, degenerate, too_large })
    }

    /// Where an episode starts; `None` if it has ended.
    fn start(&self, history: &History, id: EpisodeId) -> Result<Option<Start>, RolloutError> {
        let Some(recorded) = history.episodes.get(&id) else { return Ok(Some(Start::Fresh)) };
        Ok(episode::resume_from(&RunReader::open(&self.dir)?, recorded)?)
    }

    fn append(&self, event: &Event) -> Result<(), RolloutError> {
        self.record.append(event)?;
        self.caller.observer.observe(event);
        Ok(())
    }
}

/// The guarded state stays usable after a panic of another worker.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
