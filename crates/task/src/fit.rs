//! A task whose batch dimension is scaled down, so that a smaller device can judge it.
//!
//! Like a cast task (`dtype.rs`) it is another task: in its source the dimension has another value, and the first
//! line says so. So everything that knows a task by its source knows what was done to it.

mod workloads;

use std::cell::Cell;
use std::fmt;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, ExprContext, Number, Operator, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange};
use thiserror::Error;

use crate::facts::deep;
use crate::facts::module::{Binding, Module};
use crate::facts::names::Names;
use crate::limits::MAX_SOURCE_BYTES;

pub(crate) use workloads::{unlabelled, without_hidden, workload_scaled_down};

/// How the first line of a scaled source begins.
const LABEL: &str = "# Scaled down by warpwright --fit: ";
/// Begins the name of a workload there.
const OF_WORKLOAD: &str = ", workload ";

/// Functions of `torch` that make a tensor of a shape.
const MAKERS: [&str; 8] = ["empty", "full", "normal", "ones", "rand", "randint", "randn", "zeros"];
/// Those of which only a sequence is a shape: their other arguments are numbers too.
const WITH_NUMBERS: [&str; 3] = ["full", "normal", "randint"];

/// Names that are the batch dimension wherever they are one.
const BATCH: [&str; 3] = ["batch_size", "batch", "bs"];

/// Most expressions that are looked at to know a constant.
const MAX_STEPS: u32 = 1000;

/// A dimension of a task's inputs that was scaled down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Its name in the source, e.g. `batch_size`.
    pub dimension: String,
    /// Its size in the task itself.
    pub from: u64,
    /// Its size now.
    pub to: u64,
    /// The workload that has this size; `None`: the task has one set of inputs, or the dimension is that of all its
    /// workloads.
    pub workload: Option<String>,
}

impl Fit {
    /// What the first lines of a source say.
    pub(crate) fn all(source: &str) -> Vec<Self> {
        source.lines().map_while(Self::said).collect()
    }

    /// What a source's first line says of the whole task.
    fn of(source: &str) -> Option<Self> {
        Self::said(source.lines().next()?).filter(|fit| fit.workload.is_none())
    }

    fn said(line: &str) -> Option<Self> {
        let said = line.strip_prefix(LABEL)?;
        let (dimension, sizes) = said.split_once(" from ")?;
        let (sizes, workload) = match sizes.split_once(OF_WORKLOAD) {
            Some((sizes, name)) => (sizes, Some(serde_json::from_str(name.trim_end()).ok()?)),
            None => (sizes, None),
        };
        let (from, to) = sizes.trim_end().split_once(" to ")?;
        let fit = Self {
            dimension: dimension.to_owned(),
            from: from.parse().ok()?,
            to: to.parse().ok()?,
            workload,
        };
        let named =
            !dimension.is_empty() && dimension.chars().all(|c| c.is_alphanumeric() || c == '_');
        (named && fit.to < fit.from).then_some(fit)
    }

    fn line(&self) -> String {
        let of = self.workload.as_ref().map_or_else(String::new, |name| {
            format!("{OF_WORKLOAD}{}", serde_json::Value::from(name.as_str()))
        });
        format!("{LABEL}{} from {} to {}{of}\n", self.dimension, self.from, self.to)
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.dimension, self.to, self.from)?;
        match &self.workload {
            Some(workload) => write!(f, " in workload {workload}"),
            None => Ok(()),
        }
    }
}

/// Why a task cannot be scaled down.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FitError {
    /// Its source is no Python, or too long.
    #[error("its source cannot be read")]
    Unreadable,
    /// No dimension has a name.
    #[error("get_inputs() makes no tensor whose first dimension is a name, such as batch_size")]
    NoDimension,
    /// The dimension is computed, or assigned several times.
    #[error("{0}, the first dimension of its inputs, is not assigned one constant integer")]
    NotConstant(String),
    /// The dimension cannot be smaller.
    #[error("{0}, the first dimension of its inputs, is {1} already")]
    Least(String, u64),
    /// The task has workloads, and none of this name.
    #[error("it has no workload {0}")]
    NoWorkload(String),
    /// No parameter of `get_inputs` is a dimension that workloads choose.
    #[error(
        "no parameter of get_inputs() is the first dimension of its inputs, so no workload can have a smaller one"
    )]
    NoParameter,
    /// The task's own workloads say nothing of the dimension.
    #[error("workload {1} gives {0}, the first dimension of its inputs, no integer")]
    NotGiven(String, String),
    /// A definition has values in files.
    #[error("its definition has inputs whose values are stored: they are of one size")]
    Stored,
}

