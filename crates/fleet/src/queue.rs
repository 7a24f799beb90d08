//! The queue of one process.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_task::Task;

use self::affinity::Affinity;
pub use self::affinity::Station;
use crate::job::{Answer, Failed, Job};

mod affinity;

/// Attempts per job. A job that loses a device each time must not be retried for ever.
const ATTEMPTS: u32 = 3;
/// Weight of the newest job in the moving average of judging time.
const NEWEST: f64 = 0.1;

/// Limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that wait, over all clients.
    pub waiting: usize,
    /// Jobs of one client, waiting and running together.
    pub per_client: usize,
}

/// Why the queue refused a job. The caller may submit it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// [`Limits::waiting`] is reached.
    #[error("failed to queue the job: {waiting} jobs wait, which is the queue's limit")]
    Full {
        /// Jobs that wait.
        waiting: usize,
    },
    /// [`Limits::per_client`] is reached.
    #[error(
        "failed to queue the job: {jobs} jobs of this client wait or run, which is the limit per client"
    )]
    Client {
        /// Jobs of this client that wait or run.
        jobs: usize,
    },
    /// The queue accepts no more jobs.
    #[error("failed to judge: the server is shutting down")]
    Ending,
    /// No worker is left.
    #[error("failed to queue the job: no judge worker is connected")]
    Deserted,
}

/// An event of one job, for its listener.
#[derive(Debug)]
pub enum JobEvent {
    /// A worker began the job. Sent again if another worker begins it after a lost device.
    Started,
    /// The job ended. No event follows.
    Ended(Answer),
}

/// Receives the events of one job. Called on the worker's thread, or on the thread that ends the queue.
pub type Listener = Box<dyn FnMut(JobEvent) + Send>;

/// Whether a worker takes a job now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It takes the next job.
    Yes,
    /// It takes none now.
    NotYet,
    /// It takes no more jobs.
    Never,
}

/// The load of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that a worker judges.
    pub running: usize,
    /// Judge workers (threads).
    pub workers: usize,
    /// Moving average of the seconds that a job takes; 0 before the first.
    pub seconds: f64,
}

impl Load {
    /// Estimated seconds until a job submitted now is begun.
    pub fn wait_seconds(&self) -> f64 {
        let ahead = (self.waiting + self.running + 1).saturating_sub(self.workers);
        ahead as f64 * self.seconds / self.workers.max(1) as f64
    }
}

/// Jobs of many clients, served round robin: a client with a thousand jobs does not delay a client with one.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Clients that have jobs here; the first one is served next.
    lines: VecDeque<Line>,
    load: Load,
    ended: bool,
    /// The last worker left before the queue ended.
    deserted: bool,
    came: u64,
    affinity: Affinity,
}

impl State {
    /// The client's line, and the job's index in it, that a station takes next.
    fn choose(&self, station: Station) -> Option<(usize, usize)> {
        let jobs = self.lines.iter().enumerate().flat_map(|(at, line)| {
            let waiting = line.waiting.iter().enumerate();
            waiting.map(move |(index, waiting)| ((at, index), &*waiting.job.task.hash))
        });
        self.affinity.choose(station, jobs)
    }
}

#[derive(Debug)]
struct Line {
    client: String,
    waiting: VecDeque<Waiting>,
    running: usize,
}

