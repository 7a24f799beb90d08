//! The decisions of one episode.

use thiserror::Error;
use warpwright_record::tokens::Sequence;

/// Where an action stands: the number of the sequence, and of the token in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Sequence of the episode, from 0.
    pub sequence: usize,
    /// Token of the sequence, from 0.
    pub token: usize,
}

/// The tokens that the policy produced in one episode, in the order in which it did.
///
/// An episode has several sequences where its context was changed; a token is an action in exactly one
/// of them, and the recursion over decisions goes on from one to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    places: Vec<Place>,
    rollout_log_probs: Vec<f64>,
    reward: f64,
}

/// Why sequences cannot be learned from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsound {
    /// Lists of one sequence differ in length.
    #[error("failed to read sequence {sequence}: its lists differ in length")]
    Lengths {
        /// Its number, from 0.
        sequence: usize,
    },
    /// An action without the probability with which it was drawn, one above 1, or none that is finite;
    /// or a probability where there was no action.
    #[error(
        "failed to read token {token} of sequence {sequence}: its log-probability does not fit"
    )]
    Logprob {
        /// Number of the sequence, from 0.
        sequence: usize,
        /// Number of the token, from 0.
        token: usize,
    },
    /// The policy produced nothing.
    #[error("failed to find an action")]
    NoAction,
    /// The reward is not finite.
    #[error("failed to use a reward that is not finite")]
    Reward,
}

/// Rounding of a sampler may leave a probability this much above 1, as a logarithm.
const ABOVE_ONE: f32 = 1e-3;

impl Actions {
    /// The actions of an episode's sequences; `reward` is its outcome's.
    pub fn of(sequences: &[Sequence], reward: f64) -> Result<Self, Unsound> {
        if !reward.is_finite() {
            return Err(Unsound::Reward);
        }
        let (mut places, mut rollout_log_probs) = (Vec::new(), Vec::new());
        for (number, sequence) in sequences.iter().enumerate() {
            let Sequence { ids, response_mask, rollout_log_probs: given, turns } = sequence;
            if [response_mask.len(), given.len(), turns.len()].iter().any(|len| *len != ids.len()) {
                return Err(Unsound::Lengths { sequence: number });
            }
            for (token, (response_mask, logprob)) in response_mask.iter().zip(given).enumerate() {
                let sound = |p: &f32| p.is_finite() && *p <= ABOVE_ONE;
                match (*response_mask != 0, logprob) {
                    (false, None) => {}
                    (true, Some(logprob)) if sound(logprob) => {
                        places.push(Place { sequence: number, token });
                        rollout_log_probs.push(f64::from(*logprob));
                    }
                    _ => return Err(Unsound::Logprob { sequence: number, token }),
                }
            }
        }
        if places.is_empty() {
            return Err(Unsound::NoAction);
        }
        Ok(Self { places, rollout_log_probs, reward })
    }

    /// How many there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Where they stand.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Natural logarithm of the probability with which each was drawn.
    pub fn rollout_log_probs(&self) -> &[f64] {
        &self.rollout_log_probs
    }

    /// The outcome's reward.
    pub fn reward(&self) -> f64 {
        self.reward
    }

    /// The reward of each action: the outcome's for the last, nothing for the others.
    pub fn rewards(&self) -> Vec<f64> {
        let mut rewards = vec![0.0; self.len()];
        if let Some(last) = rewards.last_mut() {
            *last = self.reward;
        }
        rewards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(mask: &[u8]) -> Sequence {
        Sequence {
            ids: (0..mask.len() as u32).collect(),
            response_mask: mask.to_vec(),
            rollout_log_probs: mask.iter().map(|a| (*a != 0).then_some(-0.5)).collect(),
            turns: vec![1; mask.len()],
        }
    }

    #[test]
    fn the_reward_is_the_last_actions_whatever_follows() {
        let both = [sequence(&[0, 1, 0, 1]), sequence(&[0, 0, 1, 0, 0])];
        let actions = Actions::of(&both, 2.0).unwrap();
        assert_eq!(actions.rewards(), [0.0, 0.0, 2.0]);
        assert_eq!(actions.places()[2], Place { sequence: 1, token: 2 });
        assert_eq!(actions.rollout_log_probs(), [-0.5; 3]);
    }

    #[test]
    fn what_cannot_be_learned_from_is_said() {
        let of = |sequence: Sequence| Actions::of(&[sequence], 1.0);
        assert_eq!(of(sequence(&[0, 0])), Err(Unsound::NoAction));
        assert_eq!(Actions::of(&[], 1.0), Err(Unsound::NoAction));
        assert_eq!(Actions::of(&[sequence(&[1])], f64::NAN), Err(Unsound::Reward));
        let short = Sequence { turns: vec![1], ..sequence(&[1, 0]) };
        assert_eq!(of(short), Err(Unsound::Lengths { sequence: 0 }));
        let place = Unsound::Logprob { sequence: 0, token: 1 };
        for logprob in [None, Some(0.7), Some(f32::NAN), Some(f32::NEG_INFINITY)] {
            let logprobs = vec![None, logprob];
            let wrong = Sequence { rollout_log_probs: logprobs, ..sequence(&[0, 1]) };
            assert_eq!(of(wrong), Err(place.clone()), "{logprob:?}");
        }
        let claimed = Sequence { response_mask: vec![1, 0], ..sequence(&[1, 1]) };
        assert_eq!(of(claimed), Err(place));
    }
}
