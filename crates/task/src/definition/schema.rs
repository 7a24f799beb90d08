//! The JSON of a definition and of a workload, as SOL-ExecBench and FlashInfer-Bench write it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object whose order counts, without duplicate keys.
#[derive(Clone, Debug)]
pub(super) struct Ordered<V>(pub(super) Vec<(String, V)>);

impl<V> Ordered<V> {
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Ordered<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<V>, A::Error> {
                let mut entries: Vec<(String, V)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, V>()? {
                    if entries.iter().any(|(name, _)| *name == key) {
                        return Err(A::Error::custom(format!("`{key}` occurs twice")));
                    }
                    if entries.len() >= super::MOST_ENTRIES {
                        let most = super::MOST_ENTRIES;
                        return Err(A::Error::custom(format!("more than {most} entries")));
                    }
                    entries.push((key, value));
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// `definition.json`. Fields that only describe are not read.
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    pub(super) name: String,
    pub(super) op_type: Option<String>,
    pub(super) description: Option<String>,
    pub(super) axes: Ordered<RawAxis>,
    pub(super) inputs: Ordered<RawTensor>,
    pub(super) outputs: Ordered<RawTensor>,
    pub(super) reference: Option<String>,
    pub(super) custom_inputs_entrypoint: Option<String>,
    pub(super) constraints: Option<Vec<String>>,
}

/// An axis: `const` with a value, `var`, or `expr` with an expression.
#[derive(Debug, Deserialize)]
pub(super) struct RawAxis {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) value: Option<u64>,
    pub(super) expression: Option<String>,
}

/// An input or an output.
#[derive(Debug, Deserialize)]
pub(super) struct RawTensor {
    /// Names of axes or numbers; `None` of a Python number.
    #[serde(deserialize_with = "null_or")]
    pub(super) shape: Option<Vec<String>>,
    pub(super) dtype: String,
    pub(super) description: Option<String>,
}

/// Null is a value here, and a missing field an error.
fn null_or<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    Option::deserialize(deserializer)
}

/// A line of `workload.jsonl`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    pub(super) uuid: String,
    pub(super) axes: Ordered<u64>,
    pub(super) inputs: Ordered<RawInput>,
    pub(super) tolerance: Option<RawTolerance>,
}

/// A line of FlashInfer-Bench: a trace, of which only the workload matters here.
#[derive(Debug, Deserialize)]
pub(super) struct RawTrace {
    pub(super) definition: String,
    pub(super) workload: RawWorkload,
}

/// Where an input's values come from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInput {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) value: Option<Value>,
    pub(super) path: Option<String>,
    pub(super) tensor_key: Option<String>,
}

/// How far a result may be from the reference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTolerance {
    pub(super) max_atol: Option<f64>,
    pub(super) max_rtol: Option<f64>,
    pub(super) required_matched_ratio: Option<f64>,
    /// A misspelling of the published data set, which its own evaluator does not read either.
    #[serde(rename = "required_match_ratio")]
    pub(super) _misspelt: Option<f64>,
    pub(super) max_error_cap: Option<f64>,
    #[serde(rename = "allow_negative_inf")]
    pub(super) _allow_negative_inf: Option<bool>,
}