struct Waiting {
    number: u64,
    job: Arc<Job>,
    listener: Listener,
    attempts: u32,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Queue {
    /// An empty queue.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Queues a job. Dropping the ticket cancels the job if no worker has begun it; its listener then gets no
    /// more events.
    pub fn submit(
        self: &Arc<Self>,
        client: &str,
        job: Job,
        listener: Listener,
    ) -> Result<Ticket, Refused> {
        let mut state = self.lock();
        if state.ended {
            return Err(Refused::Ending);
        }
        if state.deserted {
            return Err(Refused::Deserted);
        }
        if state.load.waiting >= self.limits.waiting {
            return Err(Refused::Full { waiting: state.load.waiting });
        }
        let at = state.lines.iter().position(|line| line.client == client);
        let jobs = at.map_or(0, |at| state.lines[at].waiting.len() + state.lines[at].running);
        if jobs >= self.limits.per_client {
            return Err(Refused::Client { jobs });
        }
        let at = at.unwrap_or_else(|| {
            let line = Line { client: client.to_owned(), waiting: VecDeque::new(), running: 0 };
            state.lines.push_back(line);
            state.lines.len() - 1
        });
        let number = state.came;
        state.came += 1;
        let waiting = Waiting { number, job: Arc::new(job), listener, attempts: 0 };
        state.lines[at].waiting.push_back(waiting);
        state.load.waiting += 1;
        drop(state);
        self.changed.notify_all();
        Ok(Ticket { queue: Arc::clone(self), number })
    }

    /// The next job for a station. Blocks until there is one; `None` once the queue has ended and no job is left.
    pub fn take(&self, station: Station) -> Option<Leased<'_>> {
        self.take_when(station, || Ready::Yes)
    }

    /// The same for a worker that is not always ready. `ready` is called again after every [`Queue::nudge`].
    pub fn take_when(&self, station: Station, ready: impl Fn() -> Ready) -> Option<Leased<'_>> {
        let mut state = self.lock();
        loop {
            let ready = ready();
            if ready == Ready::Never {
                return None;
            }
            let chosen = if ready == Ready::Yes { state.choose(station) } else { None };
            if let Some((at, index)) = chosen {
                // Whoever is served goes behind the others.
                let mut line = state.lines.remove(at)?;
                let waiting = line.waiting.remove(index)?;
                state.affinity.begin(station, &waiting.job.task.hash);
                line.running += 1;
                let client = line.client.clone();
                state.lines.push_back(line);
                state.load.waiting -= 1;
                state.load.running += 1;
                let Waiting { number, job, listener, attempts } = waiting;
                let waiting = Waiting { number, job, listener, attempts: attempts + 1 };
                let (job, held) = (Arc::clone(&waiting.job), Some((client, waiting)));
                return Some(Leased { queue: self, station, job, held, since: Instant::now() });
            }
            // What somebody judges may come back.
            if state.ended && state.load.running == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes callers of [`Queue::take_when`], so that they check `ready` again.
    pub fn nudge(&self) {
        // Under the lock: nobody is between having been asked and waiting.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Accepts no more jobs; queued jobs are still judged.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Accepts no more jobs, and ends the waiting ones with [`Failed::Ending`].
    pub fn abandon(&self) {
        self.end();
        self.give_up(&Failed::Ending);
    }

    /// Whether the queue accepts no more jobs.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// The current load.
    pub fn load(&self) -> Load {
        self.lock().load
    }

    /// Waits until no job waits or runs, for `most` at most; whether that was reached.
    pub fn wait_idle(&self, most: Duration) -> bool {
        let busy = |state: &mut State| state.load.waiting + state.load.running > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), most, busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !busy(&mut state)
    }

    /// Binds a task to a station that has opened it: its jobs go there, until another station has much less to do.
    pub fn settle(&self, station: Station, task: &Task) {
        self.lock().affinity.settle(station, &task.hash);
    }

    /// Registers one more worker of a station, until the guard is dropped.
    pub(crate) fn enter(&self, station: Station) -> AtWork<'_> {
        let mut state = self.lock();
        state.load.workers += 1;
        state.deserted = false;
        state.affinity.enter(station);
        AtWork { queue: self, station }
    }

