//! `warpwright replay VERDICT`.

use std::io::Read;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;
use warpwright_judge::{Degenerate, JudgeError, StoredPlan, read_plan_file, stored_plan_file};
use warpwright_record::blob::BlobHash;
use warpwright_record::event::EpisodeId;
use warpwright_record::history::{Episode, History};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Profile, Tier, VERDICT_VERSION, Verdict, WorkloadVerdict};
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::judge_host::{JudgeHost, JudgeOptions, RequiredTier};

use warpwright_task::Task;

use crate::args::IsolationArg;
use crate::args::replay::ReplayArgs;
use crate::exit;
use crate::failure::{Failure, chain};
use crate::judging;
use crate::printer::Printer;
use crate::replayed::Replayed;

/// Most bytes of a verdict's JSON.
const MAX_VERDICT_BYTES: u64 = 64 << 20;
const JUDGE_AGAIN: &str =
    "judge the candidate again, with `--require-tier device` to be sure of a plan";

pub(crate) fn run(args: &ReplayArgs, printer: Printer) -> Result<u8, Failure> {
    let before = verdict(args)?;
    let named = plans_of(&before, args)?;
    let files = judging::files(&args.host);
    let read = |(task, hash): &(String, BlobHash)| {
        Ok((stored(args, &before, (task, *hash), &files.cache)?, *hash))
    };
    let plans = named.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let (profile, seed) = terms(&plans)?;
    let options = JudgeOptions {
        profile,
        seed,
        baselines: args.host.baselines.set(),
        require_full_isolation: args.host.require_isolation == IsolationArg::Full,
        degenerate: Degenerate::Judged,
        // Where there is no device tier, opening fails with the reason.
        tier: RequiredTier::Always(Tier::Device),
        share_baselines: false,
        memory_limit: None,
        libraries: before.libraries.allowed.iter().collect(),
        window_ms: None,
    };
    let host = JudgeHost::open(&files, args.device, options, &printer.notice());
    let host = host.map_err(|error| match error {
        // There is no other tier to ask for.
        RolloutError::Judge(error @ JudgeError::NoDeviceTier { .. }) => {
            Failure::infrastructure(chain(&error), error.hint().map(str::to_owned))
        }
        other => other.into(),
    })?;
    if host.judge.is_void(&before).map_err(RolloutError::from)? {
        printer.label(
            "warning",
            "33",
            "the verdict is void: a repeat in a new GPU context disagreed",
        );
    }
    let after = match plans.as_slice() {
        [(stored, hash)] if before.workloads.is_empty() => {
            host.judge.task(&stored.task())?.replay(stored, *hash, before.stage)?
        }
        plans => {
            let of = (before.workloads.len(), before.stage);
            host.judge.replay_workloads(&before.task, plans, of)?
        }
    };
    let replayed = Replayed::new(&before, &after);
    printer.data(&replayed.table());
    printer.object(&replayed);
    Ok(if after.verified { exit::OK } else { exit::NOT_VERIFIED })
}

/// The verdict that the command names.
fn verdict(args: &ReplayArgs) -> Result<Verdict, Failure> {
    let path = &args.verdict;
    let verdict = if path.is_dir() { of_run(args)? } else { of_file(path)? };
    if verdict.version > VERDICT_VERSION {
        let message = format!(
            "failed to read the verdict {}: its version is {}, and this program reads version {VERDICT_VERSION}",
            path.display(),
            verdict.version
        );
        let hint = "use the version of the program that wrote it".to_owned();
        return Err(Failure::record_version(message, hint));
    }
    Ok(verdict)
}

/// The verdict of an episode.
fn of_run(args: &ReplayArgs) -> Result<Verdict, Failure> {
    let history = History::read(&RunReader::open(&args.verdict)?)?;
    let run = args.verdict.display();
    let episode = choose(&history, args)?;
    episode.standing().cloned().ok_or_else(|| {
        let message =
            format!("failed to replay a verdict of {run}: the episode has none that counts");
        Failure::usage(message, JUDGE_AGAIN.to_owned())
    })
}

fn choose<'h>(history: &'h History, args: &ReplayArgs) -> Result<&'h Episode, Failure> {
    let (run, count) = (args.verdict.display(), history.episodes.len());
    let chosen = match args.episode {
        Some(number) => history.episodes.get(&EpisodeId(number)),
        None => history.episodes.values().next().filter(|_| count == 1),
    };
    chosen.ok_or_else(|| {
        let message = format!("failed to choose an episode: {run} has {count} episodes");
        let hint =
            format!("name one with `--episode N`; `warpwright trajectory show {run}` lists them");
        Failure::usage(message, hint)
    })
}

