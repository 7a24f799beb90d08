//! `warpwright export RUN [TASK]`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;
use warpwright_export::{ExportError, Package, Source, TaskSource, TensorForm, WorkloadSource};
use warpwright_judge::{StoredPlan, is_void, read_plan_file, stored_plan_file};
use warpwright_record::blob::BlobHash;
use warpwright_record::history::{Episode, History, best};
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::{Profile, Tier, VERDICT_VERSION, Verdict};
use warpwright_rollout::error::RolloutError;
use warpwright_rollout::folders;
use warpwright_task::{Mode, Task};

use crate::args::export::ExportArgs;
use crate::commands::replay;
use crate::contract::VERSION;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

const JUDGE_FOR_IT: &str = "judge the candidate with `warpwright judge model.py --candidate workspace/ \
                            --require-tier device --out RUN`, and export RUN";

/// Output of `export`.
#[derive(Debug, Serialize)]
struct Exported<'a> {
    version: u32,
    /// Folder of the package.
    out: String,
    package: &'a str,
    digest: &'a str,
    operators: &'a [String],
    classes: &'a [String],
    checks: Vec<Check>,
    left_out: Vec<LeftOut>,
}

/// What was checked before the package was written.
#[derive(Debug, Serialize)]
struct Check {
    task: String,
    name: &'static str,
    detail: String,
}

/// A task of the run that is not in the package.
#[derive(Debug, Serialize)]
struct LeftOut {
    task: String,
    reason: String,
}

/// A task that can be exported.
struct Chosen {
    verdict: Verdict,
    /// Plans by the name of their workload.
    plans: Vec<(String, StoredPlan)>,
}

pub(crate) fn run(args: &ExportArgs, printer: Printer) -> Result<u8, Failure> {
    must_be_new(&args.out)?;
    let cache = folders::cache(args.cache.as_deref());
    let verdicts = verdicts(args, &cache)?;
    let several = args.task.is_none() && verdicts.len() > 1;
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    for verdict in verdicts {
        let task = verdict.task.clone();
        match choose(args, verdict, &cache) {
            Ok(one) => chosen.push(one),
            Err(failure) if several => left_out.push(LeftOut { task, reason: failure.message }),
            Err(failure) => return Err(failure),
        }
    }
    let Some(first) = chosen.first() else { return Err(none_left(args, &left_out)) };
    let name = args.name.clone().unwrap_or_else(|| match chosen.len() {
        1 => Package::default_name(&first.verdict.task),
        _ => Package::default_name(&name_of(&args.run)),
    });
    let tasks = chosen.iter().map(source).collect::<Result<_, _>>();
    let package =
        tasks.and_then(|tasks| Package::of(&Source { package: &name, tasks }, args.layout.into()));
    let package = package.map_err(|error| refused(&named(&chosen), &error))?;
    let written = package.write(&args.out);
    written.map_err(|error| Failure::io("write the package", &error))?;
    for LeftOut { task, reason } in &left_out {
        printer.label("note", "36", &format!("{task} is left out: {reason}"));
    }
    let (out, checks) = (args.out.display().to_string(), checks(&chosen));
    let (operators, classes) = (&package.operators[..], &package.classes[..]);
    let mut text = format!("{}: package {}\n", out, package.name);
    for (operator, class) in operators.iter().zip(classes) {
        let _ = writeln!(text, "  {operator}  {}.{class}", package.name);
    }
    let _ = writeln!(text, "pip install {out} && python -m {}.check", package.name);
    printer.data(&text);
    let digest = &package.digest;
    let package = &package.name;
    let version = VERSION;
    printer.object(&Exported {
        version,
        out,
        package,
        digest,
        operators,
        classes,
        checks,
        left_out,
    });
    Ok(exit::OK)
}

fn must_be_new(out: &Path) -> Result<(), Failure> {
    let is_empty = fs::read_dir(out).map_or(!out.exists(), |mut entries| entries.next().is_none());
    if is_empty {
        return Ok(());
    }
    let message = format!("failed to write the package: {} exists", out.display());
    Err(Failure::usage(message, "name a new folder with `--out DIR`".to_owned()))
}

/// The verdicts that the command names, one per task.
fn verdicts(args: &ExportArgs, cache: &Path) -> Result<Vec<Verdict>, Failure> {
    let run = &args.run;
    let found = if run.is_dir() { of_run(run, cache)? } else { vec![replay::of_file(run)?] };
    let Some(wanted) = &args.task else { return Ok(found) };
    let names: Vec<String> = found.iter().map(|verdict| verdict.task.clone()).collect();
    let found: Vec<Verdict> = found.into_iter().filter(|found| found.task == *wanted).collect();
    if found.is_empty() {
        let run = args.run.display();
        let message = format!("failed to export {wanted}: {run} has no verdict on that task");
        return Err(Failure::usage(message, format!("its tasks: {}", names.join(", "))));
    }
    Ok(found)
}

