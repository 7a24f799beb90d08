//! The tensors of a decoder and their initialisation.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use warpwright_learn::model_config::ModelConfig;

/// Standard deviation of initial matrices, as in GPT-2.
const SPREAD: f64 = 0.02;

/// Names of a block's tensors, in the order of [`Layer::all`].
const NAMES: [&str; 8] =
    ["input_norm", "qkv", "q_norm", "k_norm", "o", "post_norm", "gate_up", "down"];

/// One block. Matrices are `[out, in]`; those with the same input are fused.
#[derive(Debug)]
pub(crate) struct Layer {
    /// `[hidden]`.
    pub(crate) input_norm: Tensor,
    /// Queries, keys, values: `[(heads + 2 groups) * width, hidden]`.
    pub(crate) qkv: Tensor,
    /// `[width]`.
    pub(crate) q_norm: Tensor,
    /// `[width]`.
    pub(crate) k_norm: Tensor,
    /// `[hidden, heads * width]`.
    pub(crate) o: Tensor,
    /// `[hidden]`.
    pub(crate) post_norm: Tensor,
    /// `[2 intermediate, hidden]`.
    pub(crate) gate_up: Tensor,
    /// `[hidden, intermediate]`.
    pub(crate) down: Tensor,
    /// Adapters of its matrices, in the order of [`Layer::matrices`].
    pub(crate) adapters: Option<[Adapter; 4]>,
}

/// A low-rank change of a matrix: `scale * b a` is added to it (LoRA, arXiv 2106.09685).
#[derive(Debug)]
pub(crate) struct Adapter {
    /// `[rank, in]`.
    pub(crate) a: Tensor,
    /// `[out, rank]`.
    pub(crate) b: Tensor,
    pub(crate) scale: f64,
}

/// Seeds libtorch's host generator, which all threads share. Until the guard is dropped, no other
/// caller of this function samples from it.
fn seed_host(seed: u64) -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    let alone = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(seed as i64);
    alone
}

impl Adapter {
    /// Initial adapters: `a` is random, `b` is 0, so that their product is 0.
    fn initial(matrix: &Tensor, Lora { rank, scale }: Lora) -> Self {
        let (rows, columns) = (matrix.size()[0], matrix.size()[1]);
        let (host, rank) = ((Kind::Float, Device::Cpu), i64::from(rank));
        let a = Tensor::randn([rank, columns], host) / (columns as f64).sqrt();
        Self { a, b: Tensor::zeros([rows, rank], host), scale }
    }

    fn map(&self, with: &impl Fn(&Tensor) -> Tensor) -> Self {
        Self { a: with(&self.a), b: with(&self.b), scale: self.scale }
    }
}

/// LoRA adapters, trained instead of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lora {
    /// Rank.
    pub rank: u32,
    /// Scale of the product: PEFT's `lora_alpha / r`.
    pub scale: f64,
}

impl fmt::Display for Lora {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} and scale {}", self.rank, self.scale)
    }
}

impl Lora {
    /// Equality up to the rounding of the scale in a file.
    pub(crate) fn is_like(self, other: Self) -> bool {
        self.rank == other.rank && (self.scale - other.scale).abs() <= 1e-9 * other.scale.abs()
    }
}

impl Layer {
    /// The matrices that adapters can be attached to.
    pub(crate) fn matrices(&self) -> [&Tensor; 4] {
        [&self.qkv, &self.o, &self.gate_up, &self.down]
    }

    /// The adapter of a matrix, by its index in [`Layer::matrices`].
    pub(crate) fn adapter(&self, place: usize) -> Option<&Adapter> {
        self.adapters.as_ref().and_then(|adapters| adapters.get(place))
    }

