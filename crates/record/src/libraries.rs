//! Header libraries that candidates for a GPU may use where they are allowed.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A library of device code. cuBLAS for matrix products and cuDNN for convolutions are always allowed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// CUTLASS and CuTe: `cutlass/`, `cute/`.
    Cutlass,
    /// The parts of CCCL with algorithms: `cub/`, `thrust/`. libcu++ (`cuda/`) belongs to CUDA C++ and is always
    /// allowed.
    Cccl,
}

impl Library {
    /// All, in order.
    pub const ALL: [Self; 2] = [Self::Cutlass, Self::Cccl];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cutlass => "cutlass",
            Self::Cccl => "cccl",
        }
    }

    /// Its parts, for people.
    pub const fn parts(self) -> &'static str {
        match self {
            Self::Cutlass => "CUTLASS and CuTe",
            Self::Cccl => "cub and thrust",
        }
    }

    /// Folders of its headers.
    pub const fn folders(self) -> [&'static str; 2] {
        match self {
            Self::Cutlass => ["cutlass/", "cute/"],
            Self::Cccl => ["cub/", "thrust/"],
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Library {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|library| library.name() == text);
        found.ok_or_else(|| format!("`{text}` is no library: cutlass or cccl"))
    }
}

/// Which libraries are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LibrarySet {
    cutlass: bool,
    cccl: bool,
    /// Whether none are, whatever a task allows.
    forbids: bool,
}

impl LibrarySet {
    /// Whether it has the library.
    pub const fn contains(self, library: Library) -> bool {
        match library {
            Library::Cutlass => self.cutlass,
            Library::Cccl => self.cccl,
        }
    }

    /// None, also where a task allows some: `--libraries none`.
    pub const fn forbidden() -> Self {
        Self { cutlass: false, cccl: false, forbids: true }
    }

    /// Whether it is [`Self::forbidden`].
    pub const fn forbids(self) -> bool {
        self.forbids
    }

    /// All sets, but for the one that forbids.
    pub const fn all() -> [Self; 4] {
        [
            Self { cutlass: false, cccl: false, forbids: false },
            Self { cutlass: false, cccl: true, forbids: false },
            Self { cutlass: true, cccl: false, forbids: false },
            Self { cutlass: true, cccl: true, forbids: false },
        ]
    }

    /// Those of both sets; none if one of them forbids.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        if self.forbids || other.forbids {
            return Self::forbidden();
        }
        Self {
            cutlass: self.cutlass || other.cutlass,
            cccl: self.cccl || other.cccl,
            forbids: false,
        }
    }

    /// What a run with this set allows, for people: a task may add to a set that does not forbid.
    pub fn rule(self) -> String {
        if self.forbids {
            return "none, whatever a task allows".to_owned();
        }
        self.to_string()
    }

    /// The libraries, in order.
    pub fn list(self) -> Vec<Library> {
        Library::ALL.into_iter().filter(|library| self.contains(*library)).collect()
    }
}

impl<'l> FromIterator<&'l Library> for LibrarySet {
    fn from_iter<T: IntoIterator<Item = &'l Library>>(libraries: T) -> Self {
        let mut set = Self::default();
        for library in libraries {
            match library {
                Library::Cutlass => set.cutlass = true,
                Library::Cccl => set.cccl = true,
            }
        }
        set
    }
}

impl fmt::Display for LibrarySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.list().into_iter().map(Library::name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

impl FromStr for LibrarySet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::forbidden());
        }
        let mut all = Vec::new();
        for name in text.split(',') {
            let library = name.parse::<Library>().map_err(|_| {
                if name == "none" {
                    return "`none` stands alone: write `none`, or names of libraries".to_owned();
                }
                format!("`{name}` is no library: write `cutlass`, `cccl`, `cutlass,cccl` or `none`")
            })?;
            all.push(library);
        }
        Ok(all.iter().collect())
    }
}

/// The libraries of a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Libraries {
    /// Those that the candidate was allowed to use.
    pub allowed: Vec<Library>,
    /// Those of which the compiler read headers; empty if the candidate does not compile.
    pub used: Vec<Library>,
}

impl Libraries {
    /// Whether none was allowed, and none used.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_names_are_read_and_listed_in_order() {
        for library in Library::ALL {
            assert_eq!(library.name().parse(), Ok(library));
        }
        assert!("cublas".parse::<Library>().is_err());
        let set: LibrarySet = [Library::Cccl, Library::Cutlass, Library::Cccl].iter().collect();
        assert_eq!((set.list(), set.to_string()), (Library::ALL.to_vec(), "cutlass,cccl".into()));
        assert_eq!(LibrarySet::default().to_string(), "none");
    }

    #[test]
    fn none_forbids_what_another_set_allows() {
        let forbidden: LibrarySet = "none".parse().unwrap();
        let both: LibrarySet = "cutlass,cccl".parse().unwrap();
        assert_eq!(both.list(), Library::ALL);
        for set in LibrarySet::all() {
            assert_eq!((forbidden.and(set), set.and(forbidden)), (forbidden, forbidden));
            assert_eq!(set.and(both), both, "positive control");
            assert_ne!(set.rule(), forbidden.rule());
        }
        assert!(forbidden.forbids() && forbidden.list().is_empty() && !both.forbids());
        for text in ["", "none,cccl", "cccl,none", "cublas", "None", "cccl,"] {
            assert!(text.parse::<LibrarySet>().is_err(), "{text}");
        }
    }
}
