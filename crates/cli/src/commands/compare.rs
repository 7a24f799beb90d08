//! `warpwright compare RUN_A RUN_B`: two evaluations, task by task, from records alone.

use warpwright_report::evaluation::Evaluation;
use warpwright_report::evaluation::compare::{CompareError, Comparison, text};

use crate::args::trajectory::Compare;
use crate::commands::report::width;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

pub(crate) fn run(args: &Compare, printer: Printer) -> Result<u8, Failure> {
    let (a, b) = (Evaluation::read(&args.a)?, Evaluation::read(&args.b)?);
    let comparison = Comparison::of(&a, &b, args.policy_a.as_deref(), args.policy_b.as_deref())?;
    printer.data(&format!("{}\n", text(&comparison, width())));
    printer.object(&comparison);
    Ok(exit::OK)
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        Self::usage(error.to_string(), error.hint())
    }
}