/// The verdict in a file: alone, or in what `judge --json` or the HTTP API gives.
pub(super) fn of_file(path: &Path) -> Result<Verdict, Failure> {
    let unusable = |why: String| {
        let message = format!("failed to read a verdict from {}: {why}", path.display());
        let hint = "name the output of `warpwright judge --json`, or a run folder".to_owned();
        Failure::usage(message, hint)
    };
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|e| unusable(e.to_string()))?;
    let read = file.take(MAX_VERDICT_BYTES + 1).read_to_end(&mut text);
    read.map_err(|e| unusable(e.to_string()))?;
    if text.len() as u64 > MAX_VERDICT_BYTES {
        return Err(unusable(format!("it exceeds {} MiB", MAX_VERDICT_BYTES >> 20)));
    }
    let mut object: Value = serde_json::from_slice(&text).map_err(|e| unusable(e.to_string()))?;
    if let Some(within) = object.get_mut("verdict") {
        object = within.take();
    }
    serde_json::from_value(object).map_err(|e| unusable(e.to_string()))
}

/// The launch plans of a verdict, each with the name of its task: of each workload that was judged, if there are
/// several.
fn plans_of(verdict: &Verdict, args: &ReplayArgs) -> Result<Vec<(String, BlobHash)>, Failure> {
    let missing = |of: &str, tier: Tier| {
        let why = match tier {
            Tier::Host => "the candidate was judged in the host tier: there is no plan",
            Tier::Device => "the verdict names no launch plan: it could not be recorded or stored",
        };
        Failure::usage(format!("failed to replay the verdict: {of}{why}"), JUDGE_AGAIN.to_owned())
    };
    if verdict.workloads.is_empty() {
        let plan = verdict.plan.ok_or_else(|| missing("", verdict.tier))?;
        return Ok(vec![(verdict.task.clone(), plan)]);
    }
    if let Some(path) = &args.plan {
        let message = format!(
            "failed to use the launch plan {}: the verdict has one for each of several workloads",
            path.display()
        );
        let hint = "name the cache folder of the judge with `--cache DIR`";
        return Err(Failure::usage(message, hint.to_owned()));
    }
    let judged = verdict.workloads.iter().filter(|workload| workload.refused.is_none());
    let one = |workload: &WorkloadVerdict| {
        let name: String = workload.name.chars().filter(|c| !c.is_control()).take(64).collect();
        let of = format!("workload {name}: ");
        let plan = workload.plan.ok_or_else(|| missing(&of, workload.tier))?;
        Ok((Task::workload_name(&verdict.task, &workload.name), plan))
    };
    judged.map(one).collect()
}

/// The launch plan of this name, which must be of the verdict's candidate and this task.
fn stored(
    args: &ReplayArgs,
    before: &Verdict,
    (task, hash): (&str, BlobHash),
    cache: &Path,
) -> Result<StoredPlan, Failure> {
    let path = find(args, hash, cache)?;
    let file = read_plan_file(&path).map_err(|e| unread(&path, &e))?;
    let stored = StoredPlan::read(&file, hash).map_err(|error| {
        let message = format!("failed to use the launch plan {}: {error}", path.display());
        Failure::usage(message, error.hint().to_owned())
    })?;
    if stored.candidate() == before.candidate && stored.task().name == task {
        return Ok(stored);
    }
    let message = format!(
        "failed to use the launch plan {}: it is of candidate {} for task {}, and the verdict is on candidate {} for \
         task {task}",
        path.display(),
        stored.candidate(),
        stored.task().name,
        before.candidate
    );
    Err(Failure::usage(message, JUDGE_AGAIN.to_owned()))
}

/// Profile and seed under which all plans were recorded.
fn terms(plans: &[(StoredPlan, BlobHash)]) -> Result<(Profile, u64), Failure> {
    let unusable = |why: &str| {
        Failure::usage(format!("failed to replay the verdict: {why}"), JUDGE_AGAIN.to_owned())
    };
    let mut terms = plans.iter().map(|(stored, _)| (stored.profile(), stored.seed()));
    let first = terms.next().ok_or_else(|| unusable("no workload was judged"))?;
    if terms.any(|other| other != first) {
        return Err(unusable("its launch plans were recorded under different profiles or seeds"));
    }
    Ok(first)
}

/// The file of the launch plan.
fn find(args: &ReplayArgs, hash: BlobHash, cache: &Path) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.plan {
        return Ok(path.clone());
    }
    let run = args.verdict.is_dir().then(|| hash.path(&args.verdict));
    let places: Vec<PathBuf> = run.into_iter().chain([stored_plan_file(cache, hash)]).collect();
    if let Some(found) = places.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let tried: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
    let message = format!(
        "failed to find the launch plan of the verdict: there is no {}",
        tried.join(" and no ")
    );
    let hint = "name the cache folder of the judge with `--cache DIR`, or a copy of the file with `--plan FILE`; old \
                plans leave the cache, and then the candidate must be judged again";
    Err(Failure::usage(message, hint.to_owned()))
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("failed to read the launch plan {}: {error}", path.display());
    Failure::usage(message, "name the plan file that was stored with the verdict".to_owned())
}
