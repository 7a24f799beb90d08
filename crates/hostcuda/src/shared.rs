//! Shared memory: each `__shared__` declaration becomes a reference into the worker's memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::code::{Scope, Seq};
use crate::context::Context;
use crate::edit::Edits;

pub(crate) fn rewrite(context: &Context<'_, '_>, edits: &mut Edits) {
    let unit = context.unit;
    let mut count = 0;
    let mut everywhere = BTreeMap::new();
    let mut seqs = vec![&unit.main];
    seqs.extend(unit.macros.iter().map(|m| &m.body));
    for (which, seq) in seqs.into_iter().enumerate() {
        let mut i = 0;
        while i < seq.len() {
            if seq.text(i) != "__shared__" {
                i += 1;
                continue;
            }
            let global = which == 0 && unit.scopes[i] == Scope::Namespace;
            let mut end = i;
            while end < seq.len() && seq.text(end) != ";" {
                let bracket = matches!(seq.text(end), "(" | "[" | "{");
                end = if bracket { seq.close(end).unwrap_or(seq.len()) } else { end } + 1;
            }
            if let Some((name, text)) =
                declaration(seq, (i, end.min(seq.len())), global, &mut count, edits)
            {
                everywhere.insert(name, text);
            }
            i = end + 1;
        }
    }
    declare(context, &everywhere, edits);
}

/// One declaration with `__shared__` from a token up to another. Returns the name and the
/// declaration that every function mentioning it needs.
fn declaration<'a>(
    seq: &Seq<'a>,
    (at, end): (usize, usize),
    global: bool,
    count: &mut u32,
    edits: &mut Edits,
) -> Option<(&'a str, String)> {
    let start = (seq.statement(at)..at)
        .rev()
        .find(|&i| matches!(seq.text(i), ")" | ":"))
        .map_or(seq.statement(at), |i| i + 1);
    let words: Vec<usize> = (start..end)
        .filter(|&i| !matches!(seq.text(i), "__shared__" | "extern" | "static"))
        .collect();
    let source = seq.source;
    let is_extern = (start..at + 2).any(|i| seq.text(i) == "extern");
    let range = (seq.tokens[start].start, seq.tokens[end.min(seq.len() - 1)].end);
    if is_extern {
        let words = without_alignment(seq, &words);
        let open = words.iter().position(|&i| seq.text(i) == "[")?;
        let name = seq.text(words[open.checked_sub(1)?]);
        let kind = join(seq, &words[..open - 1]);
        let close = seq.close(words[open])?;
        // `float tile[][33]` decays to a pointer to rows.
        let rest = seq.range_text(close + 1, end);
        let text = if rest.is_empty() {
            format!("{kind}* const {name} = ({kind}*)::hostcuda::dynamic_shared();")
        } else {
            format!(
                "{kind} (*const {name}){rest} = ({kind} (*){rest})::hostcuda::dynamic_shared();"
            )
        };
        if global {
            edits.replace(source, range.0, range.1, "");
            return Some((name, text));
        }
        edits.replace(source, range.0, range.1, text);
        return None;
    }
    words.first()?;
    let names = declared_names(seq, start, end);
    let id = *count;
    *count += 1;
    let members = join(seq, &words);
    let mut text = format!(
        "struct hostcuda_shared_{id} {{ {members}; }}; hostcuda_shared_{id}& hostcuda_block_{id} = \
         *::hostcuda::static_shared<hostcuda_shared_{id}>();"
    );
    for name in names {
        let _ = write!(text, " auto& {name} = hostcuda_block_{id}.{name};");
    }
    edits.replace(source, range.0, range.1, text);
    None
}

/// `extern __shared__` at file scope: declared again in every function that mentions it.
fn declare(context: &Context<'_, '_>, shared: &BTreeMap<&str, String>, edits: &mut Edits) {
    let seq = &context.unit.main;
    if shared.is_empty() {
        return;
    }
    for function in &context.found.functions {
        let Some((open, close)) = function.body else { continue };
        let used: BTreeSet<&str> =
            (open..close).map(|i| seq.text(i)).filter(|word| shared.contains_key(word)).collect();
        for name in used {
            edits.insert(seq.tokens[open].end, format!(" {} ", shared[name]));
        }
    }
}

fn without_alignment(seq: &Seq<'_>, words: &[usize]) -> Vec<usize> {
    let mut kept = Vec::new();
    let mut skip_to = 0;
    for &i in words {
        if i < skip_to {
            continue;
        }
        if matches!(seq.text(i), "__align__" | "alignas" | "__attribute__" | "__builtin_align__") {
            skip_to = seq.close(i + 1).map_or(i, |c| c + 1);
            continue;
        }
        kept.push(i);
    }
    kept
}

/// The tokens' texts with blanks between.
fn join(seq: &Seq<'_>, words: &[usize]) -> String {
    words.iter().map(|&i| seq.text(i)).collect::<Vec<_>>().join(" ")
}

/// Names declared by `T a[2][3], *b, c;`: the last identifier of each declarator before its
/// dimensions or initialiser.
fn declared_names<'a>(seq: &Seq<'a>, start: usize, end: usize) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut last = None;
    let mut i = start;
    while i < end {
        match seq.text(i) {
            "(" | "{" => i = seq.close(i).unwrap_or(end),
            "[" => {
                i = seq.close(i).unwrap_or(end);
            }
            "<" => {
                i = seq.past_angle(i).unwrap_or(i + 1);
                continue;
            }
            "=" => {
                while i < end && seq.text(i) != "," {
                    i = match seq.text(i) {
                        "(" | "{" | "[" => seq.close(i).unwrap_or(end),
                        _ => i,
                    } + 1;
                }
                continue;
            }
            "," => {
                names.extend(last.take());
            }
            _ if seq.is_ident(i) => last = Some(seq.text(i)),
            _ => {}
        }
        i += 1;
    }
    names.extend(last);
    names
}
