//! `warpwright eval --suite PATH`: evaluates policies on a suite.

use warpwright_record::reader::RunReader;
use warpwright_rollout::settings::{Purpose, Settings};
use warpwright_rollout::{policies, tasks};
use warpwright_task::Task;

use crate::args::Eval;
use crate::args::shard::Shard;
use crate::commands::optimize::named_folder;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{episodes, evaluation, judging};

/// Default turns of an episode: the paper's limit in evaluation.
const DEFAULT_TURNS: u32 = 200;

pub(crate) fn run(args: &Eval, printer: Printer) -> Result<u8, Failure> {
    if let Some(dir) = &args.episodes.resume {
        let settings = Settings::from_config(&RunReader::open(dir)?.header().config)?;
        episodes::resume(&settings, dir, &args.common, args.episodes.force, printer)?;
        return evaluation::present(dir, &dir.join("report.html"), &args.export, printer);
    }
    let mut paths = args.suite.clone();
    paths.extend(args.episodes.tasks.iter().cloned());
    let Some(first) = paths.first() else {
        let hint =
            "name a suite: `--suite suites/starter`, a KernelBench checkout, .jsonl or .parquet; \
                    or use `--resume RUN_DIR`"
                .to_owned();
        return Err(Failure::usage("failed to find a suite: the command names none", hint));
    };
    let name = first.file_stem().map_or("eval".into(), |name| name.to_string_lossy().into_owned());
    let suite = tasks::read_suite(&paths, &|text| printer.say(text))?;
    let mut tasks = selected(suite, args)?;
    if let Some(dtype) = args.dtype {
        tasks = dtype.cast_all(tasks)?;
    }
    if args.backward {
        tasks = tasks.into_iter().map(Task::with_backward).collect();
    }
    let tasks = episodes::hold_out(tasks, &args.episodes, args.common.seed)?;
    let names = policies::check(&args.episodes.policy, &args.episodes.remote.options(), &tasks)?;
    let dir = args.episodes.out.clone().unwrap_or_else(|| named_folder(&name));
    let profile = args.profile.into();
    let mut settings = episodes::settings(
        Purpose::Eval,
        &args.episodes,
        &args.common,
        &tasks,
        names,
        (profile, DEFAULT_TURNS),
    )?;
    settings.suite = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    settings.fit = args.fit;
    settings.include_degenerate = args.include_degenerate;
    let options = judging::options(&args.common, profile);
    let options = if args.include_degenerate { options.of_any_task() } else { options };
    episodes::begin(settings, &dir, &args.common, options, printer)?;
    evaluation::present(&dir, &dir.join("report.html"), &args.export, printer)
}

/// The tasks of the levels and of the shard that the command names.
fn selected(tasks: Vec<Task>, args: &Eval) -> Result<Vec<Task>, Failure> {
    let wanted = |task: &Task| {
        args.levels.is_empty() || task.level.is_some_and(|level| args.levels.contains(&level))
    };
    let mut tasks: Vec<Task> = tasks.into_iter().filter(wanted).collect();
    if let Some(Shard { this, of }) = args.shard {
        // Every `of`th, so that each shard has tasks of every kind.
        tasks = tasks.into_iter().skip(this - 1).step_by(of).collect();
    }
    if tasks.is_empty() {
        let hint = "levels are folders named level1, level2, ..., or a `level` column".to_owned();
        return Err(Failure::usage(
            "failed to find a task: none matches `--levels` and `--shard`",
            hint,
        ));
    }
    Ok(tasks)
}
