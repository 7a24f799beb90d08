//! The definitions of a module, and whether they make a task.

use std::collections::BTreeMap;

use ruff_python_ast::{ExceptHandler, Expr, Parameters, Stmt, StmtClassDef, StmtFunctionDef};
use ruff_text_size::Ranged;

use super::error::TaskErrorKind;
use super::excerpt::Lines;
use super::found::InitInputs;

/// What a name is bound to in a module or class body; the last binding counts.
#[derive(Clone, Copy)]
pub(crate) enum Binding<'a> {
    Class(&'a StmtClassDef),
    Function(&'a StmtFunctionDef),
    /// Assigned or imported: only running could tell what it is.
    Unknown,
}

/// The names a body binds, also those under `if`, `try`, `with`, loops and `match`.
pub(crate) struct Module<'a> {
    bindings: BTreeMap<&'a str, Binding<'a>>,
}

impl<'a> Module<'a> {
    pub(crate) fn new(body: &'a [Stmt]) -> Self {
        let mut bindings = BTreeMap::new();
        bind(body, &mut bindings);
        Self { bindings }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Binding<'a>> {
        self.bindings.get(name).copied()
    }

    /// The classes at module level.
    fn classes(&self) -> impl Iterator<Item = &'a StmtClassDef> {
        self.bindings.values().filter_map(|binding| match binding {
            Binding::Class(class) => Some(*class),
            _ => None,
        })
    }

    /// What `name` is in `class` or the nearest base that binds it, as far as the bases are in this
    /// module; [`Binding::Unknown`] where a base from elsewhere may bind it.
    pub(crate) fn method(&self, class: &'a StmtClassDef, name: &str) -> Option<Binding<'a>> {
        self.method_within(class, name, &mut Vec::new())
    }

    fn method_within(
        &self,
        class: &'a StmtClassDef,
        name: &str,
        seen: &mut Vec<&'a str>,
    ) -> Option<Binding<'a>> {
        if let Some(binding) = Module::new(&class.body).get(name) {
            return Some(binding);
        }
        seen.push(&class.name);
        let bases = class.arguments.as_deref().map(|a| &a.args[..]).unwrap_or_default();
        for base in bases {
            let inherited = match base {
                Expr::Name(base) if seen.contains(&base.id.as_str()) => None,
                Expr::Name(base) => match (base.id.as_str(), self.get(&base.id)) {
                    (_, Some(Binding::Class(base))) => self.method_within(base, name, seen),
                    // `from torch.nn import Module`: it brings `__init__` without parameters, and a
                    // `forward` that only raises.
                    ("Module" | "object", _) => None,
                    _ => Some(Binding::Unknown),
                },
                Expr::Attribute(base) if base.attr.as_str() == "Module" => None,
                _ => Some(Binding::Unknown),
            };
            if inherited.is_some() {
                return inherited;
            }
        }
        None
    }
}

fn bind<'a>(body: &'a [Stmt], bindings: &mut BTreeMap<&'a str, Binding<'a>>) {
    for statement in body {
        match statement {
            Stmt::ClassDef(class) => {
                bindings.insert(&class.name, Binding::Class(class));
            }
            Stmt::FunctionDef(function) => {
                bindings.insert(&function.name, Binding::Function(function));
            }
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    bind_target(target, bindings);
                }
            }
            Stmt::AnnAssign(assign) if assign.value.is_some() => {
                bind_target(&assign.target, bindings);
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    let name = name.split('.').next().unwrap_or(name);
                    bindings.insert(name, Binding::Unknown);
                }
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    bindings.insert(name, Binding::Unknown);
                }
            }
            _ => {}
        }
        for inner in blocks(statement) {
            bind(inner, bindings);
        }
    }
}

fn bind_target<'a>(target: &'a Expr, bindings: &mut BTreeMap<&'a str, Binding<'a>>) {
    match target {
        Expr::Name(name) => {
            bindings.insert(&name.id, Binding::Unknown);
        }
        Expr::Tuple(tuple) => tuple.elts.iter().for_each(|t| bind_target(t, bindings)),
        Expr::List(list) => list.elts.iter().for_each(|t| bind_target(t, bindings)),
        _ => {}
    }
}

