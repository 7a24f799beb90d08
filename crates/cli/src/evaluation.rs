//! Shows what a run of `eval` came to.

use std::path::Path;

use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_report::summary::Summary;
use warpwright_report::table::table;

use crate::commands::report::width;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::settings::Settings;

pub(crate) fn present(dir: &Path, _: &Settings, printer: Printer) -> Result<u8, Failure> {
    let history = History::read(&RunReader::open(dir)?)?;
    printer.data(&format!("{}\n", table(&Summary::all(&history), width())));
    Ok(exit::OK)
}
