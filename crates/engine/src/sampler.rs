//! Samples many sequences at once, each in a slot that is reused when the sequence ends. New
//! requests join a running batch.
//!
//! The decoder caches keys and values (`decoder.rs`), so that a token costs one position. Each
//! sequence has a random stream of its own: the tokens of a prompt do not depend on the other
//! sequences of the batch. On the host not even rounding depends on them, so that a resumed run
//! equals an uninterrupted one.
//!
//! A token's log-probability is that of the distribution it was sampled from. The forward pass is
//! the trainer's (`model.rs`), with weights in the same types. If the policy's weights are updated
//! meanwhile, the new weights read the running sequences again: the next token is sampled from the
//! new policy, as if it had been given the tokens so far.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tch::Tensor;
use warpwright_learn::engine::{Completion, Refusal, SampleRequest, Sampled, Sampling};

use crate::chances::Drawn;
use crate::decoder::{Decoder, Given, LEAST_ROWS, Room, manner};
use crate::error::EngineError;
use crate::model::{Model, Packed};
use crate::weights::Weights;

/// Limit on the bytes of keys, values and copied weights that are kept between batches, where
/// training cannot use them.
const KEPT: u64 = 8 << 30;

/// The model and settings to sample with.
pub(crate) struct Source<'a> {
    /// The policy.
    pub(crate) model: &'a Model,
    /// Weights of its shape; the sampler's may differ from the trainer's.
    pub(crate) weights: &'a Weights,
    /// Limit on the sequences sampled at once.
    pub(crate) max_num_seqs: usize,
    /// Limit on the tokens per sequence that are sampled before the host reads them.
    pub(crate) unread: u32,
    /// Whether steps are recorded as CUDA graphs.
    pub(crate) cuda_graphs: bool,
    /// After a weight update, tokens that are read again in one pass; more for a single longer
    /// sequence.
    pub(crate) max_token_len: usize,
}

impl Source<'_> {
    /// Room for `rows` sequences of at most `longest` tokens.
    fn room(&self, rows: usize, longest: i64, is_tight: bool) -> Room {
        let rows = rows.clamp(1, self.max_num_seqs.max(1));
        if is_tight || !self.model.device().is_cuda() {
            Room::of(rows, longest)
        } else {
            Room::ample(rows, longest, self.model)
        }
    }
}

/// Running and waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    waiting: VecDeque<SampleRequest>,
    /// The running batch. Requests with other sampling parameters wait until it is over, and so do
    /// later ones.
    batch: Option<Batch>,
    /// The last decoder on a GPU, with its graphs.
    kept: Option<Decoder>,
    /// The device has run out of memory: no more is allocated than requested.
    is_tight: bool,
    /// The policy's weights were updated since the batch was read.
    is_stale: bool,
}

impl Drawing {
    /// The policy's weights were updated: running sequences continue under the new ones.
    pub(crate) fn policy_moved(&mut self) {
        self.is_stale = self.batch.is_some();
    }

