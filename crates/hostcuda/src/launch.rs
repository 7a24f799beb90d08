//! Launches: `k<<<grid, block, bytes, stream>>>(args)` becomes a call of `hostcuda::launch`.

use std::collections::HashSet;

use crate::code::Seq;
use crate::context::Context;
use crate::edit::Edits;

pub(crate) fn rewrite(context: &Context<'_, '_>, seq: &Seq<'_>, edits: &mut Edits) {
    for i in 0..seq.len() {
        if seq.text(i) == "<<<" {
            // What cannot be read is left alone: the host compiler will point at it.
            let _ = launch(context, seq, i, edits);
        } else if seq.text(i) == "cudaLaunchKernel" && seq.text(i + 1) == "(" {
            let _ = packed(seq, i, edits);
        }
    }
}

fn launch(context: &Context<'_, '_>, seq: &Seq<'_>, at: usize, edits: &mut Edits) -> Option<()> {
    let start = kernel_start(seq, at)?;
    let (first, last) = without_brackets(seq, start, at);
    let base = kernel_name(seq, first, last).unwrap_or("");
    let close = config_end(seq, at)?;
    let open = close + 3;
    if seq.text(open) != "(" {
        return None;
    }
    let end = seq.close(open)?;
    let known = context.kernels.contains(base)
        && (!context.shadowed.contains(base) || seq.text(first + 1) == "::");
    // What is launched by another name is one of this file's kernels, if it has any.
    let any = |set: &HashSet<&str>| {
        context.kernels.is_empty() || context.kernels.iter().any(|kernel| set.contains(kernel))
    };
    let of = |set: &HashSet<&str>| if known { set.contains(base) } else { any(set) };
    let (waits, device) = (of(&context.waits), of(&context.device));
    let shape = context.shapes.get(base).filter(|_| known).copied().unwrap_or_default().bits();
    let source = seq.source;
    let tokens = &seq.tokens;
    let name = literal(&source[tokens[start].start..tokens[at].start]);
    // An expression is evaluated once, not by every thread.
    let evaluated = !known
        && (start..at)
            .any(|i| matches!(seq.text(i), "[" | "?") || (i > start && seq.text(i) == "("));
    // A loop over threads vectorises only with the kernel in it.
    let inline = if waits { "" } else { "__attribute__((always_inline)) " };
    let closure =
        format!("[&](const ::hostcuda::Index& hostcuda_at, auto... hostcuda_args) {inline}{{ ");
    let arguments = "(hostcuda_at, hostcuda_args...); }";
    let (function, before, after) = if evaluated {
        ("launch", "::hostcuda::pointer(".to_owned(), "), ".to_owned())
    } else if !known && variable(context, seq, start, at) {
        let named = (start..at).map(|i| seq.text(i)).collect::<Vec<_>>().join(" ");
        ("launch_either", closure, format!("{arguments}, ::hostcuda::pointer({named}), "))
    } else if known {
        ("launch", format!("::hostcuda::named({closure}"), format!("{arguments}), "))
    } else {
        ("launch", closure, format!("{arguments}, "))
    };
    edits.insert(
        tokens[start].start,
        format!("::hostcuda::{function}<{waits}, {device}, {shape}>({before}"),
    );
    let after = format!("{after}::hostcuda::Config");
    edits.replace(source, tokens[at].start, tokens[at].end, format!("{after}({name}, "));
    let comma = if end == open + 1 { "" } else { ", " };
    edits.replace(source, tokens[close].start, tokens[open].end, format!("){comma}"));
    for token in tokens[open..end].iter().filter(|t| t.text(source) == "NULL") {
        edits.replace(source, token.start, token.end, "nullptr");
    }
    Some(())
}

/// Whether the launched expression is a variable or a member: no kernel and no macro, whose text may name a
/// template, and nothing in a macro's body.
fn variable(context: &Context<'_, '_>, seq: &Seq<'_>, start: usize, at: usize) -> bool {
    let names_one = |i: usize| {
        let word = seq.text(i);
        let kernel_or_macro = context.kernels.contains(word) || context.macros.contains(word);
        matches!(word, "." | "->" | "(" | ")" | "*") || seq.is_ident(i) && !kernel_or_macro
    };
    std::ptr::eq(seq, &raw const context.unit.main) && (start..at).all(names_one)
}

