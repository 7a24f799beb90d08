//! `warpwright optimize --model`: divides a whole model into tasks, optimises them, and measures the model with the
//! kernels in it.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use warpwright_agent::episode::DEFAULT_TURNS;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::whole_model::{BeforeAfter, WHOLE_MODEL_FILE, WholeModel};
use warpwright_report::html::write_whole_model;
use warpwright_report::summary::Summary;
use warpwright_report::table::table;
use warpwright_rollout::policies;
use warpwright_rollout::regions::{self, Extracted, RegionRequest};
use warpwright_rollout::settings::Purpose;

use super::optimize::named_folder;
use super::task::extract;
use crate::args::Optimize;
use crate::commands::report::width;
use crate::contract::VERSION;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::{episodes, exit, judging, results};

/// Folder of the run, below that of the model.
const RUN: &str = "run";
/// The page about the whole model.
const PAGE: &str = "whole-model.html";

/// Output of `optimize --model`.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    verified: usize,
    tasks: usize,
    run: String,
    report: Option<String>,
    whole_model: Option<&'a WholeModel>,
}

pub(super) fn run(args: &Optimize, printer: Printer) -> Result<u8, Failure> {
    if !args.episodes.tasks.is_empty() || args.backward || args.fit {
        let message = "failed to begin: a whole model takes no TASK, --backward or --fit";
        let hint = "leave them out, or leave out --model and --hf".to_owned();
        return Err(Failure::usage(message, hint));
    }
    let [device] = args.common.device[..] else {
        let hint = "name one device, e.g. `--device cuda:0`".to_owned();
        return Err(Failure::usage("failed to open the devices: a whole model uses one", hint));
    };
    let host = &args.common.host;
    let python = host.python.as_deref();
    let request = args.whole.request(device, args.dtype, args.common.seed, python)?;
    let folder = args.episodes.out.clone().unwrap_or_else(|| named_folder("model"));
    regions::check(&folder)?;
    let jail = judging::jail(host)?;
    printer.say(&format!("running {} in the jail", request.model.name()));
    let extracted = regions::extract(&jail, &request)?;
    let tasks = regions::write(&folder, &extracted)?;
    printer.say(extract::text(&extracted.regions, &tasks).trim_end());
    let run = folder.join(RUN);
    let code = optimise(args, &extracted, &run, printer)?;
    if code != exit::OK {
        return Ok(code);
    }
    let measured = measured(args, &request, &extracted, &run, printer)?;
    present(&extracted, &folder, measured.as_ref(), printer)
}

/// Policies work on the tasks.
fn optimise(
    args: &Optimize,
    extracted: &Extracted,
    run: &Path,
    printer: Printer,
) -> Result<u8, Failure> {
    let tasks = episodes::hold_out(extracted.tasks.clone(), &args.episodes, args.common.seed)?;
    let names = policies::check(&args.episodes.policy, &args.episodes.remote.options(), &tasks)?;
    let profile = args.profile.into();
    let turns = (profile, DEFAULT_TURNS);
    let mut settings =
        episodes::settings(Purpose::Optimize, &args.episodes, &args.common, &tasks, names, turns)?;
    settings.include_degenerate = true;
    let options = judging::options(&args.common, profile).of_any_task();
    episodes::begin(settings, run, &args.common, options, printer)?;
    let history = History::read(&RunReader::open(run)?)?;
    printer.say(table(&Summary::all(&history), width()).trim_end());
    let open = history.episodes.values().filter(|episode| episode.end.is_none()).count();
    Ok(if open == 0 { exit::OK } else { exit::INTERRUPTED })
}

/// The figures of the whole model; `None` if no candidate is verified.
fn measured(
    args: &Optimize,
    request: &RegionRequest,
    extracted: &Extracted,
    run: &Path,
    printer: Printer,
) -> Result<Option<WholeModel>, Failure> {
    let [device] = args.common.device[..] else { return Ok(None) };
    let options = judging::options(&args.common, args.profile.into()).of_any_task();
    let host = judging::open(&args.common, device, options, printer)?;
    let kernels = regions::final_kernels(&host.judge, run, &extracted.tasks)?;
    if kernels.is_empty() {
        return Ok(None);
    }
    printer.say(&format!("measuring {} with {} regions", request.model.name(), kernels.len()));
    let oracle = host.judge.python_folder();
    Ok(Some(regions::measure(&host.jail, request, &extracted.regions, &kernels, oracle)?))
}

