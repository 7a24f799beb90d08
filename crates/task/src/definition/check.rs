//! Whether a definition is one: before anything of it becomes Python.

use std::collections::HashSet;

use ruff_python_ast::{Stmt, StmtFunctionDef};

use super::axes::{self, Axis};
use super::schema::Raw;
use super::tensors::Dtype;
use super::wrong::Wrong;
use crate::facts::deep::on_deep_stack;

/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 16;
/// Longest name of an axis or input.
const LONGEST_NAME: usize = 64;
/// Begins the names that the made source has for itself.
const OURS: &str = "_warpwright";

/// Python's keywords, and what the made source calls.
const KEYWORDS: [&str; 39] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield", "int", "run", "self", "_made",
];

/// A definition's checked parts.
pub(super) struct Checked {
    pub(super) axes: Vec<(String, Axis)>,
    /// Of the inputs, in their order.
    pub(super) inputs: Vec<Dtype>,
}

pub(super) fn definition(raw: &Raw) -> Result<Checked, Wrong> {
    let axes = axes::read(raw)?;
    let mut names = HashSet::new();
    for name in raw.axes.names().chain(raw.inputs.names()) {
        if !is_identifier(name) {
            let name = super::one_line(name, 40);
            return Err(Wrong::definition(format!("`{name}` can name no axis or input")));
        }
        if !names.insert(name) {
            return Err(Wrong::definition(format!("`{name}` is both an axis and an input")));
        }
    }
    for (name, axis) in &axes {
        if let Axis::Expr(text) = axis
            && !axes::plain(text)
        {
            return Err(Wrong::definition(format!(
                "its axis `{name}` is not arithmetic of axes and numbers"
            )));
        }
    }
    if raw.inputs.0.is_empty() || raw.outputs.0.is_empty() {
        return Err(Wrong::definition("it has no inputs or no outputs"));
    }
    let mut inputs = Vec::new();
    for (name, tensor) in raw.inputs.0.iter().chain(&raw.outputs.0) {
        let of = |wrong: Wrong| Wrong {
            reason: format!("`{}`: {}", super::one_line(name, 40), wrong.reason),
            ..wrong
        };
        let dtype = Dtype::of(&tensor.dtype).map_err(of)?;
        let shape = tensor.shape.as_deref().unwrap_or_default();
        if shape.len() > MOST_DIMENSIONS {
            return Err(of(Wrong::definition("it has too many dimensions")));
        }
        let is_axis =
            |n: &String| raw.axes.get(n).is_some() || n.len() <= 12 && n.parse::<u64>().is_ok();
        if let Some(unknown) = shape.iter().find(|n| !is_axis(n)) {
            let unknown = super::one_line(unknown, 40);
            return Err(of(Wrong::definition(format!(
                "its shape names `{unknown}`, which is no axis"
            ))));
        }
        if inputs.len() < raw.inputs.0.len() {
            inputs.push(dtype);
        }
    }
    reference(raw)?;
    Ok(Checked { axes, inputs })
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= LONGEST_NAME
        && !KEYWORDS.contains(&name)
        && !name.starts_with(OURS)
}

/// The reference is Python with a function `run` of the inputs, and the function that makes custom
/// inputs.
fn reference(raw: &Raw) -> Result<(), Wrong> {
    let Some(source) = raw.reference.as_deref().filter(|source| !source.trim().is_empty()) else {
        return Err(Wrong::definition("it has no `reference`"));
    };
    if source.len() > super::LARGEST_REFERENCE {
        let most = super::LARGEST_REFERENCE;
        return Err(Wrong::definition(format!(
            "the {} bytes of its `reference` exceed the limit of {most}",
            source.len()
        )));
    }
    if source.contains(OURS) {
        return Err(Wrong::definition(format!(
            "its `reference` uses names that begin with `{OURS}`"
        )));
    }
    let entry = raw.custom_inputs_entrypoint.as_deref();
    let inputs: Vec<&str> = raw.inputs.names().collect();
    on_deep_stack(|| {
        let parsed = ruff_python_parser::parse_module(source).map_err(|error| {
            Wrong::definition(format!("its `reference` is not Python: {error}"))
        })?;
        let body = parsed.suite();
        let run = function(body, "run")
            .ok_or_else(|| Wrong::definition("its `reference` has no function `run`"))?;
        let taken: Vec<&str> =
            run.parameters.iter_non_variadic_params().map(|p| p.parameter.name.as_str()).collect();
        if taken != inputs || run.parameters.vararg.is_some() || run.parameters.kwarg.is_some() {
            let taken = super::one_line(&taken.join(", "), 200);
            let inputs = super::one_line(&inputs.join(", "), 200);
            return Err(Wrong::definition(format!(
                "`run` takes ({taken}), and the inputs are ({inputs})"
            )));
        }
        if !run.parameters.kwonlyargs.is_empty() || run.is_async {
            return Err(Wrong::definition("`run` cannot be called with the inputs in their order"));
        }
        if let Some(entry) = entry
            && (!is_identifier(entry) || function(body, entry).is_none())
        {
            let entry = super::one_line(entry, 40);
            return Err(Wrong::definition(format!(
                "its `reference` has no function `{entry}`, which `custom_inputs_entrypoint` names"
            )));
        }
        // What else the task defines replaces the reference's, which nothing calls.
        if body.iter().any(|statement| binds(statement, "Model")) {
            return Err(Wrong::definition(
                "its `reference` defines `Model`, a name that the task needs",
            ));
        }
        Ok(())
    })
    .unwrap_or_else(|| Err(Wrong::definition("its `reference` cannot be read")))
}

fn function<'a>(body: &'a [Stmt], name: &str) -> Option<&'a StmtFunctionDef> {
    body.iter().rev().find_map(|statement| match statement {
        Stmt::FunctionDef(function) if function.name.as_str() == name => Some(function),
        _ => None,
    })
}

fn binds(statement: &Stmt, name: &str) -> bool {
    match statement {
        Stmt::FunctionDef(function) => function.name.as_str() == name,
        Stmt::ClassDef(class) => class.name.as_str() == name,
        _ => false,
    }
}
