//! The forward pass of a Qwen3 decoder over packed sequences.
//!
//! Sequences are packed into one row of tokens, without padding. Each token has its position in its
//! own sequence and attends to the earlier tokens of that sequence only, so that the output equals
//! that of each sequence alone.
//!
//! The residual stream and norms are float32. Products have the compute type, with weights cast
//! from float32 per use, so that gradients are float32.

use tch::{Device, Kind, Tensor};

use crate::error::EngineError;
use crate::fused::{Kernels, Turning};
use crate::shim;
use crate::weights::{Adapter, Layer, Weights};
use warpwright_learn::model_config::ModelConfig;

const NONE: Option<&Tensor> = None;

/// Packed sequences, on a device.
#[derive(Debug)]
pub(crate) struct Packed {
    /// `[tokens]`.
    pub(crate) ids: Tensor,
    /// Position of each token in its sequence: `[tokens]`.
    pub(crate) positions: Tensor,
    /// Offsets of the sequences, with the end of the last: int32, `[sequences + 1]`.
    bounds: Tensor,
    lengths: Vec<i64>,
}

impl Packed {
    /// Packs sequences of tokens, none of them empty.
    pub(crate) fn new<'a>(sequences: impl IntoIterator<Item = &'a [u32]>, device: Device) -> Self {
        let (mut ids, mut positions) = (Vec::new(), Vec::new());
        let (mut bounds, mut lengths) = (vec![0i32], Vec::new());
        for sequence in sequences {
            ids.extend(sequence.iter().map(|id| i64::from(*id)));
            positions.extend(0..sequence.len() as i64);
            bounds.push(ids.len() as i32);
            lengths.push(sequence.len() as i64);
        }
        Self {
            ids: Tensor::from_slice(&ids).to_device(device),
            positions: Tensor::from_slice(&positions).to_device(device),
            bounds: Tensor::from_slice(&bounds).to_device(device),
            lengths,
        }
    }

    fn longest(&self) -> i64 {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}

/// A decoder: config, weights and compute type.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
    /// Type of products: float32 or bfloat16.
    pub(crate) compute: Kind,
    /// Tables of the rotary embedding: see [`angles`].
    angles: (Tensor, Tensor),
    /// Fused kernels, if they are used.
    kernels: Option<Kernels>,
}

/// Positions of tokens.
#[derive(Debug)]
pub(crate) enum Places {
    /// As cosines and sines, equal for all heads: `[tokens, 1, width]`, compute type.
    Angles(Tensor, Tensor),
    /// As indices into the fused kernels' tables: int64 `[tokens]`.
    Positions(Tensor),
}

impl Model {
    /// A model on the device of its weights.
    pub(crate) fn new(config: ModelConfig, weights: Weights, compute: Kind) -> Self {
        let device = weights.norm.device();
        let angles = angles(&config, device);
        Self { config, weights, compute, angles, kernels: None }
    }

    /// The same with fused kernels, if they support the config.
    pub(crate) fn by(self, kernels: Option<Kernels>) -> Self {
        let serve = self.compute == Kind::BFloat16 && Kernels::serve(&self.config);
        Self { kernels: kernels.filter(|_| serve), ..self }
    }

    /// The fused kernels, if they are used.
    pub(crate) fn kernels(&self) -> Option<Kernels> {
        self.kernels
    }

    /// The same with other weights of its shape.
    pub(crate) fn with(&self, weights: Weights) -> Self {
        let angles = (self.angles.0.shallow_clone(), self.angles.1.shallow_clone());
        let Self { config, compute, kernels, .. } = self;
        Self { config: config.clone(), weights, compute: *compute, angles, kernels: *kernels }
    }

    /// Its device.
    pub(crate) fn device(&self) -> Device {
        self.weights.norm.device()
    }

    /// Hidden states after the last norm: `[tokens, hidden]`, compute type.
    pub(crate) fn hidden(&self, packed: &Packed) -> Result<Tensor, EngineError> {
        self.hidden_seeing(packed, |_, _, _| ())
    }

