//! Turns loops that reduce over a warp by shuffles into one collective each.
//!
//! `for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(mask, v, o);` makes every thread wait
//! five times. Instead, the last lane to arrive does the same arithmetic, in the same order, for
//! all lanes: one wait. Only loops in which every statement has that shape are changed.

use crate::code::Seq;
use crate::edit::Edits;

pub(crate) fn rewrite(seq: &Seq<'_>, edits: &mut Edits) {
    for i in 0..seq.len() {
        if seq.text(i) == "for"
            && seq.text(i + 1) == "("
            && let Some((end, text)) = reduction(seq, i)
        {
            edits.replace(seq.source, seq.tokens[i].start, seq.tokens[end].end, text);
        }
    }
}

/// The replacement of a reduction loop at token `at`, and its last token.
fn reduction(seq: &Seq<'_>, at: usize) -> Option<(usize, String)> {
    let close = seq.close(at + 1)?;
    let mut i = at + 2;
    while matches!(seq.text(i), "int" | "unsigned" | "auto" | "uint32_t" | "const" | "short") {
        i += 1;
    }
    let offset = seq.text(i);
    if !seq.is_ident(i) || seq.text(i + 1) != "=" {
        return None;
    }
    let first = (i..close).find(|&k| seq.text(k) == ";")?;
    let second = (first + 1..close).find(|&k| seq.text(k) == ";")?;
    let from = seq.range_text(i + 2, first);
    let condition: Vec<&str> = (first + 1..second).map(|k| seq.text(k)).collect();
    let step: Vec<&str> = (second + 1..close).map(|k| seq.text(k)).collect();
    let down_to_one = condition == [offset]
        || condition == [offset, ">", "0"]
        || condition == [offset, ">=", "1"]
        || condition == [offset, "!=", "0"]
        || condition == ["0", "<", offset];
    let halves = step == [offset, ">>=", "1"]
        || step == [offset, "/=", "2"]
        || step == [offset, "=", offset, ">", ">", "1"]
        || step == [offset, "=", offset, "/", "2"];
    if !down_to_one || !halves || from.is_empty() {
        return None;
    }
    let (mut statement, stop, end) = if seq.text(close + 1) == "{" {
        let brace = seq.close(close + 1)?;
        (close + 2, brace, brace)
    } else {
        let semicolon = (close + 1..seq.len()).find(|&k| seq.text(k) == ";")?;
        (close + 1, semicolon + 1, semicolon)
    };
    let mut text = String::from("{ ");
    let mut targets: Vec<&str> = Vec::new();
    while statement < stop {
        let semicolon = (statement..stop).find(|&k| seq.text(k) == ";")?;
        let step = Step::read(seq, statement, semicolon, offset)?;
        if targets.contains(&step.target) {
            return None;
        }
        targets.push(step.target);
        text.push_str(&step.call(from));
        statement = semicolon + 1;
    }
    if targets.is_empty() || targets.contains(&offset) {
        return None;
    }
    text.push('}');
    Some((end, text.replace('\n', " ")))
}

/// `target = combine(target, shuffle(mask, target, offset, width))`.
struct Step<'a> {
    target: &'a str,
    xor: bool,
    mask: &'a str,
    width: &'a str,
    combine: String,
}

impl<'a> Step<'a> {
    fn read(seq: &Seq<'a>, from: usize, to: usize, offset: &str) -> Option<Self> {
        let assign =
            (from..to).find(|&k| matches!(seq.text(k), "=" | "+=" | "*=" | "|=" | "&="))?;
        // A name, or one with constant subscripts: evaluated more than once.
        if !seq.is_ident(from) || (from..assign).any(|k| matches!(seq.text(k), "(" | "++" | "--")) {
            return None;
        }
        let target = seq.range_text(from, assign);
        let op = seq.text(assign);
        if op != "=" {
            let (xor, mask, width) = shuffle(seq, assign + 1, to, target, offset)?;
            let combine = format!("hostcuda_a {} hostcuda_b", &op[..1]);
            return Some(Self { target, xor, mask, width, combine });
        }
        let call = (assign + 1..to).find(|&k| seq.text(k).starts_with("__shfl"))?;
        let call_end = seq.close(call + 1)? + 1;
        let (xor, mask, width) = shuffle(seq, call, call_end, target, offset)?;
        let before = seq.range_text(assign + 1, call);
        let after = seq.range_text(call_end, to);
        // `v = v + shuffle`, or `v = f(v, shuffle)`, or `v = f(shuffle, v)`.
        let combine = if after.is_empty() && before.ends_with(['+', '*', '|', '&']) {
            let op = &before[before.len() - 1..];
            (before[..before.len() - 1].trim() == target)
                .then(|| format!("hostcuda_a {op} hostcuda_b"))?
        } else if after == ")" && before.trim_end().ends_with(',') {
            let head = before.trim_end().trim_end_matches(',');
            let (function, first) = head.split_once('(')?;
            (first.trim() == target && plain_name(function))
                .then(|| format!("{}(hostcuda_a, hostcuda_b)", function.trim()))?
        } else {
            let function = before.trim_end().strip_suffix('(')?;
            let second = after.trim_start().strip_prefix(',')?.trim_end().strip_suffix(')')?;
            (second.trim() == target && plain_name(function))
                .then(|| format!("{}(hostcuda_b, hostcuda_a)", function.trim()))?
        };
        Some(Self { target, xor, mask, width, combine: own_math(combine) })
    }

    fn call(&self, from: &str) -> String {
        let Self { target, xor, mask, width, combine } = self;
        format!(
            "{target} = ::hostcuda::tree<{xor}>({mask}, {target}, {from}, {width}, \
             [&](auto hostcuda_a, auto hostcuda_b) {{ return {combine}; }}); "
        )
    }
}

/// A function name, perhaps qualified or with template arguments.
fn plain_name(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_:<>".contains(c))
}

/// Maps function names here, because the replaced text is not rewritten again.
fn own_math(combine: String) -> String {
    match combine.split_once('(') {
        Some((name @ ("fmaxf" | "fminf" | "max" | "min" | "fmax" | "fmin"), rest)) => {
            format!("::hostcuda::math::{name}({rest}")
        }
        _ => combine,
    }
}

/// `__shfl_xor_sync(mask, target, offset[, width])` between two tokens: kind, mask, width.
fn shuffle<'a>(
    seq: &Seq<'a>,
    from: usize,
    to: usize,
    target: &str,
    offset: &str,
) -> Option<(bool, &'a str, &'a str)> {
    let xor = match seq.text(from) {
        "__shfl_xor_sync" => true,
        "__shfl_down_sync" => false,
        _ => return None,
    };
    if seq.text(from + 1) != "(" || seq.close(from + 1)? + 1 != to {
        return None;
    }
    let args: Vec<&str> =
        seq.split_commas(from + 2, to - 1).into_iter().map(|(a, b)| seq.range_text(a, b)).collect();
    match args.as_slice() {
        [mask, value, by] if *value == target && *by == offset => Some((xor, mask, "32")),
        [mask, value, by, width] if *value == target && *by == offset => Some((xor, mask, width)),
        _ => None,
    }
}
