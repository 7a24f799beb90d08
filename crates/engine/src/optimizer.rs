//! AdamW with its state as plain tensors, so that checkpoints can hold it.

use tch::{Kind, Tensor};
use warpwright_learn::engine::Step;

use crate::error::EngineError;
use crate::shim::{self, AdamW};
use crate::weights::Weights;

/// Added to the root of the second moment.
const EPSILON: f64 = 1e-8;

/// The optimizer state of one set of weights.
#[derive(Debug)]
pub(crate) struct Optimizer {
    /// Weights with weight decay (matrices), then weights without (norms).
    groups: [Group; 2],
}

#[derive(Debug, Default)]
struct Group {
    names: Vec<String>,
    parameters: Vec<Tensor>,
    first: Vec<Tensor>,
    second: Vec<Tensor>,
    steps: Vec<Tensor>,
}

impl Group {
    fn add(&mut self, name: String, parameter: &Tensor, moments: Kind) {
        let zeros = || Tensor::zeros(parameter.size(), (moments, parameter.device()));
        self.first.push(zeros());
        self.second.push(zeros());
        self.steps.push(Tensor::zeros([0_i64; 0], (Kind::Float, parameter.device())));
        self.parameters.push(parameter.shallow_clone());
        self.names.push(name);
    }

    /// Parameters that have a gradient: a head that no loss used has none.
    fn with_gradients(&self) -> Self {
        let which: Vec<usize> =
            (0..self.names.len()).filter(|&i| self.parameters[i].grad().defined()).collect();
        let of = |all: &[Tensor]| which.iter().map(|&i| all[i].shallow_clone()).collect();
        Self {
            names: which.iter().map(|&i| self.names[i].clone()).collect(),
            parameters: of(&self.parameters),
            first: of(&self.first),
            second: of(&self.second),
            steps: of(&self.steps),
        }
    }
}

impl Optimizer {
    /// An optimizer of trainable weights. `moments` is the state's type; bfloat16 halves its size.
    pub(crate) fn new(weights: &Weights, moments: Kind) -> Self {
        let mut groups = [Group::default(), Group::default()];
        for (name, tensor) in weights.named() {
            if !tensor.requires_grad() {
                continue;
            }
            let group = usize::from(tensor.dim() < 2);
            groups[group].add(name, tensor, moments);
        }
        Self { groups }
    }

    /// All parameters.
    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        let all = self.groups.iter().flat_map(|group| &group.parameters);
        all.map(Tensor::shallow_clone).collect()
    }

    /// Updates the weights and clears their gradients. Returns the gradient norm before clipping.
    /// If the norm is not finite, no weight changes.
    pub(crate) fn step(&mut self, step: &Step) -> Result<f64, EngineError> {
        let parameters = self.parameters();
        let norm = shim::clip(&parameters, step.max_grad_norm)?;
        for (group, decay) in self.groups.iter().zip([step.weight_decay, 0.0]) {
            let Group { parameters, first, second, steps, .. } = group.with_gradients();
            let with = AdamW { rate: step.lr, betas: step.adam_betas, decay, epsilon: EPSILON };
            if !parameters.is_empty() {
                shim::adamw(&parameters, &first, &second, &steps, with, &norm)?;
            }
        }
        shim::forget_gradients(&parameters)?;
        Ok(norm.double_value(&[]))
    }

    /// The state by name, for a checkpoint.
    pub(crate) fn state(&self) -> Vec<(String, Tensor)> {
        let mut state = Vec::new();
        for group in &self.groups {
            for (i, name) in group.names.iter().enumerate() {
                let parts =
                    [("first", &group.first), ("second", &group.second), ("steps", &group.steps)];
                for (part, of) in parts {
                    state.push((format!("{name}.{part}"), of[i].shallow_clone()));
                }
            }
        }
        state
    }

    /// Restores a saved state. A state of other weights is refused and changes nothing.
    pub(crate) fn restore(&mut self, state: &[(String, Tensor)]) -> Result<(), EngineError> {
        let mut pairs = Vec::new();
        for (name, mine) in self.state() {
            let found = state.iter().find(|(other, _)| *other == name).map(|(_, tensor)| tensor);
            let found = found.filter(|tensor| tensor.size() == mine.size());
            let found = found.ok_or_else(|| {
                EngineError::request(format!(
                    "the optimizer state has no {name} of the right shape"
                ))
            })?;
            pairs.push((mine, found));
        }
        for (mut mine, found) in pairs {
            mine.copy_(found);
        }
        Ok(())
    }
}
