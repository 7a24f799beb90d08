//! `POST /judge`: task and candidate in, reward, verdict or our own failure out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use warpwright_fleet::{Failed, Job, News, Refused, Ticket};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Scheme, Stage, Verdict};

use crate::app::{App, Client, body, named, parse};
use crate::problem::{Kind, MEDIA_TYPE, Problem};
use crate::replays::Stored;

/// Longest deadline, seconds: a day.
const LONGEST: f64 = 86_400.0;
/// How often who waits is told for how long.
const TELL: Duration = Duration::from_secs(2);
/// News of one job that are kept until they are read.
const NEWS: usize = 8;
const JSON: &str = "application/json";

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeRequest {
    /// Name of the task: of one that is served (`GET /tasks`), or, with `reference`, any.
    pub task: String,
    /// Python source in KernelBench form: a class Model, get_inputs() and get_init_inputs().
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The candidate's files: `model_new.py`, and `kernels/NAME.cu` and so on, as text.
    pub files: BTreeMap<String, String>,
    /// How far it is taken.
    #[serde(default = "measured")]
    pub stage: Stage,
    /// Which of the verdict's rewards is the reward.
    #[serde(default)]
    pub reward: Scheme,
    /// Whether it is run although the same files were judged before.
    #[serde(default)]
    pub fresh: bool,
    /// Seconds until an answer is of no use any more; the server's usual if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
}

const fn measured() -> Stage {
    Stage::Measured
}

/// An answer. Exactly one of `verdict` and `infra_error` is there.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JudgeResponse {
    /// The verdict's reward; null where there is no verdict: that is no reward of 0.
    pub reward: Option<f64>,
    /// What the judge found.
    pub verdict: Option<Box<Verdict>>,
    /// Our own failure. Leave the sample out, or ask again.
    pub infra_error: Option<InfraError>,
}

/// Our own failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InfraError {
    /// What went wrong.
    pub message: String,
    /// What whoever runs the server can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Of a batch, what became of one question.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Given {
    /// An answer.
    Answer(JudgeResponse),
    /// There is none, and why.
    Problem {
        /// As if it had been asked alone.
        problem: Problem,
    },
}

/// A batch of questions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    /// The questions.
    pub(crate) items: Vec<JudgeRequest>,
}

/// The answers to a batch.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchResponse {
    /// In the order of the questions.
    pub(crate) items: Vec<Given>,
}

/// What who waits is told.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Progress {
    /// It waits.
    Waiting {
        /// Jobs that came before and still wait.
        ahead: usize,
        /// Seconds until it is begun, reckoned from what jobs took of late.
        seconds: f64,
    },
    /// It is judged.
    Started,
}

/// What can be asked of a judge, from what somebody sent.
fn job(app: &App, request: JudgeRequest) -> Result<Job, Problem> {
    let task = named(app, &request.task, request.reference)?;
    let files = request.files.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    let candidate = Candidate::from_stranger(files)
        .map_err(|error| Problem::new(Kind::InvalidRequest, format!("files: {error}")))?;
    Ok(Job { task, candidate, stage: request.stage, fresh: request.fresh })
}

