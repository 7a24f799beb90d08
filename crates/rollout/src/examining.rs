//! Examines many tasks concurrently, without a candidate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use warpwright_judge::{Bar, Examination, JudgeError, SessionPool, Sharing};
use warpwright_task::Task;

use crate::error::RolloutError;
use crate::judge_host::JudgeHost;

/// The result of examining a task.
pub enum Examined {
    /// The task runs; the findings.
    Looked(Box<Examination>),
    /// The task cannot be judged; the reason in one line.
    Refused(String),
}

impl Examined {
    /// Whether there is no objection to the task.
    pub fn sound(&self) -> bool {
        matches!(self, Self::Looked(found) if found.objections.is_empty())
    }
}

/// Default number of concurrent tasks, from the number of cores: tasks compile in parallel and wait
/// while one is timed.
pub fn usual_jobs(host: &JudgeHost) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if host.judge.times_while_others_work() { cores.clamp(4, 16) } else { cores }
}

/// How to examine tasks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Concurrent tasks per device; `None` uses the default.
    pub jobs: Option<usize>,
    /// Whether tasks share processes.
    pub processes: Sharing,
}

/// Examines every task on the next free device; results are in the order of the tasks. Calls `each`
/// for each finished task, from any thread, but never concurrently. Ends early with partial results
/// when `stop` is set. An infrastructure failure also ends it.
pub fn examine_all(
    hosts: &[JudgeHost],
    tasks: &[Task],
    look: Look,
    stop: &AtomicBool,
    each: impl Fn(&Task, &Examined) + Sync,
) -> Result<Vec<Option<Examined>>, RolloutError> {
    let pools: Vec<_> = hosts.iter().map(|b| (b, SessionPool::to_examine(&b.judge))).collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Examined>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let work = |pool: &SessionPool<'_>| -> Result<(), RolloutError> {
        while !stop.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { break };
            let looked = || pool.examine(task, None, Bar::Sound, look.processes);
            let examined = match task.facts().map_err(|error| error.to_string()).map(|_| looked()) {
                Err(message) => Examined::Refused(message),
                Ok(Ok(found)) => Examined::Looked(Box::new(found)),
                Ok(Err(
                    JudgeError::Reference { message, .. } | JudgeError::Memory { message, .. },
                )) => Examined::Refused(message.lines().next().unwrap_or_default().to_owned()),
                Ok(Err(error)) => {
                    stop.store(true, Ordering::SeqCst);
                    return Err(error.into());
                }
            };
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            each(task, &examined);
            done[number] = Some(examined);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (host, pool) in &pools {
            let jobs = look.jobs.unwrap_or_else(|| usual_jobs(host)).max(1);
            workers.extend((0..jobs).map(|_| scope.spawn(|| work(pool))));
        }
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| died()).and_then(|d| d))
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn died() -> RolloutError {
    let message = "failed to examine the tasks: a thread panicked";
    RolloutError::infrastructure(message, "report this bug".to_owned())
}
