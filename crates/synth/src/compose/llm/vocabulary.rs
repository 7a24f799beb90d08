//! Which operator of the catalogue a call is.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalogue::{Catalogue, Form};

use super::super::library::Library;

/// What `left_out` says of a name that is another's.
const ALIAS: &str = "an alias: ";

/// Names of operators, those included that the catalogue knows as other names of entries.
#[derive(Clone, Debug)]
pub(super) struct Vocabulary {
    entries: BTreeSet<String>,
    /// Of a name that is no entry, the entry.
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

    /// The operator that `called` is, by its full name in Python: that of an entry where there is one,
    /// else one that the catalogue knows as an alias. A method is `torch.Tensor.NAME`.
    pub(super) fn operator(&self, called: &str) -> Option<&str> {
        let names = spellings(called);
        names
            .iter()
            .find_map(|name| self.entries.get(name))
            .or_else(|| names.iter().find_map(|name| Some(self.aliases.get_key_value(name)?.0)))
            .map(String::as_str)
    }

    /// The first form of an operator that [`Vocabulary::operator`] gave.
    pub(super) fn form<'l>(&self, library: &'l Library, operator: &str) -> Option<&'l Form> {
        library.form(self.aliases.get(operator).map_or(operator, String::as_str), 0)
    }
}

/// Names that one operator may have: what `called` says first.
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
    fn every_spelling_of_an_operator_is_one() {
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
