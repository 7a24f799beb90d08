//! The composable forms of one or more catalogues.

use std::collections::BTreeMap;

use crate::catalogue::{Catalogue, CatalogueError, Class, Determinism, Domain, Dtype, Entry, Form};

use super::error::ComposeError;

/// Operators for composition, sorted by kind of work.
#[derive(Clone, Debug)]
pub struct Library {
    entries: BTreeMap<String, Entry>,
    /// By class, the operators with the forms of that class.
    by_class: BTreeMap<Class, Vec<Choice>>,
    hash: String,
}

/// An operator among those of its class.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) name: String,
    pub(super) forms: Vec<usize>,
    /// Its sampling weight in the class.
    pub(super) weight: u32,
}

/// Operators with fitting forms that are excluded, because a GPU runs them too slowly for a task,
/// or not at all (`torch._C._dispatch_has_kernel_for_dispatch_key` of torch 2.11).
const LEFT_OUT: &[&str] = &[
    // Factorises each matrix of a batch on its own: 384 of 112 x 112 take 1.1 s on an H200.
    "torch.linalg.pinv",
    // There is no kernel for CUDA.
    "torch.histogram",
    "torch.histogramdd",
];

/// Weight of an operator by its module: layers are common, Bessel functions are rare. Every weight
/// is positive.
fn weight(name: &str) -> u32 {
    let rare = ["torch.special.", "torch.fft.", "torch.linalg.", "transformers."];
    if name.starts_with("torch.nn.") {
        8
    } else if rare.iter().any(|p| name.starts_with(p)) {
        1
    } else {
        4
    }
}

impl Library {
    /// The composable operators of these catalogues: deterministic, floating-point, and sensitive
    /// to their inputs.
    pub fn new(catalogues: &[Catalogue]) -> Result<Self, CatalogueError> {
        let mut hasher = blake3::Hasher::new();
        let mut entries = BTreeMap::new();
        let mut by_class: BTreeMap<Class, Vec<Choice>> = BTreeMap::new();
        for catalogue in catalogues {
            hasher.update(catalogue.hash()?.as_bytes());
            for entry in &catalogue.entries {
                let wanted = entry.determinism == Determinism::All
                    && !LEFT_OUT.contains(&entry.name.as_str());
                let mut classes: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
                for (i, form) in entry.forms.iter().enumerate() {
                    if wanted && composable(form) {
                        classes.entry(form.class).or_default().push(i);
                    }
                }
                for (class, forms) in classes {
                    let (name, weight) = (entry.name.clone(), weight(&entry.name));
                    by_class.entry(class).or_default().push(Choice { name, forms, weight });
                }
                entries.insert(entry.name.clone(), entry.clone());
            }
        }
        Ok(Self { entries, by_class, hash: hasher.finalize().to_hex().to_string() })
    }

    /// Restricts the library to these operators, by the catalogue's names. Refuses an operator that
    /// cannot be composed.
    pub fn only(mut self, names: &[String]) -> Result<Self, ComposeError> {
        for classes in self.by_class.values_mut() {
            classes.retain(|choice| names.contains(&choice.name));
        }
        self.by_class.retain(|_, classes| !classes.is_empty());
        let has = |name: &&String| self.by_class.values().flatten().any(|c| c.name == **name);
        match names.iter().find(|name| !has(name)) {
            Some(name) => Err(ComposeError::Unknown { name: name.clone() }),
            None => Ok(self),
        }
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// A form by its entry's name and number.
    pub fn form(&self, name: &str, form: usize) -> Option<&Form> {
        self.entries.get(name)?.forms.get(form)
    }

    /// Operators with that kind of work.
    pub(super) fn of_class(&self, class: Class) -> &[Choice] {
        self.by_class.get(&class).map_or(&[], Vec::as_slice)
    }

    /// Number of operators that can be composed.
    pub fn len(&self) -> usize {
        let names = self.by_class.values().flatten().map(|choice| &choice.name);
        names.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Whether the library is empty.
    pub fn is_empty(&self) -> bool {
        self.by_class.is_empty()
    }

    /// BLAKE3 of the catalogues' hashes.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Whether the grammar can compose a form: its first output is a float tensor with at least one
/// dimension, it takes floats, and its integer inputs are indices.
fn composable(form: &Form) -> bool {
    let output = &form.outputs[0];
    output.dtype == "float32"
        && !output.dims.is_empty()
        && !form.coarse
        && form.class != Class::Factorisation
        && form.inputs.iter().any(|input| input.dtype == Dtype::Float32)
        // A person reads them as masks and indices; what else is an integer would be arbitrary.
        && form.inputs.iter().all(|input| input.domain != Domain::Integer)
        && form.inputs.len() <= 4
        // Only the first result is used, and often it is made of the first tensor only.
        && (form.inputs.len() == 1
            || form.outputs.len() == 1
            || matches!(form.class, Class::Attention | Class::Recurrent))
}
