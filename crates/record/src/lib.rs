//! What happened, as data: the vocabulary every part shares, and the run folder it is written to.
//!
//! Two halves:
//!
//! * **vocabulary** — plain, versioned types without behaviour of their own: [`verdict::Verdict`]
//!   (what the judge says of a candidate), [`candidate::Candidate`] (the files that count),
//!   [`message::Message`] (one step of a conversation between policy and tools),
//!   [`fingerprint::Fingerprint`] (the machine under which a figure was measured);
//! * **run folder** — the append-only record of a run, which report, metrics and training read.
//!
//! Nothing here starts a process or knows a device. Every other part writes through this crate.

pub mod candidate;
pub mod fingerprint;
pub mod interval;
pub mod message;
pub mod verdict;
