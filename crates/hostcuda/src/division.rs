//! Integer division in kernels that should vectorise.
//!
//! No host has a vector instruction for integer division, and `bias[i % d]` is common. In the
//! kernels that `phase` accepts, `name / x` and `name % x` become calls. The calls divide 32-bit
//! integers exactly through `double`; other types are divided as before.

use crate::code::Seq;
use crate::edit::Edits;

/// Rewrites the divisions between two tokens.
pub(crate) fn rewrite(seq: &Seq<'_>, from: usize, to: usize, edits: &mut Edits) {
    let mut i = from;
    while i < to {
        i = chain(seq, i, to, edits).unwrap_or(i + 1);
    }
}

/// `a / b % c` with its first operand at token `i`; the token past it if something was rewritten.
fn chain(seq: &Seq<'_>, i: usize, to: usize, edits: &mut Edits) -> Option<usize> {
    if i == 0 || !starts_operand(seq, i) {
        return None;
    }
    let mut end = operand_end(seq, i)?;
    let mut prefixes = Vec::new();
    let mut insertions = Vec::new();
    while end < to && matches!(seq.text(end), "/" | "%") {
        let right = operand_end(seq, end + 1)?;
        // A product binds as tightly: `a / b * c` ends the chain after `b`.
        prefixes.push(if seq.text(end) == "/" {
            "::hostcuda::quotient("
        } else {
            "::hostcuda::remainder("
        });
        insertions.push((end, right));
        end = right;
    }
    if prefixes.is_empty() {
        return None;
    }
    prefixes.reverse();
    edits.insert(seq.tokens[i].start, prefixes.concat());
    for (op, right) in insertions {
        let token = &seq.tokens[op];
        edits.replace(seq.source, token.start, token.end, ",");
        edits.insert(seq.tokens[right - 1].end, ")");
    }
    Some(end)
}

/// Whether the token can be the first operand: the token before does not bind to it.
fn starts_operand(seq: &Seq<'_>, i: usize) -> bool {
    if !seq.is_ident(i) && seq.text(i) != "(" {
        return false;
    }
    let before = seq.text(i - 1);
    matches!(before, "(" | "[" | "," | "=" | "+" | "return" | "{" | ";" | "<" | "<=" | "==" | "+=")
        || (before == "-" && matches!(seq.text(i.saturating_sub(2)), ")" | "]"))
        || (before == "-" && i > 1 && seq.is_ident(i - 2))
}

/// The token past an operand: a name, a number, or something in parentheses that is not a cast.
fn operand_end(seq: &Seq<'_>, i: usize) -> Option<usize> {
    let end = if seq.text(i) == "(" {
        let close = seq.close(i)?;
        // `(float)x` is a cast: an operand follows directly.
        if seq.is_ident(close + 1) || seq.text(close + 1) == "(" {
            return None;
        }
        close + 1
    } else if seq.is_ident(i) || seq.text(i).starts_with(|c: char| c.is_ascii_digit()) {
        i + 1
    } else {
        return None;
    };
    let member = seq.text(end) == "." && seq.is_ident(end + 1);
    let end = if member { end + 2 } else { end };
    // A call, a subscript or a qualified name is more than this reads.
    (!matches!(seq.text(end), "(" | "[" | "::" | "->" | "." | "++" | "--")).then_some(end)
}