/// The best verdict on each task of a run that can be exported; of a task without one, the last.
fn of_run(run: &Path, cache: &Path) -> Result<Vec<Verdict>, Failure> {
    let history = History::read(&RunReader::open(run)?)?;
    let mut by_task: BTreeMap<&str, Vec<&Episode>> = BTreeMap::new();
    for episode in history.episodes.values() {
        if let Some(verdict) = episode.standing() {
            by_task.entry(&verdict.task).or_default().push(episode);
        }
    }
    let mut chosen = Vec::new();
    for episodes in by_task.into_values() {
        let standing: Vec<&Verdict> = episodes.iter().filter_map(|one| one.standing()).collect();
        // An episode can end with a verdict that cannot be exported, and have another one before it.
        let before =
            episodes.iter().flat_map(|one| one.verdicts()).map(|(_, given)| &given.verdict);
        let usable = match usable(&standing, cache)? {
            Some(verdict) => Some(verdict),
            None => usable(&before.collect::<Vec<_>>(), cache)?,
        };
        let verified = standing.iter().rev().find(|verdict| verdict.verified).copied();
        chosen.extend(usable.or(verified).or(standing.last().copied()).cloned());
    }
    if chosen.is_empty() {
        let message = format!("failed to export {}: the run has no verdict", run.display());
        return Err(Failure::usage(message, JUDGE_FOR_IT.to_owned()));
    }
    Ok(chosen)
}

/// The best of the verdicts that can be exported, as far as they tell by themselves.
fn usable<'a>(verdicts: &[&'a Verdict], cache: &Path) -> Result<Option<&'a Verdict>, Failure> {
    let mut found = Vec::new();
    for verdict in verdicts.iter().copied() {
        let has_plans = if verdict.workloads.is_empty() {
            verdict.plan.is_some()
        } else {
            let mut judged = verdict.workloads.iter().filter(|one| one.refused.is_none());
            judged.all(|workload| workload.plan.is_some())
        };
        let today = verdict.version == VERDICT_VERSION && verdict.tier == Tier::Device;
        if verdict.verified
            && today
            && has_plans
            && !is_void(cache, verdict).map_err(RolloutError::from)?
        {
            found.push(verdict);
        }
    }
    Ok(best(found.iter().copied()).or(found.last().copied()))
}

/// Checks a verdict, and reads its plans.
fn choose(args: &ExportArgs, verdict: Verdict, cache: &Path) -> Result<Chosen, Failure> {
    let task = &verdict.task;
    let refuse = |why: &str, cure: &str| {
        Err(Failure::usage(format!("failed to export {task}: {why}"), cure.to_owned()))
    };
    if verdict.version > VERDICT_VERSION {
        let message = format!(
            "failed to export {task}: the verdict's version is {}, and this program reads version {VERDICT_VERSION}",
            verdict.version
        );
        let hint = "use the version of the program that wrote it".to_owned();
        return Err(Failure::record_version(message, hint));
    }
    if !verdict.verified {
        let class = verdict.failure.as_ref().map(|failure| serde_json::to_value(failure.class));
        let class = class.and_then(Result::ok);
        let class = class.as_ref().and_then(serde_json::Value::as_str).unwrap_or("no result");
        return refuse(&format!("the verdict is not verified ({class})"), JUDGE_FOR_IT);
    }
    if verdict.is_by_old_rules() {
        return refuse("an earlier program judged it, by older rules", JUDGE_FOR_IT);
    }
    if is_void(cache, &verdict).map_err(RolloutError::from)? {
        let why = "the verdict is void: a repeat in a new GPU context disagreed";
        return refuse(why, JUDGE_FOR_IT);
    }
    if verdict.tier == Tier::Host {
        let why = "it was judged in the host tier, so its host code was never judged by itself, and packages hold \
                   none of it";
        return refuse(why, JUDGE_FOR_IT);
    }
    let mut plans = Vec::new();
    if let Some(plan) = verdict.plan {
        plans.push((String::new(), read_plan(args, &verdict, (task, plan), cache)?));
    }
    for workload in verdict.workloads.iter().filter(|workload| workload.refused.is_none()) {
        let Some(plan) = workload.plan else {
            return refuse(&format!("workload {} has no launch plan", workload.name), JUDGE_FOR_IT);
        };
        let of = Task::workload_name(task, &workload.name);
        plans.push((workload.name.clone(), read_plan(args, &verdict, (&of, plan), cache)?));
    }
    if plans.is_empty() {
        return refuse("the verdict names no launch plan", JUDGE_FOR_IT);
    }
    Ok(Chosen { verdict, plans })
}

