//! Pointers to kernels.
//!
//! A kernel has a hidden parameter here, so the pointer types that a source writes for it do not
//! fit. Deduced types (`auto`, `decltype(&kernel)`, template parameters) need no change. Written
//! types, `void (*name)(arguments)`, become `hostcuda::KernelPointer<void(arguments)>`, which holds
//! a kernel or a function of the host; see `hostcuda/pointer.h`. Templates cannot deduce types from
//! that class: where a function template deduces types from a kernel, `void (*kernel)(T...)`, the
//! hidden parameter is written into the type instead. A unit that uses no kernel as a value keeps
//! its pointers.

use std::collections::HashSet;

use crate::code::Seq;
use crate::context::Context;
use crate::ctype::is_type_word;
use crate::edit::Edits;

const HIDDEN: &str = "const ::hostcuda::Index&";

pub(crate) fn rewrite(context: &Context<'_, '_>, edits: &mut Edits) {
    let seq = &context.unit.main;
    if !used_as_values(context) {
        return;
    }
    let skip = Skip::new(context);
    for i in 0..seq.len() {
        if skip.device(i) {
            continue;
        }
        if seq.text(i) == "void" {
            let _ = written(seq, i, &skip, edits);
        } else if matches!(seq.text(i), "(" | "reinterpret_cast") {
            let _ = erased(context, i, edits);
        }
    }
}

/// Whether a kernel's name is used other than in its declaration or a launch, or in a macro that
/// stays.
fn used_as_values(context: &Context<'_, '_>) -> bool {
    let seq = &context.unit.main;
    let named = |body: &Seq<'_>| (0..body.len()).any(|i| context.kernels.contains(body.text(i)));
    if context.unit.macros.iter().any(|m| named(&m.body)) {
        return true;
    }
    let declared: HashSet<usize> = context.found.functions.iter().map(|f| f.open - 1).collect();
    (0..seq.len()).filter(|&i| context.kernels.contains(seq.text(i))).any(|i| {
        let after = if seq.text(i + 1) == "<" { seq.past_angle(i + 1) } else { Some(i + 1) };
        let declares = declared.contains(&i) || after.is_some_and(|a| declared.contains(&(a - 1)));
        !declares && !after.is_some_and(|a| matches!(seq.text(a), "<<<" | "("))
    })
}

/// Places where pointer types mean something else.
struct Skip {
    /// Kernels and device functions, from their parameters to their ends.
    device: Vec<(usize, usize)>,
    /// Template parameter lists.
    templates: Vec<(usize, usize)>,
    /// From each of them to the body or the end of the declaration.
    declared: Vec<(usize, usize)>,
}

impl Skip {
    fn new(context: &Context<'_, '_>) -> Self {
        let seq = &context.unit.main;
        // Sorted by where they begin, with everything that lies inside another left out.
        let mut device: Vec<(usize, usize)> = Vec::new();
        for function in context.found.functions.iter().filter(|f| !f.host) {
            let end = function.body.map_or(function.close, |body| body.1);
            if device.last().is_none_or(|last| function.open > last.1) {
                device.push((function.open, end));
            }
        }
        let templates: Vec<_> = (0..seq.len())
            .filter(|&i| seq.text(i) == "template" && seq.text(i + 1) == "<")
            .filter_map(|i| Some((i + 1, seq.past_angle(i + 1)?)))
            .collect();
        let declared =
            templates.iter().map(|&(_, past)| (past, declaration_end(seq, past))).collect();
        Self { device, templates, declared }
    }

    /// Whether a template deduces its parameters from the parameter at `i`, whose own parameters
    /// are between `from` and `to`.
    fn deduces(&self, seq: &Seq<'_>, i: usize, (from, to): (usize, usize)) -> bool {
        let at = self.declared.partition_point(|range| range.0 <= i);
        let Some(k) = at.checked_sub(1).filter(|&k| i < self.declared[k].1) else { return false };
        let (open, past) = self.templates[k];
        let names = |word: &str| (open..past).any(|j| seq.is_ident(j) && seq.text(j) == word);
        (from..to).any(|j| seq.is_ident(j) && !is_type_word(seq.text(j)) && names(seq.text(j)))
    }

    fn device(&self, i: usize) -> bool {
        holds(&self.device, i)
    }
}

