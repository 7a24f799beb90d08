//! Adapters on disk, as PEFT has them: `adapter_config.json` and `adapter_model.safetensors`, beside no weights
//! of the model that they are for.
//!
//! Matrices that read the same input (queries, keys, values; the two halves of the MLP) have one adapter here:
//! in the files each of their parts has the same `lora_A` and its own rows of `lora_B`.

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

/// Where the model lies that the adapters in a folder are for; `None` where there are no adapters.
pub(crate) fn base(folder: &Path) -> Result<Option<PathBuf>, EngineError> {
    let path = folder.join(CONFIG);
    if !path.exists() {
        return Ok(None);
    }
    let json = described(&path)?;
    let base = json["base_model_name_or_path"].as_str().filter(|base| !base.is_empty());
    let none = || broken(&path, "it names no base_model_name_or_path");
    base.map(|base| Some(folder.join(base))).ok_or_else(none)
}

fn broken(path: &Path, message: impl Into<String>) -> EngineError {
    EngineError::Model { path: path.to_owned(), message: message.into() }
}

fn described(path: &Path) -> Result<Json, EngineError> {
    let text = fs::read_to_string(path)
        .map_err(|source| EngineError::Io { what: "read what adapters are", source })?;
    serde_json::from_str(&text).map_err(|error| broken(path, error.to_string()))
}

/// Puts the adapters of a folder to the weights of their model.
pub(crate) fn attach(
    folder: &Path,
    config: &ModelConfig,
    weights: &mut Weights,
) -> Result<(), EngineError> {
    let (path, json) = (folder.join(WEIGHTS), described(&folder.join(CONFIG))?);
    let number = |key: &str| {
        let number = json[key].as_f64().filter(|number| *number > 0.0);
        number.ok_or_else(|| broken(&folder.join(CONFIG), format!("{key} is no number above 0")))
    };
    if json["peft_type"] != "LORA" {
        return Err(broken(&folder.join(CONFIG), "peft_type is not LORA"));
    }
    // Each would be another computation, or numbers that are left out of it.
    for key in ["use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"] {
        let value = &json[key];
        let is_absent =
            value.is_null() || *value == false || *value == json!({}) || *value == json!([]);
        if !is_absent {
            return Err(broken(&folder.join(CONFIG), format!("{key} is not computed")));
        }
    }
    let (rank, alpha) = (number("r")?, number("lora_alpha")?);
    let mut given: HashMap<String, Tensor> = read_tensors(&path)?.into_iter().collect();
    let mut take = |part: &Part, side: &str| {
        let name = name(part, side);
        let found = given.remove(&name);
        found.ok_or_else(|| broken(&path, format!("there is no {name}")))
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
                    let message = format!("{} is another than its neighbour's", name(part, "A"));
                    return Err(broken(&path, message));
                }
            }
            let (a, b) = (a.unwrap_or_default(), Tensor::cat(&b, 0));
            let (rows, columns) = (matrix.size()[0], matrix.size()[1]);
            let fits = a.size() == [rank as i64, columns] && b.size() == [rows, rank as i64];
            if !fits {
                let message = format!("{:?} times {:?} does not fit", b.size(), a.size());
                return Err(broken(&path, format!("{}: {message}", name(&parts[0], "A"))));
            }
            all.push(Adapter { a, b, scale: alpha / rank });
        }
        layer.adapters = <[Adapter; 4]>::try_from(all).ok();
    }
    match given.keys().min() {
        None => Ok(()),
        Some(left) => Err(broken(&path, format!("{left} is not computed"))),
    }
}

/// Writes the weights' adapters; `base` is where the rest of the model lies.
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
    let failed = |source| EngineError::Io { what: "write what adapters are", source };
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join(CONFIG), format!("{described:#}\n")).map_err(failed)?;
    write_tensors(&folder.join(WEIGHTS), tensors, Some(Kind::Float))
}

fn name(part: &Part, side: &str) -> String {
    let stem = part.name.trim_end_matches(".weight");
    format!("base_model.model.{stem}.lora_{side}.weight")
}
