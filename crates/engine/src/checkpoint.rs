//! Checkpoints: weights with Hugging Face's names in safetensors, beside `config.json`.
//!
//! Matrices that are fused in memory are separate in the files. The value head has a file of its
//! own, since Hugging Face has no name for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value as Json;
use tch::{Kind, Tensor};

use crate::adapters;
use crate::error::EngineError;
use crate::weights::{Layer, Weights};
use warpwright_learn::model_config::ModelConfig;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const VALUE: &str = "value_head.safetensors";
/// The value head's name in its file.
const VALUE_NAME: &str = "value_head.weight";

/// Content of a checkpoint folder: float32, on the host.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) config: ModelConfig,
    pub(crate) weights: Weights,
    /// Folder of the base model's weights: the folder itself, or another one of adapters.
    pub(crate) base: PathBuf,
}

/// Reads a model's config and weights, or adapters with their base model.
pub(crate) fn read(folder: &Path) -> Result<Checkpoint, EngineError> {
    let base = adapters::base(folder)?;
    let from = base.as_deref().unwrap_or(folder);
    let config = ModelConfig::read(&from.join(CONFIG))?;
    let mut given = Given::read(from)?;
    let mut weights = given.weights(&config)?;
    given.finish(&config)?;
    if base.is_some() {
        adapters::attach(folder, &config, &mut weights)?;
        let value = folder.join(VALUE);
        if value.exists() {
            let found = read_tensors(&value)?.into_iter().find(|(name, _)| name == VALUE_NAME);
            let fits = found.filter(|(_, tensor)| tensor.size() == [1, config.hidden_size]);
            let fits = fits.ok_or_else(|| EngineError::Model {
                path: value,
                message: format!("it has no {VALUE_NAME} of the model's hidden_size"),
            })?;
            weights.value = Some(fits.1.to_kind(Kind::Float));
        }
    }
    // Adapters name it by an absolute path, readable from any working directory.
    let base = std::path::absolute(base.as_deref().unwrap_or(folder))
        .map_err(|source| EngineError::Io { what: "resolve the model's folder", source })?;
    Ok(Checkpoint { config, weights, base })
}

/// Writes adapters, and the value head if the model has one.
pub(crate) fn write_adapters(
    folder: &Path,
    config: &ModelConfig,
    weights: &Weights,
    base: &Path,
) -> Result<(), EngineError> {
    adapters::write(folder, config, weights, base)?;
    write_value(folder, weights, Kind::Float)
}

fn write_value(folder: &Path, weights: &Weights, kind: Kind) -> Result<(), EngineError> {
    let Some(value) = &weights.value else { return Ok(()) };
    let value = vec![(VALUE_NAME.to_owned(), value.shallow_clone())];
    write_tensors(&folder.join(VALUE), value, Some(kind))
}

/// Writes config and weights in transformers' format, with tensors of type `kind`.
pub(crate) fn write(
    folder: &Path,
    config: &ModelConfig,
    weights: &Weights,
    kind: Kind,
) -> Result<(), EngineError> {
    fs::create_dir_all(folder)
        .map_err(|source| EngineError::Io { what: "create the checkpoint's folder", source })?;
    config.write(&folder.join(CONFIG))?;
    write_tensors(&folder.join(WEIGHTS), hugging_face(config, weights), Some(kind))?;
    write_value(folder, weights, kind)
}

/// Tensors by name, with the file that they came from.
struct Given {
    path: PathBuf,
    tensors: HashMap<String, Tensor>,
}