/// The body, or the end, of the declaration at `from`.
fn declaration_end(seq: &Seq<'_>, from: usize) -> usize {
    let mut i = from;
    while i < seq.len() && !matches!(seq.text(i), "{" | ";") {
        i = match seq.text(i) {
            "(" => seq.close(i).unwrap_or(i) + 1,
            _ => i + 1,
        };
    }
    i
}

fn holds(ranges: &[(usize, usize)], i: usize) -> bool {
    let before = ranges.partition_point(|range| range.0 <= i);
    before.checked_sub(1).is_some_and(|last| i < ranges[last].1)
}

/// `void (*declarator)(arguments)` at the token `void`, or an alias of `void(arguments)`.
fn written(seq: &Seq<'_>, void: usize, skip: &Skip, edits: &mut Edits) -> Option<()> {
    let source = seq.source;
    let tokens = &seq.tokens;
    let open = void + 1;
    let hide = |open: usize, edits: &mut Edits| {
        let comma = if seq.text(open + 1) == ")" { "" } else { ", " };
        edits.insert(tokens[open].end, format!("{HIDDEN}{comma}"));
    };
    // `using F = void(float*);` and `typedef void F(float*);`
    let using = void >= 3 && seq.text(void - 1) == "=" && seq.text(void - 3) == "using";
    let typedef = void >= 1 && seq.text(void - 1) == "typedef" && seq.is_ident(open);
    let list = if typedef { open + 1 } else { open };
    if (using || typedef)
        && seq.text(list) == "("
        && !matches!(seq.text(list + 1), "*" | "&")
        && seq.text(seq.close(list)? + 1) == ";"
    {
        hide(list, edits);
        return Some(());
    }
    if seq.text(open) != "(" || !matches!(seq.text(open + 1), "*" | "&") {
        return None;
    }
    let close = seq.close(open)?;
    let end = (seq.text(close + 1) == "(").then(|| seq.close(close + 1))??;
    if holds(&skip.templates, void) {
        hide(close + 1, edits);
        return Some(());
    }
    let parameter = close == open + 3 && matches!(seq.text(void - 1), "(" | ",");
    if parameter && skip.deduces(seq, void, (close + 2, end)) {
        hide(close + 1, edits);
        return Some(());
    }
    let arguments = seq.range_text(close + 2, end).replace(['\n', '\r'], " ");
    // Only names, arrays and parameters of a function that returns it.
    let declarator = (open + 2..close).all(|k| !matches!(seq.text(k), "&" | "..."));
    if !declarator || seq.range_text(close + 2, end).contains("//") {
        return None;
    }
    edits.replace(
        source,
        tokens[void].start,
        tokens[open + 1].end,
        format!("::hostcuda::KernelPointer<void({arguments})> "),
    );
    edits.replace(source, tokens[close].start, tokens[end].end, " ");
    Some(())
}

/// `(const void*)kernel` keeps the types of the kernel's arguments, for `cudaLaunchKernel`.
fn erased(context: &Context<'_, '_>, at: usize, edits: &mut Edits) -> Option<()> {
    let seq = &context.unit.main;
    let (tokens, source) = (&seq.tokens, seq.source);
    let function = seq.text(at) == "reinterpret_cast";
    let (first, last) =
        if function { (at + 2, seq.past_angle(at + 1)? - 1) } else { (at + 1, seq.close(at)?) };
    let kind = || (first..last).map(|i| seq.text(i));
    if !kind().eq(["void", "*"])
        && !kind().eq(["const", "void", "*"])
        && !kind().eq(["void", "const", "*"])
    {
        return None;
    }
    // Its first argument is seen to where the launch is rewritten.
    if at >= 2 && seq.text(at - 2) == "cudaLaunchKernel" {
        return None;
    }
    let mut i = last + 1 + usize::from(function);
    i += usize::from(seq.text(i) == "&");
    i += usize::from(seq.text(i) == "::");
    let name = loop {
        let name = seq.text(i);
        i += 1;
        if seq.text(i) == "<" {
            i = seq.past_angle(i)?;
        }
        if seq.text(i) != "::" {
            break name;
        }
        i += 1;
    };
    if !context.kernels.contains(name) {
        return None;
    }
    edits.replace(source, tokens[at].start, tokens[last].end, "(void*)::hostcuda::erased(");
    edits.insert(tokens[i - 1].end, ")");
    Some(())
}
