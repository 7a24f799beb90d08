//! A token of each row, by a number between 0 and 1, in calls of torch; `csrc/odds.cu` does it in one kernel.

use tch::{Kind, Tensor};

use crate::error::EngineError;

/// A token, and the logarithm of the probability that it was drawn with.
pub(crate) type Drawn = (u32, f32);

/// Draws from each row, given a number between 0 and 1 for each: the first token up to which the
/// probabilities add up to more. Ids, and the logarithm of the probability of each: `[2, rows]`, float64.
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
        // In double: a vocabulary of 150,000 adds up to 1 within what float32 rounds a rare token to.
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

/// Of what may be drawn; the rest is infinitely unlikely: `[rows, vocabulary]`.
fn logprobs(logits: &Tensor, (temperature, top_p): (f64, f64)) -> Tensor {
    let logprobs = (logits / temperature).log_softmax(-1, Kind::Float);
    if top_p >= 1.0 {
        return logprobs;
    }
    let (sorted, _) = logprobs.sort(-1, true);
    let before = sorted.exp().cumsum(-1, Kind::Float) - sorted.exp();
    // Equally likely ones alike: in half precision there are many, in an order that is only sorting's.
    let least = sorted.masked_fill(&before.ge(top_p), f64::INFINITY).amin(-1, true);
    let cut = logprobs.lt_tensor(&least);
    logprobs.masked_fill(&cut, f64::NEG_INFINITY).log_softmax(-1, Kind::Float)
}

/// What [`choose`] gave, on the host.
pub(crate) fn read(drawn: &Tensor) -> Result<Vec<Drawn>, EngineError> {
    let count = drawn.size()[1] as usize;
    let numbers: Vec<f64> = Vec::try_from(drawn.view([-1]))?;
    let (ids, logprobs) = numbers.split_at(count);
    Ok(ids.iter().zip(logprobs).map(|(id, logprob)| (*id as u32, *logprob as f32)).collect())
}
