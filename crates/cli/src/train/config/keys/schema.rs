//! The keys of a configuration, from the JSON schema of its types.

use serde_json::Value as Json;

use crate::train::config::Config;

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

/// Follows references and takes the one alternative that is not null.
pub(crate) fn resolve<'a>(root: &'a Json, mut at: &'a Json) -> &'a Json {
    loop {
        if let Some(reference) = at.get("$ref").and_then(Json::as_str) {
            let Some(found) = reference.strip_prefix('#').and_then(|path| root.pointer(path))
            else {
                return at;
            };
            at = found;
        } else if let Some(some) = at.get("anyOf").and_then(Json::as_array) {
            let mut alternatives = some.iter().filter(|one| one["type"] != "null");
            match (alternatives.next(), alternatives.next()) {
                (Some(only), None) => at = only,
                _ => return at,
            }
        } else {
            return at;
        }
    }
}

fn walk(root: &Json, at: &Json, path: &str, keys: &mut Vec<Key>) {
    let at = resolve(root, at);
    let Some(properties) = at.get("properties").and_then(Json::as_object) else { return };
    let required =
        |name: &str| at["required"].as_array().is_some_and(|all| all.iter().any(|key| key == name));
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
            kind: kind(root, property),
            default: property.get("default").filter(|_| !is_table).and_then(as_toml),
            is_required: required(name),
            is_table,
            verl: names("x-verl"),
            hf: names("x-hf"),
        });
        walk(root, property, &path, keys);
    }
}

/// The values of an enumeration; empty for other types.
pub(crate) fn choices(of: &Json) -> Vec<&str> {
    match (of.get("enum"), of.get("oneOf")) {
        (Some(values), _) => {
            values.as_array().into_iter().flatten().filter_map(Json::as_str).collect()
        }
        (None, Some(some)) => {
            let some = some.as_array().into_iter().flatten();
            some.flat_map(|one| {
                let many = one.get("enum").and_then(Json::as_array).into_iter().flatten();
                many.chain(one.get("const"))
            })
            .filter_map(Json::as_str)
            .collect()
        }
        _ => Vec::new(),
    }
}

/// The schema's name of a type, e.g. `integer`; `any` if it has none.
pub(crate) fn type_name(of: &Json) -> &str {
    match &of["type"] {
        Json::String(name) => name.as_str(),
        Json::Array(names) => {
            names.iter().filter_map(Json::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ => "any",
    }
}

/// A type for people: `integer`, `list of string`, or the values of an enumeration.
fn kind(root: &Json, at: &Json) -> String {
    let at = resolve(root, at);
    let values = choices(at);
    if !values.is_empty() {
        return values.iter().map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(", ");
    }
    match type_name(at) {
        "array" => match (at.get("items"), at.get("prefixItems").and_then(Json::as_array)) {
            (_, Some(items)) => format!("list of {} {}s", items.len(), kind(root, &items[0])),
            (Some(items), None) => format!("list of {}", kind(root, items)),
            _ => "list".to_owned(),
        },
        "object" => "table".to_owned(),
        other => other.to_owned(),
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
