//! Jobs for judges: who asks, who judges, and the queue between them.
//!
//! ```text
//! submit ─► a line for each client ─► take, in turn ─► a worker judges ─► the listener is told, once
//! ```
//!
//! Workers of other hosts are reached over NATS JetStream ([`nats`]): a bridge takes jobs from the queue like
//! any worker, so that the queue stays the one owner of every job.
//!
//! Whatever happens to a worker, a job that was taken in ends once: with a verdict, or with why there is
//! none. Which of these is whose fault is in the type: a task that cannot be judged against is the
//! caller's, everything else is ours and never a reward.

mod job;
pub mod nats;
mod queue;
mod worker;

pub use job::{Answer, Failed, Job};
pub use queue::{Leased, Limits, Listener, Load, News, Queue, Ready, Refused, Station, Ticket};
pub use worker::{Done, work};
