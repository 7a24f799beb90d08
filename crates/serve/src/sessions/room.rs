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

use super::visitor::News;
use crate::problem::{Kind, Problem};
use crate::seen::Seen;

/// After our own failure.
const AGAIN: Duration = Duration::from_secs(10);

/// A session. Its episode ends with it.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) task: String,
    reference: String,
    /// Ends what the episode runs.
    stop: Arc<AtomicBool>,
    /// None when the room is closed: the episode hears that nobody speaks any more.
    says: Mutex<Option<mpsc::Sender<Message>>>,
    /// Held for a turn: those of a session come one after the other.
    news: tokio::sync::Mutex<mpsc::Receiver<News>>,
    ended: OnceLock<Result<Box<Ended>, String>>,
    /// Turns under way or waiting for each other.
    busy: AtomicUsize,
    touched: Mutex<Instant>,
    turns: AtomicUsize,
    /// Whether it is in the list of those that have ended.
    pub(super) is_listed: AtomicBool,
    /// Whether its verdict was seen.
    is_seen: AtomicBool,
}

/// What came of a message.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Results of its calls.
    Results(Vec<ToolResult>),
    /// The episode is over, and there are none: its limits were reached, or it had ended before.
    Over,
}

impl Room {
    pub(super) fn new(
        (id, client): (String, String),
        task: &Task,
        stop: Arc<AtomicBool>,
        says: mpsc::Sender<Message>,
        news: mpsc::Receiver<News>,
    ) -> Self {
        Self {
            id,
            client,
            task: task.name.clone(),
            reference: task.source.clone(),
            stop,
            says: Mutex::new(Some(says)),
            news: tokio::sync::Mutex::new(news),
            ended: OnceLock::new(),
            busy: AtomicUsize::new(0),
            touched: Mutex::new(Instant::now()),
            turns: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_seen: AtomicBool::new(false),
        }
    }

    /// Waits until its workspace is there.
    pub(crate) async fn begun(self: &Arc<Self>) -> Result<(), Problem> {
        let _busy = Busy::of(self);
        match self.news.lock().await.recv().await {
            Some(News::Began) => Ok(()),
            Some(News::Ended(ended)) => {
                let _ = self.ended.set(ended);
                Err(self.infrastructure())
            }
            Some(News::Results(_)) | None => Err(self.infrastructure()),
        }
    }

    /// Says a message and waits for what comes of it. Whoever asked may go away meanwhile: it is heard to its
    /// end all the same, so that the next one does not get its results.
    pub(crate) async fn say(self: &Arc<Self>, message: Message) -> Result<Turn, Problem> {
        let room = Arc::clone(self);
        let turn = tokio::spawn(async move { room.turn(message).await }).await;
        turn.unwrap_or_else(|_| Err(Problem::new(Kind::Internal, "the turn was lost")))
    }

    async fn turn(self: Arc<Self>, message: Message) -> Result<Turn, Problem> {
        let _busy = Busy::of(&self);
        let mut news = self.news.lock().await;
        if self.ended.get().is_some() {
            return Ok(Turn::Over);
        }
        let says = self.says.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sent = match says {
            Some(says) => says.send(message).await.is_ok(),
            None => false,
        };
        match news.recv().await {
            Some(News::Results(results)) if sent => {
                self.turns.fetch_add(1, Ordering::Relaxed);
                Ok(Turn::Results(results))
            }
            Some(News::Ended(ended)) => {
                let _ = self.ended.set(ended);
                Ok(Turn::Over)
            }
            _ => Err(self.gone()),
        }
    }

    /// Ends the episode, if it has not ended: the final candidate is measured. How it came out.
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

    /// Puts its verdict among those that are looked at, once.
    fn show(&self, ended: &Ended, seen: &Seen) {
        if let (Some(verdict), Some(candidate)) = (&ended.final_verdict, &ended.candidate)
            && !self.is_seen.swap(true, Ordering::SeqCst)
        {
            seen.add((&self.client, "session"), &self.reference, candidate, verdict);
        }
    }

    /// How it came out, if it has ended.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()?.as_ref().ok().map(AsRef::as_ref)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Turns that had results.
    pub(crate) fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// For how long nobody has asked anything of it; `None` while somebody waits.
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
        Problem::new(Kind::UnknownSession, format!("session {} was ended", self.id))
    }

    /// The episode ended by our own failure: no reward.
    fn infrastructure(&self) -> Problem {
        let why = match self.ended.get() {
            Some(Ok(ended)) => match &ended.outcome {
                Outcome::Infrastructure { message } => message.clone(),
                other => format!("{other:?}"),
            },
            Some(Err(message)) => message.clone(),
            None => "nobody hosts it".to_owned(),
        };
        Problem::new(Kind::InfraError, format!("the episode has no reward: {why}"))
            .hint(Some("leave the sample out, or begin another session"))
            .retry_after(AGAIN)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.close();
    }
}

/// The reward of an episode that ended for reasons of its own.
pub(crate) fn reward(ended: &Ended, scheme: Scheme) -> f64 {
    ended.final_verdict.as_ref().map_or(Reward::NOTHING, |verdict| verdict.reward.by(scheme))
}

/// Somebody waits for a session.
struct Busy<'r>(&'r Room);

impl<'r> Busy<'r> {
    fn of(room: &'r Room) -> Self {
        room.busy.fetch_add(1, Ordering::SeqCst);
        Self(room)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *self.0.touched.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}
