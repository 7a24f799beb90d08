//! The calls of a model's `forward`, in order. Modules are represented by their classes; functions
//! and methods of the file by the calls that they make.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, Operator, Stmt, StmtClassDef, StmtFunctionDef};

use warpwright_task::similarity::infix_name;

use super::answer::AnswerError;
use super::file::{Constructors, File, Made, attribute_of, calls_torch, methods, name_of};

/// Maximum expressions visited per file. Functions that call others twice double the work with each
/// level.
pub(super) const FUEL: usize = 10_000;

/// Calls of `Model.forward` in the module `body`; empty if no readable `forward` exists.
pub(super) fn calls(body: &[Stmt]) -> Result<Vec<String>, AnswerError> {
    let file = File::new(body);
    let mut walk = Walk {
        file: &file,
        scope: Scope::default(),
        active: BTreeSet::new(),
        calls: Vec::new(),
        overwritten: None,
        fuel: FUEL,
    };
    if let Some(model) = file.classes.get("Model") {
        walk.forward(model);
    }
    match walk.overwritten {
        Some(name) => Err(AnswerError::Overwrites { name: name.to_owned() }),
        None if walk.fuel == 0 => Err(AnswerError::Tangled),
        None => Ok(walk.calls),
    }
}

/// Meanings of names in one function.
#[derive(Default)]
struct Scope<'a> {
    /// Name and class of the object.
    object: Option<(&'a str, &'a StmtClassDef)>,
    /// Attributes of the object that are layers, with their assigned expressions.
    layers: BTreeMap<&'a str, &'a Expr>,
    /// Attributes of the object that are plain numbers.
    numbers: BTreeSet<&'a str>,
    /// Names of loops over layers.
    each: BTreeMap<&'a str, &'a Expr>,
    /// Names that are plain numbers.
    plain: BTreeSet<&'a str>,
    /// Arguments of the model's own `forward` that were not reassigned.
    inputs: BTreeSet<&'a str>,
}

struct Walk<'f, 'a> {
    file: &'f File<'a>,
    scope: Scope<'a>,
    /// Functions being visited, by start offset.
    active: BTreeSet<usize>,
    calls: Vec<String>,
    /// An input that is changed in place.
    overwritten: Option<&'a str>,
    fuel: usize,
}

