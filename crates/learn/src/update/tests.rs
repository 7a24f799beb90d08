//! Updates of a policy that is a table: the odds of each token after each other one. Its gradients are
//! written down by hand from the losses' definitions.

use std::path::Path;

use thiserror::Error;
use warpwright_record::tokens::Sequence;

use super::*;
use crate::engine::{Description, Passed, Sampled, Sampling};
use crate::losses::value_term;

const TOKENS: usize = 4;

#[derive(Debug, Error)]
#[error("no")]
struct Never;

/// Moves against its gradients as they are, by the step's rate.
#[derive(Clone, Debug, PartialEq)]
struct Table {
    odds: [[f64; TOKENS]; TOKENS],
    values: [f64; TOKENS],
    odds_slope: [[f64; TOKENS]; TOKENS],
    values_slope: [f64; TOKENS],
    has_values: bool,
    has_critic: bool,
    /// How often each moved.
    steps: (u32, u32),
}

impl Table {
    fn new() -> Self {
        Self {
            odds: [[0.0; TOKENS]; TOKENS],
            values: [0.0; TOKENS],
            odds_slope: [[0.0; TOKENS]; TOKENS],
            values_slope: [0.0; TOKENS],
            has_values: true,
            has_critic: true,
            steps: (0, 0),
        }
    }

    fn logprobs(&self, after: u32) -> [f64; TOKENS] {
        let odds = self.odds[after as usize];
        let sum: f64 = odds.iter().map(|x| x.exp()).sum();
        odds.map(|x| x - sum.ln())
    }

    fn scores(&self, row: &Row) -> Scores {
        let mut scores = Scores::default();
        for at in &row.actions {
            let (before, id) = (row.ids[*at as usize - 1], row.ids[*at as usize]);
            let all = self.logprobs(before);
            scores.logprobs.push(all[id as usize] as f32);
            scores.entropies.push(-all.iter().map(|p| p * p.exp()).sum::<f64>() as f32);
            if self.has_values {
                scores.values.push(self.values[before as usize] as f32);
            }
        }
        scores
    }
}

impl Engine for Table {
    type Error = Never;

    fn describe(&mut self) -> Result<Description, Never> {
        Ok(Description {
            vocabulary: TOKENS as u32,
            positions: 100,
            parameters: (TOKENS * TOKENS + TOKENS) as u64,
            has_values: self.has_values,
            has_critic: self.has_critic,
            device: "cpu".to_owned(),
        })
    }

    fn begin_critic(&mut self) -> Result<(), Never> {
        self.has_critic = true;
        Ok(())
    }

    fn score(&mut self, rows: &[Row]) -> Result<Vec<Scores>, Never> {
        Ok(rows.iter().map(|row| self.scores(row)).collect())
    }

    fn backward(&mut self, rows: &[Row], loss: &Loss, over: f64) -> Result<Passed, Never> {
        let mut passed = Passed::default();
        for row in rows {
            let scores = self.scores(row);
            for (i, at) in row.actions.iter().enumerate() {
                let (before, id) = (row.ids[*at as usize - 1], row.ids[*at as usize] as usize);
                let of = |all: &[f32]| f64::from(all[i]);
                let slope = match loss {
                    Loss::Likelihood => {
                        passed.loss -= of(&scores.logprobs) / over;
                        -1.0
                    }
                    Loss::Policy(loss) => {
                        let logprobs = Logprobs {
                            now: of(&scores.logprobs),
                            before: of(&row.before),
                            behaviour: of(&row.behaviour),
                        };
                        let term = loss.term(logprobs, of(&row.advantages));
                        passed.loss += term.loss / over;
                        term.gradient
                    }
                    Loss::Value { clip } => {
                        let expected = clip.map_or(0.0, |_| of(&row.expected));
                        let value = self.values[before as usize];
                        let (loss, slope) = value_term(value, expected, of(&row.targets), *clip);
                        passed.loss += loss / over;
                        self.values_slope[before as usize] += slope / over;
                        continue;
                    }
                };
                for (other, logprob) in self.logprobs(before).iter().enumerate() {
                    let chosen = f64::from(u8::from(other == id));
                    self.odds_slope[before as usize][other] +=
                        slope * (chosen - logprob.exp()) / over;
                }
            }
            passed.scores.push(scores);
        }
        Ok(passed)
    }

    fn step(&mut self, which: Which, step: &Step) -> Result<f64, Never> {
        let moves_values = which == Which::Critic || !self.has_critic;
        let mut norm = 0.0;
        if which == Which::Policy {
            self.steps.0 += 1;
            for (odds, slopes) in
                self.odds.iter_mut().flatten().zip(self.odds_slope.iter().flatten())
            {
                *odds -= step.rate * slopes;
                norm += slopes * slopes;
            }
            self.odds_slope = [[0.0; TOKENS]; TOKENS];
        } else {
            self.steps.1 += 1;
        }
        if moves_values {
            for (value, slope) in self.values.iter_mut().zip(&self.values_slope) {
                *value -= step.rate * slope;
                norm += slope * slope;
            }
            self.values_slope = [0.0; TOKENS];
        }
        Ok(norm.sqrt())
    }

