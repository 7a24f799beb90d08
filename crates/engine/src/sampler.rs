//! Draws tokens: many sequences at once, each in a slot that the next takes when it is over. Who comes while
//! others are drawn joins them.
//!
//! Keys and values of what was read are kept (`decoder.rs`), so that a token costs one position. Each
//! sequence has a stream of random numbers of its own: what is drawn for a prompt does not depend on which
//! others are drawn beside it. On the host not even by rounding, so that a run that goes on does what it
//! would have done.
//!
//! A token's log-probability is that under which it was drawn. The forward pass is the trainer's
//! (`model.rs`), with weights in the same types. Where the policy moves meanwhile, what sequences have is read again
//! by its new weights: the next token's odds are the new policy's, as if it had been given all that.

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

/// Most bytes of keys, values and copied weights that are kept from one batch to the next: they are not
/// there for training.
const KEPT: u64 = 8 << 30;

/// What is drawn with.
pub(crate) struct Source<'a> {
    /// The policy.
    pub(crate) model: &'a Model,
    /// Weights of its shape.
    pub(crate) weights: &'a Weights,
    /// Most sequences at once.
    pub(crate) max_num_seqs: usize,
    /// Tokens of each that are drawn before the host reads them, at most.
    pub(crate) unread: u32,
    /// Whether steps are recorded as CUDA graphs.
    pub(crate) cuda_graphs: bool,
    /// When the policy has moved, tokens that are read again in one pass; of a single sequence more.
    pub(crate) max_token_len: usize,
}

impl Source<'_> {
    /// Room for so many, of at most so many tokens.
    fn room(&self, rows: usize, longest: i64, is_tight: bool) -> Room {
        let rows = rows.clamp(1, self.max_num_seqs.max(1));
        if is_tight || !self.model.device().is_cuda() {
            Room::of(rows, longest)
        } else {
            Room::ample(rows, longest, self.model)
        }
    }
}

/// What is drawn, and what waits to be.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    waiting: VecDeque<SampleRequest>,
    /// What is drawn together. Those that are to be drawn in another manner wait until it is over, and those
    /// who came after them.
    batch: Option<Batch>,
    /// What drew the last one on a GPU, with its graphs.
    kept: Option<Decoder>,
    /// Memory has been short: no more is taken than is asked for.
    is_tight: bool,
    /// The policy has moved since the batch read what it has.
    is_stale: bool,
}

impl Drawing {
    /// The policy has moved: those under way are gone on with by what it is now.
    pub(crate) fn policy_moved(&mut self) {
        self.is_stale = self.batch.is_some();
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() + self.batch.as_ref().map_or(0, Batch::busy)
    }

    /// Has them wait; what cannot be drawn is over.
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

    /// Draws so many tokens of each at most; adds those that are over.
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

    /// A batch, where there is none, and one that is large enough for those who may join it.
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
            // Where rows are too few, twice as many: more may come.
            let more = if needed(rows).rows > room.rows { 2 * room.rows } else { 0 };
            batch.resize(source, room.with(needed(rows.max(more))));
        } else if !source.model.device().is_cuda()
            && rows <= room.rows / 4
            && room.rows > LEAST_ROWS
        {
            // In products the host pays for rows that nobody is in.
            batch.resize(source, Room { rows: (2 * rows).max(LEAST_ROWS), ..room });
        }
    }

    fn begin(&mut self, source: &Source<'_>) -> Option<Batch> {
        let first = self.waiting.front()?.sampling.clone();
        let alike =
            || self.waiting.iter().take_while(|one| manner(&one.sampling) == manner(&first));
        let longest = alike().map(|one| longest(source.model, one)).max()?;
        let room = source.room(alike().count(), longest, self.is_tight);
        let kept = self.kept.take().filter(|kept| kept.serves(room, &first));
        let decoder = if let Some(mut kept) = kept {
            kept.begin_anew(source.weights);
            kept
        } else {
            Decoder::new(source.model, source.weights, room, &first, source.cuda_graphs)
        };
        Some(Batch::new(decoder, source))
    }

    /// Begins everything anew that is under way, and gives up what the decoder has. The same will be drawn,
    /// if the policy has not moved since.
    pub(crate) fn begin_again(&mut self) {
        let slots = self.batch.take().into_iter().flat_map(|batch| batch.slots);
        for slot in slots.flatten() {
            self.waiting.push_front(slot.request);
        }
        self.kept = None;
    }

    /// Memory is short: from now on no more is taken than is asked for.
    pub(crate) fn take_less(&mut self) {
        self.is_tight = true;
    }
}

