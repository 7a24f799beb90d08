//! Sessions: episodes that external trainers play on this server, message by message.
//!
//! ```text
//! open ─► Opening ─► a host's thread: workspace, tools, judge (agent::episode::run) ─┐
//!   │                     ▲ messages            results ▼                            │
//!   └─► Session ──────────┴─────────────────────────────┴──────── Ended ◄────────────┘
//! ```
//!
//! The owner of the devices hosts them ([`Sessions::next`]). A session ends with its episode, when its client
//! closes it, after the idle timeout, or with the server. Its workspace and processes end with it.

mod policy;
mod session;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use warpwright_agent::episode::Ended;
use warpwright_agent::policy::Policy;
use warpwright_task::Task;

use self::policy::{SessionEvent, SessionPolicy};
pub(crate) use self::session::{Session, Turn, reward};
use crate::problem::{Kind, Problem};

/// Interval of the checks for idle sessions.
const SWEEP: Duration = Duration::from_secs(1);
/// `Retry-After` if a limit of sessions is reached.
const AGAIN: Duration = Duration::from_secs(5);

/// Limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Concurrent sessions. The same number of ended ones is remembered.
    pub most: usize,
    /// Concurrent sessions of one client.
    pub per_client: usize,
    /// Idle timeout: a session without requests for this long is ended.
    pub idle: Duration,
}

/// All sessions of a server.
#[derive(Debug)]
pub struct Sessions {
    limits: SessionLimits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<String, Arc<Session>>,
    /// Ended sessions, oldest first.
    ended: VecDeque<String>,
    openings: VecDeque<Opening>,
    /// Running episodes, including those of closed sessions.
    played: usize,
    /// No session may begin.
    is_ending: bool,
    /// Hosting has ended.
    is_over: bool,
}

/// An episode to host.
#[derive(Debug)]
pub struct Opening {
    /// The session's id: 32 hexadecimal digits.
    pub id: String,
    /// The task.
    pub task: Task,
    /// Seed of the episode.
    pub seed: u64,
    policy: SessionPolicy,
    stop: Arc<AtomicBool>,
}

impl Opening {
    /// Runs the episode with `run`, which must return when the episode ends or `stop` is set. A panic is an
    /// infrastructure error.
    pub fn play(
        mut self,
        run: impl FnOnce(&Task, u64, &mut dyn Policy, &AtomicBool) -> Result<Ended, String>,
    ) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run(&self.task, self.seed, &mut self.policy, &self.stop)
        }));
        let ended = ran.unwrap_or_else(|_| Err("the episode panicked".to_owned()));
        // Its client may be gone.
        let _ = self.policy.events.blocking_send(SessionEvent::Ended(ended.map(Box::new)));
    }
}

impl Sessions {
    /// No sessions.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of `client`, and waits until a host runs its episode.
    pub(crate) async fn open(
        &self,
        client: &str,
        task: Task,
        seed: u64,
    ) -> Result<Arc<Session>, Problem> {
        let session = self.take_in(client, task, seed)?;
        // Closes it also if the request is cancelled: the client does not know its id then.
        let unbegun = Unbegun(self, &session.id);
        session.begun().await?;
        std::mem::forget(unbegun);
        Ok(session)
    }

