//! `warpwright completions SHELL`.

use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::exit;
use crate::printer::Printer;

pub(crate) fn run(args: &Completions, printer: Printer) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "warpwright", &mut script);
    printer.data(&String::from_utf8_lossy(&script));
    exit::OK
}
