//! Conversions in device code: a GPU's saturate, where the host's are undefined.
//!
//! `(int)x`, `static_cast<int>(x)` and `int(x)` become `::hostcuda::to<int>(x)`, which converts
//! numbers with a fraction as a GPU does and everything else as before. Initialisers of integers
//! are rewritten too: `int i = x * 0.5f;`.

use std::collections::HashSet;

use crate::code::Seq;
use crate::edit::{Edits, Ranges};
use crate::linear::fits;

/// The context needed to recognise a conversion.
pub(crate) struct Casts<'a> {
    /// Template parameters that are types.
    types: HashSet<&'a str>,
    /// Text that is already replaced.
    taken: Ranges,
}

impl<'a> Casts<'a> {
    pub(crate) fn new(seq: &Seq<'a>, edits: &Edits) -> Self {
        let types = (1..seq.len())
            .filter(|&i| matches!(seq.text(i - 1), "typename" | "class"))
            .filter(|&i| seq.is_ident(i) && matches!(seq.text(i + 1), "," | ">" | "="))
            .map(|i| seq.text(i))
            .collect();
        Self { types, taken: edits.ranges() }
    }

    /// Rewrites the conversions between two tokens.
    pub(crate) fn rewrite(&self, seq: &Seq<'a>, from: usize, to: usize, edits: &mut Edits) {
        for i in from..to {
            let _ = match seq.text(i) {
                "(" => self.cast(seq, i, edits),
                "static_cast" => self.static_cast(seq, i, edits),
                word if integer(word) || self.types.contains(word) => {
                    self.functional(seq, i, edits)
                }
                _ => None,
            };
            if i > 0 && matches!(seq.text(i - 1), ";" | "{" | "}") {
                let _ = self.declaration(seq, i, to, edits);
            }
        }
    }

    /// The text between two tokens, with its conversions, in one line and without comments.
    pub(crate) fn text(&self, seq: &Seq<'a>, from: usize, to: usize) -> String {
        let mut edits = Edits::default();
        self.rewrite(seq, from, to, &mut edits);
        edits.joined(seq, from, to)
    }