impl<'a> Walk<'_, 'a> {
    /// Visits the `forward` of a class.
    fn forward(&mut self, class: &'a StmtClassDef) {
        self.method(class, "forward", None);
    }

    /// Visits a method, if the file defines it.
    fn method(&mut self, class: &'a StmtClassDef, name: &str, call: Option<&'a ExprCall>) {
        let lineage = self.file.lineage(class);
        let found =
            lineage.iter().find_map(|class| methods(class).find(|m| m.name.as_str() == name));
        let Some(method) = found else { return };
        let itself = method.parameters.iter_non_variadic_params().next();
        let mut scope = Scope::default();
        if let Some(itself) = itself {
            scope.object = Some((itself.parameter.name.as_str(), class));
        }
        for class in lineage {
            for method in methods(class) {
                let mut state = State { file: self.file, scope: &mut scope };
                state.visit_body(&method.body);
            }
        }
        if let Some(call) = call {
            self.pass(call, method, &mut scope);
        } else if self.active.is_empty() {
            let names = method.parameters.iter().map(|parameter| parameter.name().as_str());
            scope.inputs = names.skip(1).collect();
        }
        self.enter(method, scope);
    }

    /// Marks the parameters of a function for which the call passes numbers.
    fn pass(&self, call: &'a ExprCall, function: &'a StmtFunctionDef, scope: &mut Scope<'a>) {
        let names = function.parameters.iter_non_variadic_params();
        let names = names.map(|p| p.parameter.name.as_str());
        let names = names.skip(usize::from(scope.object.is_some()));
        for (name, argument) in names.zip(&call.arguments.args) {
            if self.plain(argument) {
                scope.plain.insert(name);
            }
        }
        for keyword in &call.arguments.keywords {
            if let Some(name) = keyword.arg.as_ref().filter(|_| self.plain(&keyword.value)) {
                scope.plain.insert(name.as_str());
            }
        }
    }

    fn enter(&mut self, function: &'a StmtFunctionDef, scope: Scope<'a>) {
        let begin = function.range.start().to_usize();
        if !self.active.insert(begin) {
            return;
        }
        let outer = std::mem::replace(&mut self.scope, scope);
        self.visit_body(&function.body);
        self.scope = outer;
        self.active.remove(&begin);
    }

    fn call(&mut self, call: &'a ExprCall) {
        let attribute = self.attribute(&call.func);
        let full = self.file.full_name(&call.func);
        match &*call.func {
            Expr::Attribute(method) if attribute.is_none() && full.is_none() => {
                self.visit_expr(&method.value);
            }
            Expr::Call(inner) => self.arguments(inner),
            _ => {}
        }
        self.arguments(call);
        self.overwriting(call);
        if let Some(name) = attribute {
            let class = self.scope.object.map(|(_, class)| class);
            if let Some(made) = self.scope.layers.get(name) {
                self.layers(made);
            } else if let Some(class) = class {
                self.method(class, name, Some(call));
            }
        } else if let Some(full) = full {
            self.calls.push(full);
        } else {
            match &*call.func {
                Expr::Name(name) => {
                    if let Some(made) = self.scope.each.get(name.id.as_str()) {
                        self.layers(made);
                    } else if let Some(function) = self.file.functions.get(name.id.as_str()) {
                        let mut scope = Scope::default();
                        self.pass(call, function, &mut scope);
                        self.enter(function, scope);
                    }
                }
                Expr::Attribute(method) if !is_super(&method.value) => {
                    self.calls.push(format!("torch.Tensor.{}", method.attr));
                }
                // `self.layers[0](x)`.
                Expr::Subscript(item) => {
                    let made = self.attribute(&item.value).and_then(|n| self.scope.layers.get(n));
                    if let Some(made) = made {
                        self.layers(made);
                    }
                }
                // `nn.ReLU()(x)`.
                made @ Expr::Call(_) => self.layers(made),
                _ => {}
            }
        }
    }

    /// Detects calls that change an input: `x.relu_()`, `relu(x, inplace=True)`.
    fn overwriting(&mut self, call: &'a ExprCall) {
        let method = match &*call.func {
            Expr::Attribute(m) if m.attr.ends_with('_') && !m.attr.ends_with("__") => Some(m),
            _ => None,
        };
        if let Some(method) = method {
            self.overwrite(&method.value);
        }
        let inplace = call.arguments.find_keyword("inplace");
        if inplace.is_some_and(|k| matches!(&k.value, Expr::BooleanLiteral(value) if value.value))
            && let Some(first) = call.arguments.args.first()
        {
            self.overwrite(first);
        }
    }

    /// Detects writes to an input or a part of one.
    fn overwrite(&mut self, target: &'a Expr) {
        match target {
            Expr::Name(name) => {
                if let Some(name) = self.scope.inputs.get(name.id.as_str()) {
                    self.overwritten.get_or_insert(name);
                }
            }
            Expr::Subscript(item) => self.overwrite(&item.value),
            _ => {}
        }
    }

    fn arguments(&mut self, call: &'a ExprCall) {
        for argument in &call.arguments.args {
            self.visit_expr(argument);
        }
        for keyword in &call.arguments.keywords {
            self.visit_expr(&keyword.value);
        }
    }

    /// Visits the layers that `made` creates.
    fn layers(&mut self, made: &'a Expr) {
        let mut constructors = Constructors { file: self.file, made: Vec::new() };
        constructors.visit_expr(made);
        for made in constructors.made {
            match made {
                Made::Named(name) => self.calls.push(name),
                Made::Local(class) => self.forward(class),
            }
        }
    }

    /// The `name` of `self.name`.
    fn attribute(&self, expression: &'a Expr) -> Option<&'a str> {
        attribute_of(expression, self.scope.object?.0)
    }

    /// Whether an expression contains sizes and other numbers, not tensors.
    fn plain(&self, expression: &'a Expr) -> bool {
        match expression {
            Expr::NumberLiteral(_) | Expr::BooleanLiteral(_) | Expr::NoneLiteral(_) => true,
            Expr::Name(name) => {
                let name = name.id.as_str();
                self.scope.plain.contains(name) || self.file.constants.contains(name)
            }
            Expr::Attribute(part) => match self.attribute(expression) {
                Some(name) => self.scope.numbers.contains(name),
                None => {
                    ["shape", "ndim", "dtype", "device"].contains(&part.attr.as_str())
                        || self.file.full_name(expression).is_some_and(|n| n.starts_with("math."))
                }
            },
            Expr::Subscript(item) => self.plain(&item.value),
            Expr::UnaryOp(operation) => self.plain(&operation.operand),
            Expr::BinOp(operation) => self.plain(&operation.left) && self.plain(&operation.right),
            Expr::Tuple(tuple) => tuple.elts.iter().all(|part| self.plain(part)),
            Expr::Call(call) => match &*call.func {
                Expr::Name(name) => ["float", "int", "len"].contains(&name.id.as_str()),
                Expr::Attribute(method) => {
                    ["size", "dim", "numel", "item"].contains(&method.attr.as_str())
                        || self.file.full_name(&call.func).is_some_and(|n| n.starts_with("math."))
                }
                _ => false,
            },
            _ => false,
        }
    }

    fn assign(&mut self, target: &'a Expr, plain: bool) {
        if let Some(name) = name_of(target) {
            self.scope.inputs.remove(name);
        }
        match target {
            Expr::Subscript(_) => self.overwrite(target),
            Expr::Name(name) if plain => _ = self.scope.plain.insert(name.id.as_str()),
            Expr::Name(name) => _ = self.scope.plain.remove(name.id.as_str()),
            Expr::Tuple(tuple) => tuple.elts.iter().for_each(|part| self.assign(part, plain)),
            _ => {}
        }
    }

    /// Binds the names of a loop over `self.layers`, `zip(self.a, self.b)` or
    /// `enumerate(self.layers)`.
    fn each(&mut self, target: &'a Expr, over: &'a Expr) {
        if let Some(made) =
            self.attribute(over).and_then(|name| self.scope.layers.get(name).copied())
        {
            if let Some(name) = name_of(target) {
                self.scope.each.insert(name, made);
            }
            return;
        }
        let Expr::Call(call) = over else { return };
        match (name_of(&call.func), target) {
            (Some("range"), target) => self.assign(target, true),
            (Some("zip"), Expr::Tuple(names)) => {
                for (name, over) in names.elts.iter().zip(&call.arguments.args) {
                    self.each(name, over);
                }
            }
            (Some("enumerate"), Expr::Tuple(names)) => {
                if let ([number, name], [over, ..]) = (&names.elts[..], &call.arguments.args[..]) {
                    self.assign(number, true);
                    self.each(name, over);
                }
            }
            _ => {}
        }
    }

    fn binary(&mut self, operator: Operator, left: &'a Expr, right: &'a Expr) {
        // Scaling by a number is no operator of its own.
        if !self.plain(left) && !self.plain(right) {
            self.calls.push(format!("torch.{}", infix_name(operator)));
        }
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Assign(assign) => {
                self.visit_expr(&assign.value);
                let plain = self.plain(&assign.value);
                assign.targets.iter().for_each(|target| self.assign(target, plain));
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.visit_expr(value);
                    let plain = self.plain(value);
                    self.assign(&assign.target, plain);
                }
            }
            Stmt::AugAssign(assign) => {
                self.visit_expr(&assign.value);
                self.overwrite(&assign.target);
                self.binary(assign.op, &assign.target, &assign.value);
            }
            Stmt::For(each) => {
                self.visit_expr(&each.iter);
                self.each(&each.target, &each.iter);
                self.visit_body(&each.body);
                self.visit_body(&each.orelse);
            }
            Stmt::ClassDef(_) => {}
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if self.fuel == 0 {
            return;
        }
        self.fuel -= 1;
        match expression {
            Expr::Call(call) => self.call(call),
            Expr::BinOp(operation) => {
                self.visit_expr(&operation.left);
                self.visit_expr(&operation.right);
                self.binary(operation.op, &operation.left, &operation.right);
            }
            _ => walk_expr(self, expression),
        }
    }

    fn visit_annotation(&mut self, _: &'a Expr) {}
}

/// Finds the values of an object's attributes.
struct State<'s, 'f, 'a> {
    file: &'f File<'a>,
    scope: &'s mut Scope<'a>,
}

impl<'a> Visitor<'a> for State<'_, '_, 'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let (targets, value) = match statement {
            Stmt::Assign(assign) => (&assign.targets[..], Some(&*assign.value)),
            Stmt::AnnAssign(assign) => {
                (std::slice::from_ref(&*assign.target), assign.value.as_deref())
            }
            _ => return walk_stmt(self, statement),
        };
        let Some(value) = value else { return };
        let Some((itself, _)) = self.scope.object else { return };
        let mut constructors = Constructors { file: self.file, made: Vec::new() };
        constructors.visit_expr(value);
        for name in targets.iter().filter_map(|target| attribute_of(target, itself)) {
            if !constructors.made.is_empty() {
                self.scope.layers.insert(name, value);
            } else if !calls_torch(self.file, value) {
                self.scope.numbers.insert(name);
            }
        }
    }

    fn visit_expr(&mut self, _: &'a Expr) {}
}

fn is_super(expression: &Expr) -> bool {
    matches!(expression, Expr::Call(call) if name_of(&call.func) == Some("super"))
}