    /// Number of running and waiting requests.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() + self.batch.as_ref().map_or(0, Batch::busy)
    }

    /// Queues requests; invalid ones complete with a refusal.
    pub(crate) fn take_on(
        &mut self,
        model: &Model,
        requests: Vec<SampleRequest>,
        over: &mut Vec<Completion>,
    ) {
        for request in requests {
            let ticket = request.ticket;
            match check(model, &request) {
                Err(message) => {
                    let refusal = Refusal { is_memory: false, message };
                    over.push(Completion { ticket, sampled: Err(refusal) });
                }
                Ok(()) if request.sampling.max_new_tokens == 0 => {
                    over.push(Completion { ticket, sampled: Ok(Sampled::default()) });
                }
                Ok(()) => self.waiting.push_back(request),
            }
        }
    }

    /// Samples at most `steps` tokens of each sequence; appends completed requests to `over`.
    pub(crate) fn draw(
        &mut self,
        source: &Source<'_>,
        steps: u32,
        over: &mut Vec<Completion>,
    ) -> Result<(), EngineError> {
        let _no_grad = tch::no_grad_guard();
        if std::mem::take(&mut self.is_stale) {
            self.batch.as_mut().map_or(Ok(()), |batch| batch.read_again(source))?;
        }
        let mut left = steps;
        while left > 0 {
            self.make_room(source);
            let Some(batch) = &mut self.batch else { break };
            batch.fill(&mut self.waiting, over)?;
            left -= if batch.busy() > 0 { batch.step(left.min(source.unread), over)? } else { 1 };
            if batch.busy() == 0 {
                let decoder = self.batch.take().map(|batch| batch.decoder);
                let worth_it = |kept: &Decoder| source.cuda_graphs && kept.bytes() <= KEPT;
                self.kept = decoder.filter(worth_it);
            }
        }
        Ok(())
    }

    /// Creates a batch if there is none, large enough for those that may join it.
    fn make_room(&mut self, source: &Source<'_>) {
        let Some(batch) = &mut self.batch else {
            self.batch = self.begin(source);
            return;
        };
        let decoder = &batch.decoder;
        let joining = || self.waiting.iter().take_while(|one| decoder.is_for(&one.sampling));
        let room = decoder.room();
        let rows = batch.busy() + joining().count();
        let longest = joining().map(|one| longest(source.model, one)).max().unwrap_or(1);
        let needed = |rows| source.room(rows, longest, self.is_tight);
        if !room.holds(needed(rows)) {
            // With too few rows it doubles, since more may join.
            let more = if needed(rows).rows > room.rows { 2 * room.rows } else { 0 };
            batch.resize(source, room.with(needed(rows.max(more))));
        } else if !source.model.device().is_cuda()
            && rows <= room.rows / 4
            && room.rows > LEAST_ROWS
        {
            // On the host, products cost time for unused rows too.
            batch.resize(source, Room { rows: (2 * rows).max(LEAST_ROWS), ..room });
        }
    }

    fn begin(&mut self, source: &Source<'_>) -> Option<Batch> {
        let first = self.waiting.front()?.sampling.clone();
        let compatible =
            || self.waiting.iter().take_while(|one| manner(&one.sampling) == manner(&first));
        let longest = compatible().map(|one| longest(source.model, one)).max()?;
        let room = source.room(compatible().count(), longest, self.is_tight);
        let kept = self.kept.take().filter(|kept| kept.serves(room, &first));
        let decoder = if let Some(mut kept) = kept {
            kept.begin_anew(source.weights);
            kept
        } else {
            Decoder::new(source.model, source.weights, room, &first, source.cuda_graphs)
        };
        Some(Batch::new(decoder, source))
    }

    /// Restarts all running requests and drops the decoder. The same tokens will be sampled, unless
    /// the policy's weights were updated.
    pub(crate) fn begin_again(&mut self) {
        let slots = self.batch.take().into_iter().flat_map(|batch| batch.slots);
        for slot in slots.flatten() {
            self.waiting.push_front(slot.request);
        }
        self.kept = None;
    }

    /// The device has run out of memory: from now on no more is allocated than requested.
    pub(crate) fn take_less(&mut self) {
        self.is_tight = true;
    }
}

/// The fault of a request, if any.
fn check(
    model: &Model,
    SampleRequest { prompt, sampling, .. }: &SampleRequest,
) -> Result<(), String> {
    let Sampling { temperature, top_p, .. } = *sampling;
    if !(temperature >= 0.0 && temperature.is_finite() && top_p > 0.0 && top_p <= 1.0) {
        return Err(format!("temperature {temperature} or top_p {top_p} is out of range"));
    }
    let (words, most) = (model.config.vocab_size, model.config.max_position_embeddings);
    if let Some(id) = prompt.ids.iter().find(|id| i64::from(**id) >= words) {
        return Err(format!("token {id} of a prompt is not in the vocabulary of {words}"));
    }
    if prompt.ids.is_empty() || prompt.ids.len() as i64 >= most {
        let length = prompt.ids.len();
        return Err(format!("a prompt has {length} tokens; it must have 1 to {}", most - 1));
    }
    Ok(())
}

