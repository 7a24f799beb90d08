//! Kernels without barriers that begin with pure declarations and then a bounds check or a
//! grid-stride loop. The launch can decide for a whole row of threads whether the check holds, and
//! run the row without it. Without the check the loop over the threads vectorises, also for
//! `float4`.
//!
//! The kernel gets three more modes, chosen by a constant in its hidden parameter: *ask* (evaluate
//! the check and return), *inside* (the check holds), and for loops *turn* (only the n-th
//! iteration). See `hostcuda/launch.h`.

use std::collections::HashSet;
use std::rc::Rc;

use crate::casts::Casts;
use crate::code::{Seq, changes, joined};
use crate::edit::Edits;
use crate::function::{Function, INDICES};
use crate::linear::{Kind, declared_type};
use crate::places::Places;

/// The modes in which a kernel can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The kernel has a check that can be evaluated separately.
    pub(crate) guard: bool,
    /// The check guards a loop that can run one iteration at a time.
    pub(crate) stride: bool,
    /// The check is affine in `threadIdx.x`: evaluating it for the first and the last thread is
    /// enough.
    pub(crate) ends: bool,
}

impl Shape {
    /// The template argument of `hostcuda::launch`.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.guard) | u32::from(self.stride) << 1 | u32::from(self.ends) << 2
    }
}

/// The shape of a kernel's body, with its edits, if it has one.
pub(crate) fn analyse<'a>(
    seq: &Seq<'a>,
    function: &Function<'a>,
    macros: &Macros<'a>,
    places: &mut Places<'a>,
    edits: &mut Edits,
) -> Shape {
    let Some((open, close)) = function.body else { return Shape::default() };
    let index_macros = &macros.indexed;
    let mut prologue =
        Prologue { affine: true, opaque: macros.opaque.clone(), ..Prologue::default() };
    let mut i = open + 1;
    while let Some(next) = prologue.declaration(seq, i, close, index_macros) {
        i = next;
        // For each the rest of the body is looked through.
        if prologue.names.len() > MAX_NAMES {
            return Shape::default();
        }
    }
    let shape = match seq.text(i) {
        "if" => guards(seq, i, &prologue, macros, edits),
        "for" => stride(seq, i, (open, close), &prologue, macros, places, edits),
        _ => None,
    };
    shape.unwrap_or_default()
}

/// Macros, whose contents this module does not see.
pub(crate) struct Macros<'a> {
    /// The conversions of conditions that are written twice.
    pub(crate) casts: Casts<'a>,
    /// Macros that mention an index.
    pub(crate) indexed: HashSet<&'a str>,
    /// Macros that mention any name.
    pub(crate) opaque: Rc<HashSet<&'a str>>,
}

/// Maximum number of names: no bounds check needs more.
const MAX_NAMES: usize = 100;

/// Pure declarations at the start of a body.
#[derive(Default)]
struct Prologue<'a> {
    names: HashSet<&'a str>,
    /// Names whose value depends on `threadIdx.x`.
    varying: HashSet<&'a str>,
    affine: bool,
    /// Macros that may hide anything.
    opaque: Rc<HashSet<&'a str>>,
}

const TYPES: [&str; 13] = [
    "int", "unsigned", "long", "size_t", "auto", "int64_t", "uint64_t", "int32_t", "uint32_t",
    "short", "float", "bool", "uint",
];

impl<'a> Prologue<'a> {
    /// `const T name = expression, other = expression;` at token `i`; the token past it.
    fn declaration(
        &mut self,
        seq: &Seq<'a>,
        mut i: usize,
        end: usize,
        index_macros: &HashSet<&str>,
    ) -> Option<usize> {
        let begin = i;
        while matches!(seq.text(i), "const" | "constexpr") || TYPES.contains(&seq.text(i)) {
            i += 1;
        }
        if i == begin {
            return None;
        }
        let narrow = (begin..i).any(|k| matches!(seq.text(k), "short" | "bool"));
        let stop = (i..end).find(|&k| seq.text(k) == ";")?;
        let mut names = Vec::new();
        for (from, to) in seq.split_commas(i, stop) {
            if names.len() > MAX_NAMES {
                return None;
            }
            if !seq.is_ident(from) || seq.text(from + 1) != "=" || !pure(seq, from + 2, to) {
                return None;
            }
            names.push((from, to));
        }
        for (from, to) in names {
            let name = seq.text(from);
            self.names.insert(name);
            if self.varies(seq, from + 2, to, index_macros) {
                self.varying.insert(name);
                self.affine &= !narrow && self.affine(seq, from + 2, to);
            }
        }
        Some(stop + 1)
    }

