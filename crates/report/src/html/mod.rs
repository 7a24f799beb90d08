//! `report.html`: one file, no scripts, no network.

mod curves;
mod evaluation;
pub(crate) mod lines;
mod model;
mod plot;
mod steps;
mod trajectory;
mod verdict;
mod whole_model;

pub use evaluation::write_evaluation;
pub use trajectory::write_trajectory;
pub use whole_model::write_whole_model;

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use thiserror::Error;
use warpwright_record::error::ReadError;
use warpwright_record::history::History;
use warpwright_record::reader::RunReader;
use warpwright_record::verdict::BASELINES;

use crate::rejudged::notes;
use crate::summary::{baseline_name, recorded_on};
use crate::text::escape;

/// Why a report could not be written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file could not be written.
    #[error("failed to write the report {path}")]
    Write {
        /// The report.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A bug in this program: a template does not fit its data.
    #[error("failed to render the report template")]
    Template(#[from] minijinja::Error),
}

impl ReportError {
    /// The cure, if one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::Write { .. } => Some("name another file with `--out`".to_owned()),
            Self::Template(_) => None,
        }
    }
}

/// Writes one page about the runs in `run_dirs` and `recorded` to `out`. It reads the run folders
/// only. Killed and running runs are shown up to their last event. The page marks runs in `recorded`
/// with the machine and the date of their measurements.
pub fn write_html(run_dirs: &[&Path], recorded: &[&Path], out: &Path) -> Result<(), ReportError> {
    let mut runs = Vec::new();
    for (number, dir) in run_dirs.iter().chain(recorded).enumerate() {
        let reader = RunReader::open(dir)?;
        let history = History::read(&reader)?;
        let mut run = model::run_view(&reader, &history, number);
        run.rejudged = notes(dir, run_dirs)?;
        if number >= run_dirs.len() {
            run.recorded = Some(recorded_on(&reader, &history));
        }
        runs.push(run);
    }
    model::draw_sparks(&mut runs);
    let html = render(&runs)?;

    write_page(&html, out)
}

/// Writes a page beside its place, then renames it: a browser that reloads never sees half of it.
pub(crate) fn write_page(html: &str, out: &Path) -> Result<(), ReportError> {
    crate::files::replace(out, |file| file.write_all(html.as_bytes()))
        .map_err(|source| ReportError::Write { path: out.to_owned(), source })
}

/// What every page is made with.
pub(crate) fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    environment.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // Every value passes through the one function that makes text harmless, also control
    // characters, which the library's own escaping lets through.
    environment.set_formatter(|out, _, value: &Value| {
        if value.is_undefined() || value.is_none() {
            return Ok(());
        }
        let text = value.to_string();
        let done =
            if value.is_safe() { out.write_str(&text) } else { out.write_str(&escape(&text)) };
        done.map_err(minijinja::Error::from)
    });
    environment.add_template("macros.html", include_str!("../../templates/macros.html"))?;
    let style = include_str!("../../templates/style.css").to_owned();
    environment.add_global("style", Value::from_safe_string(style));
    environment.add_global("program", warpwright_record::run::PROGRAM_VERSION);
    let written = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
    environment.add_global("written", written);
    Ok(environment)
}

fn render(runs: &[model::RunView]) -> Result<String, minijinja::Error> {
    let mut environment = environment()?;
    environment.add_template("episode.html", include_str!("../../templates/episode.html"))?;
    environment.add_template("report.html", include_str!("../../templates/report.html"))?;
    let shown = |i: usize| runs.iter().flat_map(|run| &run.episodes).any(|e| e.measured(i));
    let columns: Vec<_> = BASELINES
        .into_iter()
        .enumerate()
        .map(|(i, key)| context! { name => baseline_name(key), shown => shown(i) })
        .collect();
    environment.get_template("report.html")?.render(context! {
        runs => Value::from(Serde(runs)),
        columns,
    })
}
