//! Operators that tasks are composed of: what they take, what they give, and for which values.
//!
//! A [`Catalogue`] is data, mined from the installed torch and transformers by `python/warpwright_synth`
//! (see `Miner`) and committed; [`Catalogue::torch`] and [`Catalogue::transformers`] are the committed
//! ones. An [`Entry`] is an operator under the name that code calls it by; a [`Form`] is one way to call
//! it, from which [`Form::outputs`] infers shapes exactly.

mod error;
mod form;
mod size;
mod validate;

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};

pub use error::{CatalogueError, ShapeError};
pub(crate) use form::shape;
pub use form::{Class, Domain, Dtype, Form, Input, Output, Parameter, Symbol};
pub use size::{Size, SizeError, Sizes};

/// The format that this program reads and writes.
pub const CATALOGUE_FORMAT: u64 = 1;

const TORCH: &str = include_str!("../catalogue/torch.json");
const TRANSFORMERS: &str = include_str!("../catalogue/transformers.json");

/// What was mined from one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// [`CATALOGUE_FORMAT`].
    pub format: u64,
    /// `torch` or `transformers`.
    pub source: String,
    /// Versions it was mined from: `python`, `torch`, `transformers`.
    pub versions: BTreeMap<String, String>,
    /// Sorted by name, each once.
    pub entries: Vec<Entry>,
    /// Operators that ended or hung the process that probed them.
    pub quarantined: Vec<LeftOut>,
    /// Names that were seen and are no entries.
    pub left_out: Vec<LeftOut>,
}

/// A name without an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// As code calls it.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// As code calls it: `torch.cumsum`, `torch.Tensor.view`, `torch.nn.Conv2d`.
    pub name: String,
    /// What it is in Python.
    pub kind: Kind,
    /// Its arguments, for people.
    pub signature: String,
    /// Lines that a file needs beside `import torch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
    /// Number of tensors that it takes.
    pub arity: Arity,
    /// Kind of work of its first form.
    pub class: Class,
    /// Kernels that torch dispatches the first form to, sorted.
    pub kernels: Vec<String>,
    /// Element type of the first output by that of the float inputs; those absent are refused.
    pub dtypes: BTreeMap<String, String>,
    /// Python that runs on its own and checks the shapes of what it gets.
    pub example: String,
    /// Ways to call it, the most usual first; at least one.
    pub forms: Vec<Form>,
    /// Where it gives the same result each time.
    #[serde(default, skip_serializing_if = "Determinism::is_everywhere")]
    pub determinism: Determinism,
}

/// What an operator is in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A function.
    Function,
    /// A method of a tensor.
    Method,
    /// A class that is constructed and then called.
    Module,
}

/// Fewest and most tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arity {
    /// Fewest.
    pub min: usize,
    /// Most.
    pub max: usize,
}

/// Where an operator gives the same result each time. What does so nowhere is no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// Everywhere, as far as torch documents.
    #[default]
    All,
    /// On the CPU; torch documents that it does not on a GPU.
    Cpu,
}

impl Determinism {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_everywhere(&self) -> bool {
        *self == Self::All
    }
}

impl Catalogue {
    /// The committed catalogue of torch.
    pub fn torch() -> Result<Self, CatalogueError> {
        Self::from_json(TORCH)
    }

    /// The committed catalogue of transformers' model code.
    pub fn transformers() -> Result<Self, CatalogueError> {
        Self::from_json(TRANSFORMERS)
    }

    /// Reads and validates a file.
    pub fn read(path: &Path) -> Result<Self, CatalogueError> {
        let text = fs::read_to_string(path)
            .map_err(|source| CatalogueError::Io { path: path.to_owned(), source })?;
        Self::from_json(&text)
    }

    /// Reads and validates. A newer format is refused before anything else of it is looked at.
    pub fn from_json(text: &str) -> Result<Self, CatalogueError> {
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let broken = |path: String, reason: String| CatalogueError::Broken { path, reason };
        let head: Head =
            serde_json::from_str(text).map_err(|e| broken("format".into(), e.to_string()))?;
        if head.format != CATALOGUE_FORMAT {
            return Err(CatalogueError::Newer { found: head.format, known: CATALOGUE_FORMAT });
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let catalogue: Self = serde_path_to_error::deserialize(&mut json)
            .map_err(|e| broken(e.path().to_string(), e.inner().to_string()))?;
        json.end().map_err(|e| broken("end".into(), e.to_string()))?;
        validate::check(&catalogue)?;
        Ok(catalogue)
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
        found.ok().map(|i| &self.entries[i])
    }

    /// BLAKE3 of its JSON: what a proposal says it was composed from.
    pub fn hash(&self) -> Result<String, CatalogueError> {
        let text = serde_json::to_vec(self)
            .map_err(|e| CatalogueError::Broken { path: String::new(), reason: e.to_string() })?;
        Ok(blake3::hash(&text).to_hex().to_string())
    }
}
