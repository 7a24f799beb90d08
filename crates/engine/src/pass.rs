//! Micro-batches: rows that pass through a model together, forward and backward.
//!
//! Every copy between host and device waits for the device. So the rows of all micro-batches are
//! copied before the first begins, and results are read after the last is launched.

use tch::{Device, Kind, Tensor};
use warpwright_learn::engine::{Row, Scores};

use crate::error::EngineError;
use crate::losses::Signals;
use crate::model::{Model, Packed};
use crate::shim;

/// Limit on the logits computed at once. Torch's operations take some 24 bytes each, forward and
/// backward; the fused kernels take four (by reading the code, not measured).
const MOST_ODDS: i64 = 1 << 27;
const MOST_ODDS_BY_KERNELS: i64 = 1 << 29;

/// Results of a micro-batch's actions, on the device.
#[derive(Default)]
pub(crate) struct Said {
    /// Per part of the actions, in order: `[part]` each, float32; empty if not requested.
    logprobs: Vec<Tensor>,
    entropies: Vec<Tensor>,
    values: Vec<Tensor>,
    /// The loss of each part: `[]`.
    losses: Vec<Tensor>,
    /// Number of actions per row.
    counts: Vec<usize>,
}

impl Said {
    /// The loss, and scores by row.
    pub(crate) fn read(&self) -> Result<(f64, Vec<Scores>), EngineError> {
        let of = |parts: &[Tensor]| -> Result<Vec<f32>, EngineError> {
            let read = parts.iter().map(|part| Vec::try_from(part.to_kind(Kind::Float)));
            Ok(read.collect::<Result<Vec<Vec<f32>>, _>>()?.concat())
        };
        let (logprobs, entropies) = (of(&self.logprobs)?, of(&self.entropies)?);
        let values = of(&self.values)?;
        let mut from = 0;
        let by_row = self.counts.iter().map(|count| {
            let part = |all: &[f32]| all.get(from..from + count).unwrap_or_default().to_vec();
            let scores = Scores {
                logprobs: part(&logprobs),
                entropies: part(&entropies),
                values: part(&values),
            };
            from += count;
            scores
        });
        let by_row = by_row.collect();
        Ok((self.losses.iter().map(|loss| loss.double_value(&[])).sum(), by_row))
    }
}

/// A micro-batch.
pub(crate) struct Pass {
    packed: Packed,
    /// Indices of the tokens before the actions, whose hidden states predict them: `[actions]`.
    before: Tensor,
    /// The action tokens: `[actions]`.
    chosen: Tensor,
    /// Number of actions per row.
    counts: Vec<usize>,
}

impl Pass {
    pub(crate) fn new(rows: &[&Row], device: Device) -> Self {
        let packed = Packed::new(rows.iter().map(|row| row.ids.as_slice()), device);
        let (mut before, mut chosen, mut from) = (Vec::new(), Vec::new(), 0);
        for row in rows {
            before.extend(row.actions.iter().map(|at| from + i64::from(*at) - 1));
            chosen.extend(row.actions.iter().map(|at| i64::from(row.ids[*at as usize])));
            from += row.ids.len() as i64;
        }
        Self {
            packed,
            before: Tensor::from_slice(&before).to_device(device),
            chosen: Tensor::from_slice(&chosen).to_device(device),
            counts: rows.iter().map(|row| row.actions.len()).collect(),
        }
    }

    fn actions(&self) -> i64 {
        self.before.size()[0]
    }

    /// Offsets and lengths of parts of the actions whose logits fit the limit.
    fn parts(&self, model: &Model) -> Vec<(i64, i64)> {
        let most = if model.kernels().is_some() { MOST_ODDS_BY_KERNELS } else { MOST_ODDS };
        let at_once = (most / model.config.vocab_size).max(1);
        let count = self.actions();
        (0..count).step_by(at_once as usize).map(|from| (from, at_once.min(count - from))).collect()
    }

    /// The hidden states that predict a part of the actions: `[part, hidden]`.
    fn chooser(&self, hidden: &Tensor, (from, count): (i64, i64)) -> Tensor {
        hidden.index_select(0, &self.before.narrow(0, from, count))
    }

    /// A part of the actions: `[part]`.
    fn chosen(&self, (from, count): (i64, i64)) -> Tensor {
        self.chosen.narrow(0, from, count)
    }

    /// Scores of the actions, with values if a model computes them.
    pub(crate) fn score(&self, model: &Model, valuer: Option<&Model>) -> Result<Said, EngineError> {
        let hidden = model.hidden(&self.packed)?;
        let mut said = self.silence();
        for part in self.parts(model) {
            let chooser = self.chooser(&hidden, part);
            let [logprobs, entropies] = model.likelihood(&chooser, &self.chosen(part))?;
            said.logprobs.push(logprobs);
            said.entropies.push(entropies);
        }
        if let Some(valuer) = valuer {
            let own = !std::ptr::eq(valuer, model);
            let hidden = if own { valuer.hidden(&self.packed)? } else { hidden };
            said.values.push(valuer.values(&self.chooser(&hidden, (0, self.actions())))?);
        }
        Ok(said)
    }

    /// Accumulates gradients. Returns the loss and the actions' scores.
    pub(crate) fn backward(
        &self,
        model: &Model,
        signals: &Signals,
        over: f64,
        gradient_checkpointing: bool,
    ) -> Result<Said, EngineError> {
        let kept =
            if gradient_checkpointing { Some(model.hidden_briefly(&self.packed)?) } else { None };
        let out = match &kept {
            Some(kept) => model.finish(kept)?,
            None => model.hidden(&self.packed)?,
        };
        // The heads' backward pass first, a part at a time: their logits take most memory.
        let hidden = out.detach();
        let mut gradient = hidden.zeros_like();
        let mut said = self.silence();
        for part in self.parts(model) {
            let chooser = self.chooser(&hidden, part).set_requires_grad(true);
            let now = if signals.is_value() {
                let values = model.values(&chooser)?;
                said.values.push(values.detach());
                values
            } else {
                let [logprobs, entropies] = model.likelihood(&chooser, &self.chosen(part))?;
                said.logprobs.push(logprobs.detach());
                said.entropies.push(entropies.detach());
                logprobs
            };
            let loss = signals.sum(&now, part.0) / over;
            loss.backward();
            // Each token predicts one action at most.
            let before = self.before.narrow(0, part.0, part.1);
            let _ = gradient.index_copy_(0, &before, &chooser.grad());
            said.losses.push(loss.detach());
        }
        match kept {
            Some(kept) => model.back(&self.packed, kept, &gradient)?,
            None => shim::backward(&out, &gradient)?,
        }
        Ok(said)
    }

    fn silence(&self) -> Said {
        Said { counts: self.counts.clone(), ..Said::default() }
    }
}
