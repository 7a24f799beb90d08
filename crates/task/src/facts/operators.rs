//! What `forward` computes, where it can be read off.

use std::collections::BTreeSet;

use ruff_python_ast::{Expr, Number, Operator, Stmt, StmtFunctionDef, UnaryOp};

use super::deep;
use super::module::{Binding, Module};
use super::names::Names;
use crate::limits::MAX_SOURCE_BYTES;

/// The operators of `Model.forward` by their full names, `+`, `*` and `-x` as `torch.add`, `torch.mul` and
/// `torch.neg`. `None` unless it is nothing but assignments and a `return` of functions of `torch`, of its
/// arguments and of constants: parameters, methods, modules, branches and loops are not looked into.
///
/// ```
/// let source = "import torch\n\
///     import torch.nn.functional as F\n\
///     class Model(torch.nn.Module):\n\
///     \x20   def forward(self, x, y):\n\
///     \x20       return F.gelu(x + y)\n";
/// let found = warpwright_task::operators(source).unwrap();
/// assert_eq!(found.into_iter().collect::<Vec<_>>(), ["torch.add", "torch.nn.functional.gelu"]);
/// ```
pub fn operators(source: &str) -> Option<BTreeSet<String>> {
    if source.len() > MAX_SOURCE_BYTES {
        return None;
    }
    deep::on_deep_stack(|| {
        let parsed = ruff_python_parser::parse_module(source).ok()?;
        let module = Module::new(parsed.suite());
        let Some(Binding::Class(model)) = module.get("Model") else { return None };
        let Some(Binding::Function(forward)) = module.method(model, "forward") else { return None };
        let names = Names::new(parsed.suite());
        let mut found = BTreeSet::new();
        is_plain(forward, &names, &mut found).then_some(found)
    })
    .flatten()
}

fn is_plain(forward: &StmtFunctionDef, names: &Names<'_>, found: &mut BTreeSet<String>) -> bool {
    let is_text = |expr: &Expr| matches!(expr, Expr::StringLiteral(_));
    let is_name = |expr: &Expr| matches!(expr, Expr::Name(_));
    forward.decorator_list.is_empty()
        && forward.body.iter().all(|statement| match statement {
            Stmt::Assign(assign) => {
                assign.targets.iter().all(is_name) && reads(&assign.value, names, found)
            }
            Stmt::Return(returned) => {
                returned.value.as_ref().is_some_and(|value| reads(value, names, found))
            }
            Stmt::Expr(documentation) => is_text(&documentation.value),
            _ => false,
        })
}

/// Whether it is made of what can be named.
fn reads(expression: &Expr, names: &Names<'_>, found: &mut BTreeSet<String>) -> bool {
    match expression {
        Expr::Name(_)
        | Expr::NumberLiteral(_)
        | Expr::BooleanLiteral(_)
        | Expr::NoneLiteral(_)
        | Expr::StringLiteral(_) => true,
        Expr::List(list) => list.elts.iter().all(|element| reads(element, names, found)),
        Expr::Tuple(tuple) => tuple.elts.iter().all(|element| reads(element, names, found)),
        Expr::Call(call) => {
            let Some(name) = names.full_name(&call.func).filter(|name| name.starts_with("torch."))
            else {
                return false;
            };
            found.insert(name);
            call.arguments.args.iter().all(|argument| reads(argument, names, found))
                && call.arguments.keywords.iter().all(|k| reads(&k.value, names, found))
        }
        Expr::BinOp(binary) => {
            let name = match binary.op {
                Operator::Add => "torch.add",
                Operator::Mult => "torch.mul",
                _ => return false,
            };
            found.insert(name.to_owned());
            reads(&binary.left, names, found) && reads(&binary.right, names, found)
        }
        Expr::UnaryOp(unary) if unary.op == UnaryOp::USub => match &*unary.operand {
            Expr::NumberLiteral(n) => !matches!(n.value, Number::Complex { .. }),
            operand => {
                found.insert("torch.neg".to_owned());
                reads(operand, names, found)
            }
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(body: &str) -> Option<Vec<String>> {
        let source = format!(
            "import torch\nfrom torch.nn import functional as F\nclass Model(torch.nn.Module):\n    \
             def forward(self, x, y):\n        {body}\n"
        );
        operators(&source).map(|found| found.into_iter().collect())
    }

    #[test]
    fn operators_of_a_simple_forward_are_named() {
        let found = forward("z = F.softmax(x * y, dim=-1)\n        return torch.neg(z) + -z");
        let all = ["torch.add", "torch.mul", "torch.neg", "torch.nn.functional.softmax"];
        assert_eq!(found.unwrap(), all);
        assert_eq!(forward("\"It.\"\n        return x").unwrap(), [""; 0]);
    }

    #[test]
    fn ambiguous_forward_names_no_operators() {
        for body in [
            "return x.relu()",
            "return self.layer(x)",
            "return x * self.weight",
            "return x / y",
            "return x @ y",
            "return F.relu(x)[0]",
            "for i in range(3): x = F.relu(x)\n        return x",
            "x += y\n        return x",
            "self.x = F.relu(x)\n        return x",
            "return open('x')",
            "return (lambda: x)()",
            "return F.relu(*x)",
            "return",
            "return [F.relu(v) for v in x]",
        ] {
            assert_eq!(forward(body), None, "{body}");
        }
        assert_eq!(operators("class Model: pass"), None);
        assert_eq!(operators("syntax error ("), None);
        assert_eq!(operators(&"(".repeat(50_000)), None);
    }
}
