//! A server whose judge gives the answers that the test chooses, and its client.

use axum::Router;
use axum::body::Body;
use axum::body::to_bytes;
use axum::http::Request;
use axum::http::StatusCode;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;
use tower::ServiceExt;
use warpwright_fleet::Answer;
use warpwright_fleet::Done;
use warpwright_fleet::Failed;
use warpwright_fleet::Job;
use warpwright_fleet::Limits;
use warpwright_fleet::Queue;
use warpwright_fleet::{Station, work};
use warpwright_record::verdict::Profile;
use warpwright_record::verdict::Verdict;
use warpwright_serve::App;
use warpwright_serve::Served;
use warpwright_serve::SessionLimits;
use warpwright_serve::Settings;
use warpwright_serve::Tokens;
use warpwright_serve::router;
use warpwright_task::Task;

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Deadline of every wait; only what hangs reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) fn verdict() -> Box<Verdict> {
    serde_json::from_str(include_str!("../verdict.json")).unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings {
        tokens: Tokens::none(),
        tasks: BTreeMap::from([("known".to_owned(), Task::from_source("known", "x = 1"))]),
        served: vec![Served { device: "cpu".to_owned(), hardware: "a host".to_owned() }],
        profile: Profile::Strict,
        body_bytes: 1 << 20,
        body_time: Duration::from_millis(300),
        deadline: Duration::from_mins(5),
        batch: 8,
        replay_time: Duration::from_mins(1),
        replay_bytes: 1 << 20,
        sessions: SessionLimits { most: 8, per_client: 5, idle: Duration::from_hours(1) },
        skill: "Make it fast.".to_owned(),
    }
}

/// A server with this many workers, which answer by the task's name. A job named `slow` lasts until
/// [`Server::release`].
pub(crate) struct Server {
    pub(crate) queue: Arc<Queue>,
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    judged: Arc<AtomicU32>,
    /// Jobs named `slow` that may end.
    released: Arc<Mutex<usize>>,
}

impl Server {
    pub(crate) fn new(workers: usize, settings: Settings, limits: Limits) -> Self {
        let queue = Arc::new(Queue::new(limits));
        let judged = Arc::new(AtomicU32::new(0));
        let released = Arc::new(Mutex::new(0));
        for _ in 0..workers {
            let (queue, judged) = (Arc::clone(&queue), Arc::clone(&judged));
            let released = Arc::clone(&released);
            // They end with the queue, at the latest with the test.
            std::thread::spawn(move || {
                work(&queue, Station(0), |job| {
                    judged.fetch_add(1, Ordering::SeqCst);
                    Done::Answered(answer(job, &released))
                });
            });
        }
        while queue.load().workers < workers {
            std::thread::yield_now();
        }
        let app = App::new(settings, Arc::clone(&queue));
        Self { queue, router: router(Arc::clone(&app)), app, judged, released }
    }

    pub(crate) fn usual() -> Self {
        Self::new(2, settings(), Limits { waiting: 1000, per_client: 1000 })
    }

    pub(crate) fn judged(&self) -> u32 {
        self.judged.load(Ordering::SeqCst)
    }

    /// Ends one job named `slow`: the one that runs, or the next one.
    pub(crate) fn release(&self) {
        *self.released.lock().unwrap() += 1;
    }

    /// Waits until this many jobs run and this many wait.
    pub(crate) async fn until_load(&self, running: usize, waiting: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            let load = self.queue.load();
            if (load.running, load.waiting) == (running, waiting) {
                return;
            }
            assert!(Instant::now() < until, "{load:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn send(
        &self,
        request: Request<Body>,
    ) -> (StatusCode, Value, axum::http::HeaderMap) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 64 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null), headers)
    }

    pub(crate) async fn judge(&self, question: &Value) -> (StatusCode, Value) {
        let (status, body, _) = self.send(post("/judge", question.to_string())).await;
        (status, body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.queue.abandon();
        // Its workers end. No test releases as many.
        *self.released.lock().unwrap() = 1000;
    }
}

/// Takes one release; false if there is none.
fn is_released(released: &Mutex<usize>) -> bool {
    let mut left = released.lock().unwrap();
    let is_one = *left > 0;
    *left -= usize::from(is_one);
    is_one
}

fn answer(job: &Job, released: &Mutex<usize>) -> Answer {
    match job.task.name.as_str() {
        "ours" => {
            let hint = Some("look at it".to_owned());
            Err(Failed::Infrastructure { message: "the GPU is too hot".to_owned(), hint })
        }
        "refused" => Err(Failed::Task { message: "it has no Model".to_owned(), hint: None }),
        "slow" => {
            while !is_released(released) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(verdict())
        }
        name => {
            let mut verdict = verdict();
            name.clone_into(&mut verdict.task);
            Ok(verdict)
        }
    }
}

pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(path).header("host", "127.0.0.1:1");
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

pub(crate) fn question(task: &str) -> Value {
    json!({ "task": task, "reference": "x = 1", "files": { "model_new.py": "y = 1" } })
}

pub(crate) fn with_key(question: &Value, key: &str) -> Request<Body> {
    let mut request = post("/judge", question.to_string());
    request.headers_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

pub(crate) fn kind_of(body: &Value) -> &str {
    body["type"].as_str().unwrap_or_default().trim_start_matches("urn:warpwright:problem:")
}
