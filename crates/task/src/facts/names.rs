//! Full names of what an expression refers to.

use std::collections::BTreeMap;

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, Stmt};

/// Imported names and what they stand for: `F` for `torch.nn.functional`.
pub(crate) struct Names<'a> {
    full: BTreeMap<&'a str, String>,
}

impl<'a> Names<'a> {
    /// From every import of the module, also those inside functions: a name means the same
    /// everywhere in code that people write.
    pub(crate) fn new(body: &'a [Stmt]) -> Self {
        let mut names = Self { full: BTreeMap::new() };
        names.visit_body(body);
        names
    }

    /// The full name of a dotted expression whose first part was imported: `F.dropout` is
    /// `torch.nn.functional.dropout`. `None` for everything else, e.g. `self.dropout`.
    pub(crate) fn full_name(&self, expression: &Expr) -> Option<String> {
        let mut parts = Vec::new();
        let mut expression = expression;
        loop {
            match expression {
                Expr::Attribute(attribute) => {
                    parts.push(attribute.attr.as_str());
                    expression = &attribute.value;
                }
                Expr::Name(name) => {
                    let mut full = self.full.get(name.id.as_str())?.clone();
                    for part in parts.iter().rev() {
                        full.push('.');
                        full.push_str(part);
                    }
                    return Some(full);
                }
                _ => return None,
            }
        }
    }
}

impl<'a> Visitor<'a> for Names<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let module = alias.name.as_str();
                    let first = module.split('.').next().unwrap_or(module);
                    match &alias.asname {
                        Some(name) => self.full.insert(name.as_str(), module.to_owned()),
                        None => self.full.insert(first, first.to_owned()),
                    };
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    self.full.insert(name, format!("{module}.{}", alias.name));
                }
            }
            _ => walk_stmt(self, statement),
        }
    }

    // Imports are statements; expressions hold none.
    fn visit_expr(&mut self, _: &'a Expr) {}
}
