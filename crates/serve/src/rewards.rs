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

/// Bytes of a cut prompt that must be left for it to be told from an answer that begins like that.
const LEAST_PROMPT: usize = 16;

/// What the model said: the query without the prompt that it begins with, or, where a trainer has cut that from
/// the front to make it fit, without the longest end of it. Code in a prompt is nobody's answer.
fn answer_in<'q>(query: &'q str, prompt: &str) -> &'q str {
    if let Some(answer) = query.strip_prefix(prompt) {
        return answer;
    }
    let left = overlap(prompt.as_bytes(), query.as_bytes());
    let answer = (left >= LEAST_PROMPT).then(|| query.get(left..)).flatten();
    answer.unwrap_or(query)
}

/// Length of the longest end of one text that the other begins with, by the failure function of Knuth, Morris and
/// Pratt: in time linear in both.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prompt_is_not_the_answer_also_when_it_was_cut() {
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
        fn the_longest_end_is_found(ends in "[abü]{0,24}", begins in "[abü]{0,24}") {
            let starts = |end: &usize| begins.as_bytes().starts_with(&ends.as_bytes()[ends.len() - end..]);
            let longest = (0..=ends.len()).rev().find(starts).unwrap();
            prop_assert_eq!(overlap(ends.as_bytes(), begins.as_bytes()), longest);
            let _ = answer_in(&begins, &ends);
        }
    }
}