/// `text` as a C++ string in one line, for traces.
fn literal(text: &str) -> String {
    let plain: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// First token of the expression that names the kernel before `<<<`.
pub(crate) fn kernel_start(seq: &Seq<'_>, at: usize) -> Option<usize> {
    let mut i = at.checked_sub(1)?;
    loop {
        match seq.text(i) {
            ">" => i = seq.open_angle(i)?.checked_sub(1)?,
            // `(a ? b : c)`, or `pick(a)`.
            ")" => {
                let open = seq.open(i)?;
                match open.checked_sub(1) {
                    Some(k)
                        if (seq.is_ident(k) && !is_keyword(seq.text(k))) || seq.text(k) == ">" =>
                    {
                        i = k;
                        continue;
                    }
                    _ => return Some(open),
                }
            }
            "]" => {
                i = seq.open(i)?.checked_sub(1)?;
                continue;
            }
            _ => {}
        }
        if !seq.is_ident(i) {
            return None;
        }
        let Some(before) = i.checked_sub(1) else { return Some(i) };
        match seq.text(before) {
            "::" => match before.checked_sub(1) {
                Some(k) if (seq.is_ident(k) && seq.text(k) != "return") || seq.text(k) == ">" => {
                    i = k;
                }
                _ => return Some(before),
            },
            "." | "->" => i = before.checked_sub(1)?,
            "template" => i = before.checked_sub(2)?,
            _ => return Some(i),
        }
    }
}

fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "return" | "else" | "do" | "if" | "while" | "for" | "switch" | "case" | "constexpr"
    )
}

/// The expression inside the brackets around all of it.
fn without_brackets(seq: &Seq<'_>, mut start: usize, mut end: usize) -> (usize, usize) {
    while seq.text(start) == "(" && seq.close(start).is_some_and(|close| close + 1 == end) {
        start += 1;
        end -= 1;
    }
    (start, end)
}

/// The kernel's own name: the last identifier outside its template arguments. `None` for an
/// expression whose kernel is known only at run time.
fn kernel_name<'a>(seq: &Seq<'a>, start: usize, end: usize) -> Option<&'a str> {
    let mut name = None;
    let mut i = start;
    while i < end {
        match seq.text(i) {
            "<" => {
                i = seq.past_angle(i).unwrap_or(end);
                continue;
            }
            "(" | "[" | "." | "->" | "*" | "?" => return None,
            _ if seq.is_ident(i) => name = Some(seq.text(i)),
            _ => {}
        }
        i += 1;
    }
    name
}

/// Index of the first of the three `>` that end the configuration opened at `at`.
pub(crate) fn config_end(seq: &Seq<'_>, at: usize) -> Option<usize> {
    let mut i = at + 1;
    while i < seq.len() {
        match seq.text(i) {
            "(" | "[" | "{" => i = seq.close(i)?,
            // A launch is no part of another's configuration.
            ")" | "]" | "}" | ";" | "<<<" => return None,
            ">" if seq.text(i + 1) == ">" && seq.text(i + 2) == ">" && seq.text(i + 3) == "(" => {
                return Some(i);
            }
            _ => {}
        }
        i += 1;
    }
    None
}

/// `cudaLaunchKernel((void*)kernel, ...)`: the cast would lose the types of the arguments.
fn packed(seq: &Seq<'_>, at: usize, edits: &mut Edits) -> Option<()> {
    let (source, tokens) = (seq.source, &seq.tokens);
    edits.replace(source, tokens[at].start, tokens[at].end, "::hostcuda::launch_packed");
    let mut i = at + 2;
    if seq.text(i) == "(" {
        let close = seq.close(i)?;
        if (i..close).any(|k| seq.text(k) == "void") {
            edits.replace(source, tokens[i].start, tokens[close].end, "");
            i = close + 1;
        }
    } else if seq.text(i) == "reinterpret_cast" {
        let past = seq.past_angle(i + 1)?;
        edits.replace(source, tokens[i].start, tokens[past - 1].end, "");
        i = past;
    }
    if seq.text(i) == "&" {
        edits.replace(source, tokens[i].start, tokens[i].end, "");
    }
    Some(())
}
