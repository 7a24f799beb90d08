//! The header libraries that a task allows: `libraries = ["cccl"]` at module level.
//!
//! It is read, never executed, so it must be a literal list of names. Which libraries there are is the judge's
//! business; here a name is a word.

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::facts::error::TaskErrorKind;
use crate::facts::excerpt::Lines;

/// Name of the variable.
pub(crate) const NAME: &str = "libraries";
/// Names that a task may list.
const LIBRARIES: [&str; 2] = ["cutlass", "cccl"];

const CURE: &str =
    "write a literal list once, at module level: `libraries = [\"cccl\"]`, of cutlass and cccl";

/// The names in the list, in order; `None`: the module has no such variable.
pub(crate) fn read(body: &[Stmt], lines: &Lines<'_>) -> Result<Option<Vec<String>>, TaskErrorKind> {
    let wrong = |at: TextRange, message: String| TaskErrorKind::Libraries {
        at: lines.place(at.start()),
        message,
        cure: CURE,
    };
    let mut found: Option<Vec<String>> = None;
    for value in body.iter().filter_map(assigned) {
        if found.is_some() {
            return Err(wrong(value.range(), "it is assigned more than once".to_owned()));
        }
        let items = match value {
            Expr::List(list) => &list.elts,
            Expr::Tuple(tuple) => &tuple.elts,
            other => {
                return Err(wrong(other.range(), "it is no literal list".to_owned()));
            }
        };
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let Expr::StringLiteral(literal) = item else {
                return Err(wrong(item.range(), "an item is no literal text".to_owned()));
            };
            let name = literal.value.to_str();
            if !LIBRARIES.contains(&name) {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
                return Err(wrong(item.range(), format!("`{shown}` is no library")));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        found = Some(names);
    }
    Ok(found)
}

/// The value of a statement that assigns to the variable.
fn assigned(statement: &Stmt) -> Option<&Expr> {
    let (target, value) = match statement {
        Stmt::Assign(assign) => match &assign.targets[..] {
            [target] => (target, &*assign.value),
            _ => return None,
        },
        Stmt::AnnAssign(assign) => (&*assign.target, assign.value.as_deref()?),
        _ => return None,
    };
    matches!(target, Expr::Name(name) if name.id.as_str() == NAME).then_some(value)
}

#[cfg(test)]
mod tests {
    use crate::task::Task;

    fn task(line: &str) -> Task {
        let model =
            "class Model:\n    def forward(self, x): return x\ndef get_inputs(): return []\n";
        Task::from_source("t", format!("import torch\n{line}\n{model}"))
    }

    #[test]
    fn allowed_libraries_are_read_from_a_literal() {
        let cases: [(&str, &[&str]); 5] = [
            ("", &[]),
            ("libraries = []", &[]),
            ("libraries = [\"cccl\"]", &["cccl"]),
            ("libraries: list[str] = (\"cutlass\", \"cccl\", \"cutlass\")", &["cutlass", "cccl"]),
            ("def f():\n    libraries = [1]", &[]),
        ];
        for (line, wanted) in cases {
            assert_eq!(task(line).libraries().unwrap(), wanted, "{line}");
            assert_eq!(task(line).facts().unwrap().libraries, wanted, "{line}");
        }
    }

    #[test]
    fn other_forms_of_libraries_are_refused() {
        for (line, message) in [
            ("libraries = [\"cublas\"]", "`cublas` is no library"),
            ("libraries = [\"cc\" + \"cl\"]", "an item is no literal text"),
            ("libraries = list()", "it is no literal list"),
            ("libraries = [\"cccl\"]\nlibraries = []", "it is assigned more than once"),
        ] {
            let error = task(line).libraries().unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.hint().contains("literal list"), "{}", error.hint());
            assert!(task(line).facts().is_err());
        }
    }
}
