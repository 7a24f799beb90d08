//! Decides where an index may be signed.
//!
//! On a GPU `threadIdx` and the other indices are unsigned: `threadIdx.x - 1` wraps, and so does a
//! hash of an index. So they are unsigned here too. But the host compiler knows only of signed sums
//! that they do not wrap, and otherwise does not vectorise the loop over the threads. This module
//! finds the places where signedness makes no difference:
//!
//! * An `int` that is set to an expression linear in `threadIdx.x` is set to its value for thread 0,
//!   computed as on a GPU, plus a small multiple of `threadIdx.x`: `blockIdx.x * blockDim.x + 0u`
//!   and `threadIdx.x`. Only that last sum is signed.
//! * A 64-bit index is such a sum if it is made of indices and dimensions alone, which do not wrap.
//! * An `unsigned` keeps its type; a signed shadow of it is used in subscripts.
//! * A subscript made of sums and products is signed: the two differ only where the index is beyond
//!   2^31 elements.
//!
//! Everything else keeps its text, and is unsigned.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

use crate::code::{Macro, Seq, Unit, changes, joined};
use crate::edit::Edits;
use crate::function::{Function, INDICES};
use crate::linear::{Kind, Linear, declared_type, fits, linear};

/// Maximum number of rewritten declarations per function: for each, the function's body is
/// searched. Further ones keep their text.
const MAX_NAMES: usize = 100;

/// Maximum bytes of an expression that is written out because its name is not yet known. Each link
/// of a chain of names may double it.
const MAX_BASE: usize = 200;

/// Facts about a file's macros.
#[derive(Default)]
pub(crate) struct Known<'a> {
    /// Macros that are not a single operand, or that mention an index.
    pub(crate) odd: HashSet<&'a str>,
    /// The definition of each macro that has exactly one.
    defined: HashMap<&'a str, Option<usize>>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(macros: &[Macro<'a>], odd: HashSet<&'a str>) -> Self {
        let mut defined = HashMap::new();
        for (i, m) in macros.iter().enumerate() {
            defined.entry(m.name).and_modify(|at| *at = None).or_insert(Some(i));
        }
        Self { odd, defined }
    }
}

/// Facts about one function's variables.
#[derive(Default)]
pub(crate) struct Places<'a> {
    /// Linear in `threadIdx.x`: the name of the value for thread 0, and the factor.
    pub(crate) linear: HashMap<&'a str, (String, i64)>,
    /// Unsigned variables that have a signed shadow.
    shadows: HashSet<&'a str>,
    macros: Rc<Known<'a>>,
    /// Parameters and variables that are declared as pointers.
    pointers: HashSet<&'a str>,
    /// Whether the function mixes bits, perhaps for random numbers.
    hashes: bool,
    /// Whether a lambda names its captures: it cannot see shadows.
    captures: bool,
}

/// Rewrites declarations between two tokens, and records the declared names.
pub(crate) fn declarations<'a>(
    unit: &Unit<'a>,
    function: &Function<'a>,
    macros: &Rc<Known<'a>>,
    edits: &mut Edits,
) -> Places<'a> {
    let seq = &unit.main;
    let (open, close) = function.body.unwrap_or_default();
    let mut places = Places {
        macros: Rc::clone(macros),
        hashes: (open..close).any(|k| matches!(seq.text(k), "^" | "^=")),
        captures: (open..close).any(|k| {
            seq.text(k) == "["
                && !subscript(seq, k)
                && seq.text(k + 1) != "["
                && seq.text(k - 1) != "["
                && seq.text(k + 1) != "]"
                && !(matches!(seq.text(k + 1), "=" | "&") && seq.text(k + 2) == "]")
        }),
        pointers: pointers(seq, function),
        ..Places::default()
    };
    let (mut i, mut left) = (open + 1, MAX_NAMES);
    while i < close {
        let begins = left > 0 && matches!(seq.text(i - 1), ";" | "{" | "}");
        if begins && let Some(next) = places.declaration(unit, i, (open, close), &mut left, edits) {
            i = next;
            continue;
        }
        if seq.text(i) == "for" && seq.text(i + 1) == "(" {
            let _ = step(seq, i, edits);
        }
        i += 1;
    }
    places
}

