//! `warpwright task`.

mod compose;
mod drop;
pub(super) mod extract;
mod lint;
mod show;
mod stats;

use crate::args::task::{TaskAction, TaskArgs};
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(args: &TaskArgs, printer: Printer) -> Result<u8, Failure> {
    match &args.action {
        TaskAction::Lint(args) => lint::run(args, printer),
        TaskAction::Show(args) => show::run(args, printer),
        TaskAction::Stats(args) => stats::run(args, printer),
        TaskAction::Compose(args) => compose::run(args, printer),
        TaskAction::Extract(args) => extract::run(args, printer),
        TaskAction::Drop(args) => drop::run(args, printer),
    }
}
