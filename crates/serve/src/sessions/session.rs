//! One session: an episode that a client plays, message by message.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use warpwright_agent::episode::Ended;
use warpwright_record::event::Outcome;
use warpwright_record::message::{Message, ToolResult};
use warpwright_record::verdict::{Reward, Scheme};
use warpwright_task::Task;

use super::policy::SessionEvent;
use crate::problem::{Kind, Problem};
use crate::seen::Seen;

/// `Retry-After` of an infrastructure error.
const AGAIN: Duration = Duration::from_secs(10);

/// Why an episode of a task with held-out workloads has no reward, for its client.
const HIDDEN: &str =
    "the task has held-out workloads, and the reason may tell of them; the episode's record has it";

/// A session. Dropping it ends its episode.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) task: String,
    reference: String,
    /// Whether the task has workloads that the agent does not see.
    holds_out: bool,
    /// Stops the episode's processes.
    stop: Arc<AtomicBool>,
    /// `None` once the session is closed: the episode's policy then fails.
    says: Mutex<Option<mpsc::Sender<Message>>>,
    /// Locked for a turn: the turns of a session run one after the other.
    events: tokio::sync::Mutex<mpsc::Receiver<SessionEvent>>,
    ended: OnceLock<Result<Box<Ended>, String>>,
    /// Turns that run or wait.
    busy: AtomicUsize,
    touched: Mutex<Instant>,
    turns: AtomicUsize,
    /// Whether it is in the list of ended sessions.
    pub(super) is_listed: AtomicBool,
    /// Whether its verdict is on the dashboard.
    is_seen: AtomicBool,
}

/// The result of a message.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The results of its tool calls.
    Results(Vec<ToolResult>),
    /// The episode is over: it reached its limits, or had ended before.
    Over,
}

impl Session {
    pub(super) fn new(
        (id, client): (String, String),
        task: &Task,
        stop: Arc<AtomicBool>,
        says: mpsc::Sender<Message>,
        events: mpsc::Receiver<SessionEvent>,
    ) -> Self {
        Self {
            id,
            client,
            task: task.name.clone(),
            reference: task.shown_source(),
            holds_out: task.holds_out(),
            stop,
            says: Mutex::new(Some(says)),
            events: tokio::sync::Mutex::new(events),
            ended: OnceLock::new(),
            busy: AtomicUsize::new(0),
            touched: Mutex::new(Instant::now()),
            turns: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_seen: AtomicBool::new(false),
        }
    }

    /// Waits until its workspace exists.
    pub(crate) async fn begun(self: &Arc<Self>) -> Result<(), Problem> {
        let _busy = Busy::of(self);
        match self.events.lock().await.recv().await {
            Some(SessionEvent::Began) => Ok(()),
            Some(SessionEvent::Ended(ended)) => {
                let _ = self.ended.set(ended);
                Err(self.infrastructure())
            }
            Some(SessionEvent::Results(_)) | None => Err(self.infrastructure()),
        }
    }

    /// Sends a message and waits for its result. If the request is cancelled, the turn is still finished, so that
    /// the next one does not get its results.
    pub(crate) async fn say(self: &Arc<Self>, message: Message) -> Result<Turn, Problem> {
        let session = Arc::clone(self);
        let turn = tokio::spawn(async move { session.turn(message).await }).await;
        turn.unwrap_or_else(|_| {
            Err(Problem::new(Kind::Internal, "the turn of the session panicked"))
        })
    }

    async fn turn(self: Arc<Self>, message: Message) -> Result<Turn, Problem> {
        let _busy = Busy::of(&self);
        let mut events = self.events.lock().await;
        if self.ended.get().is_some() {
            return Ok(Turn::Over);
        }
        let says = self.says.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = match says {
            Some(says) => says.send(message).await.is_ok(),
            None => false,
        };
        match events.recv().await {
            Some(SessionEvent::Results(results)) if sent => {
                self.turns.fetch_add(1, Ordering::Relaxed);
                Ok(Turn::Results(results))
            }
            Some(SessionEvent::Ended(ended)) => {
                let _ = self.ended.set(ended);
                Ok(Turn::Over)
            }
            _ => Err(self.gone()),
        }
    }

    /// Ends the episode if it runs, which measures the final candidate; its outcome.
    pub(crate) async fn finish(self: &Arc<Self>, seen: &Seen) -> Result<&Ended, Problem> {
        while self.ended.get().is_none() {
            // A message without calls.
            self.say(Message::default()).await?;
        }
        match self.ended.get() {
            Some(Ok(ended)) if !ended.outcome.is_resumable() => {
                self.show(ended, seen);
                Ok(ended)
            }
            _ => Err(self.infrastructure()),
        }
    }

    /// Puts its verdict on the dashboard, once.
    fn show(&self, ended: &Ended, seen: &Seen) {
        if let (Some(verdict), Some(candidate)) = (&ended.final_verdict, &ended.candidate)
            && !self.is_seen.swap(true, Ordering::SeqCst)
        {
            seen.add((&self.client, "session"), &self.reference, candidate, verdict);
        }
    }

    /// Its outcome, if it has ended.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()?.as_ref().ok().map(AsRef::as_ref)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Number of turns with results.
    pub(crate) fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Time since the last request; `None` while one runs.
    pub(super) fn idle(&self) -> Option<Duration> {
        let touched = *self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        (self.busy.load(Ordering::SeqCst) == 0).then(|| touched.elapsed())
    }

    /// Ends it at once, without a reward.
    pub(super) fn close(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.says.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn gone(&self) -> Problem {
        Problem::new(Kind::UnknownSession, format!("session {} has ended", self.id))
    }

    /// The problem of an episode that ended without a reward. Why it did may name a workload that the agent does not
    /// see, or its shape: then only the episode's record says it.
    fn infrastructure(&self) -> Problem {
        let why = match self.ended.get() {
            _ if self.holds_out => HIDDEN.to_owned(),
            Some(Ok(ended)) => match &ended.outcome {
                Outcome::Infrastructure { message } => message.clone(),
                other => other.name().to_owned(),
            },
            Some(Err(message)) => message.clone(),
            None => "no host ran the episode".to_owned(),
        };
        Problem::new(Kind::InfraError, format!("the episode has no reward: {why}"))
            .hint(Some("leave this sample out, or begin another session"))
            .retry_after(AGAIN)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reward of an episode that ended without an infrastructure error.
pub(crate) fn reward(ended: &Ended, scheme: Scheme) -> f64 {
    ended.final_verdict.as_ref().map_or(Reward::NOTHING, |verdict| verdict.reward.by(scheme))
}

/// Marks a session as busy during a request.
struct Busy<'r>(&'r Session);

impl<'r> Busy<'r> {
    fn of(session: &'r Session) -> Self {
        session.busy.fetch_add(1, Ordering::SeqCst);
        Self(session)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *self.0.touched.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}
