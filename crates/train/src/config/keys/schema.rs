//! The keys of a configuration, from the JSON schema of its types.

use serde_json::Value as Json;

use crate::config::Config;
use crate::config::kind::{Kind, required, resolve};

/// A key that a configuration may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    /// With its tables, e.g. `ppo.lr`.
    pub(crate) path: String,
    /// What it is, from its type.
    pub(crate) description: String,
    /// Type, for people.
    pub(crate) kind: String,
    /// Default as TOML; `None` where the key is needed or its description says what holds without it.
    pub(crate) default: Option<String>,
    pub(crate) is_required: bool,
    pub(crate) is_table: bool,
    /// Names in verl's configuration, with their tables.
    pub(crate) verl: Vec<String>,
    /// Names in Hugging Face's or TRL's configuration.
    pub(crate) hf: Vec<String>,
}

/// Every key, tables before their keys.
pub(crate) fn all() -> Vec<Key> {
    let schema = schemars::schema_for!(Config).to_value();
    let mut keys = Vec::new();
    walk(&schema, &schema, "", &mut keys);
    keys
}

fn walk(root: &Json, at: &Json, path: &str, keys: &mut Vec<Key>) {
    let at = resolve(root, at);
    let Some(properties) = at.get("properties").and_then(Json::as_object) else { return };
    for (name, property) in properties {
        let of = resolve(root, property);
        let is_table = of.get("properties").is_some();
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let names = |key: &str| -> Vec<String> {
            let all = property.get(key).and_then(Json::as_array).into_iter().flatten();
            all.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
        };
        let described = property.get("description").or_else(|| of.get("description"));
        let description = described.and_then(Json::as_str).unwrap_or_default();
        keys.push(Key {
            path: path.clone(),
            description: description.split_whitespace().collect::<Vec<_>>().join(" "),
            kind: Kind::of(root, property).name(root),
            default: property.get("default").filter(|_| !is_table).and_then(as_toml),
            is_required: required(at).any(|key| key == name),
            is_table,
            verl: names("x-verl"),
            hf: names("x-hf"),
        });
        walk(root, property, &path, keys);
    }
}

fn as_toml(json: &Json) -> Option<String> {
    match json {
        Json::Null | Json::Object(_) => None,
        Json::Array(all) => {
            let all: Option<Vec<String>> = all.iter().map(as_toml).collect();
            Some(format!("[{}]", all?.join(", ")))
        }
        other => Some(other.to_string()),
    }
}
