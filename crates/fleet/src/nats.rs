//! Remote workers, over NATS JetStream.
//!
//! ```text
//! queue ─► bridge ─► files, by content ─► jobs.KIND.SERVER ─► a worker of that kind judges
//!   ▲                                                          │
//!   └── ends once ◄─ answers.SERVER ◄─ files, by content ◄─────┘
//! ```
//!
//! NATS delivers a job at least once; the [`Bridge`] ends each job once. A worker sends heartbeats for its job.
//! Without one for a lease (NATS' clock), NATS redelivers the job to another worker. After three deliveries
//! without an answer the job goes to the dead-letter queue, with its files and the workers that had it. A worker
//! gets only jobs of its own [`Kind`], so that figures of different hardware, versions or rules never mix.
//!
//! Every client that can connect to NATS is trusted with verdicts; access is controlled by NATS accounts.

mod bridge;
mod dead_letter;
mod files;
mod kind;
mod link;
mod notes;
mod roster;
mod worker;

pub use bridge::Bridge;
pub use kind::Kind;
pub use link::{DEAD_LETTER_DAYS, LinkConfig, LinkError};
pub use notes::DeadLetter;
pub use roster::{RemoteWorkerStatus, Roster};
pub use worker::{Ended, RemoteWorker, Slot};
