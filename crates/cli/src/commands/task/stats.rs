//! `warpwright task stats`.

use serde::Serialize;
use warpwright_rollout::{folders, shipped};
use warpwright_synth::{DataSet, Stats, card};

use crate::args::task::StatsArgs;
use crate::contract::VERSION;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Output of `task stats`.
#[derive(Serialize)]
struct Told {
    version: u32,
    stats: Stats,
}

pub(super) fn run(args: &StatsArgs, printer: Printer) -> Result<u8, Failure> {
    let set = DataSet::read(&shipped::found(&args.tasks, &folders::cache(None))?)?;
    let name = args.tasks.file_stem().map_or("tasks".into(), |stem| stem.to_string_lossy());
    printer.data(&card(&name, &set, None));
    printer.object(&Told { version: VERSION, stats: set.stats() });
    Ok(exit::OK)
}