/// The source with its batch dimension divided by `divisor`, at least 1. A source that was scaled before is scaled
/// further.
pub(crate) fn scaled_down(source: &str, divisor: u64) -> Result<String, FitError> {
    let before = Fit::of(source);
    let source = match &before {
        Some(_) => source.split_once('\n').map_or("", |(_, rest)| rest),
        None if workloads::is_scaled(source) => return Err(FitError::NoDimension),
        None => source.trim_start_matches('\u{feff}'),
    };
    if source.len() + LABEL.len() + 512 > MAX_SOURCE_BYTES {
        return Err(FitError::Unreadable);
    }
    let (name, value, range) =
        deep::on_deep_stack(|| dimension(source)).unwrap_or(Err(FitError::Unreadable))?;
    let to = (value / divisor.max(1)).max(1);
    if to >= value {
        return Err(FitError::Least(name, value));
    }
    let (Some(head), Some(tail)) =
        (source.get(..range.start().to_usize()), source.get(range.end().to_usize()..))
    else {
        return Err(FitError::Unreadable);
    };
    let from = before.filter(|before| before.dimension == name).map_or(value, |before| before.from);
    let fit = Fit { dimension: name, from, to, workload: None };
    Ok(format!("{}{head}{to}{tail}", fit.line()))
}

/// The batch dimension of a source: its name, its value, and where that is assigned.
fn dimension(source: &str) -> Result<(String, u64, TextRange), FitError> {
    let parsed = ruff_python_parser::parse_module(source).map_err(|_| FitError::Unreadable)?;
    let body = parsed.suite();
    let Some(Binding::Function(inputs)) = Module::new(body).get("get_inputs") else {
        return Err(FitError::NoDimension);
    };
    let names = Names::new(body);
    let first = Shapes::of(&names, inputs).first;
    let found = |name: &&str| first.contains(name);
    let name = BATCH.iter().find(|name| found(name)).or(first.first()).copied();
    let name = name.ok_or(FitError::NoDimension)?;
    let scopes = Scopes { module: body, inputs, steps: Cell::new(0) };
    let default = inputs.parameters.iter_non_variadic_params().find(|p| p.name().as_str() == name);
    let value = match default {
        // Calls without arguments have it.
        Some(parameter) => parameter.default(),
        None => scopes.assigned(name),
    };
    let known = value.and_then(|value| Some((scopes.integer(value)?, value.range())));
    let (value, range) = known.ok_or_else(|| FitError::NotConstant(name.to_owned()))?;
    Ok((name.to_owned(), value, range))
}

/// Names of the first dimensions of the tensors that are made.
struct Shapes<'n, 'a> {
    names: &'n Names<'a>,
    first: Vec<&'a str>,
    /// Whether any tensor is made.
    any: bool,
    /// Whether some values are stored (`definition/stored.py`).
    stored: bool,
}

impl<'n, 'a> Shapes<'n, 'a> {
    fn of(names: &'n Names<'a>, inputs: &'a StmtFunctionDef) -> Self {
        let mut shapes = Self { names, first: Vec::new(), any: false, stored: false };
        shapes.visit_body(&inputs.body);
        shapes
    }

