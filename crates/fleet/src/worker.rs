//! A judge worker: one thread that judges jobs of a queue.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::job::{Answer, Failed, Job};
use crate::queue::{Queue, Station};

/// How a worker left a job.
#[derive(Debug)]
pub enum Done {
    /// It ended with this answer.
    Answered(Answer),
    /// Its device is lost: the job goes to another worker, and this one takes no more.
    Gone,
}

/// Judges the queue's jobs for this station until the queue is closed and empty, or the device is lost. If
/// `judge` panics, the job ends with an infrastructure error and the worker takes the next one.
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
