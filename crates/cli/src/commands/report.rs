//! `warpwright report RUN_DIR...`: prints a table and writes a page, from records alone. For a
//! single run of `eval` it shows the evaluation.

use std::path::{Path, PathBuf};

use serde::Serialize;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_report::html::write_html;
use warpwright_report::rejudged::notes;
use warpwright_report::summary::{Summary, recorded_on};
use warpwright_report::table::table;
use warpwright_rollout::settings::{Purpose, Settings};
use warpwright_train::report as training;

use crate::args::Report;
use crate::commands::rejudge::stages;
use crate::contract::VERSION;
use crate::evaluation;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Serialize)]
struct Reported {
    version: u32,
    runs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<String>,
    report: String,
}

pub(crate) fn run(args: &Report, printer: Printer) -> Result<u8, Failure> {
    let alone = args.recorded.is_empty();
    if let [dir] = &args.runs[..]
        && alone
        && training::is_training(dir)
    {
        let page = args.out.clone().unwrap_or_else(|| dir.join("report.html"));
        training::present(dir, &page)?;
        for record in stages(dir).unwrap_or_default() {
            say_rejudged(&record, &[], printer)?;
        }
        return Ok(written(args, &page, printer));
    }
    if let [dir] = &args.runs[..]
        && alone
        && is_evaluation(dir)?
    {
        let page = args.out.clone().unwrap_or_else(|| dir.join("report.html"));
        // That something is missing is said; it is no failure of the report.
        return evaluation::present(dir, &page, &[], printer).map(|_| exit::OK);
    }
    let mut summaries = Vec::new();
    for dir in &args.runs {
        let history = History::read(&RunReader::open(dir)?)?;
        summaries.extend(Summary::all(&history));
    }
    let page = args.out.clone().or_else(|| Some(args.runs.first()?.join("report.html")));
    let page = page.unwrap_or_else(|| PathBuf::from("report.html"));
    let dirs: Vec<&Path> = args.runs.iter().map(PathBuf::as_path).collect();
    let recorded: Vec<&Path> = args.recorded.iter().map(PathBuf::as_path).collect();
    write_html(&dirs, &recorded, &page)?;
    printer.data(&format!("{}\n", table(&summaries, width())));
    for dir in dirs.iter().chain(&recorded) {
        for note in notes(dir, &dirs)? {
            printer.data(&format!("Note: {}: {note}.\n", dir.display()));
        }
    }
    for dir in &args.recorded {
        let reader = RunReader::open(dir)?;
        let history = History::read(&reader)?;
        printer.data(&format!(
            "\nRecorded run {}: {}, not measured now\n{}\n",
            dir.display(),
            recorded_on(&reader, &history),
            table(&Summary::all(&history), width())
        ));
    }
    Ok(written(args, &page, printer))
}

fn written(args: &Report, page: &Path, printer: Printer) -> u8 {
    let names = |dirs: &[PathBuf]| dirs.iter().map(|dir| dir.display().to_string()).collect();
    printer.say(&format!("report: {}", page.display()));
    printer.object(&Reported {
        version: VERSION,
        runs: names(&args.runs),
        recorded: names(&args.recorded),
        report: page.display().to_string(),
    });
    exit::OK
}

/// Says on standard error what became of the run's verdicts when its candidates were judged again.
pub(crate) fn say_rejudged(dir: &Path, named: &[&Path], printer: Printer) -> Result<(), Failure> {
    for note in notes(dir, named)? {
        printer.label("note", "36", &format!("{}: {note}", dir.display()));
    }
    Ok(())
}

/// Whether `eval` started the run; false if the settings cannot be read.
fn is_evaluation(dir: &Path) -> Result<bool, Failure> {
    let run = RunReader::open(dir)?;
    let settings = Settings::from_config(&run.header().config);
    Ok(settings.is_ok_and(|settings| settings.purpose == Purpose::Eval))
}

/// Columns of the terminal; `None` elsewhere, where a table may have any width.
pub(crate) fn width() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|w| *w > 0)
}
