//! A sampler whose weights differ from the trainer's: rounded, as a faster inference engine would
//! have them, or from earlier updates, as in asynchronous training. For experiments on off-policy
//! effects.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::weights::Weights;

/// Largest number of `float8_e4m3fn`.
const LARGEST_FP8: f64 = 448.0;

/// The type that the sampler's matrices are rounded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplerDtype {
    /// Not rounded.
    #[default]
    Same,
    /// 8 bits of precision.
    Bfloat16,
    /// `float8_e4m3fn`, 4 bits of precision, with one scale for each matrix.
    Fp8,
}

impl SamplerDtype {
    /// Rounds a weight as it would be stored; norms are never rounded to fp8.
    fn of(self, weight: &Tensor) -> Tensor {
        match self {
            Self::Same => weight.copy(),
            Self::Bfloat16 => weight.to_kind(Kind::BFloat16).to_kind(Kind::Float),
            Self::Fp8 if weight.dim() < 2 => weight.copy(),
            Self::Fp8 => {
                let scale = weight.abs().max().clamp_min(1e-12) / LARGEST_FP8;
                (weight / &scale).to_kind(Kind::Float8e4m3fn).to_kind(Kind::Float) * scale
            }
        }
    }
}

/// How a sampler's weights differ from the trainer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deviation {
    /// How they are rounded.
    pub dtype: SamplerDtype,
    /// Number of policy updates that the sampler's weights lag behind. After a checkpoint is
    /// loaded, the sampler uses the loaded weights until there have been that many updates.
    pub lag: usize,
}

/// The weights of a sampler with a deviation. Without one it uses the trainer's.
#[derive(Debug)]
pub(crate) struct Drafts {
    deviation: Deviation,
    /// The weights of the last updates, oldest first.
    kept: VecDeque<Weights>,
}

impl Drafts {
    pub(crate) fn new(deviation: Deviation, weights: &Weights) -> Self {
        let mut drafts = Self { deviation, kept: VecDeque::new() };
        drafts.moved(weights);
        drafts
    }

    /// Records the trainer's weights after an update.
    pub(crate) fn moved(&mut self, weights: &Weights) {
        let Deviation { dtype, lag } = self.deviation;
        if self.deviation == Deviation::default() {
            return;
        }
        let _no_grad = tch::no_grad_guard();
        self.kept.push_back(weights.map(|weight| dtype.of(&weight.detach())));
        while self.kept.len() > lag + 1 {
            self.kept.pop_front();
        }
    }

    /// The sampler's weights, if they are not the trainer's.
    pub(crate) fn weights(&self) -> Option<Weights> {
        self.kept.front().map(|weights| weights.map(Tensor::shallow_clone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp8_keeps_four_bits_and_the_maximum() {
        let weight = Tensor::from_slice(&[448.0f32, 1.0, 1.06, -1.07, 300.0]).view([1, 5]);
        let rounded: Vec<f32> = Vec::try_from(SamplerDtype::Fp8.of(&weight).view([-1])).unwrap();
        // Steps of an eighth between 1 and 2, of 32 between 256 and 448.
        assert_eq!(rounded, [448.0, 1.0, 1.0, -1.125, 288.0]);
        let norm = Tensor::from_slice(&[1.06f32]);
        assert_eq!(SamplerDtype::Fp8.of(&norm), norm);
        let half: Vec<f32> = Vec::try_from(SamplerDtype::Bfloat16.of(&weight).view([-1])).unwrap();
        assert!((half[2] - 1.06).abs() < 0.004 && half[2].to_bits() != 1.06f32.to_bits());
    }
}
