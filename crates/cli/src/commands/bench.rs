//! `warpwright bench judge`.

use std::io::Write as _;

use crate::args::bench::{BenchArgs, BenchJudge, BenchWhat};
use crate::bench::{self, Plan};
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(args: &BenchArgs, printer: Printer) -> Result<u8, Failure> {
    match &args.what {
        BenchWhat::Judge(args) => judge(args, printer),
    }
}

fn judge(args: &BenchJudge, printer: Printer) -> Result<u8, Failure> {
    let plan = Plan {
        candidates: args.candidates as usize,
        builders: args.builders.iter().map(|count| *count as usize).collect(),
        seconds: args.seconds as f64,
        cold: args.cold as usize,
        window_ms: args.window_ms,
    };
    // A file that cannot be written is found now, and not minutes later.
    let out = args.out.as_ref().map(fs_err::File::create).transpose().map_err(unwritten)?;
    let report = bench::run(&plan, &args.common, printer)?;
    printer.data(&bench::render(&report));
    if let Some(mut file) = out {
        let written = serde_json::to_string_pretty(&report).map_err(std::io::Error::other);
        written.and_then(|text| writeln!(file, "{text}")).map_err(unwritten)?;
    }
    printer.object(&report);
    Ok(exit::OK)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(error: std::io::Error) -> Failure {
    let hint = "name another file with --out".to_owned();
    Failure::usage(format!("failed to write the figures: {error}"), hint)
}
