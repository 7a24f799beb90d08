//! A thread that judges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::job::{Answer, Failed, Job};
use crate::queue::{Queue, Station};

/// How a worker left a job.
#[derive(Debug)]
pub enum Done {
    /// With this.
    Answered(Answer),
    /// Its device is gone: somebody else is to judge this, and the worker takes no more.
    Gone,
}

/// Judges what the queue has for this station until it is closed and empty, or the device is gone. What panics has
/// an answer too, and the next job is taken.
pub fn work(queue: &Queue, station: Station, judge: impl Fn(&Job) -> Done) {
    let _at_work = queue.enter(station);
    while let Some(mut leased) = queue.take(station) {
        leased.started();
        let done = catch_unwind(AssertUnwindSafe(|| judge(leased.job())));
        match done {
            Ok(Done::Answered(answer)) => leased.end(answer),
            Ok(Done::Gone) => return leased.give_back(),
            Err(_) => leased.end(Err(Failed::ours("failed to judge: the judge panicked"))),
        }
    }
}