impl Given {
    fn read(folder: &Path) -> Result<Self, EngineError> {
        let (path, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        let mut tensors = HashMap::new();
        if index.exists() {
            for name in files_of(&index)? {
                tensors.extend(read_tensors(&folder.join(name))?);
            }
        } else {
            tensors.extend(read_tensors(&path)?);
        }
        let value = folder.join(VALUE);
        if value.exists() {
            tensors.extend(read_tensors(&value)?);
        }
        Ok(Self { path, tensors })
    }

    /// Takes a tensor of the given shape, as float32.
    fn take(&mut self, name: &str, shape: &[i64]) -> Result<Tensor, EngineError> {
        let tensor = self.tensors.remove(name);
        let tensor = tensor.ok_or_else(|| self.broken(format!("it has no tensor {name}")))?;
        if tensor.size() != shape {
            let size = tensor.size();
            return Err(
                self.broken(format!("{name} has shape {size:?}; config.json needs {shape:?}"))
            );
        }
        Ok(tensor.to_kind(Kind::Float))
    }

    fn weights(&mut self, config: &ModelConfig) -> Result<Weights, EngineError> {
        let (d, words) = (config.hidden_size, config.vocab_size);
        let embed = self.take("model.embed_tokens.weight", &[words, d])?;
        let layers = 0..config.num_hidden_layers;
        let layers = layers.map(|n| self.layer(config, n)).collect::<Result<_, _>>()?;
        let norm = self.take("model.norm.weight", &[d])?;
        let tied = config.tie_word_embeddings;
        let head = if tied { None } else { Some(self.take("lm_head.weight", &[words, d])?) };
        let has_value = self.tensors.contains_key(VALUE_NAME);
        let value = if has_value { Some(self.take(VALUE_NAME, &[1, d])?) } else { None };
        Ok(Weights { embed, layers, norm, head, value })
    }

    fn layer(&mut self, config: &ModelConfig, number: i64) -> Result<Layer, EngineError> {
        let mut joined = Vec::new();
        for parts in parts(config, number) {
            let each = parts.iter().map(|part| self.take(&part.name, &part.shape));
            let each = each.collect::<Result<Vec<_>, _>>()?;
            joined.push(Tensor::cat(&each, 0));
        }
        let mut joined = joined.into_iter();
        let mut next = || joined.next().unwrap_or_else(Tensor::new);
        Ok(Layer {
            input_norm: next(),
            qkv: next(),
            q_norm: next(),
            k_norm: next(),
            o: next(),
            post_norm: next(),
            gate_up: next(),
            down: next(),
            adapters: None,
        })
    }

    /// Refuses remaining tensors, which the computation would silently ignore.
    fn finish(mut self, config: &ModelConfig) -> Result<(), EngineError> {
        if config.tie_word_embeddings {
            // Some writers keep both names of a tied matrix.
            self.tensors.remove("lm_head.weight");
        }
        let mut left: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
        left.sort_unstable();
        match left.first() {
            None => Ok(()),
            Some(first) => {
                let count = left.len();
                Err(self
                    .broken(format!("the tensor {first} is not supported ({count} such tensors)")))
            }
        }
    }

    fn broken(&self, message: String) -> EngineError {
        EngineError::Model { path: self.path.clone(), message }
    }
}

/// A tensor with Hugging Face's name.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) shape: Vec<i64>,
}

/// The matrices of one block, in the order of [`Layer::matrices`].
pub(crate) fn matrices(config: &ModelConfig, number: i64) -> [Vec<Part>; 4] {
    let [_, qkv, _, _, o, _, gate_up, down] = parts(config, number);
    [qkv, o, gate_up, down]
}

/// The tensors of one block in [`Layer`]'s order, each with its parts.
fn parts(config: &ModelConfig, number: i64) -> [Vec<Part>; 8] {
    let (d, width, inner) = (config.hidden_size, config.head_dim, config.intermediate_size);
    let (heads, groups) = (config.num_attention_heads * width, config.num_key_value_heads * width);
    let part = |name: &str, shape: &[i64]| Part {
        name: format!("model.layers.{number}.{name}.weight"),
        shape: shape.to_vec(),
    };
    [
        vec![part("input_layernorm", &[d])],
        vec![
            part("self_attn.q_proj", &[heads, d]),
            part("self_attn.k_proj", &[groups, d]),
            part("self_attn.v_proj", &[groups, d]),
        ],
        vec![part("self_attn.q_norm", &[width])],
        vec![part("self_attn.k_norm", &[width])],
        vec![part("self_attn.o_proj", &[d, heads])],
        vec![part("post_attention_layernorm", &[d])],
        vec![part("mlp.gate_proj", &[inner, d]), part("mlp.up_proj", &[inner, d])],
        vec![part("mlp.down_proj", &[d, inner])],
    ]
}

/// Tensors by Hugging Face's names.
fn hugging_face(config: &ModelConfig, weights: &Weights) -> Vec<(String, Tensor)> {
    let mut named = vec![("model.embed_tokens.weight".to_owned(), weights.embed.shallow_clone())];
    for (number, layer) in weights.layers.iter().enumerate() {
        for (parts, tensor) in parts(config, number as i64).into_iter().zip(layer.all()) {
            let mut from = 0;
            for part in parts {
                named.push((part.name, tensor.narrow(0, from, part.shape[0])));
                from += part.shape[0];
            }
        }
    }
    named.push(("model.norm.weight".to_owned(), weights.norm.shallow_clone()));
    let head = weights.head.iter().map(|head| ("lm_head.weight".to_owned(), head.shallow_clone()));
    named.extend(head);
    named
}

