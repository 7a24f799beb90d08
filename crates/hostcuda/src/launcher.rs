//! Signatures of `extern "C"` launchers, which callers outside C++ need; for both devices.

use std::collections::HashSet;

use crate::alias::{Aliases, plain};
use crate::brackets::TOO_DEEP;
use crate::code::{Seq, Unit};
use crate::expand::{Which, expand};
use crate::include::{Flat, Resolve, flatten};
use crate::refusal::Refusal;
use crate::signature::{Launcher, Returns};
use crate::unsupported::MAX_REFUSALS;

/// Finds the `extern "C"` functions that `source` defines, in order. For a file without local
/// headers.
pub fn launchers(source: &str, file: &str) -> Result<Vec<Launcher>, Vec<Refusal>> {
    launchers_with(source, file, &|_, _| None)
}

/// Finds the `extern "C"` functions that a file defines, directly, through a macro or in a local
/// header, in order.
///
/// Skipped are functions that are only declared, that no other file can call, or that are in a
/// branch of `#if` that is certainly not compiled. If the condition is unknown, the function is
/// listed, and the library may lack it. Parameters of a type that cannot cross the boundary (a
/// struct by value, a reference, a function pointer) are refused by name.
pub fn launchers_with(
    source: &str,
    file: &str,
    resolve: &Resolve<'_>,
) -> Result<Vec<Launcher>, Vec<Refusal>> {
    let flat = expand(flatten(source, file, resolve)?, Which::All)?;
    let unit = Unit::new(&flat.text, &flat.dead);
    if let Some(at) = unit.too_deep() {
        return Err(vec![flat.refusal(at, at.text(&flat.text).to_owned(), TOO_DEEP)]);
    }
    let (seq, flat) = (&unit.main, &flat);
    let aliases = Aliases::read(&unit);
    let mut scan =
        Scan { seq, flat, aliases, found: Vec::new(), names: HashSet::new(), refusals: Vec::new() };
    scan.run();
    if scan.refusals.is_empty() { Ok(scan.found) } else { Err(scan.refusals) }
}

struct Scan<'a> {
    seq: &'a Seq<'a>,
    flat: &'a Flat,
    aliases: Aliases<'a>,
    found: Vec<Launcher>,
    /// Names found so far: of two definitions in branches of `#if` the first counts.
    names: HashSet<&'a str>,
    refusals: Vec<Refusal>,
}

/// Words before a parenthesis that are not a function's name.
const NOT_NAMES: [&str; 8] = [
    "__launch_bounds__",
    "__attribute__",
    "__declspec",
    "alignas",
    "__align__",
    "noexcept",
    "decltype",
    "throw",
];