/// The blocks of a compound statement that bind into the same namespace.
pub(crate) fn blocks(statement: &Stmt) -> Vec<&[Stmt]> {
    match statement {
        Stmt::If(s) => std::iter::once(&s.body[..])
            .chain(s.elif_else_clauses.iter().map(|clause| &clause.body[..]))
            .collect(),
        Stmt::Try(s) => {
            let handlers = s.handlers.iter().map(|ExceptHandler::ExceptHandler(h)| &h.body[..]);
            std::iter::once(&s.body[..])
                .chain(handlers)
                .chain([&s.orelse[..], &s.finalbody[..]])
                .collect()
        }
        Stmt::With(s) => vec![&s.body],
        Stmt::For(s) => vec![&s.body, &s.orelse],
        Stmt::While(s) => vec![&s.body, &s.orelse],
        Stmt::Match(s) => s.cases.iter().map(|case| &case.body[..]).collect(),
        _ => Vec::new(),
    }
}

/// Whether the module is a task in KernelBench form.
pub(crate) fn check(module: &Module<'_>, lines: &Lines<'_>) -> Result<InitInputs, TaskErrorKind> {
    let model = match module.get("Model") {
        Some(Binding::Class(class)) => Some(class),
        Some(Binding::Function(function)) => {
            return Err(TaskErrorKind::ModelNotClass { at: lines.place(function.name.start()) });
        }
        Some(Binding::Unknown) => None,
        None => return Err(TaskErrorKind::NoModel { similar: similar_to_model(module) }),
    };
    if let Some(class) = model
        && module.method(class, "forward").is_none()
        && module.method(class, "__call__").is_none()
    {
        return Err(TaskErrorKind::NoForward { at: lines.place(class.name.start()) });
    }
    match module.get("get_inputs") {
        None => return Err(TaskErrorKind::NoInputs),
        Some(binding) => check_called_without_arguments(binding, lines)?,
    }
    if let Some(binding) = module.get("get_init_inputs") {
        check_called_without_arguments(binding, lines)?;
        return Ok(InitInputs::Declared);
    }
    let constructor = model.and_then(|class| module.method(class, "__init__"));
    if let Some(Binding::Function(init)) = constructor
        // The first is `self`.
        && let Some((parameter, at)) = required(&init.parameters).nth(1)
    {
        let (parameter, at) = (parameter.to_owned(), lines.place(at));
        return Err(TaskErrorKind::NoInitInputs { parameter, at });
    }
    Ok(InitInputs::Absent)
}

fn check_called_without_arguments(
    binding: Binding<'_>,
    lines: &Lines<'_>,
) -> Result<(), TaskErrorKind> {
    let Binding::Function(function) = binding else { return Ok(()) };
    let name = function.name.to_string();
    if function.is_async {
        return Err(TaskErrorKind::Async {
            function: name,
            at: lines.place(function.name.start()),
        });
    }
    if let Some((parameter, at)) = required(&function.parameters).next() {
        let (parameter, at) = (parameter.to_owned(), lines.place(at));
        return Err(TaskErrorKind::NeedsArgument { function: name, parameter, at });
    }
    Ok(())
}

/// Parameters that a caller must give, and where they are.
fn required(parameters: &Parameters) -> impl Iterator<Item = (&str, ruff_text_size::TextSize)> {
    parameters
        .iter_non_variadic_params()
        .filter(|parameter| parameter.default.is_none())
        .map(|parameter| (parameter.parameter.name.as_str(), parameter.parameter.name.start()))
}

/// A class with a `forward`, if there is exactly one; else one called almost `Model`.
fn similar_to_model(module: &Module<'_>) -> Option<String> {
    let mut with_forward =
        module.classes().filter(|class| module.method(class, "forward").is_some());
    if let (Some(only), None) = (with_forward.next(), with_forward.next()) {
        return Some(only.name.to_string());
    }
    module
        .classes()
        .find(|class| class.name.to_ascii_lowercase().contains("model"))
        .map(|class| class.name.to_string())
}
