//! Rewards in the forms that trainers ask remote reward models in.
//!
//! They know no answer without a number. So our own failure is no answer: 503, which they ask again after, or
//! stop at; a number would be learned from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, Request, State};
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Reward, Scheme, Stage, Verdict};

use crate::answer;
use crate::app::{App, Client, body, parse};
use crate::judge::{JudgeRequest, ask};
use crate::problem::{Kind, Problem};

/// After our own failure.
const AGAIN: Duration = Duration::from_secs(10);

/// What can be said of all rewards of a request, in its URL.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// Which of the verdict's rewards is the reward.
    #[serde(default)]
    reward: Scheme,
    /// How far candidates are taken; `measured` if nothing is said.
    #[serde(default)]
    stage: Option<Stage>,
}

/// Which task an answer is about: the name of one that is served, an object with `task` and `reference`, or
/// the text of such an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Label {
    /// A name, or an object as text.
    Text(String),
    /// A task.
    Task(Labelled),
}

/// A task as a label.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Labelled {
    /// Its name.
    task: String,
    /// Its source, if it is not one that is served.
    #[serde(default)]
    reference: Option<String>,
}

impl Label {
    fn task(self) -> Labelled {
        match self {
            Self::Task(task) => task,
            Self::Text(text) => {
                serde_json::from_str(&text).unwrap_or(Labelled { task: text, reference: None })
            }
        }
    }
}

/// As slime's `remote_rm` asks.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Slime {
    /// What the model was asked; not looked at.
    #[serde(default, rename = "prompt")]
    _prompt: Value,
    /// What it answered.
    response: String,
    /// Which task that is about.
    label: Label,
}

/// As OpenRLHF asks its `remote_rm_url`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OpenRlhf {
    /// Prompts with answers.
    query: Vec<String>,
    /// The prompts.
    prompts: Vec<String>,
    /// Which tasks they are about.
    labels: Vec<Label>,
}

/// The answer to OpenRLHF.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpenRlhfRewards {
    /// What is learned from.
    rewards: Vec<f64>,
    /// What tasks are chosen by.
    scores: Vec<f64>,
    /// Shown beside: `verified`, and `speedup` over the best baseline, 0 where there is none.
    extra_logs: BTreeMap<&'static str, Vec<f64>>,
}

/// `POST /reward/slime`: a number.
pub(crate) async fn slime(
    State(app): State<Arc<App>>,
    Client(client): Client,
    options: Query<Options>,
    request: Request,
) -> Result<Json<f64>, Problem> {
    let asked: Slime = parse(&body(&app, request).await?)?;
    let (reward, _) = reward(&app, &client, *options, asked.label, &asked.response).await?;
    Ok(Json(reward))
}

/// `POST /reward/openrlhf`: rewards of all, or none if we fail at one.
pub(crate) async fn openrlhf(
    State(app): State<Arc<App>>,
    Client(client): Client,
    options: Query<Options>,
    request: Request,
) -> Result<Json<OpenRlhfRewards>, Problem> {
    let OpenRlhf { query, prompts, labels } = parse(&body(&app, request).await?)?;
    if query.len() != prompts.len() || query.len() != labels.len() {
        let detail = "query, prompts and labels: they are not as many as each other";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    if query.len() > app.settings.batch {
        let detail =
            format!("query: a batch has at most {}, not {}", app.settings.batch, query.len());
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let each = query.iter().zip(&prompts).zip(labels).map(|((query, prompt), label)| {
        let answer = query.strip_prefix(prompt.as_str()).unwrap_or(query);
        reward(&app, &client, *options, label, answer)
    });
    let judged = try_join_all(each).await?;
    let rewards: Vec<f64> = judged.iter().map(|(reward, _)| *reward).collect();
    let of = |figure: fn(&Verdict) -> f64| {
        judged.iter().map(|(_, verdict)| verdict.as_deref().map_or(0.0, figure)).collect()
    };
    let extra_logs = BTreeMap::from([
        ("verified", of(|verdict| f64::from(u8::from(verdict.verified)))),
        ("speedup", of(|verdict| verdict.speedup.best.map_or(0.0, |best| best.value))),
    ]);
    Ok(Json(OpenRlhfRewards { scores: rewards.clone(), rewards, extra_logs }))
}

async fn reward(
    app: &Arc<App>,
    client: &str,
    options: Options,
    label: Label,
    answer: &str,
) -> Result<(f64, Option<Box<Verdict>>), Problem> {
    let files = answer::files(answer);
    let bytes = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
    // What a model says is no request: where it is nothing that can be judged, the model is wrong.
    if Candidate::from_stranger(bytes.collect()).is_err() {
        return Ok((Reward::NOTHING, None));
    }
    let Labelled { task, reference } = label.task();
    let stage = options.stage.unwrap_or(Stage::Measured);
    let (reward, fresh) = (options.reward, false);
    let request =
        JudgeRequest { task, reference, files, stage, reward, fresh, deadline_seconds: None };
    let judged = ask(app, client, request, |_| {}).await?;
    match (judged.reward, judged.infra_error) {
        (Some(reward), _) => Ok((reward, judged.verdict)),
        (None, error) => {
            let detail = error.as_ref().map_or("there is no verdict", |error| &error.message);
            let hint = error.as_ref().and_then(|error| error.hint.clone());
            Err(Problem::new(Kind::InfraError, detail).hint(hint).retry_after(AGAIN))
        }
    }
}
