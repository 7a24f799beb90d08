//! The policy's actions in one episode: the tokens it sampled.

use thiserror::Error;
use warpwright_record::tokens::Sequence;

/// The position of an action: its sequence, and its token within the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Sequence of the episode, from 0.
    pub sequence: usize,
    /// Token of the sequence, from 0.
    pub token: usize,
}

/// The tokens that the policy sampled in one episode, in sampling order.
///
/// An episode has several sequences if its context was rewritten (compaction). Each sampled token
/// is an action in exactly one of them. GAE's recursion continues from one sequence to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    places: Vec<Place>,
    rollout_log_probs: Vec<f64>,
    reward: f64,
}

/// Why an episode's sequences cannot be trained on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsound {
    /// Lists of one sequence differ in length.
    #[error(
        "failed to read sequence {sequence}: its ids, response_mask, rollout_log_probs and turns \
         differ in length"
    )]
    Lengths {
        /// Its number, from 0.
        sequence: usize,
    },
    /// An action has no log-probability, one that is not finite, or one above 0 (beyond rounding),
    /// or a token that is not an action has one.
    #[error(
        "failed to read token {token} of sequence {sequence}: its log-probability is missing, above 0 or not finite, or it is no action and has one"
    )]
    Logprob {
        /// Number of the sequence, from 0.
        sequence: usize,
        /// Number of the token, from 0.
        token: usize,
    },
    /// The policy sampled no token.
    #[error("the episode has no action: no token was sampled by the policy")]
    NoAction,
    /// The reward is not finite.
    #[error("the episode's reward is not finite")]
    Reward,
}

/// A log-probability may be this much above 0, from the sampler's rounding.
const ABOVE_ONE: f32 = 1e-3;

impl Actions {
    /// Collects the actions of an episode's sequences. `reward` is the episode's reward.
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

    /// Number of actions; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Position of each action.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Log-probability (natural) of each action under the distribution that it was sampled from.
    pub fn rollout_log_probs(&self) -> &[f64] {
        &self.rollout_log_probs
    }

    /// The episode's reward.
    pub fn reward(&self) -> f64 {
        self.reward
    }

    /// Reward of each action: the episode's reward for the last action, 0 for the others.
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
    fn last_action_gets_the_whole_reward() {
        let both = [sequence(&[0, 1, 0, 1]), sequence(&[0, 0, 1, 0, 0])];
        let actions = Actions::of(&both, 2.0).unwrap();
        assert_eq!(actions.rewards(), [0.0, 0.0, 2.0]);
        assert_eq!(actions.places()[2], Place { sequence: 1, token: 2 });
        assert_eq!(actions.rollout_log_probs(), [-0.5; 3]);
    }

    #[test]
    fn malformed_sequences_are_refused() {
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
