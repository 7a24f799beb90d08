//! Type aliases, and parameters declared with them.

use std::collections::HashMap;

use crate::code::{Scope, Seq, Unit};
use crate::ctype::{element, is_type_word, scalar};
use crate::signature::{Param, ParamKind};

/// A type with its aliases resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Words of a type of C or CUDA.
    pub(crate) base: String,
    /// Number of pointer levels.
    pub(crate) stars: usize,
    /// Whether the pointee is `const`.
    constant: bool,
}

/// Words in a declaration that do not change its type.
const SPECIFIERS: [&str; 18] = [
    "extern",
    "inline",
    "static",
    "__host__",
    "__device__",
    "__forceinline__",
    "__noinline__",
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "constexpr",
    "register",
    "typename",
    "auto",
    "enum",
    "struct",
];

/// The words of a type between two tokens, without attributes and namespace names.
pub(crate) fn plain<'a>(seq: &Seq<'a>, from: usize, to: usize) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut i = from;
    while i < to {
        let attribute =
            matches!(seq.text(i), "__attribute__" | "alignas" | "__align__" | "__declspec");
        if attribute && seq.text(i + 1) == "(" {
            i = seq.close(i + 1).unwrap_or(to);
        } else if seq.text(i) == "[" && seq.text(i + 1) == "[" {
            i = seq.close(i).unwrap_or(to);
        } else if seq.text(i) != "::" && seq.text(i + 1) != "::" {
            words.push(seq.text(i));
        }
        i += 1;
    }
    words
}

/// `using` and `typedef` of types that can cross into Python.
pub(crate) struct Aliases<'a> {
    kinds: HashMap<&'a str, Kind>,
}

impl<'a> Aliases<'a> {
    /// All aliases of a unit outside classes and functions. Each is resolved at its definition, so
    /// no chain is followed twice.
    pub(crate) fn read(unit: &Unit<'a>) -> Self {
        let seq = &unit.main;
        let mut aliases = Self { kinds: HashMap::new() };
        for i in 0..seq.len() {
            if unit.scopes[i] != Scope::Namespace || seq.statement(i) != i {
                continue;
            }
            let Some(end) = seq.semicolon(i) else { break };
            if end - i > 256 {
                continue;
            }
            match seq.text(i) {
                "using" if seq.text(i + 2) == "=" => aliases.add(seq, i + 1, i + 3, end),
                "typedef" => {
                    // `typedef unsigned char byte, *bytes;`
                    let parts = seq.split_commas(i + 1, end);
                    let first = parts.first().map_or(end, |part| part.1);
                    let stop = (i + 1..first).find(|&k| seq.text(k) == "*").unwrap_or(first - 1);
                    for (which, (from, to)) in parts.into_iter().enumerate() {
                        let Some(name) = to.checked_sub(1).filter(|name| seq.is_ident(*name))
                        else {
                            continue;
                        };
                        if which == 0 {
                            aliases.add(seq, name, from, name);
                        } else {
                            let mut words = plain(seq, i + 1, stop);
                            words.extend(plain(seq, from, name));
                            aliases.insert(seq.text(name), &words);
                        }
                    }
                }
                _ => {}
            }
        }
        aliases
    }

    fn add(&mut self, seq: &Seq<'a>, name: usize, from: usize, to: usize) {
        // Nothing that has its name in the middle, and nothing longer than a type.
        if to.saturating_sub(from) <= 64 && seq.is_ident(name) {
            self.insert(seq.text(name), &plain(seq, from, to));
        }
    }

    fn insert(&mut self, name: &'a str, words: &[&str]) {
        match self.resolve(words) {
            Some(kind) => self.kinds.insert(name, kind),
            None => self.kinds.remove(name),
        };
    }

    /// The resolved type of these words.
    pub(crate) fn resolve(&self, words: &[&str]) -> Option<Kind> {
        let stars = words.iter().filter(|w| **w == "*").count();
        let base: Vec<&str> =
            words.iter().copied().filter(|w| *w != "*" && !SPECIFIERS.contains(w)).collect();
        let before = words.iter().position(|w| *w == "*").unwrap_or(words.len());
        let constant = words[..before].contains(&"const");
        if let [one] = base.as_slice()
            && let Some(kind) = self.kinds.get(one)
        {
            let constant = if kind.stars > 0 { kind.constant } else { kind.constant || constant };
            return Some(Kind { base: kind.base.clone(), stars: kind.stars + stars, constant });
        }
        let base = base.join(" ");
        let base = match base.as_str() {
            "CUstream" => "cudaStream_t".to_owned(),
            "cudaError" => "cudaError_t".to_owned(),
            _ => base,
        };
        let known = matches!(base.as_str(), "cudaStream_t" | "cudaError_t")
            || scalar(&base).is_some()
            || element(&base).is_some();
        known.then_some(Kind { base, stars, constant })
    }

    /// A parameter between two tokens, or `None` for the stream.
    pub(crate) fn param(
        &self,
        seq: &Seq<'a>,
        index: usize,
        first: usize,
        last: usize,
    ) -> Result<Option<Param>, (String, String)> {
        let default = (first..last).find(|&i| seq.text(i) == "=").unwrap_or(last);
        let mut words = plain(seq, first, default);
        let written = words.join(" ");
        let refuse = |why: &str| Err((written.clone(), why.to_owned()));
        if words.iter().any(|w| matches!(*w, "&" | "&&")) {
            return refuse("a launcher parameter cannot be a reference: pass a pointer or a value");
        }
        if words.iter().any(|w| matches!(*w, "(" | "<" | "...")) {
            return refuse("a launcher parameter is a pointer, a number or the stream");
        }
        let mut stars = 0;
        if let Some(open) = words.iter().position(|w| *w == "[") {
            words.truncate(open);
            stars += 1;
        }
        // The last word is the name, unless the words are all part of the type. It may have a type's, as in
        // `int half`.
        let base: Vec<&str> =
            words.iter().copied().filter(|w| *w != "*" && !SPECIFIERS.contains(w)).collect();
        let named = base.split_last().is_some_and(|(name, rest)| {
            !rest.is_empty()
                && (!is_type_word(name)
                    || (self.resolve(&base).is_none() && self.resolve(rest).is_some()))
        });
        let name = if named { base[base.len() - 1].to_owned() } else { format!("arg{index}") };
        if named && let Some(at) = words.iter().rposition(|w| *w == name) {
            words.remove(at);
        }
        let Some(kind) = self.resolve(&words) else {
            return refuse(UNKNOWN);
        };
        stars += kind.stars;
        if stars == 0 && kind.base == "cudaStream_t" {
            return Ok(None);
        }
        let what = match stars {
            0 => scalar(&kind.base),
            1 => element(&kind.base)
                .map(|element| ParamKind::Pointer { element, constant: kind.constant }),
            _ => return refuse("a launcher parameter cannot be a pointer to a pointer"),
        };
        let Some(what) = what else { return refuse(UNKNOWN) };
        let c_type: Vec<&str> = words
            .iter()
            .map(|word| self.kinds.get(word).map_or(*word, |kind| &kind.base))
            .collect();
        Ok(Some(Param { name, c_type: c_type.join(" "), kind: what }))
    }
}

const UNKNOWN: &str = "unknown type at the extern \"C\" boundary: use pointers to numbers, integers of any \
     size, float, double, bool and a trailing cudaStream_t";