/// Reads a plan from the run's folder or from the cache. It must be of the verdict's candidate and this task, which is
/// bound to a workload if there are several.
fn read_plan(
    args: &ExportArgs,
    verdict: &Verdict,
    (of, hash): (&str, BlobHash),
    cache: &Path,
) -> Result<StoredPlan, Failure> {
    let task = &verdict.task;
    let run = args.run.is_dir().then(|| hash.path(&args.run));
    let places: Vec<PathBuf> = run.into_iter().chain([stored_plan_file(cache, hash)]).collect();
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        let tried: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        let tried = tried.join(" and no ");
        let message =
            format!("failed to export {task}: its launch plan is missing: there is no {tried}");
        let hint = "name the cache folder of the judge with `--cache DIR`; old plans leave it, and then the \
                    candidate must be judged again";
        return Err(Failure::usage(message, hint.to_owned()));
    };
    let attempt = format!("export {task}: read its launch plan");
    let file = read_plan_file(path).map_err(|error| Failure::io(&attempt, &error))?;
    let stored = StoredPlan::read(&file, hash).map_err(|error| {
        let message =
            format!("failed to export {task}: its launch plan {}: {error}", path.display());
        Failure::usage(message, error.hint().to_owned())
    })?;
    if stored.candidate() != verdict.candidate {
        let message = format!("failed to export {task}: its launch plan is of another candidate");
        return Err(Failure::usage(message, JUDGE_FOR_IT.to_owned()));
    }
    let named = stored.task().name;
    if named != of {
        let message =
            format!("failed to export {task}: its launch plan is of task {named}, not {of}");
        return Err(Failure::usage(message, JUDGE_FOR_IT.to_owned()));
    }
    Ok(stored)
}

fn source(chosen: &Chosen) -> Result<TaskSource<'_>, ExportError> {
    let Chosen { verdict, plans } = chosen;
    let (_, first) = plans.first().ok_or(ExportError::NoWorkload)?;
    if plans.iter().any(|(_, plan)| plan.target() != first.target()) {
        return Err(ExportError::MixedWorkloads);
    }
    let workloads = plans.iter().map(|(name, plan)| workload(name, plan));
    Ok(TaskSource {
        name: &verdict.task,
        verdict: serde_json::to_value(verdict).unwrap_or_default(),
        candidate: &verdict.candidate,
        target: first.target(),
        trains: first.mode() == Mode::Train,
        steps: verdict.backward,
        strict: first.profile() == Profile::Strict,
        processor: first.is_host_code().then_some(verdict.fingerprint.hardware.as_str()),
        workloads: workloads.collect::<Result<_, _>>()?,
    })
}

fn workload<'a>(name: &'a str, stored: &'a StoredPlan) -> Result<WorkloadSource<'a>, ExportError> {
    let forms = stored.forms().ok_or(ExportError::NoForms)?;
    let each = |forms: &[warpwright_judge::TensorForm]| -> Vec<TensorForm> {
        let form = |form: &warpwright_judge::TensorForm| TensorForm {
            shape: form.shape.clone(),
            strides: form.strides.clone(),
            dtype: form.dtype.clone(),
        };
        forms.iter().map(form).collect()
    };
    Ok(WorkloadSource {
        name,
        reference: stored.reference(),
        plan: stored.launch_plan(),
        images: stored.images(),
        constants: stored.constants(),
        input_trees: stored.input_trees(),
        inputs: each(&forms.inputs),
        state: each(&forms.state),
        changed: forms.changed.clone(),
    })
}

fn checks(chosen: &[Chosen]) -> Vec<Check> {
    let each = chosen.iter().flat_map(|Chosen { verdict, plans }| {
        let check = |name, detail| Check { task: verdict.task.clone(), name, detail };
        let count = plans.len();
        [
            check("verified", format!("{} comparisons with the oracle", verdict.checks.len())),
            check("not_void", "no repeat disagreed".to_owned()),
            check("plans", format!("{count} launch plans, named by their hash, fit their images")),
            check("tables", "the same whatever the weights are".to_owned()),
        ]
    });
    each.collect()
}

fn named(chosen: &[Chosen]) -> String {
    let tasks: Vec<&str> = chosen.iter().map(|chosen| chosen.verdict.task.as_str()).collect();
    tasks.join(", ")
}

fn name_of(run: &Path) -> String {
    run.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn refused(tasks: &str, error: &ExportError) -> Failure {
    Failure::usage(format!("failed to export {tasks}: {error}"), error.hint().to_owned())
}

fn none_left(args: &ExportArgs, left_out: &[LeftOut]) -> Failure {
    let run = args.run.display();
    let first = left_out.first().map_or("there is no verdict", |left| left.reason.as_str());
    let message =
        format!("failed to export {run}: no task of it can be exported; the first: {first}");
    Failure::usage(message, JUDGE_FOR_IT.to_owned())
}
