//! Reads the calls and imports of a source without running it.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, Stmt};

use super::answer::{AnswerError, MAX_CODE_BYTES};
use super::calls::calls;

/// Stack of the reading thread, in bytes per byte of the longest source: `-----x` nests once per
/// byte. It is only reserved; deep recursion uses it.
const STACK_PER_BYTE: usize = 4096;

/// Python built-ins that no task needs.
const FORBIDDEN: [&str; 11] = [
    "__import__",
    "breakpoint",
    "compile",
    "eval",
    "exec",
    "globals",
    "input",
    "locals",
    "open",
    "print",
    "vars",
];

/// Allowed imports: torch, and standard modules for numbers and types.
const ALLOWED: [&str; 10] = [
    "__future__",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "numbers",
    "torch",
    "typing",
];

/// Parts of torch that are not tensor operators.
const FOREIGN_TORCH: [&str; 8] = [
    "torch._dynamo",
    "torch._inductor",
    "torch.backends",
    "torch.cuda",
    "torch.distributed",
    "torch.jit",
    "torch.multiprocessing",
    "torch.utils",
];

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// First line of the module's docstring, or of the model's.
    pub(super) title: Option<String>,
    /// Full names of the calls of `Model.forward`, in order, with modules represented by their
    /// classes. A method of a value is `torch.Tensor.NAME`.
    pub(super) calls: Vec<String>,
}

/// Reads a source that is a valid task.
pub(super) fn read(source: &str) -> Result<Reading, AnswerError> {
    let work = || {
        let parsed = ruff_python_parser::parse_module(source).map_err(|_| AnswerError::Tangled)?;
        let body = parsed.suite();
        let mut guard = Guard { source, refused: None };
        guard.visit_body(body);
        if let Some(refused) = guard.refused {
            return Err(refused);
        }
        Ok(Reading { title: title(body), calls: calls(body)? })
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("answer-reader".to_owned());
        let thread = builder.stack_size(STACK_PER_BYTE * MAX_CODE_BYTES).spawn_scoped(scope, work);
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(Err(AnswerError::Tangled))
    })
}

/// The first line of the module's docstring, or of the model's.
fn title(body: &[Stmt]) -> Option<String> {
    let text = |body: &[Stmt]| match body.first() {
        Some(Stmt::Expr(statement)) => match &*statement.value {
            Expr::StringLiteral(text) => {
                let line = text.value.to_str().trim().lines().next()?.trim().to_owned();
                (!line.is_empty()).then_some(line)
            }
            _ => None,
        },
        _ => None,
    };
    text(body).or_else(|| {
        body.iter().find_map(|statement| match statement {
            Stmt::ClassDef(class) if class.name.as_str() == "Model" => text(&class.body),
            _ => None,
        })
    })
}

/// Finds forbidden constructs anywhere in the file.
struct Guard<'a> {
    source: &'a str,
    refused: Option<AnswerError>,
}

impl Guard<'_> {
    fn import(&mut self, module: &str, at: usize) {
        let package = module.split('.').next().unwrap_or(module);
        let below = |name: &str| {
            module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if ALLOWED.contains(&package) && !FOREIGN_TORCH.iter().any(|name| below(name)) {
            return;
        }
        let (module, line) = (module.chars().take(80).collect(), self.line(at));
        self.refused.get_or_insert(AnswerError::Import { module, line });
    }

    /// Line number of a byte offset, from 1.
    fn line(&self, at: usize) -> usize {
        self.source.get(..at).map_or(0, |text| text.matches('\n').count()) + 1
    }
}

