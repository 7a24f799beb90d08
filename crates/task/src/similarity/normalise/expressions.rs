//! Expressions as trees.

use ruff_python_ast::{Comprehension, Expr, ExprCall, Operator};

use super::{Place, Reader};
use crate::facts::module::Binding;
use crate::similarity::operators::{binary, boolean, comparison, operator, unary};
use crate::similarity::state::{LOCAL, attribute_of};
use crate::similarity::tree::Tree;

/// Deepest nesting that is looked into. `-----...x` nests once per byte, and nobody's model does.
const MAX_DEPTH: usize = 1000;

impl Reader<'_, '_> {
    pub(super) fn expression(&self, expression: &Expr) -> Tree {
        let depth = self.depth.get();
        if depth == MAX_DEPTH {
            return Tree::part("deep", Vec::new());
        }
        self.depth.set(depth + 1);
        let tree = self.tree_of(expression);
        self.depth.set(depth);
        tree
    }

    fn tree_of(&self, expression: &Expr) -> Tree {
        match expression {
            Expr::NumberLiteral(_)
            | Expr::StringLiteral(_)
            | Expr::BytesLiteral(_)
            | Expr::BooleanLiteral(_)
            | Expr::NoneLiteral(_)
            | Expr::EllipsisLiteral(_)
            | Expr::FString(_)
            | Expr::TString(_)
            | Expr::IpyEscapeCommand(_) => Tree::constant(),
            Expr::Name(name) => self.name(expression, name.id.as_str()),
            Expr::Attribute(attribute) => match self.names.full_name(expression) {
                Some(full) => Tree::part(operator(&full), Vec::new()),
                None => match attribute_of(expression, self.itself) {
                    Some(name) => Tree::part(self.state.label(name), Vec::new()),
                    // `x.shape`, `x.T`: the interface of tensors, not names of the author's.
                    None => folded(Tree::part(
                        format!(".{}", attribute.attr),
                        vec![self.expression(&attribute.value)],
                    )),
                },
            },
            Expr::Call(call) => self.call(call),
            Expr::BinOp(e) => self.binary(e.op, &e.left, &e.right),
            Expr::UnaryOp(e) => folded(Tree::step(unary(e.op), vec![self.expression(&e.operand)])),
            Expr::BoolOp(e) => folded(Tree::step(boolean(e.op), self.all(&e.values))),
            Expr::Compare(e) => {
                let label = e.ops.iter().map(|op| comparison(*op)).collect::<Vec<_>>().join(" ");
                let mut children = vec![self.expression(&e.left)];
                children.extend(self.all(&e.comparators));
                folded(Tree::step(label, children))
            }
            Expr::Subscript(e) => {
                let children = vec![self.expression(&e.value), self.expression(&e.slice)];
                folded(Tree::step("getitem", children))
            }
            Expr::Slice(e) => {
                let ends = [&e.lower, &e.upper, &e.step];
                let ends = ends.into_iter().flatten().map(|end| self.expression(end));
                // `x[1:]` and `x[:4]` differ in constants.
                folded(Tree::part("slice", ends.collect::<Vec<_>>()))
            }
            Expr::Tuple(e) => folded(Tree::part("tuple", self.all(&e.elts))),
            Expr::List(e) => folded(Tree::part("tuple", self.all(&e.elts))),
            Expr::Set(e) => folded(Tree::part("tuple", self.all(&e.elts))),
            Expr::Dict(e) => folded(Tree::part(
                "dict",
                e.items.iter().map(|i| self.expression(&i.value)).collect(),
            )),
            Expr::Starred(e) => folded(Tree::part("star", vec![self.expression(&e.value)])),
            Expr::Named(e) => self.expression(&e.value),
            Expr::Await(e) => self.expression(&e.value),
            Expr::If(e) => {
                let parts = [&e.test, &e.body, &e.orelse];
                folded(Tree::block("if", parts.map(|part| self.expression(part)).into()))
            }
            Expr::Lambda(e) => Tree::block("function", vec![self.expression(&e.body)]),
            Expr::ListComp(e) => self.comprehension(&e.elt, &e.generators),
            Expr::SetComp(e) => self.comprehension(&e.elt, &e.generators),
            Expr::Generator(e) => self.comprehension(&e.elt, &e.generators),
            Expr::DictComp(e) => self.comprehension(&e.value, &e.generators),
            Expr::Yield(e) => {
                Tree::block("yield", e.value.iter().map(|v| self.expression(v)).collect())
            }
            Expr::YieldFrom(e) => Tree::block("yield", vec![self.expression(&e.value)]),
        }
    }

    /// `left op right`, also of `left op= right`.
    pub(super) fn binary(&self, op: Operator, left: &Expr, right: &Expr) -> Tree {
        folded(Tree::step(binary(op), vec![self.expression(left), self.expression(right)]))
    }

    fn all(&self, expressions: &[Expr]) -> Vec<Tree> {
        expressions.iter().map(|expression| self.expression(expression)).collect()
    }

    fn name(&self, expression: &Expr, name: &str) -> Tree {
        if self.locals.contains(name) {
            return match self.place {
                Place::Init => Tree::constant(),
                Place::Forward => Tree::value(),
            };
        }
        if let Some(full) = self.names.full_name(expression) {
            return Tree::part(operator(&full), Vec::new());
        }
        match self.module.get(name) {
            Some(Binding::Class(_) | Binding::Function(_)) => Tree::part(LOCAL, Vec::new()),
            // A size at module level, or one of Python's own.
            Some(Binding::Unknown) | None => Tree::constant(),
        }
    }

    fn call(&self, call: &ExprCall) -> Tree {
        let mut children = Vec::new();
        let label = match (self.names.full_name(&call.func), &*call.func) {
            (Some(full), _) => operator(&full),
            (None, Expr::Name(name)) => match self.module.get(name.id.as_str()) {
                _ if self.locals.contains(name.id.as_str()) => "call".to_owned(),
                Some(Binding::Class(_) | Binding::Function(_)) => LOCAL.to_owned(),
                Some(Binding::Unknown) => "call".to_owned(),
                None => name.id.to_string(),
            },
            (None, Expr::Attribute(method)) => {
                if let Some(name) = attribute_of(&call.func, self.itself) {
                    self.state.label(name).to_owned()
                } else {
                    children.push(self.expression(&method.value));
                    operator(&format!("torch.Tensor.{}", method.attr))
                }
            }
            (None, function) => {
                children.push(self.expression(function));
                "call".to_owned()
            }
        };
        children.extend(self.all(&call.arguments.args));
        let mut keywords: Vec<(&str, &Expr)> = call
            .arguments
            .keywords
            .iter()
            .map(|k| (k.arg.as_ref().map_or("**", |name| name.as_str()), &k.value))
            .collect();
        // Keywords have no order.
        keywords.sort_by_key(|(name, _)| *name);
        for (name, value) in keywords {
            let value = self.expression(value);
            let inner = if value.is_constant() { Vec::new() } else { vec![value] };
            children.push(Tree::part(format!("{name}="), inner));
        }
        Tree::step(label, children)
    }

    fn comprehension(&self, element: &Expr, generators: &[Comprehension]) -> Tree {
        let mut children = vec![self.expression(element)];
        for generator in generators {
            children.push(self.expression(&generator.iter));
            children.extend(self.all(&generator.ifs));
        }
        Tree::block("for", children)
    }
}

/// What is made of constants only is a constant; so is a slice without ends.
fn folded(tree: Tree) -> Tree {
    if tree.children.iter().all(Tree::is_constant) { Tree::constant() } else { tree }
}
