//! Runs the episodes of `optimize` and `eval`: from the command's arguments to a campaign, whose events
//! are shown as they happen.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwright_record::event::Event;
use warpwright_record::history::History;
use warpwright_record::libraries::LibrarySet;
use warpwright_record::verdict::{Profile, Tier};
use warpwright_report::live::LiveView;
use warpwright_rollout::campaign::{self, Caller, CampaignObserver};
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::judge_host::{HostFiles, JudgeOptions};
use warpwright_rollout::remote::BaseUrls;
use warpwright_rollout::settings::{Purpose, Settings, StoredTask, VERSION, read_skill};
use warpwright_task::Task;

use crate::args::{BaselinesArg, Common, Episodes, IsolationArg, TierArg};
use crate::commands::judge::command;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{interrupt, judging};

/// The settings that a command line gives a run. The policies have absolute names.
pub(crate) fn settings(
    purpose: Purpose,
    args: &Episodes,
    common: &Common,
    tasks: &[Task],
    policies: Vec<String>,
    (profile, max_turns): (Profile, u32),
) -> Result<Settings, Failure> {
    let skill = args.skill.as_deref().map(|path| read_skill(path, profile)).transpose()?;
    Ok(Settings {
        version: VERSION,
        purpose,
        suite: args.tasks.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        tasks: tasks.iter().map(StoredTask::new).collect(),
        policies,
        attempts: args.attempts,
        jobs: args.jobs,
        devices: Vec::new(),
        profile,
        dtype: tasks.first().and_then(Task::dtype),
        fit: false,
        seed: common.seed,
        all_baselines: common.host.baselines == BaselinesArg::All,
        require_full_isolation: common.host.require_isolation == IsolationArg::Full,
        require_tier: common.require_tier.and_then(TierArg::required),
        memory_limit: common.memory_limit.map(|limit| limit.0),
        libraries: common.libraries.map(LibrarySet::list).unwrap_or_default(),
        forbid_libraries: common.libraries.is_some_and(LibrarySet::forbids),
        include_degenerate: false,
        skill,
        max_turns: args.max_turns.unwrap_or(max_turns),
        max_seconds: args.max_minutes.map(|minutes| minutes * 60.0),
        max_tokens: args.max_tokens,
        max_device_seconds: args.max_device_minutes.map(|minutes| minutes * 60.0),
        remote: args.remote.options(),
        base_urls: BaseUrls::new(),
    })
}

/// Holds out as many workloads of each task as the command line says.
pub(crate) fn hold_out(tasks: Vec<Task>, args: &Episodes, seed: u64) -> Result<Vec<Task>, Failure> {
    let hold_out = |task: Task| {
        // The run reports sources that are not tasks.
        if task.facts().is_err() {
            return Ok(task);
        }
        let held_out = task.hold_out(args.held_out_shapes, seed);
        held_out.map_err(|error| Failure::usage(error.to_string(), error.hint().to_owned()))
    };
    tasks.into_iter().map(hold_out).collect()
}

/// Starts a run in a new folder and works on it to its end.
pub(crate) fn begin(
    settings: Settings,
    dir: &Path,
    common: &Common,
    options: JudgeOptions,
    printer: Printer,
) -> Result<Settings, Failure> {
    with_caller(&judging::files(&common.host), printer, |caller| {
        campaign::begin(settings, dir, &common.device, options, caller)
    })
}

/// The first option of how candidates are judged that the command line gives otherwise than a run has it, and what the
/// run has.
fn otherwise(settings: &Settings, common: &Common) -> Option<(&'static str, String)> {
    let limit = common.memory_limit.map(|limit| limit.0);
    if limit.is_some() && limit != settings.memory_limit {
        let was = settings.memory_limit.map_or("none".to_owned(), |limit| format!("{limit} bytes"));
        return Some(("--memory-limit", was));
    }
    let known = settings.library_set();
    if common.libraries.is_some_and(|wanted| wanted != known) {
        return Some(("--libraries", known.rule()));
    }
    let tier = common.require_tier.map(TierArg::required);
    if tier.is_some_and(|tier| tier != settings.require_tier) {
        return Some((
            "--require-tier",
            settings.require_tier.map_or("any", Tier::name).to_owned(),
        ));
    }
    None
}

/// Resumes the run in `dir`.
pub(crate) fn resume(
    settings: &Settings,
    dir: &Path,
    common: &Common,
    force: bool,
    printer: Printer,
) -> Result<(), Failure> {
    if let Some((option, was)) = otherwise(settings, common) {
        let message = format!(
            "failed to resume the run in {}: {option} differs from what it was started with ({was})",
            dir.display()
        );
        let hint = format!("leave out {option}: a run keeps the rules that it was started with");
        return Err(Failure::usage(message, hint));
    }
    let files = judging::files(&common.host);
    with_caller(&files, printer, |caller| campaign::resume(settings, dir, force, caller))
}

/// Runs `run` with what a campaign needs of this program: events are shown, and an interrupt stops it. At most once
/// per process.
pub(crate) fn with_caller<T>(
    files: &HostFiles,
    printer: Printer,
    run: impl FnOnce(&Caller<'_>) -> Result<T, RolloutError>,
) -> Result<T, Failure> {
    let observer = Shown(Mutex::new(None));
    let caller = Caller {
        files,
        command: command(),
        stop: interrupt::watch(printer)?,
        notice: printer.notice(),
        observer: &observer,
    };
    Ok(run(&caller)?)
}

/// Shows the events of a campaign on standard error.
struct Shown(Mutex<Option<LiveView>>);

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Option<LiveView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CampaignObserver for Shown {
    fn resumed(&self, history: &History) {
        let mut live = LiveView::stderr();
        live.resume(history);
        *self.lock() = Some(live);
    }

    fn observe(&self, event: &Event) {
        if let Some(live) = &mut *self.lock() {
            live.observe(event);
        }
    }

    fn finished(&self) {
        if let Some(mut live) = self.lock().take() {
            live.finish();
        }
    }
}
