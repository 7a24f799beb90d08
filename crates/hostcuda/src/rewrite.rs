//! The rewriter: CUDA C++ in, host C++ out.

use std::collections::HashSet;

use crate::brackets::TOO_DEEP;
use crate::casts::Casts;
use crate::code::{Scope, Seq, Unit};
use crate::context::Context;
use crate::edit::Edits;
use crate::expand::{Which, expand};
use crate::function::{Function, INDICES, find};
use crate::include::{Resolve, flatten};
use crate::refusal::Refusal;
use crate::{launch, pointer, shared, shuffle, unsupported};

/// A translation unit for the host compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// C++17 text with `#line` directives that name the original files and lines. It includes
    /// `cuda_runtime.h` as `nvcc` does; see [`crate::write_headers`].
    pub cpp: String,
    /// Local headers that became part of the text, in order: a cache key must contain them.
    pub inlined: Vec<String>,
    /// Kernels defined, in order, and whether their threads wait for one another.
    pub kernels: Vec<(String, bool)>,
}

/// Translates one `.cu` file that includes no local headers.
pub fn translate(source: &str, file: &str) -> Result<Translated, Vec<Refusal>> {
    translate_with(source, file, &|_, _| None)
}

/// Translates one `.cu` file; `resolve` finds the headers of its quoted includes, which become
/// part of the text.
pub fn translate_with(
    source: &str,
    file: &str,
    resolve: &Resolve<'_>,
) -> Result<Translated, Vec<Refusal>> {
    let flat = expand(flatten(source, file, resolve)?, Which::Hiding)?;
    let unit = Unit::new(&flat.text, &flat.dead);
    if let Some(at) = unit.too_deep() {
        let construct = at.text(&flat.text).to_owned();
        return Err(vec![flat.refusal(at, construct, TOO_DEEP)]);
    }
    let found = find(&unit);
    let refused = unsupported::refusals(&unit, &found, &flat);
    if !refused.is_empty() {
        return Err(refused);
    }
    let mut context = Context::new(&unit, &found);
    let mut edits = Edits::default();
    context.find_shapes(&mut edits);
    functions(&context, &mut edits);
    variables(&context, &mut edits);
    classes(&context, &mut edits);
    pointer::rewrite(&context, &mut edits);
    shared::rewrite(&context, &mut edits);
    let mut seqs = vec![&unit.main];
    seqs.extend(unit.macros.iter().map(|m| &m.body));
    for seq in seqs {
        shuffle::rewrite(seq, &mut edits);
        launch::rewrite(&context, seq, &mut edits);
        names(&context, seq, &mut edits);
    }
    conversions(&context, &mut edits);
    let kernels = found
        .functions
        .iter()
        .filter(|f| f.kernel && f.body.is_some())
        .map(|f| (f.name.to_owned(), context.waits.contains(f.name)))
        .collect();
    let cpp = format!("#include \"cuda_runtime.h\"\n{}", edits.apply(&flat.text));
    Ok(Translated { cpp, inlined: flat.inlined, kernels })
}

/// Conversions in device code and in macros.
fn conversions(context: &Context<'_, '_>, edits: &mut Edits) {
    let (unit, seq) = (context.unit, &context.unit.main);
    let casts = Casts::new(seq, edits);
    let mut past = 0;
    for (open, close) in context.found.functions.iter().filter_map(|f| f.body) {
        // A lambda's body is part of another's.
        if open >= past {
            casts.rewrite(seq, open + 1, close, edits);
            past = close;
        }
    }
    for m in &unit.macros {
        casts.rewrite(&m.body, 0, m.body.len(), edits);
    }
}