    /// The words of an integer type, or a template's type, between two tokens.
    fn type_between(&self, seq: &Seq<'a>, from: usize, to: usize) -> Option<&'a str> {
        let words = (from..to).all(|i| integer(seq.text(i)) || seq.text(i) == "const");
        let parameter = to == from + 1 && self.types.contains(seq.text(from));
        (from < to && (words || parameter)).then(|| seq.range_text(from, to))
    }

    /// `(int)operand` at its parenthesis.
    fn cast(&self, seq: &Seq<'a>, at: usize, edits: &mut Edits) -> Option<()> {
        let close = (at..at + 6).find(|&k| seq.text(k) == ")")?;
        let kind = self.type_between(seq, at + 1, close)?;
        let before = if at == 0 { "" } else { seq.text(at - 1) };
        let word = at > 0 && seq.is_ident(at - 1) && !matches!(before, "return" | "case" | "else");
        if word || matches!(before, ")" | "]" | ">") && !ends_cast(seq, at - 1) {
            return None;
        }
        let end = operand_end(seq, close + 1)?;
        let (start, past) = (seq.tokens[at].start, seq.tokens[close].end);
        if !self.taken.cover(start, past) {
            edits.replace(seq.source, start, past, format!("::hostcuda::to<{kind}>("));
            edits.insert(seq.tokens[end - 1].end, ")");
        }
        Some(())
    }

    /// `static_cast<int>(x)`.
    fn static_cast(&self, seq: &Seq<'a>, at: usize, edits: &mut Edits) -> Option<()> {
        let past = seq.past_angle(at + 1)?;
        let kind = self.type_between(seq, at + 2, past - 1)?;
        let (start, end) = (seq.tokens[at].start, seq.tokens[past - 1].end);
        if seq.text(past) == "(" && !self.taken.cover(start, end) {
            edits.replace(seq.source, start, end, format!("::hostcuda::to<{kind}>"));
        }
        Some(())
    }

    /// `int(x)` in an expression.
    fn functional(&self, seq: &Seq<'a>, at: usize, edits: &mut Edits) -> Option<()> {
        let before = seq.text(at.checked_sub(1)?);
        let expression = matches!(
            before,
            "=" | "("
                | ","
                | "+"
                | "-"
                | "*"
                | "/"
                | "%"
                | "["
                | "return"
                | "?"
                | ":"
                | "&&"
                | "||"
                | "+="
                | "-="
                | "*="
                | "=="
                | "!="
                | "<="
                | ">="
                | "<<"
                | "&"
                | "|"
                | "^"
        );
        let close = seq.close(at + 1).filter(|_| seq.text(at + 1) == "(")?;
        // `int (*p)(int)`, `T()`, `f(a, int (x))`.
        let one = close > at + 2 && seq.split_commas(at + 2, close).len() == 1;
        if !expression
            || !one
            || matches!(seq.text(at + 2), "*" | "&")
            || seq.text(close + 1) == "("
        {
            return None;
        }
        let token = &seq.tokens[at];
        if !self.taken.cover(token.start, token.end) {
            let text = format!("::hostcuda::to<{}>", seq.text(at));
            edits.replace(seq.source, token.start, token.end, text);
        }
        Some(())
    }

    /// `int i = x * 0.5f, j = f(x);` at the beginning of a statement.
    fn declaration(&self, seq: &Seq<'a>, at: usize, end: usize, edits: &mut Edits) -> Option<()> {
        let mut first = at;
        while integer(seq.text(first)) || seq.text(first) == "const" {
            first += 1;
        }
        let words: Vec<&str> = (at..first).map(|k| seq.text(k)).filter(|w| *w != "const").collect();
        let mut stop = first;
        while stop < end && seq.text(stop) != ";" {
            stop =
                if matches!(seq.text(stop), "(" | "[" | "{") { seq.close(stop)? } else { stop } + 1;
        }
        let parts = seq.split_commas(first, stop);
        // A comma of template arguments separates nothing.
        let declarators = parts.iter().all(|&(from, to)| {
            seq.is_ident(from)
                && (to == from + 1 || matches!(seq.text(from + 1), "=" | "[" | "(" | "{"))
        });
        if words.is_empty() || !declarators {
            return None;
        }
        for (from, to) in parts {
            let (start, last) = (seq.tokens.get(from + 2)?.start, seq.tokens[to - 1].end);
            let odd = (from + 2..to).any(|k| matches!(seq.text(k), "{" | "="));
            let may_be_fraction = (from + 2..to).any(|k| {
                let member =
                    seq.text(k - 1) == "." && crate::function::INDICES.contains(&seq.text(k - 2));
                let index = crate::function::INDICES.contains(&seq.text(k));
                (seq.is_ident(k) && !member && !index && !fits(seq.text(k)))
                    || fraction(seq.text(k))
            });
            if seq.text(from + 1) == "="
                && !odd
                && may_be_fraction
                && !self.taken.cover(start, last)
            {
                edits.insert_outer(start, format!("::hostcuda::to<{}>(", words.join(" ")));
                edits.insert(last, ")");
            }
        }
        Some(())
    }
}

/// A word of an integer type, except `bool`: every non-zero value is true.
fn integer(word: &str) -> bool {
    fits(word)
        && !matches!(
            word,
            "float" | "double" | "bool" | "half" | "__half" | "sizeof" | "static_cast"
        )
}

/// The `)` at `at` ends another cast, as in `(float)(int)x`, or the condition of a statement; the `>`
/// compares.
fn ends_cast(seq: &Seq<'_>, at: usize) -> bool {
    match seq.text(at) {
        ")" => seq.open(at).is_some_and(|open| {
            let words = (open + 1..at).all(|i| fits(seq.text(i)) || seq.text(i) == "*");
            let statement = open > 0 && matches!(seq.text(open - 1), "if" | "while" | "for");
            let name =
                open > 0 && (seq.is_ident(open - 1) || matches!(seq.text(open - 1), ")" | "]"));
            statement || (words && open + 1 < at && !name)
        }),
        ">" => seq.open_angle(at).is_none(),
        _ => false,
    }
}

/// The token past a unary operand with its postfixes.
fn operand_end(seq: &Seq<'_>, mut i: usize) -> Option<usize> {
    while matches!(seq.text(i), "-" | "+" | "!" | "~" | "*" | "&" | "++" | "--" | "::")
        || (seq.text(i) == "sizeof" && seq.text(i + 1) != "(")
    {
        i += 1;
    }
    if seq.text(i) == "(" {
        let close = seq.close(i)?;
        let words = (i + 1..close).all(|k| seq.is_ident(k) || matches!(seq.text(k), "*" | "::"));
        // Another cast: its operand is part of this one.
        let type_inside = fits(seq.text(i + 1)) || seq.text(close - 1) == "*";
        if words && type_inside && close > i + 1 {
            return operand_end(seq, close + 1);
        }
        i = close + 1;
    } else if seq.is_ident(i) {
        i += 1;
        loop {
            if seq.text(i) == "::" {
                i += 2;
            } else if seq.text(i) == "<"
                && let Some(past) = seq.past_angle(i)
                && seq.text(past) == "("
            {
                i = past;
            } else {
                break;
            }
        }
    } else if seq.text(i).starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '\'') {
        i += 1;
    } else {
        return None;
    }
    loop {
        i = match seq.text(i) {
            "(" | "[" => seq.close(i)? + 1,
            "." | "->" => i + 2,
            "++" | "--" => i + 1,
            _ => return Some(i),
        };
    }
}

/// Whether a number may have a fraction.
fn fraction(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && word.len() > 1
        && word.contains(['.', 'f', 'e'])
        && !word.starts_with("0x")
}
