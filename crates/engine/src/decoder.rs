//! Decoding with a KV cache: each step reads one more token of every sequence and samples the next.
//!
//! A step consists of some hundred short kernels, which a GPU executes faster than the host can
//! launch them. On a GPU a step is therefore recorded as a CUDA graph and replayed by one call.
//! There is one graph if attention covers exactly each sequence's tokens, else one per attended
//! length. The graphs' tensors stay at their addresses between calls of the engine: new weights are
//! copied into them.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};
use warpwright_learn::engine::Sampling;

use crate::chances::{Drawn, choose, read};
use crate::error::EngineError;
use crate::model::{Model, Places};
use crate::shim::{self, Graph};
use crate::weights::Weights;

use self::room::rounded;
pub(crate) use self::room::{LEAST_ROWS, Room};

mod room;

/// A sequence's input of a step; zeros in an unused row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    /// Its last token, not read yet.
    pub(crate) token: u32,
    /// That token's position.
    pub(crate) position: i64,
}

/// Sampling parameters shared by all sequences of a step: temperature and `top_p`.
pub(crate) fn manner(sampling: &Sampling) -> (f64, f64) {
    (sampling.temperature, sampling.top_p)
}

/// The extent of a step.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Attended positions.
    seen: i64,
    /// Rows that attend and sample: on the host those up to the last used row. Matrix products use
    /// all rows: see [`LEAST_ROWS`].
    rows: i64,
}

/// A model with its KV cache, for decoding.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Its matrices have the compute type, so that they are cast once and not per token.
    model: Model,
    /// Per block: [`Model::head_norms`].
    head_norms: Vec<Tensor>,
    room: Room,
    /// Per block: `[rows, positions, groups, width]`, or with groups first, by [`Reach`].
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
    reach: Reach,
    /// Tokens, positions and random numbers of all rows: `[3, rows]`, float64, which represents all
    /// exactly.
    given: Tensor,
    /// Temperature and `top_p`.
    how: (f64, f64),
    steps: Steps,
}

/// The attention of a step.
#[derive(Debug)]
enum Reach {
    /// Attends to the same number of positions in every row, with a mask: 0, 1, 2, ...:
    /// `[positions]`. A group's keys are contiguous: else the host would copy all of them per
    /// token.
    Masked(Tensor),
    /// Attends to each row's own tokens: flash attention, as the trainer's on a GPU in half
    /// precision. Offsets of rows among queries and in the cache: int32, `[rows + 1]` each.
    Own(Tensor, Tensor),
}

impl Reach {
    /// The dimension of keys that is positions.
    fn along(&self) -> i64 {
        match self {
            Self::Masked(_) => 2,
            Self::Own(..) => 1,
        }
    }
}

/// How steps are executed.
#[derive(Debug)]
enum Steps {
    /// Eagerly.
    Anew,
    /// By CUDA graphs, keyed by the number of attended positions. A step runs eagerly once, which
    /// initialises lazily created state, and is then recorded.
    Recorded(BTreeMap<i64, Option<(Graph, Tensor)>>),
}

impl Decoder {
    /// A decoder that samples with `weights`, which have the model's shape.
    pub(crate) fn new(
        model: &Model,
        weights: &Weights,
        room: Room,
        sampling: &Sampling,
        graphs: bool,
    ) -> Self {
        let weights = weights.drawing(model.compute);
        // Graphs need tensors at fixed addresses.
        let weights = if graphs { weights.map(Tensor::copy) } else { weights };
        Self::with_model(model.with(weights), room, manner(sampling), graphs)
    }

    fn with_model(model: Model, room: Room, how: (f64, f64), graphs: bool) -> Self {
        let device = model.device();
        let (groups, width) = (model.config.num_key_value_heads, model.config.head_dim);
        let rows = room.rows as i64;
        let reach = if device.is_cuda() && model.compute != Kind::Float {
            let count = Tensor::arange(rows + 1, (Kind::Int, device));
            let kept = &count * room.positions;
            Reach::Own(count, kept)
        } else {
            Reach::Masked(Tensor::arange(room.positions, (Kind::Int64, device)))
        };
        let size = match &reach {
            Reach::Masked(_) => [rows, groups, room.positions, width],
            Reach::Own(..) => [rows, room.positions, groups, width],
        };
        let cache = || {
            let zeros = |_| Tensor::zeros(size, (model.compute, device));
            (0..model.config.num_hidden_layers).map(zeros).collect()
        };
        Self {
            keys: cache(),
            values: cache(),
            reach,
            given: Tensor::zeros([3, room.rows as i64], (Kind::Double, device)),
            head_norms: model.head_norms(),
            model,
            room,
            how,
            steps: if graphs { Steps::Recorded(BTreeMap::new()) } else { Steps::Anew },
        }
    }