impl<'e> Visitor<'e> for Guard<'_> {
    fn visit_stmt(&mut self, statement: &'e Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    self.import(&alias.name, import.range.start().to_usize());
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    // `from torch import utils` is `torch.utils`.
                    let full = format!("{module}.{}", alias.name);
                    self.import(&full, import.range.start().to_usize());
                }
            }
            Stmt::While(each) => {
                let line = self.line(each.range.start().to_usize());
                self.refused.get_or_insert(AnswerError::While { line });
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'e Expr) {
        if let Expr::Call(call) = expression
            && let Expr::Name(name) = &*call.func
            && FORBIDDEN.contains(&name.id.as_str())
        {
            self.refused.get_or_insert(AnswerError::Forbidden { name: name.id.to_string() });
        }
        walk_expr(self, expression);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls_of(source: &str) -> Vec<String> {
        read(source).unwrap().calls
    }

    const HEAD: &str = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n";

    #[test]
    fn calls_are_read_in_the_order_of_forward() {
        let source = format!(
            "\"\"\"Gated attention.\n\nMore.\n\"\"\"\n{HEAD}
class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return self.norm(x) * torch.sigmoid(x)


def scores(q, k, scale):
    return torch.matmul(q, k.transpose(-1, -2)) * scale


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = size ** -0.5
        self.blocks = nn.ModuleList([Block(size) for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU())

    def forward(self, x):
        b, n, d = x.shape
        for block in self.blocks:
            x = block(x)
        x = F.softmax(scores(x, x, self.scale), dim=-1) @ x
        x += self.extra(x).view(b, n * d // d, -1)
        return self.head(x).mean(dim=1)

    def extra(self, x):
        return nn.Tanh()(x) + 1.0
"
        );
        assert_eq!(
            calls_of(&source),
            [
                "torch.nn.ModuleList",
                "torch.nn.LayerNorm",
                "torch.sigmoid",
                "torch.mul",
                "torch.Tensor.transpose",
                "torch.matmul",
                "torch.nn.functional.softmax",
                "torch.matmul",
                "torch.nn.Tanh",
                "torch.Tensor.view",
                "torch.add",
                "torch.nn.Sequential",
                "torch.nn.Linear",
                "torch.nn.ReLU",
                "torch.Tensor.mean",
            ]
        );
        assert_eq!(read(&source).unwrap().title.unwrap(), "Gated attention.");
    }

    #[test]
    fn forbidden_constructs_are_refused_by_name() {
        let model = "class Model(nn.Module):\n    def forward(self, x):\n        return x\n";
        for (line, name) in [
            ("import os", "import"),
            ("import numpy as np", "import"),
            ("from transformers import AutoModel", "import"),
            ("import torch.utils.cpp_extension", "import"),
            ("from torch import cuda", "import"),
            ("def f():\n    import subprocess", "import"),
            ("x = __import__('os')", "forbidden"),
            ("print(1)", "forbidden"),
            ("while True:\n    pass", "while"),
        ] {
            let error = read(&format!("{HEAD}{line}\n{model}")).unwrap_err();
            assert_eq!(error.name(), name, "{line}: {error}");
        }
        assert_eq!(
            read(&format!("{HEAD}import os.path\n{model}")).unwrap_err().to_string(),
            "line 4 imports `os.path`; a task may import only __future__, torch, collections, \
             dataclasses, enum, functools, itertools, math, numbers and typing, and of torch only \
             parts with tensor operators (not, for example, torch.cuda or torch.utils)"
        );
        for line in
            ["import math", "from typing import Optional", "from __future__ import annotations"]
        {
            assert!(read(&format!("{line}\n{HEAD}{model}")).is_ok(), "{line}");
        }
    }

    #[test]
    fn in_place_change_of_an_input_is_detected() {
        let forward = |lines: &str| {
            let source = format!(
                "{HEAD}class Model(nn.Module):\n    def forward(self, x, y):\n        {lines}\n        return x + y\n"
            );
            read(&source).map(|_| ())
        };
        for lines in [
            "x.tanh_()",
            "x += y",
            "x[:, 0] = y",
            "y = torch.exp(x.add_(y))",
            "y = F.relu(x, inplace=True)",
        ] {
            assert_eq!(
                forward(lines),
                Err(AnswerError::Overwrites { name: "x".into() }),
                "{lines}"
            );
        }
        for lines in [
            "x = torch.exp(x)\n        x += y",
            "z = torch.exp(x)\n        z.tanh_()",
            "x = F.relu(x + y, inplace=True)",
            "x = F.relu(x, inplace=False)",
            "z = x.clone()\n        z[0] = y",
        ] {
            assert_eq!(forward(lines), Ok(()), "{lines}");
        }
    }

    #[test]
    fn exponential_call_graph_is_refused() {
        let mut source = format!("{HEAD}class Model(nn.Module):\n");
        source += "    def forward(self, x):\n        return self.f0(x)\n";
        for i in 0..60 {
            let j = i + 1;
            let body = format!("return self.f{j}(self.f{j}(x))");
            source.extend(["    def f", &i.to_string(), "(self, x):\n        ", &body, "\n"]);
        }
        source += "    def f60(self, x):\n        return torch.exp(x)\n";
        assert_eq!(read(&source), Err(AnswerError::Tangled));
        let recursive = format!(
            "{HEAD}class Model(nn.Module):\n    def forward(self, x):\n        return torch.exp(self.forward(x))\n"
        );
        assert_eq!(calls_of(&recursive), ["torch.exp"]);
    }

    #[test]
    fn deep_nesting_never_crashes_the_program() {
        for (open, close) in [("-", ""), ("(", ")"), ("f(", ")"), ("[", "]"), ("x.f().", "")] {
            let depth = (MAX_CODE_BYTES - 200) / (open.len() + close.len());
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            let source = format!(
                "{HEAD}class Model(nn.Module):\n    def forward(self, x):\n        return {open}x{close}\n"
            );
            let _ = read(&source);
        }
    }

    proptest! {
        #[test]
        fn no_source_makes_reading_panic(
            pieces in prop::collection::vec(
                prop_oneof![
                    "\\PC{0,12}",
                    Just("class Model(nn.Module):\n".to_owned()),
                    Just("    def forward(self, x):\n".to_owned()),
                    Just("        x = self.a(x)\n".to_owned()),
                    Just("        for a in self.a:\n            x = a(x)\n".to_owned()),
                    Just("        self.a = nn.Sequential(nn.ReLU())\n".to_owned()),
                    Just("        return F.relu(x) @ x\n".to_owned()),
                    Just("def f(x):\n    return f(x)\n".to_owned()),
                    Just("import os\n".to_owned()),
                ],
                0..24,
            )
        ) {
            if let Ok(reading) = read(&pieces.concat()) {
                prop_assert!(reading.calls.len() <= crate::compose::llm::calls::FUEL);
            }
        }
    }
}
