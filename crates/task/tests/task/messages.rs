//! Every bad input gives a precise message and a hint.

use std::path::Path;

use insta::assert_snapshot;
use warpwright_task::{Task, TaskErrorKind, facts};

use crate::GOOD;

/// Error and hint as a command would show them.
fn said(source: &str) -> String {
    let error = facts(source).expect_err("the source is bad");
    format!("{error}\nhint: {}", error.hint())
}

#[test]
fn valid_source_has_no_error() {
    facts(GOOD).expect("the source is good");
}

#[test]
fn error_for_a_syntax_error() {
    assert_snapshot!(said(&GOOD.replace("x + self.bias", "(x + self.bias")), @"
    failed to read the task: syntax error at line 14, column 1: Expected `)`, found `def`
      14 | def get_inputs():
         | ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn error_for_a_syntax_error_at_the_end_of_the_file() {
    assert_snapshot!(said("class Model("), @"
    failed to read the task: syntax error at line 1, column 13: unexpected EOF while parsing
      1 | class Model(
        |             ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn error_for_bad_indentation() {
    assert_snapshot!(said(&GOOD.replace("        return x + self.bias", "return x + self.bias")), @"
    failed to read the task: syntax error at line 10, column 26: Expected an indented block after function definition
      10 |     def forward(self, x):
         |                          ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn error_for_text_that_is_not_python() {
    assert_snapshot!(said("version https://git-lfs.github.com/spec/v1\n"), @"
    failed to read the task: syntax error at line 1, column 9: Simple statements must be separated by newlines or semicolons
      1 | version https://git-lfs.github.com/spec/v1
        |         ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn wide_line_is_truncated_around_the_caret() {
    let source = format!(
        "x = [{}]\nclass Model: pass\n",
        "1234567890, ".repeat(40) + "?" + &", 5".repeat(99)
    );
    assert_snapshot!(said(&source), @"
    failed to read the task: syntax error at line 1, column 486: Got unexpected token ?
      1 | ...1234567890, 1234567890, 1234567890, 1234567890, ?, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,...
        |                                                    ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn excerpt_has_no_control_characters() {
    let said = said("x = '\u{1b}[31m' ?\t'\u{7}'\n");
    assert!(!said.contains(['\u{1b}', '\u{7}', '\t']), "{said:?}");
}

#[test]
fn error_for_a_missing_model() {
    assert_snapshot!(said(&GOOD.replace("class Model", "class Net")), @"
    failed to read the task: it has no class `Model`, only `Net`
    hint: a task is a file with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`; rename the module to `Model`
    ");
}

#[test]
fn error_for_an_empty_file() {
    assert_snapshot!(said(""), @"
    failed to read the task: it has no class `Model`
    hint: a task is a file with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`; rename the module to `Model`
    ");
}

#[test]
fn error_for_a_model_that_is_a_function() {
    assert_snapshot!(said("def Model(x):\n    return x\n"), @"
    failed to read the task: `Model` is a function, not a class, at line 1, column 5
      1 | def Model(x):
        |     ^
    hint: make it `class Model(nn.Module)`
    ");
}

#[test]
fn error_for_a_missing_forward() {
    assert_snapshot!(said(&GOOD.replace("def forward", "def forwards")), @"
    failed to read the task: class `Model` has no method `forward`, at line 5, column 7
      5 | class Model(nn.Module):
        |       ^
    hint: add `def forward(self, ...)`, taking what `get_inputs()` returns
    ");
}

#[test]
fn error_for_a_missing_get_inputs() {
    assert_snapshot!(said(&GOOD.replace("def get_inputs", "def inputs")), @"
    failed to read the task: it has no function `get_inputs`
    hint: add `def get_inputs(): return [torch.randn(...)]`, the arguments of `forward`
    ");
}

#[test]
fn error_for_a_missing_get_init_inputs() {
    assert_snapshot!(said(&GOOD.replace("def get_init_inputs", "def init_inputs")), @"
    failed to read the task: `Model` needs the argument `width`, and there is no function `get_init_inputs`, at line 6, column 24
      6 |     def __init__(self, width):
        |                        ^
    hint: add `def get_init_inputs(): return [...]`, the arguments of `Model`, or give the parameter a default
    ");
}

#[test]
fn error_for_get_inputs_with_a_required_argument() {
    assert_snapshot!(said(&GOOD.replace("get_inputs()", "get_inputs(batch, *, seed=0)")), @"
    failed to read the task: `get_inputs` is called without arguments, but its parameter `batch` has no default, at line 14, column 16
      14 | def get_inputs(batch, *, seed=0):
         |                ^
    hint: the function is called without arguments: give the parameter a default, or use a constant
    ");
}

#[test]
fn error_for_an_async_get_init_inputs() {
    assert_snapshot!(said(&GOOD.replace("def get_init_inputs", "async def get_init_inputs")), @"
    failed to read the task: `get_init_inputs` is an `async` function, at line 18, column 11
      18 | async def get_init_inputs():
         |           ^
    hint: make it a plain function
    ");
}

#[test]
fn error_for_a_relative_import() {
    assert_snapshot!(said(&format!("from .layers import Norm\n{GOOD}")), @"
    failed to read the task: relative import at line 1, column 1
      1 | from .layers import Norm
        | ^
    hint: a task is one file: copy what it needs into it
    ");
}

#[test]
fn error_for_an_oversized_source() {
    assert_snapshot!(said(&"# padding\n".repeat(30_000)), @"
    failed to read the task: its 300000 bytes exceed the limit of 262144
    hint: a task is one module's reference; leave weights and data out of the source
    ");
}

#[test]
fn error_names_the_origin_of_the_task() {
    let mut task = Task::from_source("broken", "def");
    task.origin = Some("models/broken.py".into());
    assert_snapshot!(task.facts().expect_err("broken"), @"
    failed to read the task models/broken.py: syntax error at line 1, column 4: Expected an identifier
      1 | def
        |    ^
    ");
    assert_snapshot!(Task::from_source("row-7", "def").facts().expect_err("broken"), @"
    failed to read the task row-7: syntax error at line 1, column 4: Expected an identifier
      1 | def
        |    ^
    ");
    let error = facts("def").expect_err("broken").of(Path::new("x.py"));
    assert!(matches!(*error.kind, TaskErrorKind::Syntax { .. }));
}
