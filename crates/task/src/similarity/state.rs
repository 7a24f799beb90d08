//! What the attributes of a module hold, as far as its assignments say.

use std::collections::BTreeMap;

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, Stmt, StmtClassDef, StmtFunctionDef};

use super::operators::operator;
use super::tree::CONSTANT;
use crate::facts::module::{Binding, Module};
use crate::facts::names::Names;

/// Label of an attribute of which nothing more is known.
const STATE: &str = "state";
/// Label of a class or function of the module itself: its own body is compared with it.
pub(crate) const LOCAL: &str = "local";

/// Labels of `self.name` in one class: the operator that the attribute was made by (`nn.Conv2d`),
/// a constant, or just state.
#[derive(Debug, Default)]
pub(crate) struct State {
    labels: BTreeMap<String, String>,
}

impl State {
    /// From every assignment to an attribute in the methods of `class`.
    pub(crate) fn of(class: &StmtClassDef, names: &Names<'_>, module: &Module<'_>) -> Self {
        let mut state = Self::default();
        for statement in &class.body {
            if let Stmt::FunctionDef(method) = statement {
                state.labels.entry(method.name.to_string()).or_insert_with(|| LOCAL.to_owned());
            }
        }
        for statement in &class.body {
            if let Stmt::FunctionDef(method) = statement
                && let Some(itself) = itself(method)
            {
                let mut search = Search { names, module, itself, state: &mut state };
                search.visit_body(&method.body);
            }
        }
        state
    }

    /// The label of `self.name`.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or(STATE, String::as_str)
    }

    fn hold(&mut self, name: &str, label: String) {
        // What is assigned twice differently may be either.
        self.labels
            .entry(name.to_owned())
            .and_modify(|held| {
                if *held != label {
                    STATE.clone_into(held);
                }
            })
            .or_insert(label);
    }
}

/// What a method calls its object.
pub(crate) fn itself(method: &StmtFunctionDef) -> Option<&str> {
    method.parameters.iter_non_variadic_params().next().map(|p| p.parameter.name.as_str())
}

struct Search<'s, 'a> {
    names: &'s Names<'a>,
    module: &'s Module<'a>,
    itself: &'s str,
    state: &'s mut State,
}

impl Search<'_, '_> {
    fn assign(&mut self, target: &Expr, value: &Expr) {
        if let Some(name) = attribute_of(target, self.itself) {
            let label = self.label_of(value);
            self.state.hold(name, label);
        }
    }

    fn label_of(&self, value: &Expr) -> String {
        match value {
            Expr::Call(call) => match (self.names.full_name(&call.func), &*call.func) {
                (Some(full), _) => operator(&full),
                (None, Expr::Name(name)) => match self.module.get(name.id.as_str()) {
                    Some(Binding::Class(_) | Binding::Function(_)) => LOCAL.to_owned(),
                    _ => CONSTANT.to_owned(),
                },
                _ => STATE.to_owned(),
            },
            Expr::ListComp(_) | Expr::Generator(_) | Expr::DictComp(_) => STATE.to_owned(),
            _ => CONSTANT.to_owned(),
        }
    }
}

impl<'e> Visitor<'e> for Search<'_, '_> {
    fn visit_stmt(&mut self, statement: &'e Stmt) {
        match statement {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    self.assign(target, &assign.value);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.assign(&assign.target, value);
                }
            }
            Stmt::Expr(expression) => {
                if let Expr::Call(call) = &*expression.value
                    && let Some("register_buffer" | "register_parameter") =
                        attribute_of(&call.func, self.itself)
                    && let [Expr::StringLiteral(name), value, ..] = &call.arguments.args[..]
                {
                    let label = self.label_of(value);
                    self.state.hold(name.value.to_str(), label);
                }
            }
            _ => walk_stmt(self, statement),
        }
    }

    // Assignments are statements.
    fn visit_expr(&mut self, _: &'e Expr) {}
}

/// The `name` of `self.name`.
pub(crate) fn attribute_of<'e>(expression: &'e Expr, itself: &str) -> Option<&'e str> {
    match expression {
        Expr::Attribute(attribute) => match &*attribute.value {
            Expr::Name(name) if name.id.as_str() == itself => Some(attribute.attr.as_str()),
            _ => None,
        },
        _ => None,
    }
}