    /// The same; `see` gets each block's keys and values.
    pub(crate) fn hidden_seeing(
        &self,
        packed: &Packed,
        mut see: impl FnMut(usize, &Tensor, &Tensor),
    ) -> Result<Tensor, EngineError> {
        let (mut stream, mut added) = (self.embedded(&packed.ids), None);
        let at = self.places(&packed.positions);
        for (number, layer) in self.weights.layers.iter().enumerate() {
            let (sum, normed) = self.add_norm(&stream, added.as_ref(), &layer.input_norm)?;
            let (q, k, v) = self.attended(layer, &normed, &at)?;
            see(number, &k, &v);
            let out = attention((&q, &k, &v), packed)?;
            let (sum, last) = self.rest(layer, &sum, &out)?;
            (stream, added) = (sum, Some(last));
        }
        self.last_norm(&stream, added.as_ref())
    }

    /// The forward pass with gradient checkpointing: keeps only each block's input; the backward
    /// pass recomputes the blocks (Chen et al., arXiv 1604.06174).
    pub(crate) fn hidden_briefly(&self, packed: &Packed) -> Result<Kept, EngineError> {
        let at = self.places(&packed.positions);
        let _no_grad = tch::no_grad_guard();
        let mut streams = vec![self.embedded(&packed.ids)];
        for (i, layer) in self.weights.layers.iter().enumerate() {
            streams.push(self.block(layer, &streams[i], packed, &at)?);
        }
        Ok(Kept { streams, at })
    }

    /// Hidden states after [`Self::hidden_briefly`].
    pub(crate) fn finish(&self, kept: &Kept) -> Result<Tensor, EngineError> {
        let none = || EngineError::of_torch("no block inputs were kept");
        self.last_norm(kept.streams.last().ok_or_else(none)?, None)
    }

    /// Backward pass through the checkpointed blocks, given the gradient of the output; weights
    /// accumulate their gradients.
    pub(crate) fn back(
        &self,
        packed: &Packed,
        kept: Kept,
        gradient: &Tensor,
    ) -> Result<(), EngineError> {
        let Kept { mut streams, at } = kept;
        let mut gradient = gradient.shallow_clone();
        let leaf = |stream: &Tensor| stream.detach().set_requires_grad(true);
        if let Some(last) = streams.pop() {
            let last = leaf(&last);
            shim::backward(&self.last_norm(&last, None)?, &gradient)?;
            gradient = last.grad();
        }
        for layer in self.weights.layers.iter().rev() {
            let Some(given) = streams.pop() else { break };
            let given = leaf(&given);
            shim::backward(&self.block(layer, &given, packed, &at)?, &gradient)?;
            gradient = given.grad();
        }
        if self.weights.embed.requires_grad() {
            shim::backward(&self.embedded(&packed.ids), &gradient)?;
        }
        Ok(())
    }

