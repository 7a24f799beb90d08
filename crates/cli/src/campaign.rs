//! A run of many concurrent episodes: the common part of `optimize` and `eval`.
//!
//! The plan is tasks x policies x attempts, in that order. The number of an episode is its index in
//! the plan, so that a resumed run knows which episodes are done. Each worker belongs to one device
//! and takes the next episode of the plan when its last one ends.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_agent::episode::{self, EpisodeError, Parts, Start};
use warpwright_agent::judge::DeviceFacts;
use warpwright_agent::policy::Briefing;
use warpwright_judge::{BaselineSet, Degenerate, JudgeError, Objection, SessionPool};
use warpwright_record::event::{
    Budget, EpisodeId, EpisodeSetup, Event, NoteLevel, Outcome, RunOutcome,
};
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::run::RunInfo;
use warpwright_record::writer::{ResumePolicy, RunWriter};
use warpwright_report::live::LiveView;
use warpwright_task::Task;

use crate::args::Common;
use crate::commands::judge::command;
use crate::device_context::DeviceContext;
use crate::engine::Host;
use crate::failure::{Failure, chain};
use crate::judging::{JudgeHost, PoolJudge, Refusal, Wanted};
use crate::plan::{Planned, plan, schedule};
use crate::policies::{self, Policies};
use crate::printer::Printer;
use crate::settings::Settings;
use crate::{device_use, interrupt, judging, results};

/// Starts a run in a new folder and works on it to its end.
pub(crate) fn begin(
    mut settings: Settings,
    dir: &Path,
    common: &Common,
    wanted: Wanted,
    printer: Printer,
) -> Result<Settings, Failure> {
    let stop = interrupt::watch(printer)?;
    let benches = JudgeHost::open_all(common, &common.device, wanted, printer)?;
    settings.devices = benches.iter().map(JudgeHost::device).collect();
    settings.base_urls = policies::base_urls(&settings.policies()?, &settings.remote);
    let config = serde_json::to_value(&settings).map_err(|error| {
        Failure::infrastructure(format!("failed to encode the settings of the run: {error}"), None)
    })?;
    let record = RunWriter::create(dir, RunInfo { command: command(), config })?;
    printer.say(&format!("run: {}", dir.display()));
    Campaign { settings: &settings, benches, record, dir: dir.to_owned(), stop, printer }
        .work(&History::default())?;
    Ok(settings)
}

/// Resumes the run in `dir`.
pub(crate) fn resume(
    settings: &Settings,
    dir: &Path,
    common: &Common,
    force: bool,
    printer: Printer,
) -> Result<(), Failure> {
    let reader = RunReader::open(dir)?;
    let history = History::read(&reader)?;
    let insist = if force { ResumePolicy::Forced } else { ResumePolicy::SameProgram };
    if is_done(&history, settings) {
        if history.outcome != Some(RunOutcome::Completed) {
            // Killed between the last episode's end and the run's.
            let record = RunWriter::resume(dir, insist)?;
            record.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
            record.close()?;
        }
        printer.say("the run is complete, there is nothing to resume");
        return Ok(());
    }
    let record = RunWriter::resume(dir, insist)?;
    // What was appended meanwhile, and the order of the lock: read again under it.
    let history = History::read(&reader)?;
    let wanted = Wanted {
        profile: settings.profile,
        seed: settings.seed,
        baselines: if settings.all_baselines { BaselineSet::All } else { BaselineSet::Usual },
        require_full_isolation: settings.require_full_isolation,
        degenerate: if settings.include_degenerate {
            Degenerate::Judged
        } else {
            Degenerate::Refused
        },
        window_ms: None,
    };
    let stop = interrupt::watch(printer)?;
    let benches = JudgeHost::open_all(common, &settings.devices()?, wanted, printer)?;
    Campaign { settings, benches, record, dir: dir.to_owned(), stop, printer }.work(&history)
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
    benches: Vec<JudgeHost>,
    record: RunWriter,
    dir: PathBuf,
    stop: Arc<AtomicBool>,
    printer: Printer,
}