    /// The block with its adapters merged into the matrices; float32 if it has adapters.
    fn merged(&self) -> Self {
        let whole = |place: usize| {
            let matrix = self.matrices()[place].detach();
            match self.adapter(place) {
                None => matrix,
                Some(Adapter { a, b, scale }) => {
                    matrix.to_kind(Kind::Float) + b.detach().matmul(&a.detach()) * *scale
                }
            }
        };
        Self {
            qkv: whole(0),
            o: whole(1),
            gate_up: whole(2),
            down: whole(3),
            adapters: None,
            ..self.map(&|t| t.detach())
        }
    }

    /// All tensors, in the order of their declaration.
    pub(crate) fn all(&self) -> [&Tensor; 8] {
        [
            &self.input_norm,
            &self.qkv,
            &self.q_norm,
            &self.k_norm,
            &self.o,
            &self.post_norm,
            &self.gate_up,
            &self.down,
        ]
    }

    fn map(&self, with: &impl Fn(&Tensor) -> Tensor) -> Self {
        Self {
            input_norm: with(&self.input_norm),
            qkv: with(&self.qkv),
            q_norm: with(&self.q_norm),
            k_norm: with(&self.k_norm),
            o: with(&self.o),
            post_norm: with(&self.post_norm),
            gate_up: with(&self.gate_up),
            down: with(&self.down),
            adapters: self.adapters.as_ref().map(|all| all.each_ref().map(|one| one.map(with))),
        }
    }
}

/// Names of the matrices that can be adapted.
const MATRICES: [&str; 4] = ["qkv", "o", "gate_up", "down"];

/// All tensors of a decoder.
#[derive(Debug)]
pub(crate) struct Weights {
    /// `[vocabulary, hidden]`.
    pub(crate) embed: Tensor,
    pub(crate) layers: Vec<Layer>,
    /// `[hidden]`.
    pub(crate) norm: Tensor,
    /// `[vocabulary, hidden]`; `None` if tied to `embed`, or in a critic, which predicts no tokens.
    pub(crate) head: Option<Tensor>,
    /// `[1, hidden]`, of a model that computes values.
    pub(crate) value: Option<Tensor>,
}

impl Weights {
    /// Initial weights: normal, narrower in matrices that write to the residual stream (GPT-2),
    /// ones in norms, zeros in the value head. Sampled on the host, so that every device has the
    /// same.
    pub(crate) fn initial(config: &ModelConfig, seed: u64) -> Self {
        let _alone = seed_host(seed);
        let host = (Kind::Float, Device::Cpu);
        let normal =
            |rows: i64, columns: i64, spread: f64| Tensor::randn([rows, columns], host) * spread;
        let ones = |size: i64| Tensor::ones([size], host);
        let (d, width) = (config.hidden_size, config.head_dim);
        let (heads, groups) = (config.num_attention_heads, config.num_key_value_heads);
        let narrow = SPREAD / ((2 * config.num_hidden_layers) as f64).sqrt();
        let layer = |_| Layer {
            input_norm: ones(d),
            qkv: normal((heads + 2 * groups) * width, d, SPREAD),
            q_norm: ones(width),
            k_norm: ones(width),
            o: normal(d, heads * width, narrow),
            post_norm: ones(d),
            gate_up: normal(2 * config.intermediate_size, d, SPREAD),
            down: normal(d, config.intermediate_size, narrow),
            adapters: None,
        };
        let embed = normal(config.vocab_size, d, SPREAD);
        let layers = (0..config.num_hidden_layers).map(layer).collect();
        let head = (!config.tie_word_embeddings).then(|| normal(config.vocab_size, d, SPREAD));
        Self { embed, layers, norm: ones(d), head, value: None }
    }

    /// Adds a value head of zeros, if the model has none.
    pub(crate) fn with_value_head(mut self) -> Self {
        let d = self.norm.size()[0];
        let of = (self.norm.kind(), self.norm.device());
        self.value.get_or_insert_with(|| Tensor::zeros([1, d], of));
        self
    }

