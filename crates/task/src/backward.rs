//! Tasks whose call is a step: forward, and then the gradients of inputs and parameters.
//!
//! As with a cast, such a task is another task: its source has a footer that makes `Model` compute gradients by
//! autograd, and `get_inputs` sample those of the outputs. Only the candidate's `backward` is called elsewhere, by
//! the process that loads it.

use ruff_python_ast::{Expr, Stmt};

use crate::facts::deep;
use crate::limits::MAX_SOURCE_BYTES;

/// Python that defines `_warpwright_backward`.
const FOOTER: &str = include_str!("backward.py");

/// How every version of it begins.
const BEGINNING: &str = "\n# Appended by `warpwright --backward`";

/// The last line.
const LAST_LINE: &str = "_warpwright_backward()";

/// A source in two parts, before the footer and from it on; `None`: it has no footer.
pub(crate) fn parts(source: &str) -> Option<(&str, &str)> {
    let last = source.trim_end().lines().next_back()?;
    let at = source.rfind(BEGINNING).filter(|_| last == LAST_LINE)?;
    source.split_at_checked(at)
}

/// The source with the footer.
pub(crate) fn appended(source: &str) -> String {
    format!("{}\n\n\n{FOOTER}\n\n{LAST_LINE}\n", source.trim_end())
}

/// Whether a source asks for the footer: its module assigns `backward = True`.
pub(crate) fn is_wanted(source: &str) -> bool {
    // Only sources with such a line are parsed: thousands of tasks are read at once.
    let names = |line: &str| line.starts_with("backward");
    if source.len() > MAX_SOURCE_BYTES || !source.lines().any(names) {
        return false;
    }
    deep::on_deep_stack(|| {
        let Ok(parsed) = ruff_python_parser::parse_module(source) else { return false };
        parsed.suite().iter().filter_map(assigned).next_back().unwrap_or(false)
    })
    .unwrap_or(false)
}

/// The value of a statement that assigns a boolean to `backward`.
fn assigned(statement: &Stmt) -> Option<bool> {
    let (target, value) = match statement {
        Stmt::Assign(assign) => match &assign.targets[..] {
            [target] => (target, &*assign.value),
            _ => return None,
        },
        Stmt::AnnAssign(assign) => (&*assign.target, assign.value.as_deref()?),
        _ => return None,
    };
    match (target, value) {
        (Expr::Name(name), Expr::BooleanLiteral(value)) if name.id.as_str() == "backward" => {
            Some(value.value)
        }
        _ => None,
    }
}
