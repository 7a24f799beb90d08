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
use warpwright_record::verdict::{Tier, VERDICT_VERSION, Verdict};
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::judge_host::{JudgeHost, JudgeOptions, RequiredTier};

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
    let hash = plan_of(&before)?;
    let files = judging::files(&args.host);
    let path = find(args, hash, &files.cache)?;
    let file = read_plan_file(&path).map_err(|e| unread(&path, &e))?;
    let stored = StoredPlan::read(&file, hash).map_err(|error| {
        let message = format!("failed to use the launch plan {}: {error}", path.display());
        Failure::usage(message, error.hint().to_owned())
    })?;
    if stored.candidate() != before.candidate || stored.task().name != before.task {
        let message = format!(
            "failed to use the launch plan {}: it is of candidate {} for task {}, and the verdict is on candidate {} \
             for task {}",
            path.display(),
            stored.candidate(),
            stored.task().name,
            before.candidate,
            before.task
        );
        return Err(Failure::usage(message, JUDGE_AGAIN.to_owned()));
    }
    let options = JudgeOptions {
        profile: stored.profile(),
        seed: stored.seed(),
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
    let task = stored.task();
    let mut session = host.judge.task(&task)?;
    let after = session.replay(&stored, hash, before.stage)?;
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
fn of_file(path: &Path) -> Result<Verdict, Failure> {
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

/// Name of the launch plan of a verdict.
fn plan_of(verdict: &Verdict) -> Result<BlobHash, Failure> {
    verdict.plan.ok_or_else(|| {
        let why = match verdict.tier {
            _ if !verdict.workloads.is_empty() => {
                "its task has several workloads, and it is replayed only where it has one"
            }
            Tier::Host => "the candidate was judged in the host tier: there is no plan",
            Tier::Device => "the verdict names no launch plan: it could not be recorded or stored",
        };
        Failure::usage(format!("failed to replay the verdict: {why}"), JUDGE_AGAIN.to_owned())
    })
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