impl<'a> Places<'a> {
    /// `T name = expression, other = expression;` at token `i`; the token past it.
    fn declaration(
        &mut self,
        unit: &Unit<'a>,
        i: usize,
        (open, end): (usize, usize),
        left: &mut usize,
        edits: &mut Edits,
    ) -> Option<usize> {
        let seq = &unit.main;
        let (kind, first) = declared_type(seq, i)?;
        let stop = statement_end(seq, first, end)?;
        let (mut after, mut named) = (String::new(), Vec::new());
        for (from, to) in seq.split_commas(first, stop) {
            let name = seq.text(from);
            if !seq.is_ident(from) || seq.text(from + 1) != "=" || *left == 0 {
                continue;
            }
            *left -= 1;
            let lasts = only_declaration(seq, from, open, end);
            let subscripted = self.in_subscript(seq, name, stop, end);
            let hidden = self.hidden(unit, from + 2, to);
            let Some(value) = hidden.or_else(|| self.linear(seq, from + 2, to)) else { continue };
            let (start, last) = (seq.tokens[from + 2].start, seq.tokens[to - 1].end);
            match kind {
                Kind::Int if !self.hashes || subscripted => {
                    let text = value.text("int", &joined(seq, from + 2, to));
                    edits.replace(seq.source, start, last, text);
                }
                Kind::Wide if value.grown => {
                    let text = value.text("int64_t", &joined(seq, from + 2, to));
                    edits.replace(seq.source, start, last, text);
                }
                Kind::Unsigned | Kind::Auto if lasts && subscripted && !self.captures => {
                    self.shadows.insert(name);
                    let _ = write!(
                        after,
                        " const auto hostcuda_{name} = ::hostcuda::shadow({name}, {}, {});",
                        value.base,
                        value.rest()
                    );
                }
                _ => {}
            }
            if lasts && kind != Kind::Wide && !self.captures {
                let _ = write!(after, " const auto hostcuda_0{name} = {};", value.base);
                named.push((name, (format!("hostcuda_0{name}"), value.factor)));
                // Its name stands behind the whole declaration, of which the rest may mention it.
                if value.base.len() <= MAX_BASE {
                    self.linear.insert(name, (format!("({})", value.base), value.factor));
                }
            }
        }
        self.linear.extend(named);
        if !after.is_empty() {
            edits.insert(seq.tokens[stop].end, after);
        }
        Some(stop + 1)
    }

    /// The expression between two tokens, if it is linear in `threadIdx.x` and depends on it.
    pub(crate) fn linear(&self, seq: &Seq<'a>, from: usize, to: usize) -> Option<Linear> {
        linear(seq, from, to, &self.linear, &self.macros.odd).filter(|l| l.factor != 0)
    }

    /// The same for a macro without parameters, as `GLOBAL_INDEX`.
    fn hidden(&self, unit: &Unit<'a>, from: usize, to: usize) -> Option<Linear> {
        let seq = &unit.main;
        let called = seq.text(from + 1) == "(" && seq.text(from + 2) == ")" && to == from + 3;
        let alone = to == from + 1 || called;
        let at = self.macros.defined.get(seq.text(from)).copied().flatten().filter(|_| alone)?;
        let found = &unit.macros[at];
        self.linear(&found.body, 0, found.body.len())
    }

    /// Adds a shadow for a loop variable; false if it cannot have one.
    pub(crate) fn shadow(&mut self, seq: &Seq<'a>, at: usize, body: (usize, usize)) -> bool {
        let others =
            (body.0..body.1).any(|k| k != at && seq.text(k) == seq.text(at) && declares(seq, k));
        let fits = !self.captures && !others && self.in_subscript(seq, seq.text(at), at, body.1);
        if fits {
            self.shadows.insert(seq.text(at));
        }
        fits
    }

