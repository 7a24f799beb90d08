//! Operators from which tasks are composed: their inputs, outputs and accepted values.
//!
//! A [`Catalogue`] is data, mined from the installed torch and transformers by
//! `python/warpwright_synth` (see `Miner`) and committed. [`Catalogue::torch`] and
//! [`Catalogue::transformers`] return the committed ones. An [`Entry`] is an operator under the
//! name that code uses; a [`Form`] is one way to call it, from which [`Form::outputs`] infers
//! shapes exactly.

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

/// The format version that this program reads and writes.
pub const CATALOGUE_FORMAT: u64 = 1;

const TORCH: &str = include_str!("../catalogue/torch.json");
const TRANSFORMERS: &str = include_str!("../catalogue/transformers.json");

/// The operators mined from one library.
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
    /// Operators that crashed or hung the probing process.
    pub quarantined: Vec<LeftOut>,
    /// Names that were examined and are not entries.
    pub left_out: Vec<LeftOut>,
}

/// A name without an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Name in code.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name in code: `torch.cumsum`, `torch.Tensor.view`, `torch.nn.Conv2d`.
    pub name: String,
    /// Function, method or module.
    pub kind: Kind,
    /// Its arguments, as text.
    pub signature: String,
    /// Import lines that a file needs in addition to `import torch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
    /// Number of tensor arguments.
    pub arity: Arity,
    /// Kind of work of its first form.
    pub class: Class,
    /// Kernels that torch dispatches the first form to, sorted.
    pub kernels: Vec<String>,
    /// Element type of the first output, by element type of the float inputs. Absent types are
    /// refused.
    pub dtypes: BTreeMap<String, String>,
    /// A standalone Python program that checks the shapes of its results.
    pub example: String,
    /// Ways to call it, the most common first; at least one.
    pub forms: Vec<Form>,
    /// Devices on which its results are deterministic.
    #[serde(default, skip_serializing_if = "Determinism::is_everywhere")]
    pub determinism: Determinism,
}

/// Kind of a Python object.
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

/// Minimum and maximum number of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arity {
    /// Minimum.
    pub min: usize,
    /// Maximum.
    pub max: usize,
}

/// Devices on which an operator is deterministic. An operator that is deterministic on none is not
/// an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// All devices, according to torch's documentation.
    #[default]
    All,
    /// The CPU only: torch documents nondeterminism on a GPU.
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

    /// Reads and validates a catalogue file.
    pub fn read(path: &Path) -> Result<Self, CatalogueError> {
        let text = fs::read_to_string(path)
            .map_err(|source| CatalogueError::Io { path: path.to_owned(), source })?;
        Self::from_json(&text)
    }

    /// Reads and validates a catalogue. A newer format is refused before its content is parsed.
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

    /// BLAKE3 of its JSON, which a proposal's provenance records.
    pub fn hash(&self) -> Result<String, CatalogueError> {
        let text = serde_json::to_vec(self)
            .map_err(|e| CatalogueError::Broken { path: String::new(), reason: e.to_string() })?;
        Ok(blake3::hash(&text).to_hex().to_string())
    }
}
