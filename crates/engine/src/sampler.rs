//! Draws tokens: many sequences at once, each in a slot that is filled again when it is done.
//!
//! Keys and values of what was read are kept, so that a token costs one position. Each sequence has a
//! stream of random numbers of its own: what is drawn for a prompt does not depend on which others are drawn
//! beside it. On the host not even by rounding, so that a run that goes on does what it would have done.
//!
//! A token's log-probability is that under which it was drawn. The forward pass is the trainer's
//! (`model.rs`), with weights in the same types.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tch::{Kind, Tensor};
use warpwright_learn::engine::{Prompt, Sampled, Sampling};

use crate::error::EngineError;
use crate::model::{Model, Packed};

/// Positions attended to are rounded up to this many, so that shapes repeat.
const BUCKET: i64 = 64;
/// Rows of a product are filled up to this many: products of very few rows add up in another order (on the
/// host below 4, measured with MKL 2024.2), and what is drawn beside a sequence would show in its last bits.
const LEAST_ROWS: usize = 16;

/// Draws after each prompt with at most so many sequences at once; in the prompts' order.
pub(crate) fn sample(
    model: &Model,
    prompts: &[Prompt],
    sampling: &Sampling,
    at_once: usize,
) -> Result<Vec<Sampled>, EngineError> {
    check(model, prompts, sampling)?;
    let _no_grad = tch::no_grad_guard();
    let longest = longest(model, prompts, sampling);
    let slots = at_once.clamp(1, prompts.len().max(1));
    let mut sampler = Sampler {
        model,
        sampling,
        cache: Cache::new(model, slots.max(LEAST_ROWS) as i64, longest),
        slots: (0..slots).map(|_| None).collect(),
        done: prompts.iter().map(|_| Sampled::default()).collect(),
        longest,
    };
    let mut waiting = prompts.iter().enumerate();
    loop {
        let began = sampler.fill(&mut waiting)?;
        if sampler.slots.iter().any(Option::is_some) {
            sampler.step()?;
        } else if !began {
            return Ok(sampler.done);
        }
    }
}

fn check(model: &Model, prompts: &[Prompt], sampling: &Sampling) -> Result<(), EngineError> {
    let Sampling { temperature, top_p, .. } = *sampling;
    if !(temperature >= 0.0 && temperature.is_finite() && top_p > 0.0 && top_p <= 1.0) {
        let message = format!("temperature {temperature} or top_p {top_p} makes no sense");
        return Err(EngineError::request(message));
    }
    let (words, most) = (model.config.vocab_size, model.config.max_position_embeddings);
    for (number, prompt) in prompts.iter().enumerate() {
        if let Some(id) = prompt.ids.iter().find(|id| i64::from(**id) >= words) {
            let message = format!("prompt {number} has token {id} of a vocabulary of {words}");
            return Err(EngineError::request(message));
        }
        if prompt.ids.is_empty() || prompt.ids.len() as i64 >= most {
            let length = prompt.ids.len();
            let message =
                format!("prompt {number} has {length} tokens; 1 to {} leave room", most - 1);
            return Err(EngineError::request(message));
        }
    }
    Ok(())
}

/// Positions that any of the sequences can need.
fn longest(model: &Model, prompts: &[Prompt], sampling: &Sampling) -> i64 {
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(0) as i64;
    let wanted = longest + i64::from(sampling.most);
    wanted.min(model.config.max_position_embeddings)
}

/// A sequence that is being drawn.
struct Slot {
    /// Number of its prompt.
    number: usize,
    /// The last token, which was not read yet.
    token: u32,
    /// Where that stands.
    position: i64,
    random: StdRng,
}

/// Keys and values by block: `[rows, groups, positions, width]`; a row for each slot, and some to fill up.
struct Cache {
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    /// 0, 1, 2, ...: `[positions]`.
    numbers: Tensor,
}

impl Cache {
    fn new(model: &Model, rows: i64, longest: i64) -> Self {
        let positions = (longest + BUCKET - 1) / BUCKET * BUCKET;
        let (groups, width) = (model.config.num_key_value_heads, model.config.head_dim);
        let of = (model.compute, model.device());
        let room = || {
            let zeros = || Tensor::zeros([rows, groups, positions, width], of);
            (0..model.config.num_hidden_layers).map(|_| zeros()).collect()
        };
        let numbers = Tensor::arange(positions, (Kind::Int64, model.device()));
        Self { keys: room(), values: room(), numbers }
    }
}