    fn take_in(&self, client: &str, task: Task, seed: u64) -> Result<Arc<Session>, Problem> {
        let mut state = self.state();
        state.forget(self.limits);
        if state.is_ending {
            return Err(Problem::new(
                Kind::Ending,
                "failed to begin a session: the server is shutting down",
            ));
        }
        let live = |client: Option<&str>| {
            let of = |session: &&Arc<Session>| client.is_none_or(|name| session.client == name);
            state.sessions.values().filter(of).filter(|session| !session.has_ended()).count()
        };
        let busy = |detail: String| Problem::new(Kind::Busy, detail).retry_after(AGAIN);
        let (all, own) = (live(None), live(Some(client)));
        if all >= self.limits.most || state.played >= 2 * self.limits.most {
            return Err(busy(format!(
                "failed to begin a session: {all} sessions run, which is the limit"
            )));
        }
        if own >= self.limits.per_client {
            return Err(busy(format!(
                "failed to begin a session: {own} sessions of this client run, which is the limit per client"
            )));
        }
        let id = format!("{:032x}", rand::random::<u128>());
        let stop = Arc::new(AtomicBool::new(false));
        let (says, heard) = mpsc::channel(1);
        let (tell, events) = mpsc::channel(4);
        let names = (id.clone(), client.to_owned());
        let session = Arc::new(Session::new(names, &task, Arc::clone(&stop), says, events));
        state.sessions.insert(id.clone(), Arc::clone(&session));
        let policy = SessionPolicy { says: heard, events: tell };
        state.openings.push_back(Opening { id, task, seed, policy, stop });
        state.played += 1;
        self.changed.notify_one();
        Ok(session)
    }

    /// A client's session.
    pub(crate) fn find(&self, client: &str, id: &str) -> Result<Arc<Session>, Problem> {
        let found =
            self.state().sessions.get(id).filter(|session| session.client == client).cloned();
        found.ok_or_else(|| {
            let id: String = id.chars().take(64).collect();
            Problem::new(Kind::UnknownSession, format!("this client has no session {id:?}")).hint(Some(
                "begin another session: the server ends a session that is idle (`--session-idle`)",
            ))
        })
    }

    /// Ends a session at once, without a reward.
    pub(crate) fn close(&self, id: &str) {
        let session = self.state().sessions.remove(id);
        if let Some(session) = session {
            session.close();
        }
    }

    /// The next episode to host. Blocks until there is one; `None` after [`Sessions::abandon`]. It also ends idle
    /// sessions, so one thread should always be in this call.
    pub fn next(&self) -> Option<Opening> {
        let mut state = self.state();
        let mut swept = Instant::now();
        loop {
            if let Some(opening) = state.openings.pop_front() {
                if opening.stop.load(Ordering::SeqCst) {
                    // Closed before it was begun.
                    state.played -= 1;
                    continue;
                }
                return Some(opening);
            }
            if state.is_over {
                return None;
            }
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                state.forget(self.limits);
            }
            let waited = self.changed.wait_timeout(state, SWEEP);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reports that a hosted episode has ended and its resources are released.
    pub fn hosted(&self) {
        self.state().played -= 1;
    }

    /// Number of running episodes.
    pub fn played(&self) -> usize {
        self.state().played
    }

    /// Accepts no more sessions; running ones continue.
    pub fn end(&self) {
        self.state().is_ending = true;
    }

    /// Accepts no more sessions, and ends the running ones.
    pub fn abandon(&self) {
        let mut state = self.state();
        (state.is_ending, state.is_over) = (true, true);
        for (_, session) in state.sessions.drain() {
            session.close();
        }
        self.changed.notify_all();
    }
}

/// Closes a session whose id no client received.
struct Unbegun<'s>(&'s Sessions, &'s str);

impl Drop for Unbegun<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

impl State {
    /// Ends idle sessions, and forgets the oldest ended ones.
    fn forget(&mut self, limits: SessionLimits) {
        let idle = |session: &Session| session.idle().is_some_and(|idle| idle > limits.idle);
        self.sessions.retain(|_, session| {
            let stays = !idle(session);
            if !stays {
                session.close();
            }
            stays
        });
        for (id, session) in &self.sessions {
            if session.has_ended() && !session.is_listed.swap(true, Ordering::Relaxed) {
                self.ended.push_back(id.clone());
            }
        }
        self.ended.retain(|id| self.sessions.contains_key(id));
        while self.ended.len() > limits.most {
            if let Some(id) = self.ended.pop_front() {
                self.sessions.remove(&id);
            }
        }
    }
}
