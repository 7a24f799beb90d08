//! The judge's job queue, its workers, and the connection to workers of other hosts.
//!
//! ```text
//! submit ─► one FIFO per client ─► take, round robin ─► a worker judges ─► the listener gets one answer
//! ```
//!
//! NATS JetStream connects workers of other hosts ([`nats`]). A bridge takes jobs from the queue as a local
//! worker does, so that the queue alone owns every job.
//!
//! Every accepted job ends exactly once, even if its worker dies: with a verdict, or with a [`Failed`]. A task
//! that the judge refuses is the caller's error ([`Failed::Task`]). Every other failure is an infrastructure
//! error and never a reward.

mod job;
pub mod nats;
mod queue;
mod worker;

pub use job::{Answer, Failed, Job};
pub use queue::{JobEvent, Leased, Limits, Listener, Load, Queue, Ready, Refused, Station, Ticket};
pub use worker::{Done, work};
