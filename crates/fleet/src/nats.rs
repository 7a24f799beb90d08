//! Workers of other hosts, over NATS JetStream.
//!
//! ```text
//! queue ─► bridge ─► files, by content ─► jobs.KIND.SERVER ─► a worker of that kind judges
//!   ▲                                                          │
//!   └── ends once ◄─ answers.SERVER ◄─ files, by content ◄─────┘
//! ```
//!
//! NATS delivers at least once; the [`Bridge`] ends each job once. A worker says again and again that it is
//! at a job; when it does not, NATS gives the job to the next one, by NATS' own clock. A job that several
//! workers did not survive is parked, with what was asked and who had it. Jobs of one [`Kind`] alone reach a
//! worker, so that figures of different hardware, versions or rules are never mixed.
//!
//! Who may connect to NATS is trusted with verdicts: NATS' own accounts say who that is.

mod bridge;
mod files;
mod kind;
mod link;
mod notes;
mod parking;
mod roster;
mod worker;

pub use bridge::Bridge;
pub use kind::Kind;
pub use link::{LinkConfig, LinkError, PARKED_DAYS};
pub use notes::Parked;
pub use roster::{Far, Roster};
pub use worker::{Ended, FarWorker, Slot};