/// Prints and stores the figures.
fn present(
    extracted: &Extracted,
    folder: &Path,
    measured: Option<&WholeModel>,
    printer: Printer,
) -> Result<u8, Failure> {
    let run = folder.join(RUN);
    let report = results::page(&run, printer);
    if let Some(measured) = measured {
        let text = serde_json::to_string_pretty(measured).unwrap_or_default() + "\n";
        fs_err::write(folder.join(WHOLE_MODEL_FILE), text)
            .map_err(|error| Failure::io("write the figures of the whole model", &error))?;
        printer.data(&text_of(measured));
        let page = folder.join(PAGE);
        match write_whole_model(measured, &page) {
            Ok(()) => printer.say(&format!("report: {}", page.display())),
            Err(error) => printer.say(&format!("warning: {}", chain(&error))),
        }
    } else {
        printer.data("no region has a verified candidate\n");
    }
    printer.say(&format!("folder: {}", folder.display()));
    let verified = measured.map_or(0, |measured| measured.regions.len());
    printer.object(&Told {
        version: VERSION,
        verified,
        tasks: extracted.tasks.len(),
        run: run.display().to_string(),
        report,
        whole_model: measured,
    });
    Ok(if verified > 0 { exit::OK } else { exit::NOT_VERIFIED })
}

/// Width of the bars.
const BAR: f64 = 40.0;

/// Where the time went on one input set, before and after.
fn bars(found: &WholeModel, at: usize, name: &str) -> String {
    let Some(set) = found.input_sets.get(at) else { return String::new() };
    let whole = set.profiled;
    let longest = whole.before.max(whole.after);
    let mut text = format!("{name}, time by region, before and after:\n");
    let mut rest = whole;
    let mut row = |label: &str, times: BeforeAfter| {
        for (when, time) in [("before", times.before), ("after", times.after)] {
            let share = if longest > 0.0 { (time / longest).clamp(0.0, 1.0) } else { 0.0 };
            let length = (share * BAR).round() as usize;
            let _ = writeln!(text, "  {label:<24} {when:<6} {time:9.3} ms {}", "#".repeat(length));
        }
    };
    for region in &found.times {
        let Some(times) = region.times.get(at) else { continue };
        rest.before -= times.before;
        rest.after -= times.after;
        row(&region.task, *times);
    }
    row("the rest", BeforeAfter { before: rest.before.max(0.0), after: rest.after.max(0.0) });
    text
}

/// The figures as text.
fn text_of(found: &WholeModel) -> String {
    let mut text = String::new();
    for region in &found.regions {
        let kept = if region.kept { "kept" } else { "not kept" };
        let gain = region.gain.map_or(String::new(), |gain| {
            format!(", the whole model {:.3}x [{:.3}-{:.3}]", gain.value, gain.low, gain.high)
        });
        let why = region.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let _ = writeln!(text, "{}: {kept}{gain}{why}", region.task);
    }
    for set in &found.input_sets {
        for (name, time) in &set.milliseconds {
            let speedup = set.speedup.get(name).map_or(String::new(), |s| {
                let ours = set.fastest.as_deref().unwrap_or("patched");
                format!("; {ours} is {:.3}x [{:.3}-{:.3}] as fast", s.value, s.low, s.high)
            });
            let error = set.error.get(name).copied().flatten();
            let error = error.map_or(String::new(), |error| format!("; error {error:.1e}"));
            let _ = writeln!(
                text,
                "{}, {name}: {:.3} ms [{:.3}-{:.3}]{speedup}{error}",
                set.name, time.value, time.low, time.high
            );
        }
    }
    for (at, set) in found.input_sets.iter().enumerate() {
        text += &bars(found, at, &set.name);
    }
    for (name, why) in &found.missing {
        let _ = writeln!(text, "{name} is missing: {why}");
    }
    let (covered, replaced) = (found.covered * 100.0, found.replaced * 100.0);
    let _ = writeln!(text, "{covered:.1} % of the time was covered, {replaced:.1} % replaced");
    text
}