    /// A decoder of another size with the same weights; its first rows take over the cache of
    /// `rows`. Graphs are recorded anew.
    pub(crate) fn resized(&self, room: Room, rows: &[usize]) -> Self {
        let model = self.model.with(self.model.weights.map(Tensor::shallow_clone));
        let graphs = matches!(self.steps, Steps::Recorded(_));
        let resized = Self::with_model(model, room, self.how, graphs);
        let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let which = Tensor::from_slice(&rows).to_device(resized.model.device());
        let positions = self.room.positions.min(room.positions);
        let along = self.reach.along();
        let caches = resized.keys.iter().chain(&resized.values);
        for (new, old) in caches.zip(self.keys.iter().chain(&self.values)) {
            let old = old.narrow(along, 0, positions).index_select(0, &which);
            new.narrow(0, 0, rows.len() as i64).narrow(along, 0, positions).copy_(&old);
        }
        resized
    }

    /// Whether it has room for `room` and samples with these parameters.
    pub(crate) fn serves(&self, room: Room, sampling: &Sampling) -> bool {
        self.is_for(sampling) && self.room.serves(room)
    }

    /// Replaces the weights and clears the cache.
    pub(crate) fn begin_anew(&mut self, weights: &Weights) {
        let weights = weights.drawing(self.model.compute);
        let (own, new) = (self.model.weights.named(), weights.named());
        for ((_, own), (_, new)) in own.into_iter().zip(new) {
            own.shallow_clone().copy_(new);
        }
        for (own, new) in self.head_norms.iter_mut().zip(self.model.head_norms()) {
            own.copy_(&new);
        }
        // Masked positions are multiplied by 0, so they must be finite.
        for cache in self.keys.iter_mut().chain(&mut self.values) {
            let _ = cache.zero_();
        }
    }

    /// Its size.
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// Whether it samples with these parameters.
    pub(crate) fn is_for(&self, sampling: &Sampling) -> bool {
        self.how == manner(sampling)
    }

