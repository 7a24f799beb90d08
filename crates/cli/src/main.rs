//! `warpwright`: the command line.
//!
//! `args` defines the arguments, and [`commands`] has one file per command. Only this crate turns the
//! typed errors of the libraries into text and an exit code (`failure`, `exit`). Data goes to stdout,
//! messages go to stderr (`printer`). `docs/reference/exit-codes-and-errors.md` is the contract.

mod args;
mod bench;
mod client;
mod commands;
mod contract;
mod dashboard;
mod episodes;
mod evaluation;
mod exit;
mod failure;
mod interrupt;
mod judging;
mod printer;
mod replayed;
mod results;
mod train_printer;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::printer::Printer;

fn main() -> ExitCode {
    // A jail starts this program again as its helper; that must be the first thing that happens.
    warpwright_jail::init_if_requested();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error),
    };
    let printer = Printer::new(cli.command.wants_json());
    let done = match &cli.command {
        Command::Optimize(args) => commands::optimize::run(args, printer),
        Command::Eval(args) => commands::eval::run(args, printer),
        Command::Judge(args) => commands::judge::run(args, printer),
        Command::Replay(args) => commands::replay::run(args, printer),
        Command::Export(args) => commands::export::run(args, printer),
        Command::Rejudge(args) => commands::rejudge::run(args, printer),
        Command::Report(args) => commands::report::run(args, printer),
        Command::Compare(args) => commands::compare::run(args, printer),
        Command::Analyze(args) => commands::analyze::run(args, printer),
        Command::Trajectory(args) => commands::trajectory::run(args, printer),
        Command::Doctor(args) => commands::doctor::run(args, printer),
        Command::Synth(args) => commands::synth::run(args, printer),
        Command::Task(args) => commands::task::run(args, printer),
        Command::Bench(args) => commands::bench::run(args, printer),
        Command::Train(args) => commands::train::run(args, printer),
        Command::Experiment(args) => commands::experiment::run(args, printer),
        Command::Watch(args) => commands::watch::run(args, printer),
        Command::Serve(args) => commands::serve::run(args, printer),
        Command::Worker(args) => commands::worker::run(args, printer),
        Command::Completions(args) => Ok(commands::completions::run(args, printer)),
        Command::Man(args) => commands::man::run(args, printer),
    };
    ExitCode::from(done.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.code
    }))
}

/// Help and version are successes; every other parse error is a usage error.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // The terminal may be gone; there is nobody left to tell.
    let _ = error.print();
    if asked {
        return ExitCode::from(exit::OK);
    }
    if std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let message = first.split_whitespace().collect::<Vec<_>>().join(" ");
        let hint = "see `warpwright --help`".to_owned();
        Printer::new(true).object(&Failure::usage(message, hint).object());
    }
    ExitCode::from(exit::USAGE)
}