impl<'a> Scan<'a> {
    fn text(&self, i: usize) -> &'a str {
        self.seq.text(i)
    }

    fn run(&mut self) {
        let mut i = 0;
        while i + 1 < self.seq.len() {
            if self.text(i) == "extern" && self.text(i + 1) == "\"C\"" {
                if self.text(i + 2) == "{" {
                    i = self.block(i + 3);
                } else {
                    i = self.declaration(i + 2);
                }
            } else {
                i += 1;
            }
        }
    }

    /// Declarations up to the closing brace of `extern "C" {`.
    fn block(&mut self, mut i: usize) -> usize {
        // Namespaces and blocks inside belong to it.
        let mut inner = 0;
        while i < self.seq.len() {
            let linkage = self.text(i) == "extern" && self.text(i + 1).starts_with('"');
            match self.text(i) {
                "}" if inner == 0 => break,
                "}" => {
                    inner -= 1;
                    i += 1;
                }
                ";" => i += 1,
                "namespace" | "inline" if self.namespace(i).is_some() => {
                    inner += 1;
                    i = self.namespace(i).unwrap_or(i) + 1;
                }
                "extern" if linkage && self.text(i + 2) == "{" && self.text(i + 1) == "\"C\"" => {
                    inner += 1;
                    i += 3;
                }
                // Other linkage: no launcher.
                "extern" if linkage && self.text(i + 2) == "{" => i = self.past(i + 2),
                "extern" if linkage => i = self.declaration(i + 2),
                _ => i = self.declaration(i),
            }
        }
        i + 1
    }

    /// The brace that opens the namespace declared at a token.
    fn namespace(&self, i: usize) -> Option<usize> {
        let at = i + usize::from(self.text(i) == "inline");
        let brace = (at..at + 12).find(|&k| matches!(self.text(k), "{" | ";" | "(" | "="))?;
        (self.text(at) == "namespace" && self.text(brace) == "{").then_some(brace)
    }

    /// Index past the bracket that closes the one at `open`.
    fn past(&self, open: usize) -> usize {
        self.seq.close(open).map_or(self.seq.len(), |close| close + 1)
    }

    /// One declaration from `start`; returns the index past it.
    fn declaration(&mut self, start: usize) -> usize {
        let mut i = start;
        let mut name = None;
        while i < self.seq.len() {
            match self.text(i) {
                ";" => return i + 1,
                // An attribute.
                "[" => i = self.past(i) - 1,
                "=" => {
                    while i < self.seq.len() && self.text(i) != ";" {
                        i = if self.text(i) == "{" { self.past(i) } else { i + 1 };
                    }
                    return i + 1;
                }
                // A definition; without a name it is a struct or an enum.
                "{" => {
                    if let Some((at, from, to)) = name {
                        self.define(start, at, from, to, i);
                    }
                    return self.past(i);
                }
                // The end of a block that this is not part of.
                "}" => return i,
                "(" if name.is_none()
                    && i > start
                    && self.seq.is_ident(i - 1)
                    && !NOT_NAMES.contains(&self.text(i - 1)) =>
                {
                    let end = self.past(i);
                    name = Some((i - 1, i + 1, end - 1));
                    i = end;
                    continue;
                }
                "(" => {
                    i = self.past(i);
                    continue;
                }
                _ => {}
            }
            i += 1;
        }
        i
    }

    fn refuse(&mut self, at: usize, construct: String, reason: &str) {
        if let Some(token) = self.seq.tokens.get(at)
            && self.refusals.len() < MAX_REFUSALS
        {
            self.refusals.push(self.flat.refusal(token, construct, reason));
        }
    }

    /// The function named at a token, with its parameters between two others and its body at `body`.
    fn define(&mut self, start: usize, at: usize, from: usize, to: usize, body: usize) {
        let all: Vec<&str> = (start..body).map(|i| self.text(i)).collect();
        let has = |word: &str| all.contains(&word);
        let device = has("__device__") && !has("__host__");
        // Nobody outside its file can call it.
        let hidden = has("static") || has("inline") || has("__forceinline__") || has("\"hidden\"");
        if has("__global__") || device || hidden || !self.names.insert(self.text(at)) {
            return;
        }
        let trailing = (to..body).find(|&i| self.text(i) == "->").map(|i| (i + 1, body));
        let (first, last) = trailing.unwrap_or((start, at));
        let words = plain(self.seq, first, last);
        let returns = self.aliases.resolve(&words).filter(|_| !words.contains(&"*"));
        let returns = match returns.as_ref().map(|kind| (kind.stars, kind.base.as_str())) {
            Some((0, "void")) => Returns::Void,
            Some((0, "int" | "int32_t" | "signed" | "signed int")) => Returns::Int,
            Some((0, "cudaError_t")) => Returns::CudaError,
            _ => {
                let why = "an extern \"C\" launcher returns void, int or cudaError_t";
                self.refuse(start, format!("{} {}", words.join(" "), self.text(at)), why);
                return;
            }
        };
        let mut params = Vec::new();
        let mut has_stream = false;
        for (index, (first, last)) in self.seq.split_commas(from, to).into_iter().enumerate() {
            if first == last || (last - first == 1 && self.text(first) == "void") {
                continue;
            }
            if has_stream {
                let why = "the stream must be the last parameter of a launcher";
                self.refuse(first, "cudaStream_t".to_owned(), why);
                return;
            }
            match self.aliases.param(self.seq, index, first, last) {
                Ok(Some(param)) => params.push(param),
                Ok(None) => has_stream = true,
                Err((construct, reason)) => {
                    self.refuse(first, construct, &reason);
                    return;
                }
            }
        }
        let name = self.text(at).to_owned();
        let line = self.flat.origin(self.seq.tokens[at].line).1;
        self.found.push(Launcher { name, returns, params, has_stream, line });
    }
}

#[cfg(test)]
mod tests;
