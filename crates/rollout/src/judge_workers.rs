//! Threads that judge the jobs of a queue, on open devices.
//!
//! ```text
//! serve:   queue ───────────────────────────────────► judge workers of each device
//! worker:  NATS ─► slots ─► a queue of its own ─────► judge workers of each device
//! ```
//!
//! The queue knows which device keeps a task open, also on a fleet worker. Without it every device
//! of a host would open every task.

use std::borrow::Borrow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::Scope;

use warpwright_fleet::nats::Slot;
use warpwright_fleet::{Done, Failed, Job, JobEvent, Queue, Station, work};
use warpwright_judge::{JudgeError, SessionPool};

use crate::error::chain;
use crate::pool_judge::patiently;

/// Judge threads per concurrent session of a device: some compile while others measure.
const EACH: usize = 2;

/// Number of threads for these devices.
pub fn count<'p>(pools: &[impl Borrow<SessionPool<'p>>]) -> usize {
    pools.iter().map(|pool| EACH * pool.borrow().at_once()).sum()
}

/// Starts the threads. They end with the queue.
pub fn start<'s, 'p: 's>(
    scope: &'s Scope<'s, '_>,
    pools: &'s [impl Borrow<SessionPool<'p>> + Sync],
    queue: &'s Queue,
    stop: &'s AtomicBool,
) {
    for (number, pool) in pools.iter().enumerate() {
        for _ in 0..count(std::slice::from_ref(pool)) {
            scope.spawn(move || {
                work(queue, Station(number), |job| judge(pool.borrow(), job, stop));
            });
        }
    }
}

/// `count` entries into the queue for jobs of other hosts.
pub fn slots(queue: &Arc<Queue>, count: usize) -> Vec<Slot<'_>> {
    (0..count).map(|_| -> Slot<'_> { Box::new(|job| through(queue, job)) }).collect()
}

/// Judges a job through the queue. If no worker is left, the job returns to the fleet for another
/// host.
pub fn through(queue: &Arc<Queue>, job: &Job) -> Done {
    let (tell, told) = mpsc::sync_channel(1);
    let listener = Box::new(move |news| {
        if let JobEvent::Ended(answer) = news {
            // The caller waits for it.
            let _ = tell.send(answer);
        }
    });
    let Ok(_ticket) = queue.submit("another host", job.clone(), listener) else {
        return Done::Gone;
    };
    match told.recv() {
        Ok(Err(Failed::Infrastructure { .. } | Failed::Ending)) if queue.load().workers == 0 => {
            Done::Gone
        }
        Ok(answer) => Done::Answered(answer),
        Err(mpsc::RecvError) => Done::Gone,
    }
}

/// Judges a job on a device.
fn judge(pool: &SessionPool<'_>, job: &Job, stop: &AtomicBool) -> Done {
    // An invalid task is refused without device time.
    if let Err(error) = job.task.facts() {
        let hint = Some(error.hint().to_owned());
        return Done::Answered(Err(Failed::Task { message: error.to_string(), hint }));
    }
    let Job { task, candidate, stage, fresh } = job;
    let judged = patiently(stop, || {
        if *fresh {
            pool.afresh(task, candidate, *stage)
        } else {
            pool.verdict(task, candidate, *stage)
        }
    });
    let error = match judged {
        Ok(verdict) => return Done::Answered(Ok(Box::new(verdict))),
        Err(JudgeError::DeviceLost { .. }) => return Done::Gone,
        Err(error) => error,
    };
    let (message, hint) = (chain(&error), error.hint().map(str::to_owned));
    Done::Answered(Err(match error {
        JudgeError::Reference { .. }
        | JudgeError::Degenerate { .. }
        | JudgeError::TooLarge { .. }
        | JudgeError::Memory { .. } => Failed::Task { message, hint },
        _ => Failed::Infrastructure { message, hint },
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use warpwright_fleet::Limits;
    use warpwright_record::candidate::Candidate;
    use warpwright_record::verdict::Stage;
    use warpwright_task::Task;

    use super::*;

    fn job(name: &str) -> Job {
        let candidate = Candidate::from_files(BTreeMap::new());
        Job { task: Task::from_source(name, ""), candidate, stage: Stage::Built, fresh: false }
    }

    /// The result of the job, in a word.
    fn word(done: &Done) -> String {
        match done {
            Done::Gone => "gone".to_owned(),
            Done::Answered(Ok(_)) => "verdict".to_owned(),
            Done::Answered(Err(failed)) => failed.to_string(),
        }
    }

    #[test]
    fn fleet_jobs_are_judged_while_workers_exist() {
        let queue = Arc::new(Queue::new(Limits { waiting: 8, per_client: 8 }));
        let slots = slots(&queue, 3);
        let fails = |job: &Job| {
            let message = job.task.name.clone();
            Done::Answered(Err(Failed::Infrastructure { message, hint: None }))
        };
        std::thread::scope(|scope| {
            // One of two devices goes; the other one judges on.
            scope.spawn(|| work(&queue, Station(0), |_| Done::Gone));
            scope.spawn(|| {
                work(&queue, Station(1), |job| {
                    if job.task.name == "last" { Done::Gone } else { fails(job) }
                });
            });
            while queue.load().workers < 2 {
                std::thread::yield_now();
            }
            for name in ["a", "b", "a"] {
                assert_eq!(word(&slots[0](&job(name))), name);
            }
            assert_eq!(word(&slots[1](&job("last"))), "gone");
            assert_eq!(word(&slots[2](&job("after it"))), "gone");
        });
    }
}