    /// Whether an expression does not vary, or is linear in `threadIdx.x` and does not wrap: sums
    /// and products of indices, dimensions and constants with at most one varying factor. A
    /// parameter may be negative, and an unsigned value would wrap.
    fn affine(&self, seq: &Seq<'_>, from: usize, to: usize) -> bool {
        let count = |what: &dyn Fn(usize) -> bool| (from..to).filter(|&i| what(i)).count();
        let varying = count(&|i| {
            let word = seq.text(i);
            word == "threadIdx" || self.varying.contains(word)
        });
        let casts = count(&|i| seq.text(i) == "static_cast");
        let opening = count(&|i| seq.text(i) == "<");
        let closing = count(&|i| seq.text(i) == ">");
        let names = |i: usize| {
            let word = seq.text(i);
            INDICES.contains(&word)
                || self.names.contains(word)
                || word == word.to_uppercase()
                || crate::linear::fits(word)
                || seq.text(i - 1) == "."
                || word == "std"
        };
        varying <= 1
            && casts == opening
            && casts == closing
            && (from..to).all(|i| {
                let word = seq.text(i);
                let name = seq.is_ident(i)
                    && !self.opaque.contains(word)
                    && (varying == 0 || names(i))
                    && !matches!(word, "char" | "short" | "bool" | "float")
                    && !word.ends_with("8_t")
                    && !word.ends_with("16_t");
                name || (word == "-" && varying == 0)
                    || matches!(word, "+" | "*" | "(" | ")" | "." | "<" | ">" | "::")
                    || word.starts_with(|c: char| c.is_ascii_digit())
            })
    }

    /// Comparisons of such expressions, joined by `&&` or `||`.
    fn affine_bounds(&self, seq: &Seq<'_>, from: usize, to: usize) -> bool {
        let mut first = from;
        for i in from..=to {
            let joint = matches!(seq.text(i), "<" | "<=" | ">" | ">=" | "&&" | "||");
            if i < to && !joint {
                continue;
            }
            // Brackets around a comparison, as in `(a < b) && (c < d)`, belong to no operand.
            let (mut a, mut b) = (first, i);
            while a < b && seq.text(a) == "(" && !balanced(seq, a, b) {
                a += 1;
            }
            while a < b && seq.text(b - 1) == ")" && !balanced(seq, a, b) {
                b -= 1;
            }
            if !self.affine(seq, a, b) {
                return false;
            }
            first = i + 1;
        }
        true
    }

    fn varies(&self, seq: &Seq<'_>, from: usize, to: usize, macros: &HashSet<&str>) -> bool {
        (from..to).any(|i| {
            let word = seq.text(i);
            self.varying.contains(word)
                || macros.contains(word)
                || (INDICES.contains(&word) && (word == "threadIdx"))
        })
    }
}

fn balanced(seq: &Seq<'_>, from: usize, to: usize) -> bool {
    let count = |bracket: &str| (from..to).filter(|&i| seq.text(i) == bracket).count();
    count("(") == count(")")
}

const CASTS: [&str; 8] =
    ["static_cast", "int", "size_t", "unsigned", "long", "int64_t", "float", "uint32_t"];

/// No assignment, no call but a cast, nothing read through a pointer.
fn pure(seq: &Seq<'_>, from: usize, to: usize) -> bool {
    from < to
        && (from..to).all(|i| match seq.text(i) {
            "[" | "=" | "++" | "--" | "+=" | "-=" | "*=" | "{" | "?" | "->" | ";" => false,
            "(" if i > from => {
                let before = seq.text(i - 1);
                !seq.is_ident(i - 1) || CASTS.contains(&before)
            }
            "*" => {
                // A product has an operand on its left.
                i > from
                    && (seq.is_ident(i - 1)
                        || matches!(seq.text(i - 1), ")" | "]")
                        || seq.text(i - 1).starts_with(|c: char| c.is_ascii_digit()))
            }
            _ => true,
        })
}

