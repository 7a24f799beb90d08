//! What is said over NATS, as JSON. Whatever is large lies among the files.

use serde::{Deserialize, Serialize};
use warpwright_record::verdict::Stage;

use super::files::FileRef;
use super::kind::Kind;

/// A job, to whoever takes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Of this publication: a job that is published again has another.
    pub(crate) id: String,
    /// Who is answered.
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

/// What became of an order.
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
    /// It was delivered so often, and nobody answered.
    Exhausted(i64),
}

/// A worker is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Presence {
    pub(crate) worker: String,
    pub(crate) kind: Kind,
    pub(crate) devices: Vec<String>,
    /// Jobs that it takes at once.
    pub(crate) slots: usize,
    pub(crate) running: usize,
    /// It takes no more.
    pub(crate) leaving: bool,
}

/// What a server says to that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Greeting {
    Welcome,
    /// It cannot judge here, and why.
    Refused(String),
}

/// A job that nobody survived, with what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parked {
    /// Of the order.
    pub id: String,
    /// Name of the task.
    pub task: String,
    /// Its source.
    pub reference: String,
    /// The candidate's files, as text.
    pub files: std::collections::BTreeMap<String, String>,
    /// How far it was to be taken.
    pub stage: Stage,
    /// How often it was delivered.
    pub deliveries: i64,
    /// Workers that began it, in order.
    pub workers: Vec<String>,
}
