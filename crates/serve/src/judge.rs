//! `POST /judge`: task and candidate in; reward and verdict, or infrastructure error, out.

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
use warpwright_fleet::{Failed, Job, JobEvent, Refused, Ticket};
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Scheme, Stage, Verdict};

use crate::app::App;
use crate::problem::{Kind, MEDIA_TYPE, Problem};
use crate::replays::Stored;
use crate::request::{Client, body, named, parse};

/// Limit of a deadline, seconds: a day.
const LONGEST: f64 = 86_400.0;
/// Interval of `waiting` events.
const TELL: Duration = Duration::from_secs(2);
/// Capacity of a job's event channel.
const JOB_EVENTS: usize = 8;
const JSON: &str = "application/json";

/// A request for a verdict.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JudgeRequest {
    /// Name of the task: a served one (`GET /tasks`), or, with `reference`, any name.
    pub task: String,
    /// Python source in KernelBench form: a class Model, get_inputs() and get_init_inputs().
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The candidate's files as text: `model_new.py`, and e.g. `kernels/NAME.cu`.
    pub files: BTreeMap<String, String>,
    /// The last stage that the judge runs.
    #[serde(default = "measured")]
    pub stage: Stage,
    /// The verdict's reward scheme that becomes `reward`.
    #[serde(default)]
    pub reward: Scheme,
    /// Judge again even if the same files already have a verdict.
    #[serde(default)]
    pub fresh: bool,
    /// Deadline in seconds, over 0 and at most 86400; by default the server's `--deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
}

const fn measured() -> Stage {
    Stage::Measured
}

/// A response. Exactly one of `verdict` and `infra_error` is not null.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JudgeResponse {
    /// The verdict's reward; null without a verdict, which is not a reward of 0.
    pub reward: Option<f64>,
    /// The judge's verdict.
    pub verdict: Option<Box<Verdict>>,
    /// An infrastructure error. Leave the sample out, or retry.
    pub infra_error: Option<InfraError>,
}

/// An infrastructure error: the judge or its machine failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InfraError {
    /// What failed, and why.
    pub message: String,
    /// What the server's operator can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The result of one item of a batch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BatchItem {
    /// A response.
    Answer(JudgeResponse),
    /// The item was refused.
    Problem {
        /// The same as of a single request.
        problem: Problem,
    },
}

/// A batch of requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    /// The requests.
    pub(crate) items: Vec<JudgeRequest>,
}

/// The response to a batch.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BatchResponse {
    /// One result per request, in the same order.
    pub(crate) items: Vec<BatchItem>,
}

/// Progress of a job, as server-sent event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Progress {
    /// The job waits.
    Waiting {
        /// Waiting jobs that were submitted before it.
        ahead: usize,
        /// Estimated seconds until it is begun.
        seconds: f64,
    },
    /// A worker began the job.
    Started,
}

/// The job of a request.
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
        let detail = format!("deadline_seconds: {seconds} is not above 0 and at most {LONGEST}");
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn refused(app: &App, refused: Refused) -> Problem {
    let problem = |kind| Problem::new(kind, refused.to_string());
    match refused {
        Refused::Full { .. } | Refused::Client { .. } => {
            // By then one job has probably ended.
            let load = app.queue.load();
            let one = load.seconds / load.workers.max(1) as f64;
            problem(Kind::Busy).retry_after(Duration::from_secs_f64(one.clamp(1.0, 60.0)))
        }
        Refused::Ending => problem(Kind::Ending).retry_after(Duration::from_secs(30)),
        Refused::Deserted => problem(Kind::Ending).hint(Some(
            "start a worker, or restart the server; `warpwright doctor` checks its devices",
        )),
    }
}

/// A submitted job. Dropping it cancels the job, if no worker has begun it.
struct PendingJob {
    ticket: Ticket,
    events: mpsc::Receiver<JobEvent>,
}

impl PendingJob {
    fn new(app: &Arc<App>, client: &str, job: Job) -> Result<Self, Problem> {
        let (tell, events) = mpsc::channel(JOB_EVENTS);
        let (counts, mut since) = (Arc::clone(app), Instant::now());
        let (client_of, reference) = (client.to_owned(), job.task.source.clone());
        let candidate = job.candidate.clone();
        let listener = Box::new(move |event: JobEvent| {
            match &event {
                JobEvent::Started => counts.metrics.began(since.elapsed()),
                JobEvent::Ended(answer) => {
                    counts.metrics.ended(answer, since.elapsed());
                    if let Ok(verdict) = answer {
                        counts.seen.add((&client_of, "judge"), &reference, &candidate, verdict);
                    }
                }
            }
            since = Instant::now();
            // The receiver may be gone. The channel holds all events of a job.
            let _ = tell.try_send(event);
        });
        let ticket = app.queue.submit(client, job, listener);
        Ok(Self { ticket: ticket.map_err(|why| refused(app, why))?, events })
    }

