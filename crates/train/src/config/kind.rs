//! What a JSON schema says of values. The keys of the reference and the check of values both read it here.

use serde_json::Value as Json;

/// The values that a schema allows.
pub(super) enum Kind<'s> {
    Choice(Vec<&'s str>),
    Table,
    /// A list of fixed length, with the schema of each entry.
    Tuple(&'s [Json]),
    List(&'s Json),
    Integer {
        min: i128,
        max: i128,
    },
    Number,
    String,
    Boolean,
    Any,
}

impl<'s> Kind<'s> {
    /// Reads a schema; its references lie in `root`.
    pub(super) fn of(root: &'s Json, schema: &'s Json) -> Self {
        let schema = resolve(root, schema);
        let choices = choices(schema);
        if !choices.is_empty() {
            return Self::Choice(choices);
        }
        match type_name(schema) {
            "object" => Self::Table,
            "array" => match (schema.get("prefixItems").and_then(Json::as_array), &schema["items"])
            {
                (Some(entries), _) => Self::Tuple(entries),
                (None, entry) => Self::List(entry),
            },
            "integer" => {
                let bound = |name: &str| schema.get(name).and_then(Json::as_i64).map(i128::from);
                // TOML's integers have 64 bits.
                let max = match schema.get("format").and_then(Json::as_str) {
                    Some("uint32") => i128::from(u32::MAX),
                    Some("int32") => i128::from(i32::MAX),
                    _ => i128::from(i64::MAX),
                };
                let min = bound("minimum").unwrap_or(i128::from(i64::MIN));
                Self::Integer { min, max: bound("maximum").unwrap_or(max) }
            }
            "number" => Self::Number,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            _ => Self::Any,
        }
    }

    /// The type in the reference: `integer`, `list of string`, or the values of an enumeration.
    pub(super) fn name(&self, root: &Json) -> String {
        match self {
            Self::Choice(choices) => in_quotes(choices),
            Self::Table => "table".to_owned(),
            Self::Tuple(entries) => {
                format!("list of {} {}s", entries.len(), first(root, entries).name(root))
            }
            Self::List(entry) => format!("list of {}", Kind::of(root, entry).name(root)),
            Self::Integer { .. } => "integer".to_owned(),
            Self::Number => "number".to_owned(),
            Self::String => "string".to_owned(),
            Self::Boolean => "boolean".to_owned(),
            Self::Any => "any".to_owned(),
        }
    }

    /// The allowed values in an error: `a whole number of at least 0`, `a list of strings`.
    pub(super) fn expected(&self, root: &Json) -> String {
        match self {
            Self::Choice(choices) => one_of(choices),
            Self::Table => "a table".to_owned(),
            Self::Tuple(entries) => {
                let count = match entries.len() {
                    2 => "two".to_owned(),
                    3 => "three".to_owned(),
                    count => count.to_string(),
                };
                format!("a list of {count} {}", first(root, entries).plural())
            }
            Self::List(entry) => match Kind::of(root, entry) {
                Kind::Choice(choices) => format!("a list; each entry is {}", one_of(&choices)),
                entry => format!("a list of {}", entry.plural()),
            },
            Self::Integer { min, .. } if *min > i128::from(i64::MIN) => {
                format!("a whole number of at least {min}")
            }
            Self::Integer { .. } => "a whole number".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::String => "a string".to_owned(),
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Any => "a value".to_owned(),
        }
    }

    fn plural(&self) -> &'static str {
        match self {
            Self::Table => "tables",
            Self::Tuple(_) | Self::List(_) => "lists",
            Self::Integer { .. } => "whole numbers",
            Self::Number => "numbers",
            Self::String | Self::Choice(_) => "strings",
            Self::Boolean => "`true` or `false`",
            Self::Any => "values",
        }
    }
}

/// Follows references and takes the one alternative that is not null.
pub(super) fn resolve<'s>(root: &'s Json, mut at: &'s Json) -> &'s Json {
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

/// The keys that a table must have.
pub(super) fn required(schema: &Json) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str)
}

/// The values of an enumeration; empty for other types.
fn choices(of: &Json) -> Vec<&str> {
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
fn type_name(of: &Json) -> &str {
    match &of["type"] {
        Json::String(name) => name.as_str(),
        Json::Array(names) => {
            names.iter().filter_map(Json::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ => "any",
    }
}

/// The first entry of a list of fixed length.
fn first<'s>(root: &'s Json, entries: &'s [Json]) -> Kind<'s> {
    entries.first().map_or(Kind::Any, |entry| Kind::of(root, entry))
}

fn one_of(choices: &[&str]) -> String {
    let all = in_quotes(choices);
    if choices.len() == 1 { all } else { format!("one of {all}") }
}

/// `"a", "b"`.
fn in_quotes(choices: &[&str]) -> String {
    let all: Vec<String> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
    all.join(", ")
}
