//! Maps calls to operators of the catalogue.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalogue::{Catalogue, Form};

use super::super::library::Library;

/// Prefix in `left_out` for a name that is an alias.
const ALIAS: &str = "an alias: ";

/// Names of operators, including aliases that the catalogue knows.
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    entries: BTreeSet<String>,
    /// Entry of each alias.
    aliases: BTreeMap<String, String>,
}

impl Vocabulary {
    pub(super) fn new(catalogues: &[Catalogue]) -> Self {
        let entries = catalogues.iter().flat_map(|c| &c.entries).map(|e| e.name.clone());
        let left_out = catalogues.iter().flat_map(|c| &c.left_out);
        let aliases = left_out.filter_map(|left| {
            Some((left.name.clone(), left.reason.strip_prefix(ALIAS)?.to_owned()))
        });
        Self { entries: entries.collect(), aliases: aliases.collect() }
    }

    /// The operator of `called`, by its full name in Python: an entry of that name if it exists,
    /// else the entry of an alias. A method is `torch.Tensor.NAME`.
    pub(super) fn operator(&self, called: &str) -> Option<&str> {
        let names = spellings(called);
        names
            .iter()
            .find_map(|name| self.entries.get(name))
            .or_else(|| names.iter().find_map(|name| Some(self.aliases.get_key_value(name)?.0)))
            .map(String::as_str)
    }

    /// The first form of an operator that [`Vocabulary::operator`] returned.
    pub(super) fn form<'l>(&self, library: &'l Library, operator: &str) -> Option<&'l Form> {
        library.form(self.aliases.get(operator).map_or(operator, String::as_str), 0)
    }
}

/// Possible names of one operator, `called` first.
fn spellings(called: &str) -> Vec<String> {
    let folders = ["torch", "torch.Tensor", "torch.nn.functional", "torch.special"];
    let (folder, name) = called.rsplit_once('.').unwrap_or_default();
    // In place is none other.
    let name = name.strip_suffix('_').filter(|name| !name.is_empty()).unwrap_or(name);
    let first = format!("{folder}.{name}");
    if folders.contains(&folder) {
        let others = folders.iter().filter(|other| **other != folder);
        std::iter::once(first).chain(others.map(|other| format!("{other}.{name}"))).collect()
    } else {
        vec![first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_an_operator_map_to_one_name() {
        let vocabulary = Vocabulary::new(&[Catalogue::torch().unwrap()]);
        for (called, expected) in [
            ("torch.nn.Conv2d", Some("torch.nn.Conv2d")),
            ("torch.relu", Some("torch.nn.functional.relu")),
            ("torch.Tensor.relu_", Some("torch.nn.functional.relu")),
            ("torch.nn.functional.relu", Some("torch.nn.functional.relu")),
            ("torch.Tensor.exp", Some("torch.exp")),
            ("torch.Tensor.mean", Some("torch.mean")),
            ("torch.linalg.norm", Some("torch.linalg.norm")),
            ("torch.linalg.relu", None),
            ("torch.Tensor.size", None),
            ("math.sqrt", None),
            ("relu", None),
            ("", None),
        ] {
            assert_eq!(vocabulary.operator(called), expected, "{called}");
        }
    }
}
