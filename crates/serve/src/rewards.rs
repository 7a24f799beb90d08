//! Rewards in the protocols of remote reward models.
//!
//! These protocols have no response without a number. An infrastructure error therefore answers 503, on which
//! trainers retry or stop. They would train on a number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Reward, Scheme, Stage, Verdict};

use crate::answer;
use crate::app::App;
use crate::judge::{JudgeRequest, ask};
use crate::problem::{Kind, Problem};
use crate::protocol::TrainerProtocol;
use crate::request::{Client, body, parse};

/// `Retry-After` of an infrastructure error.
const AGAIN: Duration = Duration::from_secs(10);

/// Options in the URL, for all rewards of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The verdict's reward scheme that becomes the reward.
    #[serde(default)]
    reward: Scheme,
    /// The last stage that the judge runs; `measured` by default.
    #[serde(default)]
    stage: Option<Stage>,
}

/// The task of a response: the name of a served task, an object with `task` and `reference`, or such an object
/// as JSON text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Label {
    /// A name, or an object as JSON text.
    Text(String),
    /// A task.
    Task(Labelled),
}

/// A task as a label.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Labelled {
    /// Its name.
    task: String,
    /// Source of a task that is not served.
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

/// A request of slime's `remote_rm`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Slime {
    /// The prompt; ignored.
    #[serde(default, rename = "prompt")]
    _prompt: Value,
    /// The model's response.
    response: String,
    /// The task.
    label: Label,
}

/// A request to OpenRLHF's `remote_rm_url`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OpenRlhf {
    /// Prompts followed by responses.
    query: Vec<String>,
    /// The prompts.
    prompts: Vec<String>,
    /// The tasks.
    labels: Vec<Label>,
}

/// The response to OpenRLHF.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpenRlhfRewards {
    /// Rewards for training.
    rewards: Vec<f64>,
    /// Scores for dynamic filtering of prompts.
    scores: Vec<f64>,
    /// Logged metrics: `verified` (0 or 1), and `speedup` over the best baseline (0 without one).
    extra_logs: BTreeMap<&'static str, Vec<f64>>,
}

/// Reward functions of slime and OpenRLHF.
pub(crate) struct RewardFunctions;

impl TrainerProtocol for RewardFunctions {
    fn routes(&self) -> Router<Arc<App>> {
        Router::new().route("/reward/slime", post(slime)).route("/reward/openrlhf", post(openrlhf))
    }
}

/// `POST /reward/slime`: a number.
async fn slime(
    State(app): State<Arc<App>>,
    Client(client): Client,
    options: Query<Options>,
    request: Request,
) -> Result<Json<f64>, Problem> {
    let asked: Slime = parse(&body(&app, request).await?)?;
    let (reward, _) = reward(&app, &client, *options, asked.label, &asked.response).await?;
    Ok(Json(reward))
}

/// `POST /reward/openrlhf`: all rewards, or 503 if one has an infrastructure error.
async fn openrlhf(
    State(app): State<Arc<App>>,
    Client(client): Client,
    options: Query<Options>,
    request: Request,
) -> Result<Json<OpenRlhfRewards>, Problem> {
    let OpenRlhf { query, prompts, labels } = parse(&body(&app, request).await?)?;
    if query.len() != prompts.len() || query.len() != labels.len() {
        let detail = "query, prompts and labels: their lengths differ";
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    if query.len() > app.settings.batch {
        let detail =
            format!("query: {} exceed the limit of {} per batch", query.len(), app.settings.batch);
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let each = query.iter().zip(&prompts).zip(labels).map(|((query, prompt), label)| {
        reward(&app, &client, *options, label, answer_in(query, prompt))
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

/// Bytes of a truncated prompt that must remain to tell it from a response that begins equally.
const LEAST_PROMPT: usize = 16;

/// The model's response: the query without its prompt. If a trainer truncated the prompt on the left, the longest
/// suffix of the prompt is removed. Code in a prompt is not part of a response.
fn answer_in<'q>(query: &'q str, prompt: &str) -> &'q str {
    if let Some(answer) = query.strip_prefix(prompt) {
        return answer;
    }
    let left = overlap(prompt.as_bytes(), query.as_bytes());
    let answer = (left >= LEAST_PROMPT).then(|| query.get(left..)).flatten();
    answer.unwrap_or(query)
}

/// Length of the longest suffix of `ends` that is a prefix of `begins`, by the failure function of Knuth, Morris
/// and Pratt, in linear time.
fn overlap(ends: &[u8], begins: &[u8]) -> usize {
    let mut shorter = vec![0; begins.len()];
    let next = |shorter: &[usize], mut length: usize, byte: u8| {
        while length > 0 && begins.get(length) != Some(&byte) {
            length = shorter[length - 1];
        }
        length + usize::from(begins.get(length) == Some(&byte))
    };
    for at in 1..begins.len() {
        shorter[at] = next(&shorter, shorter[at - 1], begins[at]);
    }
    ends.iter().fold(0, |length, byte| next(&shorter, length, *byte))
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
    // A response without a candidate is the model's error, not the caller's: reward 0.
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
            let detail =
                error.as_ref().map_or("the judge returned no verdict", |error| &error.message);
            let hint = error.as_ref().and_then(|error| error.hint.clone());
            Err(Problem::new(Kind::InfraError, detail).hint(hint).retry_after(AGAIN))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prompt_is_removed_from_the_answer_even_if_truncated() {
        let prompt = "A prompt with ```cuda\ncode\n``` in it. Geschrieben für dich:";
        for cut in [0, 1, 14, 30] {
            let query = format!("{}I do not know.", &prompt[cut..]);
            assert_eq!(answer_in(&query, prompt), "I do not know.", "{cut}");
        }
        // An answer that begins like the prompt ends, by chance.
        assert_eq!(answer_in("dich: ja", prompt), "dich: ja");
        assert_eq!(answer_in("", prompt), "");
        assert_eq!(answer_in("an answer", ""), "an answer");
        // What was cut within a letter has lost it.
        let inside = prompt.find('ü').unwrap();
        let query = format!("\u{fffd}{}yes", &prompt[inside + 'ü'.len_utf8()..]);
        assert_eq!(answer_in(&query, prompt), query, "and cannot be told");
    }

    proptest! {
        #[test]
        fn overlap_is_the_longest_common_suffix_and_prefix(ends in "[abü]{0,24}", begins in "[abü]{0,24}") {
            let starts = |end: &usize| begins.as_bytes().starts_with(&ends.as_bytes()[ends.len() - end..]);
            let longest = (0..=ends.len()).rev().find(starts).unwrap();
            prop_assert_eq!(overlap(ends.as_bytes(), begins.as_bytes()), longest);
            let _ = answer_in(&begins, &ends);
        }
    }
}