/// One or more `if (c) return;`, or `if (c) { ... }`.
fn guards<'a>(
    seq: &Seq<'a>,
    first: usize,
    prologue: &Prologue<'a>,
    macros: &Macros<'a>,
    edits: &mut Edits,
) -> Option<Shape> {
    let mut conditions = Vec::new();
    let mut inner = Vec::new();
    let mut ends = prologue.affine;
    let mut i = first;
    while seq.text(i) == "if" && seq.text(i + 1) == "(" {
        let close = seq.close(i + 1)?;
        if !pure(seq, i + 2, close) {
            break;
        }
        let after = returns(seq, close + 1);
        if after.is_none() && !conditions.is_empty() {
            break;
        }
        let condition = macros.casts.text(seq, i + 2, close);
        // Not with `==`, `!=` or a division, which are not monotone.
        ends &= prologue.affine_bounds(seq, i + 2, close);
        conditions.push(if after.is_some() { format!("!({condition})") } else { condition });
        let (open, joiner) = if after.is_some() { ("!", "&&") } else { ("", "||") };
        inner.push((seq.tokens[i + 1].end, format!("{open}hostcuda_index.inside() {joiner} (")));
        inner.push((seq.tokens[close].start, ")".to_owned()));
        match after {
            Some(next) => i = next,
            None => break,
        }
    }
    if conditions.is_empty() {
        return None;
    }
    // Affine bounds joined by `&&` hold in between when they hold at both ends; `||` only when it is
    // the negation of a conjunction, as in `if (x >= w || y >= h) return;`.
    let disjunction = conditions.iter().any(|c| {
        let negated = c.starts_with("!(");
        (c.contains("||") && !negated) || (c.contains("&&") && negated)
    });
    ends &= !disjunction;
    let all = conditions.iter().map(|c| format!("({c})")).collect::<Vec<_>>().join(" && ");
    edits.insert(seq.tokens[first].start, format!("HOSTCUDA_GUARD({all}) "));
    for (place, text) in inner {
        edits.insert(place, text);
    }
    Some(Shape { guard: true, stride: false, ends })
}

/// The token past `return;` or `{ return; }` at `i`.
fn returns(seq: &Seq<'_>, i: usize) -> Option<usize> {
    let braces = usize::from(seq.text(i) == "{");
    let simple = seq.text(i + braces) == "return" && seq.text(i + braces + 1) == ";";
    let closed = braces == 0 || seq.text(i + 3) == "}";
    (simple && closed && seq.text(i + 2 + 2 * braces) != "else").then_some(i + 2 + 2 * braces)
}