/// Files named by an index, without duplicates.
fn files_of(index: &Path) -> Result<Vec<String>, EngineError> {
    let broken = |message: String| EngineError::Model { path: index.to_owned(), message };
    let text = fs::read_to_string(index)
        .map_err(|source| EngineError::Io { what: "read the index of the weights", source })?;
    let json: Json = serde_json::from_str(&text).map_err(|e| broken(e.to_string()))?;
    let map = json["weight_map"].as_object();
    let map = map.ok_or_else(|| broken("it has no weight_map".to_owned()))?;
    let mut files: Vec<String> = map.values().filter_map(Json::as_str).map(str::to_owned).collect();
    files.sort_unstable();
    files.dedup();
    if files.iter().any(|file| file.contains('/')) {
        return Err(broken("it names files in other folders".to_owned()));
    }
    Ok(files)
}

/// Reads a safetensors file. A truncated file is an error that names it.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>, EngineError> {
    if !path.exists() {
        let message = "the file does not exist".to_owned();
        return Err(EngineError::Model { path: path.to_owned(), message });
    }
    Tensor::read_safetensors(path)
        .map_err(|error| EngineError::Model { path: path.to_owned(), message: error.to_string() })
}

/// Writes a safetensors file atomically: the old file stays until the new one is on disk. Tensors
/// are converted to `kind`, or keep their types.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: Vec<(String, Tensor)>,
    kind: Option<Kind>,
) -> Result<(), EngineError> {
    let on_host = |t: Tensor| {
        let kind = kind.unwrap_or_else(|| t.kind());
        t.detach().to_device(tch::Device::Cpu).to_kind(kind).contiguous()
    };
    let tensors: Vec<(String, Tensor)> =
        tensors.into_iter().map(|(name, tensor)| (name, on_host(tensor))).collect();
    let partial = path.with_extension("safetensors.partial");
    let failed = |source| EngineError::Io { what: "write the weights", source };
    Tensor::write_safetensors(&tensors, &partial)
        .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&partial, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiny;

    fn folder() -> (tempfile::TempDir, ModelConfig, Weights) {
        let (folder, config) = (tempfile::tempdir().unwrap(), tiny());
        let weights = Weights::initial(&config, 7).with_value_head();
        write(folder.path(), &config, &weights, Kind::Float).unwrap();
        (folder, config, weights)
    }

    #[test]
    fn written_checkpoint_is_read_back() {
        let (folder, config, weights) = folder();
        let Checkpoint { config: read_config, weights: read, base } = read(folder.path()).unwrap();
        assert_eq!(base, folder.path());
        assert_eq!(read_config, config);
        for ((name, a), (_, b)) in weights.named().into_iter().zip(read.named()) {
            assert_eq!(*a, *b, "{name}");
        }
        assert_eq!(weights.named().len(), read.named().len());
    }

    #[test]
    fn mismatched_weights_are_refused_by_name() {
        let (folder, config, weights) = folder();
        let path = folder.path().join(WEIGHTS);
        let refused = |tensors| {
            write_tensors(&path, tensors, Some(Kind::Float)).unwrap();
            read(folder.path()).unwrap_err().to_string()
        };
        let mut tensors = hugging_face(&config, &weights);
        tensors.push((
            "model.layers.0.self_attn.q_proj.bias".into(),
            Tensor::zeros([4], tch::kind::FLOAT_CPU),
        ));
        assert!(refused(tensors).contains("q_proj.bias is not supported"));
        let mut tensors = hugging_face(&config, &weights);
        let lost = tensors.remove(3).0;
        assert!(refused(tensors).contains(&format!("it has no tensor {lost}")));
        let mut tensors = hugging_face(&config, &weights);
        tensors[0].1 = tensors[0].1.narrow(0, 0, 60);
        assert!(refused(tensors).contains("has shape [60, 32]; config.json needs [61, 32]"));
    }

    #[test]
    fn truncated_file_is_named_in_the_error() {
        let (folder, ..) = folder();
        let path = folder.path().join(WEIGHTS);
        let bytes = fs::read(&path).unwrap();
        for keep in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
            fs::write(&path, &bytes[..keep]).unwrap();
            let error = read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("model.safetensors:"), "{keep}: {error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("the file does not exist"));
    }
}
