//! The definitions that a class uses.

use std::collections::BTreeSet;

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Stmt, StmtClassDef, StmtFunctionDef};

use crate::facts::module::{Binding, Module};

/// A class or function at module level.
#[derive(Clone, Copy)]
pub(crate) enum Definition<'a> {
    Class(&'a StmtClassDef),
    Function(&'a StmtFunctionDef),
}

/// The definition called `start` and those of the module that it mentions, itself or through others:
/// a `Model` that only holds `Block()` is what `Block` is. Those not mentioned are no part of the model.
pub(crate) fn from<'a>(module: &Module<'a>, start: &str) -> Vec<Definition<'a>> {
    let mut search = Search { module, seen: BTreeSet::new(), waiting: Vec::new() };
    search.mention(start);
    let mut found = Vec::new();
    while let Some(definition) = search.waiting.pop() {
        found.push(definition);
        match definition {
            Definition::Class(class) => {
                for base in class.arguments.iter().flat_map(|a| &a.args) {
                    search.visit_expr(base);
                }
                search.visit_body(&class.body);
            }
            Definition::Function(function) => search.visit_body(&function.body),
        }
    }
    found
}

struct Search<'m, 'a> {
    module: &'m Module<'a>,
    seen: BTreeSet<String>,
    waiting: Vec<Definition<'a>>,
}

impl Search<'_, '_> {
    fn mention(&mut self, name: &str) {
        let definition = match self.module.get(name) {
            Some(Binding::Class(class)) => Definition::Class(class),
            Some(Binding::Function(function)) => Definition::Function(function),
            Some(Binding::Unknown) | None => return,
        };
        if self.seen.insert(name.to_owned()) {
            self.waiting.push(definition);
        }
    }
}

impl<'e> Visitor<'e> for Search<'_, '_> {
    // Annotations compute nothing.
    fn visit_annotation(&mut self, _: &'e Expr) {}

    fn visit_stmt(&mut self, statement: &'e Stmt) {
        ruff_python_ast::visitor::walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'e Expr) {
        if let Expr::Name(name) = expression {
            self.mention(name.id.as_str());
        }
        walk_expr(self, expression);
    }
}
