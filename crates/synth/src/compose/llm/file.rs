//! Definitions and imports of a file, and the layers that its expressions create.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, Stmt, StmtClassDef, StmtFunctionDef};

/// Definitions of a file.
#[derive(Default)]
pub(super) struct File<'a> {
    /// Imported names and their full names.
    pub(super) names: BTreeMap<&'a str, String>,
    pub(super) classes: BTreeMap<&'a str, &'a StmtClassDef>,
    pub(super) functions: BTreeMap<&'a str, &'a StmtFunctionDef>,
    /// Names assigned at module level; mostly sizes.
    pub(super) constants: BTreeSet<&'a str>,
}

impl<'a> File<'a> {
    pub(super) fn new(body: &'a [Stmt]) -> Self {
        let mut file = Self::default();
        Imports(&mut file.names).visit_body(body);
        for statement in body {
            match statement {
                Stmt::ClassDef(class) => _ = file.classes.insert(class.name.as_str(), class),
                Stmt::FunctionDef(function) => {
                    file.functions.insert(function.name.as_str(), function);
                }
                Stmt::Assign(assign) => {
                    file.constants.extend(assign.targets.iter().filter_map(name_of));
                }
                Stmt::AnnAssign(assign) => file.constants.extend(name_of(&assign.target)),
                _ => {}
            }
        }
        file
    }

    /// The full name of a dotted expression whose first part was imported.
    pub(super) fn full_name(&self, expression: &Expr) -> Option<String> {
        match expression {
            Expr::Name(name) => self.names.get(name.id.as_str()).cloned(),
            Expr::Attribute(part) => {
                Some(format!("{}.{}", self.full_name(&part.value)?, part.attr))
            }
            _ => None,
        }
    }

    /// A class and its base classes in the file, itself first.
    pub(super) fn lineage(&self, class: &'a StmtClassDef) -> Vec<&'a StmtClassDef> {
        let mut all = vec![class];
        let mut next = 0;
        while let Some(class) = all.get(next).copied() {
            next += 1;
            for base in class.bases() {
                if let Some(base) = name_of(base).and_then(|name| self.classes.get(name))
                    && !all.iter().any(|known| known.range == base.range)
                {
                    all.push(base);
                }
            }
        }
        all
    }
}

/// Whether an expression creates a tensor: a parameter, a buffer.
pub(super) fn calls_torch(file: &File<'_>, value: &Expr) -> bool {
    struct Search<'s, 'a>(&'s File<'a>, bool);
    impl<'e> Visitor<'e> for Search<'_, '_> {
        fn visit_expr(&mut self, expression: &'e Expr) {
            if let Expr::Call(call) = expression {
                let full = self.0.full_name(&call.func);
                self.1 |= full.is_some_and(|full| full.starts_with("torch."));
            }
            walk_expr(self, expression);
        }
    }
    let mut search = Search(file, false);
    search.visit_expr(value);
    search.1
}

/// A layer that an expression creates.
pub(super) enum Made<'a> {
    Named(String),
    Local(&'a StmtClassDef),
}

/// Finds layers that an expression creates, outer ones first.
pub(super) struct Constructors<'f, 'a> {
    pub(super) file: &'f File<'a>,
    pub(super) made: Vec<Made<'a>>,
}

impl<'a> Visitor<'a> for Constructors<'_, 'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression {
            let full = self.file.full_name(&call.func);
            let full = full.filter(|name| {
                let class = name.strip_prefix("torch.nn.").filter(|class| !class.contains('.'));
                class.is_some_and(|c| c != "Parameter" && c.starts_with(|c: char| c.is_uppercase()))
            });
            let local = name_of(&call.func).and_then(|name| self.file.classes.get(name).copied());
            self.made.extend(full.map(Made::Named).or(local.map(Made::Local)));
        }
        walk_expr(self, expression);
    }
}

/// Finds imported names.
struct Imports<'n, 'a>(&'n mut BTreeMap<&'a str, String>);

impl<'a> Visitor<'a> for Imports<'_, 'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let module = alias.name.as_str();
                    let first = module.split('.').next().unwrap_or(module);
                    match &alias.asname {
                        Some(name) => self.0.insert(name.as_str(), module.to_owned()),
                        None => self.0.insert(first, first.to_owned()),
                    };
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    self.0.insert(name, format!("{module}.{}", alias.name));
                }
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, _: &'a Expr) {}
}

pub(super) fn methods(class: &StmtClassDef) -> impl Iterator<Item = &StmtFunctionDef> {
    class.body.iter().filter_map(|statement| match statement {
        Stmt::FunctionDef(method) => Some(method),
        _ => None,
    })
}

pub(super) fn name_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        _ => None,
    }
}

pub(super) fn attribute_of<'e>(expression: &'e Expr, itself: &str) -> Option<&'e str> {
    match expression {
        Expr::Attribute(part) if name_of(&part.value) == Some(itself) => Some(part.attr.as_str()),
        _ => None,
    }
}
