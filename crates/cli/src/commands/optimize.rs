//! `warpwright optimize TASK...`: policies write kernels, the judge verifies and times them.

use std::path::{Path, PathBuf};

use warpwright_agent::episode::DEFAULT_TURNS;
use warpwright_record::reader::RunReader;
use warpwright_rollout::settings::{Purpose, Settings};
use warpwright_rollout::{policies, tasks};
use warpwright_task::Task;

use super::optimize_model;
use crate::args::Optimize;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{episodes, judging, results};

pub(crate) fn run(args: &Optimize, printer: Printer) -> Result<u8, Failure> {
    let whole = &args.whole;
    if args.episodes.resume.is_some() && (whole.is_named() || whole.inputs.is_some()) {
        let message = "failed to resume: a resumed run has its tasks";
        let hint = "leave out --model, --hf and --inputs".to_owned();
        return Err(Failure::usage(message, hint));
    }
    if let Some(dir) = &args.episodes.resume {
        let settings = Settings::from_config(&RunReader::open(dir)?.header().config)?;
        episodes::resume(&settings, dir, &args.common, args.episodes.force, printer)?;
        return results::present(dir, &settings, printer);
    }
    if args.whole.is_named() {
        return optimize_model::run(args, printer);
    }
    if args.episodes.tasks.is_empty() {
        let hint =
            "name a .py, .jsonl or .parquet file or a folder, or use `--resume RUN_DIR`".to_owned();
        return Err(Failure::usage("failed to find a task: the command names none", hint));
    }
    let mut tasks = tasks::read_all(&args.episodes.tasks, &|text| printer.say(text))?;
    if let Some(dtype) = args.dtype {
        tasks = dtype.cast_all(tasks)?;
    }
    if args.backward {
        tasks = tasks.into_iter().map(Task::with_backward).collect();
    }
    let tasks = episodes::hold_out(tasks, &args.episodes, args.common.seed)?;
    let names = policies::check(&args.episodes.policy, &args.episodes.remote.options(), &tasks)?;
    let dir = args.episodes.out.clone().unwrap_or_else(|| default_folder(&tasks));
    let profile = args.profile.into();
    let mut settings = episodes::settings(
        Purpose::Optimize,
        &args.episodes,
        &args.common,
        &tasks,
        names,
        (profile, DEFAULT_TURNS),
    )?;
    settings.fit = args.fit;
    settings.include_degenerate = true;
    // Whoever names a task wants to see what becomes of it.
    let options = judging::options(&args.common, profile).of_any_task();
    let settings = episodes::begin(settings, &dir, &args.common, options, printer)?;
    results::present(&dir, &settings, printer)
}

/// A new folder for a run, named after its first task and the time.
pub(crate) fn default_folder(tasks: &[Task]) -> PathBuf {
    let name = tasks.first().map_or("run", |task| task.name.as_str());
    named_folder(name)
}

/// A new folder for a run, with a name and the time.
pub(crate) fn named_folder(name: &str) -> PathBuf {
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
    let base = Path::new("warpwright-runs").join(format!("{name}-{time}"));
    let numbered = (2..).map(|n| base.with_file_name(format!("{name}-{time}-{n}")));
    std::iter::once(base.clone()).chain(numbered).find(|path| !path.exists()).unwrap_or(base)
}
