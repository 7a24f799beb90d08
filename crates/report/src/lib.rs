//! What a run looks like to a person. Everything here is made from records alone: this crate knows
//! no judge, no device, no network.
//!
//! * [`live::LiveView`] shows a run as it happens. It is given every event that goes into the
//!   record, and nothing else.
//! * [`table::table`] is what stands at the end: one row per episode.
//! * [`evaluation::Evaluation`] turns a run over a suite into figures with intervals, by policy and
//!   level, and into tables and files.
//! * [`analysis`] computes what `warpwright analyze` prints: the gap closed, best of N, the times of
//!   steps and verdicts, and plots of experiments.
//! * [`trajectory`] shows one episode to a person, and exports episodes for training.
//! * [`rejudged`] compares a run with the one in which its candidates were judged again.
//! * [`html::write_html`] makes `report.html`, one self-contained page: what was reached and how
//!   sure that is, what went wrong, the kernels, and the steps that led there.
//!
//! ```no_run
//! use std::path::Path;
//! use warpwright_record::{history::History, reader::RunReader};
//! use warpwright_report::{html::write_html, summary::Summary, table::table};
//!
//! let dir = Path::new("runs/latest");
//! let history = History::read(&RunReader::open(dir)?)?;
//! let text = table(&Summary::all(&history), Some(100));
//! write_html(&[dir], &[], Path::new("report.html"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Texts in a record may come from a candidate, and a candidate may be hostile: nothing reaches a
//! terminal or a page except through the private module `text`.

pub mod analysis;
mod axis;
pub mod evaluation;
mod figures;
mod files;
mod highlight;
pub mod html;
pub mod live;
pub mod rejudged;
pub mod summary;
pub mod table;
pub mod text;
pub mod training;
pub mod trajectory;
mod workloads;