    fn progress(&self, app: &App) -> Option<Progress> {
        let ahead = self.ticket.ahead()?;
        let load = app.queue.load();
        let seconds = load.seconds * (ahead + 1) as f64 / load.workers.max(1) as f64;
        Some(Progress::Waiting { ahead, seconds })
    }
}

/// Judges a request; `tell` gets its progress.
pub(crate) async fn ask(
    app: &Arc<App>,
    client: &str,
    request: JudgeRequest,
    tell: impl Fn(Progress),
) -> Result<JudgeResponse, Problem> {
    let (within, scheme) = (deadline(app, &request)?, request.reward);
    let until = tokio::time::Instant::now() + within;
    let mut asked = PendingJob::new(app, client, job(app, request)?)?;
    let late = || {
        let detail = format!("the judge did not answer within {} s", within.as_secs_f64());
        let hint = "retry: the judge finishes a job that it began, and then answers at once";
        Problem::new(Kind::DeadlineExceeded, detail).hint(Some(hint))
    };
    loop {
        if let Some(progress) = asked.progress(app) {
            tell(progress);
        }
        let soon = until.min(tokio::time::Instant::now() + TELL);
        match timeout_at(soon, asked.events.recv()).await {
            Ok(Some(JobEvent::Started)) => tell(Progress::Started),
            Ok(Some(JobEvent::Ended(Ok(verdict)))) => {
                let reward = Some(verdict.reward.by(scheme));
                return Ok(JudgeResponse { reward, verdict: Some(verdict), infra_error: None });
            }
            Ok(Some(JobEvent::Ended(Err(Failed::Task { message, hint })))) => {
                return Err(Problem::new(Kind::TaskRefused, message).hint(hint));
            }
            Ok(Some(JobEvent::Ended(Err(Failed::Ending)))) => {
                return Err(refused(app, Refused::Ending));
            }
            Ok(Some(JobEvent::Ended(Err(Failed::Infrastructure { message, hint })))) => {
                let infra_error = Some(InfraError { message, hint });
                return Ok(JudgeResponse { reward: None, verdict: None, infra_error });
            }
            Ok(None) => return Err(Problem::new(Kind::Internal, "the queue lost the job")),
            Err(_) if tokio::time::Instant::now() >= until => return Err(late()),
            Err(_) => {}
        }
    }
}

/// The serialised response, and whether it is kept for its idempotency key: verdicts and status 422 are.
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
    let verdict = answer.as_ref().ok().and_then(|answer| answer.verdict.as_ref());
    let turns = verdict.iter().flat_map(|verdict| verdict.replayer_turns().cloned());
    let (body, replayers) = (Bytes::from(body.unwrap_or_default()), turns.collect());
    (Stored { status, content_type, body, replayers }, keep)
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
            let detail = "Idempotency-Key: a response of events supports no key";
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
    let holds = |kept: &Stored| !kept.replayers.iter().any(|turn| app.voids.covers(turn));
    let (answer, again) = app.replays.once((client, key), &body, holds, question).await?;
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
        Problem::new(
            Kind::InvalidRequest,
            "Idempotency-Key: the value contains bytes that are not visible ASCII",
        )
    })?;
    Ok(Some(value.to_owned()))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| kind.trim().starts_with("text/event-stream"))
}

/// The response as server-sent events: `progress`, then one `result` or `problem`.
fn events(
    app: Arc<App>,
    client: String,
    request: JudgeRequest,
) -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let (tell, told) = mpsc::channel(JOB_EVENTS);
    let progress = tell.clone();
    let work = async move {
        let asked = ask(&app, &client, request, |update| {
            // A slow reader misses some.
            let _ = progress.try_send(event("progress", &update));
        });
        let last = match asked.await {
            Ok(answer) => event("result", &answer),
            Err(problem) => event("problem", &problem),
        };
        // The client may be gone.
        let _ = tell.send(last).await;
    };
    // The reader drives it: a client that disconnects cancels its job.
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
        let detail = format!("items: {} exceed the limit of {most} per batch", asked.items.len());
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let each = asked.items.into_iter().map(|item| ask(&app, &client, item, |_| {}));
    let items = join_all(each).await.into_iter().map(|answer| match answer {
        Ok(answer) => BatchItem::Answer(answer),
        Err(problem) => BatchItem::Problem { problem },
    });
    Ok(axum::Json(BatchResponse { items: items.collect() }))
}