/// Positions that it needs at most.
fn longest(model: &Model, request: &SampleRequest) -> i64 {
    let wanted = request.prompt.ids.len() as i64 + i64::from(request.sampling.max_new_tokens);
    wanted.min(model.config.max_position_embeddings)
}

/// A running sequence.
#[derive(Debug)]
struct Slot {
    request: SampleRequest,
    sampled: Sampled,
    /// Its last token, not read yet.
    token: u32,
    /// That token's position.
    position: i64,
    random: StdRng,
}

impl Slot {
    /// All tokens that were read.
    fn read(&self) -> Vec<u32> {
        let all = self.request.prompt.ids.iter().chain(&self.sampled.ids);
        all.take(self.position as usize).copied().collect()
    }

    /// Number of tokens that it has room for; the last of them is not read.
    fn left(&self, model: &Model) -> u32 {
        let wanted = self.request.sampling.max_new_tokens - self.sampled.ids.len() as u32;
        let room = model.config.max_position_embeddings - 1 - self.position;
        wanted.min(u32::try_from(room).unwrap_or(0))
    }
}

/// Sequences that are sampled together.
#[derive(Debug)]
struct Batch {
    decoder: Decoder,
    /// At most as many as the decoder has rows.
    slots: Vec<Option<Slot>>,
}

impl Batch {
    fn new(decoder: Decoder, source: &Source<'_>) -> Self {
        let count = decoder.room().rows.min(source.max_num_seqs.max(1));
        Self { decoder, slots: (0..count).map(|_| None).collect() }
    }

