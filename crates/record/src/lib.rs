//! The record of a run: the types that every part shares, and the run folder that stores them.
//!
//! Two halves:
//!
//! * **vocabulary** — plain, versioned types without behaviour of their own: [`verdict::Verdict`]
//!   (the judge's result for a candidate), [`candidate::Candidate`] (a candidate's files),
//!   [`message::Message`] (one step of a conversation between policy and tools),
//!   [`fingerprint::Fingerprint`] (the machine under which a figure was measured);
//! * **run folder** — the append-only record of a run, which report, metrics and training read.
//!
//! ```text
//! run.json            format, program, config, machine; written once
//! events.jsonl        one event a line, appended; `events.jsonl.zst` once the run is closed
//! blobs/ab/cdef...    sources and outputs by BLAKE3
//! index.sqlite        derived; may be deleted
//! rejudged.json       where its candidates were judged again; no part of the record
//! lock                one writer at a time
//! ```
//!
//! Only [`writer::RunWriter`] writes: the caller of the agent's loop creates it, and the loop appends each
//! [`event::Event`] as it happens and passes the same event to the caller's observer. Only [`reader::RunReader`]
//! reads; [`history::History`] folds the events into episodes and turns, for reports and for resuming.
//!
//! ```
//! use warpwright_record::event::{Event, NoteLevel, RunOutcome};
//! use warpwright_record::{reader::RunReader, run::RunInfo, writer::RunWriter};
//!
//! let dir = tempfile::tempdir()?;
//! let run = RunWriter::create(dir.path(), RunInfo { command: "demo".into(), ..Default::default() })?;
//! let blob = run.put_blob(b"__global__ void f() {}")?;
//! let text = format!("stored {blob}");
//! run.append(&Event::Note { episode: None, level: NoteLevel::Info, text })?;
//! run.append(&Event::RunFinished { outcome: RunOutcome::Completed })?;
//! run.close()?;
//!
//! let run = RunReader::open(dir.path())?;
//! let events: Vec<_> = run.events()?.collect::<Result<_, _>>()?;
//! assert_eq!(events.len(), 3);
//! assert_eq!(run.blob(blob)?, b"__global__ void f() {}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate starts no process and knows no device. Every other part writes through it.

pub mod blob;
pub mod candidate;
pub mod conditions;
pub mod dialogue;
pub mod error;
pub mod event;
pub mod exactness;
pub mod findings;
pub mod fingerprint;
pub mod fit;
pub mod gpu;
pub mod history;
pub mod index;
pub mod inputs;
pub mod interval;
pub mod libraries;
pub mod message;
mod number;
pub mod reader;
pub mod regions;
pub mod rejudged;
pub mod reward;
pub mod run;
pub mod schema;
pub mod tokens;
pub mod verdict;
pub mod void;
pub mod whole_model;
pub mod writer;
