//! An engine for tests: the policy is a table of the odds of each token after each other one. Its
//! gradients are derived by hand from the losses' definitions.

use std::path::Path;

use thiserror::Error;
use warpwright_record::tokens::Sequence;

use crate::batch::Episode;
use crate::engine::{Description, Engine, Loss, Passed, Row, Scores, Step, Which};
use crate::losses::{Logprobs, value_term};

const TOKENS: usize = 4;

#[derive(Debug, Error)]
#[error("no")]
pub(crate) struct Never;

/// Updates by plain gradient descent with the step's learning rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) odds: [[f64; TOKENS]; TOKENS],
    pub(crate) values: [f64; TOKENS],
    pub(crate) odds_slope: [[f64; TOKENS]; TOKENS],
    pub(crate) values_slope: [f64; TOKENS],
    pub(crate) has_values: bool,
    pub(crate) has_critic: bool,
    /// Number of steps of the policy and of the critic.
    pub(crate) steps: (u32, u32),
}

impl Table {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn logprobs(&self, after: u32) -> [f64; TOKENS] {
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
                            old: of(&row.old_log_probs),
                            rollout: of(&row.rollout_log_probs),
                        };
                        let term = loss.term(logprobs, of(&row.advantages));
                        passed.loss += term.loss / over;
                        term.gradient
                    }
                    Loss::Value { clip } => {
                        let expected = clip.map_or(0.0, |_| of(&row.values));
                        let value = self.values[before as usize];
                        let (loss, slope) = value_term(value, expected, of(&row.returns), *clip);
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
                *odds -= step.lr * slopes;
                norm += slopes * slopes;
            }
            self.odds_slope = [[0.0; TOKENS]; TOKENS];
        } else {
            self.steps.1 += 1;
        }
        if moves_values {
            for (value, slope) in self.values.iter_mut().zip(&self.values_slope) {
                *value -= step.lr * slope;
                norm += slope * slope;
            }
            self.values_slope = [0.0; TOKENS];
        }
        Ok(norm.sqrt())
    }

    fn save(&mut self, _: &Path) -> Result<(), Never> {
        Err(Never)
    }
}

/// An episode that samples `produced` after token 0, each token with probability 1/4, with the
/// reward at the end.
pub(crate) fn episode(task: &str, produced: &[u32], reward: f64) -> Episode {
    let (count, quarter) = (produced.len(), 0.25f32.ln());
    let sequence = Sequence {
        ids: [&[0], produced].concat(),
        response_mask: [vec![0], vec![1; count]].concat(),
        rollout_log_probs: [vec![None], vec![Some(quarter); count]].concat(),
        turns: vec![1; count + 1],
    };
    Episode { task: task.to_owned(), sequences: vec![sequence], reward }
}