    /// Number of running sequences.
    fn busy(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Changes the decoder's size, keeping a row for each running sequence. If that fails, nothing
    /// has changed.
    fn resize(&mut self, source: &Source<'_>, room: Room) {
        let is_busy = |row: &usize| self.slots[*row].is_some();
        let rows: Vec<usize> = (0..self.slots.len()).filter(is_busy).collect();
        let mut resized = Self::new(self.decoder.resized(room, &rows), source);
        for (row, free) in rows.into_iter().zip(&mut resized.slots) {
            *free = self.slots[row].take();
        }
        *self = resized;
    }

    /// Assigns free slots to waiting requests, as far as they fit: reads their prompts in one
    /// prefill and samples their first tokens.
    fn fill(
        &mut self,
        waiting: &mut VecDeque<SampleRequest>,
        over: &mut Vec<Completion>,
    ) -> Result<(), EngineError> {
        let model = self.decoder.model();
        let fits = |one: &&SampleRequest| {
            let room = Room::of(1, longest(model, one));
            self.decoder.is_for(&one.sampling) && self.decoder.room().positions >= room.positions
        };
        let free = (0..self.slots.len()).filter(|slot| self.slots[*slot].is_none());
        let begun: Vec<(usize, &SampleRequest)> =
            free.zip(waiting.iter().take_while(fits)).collect();
        if begun.is_empty() {
            return Ok(());
        }
        let read: Vec<(usize, &[u32])> =
            begun.iter().map(|(slot, one)| (*slot, one.prompt.ids.as_slice())).collect();
        let hidden = self.read(&read)?;
        let mut ends: Vec<i64> = begun
            .iter()
            .scan(0, |end, (_, one)| {
                *end += one.prompt.ids.len() as i64;
                Some(*end - 1)
            })
            .collect();
        ends.resize(ends.len().max(LEAST_ROWS), 0);
        let last = hidden.index_select(0, &Tensor::from_slice(&ends).to_device(hidden.device()));
        let logits = model.logits(&last);
        let mut streams: Vec<StdRng> =
            begun.iter().map(|(_, one)| StdRng::seed_from_u64(one.prompt.stream)).collect();
        let chances: Vec<f32> = streams.iter_mut().map(RngExt::random).collect();
        let drawn = self.decoder.draw(&logits, &chances)?;
        // A failure before this point leaves them waiting.
        let rows: Vec<usize> = begun.iter().map(|(slot, _)| *slot).collect();
        let begun = waiting.drain(..rows.len()).zip(streams).zip(drawn);
        for (at, ((request, random), drawn)) in rows.into_iter().zip(begun) {
            let position = request.prompt.ids.len() as i64 - 1;
            let slot = Slot { request, sampled: Sampled::default(), token: 0, position, random };
            self.slots[at] = note(self.decoder.model(), slot, drawn, over);
        }
        Ok(())
    }

    /// Prefill: reads sequences from their beginning in one pass and caches their keys and values.
    /// Returns the hidden states, concatenated.
    fn read(&self, sequences: &[(usize, &[u32])]) -> Result<Tensor, EngineError> {
        let model = self.decoder.model();
        let filler = [0; LEAST_ROWS];
        let read = sequences.iter().map(|(_, ids)| *ids);
        let packed = Packed::new(read.chain([&filler[..]]), model.device());
        model.hidden_seeing(&packed, |block, keys, values| {
            let mut from = 0;
            for (slot, ids) in sequences {
                let length = ids.len() as i64;
                let part = |all: &Tensor| all.narrow(0, from, length);
                self.decoder.keep(block, *slot, &part(keys), &part(values));
                from += length;
            }
        })
    }

    /// Reads all running sequences again with the current weights.
    fn read_again(&mut self, source: &Source<'_>) -> Result<(), EngineError> {
        self.decoder.begin_anew(source.weights);
        let slots = self.slots.iter().enumerate();
        let of = |(at, slot): (usize, &Option<Slot>)| Some((at, slot.as_ref()?.read()));
        let all: Vec<(usize, Vec<u32>)> = slots.filter_map(of).collect();
        let mut left = &all[..];
        while !left.is_empty() {
            let mut tokens = 0;
            let fits = |(_, ids): &&(usize, Vec<u32>)| {
                tokens += ids.len();
                tokens <= source.max_token_len
            };
            let count = left.iter().take_while(fits).count().max(1);
            let (now, later) = left.split_at(count);
            let now: Vec<(usize, &[u32])> = now.iter().map(|(at, ids)| (*at, &ids[..])).collect();
            drop(self.read(&now)?);
            left = later;
        }
        Ok(())
    }

    /// Takes up to `most` decoding steps, none beyond a sequence's room. Results of empty slots and
    /// tokens after end-of-sequence are discarded. Returns the number of steps.
    fn step(&mut self, most: u32, over: &mut Vec<Completion>) -> Result<u32, EngineError> {
        let left = self.slots.iter().flatten().map(|slot| slot.left(self.decoder.model()));
        let count = left.chain([most]).min().unwrap_or(1).max(1);
        let given = |slot: &Option<Slot>| {
            slot.as_ref().map(|slot| Given { token: slot.token, position: slot.position })
        };
        let given: Vec<Option<Given>> = self.slots.iter().map(given).collect();
        let slots = &mut self.slots;
        let mut chance = |at: usize| slots[at].as_mut().map_or(0.0, |slot| slot.random.random());
        let chances: Vec<Vec<f32>> =
            (0..count).map(|_| (0..given.len()).map(&mut chance).collect()).collect();
        for drawn in self.decoder.steps(&given, &chances)? {
            for (at, drawn) in drawn.into_iter().enumerate() {
                if let Some(slot) = self.slots[at].take() {
                    self.slots[at] = note(self.decoder.model(), slot, drawn, over);
                }
            }
        }
        Ok(count)
    }
}

/// Appends sampled tokens to a slot, which stays busy if more are to come.
fn note(
    model: &Model,
    mut slot: Slot,
    (id, logprob): Drawn,
    over: &mut Vec<Completion>,
) -> Option<Slot> {
    (slot.token, slot.position) = (id, slot.position + 1);
    let sampled = &mut slot.sampled;
    sampled.ids.push(id);
    sampled.logprobs.push(logprob);
    sampled.is_complete = slot.request.sampling.stop.contains(&id);
    if slot.left(model) > 0 && !slot.sampled.is_complete {
        return Some(slot);
    }
    over.push(Completion { ticket: slot.request.ticket, sampled: Ok(slot.sampled) });
    None
}
