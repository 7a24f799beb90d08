//! LoRA adapters on disk in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`,
//! without the base model's weights.
//!
//! Matrices with the same input (query, key and value; the two halves of the MLP) share one adapter
//! here. In the files each of them has the same `lora_A` and its own rows of `lora_B`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Value as Json, json};
use tch::{Kind, Tensor};

use crate::checkpoint::{Part, matrices, read_tensors, write_tensors};
use crate::error::EngineError;
use crate::weights::{Adapter, Weights};
use warpwright_learn::model_config::ModelConfig;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// Folder of the base model of the adapters in a folder; `None` without adapters.
pub(crate) fn base(folder: &Path) -> Result<Option<PathBuf>, EngineError> {
    let path = folder.join(CONFIG);
    if !path.exists() {
        return Ok(None);
    }
    let json = described(&path)?;
    let base = json["base_model_name_or_path"].as_str().filter(|base| !base.is_empty());
    let none = || broken(&path, "it has no base_model_name_or_path");
    base.map(|base| Some(folder.join(base))).ok_or_else(none)
}

fn broken(path: &Path, message: impl Into<String>) -> EngineError {
    EngineError::Model { path: path.to_owned(), message: message.into() }
}

fn described(path: &Path) -> Result<Json, EngineError> {
    let text = fs::read_to_string(path)
        .map_err(|source| EngineError::Io { what: "read the adapters' config", source })?;
    serde_json::from_str(&text).map_err(|error| broken(path, error.to_string()))
}

/// Attaches a folder's adapters to the weights of their base model.
pub(crate) fn attach(
    folder: &Path,
    config: &ModelConfig,
    weights: &mut Weights,
) -> Result<(), EngineError> {
    let (path, json) = (folder.join(WEIGHTS), described(&folder.join(CONFIG))?);
    let number = |key: &str| {
        let number = json[key].as_f64().filter(|number| *number > 0.0);
        number
            .ok_or_else(|| broken(&folder.join(CONFIG), format!("{key} must be a number above 0")))
    };
    if json["peft_type"] != "LORA" {
        return Err(broken(&folder.join(CONFIG), "peft_type is not LORA"));
    }
    // Each of these would change the computation or leave weights out.
    for key in ["use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"] {
        let value = &json[key];
        let is_absent =
            value.is_null() || *value == false || *value == json!({}) || *value == json!([]);
        if !is_absent {
            return Err(broken(&folder.join(CONFIG), format!("{key} is not supported")));
        }
    }
    let (rank, alpha) = (number("r")?, number("lora_alpha")?);
    let mut given: HashMap<String, Tensor> = read_tensors(&path)?.into_iter().collect();
    let mut take = |part: &Part, side: &str| {
        let name = name(part, side);
        let found = given.remove(&name);
        found.ok_or_else(|| broken(&path, format!("it has no tensor {name}")))
    };
    for (layer, number) in weights.layers.iter_mut().zip(0..) {
        let mut all = Vec::new();
        for (parts, matrix) in matrices(config, number).iter().zip(layer.matrices()) {
            let (mut a, mut b) = (None, Vec::new());
            for part in parts {
                let down = take(part, "A")?.to_kind(Kind::Float);
                b.push(take(part, "B")?.to_kind(Kind::Float));
                let same = a.get_or_insert_with(|| down.shallow_clone());
                if *same != down {
                    let message = format!(
                        "{} must equal that of the matrices with the same input",
                        name(part, "A")
                    );
                    return Err(broken(&path, message));
                }
            }
            let (a, b) = (a.unwrap_or_default(), Tensor::cat(&b, 0));
            let (rows, columns) = (matrix.size()[0], matrix.size()[1]);
            let fits = a.size() == [rank as i64, columns] && b.size() == [rows, rank as i64];
            if !fits {
                let (b_shape, a_shape) = (b.size(), a.size());
                let message = format!("the shapes {b_shape:?} and {a_shape:?} do not fit");
                return Err(broken(&path, format!("{}: {message}", name(&parts[0], "A"))));
            }
            all.push(Adapter { a, b, scale: alpha / rank });
        }
        layer.adapters = <[Adapter; 4]>::try_from(all).ok();
    }
    match given.keys().min() {
        None => Ok(()),
        Some(left) => Err(broken(&path, format!("the tensor {left} is not supported"))),
    }
}

/// Writes the weights' adapters; `base` is the base model's folder.
pub(crate) fn write(
    folder: &Path,
    config: &ModelConfig,
    weights: &Weights,
    base: &Path,
) -> Result<(), EngineError> {
    let (mut tensors, mut targets, mut shape) = (Vec::new(), Vec::new(), (0, 0.0));
    for (layer, number) in weights.layers.iter().zip(0..) {
        let adapters = layer.adapters.iter().flatten();
        for (parts, adapter) in matrices(config, number).iter().zip(adapters) {
            let mut from = 0;
            for part in parts {
                let rows = adapter.b.narrow(0, from, part.shape[0]);
                tensors.push((name(part, "A"), adapter.a.shallow_clone()));
                tensors.push((name(part, "B"), rows));
                from += part.shape[0];
                targets.extend(part.name.rsplit('.').nth(1).map(str::to_owned));
            }
            shape = (adapter.a.size()[0], adapter.scale);
        }
    }
    targets.sort_unstable();
    targets.dedup();
    let (rank, scale) = shape;
    let described = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base,
        "r": rank, "lora_alpha": scale * rank as f64, "lora_dropout": 0.0, "bias": "none",
        "target_modules": targets, "fan_in_fan_out": false, "inference_mode": true,
    });
    let failed = |source| EngineError::Io { what: "write the adapters' config", source };
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join(CONFIG), format!("{described:#}\n")).map_err(failed)?;
    write_tensors(&folder.join(WEIGHTS), tensors, Some(Kind::Float))
}

fn name(part: &Part, side: &str) -> String {
    let stem = part.name.trim_end_matches(".weight");
    format!("base_model.model.{stem}.lora_{side}.weight")
}