    /// All tensors with their names, in a fixed order.
    pub(crate) fn named(&self) -> Vec<(String, &Tensor)> {
        let mut named = vec![("embed".to_owned(), &self.embed)];
        for (number, layer) in self.layers.iter().enumerate() {
            for (name, tensor) in NAMES.iter().zip(layer.all()) {
                named.push((format!("layers.{number}.{name}"), tensor));
            }
            for (name, adapter) in MATRICES.iter().zip(layer.adapters.iter().flatten()) {
                named.push((format!("layers.{number}.{name}.a"), &adapter.a));
                named.push((format!("layers.{number}.{name}.b"), &adapter.b));
            }
        }
        named.push(("norm".to_owned(), &self.norm));
        named.extend(self.head.iter().map(|head| ("head".to_owned(), head)));
        named.extend(self.value.iter().map(|value| ("value".to_owned(), value)));
        named
    }

    /// Maps each tensor.
    pub(crate) fn map(&self, with: impl Fn(&Tensor) -> Tensor) -> Self {
        Self {
            embed: with(&self.embed),
            layers: self.layers.iter().map(|layer| layer.map(&with)).collect(),
            norm: with(&self.norm),
            head: self.head.as_ref().map(&with),
            value: self.value.as_ref().map(&with),
        }
    }

    /// Trainable copies on a device.
    pub(crate) fn trained_on(&self, device: Device) -> Self {
        self.map(|t| {
            let copy = t.detach().to_device(device).to_kind(Kind::Float).copy();
            copy.set_requires_grad(true)
        })
    }

    /// Copies on a device in the compute type. Only the adapters (new ones if there are none) and
    /// the value head are trainable.
    pub(crate) fn adapted_on(&self, device: Device, compute: Kind, lora: Lora, seed: u64) -> Self {
        let _alone = seed_host(seed);
        let frozen = |t: &Tensor| {
            let t = t.detach().to_device(device);
            if t.dim() < 2 { t } else { t.to_kind(compute) }
        };
        let trained = |t: &Tensor| {
            t.detach().to_device(device).to_kind(Kind::Float).copy().set_requires_grad(true)
        };
        let layer = |layer: &Layer| {
            let begin = |matrix| Adapter::initial(matrix, lora);
            let all =
                layer.adapters.as_ref().map(|all| all.each_ref().map(|one| one.map(&trained)));
            let all =
                all.unwrap_or_else(|| layer.matrices().map(|matrix| begin(matrix).map(&trained)));
            Layer { adapters: Some(all), ..layer.map(&frozen) }
        };
        Self {
            embed: frozen(&self.embed),
            layers: self.layers.iter().map(layer).collect(),
            norm: frozen(&self.norm),
            head: self.head.as_ref().map(frozen),
            value: self.value.as_ref().map(trained),
        }
    }

    /// Rank and scale of its adapters, if it has any.
    pub(crate) fn lora(&self) -> Option<Lora> {
        let first = self.layers.iter().find_map(|layer| layer.adapter(0))?;
        let rank = u32::try_from(first.a.size()[0]).unwrap_or(u32::MAX);
        Some(Lora { rank, scale: first.scale })
    }

    /// Whether it has adapters.
    pub(crate) fn is_adapted(&self) -> bool {
        self.lora().is_some()
    }

    /// The model with its adapters merged.
    pub(crate) fn merged(&self) -> Self {
        let layers = self.layers.iter().map(Layer::merged).collect();
        Self { layers, ..self.map(Tensor::detach) }
    }

    /// Copies for decoding: the matrices of products in the compute type, the rest as it is. Input
    /// embedding and output projection are two tensors then.
    pub(crate) fn drawing(&self, compute: Kind) -> Self {
        let own = |t: &Tensor| {
            let t = t.detach();
            if t.dim() < 2 { t } else { t.to_kind(compute) }
        };
        let embed = self.embed.detach();
        let head = Some(own(self.words()));
        Self { embed, head, value: None, ..self.merged().map(own) }
    }

    /// The output projection: `[vocabulary, hidden]`.
    pub(crate) fn words(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embed)
    }
}
