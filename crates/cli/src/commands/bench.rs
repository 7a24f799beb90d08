//! `warpwright bench judge`, `bench record` and `bench serve`.

use std::path::Path;
use std::time::Duration;

use crate::args::bench::{BenchArgs, BenchJudge, BenchRecord, BenchServe, BenchWhat};
use crate::bench::serving::{self, ServingPlan};
use crate::bench::{self, Plan, recording};
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(args: &BenchArgs, printer: Printer) -> Result<u8, Failure> {
    match &args.what {
        BenchWhat::Judge(args) => judge(args, printer),
        BenchWhat::Record(args) => record(args, printer),
        BenchWhat::Serve(args) => serve(args, printer),
    }
}

fn judge(args: &BenchJudge, printer: Printer) -> Result<u8, Failure> {
    let plan = Plan {
        candidates: args.candidates as usize,
        forms: args.forms.clone(),
        concurrency: args.concurrency.iter().map(|count| *count as usize).collect(),
        seconds: args.seconds as f64,
        cold_runs: args.cold_runs as usize,
        share_baselines: !args.own_baselines,
        window_ms: args.window_ms,
    };
    // Written whenever there is more: minutes of measuring that are interrupted are not lost.
    let keep = |report: &bench::Report| match &args.out {
        Some(file) => written(report, file).map_err(unwritten),
        None => Ok(()),
    };
    // A file that cannot be written is found now, and not minutes later.
    args.out.as_ref().map(fs_err::File::create).transpose().map_err(unwritten)?;
    let report = bench::run(&plan, &args.common, printer, keep)?;
    printer.data(&bench::render(&report));
    printer.object(&report);
    Ok(exit::OK)
}

fn record(args: &BenchRecord, printer: Printer) -> Result<u8, Failure> {
    let report = recording::run(args, printer)?;
    printer.data(&recording::render(&report));
    printer.object(&report);
    Ok(exit::OK)
}

fn serve(args: &BenchServe, printer: Printer) -> Result<u8, Failure> {
    let plan = ServingPlan {
        seconds: Duration::from_secs(args.seconds),
        rounds: args.rounds as usize,
        transports: args.transports.clone(),
        stage: args.stage.into(),
        nats: args.nats.clone(),
    };
    args.out.as_ref().map(fs_err::File::create).transpose().map_err(unwritten)?;
    let report = serving::run(&plan, &args.common, printer)?;
    if let Some(file) = &args.out {
        written(&report, file).map_err(unwritten)?;
    }
    printer.data(&serving::render(&report));
    printer.object(&report);
    Ok(exit::OK)
}

fn written(report: &impl serde::Serialize, file: &Path) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(report)?;
    fs_err::write(file, text + "\n")
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unwritten(error: std::io::Error) -> Failure {
    let hint = "name another file with `--out`".to_owned();
    Failure::usage(format!("failed to write the results: {error}"), hint)
}