struct Sampler<'a> {
    model: &'a Model,
    sampling: &'a Sampling,
    cache: Cache,
    slots: Vec<Option<Slot>>,
    done: Vec<Sampled>,
    longest: i64,
}

impl Sampler<'_> {
    /// Gives free slots to prompts that wait: reads these, all in one pass, and draws their first token.
    /// Whether there were any.
    fn fill<'p>(
        &mut self,
        waiting: &mut impl Iterator<Item = (usize, &'p Prompt)>,
    ) -> Result<bool, EngineError> {
        let free = (0..self.slots.len()).filter(|&slot| self.slots[slot].is_none());
        let begun: Vec<(usize, usize, &Prompt)> =
            free.zip(waiting).map(|(slot, (number, prompt))| (slot, number, prompt)).collect();
        if begun.is_empty() || self.sampling.most == 0 {
            return Ok(false);
        }
        let filler = [0; LEAST_ROWS];
        let read = begun.iter().map(|(_, _, p)| p.ids.as_slice());
        let packed = Packed::new(read.chain([&filler[..]]), self.model.device());
        let cache = &mut self.cache;
        let hidden = self.model.hidden_seeing(&packed, |block, keys, values| {
            let mut from = 0;
            for (slot, _, prompt) in &begun {
                let length = prompt.ids.len() as i64;
                let put = |all: &Tensor, new: &Tensor| {
                    let new = new.narrow(0, from, length).transpose(0, 1);
                    all.select(0, *slot as i64).narrow(1, 0, length).copy_(&new);
                };
                put(&cache.keys[block], keys);
                put(&cache.values[block], values);
                from += length;
            }
        })?;
        let mut ends: Vec<i64> = begun
            .iter()
            .scan(0, |end, (_, _, prompt)| {
                *end += prompt.ids.len() as i64;
                Some(*end - 1)
            })
            .collect();
        ends.resize(ends.len().max(LEAST_ROWS), 0);
        let last = hidden.index_select(0, &Tensor::from_slice(&ends).to_device(hidden.device()));
        let logits = self.model.logits(&last).narrow(0, 0, begun.len() as i64);
        let mut drawn: Vec<(usize, Slot)> = begun
            .iter()
            .map(|(slot, number, prompt)| {
                let random = StdRng::seed_from_u64(prompt.stream);
                let position = prompt.ids.len() as i64 - 1;
                (*slot, Slot { number: *number, token: 0, position, random })
            })
            .collect();
        self.draw(&logits, drawn.iter_mut().map(|(_, slot)| slot))?
            .into_iter()
            .zip(drawn)
            .for_each(|(goes_on, (at, slot))| self.slots[at] = goes_on.then_some(slot));
        Ok(true)
    }

    /// Reads the last token of every slot and draws the next one.
    fn step(&mut self) -> Result<(), EngineError> {
        let (model, device) = (self.model, self.model.device());
        // What an empty slot computes is thrown away.
        let of = |get: fn(&Slot) -> i64| {
            let mut all: Vec<i64> = self.slots.iter().map(|s| s.as_ref().map_or(0, get)).collect();
            all.resize(all.len().max(LEAST_ROWS), 0);
            Tensor::from_slice(&all).to_device(device)
        };
        let (ids, positions) = (of(|slot| i64::from(slot.token)), of(|slot| slot.position));
        let furthest = self.slots.iter().flatten().map(|slot| slot.position).max().unwrap_or(0);
        let seen = (furthest + BUCKET) / BUCKET * BUCKET;
        let logits = decode(model, &mut self.cache, (&ids, &positions), seen);
        let mut slots = std::mem::take(&mut self.slots);
        let busy: Vec<i64> =
            (0..slots.len() as i64).filter(|&at| slots[at as usize].is_some()).collect();
        let logits = logits.index_select(0, &Tensor::from_slice(&busy).to_device(device));
        let goes_on = self.draw(&logits, slots.iter_mut().flatten());
        self.slots = slots;
        for (at, goes_on) in busy.into_iter().zip(goes_on?) {
            if !goes_on {
                self.slots[at as usize] = None;
            }
        }
        Ok(())
    }

    /// Draws a token for each slot, notes it, and says which slots go on. `logits`: `[slots, vocabulary]`.
    fn draw<'s>(
        &mut self,
        logits: &Tensor,
        slots: impl Iterator<Item = &'s mut Slot>,
    ) -> Result<Vec<bool>, EngineError> {
        let mut slots: Vec<&mut Slot> = slots.collect();
        let chances: Vec<f32> = slots.iter_mut().map(|slot| slot.random.random()).collect();
        let (ids, logprobs) = choose(logits, self.sampling, &chances);
        let ids: Vec<i64> = Vec::try_from(ids)?;
        let logprobs: Vec<f32> = Vec::try_from(logprobs)?;
        let mut goes_on = Vec::new();
        for ((slot, id), logprob) in slots.iter_mut().zip(ids).zip(logprobs) {
            let sampled = &mut self.done[slot.number];
            (slot.token, slot.position) = (id as u32, slot.position + 1);
            sampled.ids.push(slot.token);
            sampled.logprobs.push(logprob);
            sampled.is_complete = self.sampling.stop.contains(&slot.token);
            let room =
                sampled.ids.len() < self.sampling.most as usize && slot.position + 1 < self.longest;
            goes_on.push(room && !sampled.is_complete);
        }
        Ok(goes_on)
    }
}