    fn in_subscript(&self, seq: &Seq<'a>, name: &str, from: usize, to: usize) -> bool {
        (from..to).any(|k| {
            (seq.text(k) == name && self.offset(seq, k))
                || seq.text(k) == "["
                    && subscript(seq, k)
                    && self
                        .plain(seq, k)
                        .is_some_and(|close| (k..close).any(|j| seq.text(j) == name))
        })
    }

    /// Whether the name at `at` is added to a pointer, alone or times a number.
    fn offset(&self, seq: &Seq<'a>, at: usize) -> bool {
        at > 2
            && seq.text(at - 1) == "+"
            && self.pointers.contains(seq.text(at - 2))
            && (matches!(seq.text(at - 3), "(" | "," | "=" | "return" | "{")
                || (seq.text(at - 3) == ")" && seq.text(at - 4) == "*"))
            && (matches!(seq.text(at + 1), ")" | ";" | "," | "+")
                || (seq.text(at + 1) == "*"
                    && seq.text(at + 2).bytes().all(|b| b.is_ascii_digit())
                    && matches!(seq.text(at + 3), ")" | ";" | "," | "+")))
    }

    /// The end of a subscript made of names, numbers, sums and products.
    fn plain(&self, seq: &Seq<'a>, open: usize) -> Option<usize> {
        let close = seq.close(open)?;
        let fine = (open + 1..close).all(|i| {
            let word = seq.text(i);
            if seq.is_ident(i) {
                return seq.text(i + 1) != "(" && !self.macros.odd.contains(word) && !fits(word);
            }
            matches!(word, "+" | "-" | "*" | "(" | ")" | ".")
                || word.starts_with(|c: char| c.is_ascii_digit())
        });
        (fine && open + 1 < close).then_some(close)
    }

    /// Makes subscripts between two tokens signed if they mention an index.
    pub(crate) fn subscripts(&self, seq: &Seq<'a>, (open, end): (usize, usize), edits: &mut Edits) {
        for at in open..end {
            let token = &seq.tokens[at];
            if self.shadows.contains(seq.text(at)) && self.offset(seq, at) {
                let text = format!("hostcuda_{}", seq.text(at));
                edits.replace(seq.source, token.start, token.end, text);
            }
            if seq.text(at) != "[" || !subscript(seq, at) {
                continue;
            }
            let Some(close) = self.plain(seq, at) else { continue };
            let indexed = (at..close)
                .any(|i| INDICES.contains(&seq.text(i)) || self.shadows.contains(seq.text(i)));
            if !indexed {
                continue;
            }
            for i in at + 1..close {
                let (word, token) = (seq.text(i), &seq.tokens[i]);
                if !seq.is_ident(i) || matches!(seq.text(i - 1), "." | "::" | "->") {
                    continue;
                }
                if INDICES.contains(&word) || self.shadows.contains(word) {
                    edits.replace(seq.source, token.start, token.end, format!("hostcuda_{word}"));
                } else if !matches!(seq.text(i + 1), "." | "::" | "->") {
                    let text = format!("::hostcuda::as_signed({word})");
                    edits.replace(seq.source, token.start, token.end, text);
                }
            }
        }
    }
}

