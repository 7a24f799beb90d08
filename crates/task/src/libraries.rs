//! The header libraries that a task allows: `libraries = ["cccl"]` at module level.
//!
//! It is read, never executed, so it must be a literal list of names. Which libraries there are is the judge's
//! business; here a name is a word.

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::constants::{self, Form};
use crate::facts::error::TaskErrorKind;
use crate::facts::excerpt::Lines;

/// Name of the variable.
pub(crate) const NAME: &str = "libraries";
/// Names that a task may list.
const LIBRARIES: [&str; 2] = ["cutlass", "cccl"];

const CURE: &str = "write a literal list once, at module level: `libraries = [\"cccl\"]`, of cutlass and cccl; give other variables another name";

/// The names in the list, in order; `None`: the module has no such variable.
pub(crate) fn read(body: &[Stmt], lines: &Lines<'_>) -> Result<Option<Vec<String>>, TaskErrorKind> {
    let wrong = |at: TextRange, message: String| TaskErrorKind::Libraries {
        at: lines.place(at.start()),
        message,
        cure: CURE,
    };
    let mut found: Option<Vec<String>> = None;
    for bound in constants::bound(body, NAME) {
        let value = match bound.form {
            Form::Plain(value) => value,
            Form::Definition(what)
            | Form::Changed(what)
            | Form::Other(what)
            | Form::Inner(what) => {
                return Err(wrong(bound.at, what.to_owned()));
            }
        };
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
            ("class A:\n    def f(self):\n        self.libraries = [1]", &[]),
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

    #[test]
    fn libraries_in_an_unknown_form_name_their_line() {
        for (line, place) in [
            ("x = libraries = [\"cccl\"]", "line 2"),
            ("libraries, x = [\"cccl\"], 1", "line 2"),
            ("libraries = []\nlibraries += [\"cccl\"]", "line 3"),
            ("libraries = []\nlibraries.append(\"cccl\")", "line 3"),
            ("libraries = []\nlibraries[:] = [\"cccl\"]", "line 3"),
            ("if True:\n    libraries = [\"cccl\"]", "line 3"),
            ("try:\n    libraries = [\"cccl\"]\nfinally:\n    pass", "line 3"),
            ("for libraries in [[\"cccl\"]]:\n    pass", "line 2"),
            ("libraries: list[str]", "line 2"),
            ("libraries = [\"cccl\"]\ndel libraries", "line 3"),
            ("print(libraries := [\"cccl\"])", "line 2"),
            ("[(libraries := [x]) for x in [\"cccl\"]]", "line 2"),
            ("def f():\n    global libraries\n    libraries = [\"cccl\"]\nf()", "line 3"),
            ("def f(libraries):\n    pass", "line 2"),
            ("def f():\n    libraries = [1]", "line 3"),
            ("def libraries():\n    pass", "line 2"),
            ("class libraries:\n    pass", "line 2"),
            ("import libraries", "line 2"),
            ("import libraries.names", "line 2"),
            ("from x import y as libraries", "line 2"),
            ("with open(\"x\") as libraries:\n    pass", "line 2"),
            ("try:\n    pass\nexcept E as libraries:\n    pass", "line 4"),
            ("match 1:\n    case libraries:\n        pass", "line 3"),
            ("x = 1; libraries = list()", "line 2"),
        ] {
            let error = task(line).libraries().expect_err(line).to_string();
            assert!(error.contains(place), "{line}: {error}");
            assert!(task(line).facts().is_err(), "{line}");
        }
    }
}