    /// Bytes of keys, values and its own weights.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |tensor: &Tensor| tensor.numel() as u64 * tensor.kind().elt_size_in_bytes() as u64;
        let kept: u64 = self.keys.iter().chain(&self.values).map(of).sum();
        let copied = matches!(self.steps, Steps::Recorded(_));
        let weights = self.model.weights.named();
        kept + weights.iter().filter(|_| copied).map(|(_, weight)| of(weight)).sum::<u64>()
    }

    /// The model.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Caches a block's keys and values of a sequence from its beginning: `[tokens, groups,
    /// width]`.
    pub(crate) fn keep(&self, block: usize, row: usize, keys: &Tensor, values: &Tensor) {
        for (cache, new) in [(&self.keys[block], keys), (&self.values[block], values)] {
            let own = cache.select(0, row as i64);
            let mut own = own.narrow(self.reach.along() - 1, 0, new.size()[0]);
            own.copy_(&match self.reach {
                Reach::Masked(_) => new.transpose(0, 1),
                Reach::Own(..) => new.shallow_clone(),
            });
        }
    }

    /// Samples from logits that the caller computed: `[at least as many, vocabulary]`.
    pub(crate) fn draw(&self, logits: &Tensor, chances: &[f32]) -> Result<Vec<Drawn>, EngineError> {
        let logits = logits.narrow(0, 0, chances.len() as i64);
        let chances = Tensor::from_slice(chances).to_device(logits.device()).to_kind(Kind::Double);
        read(&choose(&logits, &chances, self.how))
    }

    /// Takes one decoding step for each of `chances`: reads a token of each row and samples the
    /// next. `chances` has for each row the random number of the inverse transform. Results of
    /// unused rows are meaningless. The host waits for the device once.
    pub(crate) fn steps(
        &mut self,
        given: &[Option<Given>],
        chances: &[Vec<f32>],
    ) -> Result<Vec<Vec<Drawn>>, EngineError> {
        let rows = self.room.rows;
        let filled = |of: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
            of.chain(std::iter::repeat(0.0)).take(rows).collect()
        };
        let known = || given.iter().map(|given| given.unwrap_or_default());
        let mut told = filled(&mut known().map(|given| f64::from(given.token)));
        told.extend(filled(&mut known().map(|given| given.position as f64)));
        for chances in chances {
            told.extend(filled(&mut chances.iter().map(|chance| f64::from(*chance))));
        }
        let told = Tensor::from_slice(&told).view([-1, rows as i64]);
        let told = told.to_device(self.model.device());
        self.given.narrow(0, 0, 2).copy_(&told.narrow(0, 0, 2));
        let [tokens, mut positions, mut chance] = [0, 1, 2].map(|part| self.given.select(0, part));
        let furthest = known().map(|given| given.position).max().unwrap_or(0);
        let busy = given.iter().rposition(Option::is_some).map_or(1, |last| last as i64 + 1);
        let mut all = Vec::new();
        for number in 0..chances.len() as i64 {
            chance.copy_(&told.select(0, 2 + number));
            let drawn = self.drawn(Extent {
                seen: match self.reach {
                    Reach::Masked(_) => rounded(furthest + number + 1),
                    Reach::Own(..) => self.room.positions,
                },
                rows: if self.model.device().is_cuda() { rows as i64 } else { busy },
            })?;
            tokens.narrow(0, 0, drawn.size()[1]).copy_(&drawn.select(0, 0));
            let _ = positions.g_add_scalar_(1.0);
            // A graph overwrites its previous output.
            all.push(drawn.copy());
        }
        let all = read(&Tensor::cat(&all, 1))?;
        let by_step = all.chunks(all.len() / chances.len().max(1));
        let whole = by_step.map(|drawn| {
            let mut drawn = drawn.to_vec();
            drawn.resize(given.len(), Drawn::default());
            drawn
        });
        Ok(whole.collect())
    }

    /// Tokens sampled by a step: `[2, rows]`.
    fn drawn(&mut self, extent: Extent) -> Result<Tensor, EngineError> {
        let Steps::Recorded(steps) = &self.steps else { return self.compute(extent) };
        let known = steps.get(&extent.seen);
        if let Some(Some((graph, drawn))) = known {
            graph.replay()?;
            return Ok(drawn.shallow_clone());
        }
        let step = if let (Some(_), Device::Cuda(gpu)) = (known, self.model.device()) {
            let beside = steps.values().flatten().next().map(|(graph, _)| graph);
            Some(Graph::record(gpu, beside, || self.compute(extent))?)
        } else {
            None
        };
        let drawn = match &step {
            Some((graph, drawn)) => {
                graph.replay()?;
                drawn.shallow_clone()
            }
            None => self.compute(extent)?,
        };
        if let Steps::Recorded(steps) = &mut self.steps {
            steps.insert(extent.seen, step);
        }
        Ok(drawn)
    }

    fn compute(&self, extent: Extent) -> Result<Tensor, EngineError> {
        let part = |row| self.given.select(0, row);
        let ids = part(0).to_kind(Kind::Int64);
        let positions = part(1).to_kind(Kind::Int64);
        let chances = part(2).narrow(0, 0, extent.rows);
        let odds = self.odds(&ids, &positions, extent)?.narrow(0, 0, extent.rows);
        match self.model.kernels() {
            Some(kernels) if self.how.0 > 0.0 => kernels.choose(&odds, &chances, self.how),
            _ => Ok(choose(&odds.to_kind(Kind::Float), &chances, self.how)),
        }
    }

    /// Logits after one more token of every row, in the compute type: `[rows, vocabulary]`.
    fn odds(
        &self,
        ids: &Tensor,
        positions: &Tensor,
        Extent { seen, rows: busy }: Extent,
    ) -> Result<Tensor, EngineError> {
        let model = &self.model;
        let rows = ids.size()[0];
        let width = model.config.head_dim;
        let at = model.places(positions);
        let which = match &self.reach {
            Reach::Masked(numbers) => {
                let ends = positions.narrow(0, 0, busy).unsqueeze(1);
                numbers.narrow(0, 0, seen).le_tensor(&ends).view([busy, 1, 1, seen])
            }
            // Our kernels compute the rotary angles from positions.
            Reach::Own(..) if model.kernels().is_some() => Tensor::new(),
            Reach::Own(..) => (positions + 1).to_kind(Kind::Int),
        };
        let (mut stream, mut added) = (model.embedded(ids), None);
        for (number, layer) in model.weights.layers.iter().enumerate() {
            let (sum, normed) = model.add_norm(&stream, added.as_ref(), &layer.input_norm)?;
            let all = model.through(&normed, layer, 0);
            let q = self.turned(number, &all, positions, &at)?;
            let (keys, values) = (&self.keys[number], &self.values[number]);
            let out = match (&self.reach, model.kernels()) {
                (Reach::Own(..), Some(kernels)) => kernels.attend(&q, (keys, values), positions)?,
                (Reach::Own(q_bounds, k_bounds), None) => {
                    shim::cached_attention((&q, keys, values), (q_bounds, k_bounds), &which)?
                }
                // The heads of a group attend to the same keys, as if each were a token of its own.
                (Reach::Masked(_), _) => {
                    let part = |all: &Tensor| all.narrow(0, 0, busy);
                    let out = Tensor::scaled_dot_product_attention(
                        &part(&q).view([busy, self.groups(), -1, width]),
                        &part(keys).narrow(2, 0, seen),
                        &part(values).narrow(2, 0, seen),
                        Some(&which),
                        0.0,
                        false,
                        None,
                        false,
                    );
                    // Matrix products use all rows.
                    out.reshape([busy, -1]).constant_pad_nd([0, 0, 0, rows - busy])
                }
            };
            let (sum, last) = model.rest(layer, &sum, &out)?;
            (stream, added) = (sum, Some(last));
        }
        Ok(model.odds(&model.last_norm(&stream, added.as_ref())?))
    }

    /// Queries of a block, `[rows, heads, width]`, from the output of its QKV product; keys and
    /// values are written to the cache.
    fn turned(
        &self,
        number: usize,
        all: &Tensor,
        positions: &Tensor,
        at: &Places,
    ) -> Result<Tensor, EngineError> {
        let model = &self.model;
        let layer = &model.weights.layers[number];
        let (mut keys, mut values) =
            (self.keys[number].shallow_clone(), self.values[number].shallow_clone());
        let (q, k, v) = match (at, model.kernels(), &self.reach) {
            (Places::Angles(cos, sin), ..) => {
                model.attended_at_once(all, &self.head_norms[number], (cos, sin))?
            }
            (Places::Positions(at), Some(kernels), Reach::Own(..)) => {
                return kernels.turn_keep(all, (&keys, &values), model.turning(layer, at));
            }
            (Places::Positions(at), Some(kernels), Reach::Masked(_)) => {
                let heads = model.config.num_attention_heads;
                kernels.turn(all, heads, model.turning(layer, at))?
            }
            (Places::Positions(_), None, _) => {
                return Err(EngineError::of_torch("positions need the fused kernels"));
            }
        };
        let (rows, along) = (q.size()[0], self.reach.along());
        let (groups, width) = (self.groups(), model.config.head_dim);
        let one = if along == 1 { [rows, 1, groups, width] } else { [rows, groups, 1, width] };
        let place = positions.view([rows, 1, 1, 1]).expand(one, false);
        let _ = keys.scatter_(along, &place, &k.unsqueeze(along));
        let _ = values.scatter_(along, &place, &v.unsqueeze(along));
        Ok(q)
    }

    fn groups(&self) -> i64 {
        self.model.config.num_key_value_heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiny;

    /// Across a rounding boundary of positions, with an unused row.
    #[test]
    fn batched_steps_equal_single_steps() {
        let config = tiny();
        let model = Model::new(config.clone(), Weights::initial(&config, 5), Kind::Float);
        let sampling = Sampling { temperature: 1.0, top_p: 0.9, ..Sampling::default() };
        let _no_grad = tch::no_grad_guard();
        let begin = || Decoder::new(&model, &model.weights, Room::of(3, 80), &sampling, false);
        let start = |token| Some(Given { token, position: 0 });
        let mut given = [start(3), None, start(4)];
        let chances: Vec<Vec<f32>> = (0..70)
            .map(|step| (1..4).map(|row| ((step * row) as f32 * 0.37).fract()).collect())
            .collect();
        let at_once = begin().steps(&given, &chances).unwrap();
        let mut one_by_one = begin();
        for (position, (chances, wanted)) in (1..).zip(chances.into_iter().zip(&at_once)) {
            let drawn = one_by_one.steps(&given, &[chances]).unwrap();
            assert_eq!(drawn.len(), 1);
            for row in [0, 2] {
                assert_eq!(drawn[0][row], wanted[row], "row {row} at {position}");
                given[row] = Some(Given { token: wanted[row].0, position });
            }
        }
        let different: std::collections::BTreeSet<u32> =
            at_once.iter().map(|drawn| drawn[2].0).collect();
        assert!(different.len() > 3, "{different:?}");
    }

    #[test]
    fn reset_decoder_equals_a_new_one() {
        let config = tiny();
        let weights = || Weights::initial(&config, 5);
        let model = Model::new(config.clone(), weights(), Kind::Float);
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() };
        let room = Room::of(1, 8);
        let made_of = |weights: &Weights| Decoder::new(&model, weights, room, &sampling, false);
        let drawn = |decoder: &mut Decoder| {
            let _no_grad = tch::no_grad_guard();
            let given = [Some(Given { token: 3, position: 0 })];
            decoder.steps(&given, &[vec![0.7], vec![0.7], vec![0.7], vec![0.7]]).unwrap()
        };
        // Norms alone: whatever is made of weights beforehand has to follow them.
        for norms in [true, false] {
            let new = weights();
            for (name, weight) in new.named() {
                let changes = if norms { name.contains("q_norm") } else { weight.dim() > 1 };
                if changes {
                    let _ = weight.detach().g_mul_scalar_(2.0);
                }
            }
            let mut kept = made_of(&weights());
            let before = drawn(&mut kept);
            kept.begin_anew(&new);
            let after = drawn(&mut kept);
            assert_eq!(after, drawn(&mut made_of(&new)), "norms alone: {norms}");
            assert_ne!(after, before, "norms alone: {norms}");
        }
    }
}
