//! Shows the results of a run of `eval`: tables, pages, exports, the JSON object, the exit code.
//! All are computed from the record alone, so that a resumed run shows the same as an uninterrupted
//! one.

use std::path::{Path, PathBuf};

use warpwright_report::evaluation::export::{ExportError, export};
use warpwright_report::evaluation::rows::RowState;
use warpwright_report::evaluation::{Evaluation, table};

use crate::commands::report::width;
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;

/// Shows the run in `dir`, with its page at `page`. Only missing results change the exit code, not
/// bad figures.
pub(crate) fn present(
    dir: &Path,
    page: &Path,
    exports: &[PathBuf],
    printer: Printer,
) -> Result<u8, Failure> {
    let evaluation = Evaluation::read(dir)?;
    printer.data(&format!("{}\n", table::tables(&evaluation, width())));
    match export(&evaluation, dir, page) {
        Ok(()) => printer.say(&format!("report: {}", page.display())),
        // The verdicts are safe in the record; the page can be made again.
        Err(error) => printer.say(&format!("warning: {}", chain(&error))),
    }
    for out in exports {
        export(&evaluation, dir, out)?;
        printer.say(&format!("exported: {}", out.display()));
    }
    let have = |state| evaluation.rows.iter().any(|row| row.state == state);
    let code = if have(RowState::Unfinished) {
        exit::INTERRUPTED
    } else if have(RowState::Infrastructure) {
        exit::INFRASTRUCTURE
    } else {
        exit::OK
    };
    if code != exit::OK {
        let run = dir.display();
        printer.say(&format!("hint: resume it with `warpwright eval --resume {run}`"));
    }
    printer.object(&evaluation);
    Ok(code)
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        let message = chain(&error);
        match &error {
            ExportError::Format { .. } => {
                let hint = "name a file that ends in .jsonl, .parquet or .html".to_owned();
                Self::usage(message, hint)
            }
            ExportError::Write { source, .. } => Self { message, ..Self::io("export", source) },
            ExportError::Page(_) => Self::infrastructure(message, None),
        }
    }
}
