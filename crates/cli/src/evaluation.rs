//! Shows what a run of `eval` came to: tables, the page, the object, the exit code. Made from the
//! record alone, so that a run and its resumption end alike.

use std::path::Path;

use warpwright_report::evaluation::rows::RowState;
use warpwright_report::evaluation::{Evaluation, table};

use crate::commands::report::width;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::{exit, results};

/// Shows the run in `dir`. The figures may be bad; only what is missing is an exit code.
pub(crate) fn present(dir: &Path, printer: Printer) -> Result<u8, Failure> {
    let evaluation = Evaluation::read(dir)?;
    let report = results::page(dir, printer);
    printer.data(&format!("{}\n", table::tables(&evaluation, width())));
    let have = |state| evaluation.rows.iter().any(|row| row.state == state);
    let code = if have(RowState::Unfinished) {
        exit::INTERRUPTED
    } else if have(RowState::Infrastructure) {
        exit::INFRASTRUCTURE
    } else {
        exit::OK
    };
    if let Some(report) = report {
        printer.say(&format!("report: {report}"));
    }
    if code != exit::OK {
        let run = dir.display();
        printer.say(&format!("hint: go on with `warpwright eval --resume {run}`"));
    }
    printer.object(&evaluation);
    Ok(code)
}
