//! A source as trees from which everything is taken that a copy can change for free.
//!
//! * Local names are one label, names of constants and literals another; what is computed from
//!   constants alone is a constant, and so is a shape that is written down.
//! * Operators keep their names, with import aliases resolved; `self.conv(x)` is what `self.conv` was
//!   made by.
//! * Docstrings, annotations, default values, `super().__init__()` and statements that only rename
//!   (`identity = x`, `return x`) are left out.
//! * A nested call is the sequence of its steps, as if each had a statement of its own.
//!
//! One tree per function of the model; `__init__` is marked as such. Functions have no order.

use std::cell::Cell;
use std::collections::BTreeSet;

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt, StmtFunctionDef};

use super::reachable::{Definition, from};
use super::state::{State, itself};
use super::tree::Tree;
use crate::facts::error::TaskErrorKind;
use crate::facts::excerpt::Lines;
use crate::facts::module::{Binding, Module};
use crate::facts::names::Names;

mod expressions;

/// The trees of the model in `source`.
pub(crate) fn forest(source: &str) -> Result<Vec<Tree>, TaskErrorKind> {
    let parsed = ruff_python_parser::parse_module(source).map_err(|error| {
        let lines = Lines::new(source);
        TaskErrorKind::Syntax {
            at: lines.place(error.location.start()),
            message: error.error.to_string(),
        }
    })?;
    let body = parsed.suite();
    let (module, names) = (Module::new(body), Names::new(body));
    let definitions = match module.get("Model") {
        Some(Binding::Class(_)) => from(&module, "Model"),
        Some(_) => all(body),
        None => return Err(TaskErrorKind::NoModel { similar: None }),
    };
    let mut trees = Vec::new();
    for definition in definitions {
        match definition {
            Definition::Class(class) => {
                let state = State::of(class, &names, &module);
                for statement in &class.body {
                    if let Stmt::FunctionDef(method) = statement {
                        let place = match method.name.as_str() {
                            "__init__" => Place::Init,
                            _ => Place::Forward,
                        };
                        let reader = Reader {
                            names: &names,
                            module: &module,
                            state: &state,
                            itself: itself(method).unwrap_or_default(),
                            locals: locals(method),
                            place,
                            depth: Cell::new(0),
                        };
                        trees.extend(reader.function(method));
                    }
                }
            }
            Definition::Function(function) => {
                let reader = Reader {
                    names: &names,
                    module: &module,
                    state: &State::default(),
                    itself: "",
                    locals: locals(function),
                    place: Place::Forward,
                    depth: Cell::new(0),
                };
                trees.extend(reader.function(function));
            }
        }
    }
    Ok(trees)
}

/// Every definition at module level, where it cannot be said which the model uses.
fn all(body: &[Stmt]) -> Vec<Definition<'_>> {
    body.iter()
        .filter_map(|statement| match statement {
            Stmt::ClassDef(class) => Some(Definition::Class(class)),
            Stmt::FunctionDef(function)
                if !matches!(function.name.as_str(), "get_inputs" | "get_init_inputs") =>
            {
                Some(Definition::Function(function))
            }
            _ => None,
        })
        .collect()
}

/// Where a function is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In `__init__`, where arguments are sizes and other constants.
    Init,
    /// Elsewhere, where they are values.
    Forward,
}

/// Reads one function.
struct Reader<'r, 'a> {
    names: &'r Names<'a>,
    module: &'r Module<'a>,
    state: &'r State,
    /// What the object is called; empty outside a class.
    itself: &'r str,
    /// Parameters and assigned names.
    locals: BTreeSet<String>,
    place: Place,
    /// How deep the expression being read is nested.
    depth: Cell<usize>,
}

impl Reader<'_, '_> {
    /// `None` where nothing is left of it.
    fn function(&self, function: &StmtFunctionDef) -> Option<Tree> {
        let label = match self.place {
            Place::Init => "init",
            Place::Forward => "forward",
        };
        let steps = self.body(&function.body);
        (!steps.is_empty()).then(|| Tree::block(label, steps))
    }

    fn body(&self, body: &[Stmt]) -> Vec<Tree> {
        let mut out = Vec::new();
        for statement in body {
            self.statement(statement, &mut out);
        }
        out
    }