    fn sample(&mut self, _: &[Vec<u32>], _: &Sampling) -> Result<Vec<Sampled>, Never> {
        Err(Never)
    }

    fn save(&mut self, _: &Path) -> Result<(), Never> {
        Err(Never)
    }
}

/// After token 0 it produced these, one in four each time; reward at the end.
fn episode(task: &str, produced: &[u32], reward: f64) -> Episode {
    let (count, quarter) = (produced.len(), 0.25f32.ln());
    let sequence = Sequence {
        ids: [&[0], produced].concat(),
        is_action: [vec![0], vec![1; count]].concat(),
        behaviour_logprobs: [vec![None], vec![Some(quarter); count]].concat(),
        turns: vec![1; count + 1],
    };
    Episode { task: task.to_owned(), sequences: vec![sequence], reward }
}

/// Token 1 is worth something, 2 and 3 are not.
fn episodes() -> Vec<Episode> {
    ["a", "b"]
        .iter()
        .flat_map(|task| {
            [(1, 1.0), (2, -1.0), (3, -1.0), (1, 1.0)]
                .map(|(token, reward)| episode(task, &[token], reward))
        })
        .collect()
}

fn steps(rate: f64) -> Steps {
    let step = Step { rate, ..Step::default() };
    Steps { policy: step, critic: step, parts: 1 }
}

fn ppo() -> Rule {
    Rule::Ppo { recipe: Recipe::robust(), critic_steps: 1, critic_only: false }
}

fn rules() -> [Rule; 4] {
    let loss = Recipe::robust().policy;
    [
        ppo(),
        Rule::Group { by: Comparison::Rloo, loss },
        Rule::Group { by: Comparison::Grpo, loss },
        Rule::Rejection { above: 0.0 },
    ]
}

#[test]
fn what_was_worth_something_becomes_likelier_by_every_rule() {
    for rule in rules() {
        let mut table = Table::new();
        let report = update(&mut table, &rule, &steps(0.5), &episodes()).unwrap();
        let logprobs = table.logprobs(0);
        assert!(logprobs[1] > 0.25f64.ln(), "{rule:?} {logprobs:?}");
        assert!(logprobs[2] < 0.25f64.ln() && logprobs[3] < 0.25f64.ln(), "{rule:?} {logprobs:?}");
        let (reward, flat) = (report.reward, report.flat);
        assert_eq!((report.episodes, reward, flat), (8, 0.0, 0.0), "{rule:?}");
        assert!((report.entropy - 4f64.ln()).abs() < 1e-6, "{rule:?} {}", report.entropy);
        assert!(report.norm > 0.0 && report.alarms.is_empty(), "{rule:?} {report:?}");
        assert_eq!(table.steps.0, 1, "{rule:?}");
    }
}

#[test]
fn one_update_by_hand() {
    // One action each: whitened advantages are 1 for the two tokens 1, -1 for the others; the ratio is 1.
    let loss = Recipe::robust().policy;
    let rule = Rule::Group { by: Comparison::Rloo, loss };
    let mut table = Table::new();
    let report = update(&mut table, &rule, &steps(1.0), &episodes()).unwrap();
    // d/d odds[1] = -(4 (1 - 1/4) - 4 (0 - 1/4)) / 8 = -1/2; odds[2]: -(-1/4 * 4 - (1 - 1/4) 2 + 1/4 2) / 8.
    let wanted = [0.0, 0.5, -0.25, -0.25];
    for (found, wanted) in table.odds[0].iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-6, "{:?}", table.odds[0]);
    }
    assert!((report.norm - (0.25f64 + 2.0 * 0.0625).sqrt()).abs() < 1e-6);
    assert!(report.loss.abs() < 1e-6, "the mean of whitened advantages is none");
    let moved = report.moved.unwrap();
    let sum: f64 = wanted.iter().map(|x| x.exp()).sum();
    let ratios = wanted.map(|x| 4.0 * x.exp() / sum);
    assert!((moved.mean - (ratios[1] * 4.0 + ratios[2] * 4.0) / 8.0).abs() < 1e-6);
    assert!((report.mismatch.unwrap().mean - 1.0).abs() < 1e-6);
}

