//! Device helpers, each written into a file only if its text uses it.

mod arithmetic;
mod memory;
mod operators;
mod threads;

/// Name to look for, and its definition.
type Helper = (&'static str, &'static str);

/// In order of definition: helpers use helpers defined before them.
const HELPERS: [&[Helper]; 4] =
    [memory::HELPERS, arithmetic::HELPERS, operators::HELPERS, threads::HELPERS];

/// Includes and helpers that `body` needs, then `body`, indented.
pub(crate) fn complete(comment: &str, body: &[String]) -> String {
    let body = indent(body);
    let mut definitions = Vec::new();
    // From the last to the first, as a helper needs only those before it.
    let mut text = body.clone();
    for (name, definition) in HELPERS.iter().rev().flat_map(|some| some.iter().rev()) {
        if uses(&text, name) {
            text.push_str(definition);
            definitions.push(definition);
        }
    }
    let mut out = String::new();
    for l in comment.lines() {
        out.push_str(if l.is_empty() { "//" } else { "// " });
        out.push_str(l);
        out.push('\n');
    }
    out.push_str("#include <cuda_runtime.h>\n");
    if text.contains("__half") {
        out.push_str("#include <cuda_fp16.h>\n");
    }
    if text.contains("bfloat16") {
        out.push_str("#include <cuda_bf16.h>\n");
    }
    out.push_str("#include <cmath>\n#include <cstdint>\n\n");
    for definition in definitions.into_iter().rev() {
        out.push_str(definition);
        out.push('\n');
    }
    out.push_str(&body);
    out
}

/// Whether `name` occurs as a whole identifier.
fn uses(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Indents by braces, two spaces each; preprocessor lines stay at the margin.
fn indent(lines: &[String]) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    for line in lines.iter().flat_map(|l| l.split('\n')) {
        let line = line.trim();
        let opens = line.matches('{').count();
        let closes = line.matches('}').count();
        let leading = line.chars().take_while(|c| *c == '}').count();
        let here = if line.starts_with('#') { 0 } else { depth.saturating_sub(leading) };
        if !line.is_empty() {
            out.push_str(&"  ".repeat(here));
            out.push_str(line);
        }
        out.push('\n');
        depth = (depth + opens).saturating_sub(closes);
    }
    out
}
