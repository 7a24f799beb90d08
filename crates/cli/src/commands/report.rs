//! `warpwright report RUN_DIR...`: a table and a page, from records alone. Of one run of `eval`, what
//! that came to.

use std::path::{Path, PathBuf};

use serde::Serialize;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_report::html::{ReportError, write_html};
use warpwright_report::summary::Summary;
use warpwright_report::table::table;

use crate::args::Report;
use crate::contract::VERSION;
use crate::evaluation;
use crate::exit;
use crate::failure::{Failure, chain};
use crate::printer::Printer;
use crate::settings::{Purpose, Settings};
use crate::train::report as training;

#[derive(Serialize)]
struct Reported {
    version: u32,
    runs: Vec<String>,
    report: String,
}

pub(crate) fn run(args: &Report, printer: Printer) -> Result<u8, Failure> {
    if let [dir] = &args.runs[..]
        && training::is_training(dir)
    {
        let page = args.out.clone().unwrap_or_else(|| dir.join("report.html"));
        training::present(dir, &page)?;
        return Ok(written(&args.runs, &page, printer));
    }
    if let [dir] = &args.runs[..]
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
    write_html(&dirs, &page)?;
    printer.data(&format!("{}\n", table(&summaries, width())));
    Ok(written(&args.runs, &page, printer))
}

fn written(runs: &[PathBuf], page: &Path, printer: Printer) -> u8 {
    printer.say(&format!("report: {}", page.display()));
    printer.object(&Reported {
        version: VERSION,
        runs: runs.iter().map(|dir| dir.display().to_string()).collect(),
        report: page.display().to_string(),
    });
    exit::OK
}

/// Whether `eval` began the run. Settings that cannot be read are no evaluation's.
fn is_evaluation(dir: &Path) -> Result<bool, Failure> {
    let run = RunReader::open(dir)?;
    let settings = Settings::from_config(&run.header().config);
    Ok(settings.is_ok_and(|settings| settings.purpose == Purpose::Eval))
}

/// Columns of the terminal; elsewhere a table may be as wide as it likes.
pub(crate) fn width() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|w| *w > 0)
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        let (message, hint) = (chain(&error), error.hint());
        match error {
            ReportError::Read(error) => error.into(),
            ReportError::Write { source, .. } => {
                let failure = Self::io("write the report", &source);
                Self { message, hint: failure.hint.clone().or(hint), ..failure }
            }
            ReportError::Template(_) => Self::infrastructure(message, hint),
        }
    }
}
