//! `warpwright task drop`.

use std::collections::BTreeSet;

use fs_err as fs;
use serde::Serialize;
use warpwright_rollout::synthesis::unlogged;
use warpwright_synth::{DataSet, Outcome, Trial, TrialLog};

use crate::args::task::DropArgs;
use crate::contract::VERSION;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Output of `task drop`.
#[derive(Serialize)]
struct Told {
    version: u32,
    dropped: Vec<String>,
}

pub(super) fn run(args: &DropArgs, printer: Printer) -> Result<u8, Failure> {
    let mut names: BTreeSet<String> = args.chosen.iter().cloned().collect();
    if let Some(path) = &args.names {
        let text =
            fs::read_to_string(path).map_err(|error| Failure::io("read the names", &error))?;
        names.extend(text.lines().map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned));
    }
    // A log that is broken is found before anything is taken out, and none is begun beside what is no set.
    DataSet::read(&args.tasks)?;
    let mut log = TrialLog::open(&TrialLog::beside(&args.tasks)).map_err(unlogged)?;
    let gone = DataSet::remove(&args.tasks, &names)?;
    for row in &gone {
        let Some(made) = &row.provenance else { continue };
        let (reason, detail) = (args.reason.clone(), args.note.clone());
        let trial = Trial {
            seed: made.seed,
            name: row.name.clone(),
            operators: row.ops.clone(),
            outcome: Outcome::Refused { reason, detail },
        };
        log.append(&trial).map_err(unlogged)?;
    }
    let dropped: Vec<String> = gone.into_iter().map(|row| row.name).collect();
    printer.data(&format!("removed {} tasks from {}\n", dropped.len(), args.tasks.display()));
    printer.object(&Told { version: VERSION, dropped });
    Ok(exit::OK)
}