/// Names declared as pointers: parameters, and `float* p = ...;`.
fn pointers<'a>(seq: &Seq<'a>, function: &Function<'a>) -> HashSet<&'a str> {
    let qualifier = |word: &str| word == "const" || word.trim_matches('_') == "restrict";
    let starred = |mut i: usize| {
        while qualifier(seq.text(i - 1)) {
            i -= 1;
        }
        seq.text(i - 1) == "*"
    };
    let (open, close) = function.body.unwrap_or_default();
    let mut names: HashSet<&'a str> = (function.open + 2..function.close)
        .filter(|&i| seq.is_ident(i) && starred(i) && !qualifier(seq.text(i)))
        .filter(|&i| matches!(seq.text(i + 1), "," | ")" | "="))
        .map(|i| seq.text(i))
        .collect();
    for i in open + 1..close {
        if !matches!(seq.text(i - 1), ";" | "{" | "}") {
            continue;
        }
        let end = (i..close).find(|&k| matches!(seq.text(k), "=" | ";" | "(" | "[" | "{" | ","));
        if let Some(end) = end.filter(|&k| seq.text(k) == "=" && k > i + 1)
            && seq.is_ident(end - 1)
            && starred(end - 1)
        {
            names.insert(seq.text(end - 1));
        }
    }
    if names.len() > MAX_NAMES {
        return HashSet::new();
    }
    // One of this name may be something else in another block.
    let others = |name: &str| {
        (open..close)
            .any(|i| seq.text(i) == name && seq.is_ident(i - 1) && declares(seq, i) && !starred(i))
    };
    names.retain(|name| !others(name));
    names
}

/// `for (int i = a; i < b; i += blockDim.x)`: the step is signed too.
fn step(seq: &Seq<'_>, at: usize, edits: &mut Edits) -> Option<()> {
    let close = seq.close(at + 1)?;
    let (kind, name) = declared_type(seq, at + 2)?;
    let first = statement_end(seq, name, close)?;
    let second = statement_end(seq, first + 1, close)?;
    let fits = kind == Kind::Int
        && seq.text(first + 1) == seq.text(name)
        && matches!(seq.text(first + 2), "<" | "<=")
        && seq.text(second + 1) == seq.text(name)
        && seq.text(second + 2) == "+="
        && (second + 3..close).any(|k| INDICES.contains(&seq.text(k)))
        && (second + 3..close).all(|k| {
            (seq.is_ident(k) && seq.text(k + 1) != "(")
                || matches!(seq.text(k), "." | "*" | "+" | "(" | ")")
                || seq.text(k).starts_with(|c: char| c.is_ascii_digit())
        });
    if fits {
        edits.insert(seq.tokens[second + 3].start, "(int)(");
        edits.insert(seq.tokens[close].start, ")");
    }
    Some(())
}

/// Whether the bracket follows something that can be subscripted.
fn subscript(seq: &Seq<'_>, at: usize) -> bool {
    let before = if at == 0 { "" } else { seq.text(at - 1) };
    let word =
        at > 0 && seq.is_ident(at - 1) && !matches!(before, "return" | "auto" | "delete" | "case");
    word || matches!(before, ")" | "]")
}

/// The `;` that ends the statement at `i`.
fn statement_end(seq: &Seq<'_>, mut i: usize, end: usize) -> Option<usize> {
    while i < end {
        match seq.text(i) {
            ";" => return Some(i),
            "(" | "[" | "{" => i = seq.close(i)?,
            _ => {}
        }
        i += 1;
    }
    None
}

/// Whether the name at `at` is declared once in this function and never changes.
fn only_declaration(seq: &Seq<'_>, at: usize, open: usize, end: usize) -> bool {
    let name = seq.text(at);
    (open..end)
        .filter(|&i| i != at && seq.text(i) == name && !matches!(seq.text(i - 1), "." | "->"))
        .all(|i| !declares(seq, i) && !changes(seq, i))
}

/// A name after a type.
fn declares(seq: &Seq<'_>, i: usize) -> bool {
    let before = seq.text(i - 1);
    if seq.is_ident(i - 1) {
        return !matches!(before, "return" | "case" | "else" | "do" | "throw" | "goto");
    }
    let typed = |k: usize| matches!(seq.text(k), "auto" | "const") || fits(seq.text(k));
    // `float* i`, `auto& i`, `vector<int> i`.
    (matches!(before, "*" | "&") && (typed(i - 2) || matches!(seq.text(i + 1), ":" | "{")))
        || (before == ">" && matches!(seq.text(i + 1), "=" | ";" | "{"))
        || (before == "," && matches!(seq.text(i + 1), "=" | "{"))
}
