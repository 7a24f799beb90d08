//! Responses by idempotency key: a repeated request is not judged again.
//!
//! As in the IETF's draft "The Idempotency-Key HTTP Header Field": the same key with the same body gets the same
//! response, even while the first request runs. The same key with another body is refused. A request with a key
//! is finished even if its client disconnects, so that a retry finds the response.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use tokio::sync::watch;
use warpwright_record::verdict::ReplayerTurn;

use crate::problem::{Kind, Problem};

/// Limit of a key, bytes.
const LONGEST: usize = 255;

/// A serialised response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// The turns in replayers that its verdict is made of.
    pub(crate) replayers: Vec<ReplayerTurn>,
}

/// Client and key.
pub(crate) type Key = (String, String);

/// The kept responses.
#[derive(Clone, Debug)]
pub(crate) struct Replays(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    time: Duration,
    most_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Entries with a response, oldest first.
    kept: VecDeque<(Key, Instant, usize)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    body: blake3::Hash,
    answer: watch::Receiver<Option<Stored>>,
}

impl Replays {
    pub(crate) fn new(time: Duration, most_bytes: usize) -> Self {
        Self(Arc::new(Inner { time, most_bytes, state: Mutex::default() }))
    }

    /// Runs `ask` once per key; the response, and whether the key was used before. `ask` returns the response and
    /// whether to keep it. A response that does not hold any more is forgotten.
    pub(crate) async fn once(
        &self,
        key: Key,
        body: &[u8],
        holds: impl Fn(&Stored) -> bool,
        ask: impl Future<Output = (Stored, bool)> + Send + 'static,
    ) -> Result<(Stored, bool), Problem> {
        if key.1.is_empty() || key.1.len() > LONGEST {
            let detail = format!(
                "Idempotency-Key: the key must have 1 to {LONGEST} bytes, and has {}",
                key.1.len()
            );
            return Err(Problem::new(Kind::InvalidRequest, detail));
        }
        let body = blake3::hash(body);
        let (mut answer, again) = {
            let mut state = self.0.lock();
            self.0.forget_old(&mut state);
            let there = state.entries.get(&key);
            let there = there.filter(|entry| entry.answer.borrow().as_ref().is_none_or(&holds));
            match there {
                Some(entry) if entry.body != body => {
                    let hint = Some("use a new key for each request");
                    let detail = "an earlier request with this key had another body";
                    return Err(Problem::new(Kind::IdempotencyKeyReused, detail).hint(hint));
                }
                Some(entry) => (entry.answer.clone(), true),
                None => {
                    let (tell, answer) = watch::channel(None);
                    state.entries.insert(key.clone(), Entry { body, answer: answer.clone() });
                    let asking = Asking { of: Arc::clone(&self.0), key: Some(key) };
                    tokio::spawn(async move {
                        let (stored, keep) = ask.await;
                        // Waiting requests get it before it may be forgotten.
                        let size = stored.body.len();
                        let _ = tell.send(Some(stored));
                        asking.done(keep.then_some(size));
                    });
                    (answer, false)
                }
            }
        };
        let there = answer.wait_for(Option::is_some).await;
        let stored = there.ok().and_then(|stored| stored.clone());
        let lost = || Problem::new(Kind::Internal, "the server lost the response; retry");
        Ok((stored.ok_or_else(lost)?, again))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_old(&self, state: &mut State) {
        while let Some((_, since, _)) = state.kept.front() {
            if state.bytes <= self.most_bytes && since.elapsed() < self.time {
                break;
            }
            let Some((key, _, size)) = state.kept.pop_front() else { break };
            state.entries.remove(&key);
            state.bytes -= size;
        }
    }
}

/// A running request. If it ends without a response, its key is forgotten, so that a retry runs it again.
struct Asking {
    of: Arc<Inner>,
    key: Option<Key>,
}

impl Asking {
    fn done(mut self, keep: Option<usize>) {
        let (Some(size), Some(key)) = (keep, self.key.clone()) else { return };
        self.key = None;
        let size = size + key.0.len() + key.1.len();
        let mut state = self.of.lock();
        state.kept.push_back((key, Instant::now(), size));
        state.bytes += size;
        self.of.forget_old(&mut state);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.of.lock().entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn key(name: &str) -> Key {
        ("client".to_owned(), name.to_owned())
    }

    fn stored(text: &str) -> Stored {
        let body = Bytes::from(text.to_owned());
        Stored {
            status: StatusCode::OK,
            content_type: "application/json",
            body,
            replayers: Vec::new(),
        }
    }

    #[tokio::test]
    async fn request_runs_once_despite_disconnects_and_retries() {
        let (replays, asked) =
            (Replays::new(Duration::from_mins(1), 1 << 20), Arc::new(AtomicU32::new(0)));
        let open = Arc::new(tokio::sync::Notify::new());
        let ask = |asked: Arc<AtomicU32>| {
            let open = Arc::clone(&open);
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                open.notified().await;
                (stored("answer"), true)
            }
        };
        // The first asker goes away at once.
        let gone = replays.once(key("k"), b"body", |_| true, ask(Arc::clone(&asked)));
        assert!(tokio::time::timeout(Duration::ZERO, gone).await.is_err());
        let others =
            (0..20).map(|_| replays.once(key("k"), b"body", |_| true, ask(Arc::clone(&asked))));
        // All of them wait before there is an answer.
        let others = futures_util::future::join_all(others);
        let (answers, ()) = tokio::join!(biased; others, async { open.notify_one() });
        for answer in answers {
            assert_eq!(answer.unwrap(), (stored("answer"), true));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let refused = replays.once(key("k"), b"other", |_| true, ask(asked)).await.unwrap_err();
        assert_eq!(refused.uri, "urn:warpwright:problem:idempotency-key-reused");
        // Another client's key is another key.
        let other = ("other".to_owned(), "k".to_owned());
        let answer =
            replays.once(other, b"other", |_| true, async { (stored("mine"), true) }).await;
        assert_eq!(answer.unwrap(), (stored("mine"), false));
    }

    #[tokio::test]
    async fn answer_with_a_void_verdict_is_asked_for_again() {
        let replays = Replays::new(Duration::from_mins(1), 1 << 20);
        let ask = |text: &'static str| async move { (stored(text), true) };
        let first = |stored: &Stored| stored.body != "first";
        let told = replays.once(key("k"), b"", first, ask("first")).await;
        assert_eq!(told.unwrap(), (stored("first"), false));
        tokio::task::yield_now().await;
        let told = replays.once(key("k"), b"", first, ask("second")).await;
        assert_eq!(told.unwrap(), (stored("second"), false));
        tokio::task::yield_now().await;
        let told = replays.once(key("k"), b"", first, ask("third")).await;
        assert_eq!(told.unwrap(), (stored("second"), true));
    }

    #[tokio::test]
    async fn unstored_answer_is_requested_again() {
        let replays = Replays::new(Duration::from_mins(1), 100);
        for answer in ["first", "second"] {
            let told =
                replays.once(key("k"), b"", |_| true, async move { (stored(answer), false) }).await;
            assert_eq!(told.unwrap(), (stored(answer), false));
            tokio::task::yield_now().await;
        }
        let panics = replays.once(key("p"), b"", |_| true, async {
            std::panic::resume_unwind(Box::new("quietly"))
        });
        assert_eq!(panics.await.unwrap_err().uri, "urn:warpwright:problem:internal");
        assert!(
            replays.once(key("p"), b"", |_| true, async { (stored("now"), true) }).await.is_ok()
        );
        assert!(replays.once(key(""), b"", |_| true, async { (stored(""), true) }).await.is_err());
        assert!(
            replays
                .once(key(&"k".repeat(256)), b"", |_| true, async { (stored(""), true) })
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn stored_answers_are_bounded_by_bytes_and_age() {
        let replays = Replays::new(Duration::from_hours(1), 1000);
        for number in 0..50 {
            let text = "x".repeat(100);
            let ask = async move { (stored(&text), true) };
            replays.once(key(&number.to_string()), b"", |_| true, ask).await.unwrap();
            tokio::task::yield_now().await;
        }
        {
            let state = replays.0.lock();
            assert!(state.bytes <= 1000 && state.entries.len() <= 10, "{}", state.bytes);
            assert_eq!(state.entries.len(), state.kept.len());
        }
        let ask = || async { (stored("y"), true) };
        let (_, again) = replays.once(key("49"), b"", |_| true, ask()).await.unwrap();
        assert!(again, "positive control: the newest is kept");

        let replays = Replays::new(Duration::from_millis(1), 1000);
        replays.once(key("old"), b"", |_| true, ask()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (_, again) = replays.once(key("old"), b"", |_| true, ask()).await.unwrap();
        assert!(!again, "its time was over");
        assert_eq!(replays.0.lock().entries.len(), 1);
    }
}
