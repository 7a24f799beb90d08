//! The episodes of a training step as rows for an engine.

use thiserror::Error;
use warpwright_record::tokens::Sequence;

use crate::actions::{Actions, Unsound};
use crate::engine::{Row, Scores};

/// A finished episode: its tokens and its reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Name of its task. Episodes of one task form a group.
    pub task: String,
    /// Token sequences as they were sampled.
    pub sequences: Vec<Sequence>,
    /// The episode's reward.
    pub reward: f64,
}

/// Why an episode cannot be trained on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failed to use episode {episode}: {why}")]
pub struct Unusable {
    /// Its number, from 0.
    pub episode: usize,
    /// The fault.
    pub why: Why,
}

/// The fault of an episode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Why {
    /// Its sequences are malformed.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// A sequence begins with an action: it has no token to condition on.
    #[error("sequence {0} begins with an action")]
    FirstToken(usize),
}

/// The rows of a batch of episodes. A sequence without actions has no row.
#[derive(Clone, Debug)]
pub struct Batch {
    rows: Vec<Row>,
    episodes: Vec<Laid>,
}

/// Rows and actions of one episode.
#[derive(Clone, Debug)]
struct Laid {
    task: String,
    actions: Actions,
    rows: std::ops::Range<usize>,
}

impl Batch {
    /// Builds the rows of `episodes`, in order.
    pub fn new(episodes: &[Episode]) -> Result<Self, Unusable> {
        let (mut rows, mut laid) = (Vec::new(), Vec::new());
        for (number, episode) in episodes.iter().enumerate() {
            let broken = |why: Why| Unusable { episode: number, why };
            let actions = Actions::of(&episode.sequences, episode.reward);
            let actions = actions.map_err(|unsound| broken(unsound.into()))?;
            let from = rows.len();
            for (place, sequence) in episode.sequences.iter().enumerate() {
                let row = row(sequence);
                if row.actions.first() == Some(&0) {
                    return Err(broken(Why::FirstToken(place)));
                }
                if !row.actions.is_empty() {
                    rows.push(row);
                }
            }
            laid.push(Laid { task: episode.task.clone(), actions, rows: from..rows.len() });
        }
        Ok(Self { rows, episodes: laid })
    }

    /// All rows; the rows of an episode are adjacent.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Number of episodes.
    pub fn len(&self) -> usize {
        self.episodes.len()
    }

    /// Whether there are no episodes.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Number of actions of all episodes.
    pub fn actions(&self) -> usize {
        self.episodes.iter().map(|laid| laid.actions.len()).sum()
    }

    /// The reward of each episode.
    pub fn rewards(&self) -> Vec<f64> {
        self.episodes.iter().map(|laid| laid.actions.reward()).collect()
    }

    /// The actions of each episode.
    pub(crate) fn decided(&self) -> impl Iterator<Item = &Actions> {
        self.episodes.iter().map(|laid| &laid.actions)
    }

    /// The rows of episode number `episode`.
    pub fn rows_of(&self, episode: usize) -> &[Row] {
        &self.rows[self.episodes[episode].rows.clone()]
    }

    /// Numbers of the episodes of each task. Tasks are in the order of their first episode.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for (number, laid) in self.episodes.iter().enumerate() {
            match groups.iter_mut().find(|(task, _)| *task == laid.task) {
                Some((_, group)) => group.push(number),
                None => groups.push((&laid.task, vec![number])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Collects one number per action from the engine's scores, by episode.
    pub(crate) fn gather(&self, scores: &[Scores], of: fn(&Scores) -> &Vec<f32>) -> Vec<Vec<f64>> {
        let each = self.episodes.iter().map(|laid| {
            let all = scores[laid.rows.clone()].iter().flat_map(of);
            all.map(|x| f64::from(*x)).collect()
        });
        each.collect()
    }

    /// Writes one number per action of each episode into the rows.
    ///
    /// # Panics
    ///
    /// If an episode has fewer numbers than actions.
    pub(crate) fn put(&mut self, to: fn(&mut Row) -> &mut Vec<f32>, by_episode: &[Vec<f64>]) {
        for (laid, numbers) in self.episodes.iter().zip(by_episode) {
            let mut from = 0;
            for row in &mut self.rows[laid.rows.clone()] {
                let count = row.actions.len();
                let part = numbers[from..from + count].iter().map(|x| *x as f32);
                *to(row) = part.collect();
                from += count;
            }
        }
    }
}

fn row(sequence: &Sequence) -> Row {
    let places =
        sequence.response_mask.iter().enumerate().filter(|(_, response_mask)| **response_mask != 0);
    let actions: Vec<u32> = places.map(|(at, _)| at as u32).collect();
    let logprobs = actions.iter().map(|at| sequence.rollout_log_probs[*at as usize]);
    let rollout_log_probs = logprobs.map(|logprob| logprob.unwrap_or(0.0)).collect();
    Row { ids: sequence.ids.clone(), actions, rollout_log_probs, ..Row::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(mask: &[u8], from: u32) -> Sequence {
        let logprob =
            |(at, a): (usize, &u8)| (*a != 0).then_some(-0.01 * (from + at as u32) as f32);
        Sequence {
            ids: (from..from + mask.len() as u32).collect(),
            response_mask: mask.to_vec(),
            rollout_log_probs: mask.iter().enumerate().map(logprob).collect(),
            turns: vec![1; mask.len()],
        }
    }

    fn episode(task: &str, masks: &[&[u8]], reward: f64) -> Episode {
        let sequences = masks.iter().zip(0..).map(|(mask, n)| sequence(mask, 10 * n)).collect();
        Episode { task: task.to_owned(), sequences, reward }
    }

    #[test]
    fn put_values_align_with_actions() {
        let episodes = [
            episode("a", &[&[0, 1, 0, 1], &[0, 0], &[0, 0, 1]], 1.0),
            episode("b", &[&[0, 1]], 2.0),
            episode("a", &[&[0, 0, 1, 1]], -1.0),
        ];
        let mut batch = Batch::new(&episodes).unwrap();
        assert_eq!((batch.len(), batch.actions(), batch.rows().len()), (3, 6, 4));
        assert_eq!(batch.rows()[1].actions, [2], "a sequence without actions is no row");
        assert_eq!(batch.rows()[0].rollout_log_probs, [-0.01, -0.03]);
        assert_eq!(batch.rewards(), [1.0, 2.0, -1.0]);
        assert_eq!(batch.groups(), [vec![0, 2], vec![1]]);
        let numbers = [vec![1.0, 2.0, 3.0], vec![4.0], vec![5.0, 6.0]];
        batch.put(|row| &mut row.advantages, &numbers);
        let put: Vec<_> = batch.rows().iter().map(|row| row.advantages.clone()).collect();
        assert_eq!(put, [vec![1.0, 2.0], vec![3.0], vec![4.0], vec![5.0, 6.0]]);
        let scores: Vec<Scores> =
            put.into_iter().map(|values| Scores { values, ..Scores::default() }).collect();
        assert_eq!(batch.gather(&scores, |s| &s.values), numbers);
    }

    #[test]
    fn unusable_episode_is_named_in_the_error() {
        let good = episode("a", &[&[0, 1]], 1.0);
        let of = |bad| Batch::new(&[good.clone(), bad]).unwrap_err();
        let first = of(episode("a", &[&[0, 1], &[1, 0]], 1.0));
        assert_eq!(first, Unusable { episode: 1, why: Why::FirstToken(1) });
        assert_eq!(of(episode("a", &[&[0]], 1.0)).why, Why::Unsound(Unsound::NoAction));
    }
}
