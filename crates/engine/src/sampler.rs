//! Draws tokens: many sequences at once, each in a slot that is filled again when it is done.
//!
//! Keys and values of what was read are kept (`decoder.rs`), so that a token costs one position. Each
//! sequence has a stream of random numbers of its own: what is drawn for a prompt does not depend on which
//! others are drawn beside it. On the host not even by rounding, so that a run that goes on does what it
//! would have done.
//!
//! A token's log-probability is that under which it was drawn. The forward pass is the trainer's
//! (`model.rs`), with weights in the same types.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tch::Tensor;
use warpwright_learn::engine::{Prompt, Sampled, Sampling};

use crate::decoder::{Decoder, Drawn, Given, LEAST_ROWS, Room};
use crate::error::EngineError;
use crate::model::{Model, Packed};

/// Sequences that are drawn at once, and tokens that any of them can have; or what is wrong with prompts.
pub(crate) fn wanted(
    model: &Model,
    prompts: &[Prompt],
    sampling: &Sampling,
    at_once: usize,
) -> Result<Wanted, EngineError> {
    check(model, prompts, sampling)?;
    let slots = at_once.clamp(1, prompts.len().max(1));
    Ok(Wanted { slots, longest: longest(model, prompts, sampling) })
}

/// How much is to be drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    slots: usize,
    longest: i64,
}

impl Wanted {
    /// The decoder that it takes.
    pub(crate) fn room(self) -> Room {
        Room::of(self.slots, self.longest)
    }
}

/// Draws after each prompt, in the prompts' order, with a decoder of that room which has read nothing.
pub(crate) fn sample(
    decoder: &mut Decoder,
    prompts: &[Prompt],
    sampling: &Sampling,
    Wanted { slots, longest }: Wanted,
) -> Result<Vec<Sampled>, EngineError> {
    let _no_grad = tch::no_grad_guard();
    let mut sampler = Sampler {
        decoder,
        sampling,
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

struct Sampler<'a> {
    decoder: &'a mut Decoder,
    sampling: &'a Sampling,
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
        let model = self.decoder.model();
        let filler = [0; LEAST_ROWS];
        let read = begun.iter().map(|(_, _, p)| p.ids.as_slice());
        let packed = Packed::new(read.chain([&filler[..]]), model.device());
        let hidden = model.hidden_seeing(&packed, |block, keys, values| {
            let mut from = 0;
            for (slot, _, prompt) in &begun {
                let length = prompt.ids.len() as i64;
                let part = |all: &Tensor| all.narrow(0, from, length);
                self.decoder.keep(block, *slot, &part(keys), &part(values));
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
        let logits = model.logits(&last);
        let begin = |(slot, number, prompt): &(usize, usize, &Prompt)| {
            let random = StdRng::seed_from_u64(prompt.stream);
            let position = prompt.ids.len() as i64 - 1;
            (*slot, Slot { number: *number, token: 0, position, random })
        };
        let mut begun: Vec<(usize, Slot)> = begun.iter().map(begin).collect();
        let chances: Vec<f32> = begun.iter_mut().map(|(_, slot)| slot.random.random()).collect();
        let drawn = self.decoder.draw(&logits, &chances)?;
        for ((at, slot), drawn) in begun.into_iter().zip(drawn) {
            self.slots[at] = self.note(slot, drawn);
        }
        Ok(true)
    }

    /// Reads the last token of every slot and draws the next one. What an empty slot computes is thrown away.
    fn step(&mut self) -> Result<(), EngineError> {
        let given = |slot: &mut Option<Slot>| {
            slot.as_mut().map_or_else(Given::default, |slot| Given {
                token: slot.token,
                position: slot.position,
                chance: slot.random.random(),
            })
        };
        let given: Vec<Given> = self.slots.iter_mut().map(given).collect();
        let drawn = self.decoder.step(&given)?;
        for (at, drawn) in drawn.into_iter().enumerate() {
            if let Some(slot) = self.slots[at].take() {
                self.slots[at] = self.note(slot, drawn);
            }
        }
        Ok(())
    }

    /// Notes what was drawn for a slot, which stays busy if more is to come.
    fn note(&mut self, mut slot: Slot, (id, logprob): Drawn) -> Option<Slot> {
        let sampled = &mut self.done[slot.number];
        (slot.token, slot.position) = (id, slot.position + 1);
        sampled.ids.push(id);
        sampled.logprobs.push(logprob);
        sampled.is_complete = self.sampling.stop.contains(&id);
        let room =
            sampled.ids.len() < self.sampling.most as usize && slot.position + 1 < self.longest;
        (room && !sampled.is_complete).then_some(slot)
    }
}
