//! Sessions: episodes that others' trainers play here, message by message.
//!
//! ```text
//! open ─► Opening ─► a host's thread: workspace, tools, judge (agent::episode::run) ─┐
//!   │                     ▲ messages            results ▼                            │
//!   └─► Room ─────────────┴─────────────────────────────┴──────── Ended ◄────────────┘
//! ```
//!
//! Whoever has devices hosts them ([`Sessions::next`]). A session ends with its episode, when its client closes
//! it, when nobody has asked anything of it for a while, or with the server; always with everything that it had.

mod room;
mod visitor;

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use warpwright_agent::episode::Ended;
use warpwright_agent::policy::Policy;
use warpwright_task::Task;

pub(crate) use self::room::{Room, Turn, reward};
use self::visitor::{News, Visitor};
use crate::problem::{Kind, Problem};

/// How often it is looked for sessions that nobody asks for.
const SWEEP: Duration = Duration::from_secs(1);
/// When to come again if there are too many.
const AGAIN: Duration = Duration::from_secs(5);

/// How many sessions there may be, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions at once; as many that have ended are remembered.
    pub most: usize,
    /// Of one client.
    pub per_client: usize,
    /// How long nobody may ask anything of one.
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
    rooms: HashMap<String, Arc<Room>>,
    /// Those that have ended, the first first.
    ended: VecDeque<String>,
    openings: VecDeque<Opening>,
    /// Episodes that are played, also of rooms that are closed.
    played: usize,
    /// No new ones.
    is_ending: bool,
    /// Nobody hosts any more.
    is_over: bool,
}

/// An episode to host.
#[derive(Debug)]
pub struct Opening {
    /// The session's name, which is of letters and digits.
    pub id: String,
    /// What is worked on.
    pub task: Task,
    /// Decides what is drawn.
    pub seed: u64,
    visitor: Visitor,
    stop: Arc<AtomicBool>,
}

impl Opening {
    /// Plays it with `run`, which is to run an episode until it ends or `stop` is set. What panics is our own
    /// failure.
    pub fn play(
        mut self,
        run: impl FnOnce(&Task, u64, &mut dyn Policy, &AtomicBool) -> Result<Ended, String>,
    ) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            run(&self.task, self.seed, &mut self.visitor, &self.stop)
        }));
        let ended = ran.unwrap_or_else(|_| Err("the episode panicked".to_owned()));
        // Its client may be gone.
        let _ = self.visitor.news.blocking_send(News::Ended(ended.map(Box::new)));
    }
}

impl Sessions {
    /// None yet.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whole after every change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of `client`, once somebody hosts it.
    pub(crate) async fn open(
        &self,
        client: &str,
        task: Task,
        seed: u64,
    ) -> Result<Arc<Room>, Problem> {
        let room = self.take_in(client, task, seed)?;
        // Also where whoever asks goes away meanwhile: nobody knows its name then.
        let unbegun = Unbegun(self, &room.id);
        room.begun().await?;
        std::mem::forget(unbegun);
        Ok(room)
    }

    fn take_in(&self, client: &str, task: Task, seed: u64) -> Result<Arc<Room>, Problem> {
        let mut state = self.state();
        state.forget(self.limits);
        if state.is_ending {
            return Err(Problem::new(Kind::Ending, "no more sessions are begun"));
        }
        let live = |client: Option<&str>| {
            let of = |room: &&Arc<Room>| client.is_none_or(|name| room.client == name);
            state.rooms.values().filter(of).filter(|room| !room.has_ended()).count()
        };
        let busy = |detail: String| Problem::new(Kind::Busy, detail).retry_after(AGAIN);
        let (all, own) = (live(None), live(Some(client)));
        if all >= self.limits.most || state.played >= 2 * self.limits.most {
            return Err(busy(format!("{all} sessions are played, as many as may be")));
        }
        if own >= self.limits.per_client {
            return Err(busy(format!(
                "{own} sessions of this client are played, as many as may be"
            )));
        }
        let id = format!("{:032x}", rand::random::<u128>());
        let stop = Arc::new(AtomicBool::new(false));
        let (says, heard) = mpsc::channel(1);
        let (tell, news) = mpsc::channel(4);
        let names = (id.clone(), client.to_owned());
        let room = Arc::new(Room::new(names, &task, Arc::clone(&stop), says, news));
        state.rooms.insert(id.clone(), Arc::clone(&room));
        let visitor = Visitor { says: heard, news: tell };
        state.openings.push_back(Opening { id, task, seed, visitor, stop });
        state.played += 1;
        self.changed.notify_one();
        Ok(room)
    }

    /// A client's session.
    pub(crate) fn find(&self, client: &str, id: &str) -> Result<Arc<Room>, Problem> {
        let found = self.state().rooms.get(id).filter(|room| room.client == client).cloned();
        found.ok_or_else(|| {
            let id: String = id.chars().take(64).collect();
            Problem::new(Kind::UnknownSession, format!("there is no session {id:?}")).hint(Some(
                "sessions end when nobody asks for them (`--session-idle`), or were never begun",
            ))
        })
    }

    /// Ends a session, whatever it does.
    pub(crate) fn close(&self, id: &str) {
        let room = self.state().rooms.remove(id);
        if let Some(room) = room {
            room.close();
        }
    }

    /// The next episode to host; waits for one. `None` when there will be none. Also ends sessions that nobody
    /// asks for, so somebody should always wait.
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

    /// An episode that was hosted is over, and nothing is left of it.
    pub fn hosted(&self) {
        self.state().played -= 1;
    }

    /// Episodes that are played.
    pub fn played(&self) -> usize {
        self.state().played
    }

    /// No more sessions are begun; those that are there go on.
    pub fn end(&self) {
        self.state().is_ending = true;
    }

    /// All are over.
    pub fn abandon(&self) {
        let mut state = self.state();
        (state.is_ending, state.is_over) = (true, true);
        for (_, room) in state.rooms.drain() {
            room.close();
        }
        self.changed.notify_all();
    }
}

/// Closes a session that nobody was told of.
struct Unbegun<'s>(&'s Sessions, &'s str);

impl Drop for Unbegun<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

impl State {
    /// Ends those that nobody asks for, and drops the oldest of those that have ended.
    fn forget(&mut self, limits: SessionLimits) {
        let idle = |room: &Room| room.idle().is_some_and(|idle| idle > limits.idle);
        self.rooms.retain(|_, room| {
            let stays = !idle(room);
            if !stays {
                room.close();
            }
            stays
        });
        for (id, room) in &self.rooms {
            if room.has_ended() && !room.is_listed.swap(true, Ordering::Relaxed) {
                self.ended.push_back(id.clone());
            }
        }
        self.ended.retain(|id| self.rooms.contains_key(id));
        while self.ended.len() > limits.most {
            if let Some(id) = self.ended.pop_front() {
                self.rooms.remove(&id);
            }
        }
    }
}