fn deadline(app: &App, request: &JudgeRequest) -> Result<Duration, Problem> {
    let Some(seconds) = request.deadline_seconds else { return Ok(app.settings.deadline) };
    if !(seconds > 0.0 && seconds <= LONGEST) {
        let detail = format!("deadline_seconds: it is not above 0 and at most {LONGEST}");
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn refused(app: &App, refused: Refused) -> Problem {
    let problem = |kind| Problem::new(kind, refused.to_string());
    match refused {
        Refused::Full { .. } | Refused::Client { .. } => {
            // By then a place is free, if everybody goes on as of late.
            let load = app.queue.load();
            let one = load.seconds / load.workers.max(1) as f64;
            problem(Kind::Busy).retry_after(Duration::from_secs_f64(one.clamp(1.0, 60.0)))
        }
        Refused::Ending => problem(Kind::Ending).retry_after(Duration::from_secs(30)),
        Refused::Deserted => problem(Kind::Ending).hint(Some(
            "whoever runs the server must start it again: `warpwright doctor` says what works",
        )),
    }
}

/// A job under way: what waits for it gives it up by dropping this.
struct Asked {
    ticket: Ticket,
    news: mpsc::Receiver<News>,
}

impl Asked {
    fn new(app: &Arc<App>, client: &str, job: Job) -> Result<Self, Problem> {
        let (tell, news) = mpsc::channel(NEWS);
        let (counts, mut since) = (Arc::clone(app), Instant::now());
        let (client_of, reference) = (client.to_owned(), job.task.source.clone());
        let candidate = job.candidate.clone();
        let listener = Box::new(move |news: News| {
            match &news {
                News::Started => counts.metrics.began(since.elapsed()),
                News::Ended(answer) => {
                    counts.metrics.ended(answer, since.elapsed());
                    if let Ok(verdict) = answer {
                        counts.seen.add((&client_of, "judge"), &reference, &candidate, verdict);
                    }
                }
            }
            since = Instant::now();
            // Whoever asked may be gone. There is room for all news that there may be of a job.
            let _ = tell.try_send(news);
        });
        let ticket = app.queue.submit(client, job, listener);
        Ok(Self { ticket: ticket.map_err(|why| refused(app, why))?, news })
    }

    fn progress(&self, app: &App) -> Option<Progress> {
        let ahead = self.ticket.ahead()?;
        let load = app.queue.load();
        let seconds = load.seconds * (ahead + 1) as f64 / load.workers.max(1) as f64;
        Some(Progress::Waiting { ahead, seconds })
    }
}

/// Asks, and tells how it goes on.
pub(crate) async fn ask(
    app: &Arc<App>,
    client: &str,
    request: JudgeRequest,
    tell: impl Fn(Progress),
) -> Result<JudgeResponse, Problem> {
    let (within, scheme) = (deadline(app, &request)?, request.reward);
    let until = tokio::time::Instant::now() + within;
    let mut asked = Asked::new(app, client, job(app, request)?)?;
    let late = || {
        let detail = format!("there was no answer within {} s", within.as_secs_f64());
        let hint = "ask again: what was begun is finished, and its answer given at once";
        Problem::new(Kind::DeadlineExceeded, detail).hint(Some(hint))
    };
    loop {
        if let Some(progress) = asked.progress(app) {
            tell(progress);
        }
        let soon = until.min(tokio::time::Instant::now() + TELL);
        match timeout_at(soon, asked.news.recv()).await {
            Ok(Some(News::Started)) => tell(Progress::Started),
            Ok(Some(News::Ended(Ok(verdict)))) => {
                let reward = Some(verdict.reward.by(scheme));
                return Ok(JudgeResponse { reward, verdict: Some(verdict), infra_error: None });
            }
            Ok(Some(News::Ended(Err(Failed::Task { message, hint })))) => {
                return Err(Problem::new(Kind::TaskRefused, message).hint(hint));
            }
            Ok(Some(News::Ended(Err(Failed::Ending)))) => {
                return Err(refused(app, Refused::Ending));
            }
            Ok(Some(News::Ended(Err(Failed::Infrastructure { message, hint })))) => {
                let infra_error = Some(InfraError { message, hint });
                return Ok(JudgeResponse { reward: None, verdict: None, infra_error });
            }
            Ok(None) => return Err(Problem::new(Kind::Internal, "the job was lost")),
            Err(_) if tokio::time::Instant::now() >= until => return Err(late()),
            Err(_) => {}
        }
    }
}

/// How an answer goes over the wire, and whether it is one to keep: the same question would have it again.
fn stored(answer: &Result<JudgeResponse, Problem>) -> (Stored, bool) {
    let (status, content_type, body, keep) = match answer {
        Ok(answer) => {
            let keep = answer.infra_error.is_none();
            (StatusCode::OK, JSON, serde_json::to_vec(answer), keep)
        }
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status);
            let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let keep = status == StatusCode::UNPROCESSABLE_ENTITY;
            (status, MEDIA_TYPE, serde_json::to_vec(problem), keep)
        }
    };
    (Stored { status, content_type, body: Bytes::from(body.unwrap_or_default()) }, keep)
}

