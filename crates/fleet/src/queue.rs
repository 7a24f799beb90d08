//! The queue of one process.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_task::Task;

use self::homes::Homes;
pub use self::homes::Station;
use crate::job::{Answer, Failed, Job};

mod homes;

/// How often a job is begun: one that takes every device with it is not tried for ever.
const ATTEMPTS: u32 = 3;
/// Weight of the newest job in the mean of what they take.
const NEWEST: f64 = 0.1;

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs of one client, those that are judged included.
    pub per_client: usize,
}

/// Why a job was not taken in. It may be offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("the queue is full: {waiting} jobs wait")]
    Full {
        /// So many.
        waiting: usize,
    },
    /// This client has as many as it may.
    #[error("{jobs} jobs of this client are under way, as many as it may have")]
    Client {
        /// So many.
        jobs: usize,
    },
    /// No more are taken in.
    #[error("the server is ending")]
    Ending,
    /// Every device is gone.
    #[error("nobody is there to judge")]
    Deserted,
}

/// What a listener is told of its job.
#[derive(Debug)]
pub enum News {
    /// A worker has begun; again, if the first one's device went.
    Started,
    /// The last news.
    Ended(Answer),
}

/// Told of one job. Called from the thread of a worker, or of whoever ends the queue.
pub type Listener = Box<dyn FnMut(News) + Send>;

/// Whether somebody would take a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The next one.
    Yes,
    /// None now.
    NotYet,
    /// None any more.
    Never,
}

/// What a queue has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that are judged.
    pub running: usize,
    /// Threads that judge.
    pub workers: usize,
    /// Seconds that judging took of late; 0 before the first.
    pub seconds: f64,
}

impl Load {
    /// Seconds until a job that comes now would be begun, by what jobs took of late.
    pub fn wait_seconds(&self) -> f64 {
        let ahead = (self.waiting + self.running + 1).saturating_sub(self.workers);
        ahead as f64 * self.seconds / self.workers.max(1) as f64
    }
}

/// Jobs of many clients, served in turn: one with a thousand does not keep another with one waiting.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Clients that have jobs here, the one that is served next first.
    lines: VecDeque<Line>,
    load: Load,
    ended: bool,
    /// Everyone who was there to judge has gone.
    deserted: bool,
    came: u64,
    homes: Homes,
}

impl State {
    /// The line, and the job in it, that a station is to take.
    fn choose(&self, station: Station) -> Option<(usize, usize)> {
        let jobs = self.lines.iter().enumerate().flat_map(|(at, line)| {
            let waiting = line.waiting.iter().enumerate();
            waiting.map(move |(index, waiting)| ((at, index), &*waiting.job.task.hash))
        });
        self.homes.choose(station, jobs)
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
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Takes a job in. Who drops the ticket gives the job up, if nobody has begun it; its listener hears no
    /// more of it then.
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

    /// The next job for whoever judges there. Waits for one; none once the queue has ended and all are begun.
    pub fn take(&self, station: Station) -> Option<Leased<'_>> {
        self.take_when(station, || Ready::Yes)
    }

    /// The same for one who is not always ready, and asked again at every [`Queue::nudge`].
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
                state.homes.begin(station, &waiting.job.task.hash);
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

    /// Who waits in [`Queue::take_when`] is asked again.
    pub fn nudge(&self) {
        // Under the lock: nobody is between having been asked and waiting.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Takes no more in; what is there is still judged.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The same, but what waits is given up.
    pub fn abandon(&self) {
        self.end();
        self.give_up(&Failed::Ending);
    }

    /// Whether no more are taken in.
    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// What there is to do.
    pub fn load(&self) -> Load {
        self.lock().load
    }

    /// Waits until nothing is to be done any more, at most so long; whether that came.
    pub fn wait_idle(&self, most: Duration) -> bool {
        let busy = |state: &mut State| state.load.waiting + state.load.running > 0;
        let waited = self.changed.wait_timeout_while(self.lock(), most, busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !busy(&mut state)
    }

    /// A task is open there: its jobs are for that station, until another is far ahead.
    pub fn settle(&self, station: Station, task: &Task) {
        self.lock().homes.settle(station, &task.hash);
    }

    /// One more works there, for as long as this lives.
    pub(crate) fn enter(&self, station: Station) -> AtWork<'_> {
        let mut state = self.lock();
        state.load.workers += 1;
        state.deserted = false;
        state.homes.enter(station);
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
            (waiting.listener)(News::Ended(Err(why.clone())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The bookkeeping is whole after every change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that judges; when the last one goes before the end, what waits has nobody to wait for.
#[derive(Debug)]
pub(crate) struct AtWork<'q> {
    queue: &'q Queue,
    station: Station,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.load.workers -= 1;
        state.homes.leave(self.station);
        state.deserted = state.load.workers == 0;
        let deserted = state.deserted;
        drop(state);
        // What was at home there is anybody's.
        self.queue.changed.notify_all();
        if deserted {
            self.queue.give_up(&Failed::ours("failed to judge: every device is gone"));
        }
    }
}

/// A job that waits or is judged.
#[derive(Debug)]
pub struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

impl Ticket {
    /// Jobs that came before it and still wait; none if it does not wait any more.
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

/// A job that a worker has. If it is dropped without an answer, its listener is told that its judge died.
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
    /// What is to be judged.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The same, for longer than it is held.
    pub(crate) fn shared_job(&self) -> Arc<Job> {
        Arc::clone(&self.job)
    }

    /// Tells the listener that it is begun.
    pub fn started(&mut self) {
        if let Some((_, waiting)) = &mut self.held {
            (waiting.listener)(News::Started);
        }
    }

    /// It is over.
    pub fn end(mut self, answer: Answer) {
        self.finish(answer, true);
    }

    /// Somebody else is to judge it. Tried too often, it ends.
    pub fn give_back(mut self) {
        let Some((client, waiting)) = self.held.take() else { return };
        if waiting.attempts >= ATTEMPTS {
            self.held = Some((client, waiting));
            let message = format!("failed to judge: {ATTEMPTS} devices went while this was judged");
            return self.finish(Err(Failed::ours(message)), false);
        }
        let mut state = self.queue.lock();
        state.load.running -= 1;
        state.homes.end(self.station);
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
        state.homes.end(self.station);
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
        (waiting.listener)(News::Ended(answer));
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        self.finish(Err(Failed::ours("failed to judge: whoever judged it died")), false);
    }
}

#[cfg(test)]
mod tests;