#[test]
fn groups_that_say_nothing_are_counted_and_teach_nothing() {
    let loss = Recipe::robust().policy;
    let mut all = episodes();
    all.extend([episode("flat", &[3], 2.0), episode("flat", &[3], 2.0)]);
    for by in [Comparison::Rloo, Comparison::Grpo] {
        let rule = Rule::Group { by, loss };
        let mut table = Table::new();
        let report = update(&mut table, &rule, &steps(0.5), &all).unwrap();
        assert_eq!((report.episodes, report.used, report.actions), (10, 8, 8));
        assert!((report.flat - 1.0 / 3.0).abs() < 1e-12);
        assert!(table.logprobs(0)[3] < 0.25f64.ln(), "{by:?}: their reward is the highest");
    }
    let flat = &all[8..];
    let mut table = Table::new();
    let rule = Rule::Group { by: Comparison::Rloo, loss };
    let report = update(&mut table, &rule, &steps(0.5), flat).unwrap();
    assert_eq!((report.used, report.flat, table), (0, 1.0, Table::new()));
}

#[test]
fn only_what_is_above_the_bar_is_imitated() {
    let mut table = Table::new();
    let rule = Rule::Rejection { above: 0.0 };
    let report = update(&mut table, &rule, &steps(0.5), &episodes()).unwrap();
    assert_eq!((report.used, report.actions), (4, 4));
    assert!((report.loss - 4f64.ln()).abs() < 1e-6);
    let bar = Rule::Rejection { above: 1.0 };
    let mut table = Table::new();
    assert_eq!(update(&mut table, &bar, &steps(0.5), &episodes()).unwrap().used, 0);
    assert_eq!(table, Table::new());
}

#[test]
fn a_critic_learns_what_to_expect_and_can_learn_alone() {
    // After token 0 comes 1 on average; after token 2 nothing.
    let all: Vec<Episode> =
        [(&[1][..], 1.0), (&[2, 3], 0.0), (&[1], 1.0), (&[2, 1], 0.0), (&[1], 2.0)]
            .map(|(produced, reward)| episode("a", produced, reward))
            .into();
    let rule = Rule::Ppo { recipe: Recipe::robust(), critic_steps: 2, critic_only: true };
    let mut table = Table::new();
    let mut explained = Vec::new();
    for _ in 0..40 {
        let report = update(&mut table, &rule, &steps(0.5), &all).unwrap();
        explained.push(report.explained_variance.unwrap());
        assert!(report.alarms.is_empty() && report.moved.is_none());
    }
    assert_eq!(table.steps, (0, 80));
    assert_eq!(table.odds, Table::new().odds);
    assert!((table.values[0] - 0.8).abs() < 0.01, "{:?}", table.values);
    assert!(table.values[2].abs() < 0.01, "{:?}", table.values);
    assert!(explained[0].abs() < 1e-9 && explained[39] > 0.2, "{explained:?}");
}

#[test]
fn a_value_head_on_the_policys_trunk_moves_with_the_policy() {
    let mut table = Table { has_critic: false, ..Table::new() };
    let report = update(&mut table, &ppo(), &steps(0.5), &episodes()[..3]).unwrap();
    assert_eq!(table.steps, (1, 0));
    assert!(report.value_loss.unwrap() > 0.0 && table.values[0] < 0.0);
    let mut none = Table { has_values: false, ..Table::new() };
    let refused = update(&mut none, &ppo(), &steps(0.5), &episodes());
    assert!(matches!(refused, Err(UpdateError::NoValues)));
}

#[test]
fn each_part_of_a_batch_has_a_step_and_some_of_every_task() {
    let mut table = Table::new();
    let steps = Steps { parts: 4, ..steps(0.1) };
    let report = update(&mut table, &ppo(), &steps, &episodes()).unwrap();
    assert_eq!(table.steps, (4, 1));
    assert_eq!(report.used, 8);
    // More parts than episodes are as many as episodes.
    let mut table = Table::new();
    update(&mut table, &ppo(), &Steps { parts: 99, ..steps }, &episodes()[..3]).unwrap();
    assert_eq!(table.steps, (3, 1));
}

#[test]
fn a_step_that_is_too_long_raises_an_alarm() {
    let mut table = Table::new();
    let report = update(&mut table, &ppo(), &steps(30.0), &episodes()).unwrap();
    assert!(report.alarms.contains(&Alarm::Divergence), "{report:?}");
    let mut table = Table::new();
    let report = update(&mut table, &ppo(), &steps(f64::NAN), &episodes()).unwrap();
    assert!(report.alarms.contains(&Alarm::NotFinite), "{report:?}");
}

#[test]
fn nothing_is_learned_from_nothing_or_from_nonsense() {
    let mut table = Table::new();
    assert_eq!(update(&mut table, &ppo(), &steps(0.5), &[]).unwrap(), Report::default());
    let mut broken = episodes();
    broken[2].reward = f64::NAN;
    let refused = update(&mut table, &ppo(), &steps(0.5), &broken).unwrap_err();
    assert!(refused.to_string().contains("episode 2"), "{refused}");
    assert_eq!(table, Table::new());
}