/// `for (T i = a; i < b; i += s) body` as the last statement.
fn stride<'a>(
    seq: &Seq<'a>,
    at: usize,
    body: (usize, usize),
    prologue: &Prologue<'a>,
    macros: &Macros<'a>,
    places: &mut Places<'a>,
    edits: &mut Edits,
) -> Option<Shape> {
    let (end, index_macros) = (body.1, &macros.indexed);
    let close = seq.close(at + 1)?;
    let mut i = at + 2;
    while TYPES.contains(&seq.text(i)) {
        i += 1;
    }
    let kind = joined(seq, at + 2, i);
    let name = seq.text(i);
    let first = (i..close).find(|&k| seq.text(k) == ";")?;
    let second = (first + 1..close).find(|&k| seq.text(k) == ";")?;
    let fits = !kind.is_empty()
        && seq.is_ident(i)
        && seq.text(i + 1) == "="
        && pure(seq, i + 2, first)
        && prologue.varies(seq, i + 2, first, index_macros)
        && pure(seq, first + 1, second)
        && seq.text(second + 1) == name
        && seq.text(second + 2) == "+="
        && pure(seq, second + 3, close)
        && !prologue.varies(seq, second + 3, close, index_macros);
    if !fits {
        return None;
    }
    // `i < b` with `i` on the left only: once false, false for ever.
    let less: Vec<usize> =
        (first + 1..second).filter(|&k| matches!(seq.text(k), "<" | "<=")).collect();
    let [less] = less.as_slice() else { return None };
    let rising = (first + 1..*less).all(|k| {
        seq.text(k) == name
            || matches!(seq.text(k), "+" | "*" | "(" | ")")
            || seq.text(k).starts_with(|c: char| c.is_ascii_digit())
    });
    let bound = (*less..second).all(|k| seq.text(k) != name);
    if !rising
        || !bound
        || (first + 1..second).any(|k| matches!(seq.text(k), "&&" | "||" | "-" | "!"))
    {
        return None;
    }
    let stop = if seq.text(close + 1) == "{" {
        seq.close(close + 1)? + 1
    } else {
        statement_end(seq, close + 1)?
    };
    if stop != end || !independent(seq, close + 1, stop, name, prologue) {
        return None;
    }
    let mut turned = Prologue { opaque: prologue.opaque.clone(), ..Prologue::default() };
    turned.varying.clone_from(&prologue.varying);
    turned.varying.insert(name);
    turned.names.clone_from(&prologue.names);
    turned.names.insert(name);
    let ends = prologue.affine
        && prologue.affine(seq, i + 2, first)
        && turned.affine_bounds(seq, first + 1, second);
    let whole = macros.casts.text(seq, i + 2, first);
    let step = macros.casts.text(seq, second + 3, close);
    let condition = macros.casts.text(seq, first + 1, second);
    let value = places.linear(seq, i + 2, first);
    let declared = declared_type(seq, at + 2).map(|(kind, _)| kind);
    let start = match (&value, declared) {
        (Some(value), Some(Kind::Int)) => value.text("int", &whole),
        (Some(value), Some(Kind::Wide)) if value.grown => value.text("int64_t", &whole),
        _ => whole.clone(),
    };
    let kind = if declared == Some(Kind::Auto) {
        format!("::hostcuda::Plain<decltype({whole})>")
    } else {
        kind
    };
    let at_turn = |kind: &str, start: &str| {
        format!("::hostcuda::at_turn<{kind}>({start}, hostcuda_index.turn, {step})")
    };
    let turn = format!("{kind} {name} = {};", at_turn(&kind, &start));
    // An unsigned loop variable has a signed shadow, for subscripts.
    let (mut shadow, mut shadow_step) = (String::new(), String::new());
    if declared == Some(Kind::Unsigned)
        && let Some(value) = &value
        && places.shadow(seq, i, body)
    {
        let start = at_turn("int", &value.text("int", &whole));
        shadow = format!("int hostcuda_{name} = {start};");
        shadow_step = format!(", hostcuda_{name} += (int)({step})");
    }
    // A thread whose first index is out of bounds takes no turn, also where a later one is not.
    let again = format!(
        "{condition} && (hostcuda_index.turn == 0 || hostcuda_index.enters([&] {{ {kind} {name} = {start}; return (bool)({condition}); }}))"
    );
    let source = seq.source;
    let range = (seq.tokens[at].start, seq.tokens[close].end);
    edits.replace(
        source,
        range.0,
        range.1,
        format!(
            "HOSTCUDA_ASK({{ {turn} hostcuda_index.answer({again}); }}) bool hostcuda_first = true; {shadow} \
             for ({turn} hostcuda_index.again(hostcuda_first, {again}); hostcuda_first = false, \
             {name} += ({step}){shadow_step})"
        ),
    );
    Some(Shape { guard: true, stride: true, ends })
}

/// The token past a statement without braces: a nested `if` or `for` with one, or up to `;`.
fn statement_end(seq: &Seq<'_>, mut i: usize) -> Option<usize> {
    while matches!(seq.text(i), "if" | "for" | "while") {
        i = seq.close(i + 1)? + 1;
    }
    if seq.text(i) == "{" {
        return Some(seq.close(i)? + 1);
    }
    let mut k = i;
    while seq.text(k) != ";" {
        if k >= seq.len() || seq.text(k) == "}" {
            return None;
        }
        k = if matches!(seq.text(k), "(" | "[" | "{") { seq.close(k)? } else { k } + 1;
    }
    (seq.text(k + 1) != "else").then_some(k + 1)
}

/// Whether iterations of the loop communicate only through memory.
fn independent(seq: &Seq<'_>, from: usize, to: usize, name: &str, prologue: &Prologue<'_>) -> bool {
    (from..to).all(|i| {
        let word = seq.text(i);
        if matches!(word, "return" | "break" | "goto") {
            return false;
        }
        if word != name && !prologue.names.contains(word) {
            return true;
        }
        matches!(seq.text(i - 1), "." | "->") || !changes(seq, i)
    })
}