/// What is wrong with a request, if anything is.
fn check(
    model: &Model,
    SampleRequest { prompt, sampling, .. }: &SampleRequest,
) -> Result<(), String> {
    let Sampling { temperature, top_p, .. } = *sampling;
    if !(temperature >= 0.0 && temperature.is_finite() && top_p > 0.0 && top_p <= 1.0) {
        return Err(format!("temperature {temperature} or top_p {top_p} makes no sense"));
    }
    let (words, most) = (model.config.vocab_size, model.config.max_position_embeddings);
    if let Some(id) = prompt.ids.iter().find(|id| i64::from(**id) >= words) {
        return Err(format!("a prompt has token {id} of a vocabulary of {words}"));
    }
    if prompt.ids.is_empty() || prompt.ids.len() as i64 >= most {
        let length = prompt.ids.len();
        return Err(format!("a prompt has {length} tokens; 1 to {} leave room", most - 1));
    }
    Ok(())
}

/// Positions that it can need.
fn longest(model: &Model, request: &SampleRequest) -> i64 {
    let wanted = request.prompt.ids.len() as i64 + i64::from(request.sampling.max_new_tokens);
    wanted.min(model.config.max_position_embeddings)
}

/// A sequence that is being drawn.
#[derive(Debug)]
struct Slot {
    request: SampleRequest,
    sampled: Sampled,
    /// The last token, which was not read yet.
    token: u32,
    /// Where that stands.
    position: i64,
    random: StdRng,
}

impl Slot {
    /// All tokens that were read.
    fn read(&self) -> Vec<u32> {
        let all = self.request.prompt.ids.iter().chain(&self.sampled.ids);
        all.take(self.position as usize).copied().collect()
    }

    /// Tokens that it has room for; the last of them is not read.
    fn left(&self, model: &Model) -> u32 {
        let wanted = self.request.sampling.max_new_tokens - self.sampled.ids.len() as u32;
        let room = model.config.max_position_embeddings - 1 - self.position;
        wanted.min(u32::try_from(room).unwrap_or(0))
    }
}

/// What is drawn together.
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

    /// How many are drawn.
    fn busy(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Moves to another room, which has a row for each that is drawn. Where that fails, nothing was moved.
    fn resize(&mut self, source: &Source<'_>, room: Room) {
        let is_busy = |row: &usize| self.slots[*row].is_some();
        let rows: Vec<usize> = (0..self.slots.len()).filter(is_busy).collect();
        let mut resized = Self::new(self.decoder.resized(room, &rows), source);
        for (row, free) in rows.into_iter().zip(&mut resized.slots) {
            *free = self.slots[row].take();
        }
        *self = resized;
    }

    /// Gives free slots to those who wait, as far as they fit: reads their prompts, all in one pass, and draws
    /// their first token.
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
        // Until here a failure has them wait as before.
        let rows: Vec<usize> = begun.iter().map(|(slot, _)| *slot).collect();
        let begun = waiting.drain(..rows.len()).zip(streams).zip(drawn);
        for (at, ((request, random), drawn)) in rows.into_iter().zip(begun) {
            let position = request.prompt.ids.len() as i64 - 1;
            let slot = Slot { request, sampled: Sampled::default(), token: 0, position, random };
            self.slots[at] = note(self.decoder.model(), slot, drawn, over);
        }
        Ok(())
    }

    /// Reads sequences from their beginning on, in one pass, and keeps what steps need of them. What their tokens have
    /// become, behind each other.
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

    /// Reads all that sequences have by the weights as they are now.
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

    /// Reads the last token of every slot, draws the next one, and so on, at most so many and none beyond what a
    /// sequence has room for. What an empty slot computes is thrown away, and what a sequence does after its end.
    /// Gives how many were drawn.
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

/// Notes what was drawn for a slot, which stays busy if more is to come.
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
