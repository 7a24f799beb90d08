//! One name for one operator, however it is called.

use ruff_python_ast::{BoolOp, CmpOp, Operator, UnaryOp};

/// Other names of an operator, and the one that is used here. `torch` documents them as aliases.
const ALIASES: [(&str, &str); 22] = [
    ("absolute", "abs"),
    ("arccos", "acos"),
    ("arcsin", "asin"),
    ("arctan", "atan"),
    ("clip", "clamp"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("divide", "div"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("multiply", "mul"),
    ("negative", "neg"),
    ("not_equal", "ne"),
    ("special.erf", "erf"),
    ("special.expit", "sigmoid"),
    ("special.logsumexp", "logsumexp"),
    ("special.softmax", "softmax"),
    ("subtract", "sub"),
    ("swapaxes", "transpose"),
    ("true_divide", "div"),
];

/// Operators whose two operands can change places.
const COMMUTATIVE: [&str; 7] = ["add", "eq", "maximum", "minimum", "mul", "ne", "logaddexp"];

/// The name for `full`, e.g. `torch.nn.functional.relu_`: a function, a Tensor method and a function of
/// `torch.nn.functional` are one operator (`relu`), and one that works in place is none other.
/// Modules stay apart (`nn.ReLU`), and so do functions of other packages (`math.sqrt`).
pub(crate) fn operator(full: &str) -> String {
    let Some(name) = full.strip_prefix("torch.") else { return full.to_owned() };
    let name = match name.strip_prefix("nn.") {
        Some(rest) => match rest.strip_prefix("functional.") {
            Some(function) => function.to_owned(),
            None => format!("nn.{}", rest.rsplit('.').next().unwrap_or(rest)),
        },
        None => name.strip_prefix("Tensor.").unwrap_or(name).to_owned(),
    };
    let name = match name.strip_suffix('_') {
        Some(stripped) if !name.starts_with("__") && !stripped.is_empty() => stripped.to_owned(),
        _ => name,
    };
    match ALIASES.iter().find(|(alias, _)| *alias == name) {
        Some((_, used)) => (*used).to_owned(),
        None => name,
    }
}

/// Whether the operands of `operator` have no order.
pub(crate) fn is_commutative(operator: &str) -> bool {
    COMMUTATIVE.contains(&operator)
}

/// Torch's name of an infix operator: `a + b` is `torch.add(a, b)`.
pub fn binary(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "add",
        Operator::Sub => "sub",
        Operator::Mult => "mul",
        Operator::MatMult => "matmul",
        Operator::Div => "div",
        Operator::Mod => "remainder",
        Operator::Pow => "pow",
        Operator::LShift => "bitwise_left_shift",
        Operator::RShift => "bitwise_right_shift",
        Operator::BitOr => "bitwise_or",
        Operator::BitXor => "bitwise_xor",
        Operator::BitAnd => "bitwise_and",
        Operator::FloorDiv => "floor_divide",
    }
}

/// `-x` is `torch.neg(x)`.
pub(crate) fn unary(operator: UnaryOp) -> &'static str {
    match operator {
        UnaryOp::Invert => "bitwise_not",
        UnaryOp::Not => "not",
        UnaryOp::UAdd => "positive",
        UnaryOp::USub => "neg",
    }
}

/// `a < b` is `torch.lt(a, b)`.
pub(crate) fn comparison(operator: CmpOp) -> &'static str {
    match operator {
        CmpOp::Eq => "eq",
        CmpOp::NotEq => "ne",
        CmpOp::Lt => "lt",
        CmpOp::LtE => "le",
        CmpOp::Gt => "gt",
        CmpOp::GtE => "ge",
        CmpOp::Is | CmpOp::IsNot => "is",
        CmpOp::In | CmpOp::NotIn => "in",
    }
}

/// `and`, `or`.
pub(crate) fn boolean(operator: BoolOp) -> &'static str {
    match operator {
        BoolOp::And => "and",
        BoolOp::Or => "or",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_an_operator_have_one_name() {
        for full in ["torch.relu", "torch.nn.functional.relu", "torch.Tensor.relu_", "torch.relu_"]
        {
            assert_eq!(operator(full), "relu");
        }
        assert_eq!(operator("torch.nn.modules.conv.Conv2d"), "nn.Conv2d");
        assert_eq!(operator("torch.nn.Conv2d"), "nn.Conv2d");
        assert_eq!(operator("torch.multiply"), binary(Operator::Mult));
        assert_eq!(operator("torch.linalg.norm"), "linalg.norm");
        assert_eq!(operator("math.sqrt"), "math.sqrt");
    }
}
