//! Which tasks are judged: objections to a task without a candidate, and the refusal of degenerate tasks. Pure
//! decisions; may use `check` and the messages of `process`.

pub(crate) mod degenerate;
pub(crate) mod examination;
pub(crate) mod objection;
