//! `warpwright task compose`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use fs_err as fs;
use serde::Serialize;
use warpwright_synth::{Combination, Composer, Shares, Split};

use crate::args::task::Compose;
use crate::contract::VERSION;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Number of consecutive seeds without a new task after which composing ends.
const PATIENCE: u64 = 10_000;
/// A failed seed counts as this many seeds: the grammar has sampled thousands of times.
const IN_VAIN: u64 = 200;
/// Interval of the progress lines.
const EVERY: Duration = Duration::from_secs(2);

/// A line of the output file.
#[derive(Serialize)]
struct Composed {
    name: String,
    code: String,
    ops: Vec<String>,
    data_source: String,
    level: u8,
    split: Split,
}

/// Output of `task compose`.
#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    out: &'a Path,
    tasks: usize,
    /// Number of tasks per split.
    splits: BTreeMap<&'static str, usize>,
    combinations: usize,
}

pub(super) fn run(args: &Compose, printer: Printer) -> Result<u8, Failure> {
    let grammar = args.how.grammar(&args.how.catalogues()?, args.runtime_range)?;
    let shares = Shares::default();
    let (mut lines, mut known, mut combinations) =
        (String::new(), BTreeSet::new(), BTreeSet::new());
    let (mut splits, mut names) = (BTreeMap::new(), BTreeMap::<String, u32>::new());
    let (mut seed, mut last) = (u64::from(args.seed) << 32, None);
    let (mut since, mut said) = (0, Instant::now());
    while known.len() < args.count as usize {
        seed += 1;
        since += 1;
        if since > PATIENCE {
            if known.is_empty() {
                return Err(exhausted(last));
            }
            printer.say(&format!(
                "warning: composed {} of {} tasks: the options admit no other task{}; allow more operators or other sizes",
                known.len(),
                args.count,
                reason(last)
            ));
            break;
        }
        if said.elapsed() >= EVERY {
            said = Instant::now();
            printer.say(&format!("composed {} of {} tasks", known.len(), args.count));
        }
        let proposal = match grammar.compose(seed) {
            Ok(proposal) => proposal,
            Err(error) => {
                last = Some(error.to_string());
                since += IN_VAIN;
                continue;
            }
        };
        if !known.insert(proposal.source.clone()) {
            continue;
        }
        since = 0;
        let combination = Combination::of(&proposal.operators);
        let split = shares.split_of(&combination);
        combinations.insert(combination);
        *splits.entry(split.name()).or_insert(0) += 1;
        let number = names.entry(proposal.name.clone()).or_insert(0);
        *number += 1;
        let name = match *number {
            1 => proposal.name,
            number => format!("{}-{number}", proposal.name),
        };
        let line = Composed {
            name,
            code: proposal.source,
            data_source: format!("{}#{}", proposal.provenance.composer, proposal.operators.len()),
            ops: proposal.operators,
            level: proposal.level,
            split,
        };
        let line = serde_json::to_string(&line).map_err(|error| {
            Failure::infrastructure(format!("failed to encode a task: {error}"), None)
        })?;
        lines.push_str(&line);
        lines.push('\n');
    }
    fs::write(&args.out, lines).map_err(|error| Failure::io("write the tasks", &error))?;
    let told = Told {
        version: VERSION,
        out: &args.out,
        tasks: known.len(),
        splits,
        combinations: combinations.len(),
    };
    let each: Vec<String> =
        told.splits.iter().map(|(split, tasks)| format!("{tasks} {split}")).collect();
    printer.data(&format!(
        "{} tasks in {}: {}; {} combinations of operators\n",
        told.tasks,
        args.out.display(),
        each.join(", "),
        told.combinations
    ));
    printer.object(&told);
    Ok(exit::OK)
}

fn exhausted(last: Option<String>) -> Failure {
    let message = format!("failed to compose a task: the options admit none{}", reason(last));
    let hint = "allow more operators or other sizes".to_owned();
    Failure::usage(message, hint)
}

/// The error of the last failed seed, in parentheses; empty if no seed failed.
fn reason(last: Option<String>) -> String {
    last.map_or(String::new(), |error| format!(" ({error})"))
}