    fn made(&mut self, call: &'a ExprCall) -> Option<&'a str> {
        let of_definition = |name: &str| matches!(&*call.func, Expr::Name(it) if it.id == name);
        self.stored |= of_definition("_warpwright_stored");
        let full = self.names.full_name(&call.func);
        let torch = full.as_deref().and_then(|name| name.strip_prefix("torch."));
        let maker = torch.filter(|name| MAKERS.contains(name));
        let maker = maker.or(of_definition("_warpwright_draw").then_some("definition"))?;
        self.any = true;
        let sequence = |expr: &'a Expr| match expr {
            Expr::Tuple(tuple) => Some(&tuple.elts),
            Expr::List(list) => Some(&list.elts),
            _ => None,
        };
        let named = call
            .arguments
            .keywords
            .iter()
            .find(|keyword| keyword.arg.as_ref().is_some_and(|arg| arg.as_str() == "size"));
        let shape = call.arguments.args.iter().chain(named.map(|keyword| &keyword.value));
        let mut first = match shape.clone().find_map(sequence) {
            Some(elements) => elements.first()?,
            None if WITH_NUMBERS.contains(&maker) => return None,
            None => call.arguments.args.first()?,
        };
        loop {
            match first {
                Expr::Name(name) => return Some(name.id.as_str()),
                Expr::BinOp(operation) => first = &operation.left,
                _ => return None,
            }
        }
    }
}

impl<'a> Visitor<'a> for Shapes<'_, 'a> {
    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Call(call) = expr {
            let made = self.made(call);
            self.first.extend(made);
        }
        walk_expr(self, expr);
    }
}

/// Where a name of `get_inputs` may be assigned.
struct Scopes<'a> {
    module: &'a [Stmt],
    inputs: &'a StmtFunctionDef,
    steps: Cell<u32>,
}