/// One token of every row: `[rows, vocabulary]`. Attends to the first `seen` positions.
fn decode(
    model: &Model,
    cache: &mut Cache,
    (ids, positions): (&Tensor, &Tensor),
    seen: i64,
) -> Tensor {
    let rows = ids.size()[0];
    let (groups, width) = (model.config.num_key_value_heads, model.config.head_dim);
    let at = model.angles_of(positions);
    let place = positions.view([rows, 1, 1, 1]).expand([rows, groups, 1, width], false);
    let mask = cache.numbers.narrow(0, 0, seen).le_tensor(&positions.unsqueeze(1));
    let mask = mask.view([rows, 1, 1, seen]);
    let mut stream = model.embedded(ids);
    for (number, layer) in model.weights.layers.iter().enumerate() {
        let (q, k, v) = model.attended(layer, &stream, &at);
        let _ = cache.keys[number].scatter_(2, &place, &k.unsqueeze(2));
        let _ = cache.values[number].scatter_(2, &place, &v.unsqueeze(2));
        let out = Tensor::scaled_dot_product_attention(
            &q.unsqueeze(2),
            &cache.keys[number].narrow(2, 0, seen),
            &cache.values[number].narrow(2, 0, seen),
            Some(&mask),
            0.0,
            false,
            None,
            model.config.num_attention_heads != groups,
        );
        stream = model.rest(layer, &stream, &out);
    }
    model.logits(&model.norm(&stream, &model.weights.norm))
}

/// Draws from each row, given a number between 0 and 1 for each: the first token up to which the
/// probabilities add up to more. Ids, and the logarithm of the probability of each.
fn choose(logits: &Tensor, sampling: &Sampling, chances: &[f32]) -> (Tensor, Tensor) {
    if sampling.temperature == 0.0 {
        let ids = logits.argmax(-1, false);
        let sure = Tensor::zeros(ids.size(), (Kind::Float, ids.device()));
        return (ids, sure);
    }
    let mut logprobs = (logits / sampling.temperature).log_softmax(-1, Kind::Float);
    if sampling.top_p < 1.0 {
        let (sorted, order) = logprobs.sort(-1, true);
        let before = sorted.exp().cumsum(-1, Kind::Float) - sorted.exp();
        let cut = before.ge(sampling.top_p);
        let cut = cut.scatter(-1, &order, &cut);
        logprobs = logprobs.masked_fill(&cut, f64::NEG_INFINITY).log_softmax(-1, Kind::Float);
    }
    // In double: a vocabulary of 150,000 adds up to 1 within what float32 rounds a rare token to.
    let sums = logprobs.to_kind(Kind::Double).exp().cumsum(-1, Kind::Double);
    let whole = sums.narrow(-1, -1, 1);
    let chances = Tensor::from_slice(chances).to_device(logits.device()).to_kind(Kind::Double);
    let wanted = chances.unsqueeze(1) * whole;
    let last = logits.size()[1] - 1;
    let ids = sums.le_tensor(&wanted).to_kind(Kind::Int64).sum_dim_intlist(-1, false, Kind::Int64);
    let ids = ids.clamp_max(last);
    let picked = logprobs.gather(-1, &ids.unsqueeze(-1), false).squeeze_dim(-1);
    (ids, picked)
}