    fn statement(&self, statement: &Stmt, out: &mut Vec<Tree>) {
        match statement {
            Stmt::Return(s) => {
                if let Some(value) = &s.value {
                    self.push(self.expression(value), out);
                }
            }
            Stmt::Expr(s) => match &*s.value {
                // A docstring, or text that was commented out.
                Expr::StringLiteral(_) | Expr::EllipsisLiteral(_) => {}
                value if is_super_init(value) => {}
                value => self.push(self.expression(value), out),
            },
            Stmt::Assign(s) => {
                let value = self.expression(&s.value);
                self.assign(&s.targets, value, out);
            }
            Stmt::AnnAssign(s) => {
                if let Some(value) = &s.value {
                    let value = self.expression(value);
                    self.assign(std::slice::from_ref(&*s.target), value, out);
                }
            }
            Stmt::AugAssign(s) => {
                let value = self.binary(s.op, &s.target, &s.value);
                self.assign(std::slice::from_ref(&*s.target), value, out);
            }
            Stmt::If(s) => {
                let mut children = vec![self.expression(&s.test)];
                children.push(Tree::block("then", self.body(&s.body)));
                for clause in &s.elif_else_clauses {
                    children.extend(clause.test.iter().map(|test| self.expression(test)));
                    children.push(Tree::block("else", self.body(&clause.body)));
                }
                out.push(Tree::block("if", children));
            }
            Stmt::For(s) => {
                let mut children = vec![self.expression(&s.iter)];
                children.extend(self.body(&s.body));
                children.extend(self.body(&s.orelse));
                out.push(Tree::block("for", children));
            }
            Stmt::While(s) => {
                let mut children = vec![self.expression(&s.test)];
                children.extend(self.body(&s.body));
                children.extend(self.body(&s.orelse));
                out.push(Tree::block("while", children));
            }
            Stmt::With(s) => {
                let mut children: Vec<Tree> =
                    s.items.iter().map(|item| self.expression(&item.context_expr)).collect();
                children.extend(self.body(&s.body));
                out.push(Tree::block("with", children));
            }
            Stmt::Assert(s) => out.push(Tree::block("assert", vec![self.expression(&s.test)])),
            Stmt::Raise(_) => out.push(Tree::block("raise", Vec::new())),
            Stmt::Try(_) | Stmt::Match(_) => {
                let blocks = crate::facts::module::blocks(statement);
                let blocks = blocks.into_iter().map(|b| Tree::block("then", self.body(b)));
                out.push(Tree::block("branch", blocks.collect()));
            }
            Stmt::FunctionDef(inner) => {
                out.push(Tree::block("function", self.body(&inner.body)));
            }
            // They compute nothing.
            Stmt::ClassDef(_)
            | Stmt::Delete(_)
            | Stmt::TypeAlias(_)
            | Stmt::Import(_)
            | Stmt::ImportFrom(_)
            | Stmt::Global(_)
            | Stmt::Nonlocal(_)
            | Stmt::Pass(_)
            | Stmt::Break(_)
            | Stmt::Continue(_)
            | Stmt::IpyEscapeCommand(_) => {}
        }
    }

    /// A name or attribute is what is assigned to it; a write into part of a tensor is a step.
    fn assign(&self, targets: &[Expr], value: Tree, out: &mut Vec<Tree>) {
        let mut written = targets.iter().filter_map(|target| match target {
            Expr::Subscript(target) => Some(target),
            _ => None,
        });
        match written.next() {
            None => self.push(value, out),
            Some(target) => {
                let children =
                    vec![self.expression(&target.value), self.expression(&target.slice), value];
                self.push(Tree::step("setitem", children), out);
            }
        }
    }

    fn push(&self, tree: Tree, out: &mut Vec<Tree>) {
        if tree.is_plain() {
            return;
        }
        match self.place {
            // How modules are nested is what they compute.
            Place::Init => out.push(tree),
            Place::Forward => tree.steps(out),
        }
    }
}

/// Names that `function` binds: parameters, and whatever is stored to in it.
fn locals(function: &StmtFunctionDef) -> BTreeSet<String> {
    let mut stores = Stores(BTreeSet::new());
    for parameter in &*function.parameters {
        stores.0.insert(parameter.name().to_string());
    }
    stores.visit_body(&function.body);
    stores.0
}

struct Stores(BTreeSet<String>);

impl<'e> Visitor<'e> for Stores {
    fn visit_stmt(&mut self, statement: &'e Stmt) {
        if let Stmt::FunctionDef(inner) = statement {
            self.0.extend(inner.parameters.iter().map(|p| p.name().to_string()));
            self.0.insert(inner.name.to_string());
        }
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'e Expr) {
        match expression {
            Expr::Name(name) if matches!(name.ctx, ExprContext::Store) => {
                self.0.insert(name.id.to_string());
            }
            Expr::Lambda(lambda) => {
                let parameters = lambda.parameters.iter().flat_map(|p| p.iter());
                self.0.extend(parameters.map(|p| p.name().to_string()));
            }
            _ => {}
        }
        ruff_python_ast::visitor::walk_expr(self, expression);
    }
}

/// `super().__init__()` and `super(Model, self).__init__()`.
fn is_super_init(expression: &Expr) -> bool {
    let Expr::Call(call) = expression else { return false };
    let Expr::Attribute(method) = &*call.func else { return false };
    method.attr.as_str() == "__init__"
        && match &*method.value {
            Expr::Call(inner) => {
                matches!(&*inner.func, Expr::Name(name) if name.id.as_str() == "super")
            }
            // `nn.Module.__init__(self)`.
            Expr::Attribute(base) => base.attr.as_str() == "Module",
            _ => false,
        }
}
