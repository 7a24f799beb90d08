//! Samples a token of each row by inverse transform, in torch calls; `csrc/odds.cu` does the same
//! in one kernel.

use tch::{Kind, Tensor};

use crate::error::EngineError;

/// A token id and its log-probability (natural) under the distribution it was sampled from.
pub(crate) type Drawn = (u32, f32);

/// Samples from each row, given a number in [0, 1) for each: the first token at which the
/// cumulative probability exceeds it. Returns ids and log-probabilities: `[2, rows]`, float64.
pub(crate) fn choose(
    logits: &Tensor,
    chances: &Tensor,
    (temperature, top_p): (f64, f64),
) -> Tensor {
    let (ids, logprobs) = if temperature == 0.0 {
        let ids = logits.argmax(-1, false);
        let sure = Tensor::zeros(ids.size(), (Kind::Float, ids.device()));
        (ids, sure)
    } else {
        let logprobs = logprobs(logits, (temperature, top_p));
        // In float64: the cumulative sum over a vocabulary of 150,000 would round in float32 by as
        // much as a rare token's probability.
        let sums = logprobs.to_kind(Kind::Double).exp().cumsum(-1, Kind::Double);
        let wanted = chances.unsqueeze(1) * sums.narrow(-1, -1, 1);
        let last = logits.size()[1] - 1;
        let before = sums.le_tensor(&wanted).to_kind(Kind::Int64);
        let ids = before.sum_dim_intlist(-1, false, Kind::Int64).clamp_max(last);
        let picked = logprobs.gather(-1, &ids.unsqueeze(-1), false).squeeze_dim(-1);
        (ids, picked)
    };
    Tensor::stack(&[ids.to_kind(Kind::Double), logprobs.to_kind(Kind::Double)], 0)
}

/// Log-probabilities after temperature and `top_p`; tokens outside the nucleus have -inf: `[rows,
/// vocabulary]`.
fn logprobs(logits: &Tensor, (temperature, top_p): (f64, f64)) -> Tensor {
    let logprobs = (logits / temperature).log_softmax(-1, Kind::Float);
    if top_p >= 1.0 {
        return logprobs;
    }
    let (sorted, _) = logprobs.sort(-1, true);
    let before = sorted.exp().cumsum(-1, Kind::Float) - sorted.exp();
    // Tokens of equal probability are all kept: half precision has many, and their order is
    // arbitrary.
    let least = sorted.masked_fill(&before.ge(top_p), f64::INFINITY).amin(-1, true);
    let cut = logprobs.lt_tensor(&least);
    logprobs.masked_fill(&cut, f64::NEG_INFINITY).log_softmax(-1, Kind::Float)
}

/// Copies the result of [`choose`] to the host.
pub(crate) fn read(drawn: &Tensor) -> Result<Vec<Drawn>, EngineError> {
    let count = drawn.size()[1] as usize;
    let numbers: Vec<f64> = Vec::try_from(drawn.view([-1]))?;
    let (ids, logprobs) = numbers.split_at(count);
    Ok(ids.iter().zip(logprobs).map(|(id, logprob)| (*id as u32, *logprob as f32)).collect())
}