    fn give_up(&self, why: &Failed) {
        let mut state = self.lock();
        let all: Vec<Waiting> =
            state.lines.iter_mut().flat_map(|line| std::mem::take(&mut line.waiting)).collect();
        state.load.waiting = 0;
        state.lines.retain(|line| line.running > 0);
        drop(state);
        self.changed.notify_all();
        for mut waiting in all {
            (waiting.listener)(JobEvent::Ended(Err(why.clone())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registration of one judge worker. When the last one is dropped before the queue ends, waiting jobs fail.
#[derive(Debug)]
pub(crate) struct AtWork<'q> {
    queue: &'q Queue,
    station: Station,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.load.workers -= 1;
        state.affinity.leave(self.station);
        state.deserted = state.load.workers == 0;
        let deserted = state.deserted;
        drop(state);
        // Tasks that were bound to that station are free.
        self.queue.changed.notify_all();
        if deserted {
            self.queue.give_up(&Failed::ours("failed to judge: every device is lost"));
        }
    }
}

/// A job that waits or runs.
#[derive(Debug)]
pub struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

impl Ticket {
    /// Waiting jobs that were submitted before it; `None` if it no longer waits.
    pub fn ahead(&self) -> Option<usize> {
        let state = self.queue.lock();
        let mut numbers = state.lines.iter().flat_map(|line| &line.waiting).map(|w| w.number);
        let waits = numbers.clone().any(|number| number == self.number);
        waits.then(|| numbers.by_ref().filter(|number| *number < self.number).count())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let mut given_up = None;
        for line in &mut state.lines {
            if let Some(at) = line.waiting.iter().position(|w| w.number == self.number) {
                given_up = line.waiting.remove(at);
            }
        }
        if given_up.is_some() {
            state.load.waiting -= 1;
            state.lines.retain(|line| line.running > 0 || !line.waiting.is_empty());
        }
        drop(state);
        // Its listener may do anything: not under the lock.
        drop(given_up);
        self.queue.changed.notify_all();
    }
}

/// A job that a worker holds. If it is dropped without an answer, the job ends with an infrastructure error.
#[derive(Debug)]
pub struct Leased<'q> {
    queue: &'q Queue,
    station: Station,
    job: Arc<Job>,
    /// None once it is over.
    held: Option<(String, Waiting)>,
    since: Instant,
}

impl Leased<'_> {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The same, shared: it may outlive the lease.
    pub(crate) fn shared_job(&self) -> Arc<Job> {
        Arc::clone(&self.job)
    }

    /// Tells the listener that the job was begun.
    pub fn started(&mut self) {
        if let Some((_, waiting)) = &mut self.held {
            (waiting.listener)(JobEvent::Started);
        }
    }

    /// Ends the job with this answer.
    pub fn end(mut self, answer: Answer) {
        self.finish(answer, true);
    }

    /// Returns the job to the front of its line, for another worker. After the last attempt it ends with an
    /// infrastructure error.
    pub fn give_back(mut self) {
        let Some((client, waiting)) = self.held.take() else { return };
        if waiting.attempts >= ATTEMPTS {
            self.held = Some((client, waiting));
            let message =
                format!("failed to judge: {ATTEMPTS} devices in a row were lost during this job");
            return self.finish(Err(Failed::ours(message)), false);
        }
        let mut state = self.queue.lock();
        state.load.running -= 1;
        state.affinity.end(self.station);
        state.load.waiting += 1;
        if let Some(line) = state.lines.iter_mut().find(|line| line.client == client) {
            line.running -= 1;
            line.waiting.push_front(waiting);
        }
        drop(state);
        self.queue.changed.notify_all();
    }

    fn finish(&mut self, answer: Answer, counts: bool) {
        let Some((client, mut waiting)) = self.held.take() else { return };
        let seconds = self.since.elapsed().as_secs_f64();
        let mut state = self.queue.lock();
        state.load.running -= 1;
        state.affinity.end(self.station);
        if counts {
            let mean = state.load.seconds;
            state.load.seconds =
                if mean > 0.0 { mean + NEWEST * (seconds - mean) } else { seconds };
        }
        if let Some(at) = state.lines.iter().position(|line| line.client == client) {
            state.lines[at].running -= 1;
            if state.lines[at].running == 0 && state.lines[at].waiting.is_empty() {
                state.lines.remove(at);
            }
        }
        drop(state);
        self.queue.changed.notify_all();
        (waiting.listener)(JobEvent::Ended(answer));
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.finish(Err(Failed::ours("failed to judge: the judge worker died")), false);
    }
}

#[cfg(test)]
mod tests;
