//! Tasks whose call is a step: forward, and then the gradients of inputs and parameters.
//!
//! As with a cast, such a task is another task: its source has a footer that makes `Model` compute gradients by
//! autograd, and `get_inputs` sample those of the outputs. Only the candidate's `backward` is called elsewhere, by
//! the process that loads it.

use ruff_python_ast::{Expr, Number, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::constants::{self, Form};
use crate::facts::deep;
use crate::limits::MAX_SOURCE_BYTES;

/// Python that defines `_warpwright_backward`.
const FOOTER: &str = include_str!("backward.py");

/// How every version of it begins.
const BEGINNING: &str = "\n# Appended by `warpwright --backward`";

/// Name of the variable that asks for the footer.
const NAME: &str = "backward";

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
    // Only sources with the word are parsed: thousands of tasks are read at once.
    if source.len() > MAX_SOURCE_BYTES || !source.contains(NAME) {
        return false;
    }
    deep::on_deep_stack(|| {
        let Ok(parsed) = ruff_python_parser::parse_module(source) else { return false };
        let is_true = |value: &Expr| matches!(value, Expr::BooleanLiteral(it) if it.value);
        read(parsed.suite()).is_ok_and(|value| value.is_some_and(is_true))
    })
    .unwrap_or(false)
}

/// What keeps a module's `backward` from being read, and where: a task without gradients would be judged, and nobody
/// told.
pub(crate) fn unclear(body: &[Stmt]) -> Option<(TextRange, &'static str)> {
    read(body).err()
}

/// What a module assigns to `backward`; `None` if it does not, or has a function or module of that name.
fn read(body: &[Stmt]) -> Result<Option<&Expr>, (TextRange, &'static str)> {
    let mut found = None;
    for bound in constants::bound(body, NAME) {
        match bound.form {
            Form::Plain(_) if found.is_some() => {
                return Err((bound.at, "it is assigned more than once"));
            }
            Form::Plain(value) if may_be_true(value) => {
                return Err((value.range(), "it is assigned something else than True or False"));
            }
            Form::Plain(value) => found = Some(value),
            Form::Other(what) => return Err((bound.at, what)),
            // Methods, functions and parameters of that name are common.
            Form::Definition(_) | Form::Changed(_) | Form::Inner(_) => {}
        }
    }
    Ok(found)
}

/// Whether a value other than `True` may be true and is no function or module of that name.
fn may_be_true(value: &Expr) -> bool {
    match value {
        Expr::NumberLiteral(number) => match &number.value {
            Number::Int(int) => int.as_u64() != Some(0),
            Number::Float(float) => *float != 0.0,
            Number::Complex { real, imag } => *real != 0.0 || *imag != 0.0,
        },
        Expr::StringLiteral(text) => !text.value.is_empty(),
        Expr::BytesLiteral(bytes) => !bytes.value.is_empty(),
        Expr::List(list) => !list.elts.is_empty(),
        Expr::Tuple(tuple) => !tuple.elts.is_empty(),
        Expr::Set(_) | Expr::UnaryOp(_) | Expr::BinOp(_) | Expr::BoolOp(_) | Expr::Compare(_) => {
            true
        }
        Expr::Dict(dict) => !dict.items.is_empty(),
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Name(name) if ["bool", "int"].contains(&name.id.as_str()))
        }
        _ => false,
    }
}