/// State that the workers share.
struct Shared<'a> {
    tasks: Vec<Task>,
    policies: Policies,
    history: &'a History,
    plan: Mutex<VecDeque<Planned>>,
    live: Mutex<LiveView>,
    /// Tasks that cannot be judged.
    refused: Mutex<HashSet<usize>>,
    /// Tasks with a warning that no reward can be earned on them.
    degenerate: Mutex<HashSet<usize>>,
    /// Lost devices.
    lost: Mutex<HashSet<String>>,
    /// The failure that ended the run early.
    fatal: Mutex<Option<Failure>>,
}

/// Concurrent episodes per GPU: while one is measured, others build, trace and compile.
const JOBS_ON_GPU: usize = 4;

/// Default number of concurrent episodes on a device.
fn jobs_on(device: &DeviceFacts) -> usize {
    if device.device == "cpu" { 1 } else { JOBS_ON_GPU }
}

/// The device for a worker's next episode.
enum Next {
    /// The worker's own device.
    Here,
    /// Another device: this GPU is lost, and the requested episode has not started.
    Elsewhere(Failure),
}

impl Campaign<'_> {
    /// Works on every unfinished episode, and ends the run.
    fn work(self, history: &History) -> Result<(), Failure> {
        let mut live = LiveView::stderr();
        live.resume(history);
        let tasks = self.settings.tasks();
        let mut plan = plan(self.settings);
        schedule(&mut plan, |task| tasks[task].level);
        let shared = Shared {
            tasks,
            policies: Policies::open(
                self.settings.policies()?,
                &self.settings.remote,
                &self.settings.base_urls,
                &self.stop,
                Some(self.printer),
            )?
            .with_engines(
                &Host::beside(&self.benches[..1], None),
                &self.benches[0].judge.config().cache,
            )?,
            history,
            plan: Mutex::new(plan),
            live: Mutex::new(live),
            refused: Mutex::default(),
            degenerate: Mutex::default(),
            lost: Mutex::default(),
            fatal: Mutex::new(None),
        };
        let done = self.workers(&shared);
        lock(&shared.live).finish();
        let fatal = lock(&shared.fatal).take();
        let failed = done.err().or(fatal).or_else(|| self.left_over(&shared));
        let outcome = match (&failed, self.broken()?) {
            (Some(failure), _) => RunOutcome::Failed { message: failure.message.clone() },
            (None, _) if self.stop.load(Ordering::SeqCst) => RunOutcome::Interrupted,
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

    /// A failure if episodes of a lost GPU are left and no worker can take them.
    fn left_over(&self, shared: &Shared<'_>) -> Option<Failure> {
        let left = lock(&shared.plan).len();
        if left == 0 || self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let message = format!("failed to run {left} episodes: their GPU was lost");
        Some(Failure::infrastructure(
            message,
            "resume the run with `--resume` when the GPU is back".to_owned(),
        ))
    }

    /// The message of an episode that ended with an infrastructure failure; such a run can be
    /// resumed.
    fn broken(&self) -> Result<Option<String>, Failure> {
        let history = History::read(&RunReader::open(&self.dir)?)?;
        Ok(history.episodes.values().find_map(|episode| match &episode.end.as_ref()?.outcome {
            Outcome::Infrastructure { message } => Some(message.clone()),
            _ => None,
        }))
    }

    fn workers(&self, shared: &Shared<'_>) -> Result<(), Failure> {
        let pools: Vec<_> = self.benches.iter().map(|b| SessionPool::new(&b.judge)).collect();
        let places = self
            .benches
            .iter()
            .zip(&pools)
            .map(|(bench, pool)| {
                let (skill, profile) = (self.settings.skill.as_deref(), self.settings.profile);
                DeviceContext::new(bench, pool, skill, profile)
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let jobs = self.settings.jobs.map_or_else(
            || places.iter().map(|place| jobs_on(&place.facts)).sum(),
            |jobs| jobs as usize,
        );
        let workers = jobs.max(places.len());
        let started = Instant::now();
        std::thread::scope(|scope| {
            for place in places.iter().cycle().take(workers) {
                scope.spawn(move || {
                    if let Err(failure) = self.worker(shared, place) {
                        // The others end their calls and stop.
                        lock(&shared.fatal).get_or_insert(failure);
                        self.stop.store(true, Ordering::SeqCst);
                    }
                });
            }
        });
        self.benches.iter().try_for_each(|bench| self.tell_use(shared, bench, started.elapsed()))
    }

    /// Records how busy a GPU was. More jobs could use the idle share.
    fn tell_use(
        &self,
        shared: &Shared<'_>,
        bench: &JudgeHost,
        of: Duration,
    ) -> Result<(), Failure> {
        let used = bench.judge.device_use();
        if bench.device() == "cpu" || used.alone.is_zero() {
            return Ok(());
        }
        let text = device_use::describe(&bench.device(), &used, of);
        self.append(shared, &Event::Note { episode: None, level: NoteLevel::Info, text })
    }

    fn worker(&self, shared: &Shared<'_>, place: &DeviceContext<'_>) -> Result<(), Failure> {
        while !self.stop.load(Ordering::SeqCst) {
            let Some(planned) = lock(&shared.plan).pop_front() else { break };
            let Some(start) = self.start(shared.history, planned.id)? else { continue };
            if let Next::Elsewhere(failure) = self.episode(shared, place, planned, start)? {
                return self.retire(shared, place, planned, failure);
            }
        }
        Ok(())
    }

    /// Ends a worker whose GPU is lost. A worker of another device takes the episode, if there is
    /// one.
    fn retire(
        &self,
        shared: &Shared<'_>,
        place: &DeviceContext<'_>,
        planned: Planned,
        failure: Failure,
    ) -> Result<(), Failure> {
        let text = format!("{}; the other devices continue", failure.message);
        let mut lost = lock(&shared.lost);
        let first = lost.insert(place.facts.device.clone());
        if lost.len() == self.benches.len() {
            return Err(failure);
        }
        drop(lost);
        lock(&shared.plan).push_front(planned);
        if first {
            let level = NoteLevel::Warning;
            self.append(shared, &Event::Note { episode: None, level, text })?;
        }
        Ok(())
    }

    fn episode(
        &self,
        shared: &Shared<'_>,
        place: &DeviceContext<'_>,
        planned: Planned,
        start: Start,
    ) -> Result<Next, Failure> {
        let task = &shared.tasks[planned.task];
        if lock(&shared.refused).contains(&planned.task) {
            return Ok(Next::Here);
        }
        if let Err(error) = task.facts() {
            let (message, hint) = (error.to_string(), Some(error.hint().to_owned()));
            self.refuse(shared, planned, Refusal { message, hint, degenerate: Vec::new() })?;
            return Ok(Next::Here);
        }
        let judge = PoolJudge::new(place.pool, task, place.facts.clone(), &self.stop);
        match judge.open() {
            Ok(()) => {}
            Err(error @ JudgeError::DeviceLost { .. }) => return Ok(Next::Elsewhere(error.into())),
            Err(error) => {
                let Some(refusal) = Refusal::of(&error) else { return Err(error.into()) };
                self.refuse(shared, planned, refusal)?;
                return Ok(Next::Here);
            }
        }
        self.warn(shared, planned.task, &place.pool.degenerate(task))?;
        let policy = &self.settings.policies[planned.policy];
        let path =
            results::workspace(&self.dir, self.settings, &task.name, policy, planned.attempt);
        let workspace = place.workspace(&path, task)?;
        let setup = self.setup(task, planned, place)?;
        let parts = Parts {
            id: planned.id,
            briefing: Briefing {
                task: task.name.clone(),
                reference: task.source.clone(),
                skill: place.skill.clone(),
                device: place.facts.clone(),
                profile: setup.profile,
                seed: setup.seed,
                turns: setup.budget.turns,
            },
            setup,
            workspace: &workspace,
            shell: &place.shell,
            judge: &judge,
            record: &self.record,
            observer: &|event| lock(&shared.live).observe(event),
            stop: &self.stop,
        };
        let mut policy = shared.policies.make(planned.policy, &task.name)?;
        let run = episode::run(&parts, policy.as_mut(), start);
        place.pool.finished(task);
        run?;
        if let Some(refusal) = judge.refusal() {
            self.refuse(shared, planned, refusal.clone())?;
        }
        Ok(Next::Here)
    }

    /// Warns once that no reward can be earned on a task.
    fn warn(&self, shared: &Shared<'_>, task: usize, reasons: &[Objection]) -> Result<(), Failure> {
        let Some(text) = judging::nothing_to_earn(&shared.tasks[task].name, reasons) else {
            return Ok(());
        };
        if lock(&shared.degenerate).insert(task) {
            let level = NoteLevel::Warning;
            self.append(shared, &Event::Note { episode: None, level, text })?;
        }
        Ok(())
    }

    /// Records once that a task cannot be judged.
    fn refuse(
        &self,
        shared: &Shared<'_>,
        planned: Planned,
        refusal: Refusal,
    ) -> Result<(), Failure> {
        let Refusal { message, hint, degenerate } = refusal;
        if !lock(&shared.refused).insert(planned.task) {
            return Ok(());
        }
        let task = shared.tasks[planned.task].name.clone();
        self.append(shared, &Event::TaskRefused { task, message, hint, degenerate })
    }

    /// Where an episode starts; `None` if it has ended.
    fn start(&self, history: &History, id: EpisodeId) -> Result<Option<Start>, Failure> {
        let Some(recorded) = history.episodes.get(&id) else { return Ok(Some(Start::Fresh)) };
        Ok(episode::resume_from(&RunReader::open(&self.dir)?, recorded)?)
    }

    fn setup(
        &self,
        task: &Task,
        planned: Planned,
        place: &DeviceContext<'_>,
    ) -> Result<EpisodeSetup, Failure> {
        let settings = self.settings;
        Ok(EpisodeSetup {
            task: task.name.clone(),
            source: self.record.put_blob(task.source.as_bytes())?,
            skill: Some(self.record.put_blob(place.skill.as_bytes())?),
            policy: settings.policies[planned.policy].clone(),
            device: place.facts.device.clone(),
            profile: settings.profile,
            // Attempts differ; everything else about them is the same.
            seed: settings.seed.wrapping_add(u64::from(planned.attempt)),
            attempt: planned.attempt,
            level: task.level.map(|level| format!("level{level}")),
            budget: Budget {
                turns: Some(settings.max_turns),
                seconds: settings.max_seconds,
                tokens: settings.max_tokens,
                device_seconds: settings.max_device_seconds,
            },
        })
    }

    fn append(&self, shared: &Shared<'_>, event: &Event) -> Result<(), Failure> {
        self.record.append(event)?;
        lock(&shared.live).observe(event);
        Ok(())
    }
}

/// The guarded state stays usable after a panic of another worker.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<EpisodeError> for Failure {
    fn from(error: EpisodeError) -> Self {
        let message = chain(&error);
        match error {
            EpisodeError::Record(error) => error.into(),
            EpisodeError::Read(error) => error.into(),
            EpisodeError::Workspace(error) => {
                use warpwright_agent::confined_fs::FileError;
                use warpwright_agent::workspace::WorkspaceError;
                match &error {
                    WorkspaceError::Make { source, .. }
                    | WorkspaceError::File { source: FileError::System { source, .. }, .. } => {
                        Self { message, ..Self::io("use the workspace", source) }
                    }
                    WorkspaceError::File { .. } => Self::infrastructure(message, None),
                }
            }
            EpisodeError::Diverged { .. } => {
                let hint = "resume with the version of the program that started the run, or start a new run";
                Self::infrastructure(message, hint.to_owned())
            }
        }
    }
}