    /// Logits of every token's successor: `[tokens, vocabulary]`, float32.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Tensor {
        self.odds(hidden).to_kind(Kind::Float)
    }

    /// The same in the compute type, as the product returns them.
    pub(crate) fn odds(&self, hidden: &Tensor) -> Tensor {
        hidden.linear(&self.cast(self.weights.words()), NONE)
    }

    /// Log-probabilities of the tokens `chosen`, int64 `[tokens]`, and entropies, which have no
    /// gradient: `[tokens]` each, float32.
    pub(crate) fn likelihood(
        &self,
        hidden: &Tensor,
        chosen: &Tensor,
    ) -> Result<[Tensor; 2], EngineError> {
        if let Some(kernels) = self.kernels {
            return kernels.likelihood(&self.odds(hidden), chosen);
        }
        let logprobs = self.logits(hidden).log_softmax(-1, Kind::Float);
        let entropies = {
            let _no_grad = tch::no_grad_guard();
            -(logprobs.exp() * &logprobs).sum_dim_intlist(-1, false, Kind::Float)
        };
        Ok([logprobs.gather(1, &chosen.unsqueeze(1), false).squeeze_dim(1), entropies])
    }

    /// The value at each token: `[tokens]`, float32.
    pub(crate) fn values(&self, hidden: &Tensor) -> Result<Tensor, EngineError> {
        let head = self.weights.value.as_ref();
        let head = head.ok_or_else(|| EngineError::request("the model has no value head"))?;
        Ok(hidden.to_kind(Kind::Float).linear(head, NONE).squeeze_dim(-1))
    }

    /// Token embeddings: `[tokens, hidden]`, float32.
    pub(crate) fn embedded(&self, ids: &Tensor) -> Tensor {
        Tensor::embedding(&self.weights.embed, ids, -1, false, false).to_kind(Kind::Float)
    }

    /// Positions, int64 `[tokens]`, in the form that blocks need.
    pub(crate) fn places(&self, positions: &Tensor) -> Places {
        if self.kernels.is_some() {
            return Places::Positions(positions.shallow_clone());
        }
        let at = |table: &Tensor| self.cast(&table.index_select(0, positions).unsqueeze(1));
        Places::Angles(at(&self.angles.0), at(&self.angles.1))
    }

    /// Arguments of the fused rotary embedding of a block's queries and keys.
    pub(crate) fn turning<'t>(&'t self, layer: &'t Layer, positions: &'t Tensor) -> Turning<'t> {
        Turning {
            norms: (&layer.q_norm, &layer.k_norm),
            angles: (&self.angles.0, &self.angles.1),
            positions,
            epsilon: self.config.rms_norm_eps,
        }
    }

    fn cast(&self, weight: &Tensor) -> Tensor {
        weight.to_kind(self.compute)
    }

    /// Adds to the residual stream, `[tokens, hidden]`, in float32. Returns it and its norm in the
    /// compute type.
    pub(crate) fn add_norm(
        &self,
        stream: &Tensor,
        added: Option<&Tensor>,
        weight: &Tensor,
    ) -> Result<(Tensor, Tensor), EngineError> {
        if let Some(kernels) = self.kernels {
            return kernels.add_norm(stream, added, weight, self.config.rms_norm_eps);
        }
        let sum = added.map_or_else(|| stream.shallow_clone(), |added| stream + added);
        let normed = self.norm(&sum, weight);
        Ok((sum, normed))
    }

    /// Output of the last norm.
    pub(crate) fn last_norm(
        &self,
        stream: &Tensor,
        added: Option<&Tensor>,
    ) -> Result<Tensor, EngineError> {
        Ok(self.add_norm(stream, added, &self.weights.norm)?.1)
    }

    /// RMSNorm (Zhang and Sennrich, arXiv 1910.07467) in float32; the output has the compute type.
    fn norm(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let width = weight.size()[0];
        let x = x.to_kind(Kind::Float);
        x.rms_norm([width], Some(&weight.to_kind(Kind::Float)), self.config.rms_norm_eps)
            .to_kind(self.compute)
    }

    /// The same for inputs in the compute type: queries and keys.
    fn head_norm(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        x.rms_norm([weight.size()[0]], Some(&self.cast(weight)), self.config.rms_norm_eps)
    }

    /// Multiplies by one of a block's matrices and adds its adapter's term.
    pub(crate) fn through(&self, x: &Tensor, layer: &Layer, place: usize) -> Tensor {
        let whole = x.linear(&self.cast(layer.matrices()[place]), NONE);
        match layer.adapter(place) {
            None => whole,
            Some(Adapter { a, b, scale }) => {
                let between = x.linear(&self.cast(a), NONE) * *scale;
                whole + between.linear(&self.cast(b), NONE)
            }
        }
    }

    fn block(
        &self,
        layer: &Layer,
        stream: &Tensor,
        packed: &Packed,
        at: &Places,
    ) -> Result<Tensor, EngineError> {
        let (_, normed) = self.add_norm(stream, None, &layer.input_norm)?;
        let (q, k, v) = self.attended(layer, &normed, at)?;
        let out = attention((&q, &k, &v), packed)?;
        let (stream, added) = self.rest(layer, stream, &out)?;
        Ok(stream + added)
    }

    /// Queries `[tokens, heads, width]`, keys and values `[tokens, groups, width]`, after the
    /// rotary embedding.
    fn attended(
        &self,
        layer: &Layer,
        normed: &Tensor,
        at: &Places,
    ) -> Result<(Tensor, Tensor, Tensor), EngineError> {
        let ModelConfig {
            num_attention_heads: heads, num_key_value_heads: groups, head_dim, ..
        } = self.config;
        let all = self.through(normed, layer, 0);
        let (cos, sin) = match (at, self.kernels) {
            (Places::Angles(cos, sin), _) => (cos, sin),
            (Places::Positions(at), Some(kernels)) => {
                return kernels.turn(&all, heads, self.turning(layer, at));
            }
            (Places::Positions(_), None) => {
                return Err(EngineError::of_torch("positions need the fused kernels"));
            }
        };
        // Slices of one view, so that their gradients are combined once.
        let all = all.view([-1, heads + 2 * groups, head_dim]);
        let [q, k, v] = parts(&all, [heads, groups, groups], 1);
        let q = turn(&self.head_norm(&q, &layer.q_norm), (cos, sin));
        let k = turn(&self.head_norm(&k, &layer.k_norm), (cos, sin));
        Ok((q, k, v))
    }

    /// Per block, the weights of the norms of queries and keys for [`Self::attended_at_once`]: a
    /// row per head, float32, `[heads + groups, width]`.
    pub(crate) fn head_norms(&self) -> Vec<Tensor> {
        let ModelConfig {
            num_attention_heads: heads, num_key_value_heads: groups, head_dim, ..
        } = self.config;
        let of = |layer: &Layer| {
            let row = |norm: &Tensor, count| self.cast(norm).expand([count, head_dim], false);
            let both = [row(&layer.q_norm, heads), row(&layer.k_norm, groups)];
            Tensor::cat(&both, 0).to_kind(Kind::Float).detach()
        };
        self.weights.layers.iter().map(of).collect()
    }

    /// The result of [`Self::attended`] from the output of its QKV product, for decoding: queries
    /// and keys pass together in half as many kernels, with the same rounding.
    pub(crate) fn attended_at_once(
        &self,
        all: &Tensor,
        norms: &Tensor,
        at: (&Tensor, &Tensor),
    ) -> Result<(Tensor, Tensor, Tensor), EngineError> {
        let ModelConfig {
            num_attention_heads: heads, num_key_value_heads: groups, head_dim, ..
        } = self.config;
        let all = all.view([-1, heads + 2 * groups, head_dim]);
        let [both, v] = parts(&all, [heads + groups, groups], 1);
        let both = both.to_kind(Kind::Float);
        let both = both.rms_norm([head_dim], NONE, self.config.rms_norm_eps);
        let rounded = Tensor::empty(both.size(), (self.compute, both.device()));
        let [q, k] = parts(&turn(&both.f_mul_out(&rounded, norms)?, at), [heads, groups], 1);
        Ok((q, k, v))
    }

    /// The rest of a block after attention: adds to the residual stream, then the MLP (SwiGLU,
    /// arXiv 2002.05202). Returns the stream and the term to add to it, in the compute type.
    pub(crate) fn rest(
        &self,
        layer: &Layer,
        stream: &Tensor,
        out: &Tensor,
    ) -> Result<(Tensor, Tensor), EngineError> {
        let out = self.through(&out.reshape([stream.size()[0], -1]), layer, 1);
        let (stream, normed) = self.add_norm(stream, Some(&out), &layer.post_norm)?;
        let both = self.through(&normed, layer, 2);
        let gated = if let Some(kernels) = self.kernels {
            kernels.gate(&both)?
        } else {
            let half = self.config.intermediate_size;
            let [gate, up] = parts(&both, [half, half], -1);
            gate.silu() * up
        };
        Ok((stream, self.through(&gated, layer, 3)))
    }
}