/// Signatures, qualifiers, and the index variables.
fn functions(context: &Context<'_, '_>, edits: &mut Edits) {
    let seq = &context.unit.main;
    let source = seq.source;
    for function in &context.found.functions {
        let qualifier = &seq.tokens[function.qualifier];
        let internal = internal_linkage(seq, function);
        if function.kernel {
            let from = function.open + 1;
            let void = function.close == from + 1 && seq.text(from) == "void";
            let hidden = "const ::hostcuda::Index& hostcuda_index";
            if void {
                let token = &seq.tokens[from];
                edits.replace(source, token.start, token.end, hidden);
            } else {
                let comma = if from == function.close { "" } else { ", " };
                edits.insert(seq.tokens[function.open].end, format!("{hidden}{comma}"));
            }
            for i in function.start..function.open {
                if seq.text(i) == "__global__" {
                    let token = &seq.tokens[i];
                    let inline = match (function.body, context.waits.contains(function.name)) {
                        (Some(_), false) => "inline __attribute__((always_inline))",
                        (Some(_), true) => "inline",
                        (None, _) => "",
                    };
                    let text =
                        if internal { format!("static {inline}") } else { inline.to_owned() };
                    edits.replace(source, token.start, token.end, text);
                }
            }
            if let Some((open, _)) = function.body {
                edits.insert(seq.tokens[open].end, " HOSTCUDA_INDICES(hostcuda_index) ");
            }
        } else {
            if internal {
                edits.replace(source, qualifier.start, qualifier.end, "static");
            }
            if let Some((open, _)) = function.body
                && context.indexed(function)
            {
                edits.insert(seq.tokens[open].end, " HOSTCUDA_DEVICE_INDICES ");
                for i in (function.close..open).filter(|&i| INDICES.contains(&seq.text(i))) {
                    edits.insert(seq.tokens[i].start, "::hostcuda::here().");
                }
            }
        }
    }
}

/// Whether a function should become `static`. Otherwise two files of a candidate that each define
/// `__device__ float act(float)` would collide, or be merged silently. A GPU's linker never sees
/// them.
fn internal_linkage(seq: &Seq<'_>, function: &Function<'_>) -> bool {
    if function.scope != Scope::Namespace || function.name == "operator()" {
        return false;
    }
    let words: Vec<&str> = (function.start..function.open).map(|i| seq.text(i)).collect();
    let has = |word: &str| words.contains(&word);
    if has("static") || has("extern") || has("friend") || has("\"C\"") {
        return false;
    }
    // An explicit specialisation or instantiation has no storage class.
    if words.first() == Some(&"template")
        && (words.get(1) != Some(&"<") || words.get(2) == Some(&">"))
    {
        return false;
    }
    // A member defined outside its class.
    if function.open >= 2 && seq.text(function.open - 2) == "::" {
        return false;
    }
    // A plain host function may be called from another file.
    !function.host || has("inline") || has("__forceinline__") || has("template")
}

fn variables(context: &Context<'_, '_>, edits: &mut Edits) {
    let seq = &context.unit.main;
    for variable in &context.found.variables {
        let words: Vec<&str> = (variable.start..variable.end).map(|i| seq.text(i)).collect();
        let plain = variable.scope == Scope::Namespace
            && !words.iter().any(|w| matches!(*w, "static" | "extern" | "inline"));
        let mut text = if plain { "static" } else { "" };
        for i in variable.qualifier..variable.end {
            if matches!(seq.text(i), "__constant__" | "__device__") {
                let token = &seq.tokens[i];
                edits.replace(seq.source, token.start, token.end, text);
                text = "";
            }
        }
    }
}