impl<'a> Scopes<'a> {
    /// The value of a name that one statement at the top of the function or else of the module assigns, and nothing
    /// else there.
    fn assigned(&self, name: &str) -> Option<&'a Expr> {
        if self.inputs.parameters.includes(name) {
            return None; // It hides the module's name.
        }
        let scopes = [&self.inputs.body[..], self.module];
        let of = |body: &'a [Stmt]| {
            let mut stores = Stores { name, count: 0 };
            stores.visit_body(body);
            (stores.count, body)
        };
        let (count, body) = scopes.into_iter().map(of).find(|(count, _)| *count > 0)?;
        let value = body.iter().find_map(|statement| match statement {
            Stmt::Assign(assign) => {
                let named = |target: &Expr| matches!(target, Expr::Name(it) if it.id == *name);
                let alone = assign.targets.len() == 1;
                (alone && assign.targets.iter().any(named)).then_some(&*assign.value)
            }
            Stmt::AnnAssign(assign) => match &*assign.target {
                Expr::Name(it) if it.id == *name => assign.value.as_deref(),
                _ => None,
            },
            _ => None,
        });
        value.filter(|_| count == 1)
    }

    /// The value of an expression of integers.
    fn integer(&self, value: &'a Expr) -> Option<u64> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS {
            return None;
        }
        match value {
            Expr::NumberLiteral(literal) => match &literal.value {
                Number::Int(int) => int.as_u64(),
                _ => None,
            },
            Expr::Name(name) => self.integer(self.assigned(&name.id)?),
            Expr::BinOp(operation) => {
                let (left, right) =
                    (self.integer(&operation.left)?, self.integer(&operation.right)?);
                match operation.op {
                    Operator::Add => left.checked_add(right),
                    Operator::Sub => left.checked_sub(right),
                    Operator::Mult => left.checked_mul(right),
                    Operator::FloorDiv => left.checked_div(right),
                    Operator::Pow => left.checked_pow(u32::try_from(right).ok()?),
                    Operator::LShift if right < 64 => left.checked_mul(1 << right),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Counts the places of a body at which a name is assigned, without those in functions and classes in it.
struct Stores<'n> {
    name: &'n str,
    count: usize,
}

impl<'a> Visitor<'a> for Stores<'_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if !matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) {
            walk_stmt(self, statement);
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Name(name) = expr
            && name.ctx != ExprContext::Load
            && name.id == *self.name
        {
            self.count += 1;
        }
        walk_expr(self, expr);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn task(constants: &str, inputs: &str) -> String {
        format!(
            "import torch\n{constants}\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        \
             batch_size = x.size(0)\n        return x\n\ndef get_inputs():\n    {inputs}\n"
        )
    }

    fn fit(source: &str, divisor: u64) -> Result<Fit, FitError> {
        scaled_down(source, divisor).map(|scaled| Fit::of(&scaled).unwrap())
    }

    #[test]
    fn default_of_a_parameter_is_divided() {
        let source =
            task("", "return [torch.rand(b, n)]").replace("get_inputs()", "get_inputs(b=8, n=4)");
        let scaled = scaled_down(&source, 4).unwrap();
        assert!(scaled.contains("def get_inputs(b=2, n=4):"), "{scaled}");
        let without = source.replace("b=8", "b");
        assert_eq!(fit(&without, 2), Err(FitError::NotConstant("b".to_owned())));
    }

    #[test]
    fn batch_dimension_is_divided_and_labelled() {
        let source = task(
            "batch_size = 112  # as published\ndim = 64",
            "return [torch.rand(batch_size, dim)]",
        );
        let scaled = scaled_down(&source, 4).unwrap();
        let first = "# Scaled down by warpwright --fit: batch_size from 112 to 28\n";
        assert_eq!(scaled, format!("{first}{}", source.replace("= 112", "= 28")));
        assert_eq!(Fit::of(&source), None, "positive control");
        let further = scaled_down(&scaled, 2).unwrap();
        assert_eq!(further, scaled_down(&source, 8).unwrap(), "it is scaled from the first size");
        assert_eq!(Fit::of(&further).unwrap().to_string(), "batch_size 14 of 112");
        assert_eq!(scaled_down(&further, 1 << 40).map(|s| Fit::of(&s).unwrap().to), Ok(1));
    }

    #[test]
    fn dimension_is_found_as_benchmarks_write_it() {
        let of = |constants: &str, inputs: &str| {
            fit(&task(constants, inputs), 2).map(|fit| fit.to_string())
        };
        let found = |constants, inputs, expected: &str| {
            assert_eq!(of(constants, inputs).as_deref(), Ok(expected), "{constants}: {inputs}");
        };
        found("M = 1024 * 2\nK = 8", "A = torch.rand(M, K)\n    return [A]", "M 1024 of 2048");
        found("N = 2 ** 4\nB = N << 1", "return [torch.randn((B * N, N))]", "B 16 of 32");
        found(
            "batch_size = (\n    8\n)\ns = (4,)",
            "return [torch.rand(batch_size, *s)]",
            "batch_size 4 of 8",
        );
        found(
            "n = 9\nbatch_size: int = 6",
            "return [torch.ones(n), torch.rand(batch_size, n)]",
            "batch_size 3 of 6",
        );
        found("c = 9", "b = 4; return [torch.randint(0, c, (b,))]", "b 2 of 4");
        found("c = 9", "b = 4; return [torch.randint(0, c, size=(b, c))]", "b 2 of 4");
    }

    #[test]
    fn tasks_without_such_a_dimension_say_why() {
        let why = |constants: &str, inputs: &str| fit(&task(constants, inputs), 2).unwrap_err();
        assert_eq!(why("", "return [torch.rand(4, 4)]"), FitError::NoDimension);
        assert_eq!(why("n = 3", "return [torch.randint(0, n, shape())]"), FitError::NoDimension);
        let not_constant = FitError::NotConstant("b".to_owned());
        for constants in [
            "b = int('4')",
            "b = 4\nb = 8",
            "b = 4\nfor b in (1, 2): pass",
            "b = b",
            "b, c = 4, 5",
            "b = 4.0",
        ] {
            assert_eq!(why(constants, "return [torch.rand(b)]"), not_constant, "{constants}");
        }
        assert_eq!(why("b = 1", "return [torch.rand(b)]"), FitError::Least("b".to_owned(), 1));
        assert_eq!(scaled_down("def (", 2), Err(FitError::Unreadable));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_source_is_scaled_or_refused(text in "(b = [0-9a-z+*()]{0,8}\n|def get_inputs\\(\\):\n return torch.rand\\([b,*()0-9]{0,6}\\)\n|\\PC{0,20}\n){0,5}", divisor in 0u64..9) {
            if let Ok(scaled) = scaled_down(&text, divisor) {
                prop_assert!(Fit::of(&scaled).is_some());
            }
        }
    }
}