/// Inputs of the blocks, and the output of the last.
pub(crate) struct Kept {
    streams: Vec<Tensor>,
    at: Places,
}

/// Splits a tensor into parts of the given sizes.
fn parts<const N: usize>(all: &Tensor, sizes: [i64; N], dim: i64) -> [Tensor; N] {
    let mut parts = all.split_with_sizes(sizes, dim).into_iter();
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Tables of the rotary embedding (RoFormer, arXiv 2104.09864): cosines, and sines, negative in the
/// first half: `[positions, width]`, float32.
fn angles(config: &ModelConfig, device: Device) -> (Tensor, Tensor) {
    let half = config.head_dim / 2;
    let double = (Kind::Double, Device::Cpu);
    let exponents = Tensor::arange(half, double) * (2.0 / config.head_dim as f64);
    let frequencies = (exponents * -config.rope_theta.ln()).exp();
    let positions = Tensor::arange(config.max_position_embeddings, double);
    let angles = positions.unsqueeze(1) * frequencies.unsqueeze(0);
    let table =
        |a: Tensor, b: &Tensor| Tensor::cat(&[&a, b], 1).to_kind(Kind::Float).to_device(device);
    let (cos, sin) = (angles.cos(), angles.sin());
    (table(cos.shallow_clone(), &cos), table(-&sin, &sin))
}

/// Rotates pairs of numbers (i, i + width / 2) by their position's angles.
fn turn(x: &Tensor, (cos, sin): (&Tensor, &Tensor)) -> Tensor {
    let half = x.size()[2] / 2;
    (x * cos).addcmul(&x.roll([half], [2]), sin)
}

/// Causal attention within each sequence: `[tokens, heads, width]`.
fn attention(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    packed: &Packed,
) -> Result<Tensor, EngineError> {
    let half = matches!(q.kind(), Kind::BFloat16 | Kind::Half);
    if q.device().is_cuda() && half {
        return shim::packed_attention((q, k, v), &packed.bounds, packed.longest());
    }
    let mut from = 0;
    let mut outs = Vec::with_capacity(packed.lengths.len());
    for length in &packed.lengths {
        let one = |x: &Tensor| x.narrow(0, from, *length).transpose(0, 1).unsqueeze(0);
        let out = Tensor::scaled_dot_product_attention(
            &one(q),
            &one(k),
            &one(v),
            NONE,
            0.0,
            true,
            None,
            q.size()[1] != k.size()[1],
        );
        outs.push(out.squeeze_dim(0).transpose(0, 1));
        from += length;
    }
    Ok(Tensor::cat(&outs, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiny;

    #[test]
    fn joint_query_key_pass_is_bit_identical() {
        let config = tiny();
        for compute in [Kind::Float, Kind::BFloat16] {
            let weights = Weights::initial(&config, 3);
            // As training leaves them: all others than 1, and of queries others than of keys.
            for layer in &weights.layers {
                for (norm, scale) in [(&layer.q_norm, 0.3), (&layer.k_norm, 0.7)] {
                    let shift = Tensor::arange(norm.size()[0], (Kind::Float, norm.device())).sin();
                    norm.detach().copy_(&(shift * scale + 1.1));
                }
            }
            let model = Model::new(config.clone(), weights, compute);
            let drawing = model.with(model.weights.drawing(compute));
            let ids = Tensor::from_slice(&[3i64, 5, 7, 1, 2]);
            let at = model.places(&Tensor::from_slice(&[0i64, 4, 2, 9, 9]));
            let Places::Angles(cos, sin) = &at else { panic!("no kernels were given") };
            let _no_grad = tch::no_grad_guard();
            let stream = model.embedded(&ids);
            for ((layer, norms), trained) in
                drawing.weights.layers.iter().zip(drawing.head_norms()).zip(&model.weights.layers)
            {
                let normed = drawing.norm(&stream, &layer.input_norm);
                let all = drawing.through(&normed, layer, 0);
                let (q, k, v) = drawing.attended_at_once(&all, &norms, (cos, sin)).unwrap();
                let alone = model.attended(trained, &normed, &at).unwrap();
                assert_eq!((q, k, v), alone, "{compute:?}");
            }
        }
    }
}
