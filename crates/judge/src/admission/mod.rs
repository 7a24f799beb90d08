//! Which tasks are judged: objections to a task without a candidate, and the refusal of degenerate tasks. Uses
//! `check`, and what the oracle's process says of a task.

pub(crate) mod degenerate;
pub(crate) mod examination;
pub(crate) mod objection;