/// `POST /judge`.
pub(crate) async fn judge(
    State(app): State<Arc<App>>,
    Client(client): Client,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let body = body(&app, request).await?;
    let asked: JudgeRequest = parse(&body)?;
    let key = idempotency_key(&headers)?;
    if accepts_events(&headers) {
        if key.is_some() {
            let detail = "an answer that comes as events has no idempotency key";
            return Err(Problem::new(Kind::InvalidRequest, detail));
        }
        return Ok(events(app, client, asked).into_response());
    }
    let Some(key) = key else {
        let answer = ask(&app, &client, asked, |_| {}).await?;
        return Ok(axum::Json(answer).into_response());
    };
    let (app_of, client_of) = (Arc::clone(&app), client.clone());
    let question = async move { stored(&ask(&app_of, &client_of, asked, |_| {}).await) };
    let (answer, again) = app.replays.once((client, key), &body, question).await?;
    if again {
        app.metrics.replayed();
    }
    let replayed = [("idempotency-replayed", if again { "true" } else { "false" })];
    let content_type = [(CONTENT_TYPE, answer.content_type)];
    Ok((answer.status, content_type, replayed, answer.body).into_response())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let value = value.to_str().map_err(|_| {
        Problem::new(Kind::InvalidRequest, "Idempotency-Key: it has bytes that are no ASCII")
    })?;
    Ok(Some(value.to_owned()))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// The answer as server-sent events: `progress`, then `result` or `problem`, the last one.
fn events(
    app: Arc<App>,
    client: String,
    request: JudgeRequest,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let (tell, told) = mpsc::channel(NEWS);
    let progress = tell.clone();
    let work = async move {
        let asked = ask(&app, &client, request, |news| {
            // One who reads slowly misses some.
            let _ = progress.try_send(event("progress", &news));
        });
        let last = match asked.await {
            Ok(answer) => event("result", &answer),
            Err(problem) => event("problem", &problem),
        };
        // Whoever asked may be gone.
        let _ = tell.send(last).await;
    };
    // It is driven by whoever reads: one who goes away gives the job up.
    let stream = futures_util::stream::unfold(
        (Box::pin(work), told, false),
        |(mut work, mut told, done)| async move {
            if done {
                return told.recv().await.map(|event| (Ok(event), (work, told, true)));
            }
            tokio::select! {
                biased;
                event = told.recv() => event.map(|event| (Ok(event), (work, told, false))),
                () = &mut work => told.recv().await.map(|event| (Ok(event), (work, told, true))),
            }
        },
    );
    Sse::new(stream).keep_alive(KeepAlive::default())
}

fn event<T: Serialize>(name: &str, data: &T) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

/// `POST /judge/batch`.
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    Client(client): Client,
    request: Request,
) -> Result<axum::Json<BatchResponse>, Problem> {
    let asked: BatchRequest = parse(&body(&app, request).await?)?;
    let most = app.settings.batch;
    if asked.items.len() > most {
        let detail = format!("items: a batch has at most {most}, not {}", asked.items.len());
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let each = asked.items.into_iter().map(|item| ask(&app, &client, item, |_| {}));
    let items = join_all(each).await.into_iter().map(|answer| match answer {
        Ok(answer) => Given::Answer(answer),
        Err(problem) => Given::Problem { problem },
    });
    Ok(axum::Json(BatchResponse { items: items.collect() }))
}
