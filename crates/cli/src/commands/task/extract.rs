//! `warpwright task extract`.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use warpwright_record::regions::{GraphBreak, InputSetTime, LeftOut, ModelRegions, Region};
use warpwright_rollout::regions;

use crate::args::extract::Extract;
use crate::contract::VERSION;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{exit, judging};

/// Output of `task extract`.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    model: &'a str,
    device: &'a str,
    /// Folder of the tasks.
    tasks: &'a Path,
    cover: f64,
    covered: f64,
    input_sets: &'a [InputSetTime],
    regions: Vec<Row<'a>>,
    left_out: &'a [LeftOut],
    graph_breaks: &'a [GraphBreak],
}

#[derive(Serialize)]
struct Row<'a> {
    task: &'a str,
    class: &'a str,
    share: f64,
    selected: bool,
    /// Number of modules that it stands for.
    modules: usize,
    operators: u64,
    workloads: &'a [String],
}

impl<'a> Row<'a> {
    fn of(region: &'a Region) -> Self {
        Self {
            task: &region.task,
            class: &region.class,
            share: region.share,
            selected: region.selected,
            modules: region.modules.len(),
            operators: region.operators,
            workloads: &region.workloads,
        }
    }
}

pub(super) fn run(args: &Extract, printer: Printer) -> Result<u8, Failure> {
    regions::check(&args.out)?;
    let python = args.python.as_deref();
    let request = args.whole.request(args.device, args.dtype, args.seed, python)?;
    let jail = judging::jail_of(args.require_isolation)?;
    printer.say(&format!("running {} in the jail", request.model.name()));
    let extracted = regions::extract(&jail, &request)?;
    let tasks = regions::write(&args.out, &extracted)?;
    let found = &extracted.regions;
    printer.data(&text(found, &tasks));
    printer.object(&Told {
        version: VERSION,
        model: &found.model,
        device: &found.device,
        tasks: &tasks,
        cover: found.cover,
        covered: found.covered,
        input_sets: &found.input_sets,
        regions: found.regions.iter().map(Row::of).collect(),
        left_out: &found.left_out,
        graph_breaks: &found.graph_breaks,
    });
    Ok(exit::OK)
}

/// The regions as text.
pub(crate) fn text(found: &ModelRegions, tasks: &Path) -> String {
    let mut text = String::new();
    for set in &found.input_sets {
        let _ = writeln!(text, "{}: {:.3} ms on {}", set.name, set.milliseconds, found.device);
    }
    for region in &found.regions {
        let Row { task, class, share, selected, modules, operators, workloads } = Row::of(region);
        let kept = if selected { "" } else { "; no task, enough is covered" };
        let (ops, sets) =
            (counted(operators, "operator"), counted(workloads.len() as u64, "workload"));
        let all = counted(modules as u64, "module");
        let percent = share * 100.0;
        let _ = writeln!(text, "{percent:5.1} %  {task}: {all} of {class}, {ops}, {sets}{kept}");
    }
    for out in &found.left_out {
        let (share, path) = (out.share * 100.0, out.modules.first().map_or("", String::as_str));
        let path = if path.is_empty() { "the model" } else { path };
        let more =
            if out.count > 1 { format!(" and {} more", out.count - 1) } else { String::new() };
        let _ =
            writeln!(text, "no region: {} ({path}{more}, {share:.1} %): {}", out.class, out.reason);
    }
    for one in &found.graph_breaks {
        let _ = writeln!(text, "graph break at {}: {}", one.place, one.reason);
    }
    let (covered, cover) = (found.covered * 100.0, found.cover * 100.0);
    let count =
        counted(found.regions.iter().filter(|region| region.selected).count() as u64, "task");
    let _ = writeln!(
        text,
        "{count} in {} cover {covered:.1} % of the model's time; {cover:.0} % were requested",
        tasks.display()
    );
    text
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
