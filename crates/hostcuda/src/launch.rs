//! Launches: `k<<<grid, block, bytes, stream>>>(args)` becomes a call of `hostcuda::launch`.

use crate::code::Seq;
use crate::edit::Edits;
use crate::rewrite::Context;

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
    let base = kernel_name(seq, start, at);
    let close = config_end(seq, at)?;
    let open = close + 3;
    if seq.text(open) != "(" {
        return None;
    }
    let end = seq.close(open)?;
    let known = context.kernels.contains(base);
    let waits = !known || context.waits.contains(base);
    let device = !known || context.device.contains(base);
    if !known {
        pointer_types(context, base, edits);
    }
    let shape = context.shapes.get(base).copied().unwrap_or_default().bits();
    let source = seq.source;
    let tokens = &seq.tokens;
    let name = literal(&source[tokens[start].start..tokens[at].start]);
    // A loop over threads vectorises only with the kernel in it.
    let inline = if waits { "" } else { "__attribute__((always_inline)) " };
    edits.insert(
        tokens[start].start,
        format!(
            "::hostcuda::launch<{waits}, {device}, {shape}>([&](const ::hostcuda::Index& hostcuda_at, auto... \
             hostcuda_args) {inline}{{ "
        ),
    );
    edits.replace(
        source,
        tokens[at].start,
        tokens[at].end,
        format!("(hostcuda_at, hostcuda_args...); }}, ::hostcuda::Config({name}, "),
    );
    let comma = if end == open + 1 { "" } else { ", " };
    edits.replace(source, tokens[close].start, tokens[open].end, format!("){comma}"));
    for token in tokens[open..end].iter().filter(|t| t.text(source) == "NULL") {
        edits.replace(source, token.start, token.end, "nullptr");
    }
    Some(())
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
            ")" => return seq.open(i),
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

/// The kernel's own name: the last identifier outside its template arguments.
fn kernel_name<'a>(seq: &Seq<'a>, start: usize, end: usize) -> &'a str {
    let mut name = "";
    let mut i = start;
    while i < end {
        match seq.text(i) {
            "<" => {
                i = seq.past_angle(i).unwrap_or(end);
                continue;
            }
            "[" => i = seq.close(i).unwrap_or(end),
            _ if seq.is_ident(i) => name = seq.text(i),
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
            ")" | "]" | "}" | ";" => return None,
            ">" if seq.text(i + 1) == ">" && seq.text(i + 2) == ">" && seq.text(i + 3) == "(" => {
                return Some(i);
            }
            _ => {}
        }
        i += 1;
    }
    None
}

/// A kernel has a hidden parameter, and so have the types of pointers to it: `void (*name)(`, and
/// aliases `using F = void (*)(`, `typedef void (*F)(` with which `name` is declared.
fn pointer_types(context: &Context<'_, '_>, name: &str, edits: &mut Edits) {
    let seq = &context.unit.main;
    let mut aliases = vec![name];
    for i in 1..seq.len() {
        if seq.text(i) == name && seq.is_ident(i - 1) {
            aliases.push(seq.text(i - 1));
        }
    }
    for i in 0..seq.len() {
        if seq.text(i) != "(" || seq.text(i + 1) != "*" {
            continue;
        }
        let named = aliases.contains(&seq.text(i + 2)) && seq.text(i + 3) == ")";
        let aliased = seq.text(i + 2) == ")"
            && (i.saturating_sub(4)..i)
                .any(|k| seq.text(k) == "using" && aliases.contains(&seq.text(k + 1)));
        let open = if named { i + 4 } else { i + 3 };
        if (named || aliased) && seq.text(open) == "(" {
            let comma = if seq.text(open + 1) == ")" { "" } else { ", " };
            edits.insert(seq.tokens[open].end, format!("const ::hostcuda::Index&{comma}"));
        }
    }
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
