//! The JSON messages over NATS. Large contents are files.

use serde::{Deserialize, Serialize};
use warpwright_record::verdict::Stage;

use super::files::FileRef;
use super::kind::Kind;

/// A job, for any worker of its kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Unique per publication: a job that is published again gets another.
    pub(crate) id: String,
    /// The server that gets the answer.
    pub(crate) server: String,
    /// Name of the task, for people.
    pub(crate) name: String,
    pub(crate) task: FileRef,
    pub(crate) candidate: FileRef,
    pub(crate) stage: Stage,
    pub(crate) fresh: bool,
}

/// A worker has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) id: String,
    pub(crate) worker: String,
}

/// The end of an order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) id: String,
    pub(crate) worker: String,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// An answer, among the files.
    Answer(FileRef),
    /// No worker answered in this number of deliveries.
    Exhausted(i64),
}

/// A worker's heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Presence {
    pub(crate) worker: String,
    pub(crate) kind: Kind,
    pub(crate) devices: Vec<String>,
    /// Jobs that it judges concurrently.
    pub(crate) slots: usize,
    pub(crate) running: usize,
    /// It takes no more.
    pub(crate) leaving: bool,
}

/// The server's reply to a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Greeting {
    Welcome,
    /// The server refuses the worker, for this reason.
    Refused(String),
}

/// A job of the dead-letter queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of its order.
    pub id: String,
    /// Name of the task.
    pub task: String,
    /// Source of the task's reference.
    pub reference: String,
    /// The candidate's files, as text.
    pub files: std::collections::BTreeMap<String, String>,
    /// The last stage that was requested.
    pub stage: Stage,
    /// Number of deliveries.
    pub deliveries: i64,
    /// Workers that began it, in order of time.
    pub workers: Vec<String>,
}