/// Gives classes with device members internal linkage, for the same reason as functions.
fn classes(context: &Context<'_, '_>, edits: &mut Edits) {
    let (unit, seq) = (context.unit, &context.unit.main);
    let declared: HashSet<&str> = (0..seq.len())
        .filter(|&k| matches!(seq.text(k), "struct" | "class") && seq.text(k + 2) == ";")
        .map(|k| seq.text(k + 1))
        .collect();
    let mut i = 0;
    while i < seq.len() {
        let (name, brace) = (seq.text(i + 1), i + 2);
        let definition = matches!(seq.text(i), "struct" | "class")
            && unit.scopes[i] == Scope::Namespace
            && seq.is_ident(i + 1)
            && class_brace(seq, brace).is_some();
        let Some((open, close)) = definition
            .then(|| class_brace(seq, brace))
            .flatten()
            .and_then(|open| unit.partner.get(&open).map(|close| (open, *close)))
        else {
            i += 1;
            continue;
        };
        let start = seq.statement(i);
        let device = (open..close).any(|k| seq.text(k) == "__device__");
        if let Some(end) = seq.semicolon(close)
            && device
            && !declared.contains(name)
            && seq.text(start) != "extern"
        {
            edits.insert(seq.tokens[start].start, "namespace { ");
            edits.insert(seq.tokens[end].end, " }");
        }
        i = close;
    }
}

/// The brace that opens a class body after the class's name, if there is one.
fn class_brace(seq: &Seq<'_>, mut i: usize) -> Option<usize> {
    while i < seq.len() {
        match seq.text(i) {
            "{" => return Some(i),
            ";" | "(" | ")" | "=" | "*" | "&" | "struct" | "class" => return None,
            "<" => i = seq.past_angle(i)?,
            _ => i += 1,
        }
    }
    None
}

/// Functions of the C library that `hostcuda` replaces if they are called without qualification.
const MATH: [&str; 41] = [
    "expf",
    "exp",
    "exp2f",
    "exp2",
    "expm1f",
    "expm1",
    "logf",
    "log",
    "log2f",
    "log2",
    "log10f",
    "log10",
    "log1pf",
    "log1p",
    "tanhf",
    "tanh",
    "erff",
    "erf",
    "fmaxf",
    "fminf",
    "fmax",
    "fmin",
    "max",
    "min",
    "roundf",
    "round",
    "__expf",
    "__exp10f",
    "exp10f",
    "__logf",
    "__log2f",
    "__log10f",
    "__powf",
    "__tanhf",
    "__sinf",
    "__cosf",
    "__tanf",
    "__sincosf",
    "powf",
    "__erff",
    "__fmaxf",
];

fn names(context: &Context<'_, '_>, seq: &Seq<'_>, edits: &mut Edits) {
    for i in 0..seq.len() {
        let token = &seq.tokens[i];
        let word = seq.text(i);
        if matches!(word, "is_cuda" | "kCUDA") {
            let cpu = if word == "kCUDA" { "kCPU" } else { "is_cpu" };
            edits.replace(seq.source, token.start, token.end, cpu);
            continue;
        }
        if word == "__activemask" && seq.text(i + 1) == "(" {
            // Lanes that ask at different places are not together.
            let text = format!("::hostcuda::active_mask<{}>", token.start);
            edits.replace(seq.source, token.start, token.end, text);
            continue;
        }
        if seq.text(i + 1) != "(" || context.own.contains(word) || !MATH.contains(&word) {
            continue;
        }
        let before = if i == 0 { "" } else { seq.text(i - 1) };
        let mut start = token.start;
        match before {
            "." | "->" => continue,
            "::" => {
                let qualifier = if i < 2 { "" } else { seq.text(i - 2) };
                match qualifier {
                    "std" if !matches!(word, "max" | "min") => start = seq.tokens[i - 2].start,
                    q if !seq.is_ident(i.wrapping_sub(2)) && q != ">" => {
                        start = seq.tokens[i - 1].start;
                    }
                    _ => continue,
                }
            }
            // A declaration of the same name: `float exp(float)`.
            _ if i > 0 && seq.is_ident(i - 1) && !is_expression_keyword(before) => continue,
            _ => {}
        }
        edits.replace(seq.source, start, token.end, format!("::hostcuda::math::{word}"));
    }
}

fn is_expression_keyword(word: &str) -> bool {
    matches!(word, "return" | "else" | "do" | "case" | "throw" | "co_return")
}
