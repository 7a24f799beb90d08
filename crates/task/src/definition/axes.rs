//! Axes of a definition: names with numbers, and expressions of them.

use std::collections::BTreeMap;

use ruff_python_ast::{BoolOp, CmpOp, Expr, ExprCompare, Number, Operator, UnaryOp};

use super::schema::Raw;
use super::wrong::Wrong;

/// Longest expression, in bytes: it bounds how deep one nests.
const LONGEST_EXPRESSION: usize = 256;
/// Largest value of an axis: beyond it no tensor fits anywhere.
pub(super) const LARGEST_AXIS: u64 = 1 << 40;

/// What fixes an axis.
#[derive(Clone, Debug)]
pub(super) enum Axis {
    Const(u64),
    Var,
    Expr(String),
}

/// The axes of `raw`, checked, in their order.
pub(super) fn read(raw: &Raw) -> Result<Vec<(String, Axis)>, Wrong> {
    let mut axes = Vec::new();
    for (name, axis) in &raw.axes.0 {
        // Nobody has checked it yet.
        let said = super::one_line(name, 40);
        let wrong = |what: &str| Err(Wrong::definition(format!("its axis `{said}` {what}")));
        let axis = match (axis.kind.as_str(), axis.value, &axis.expression) {
            ("const", Some(value), _) if value <= LARGEST_AXIS => Axis::Const(value),
            ("const", Some(_), _) => return wrong("is larger than any tensor"),
            ("const", None, _) => return wrong("is constant and has no `value`"),
            ("var", ..) => Axis::Var,
            ("expr", _, Some(text)) => Axis::Expr(text.clone()),
            ("expr", _, None) => return wrong("is an expression and has no `expression`"),
            (other, ..) => {
                let other = super::one_line(other, 40);
                return wrong(&format!("has the unknown type `{other}`: const, var or expr"));
            }
        };
        axes.push((name.clone(), axis));
    }
    Ok(axes)
}

/// The value of every axis in a workload that gives those of `given`.
pub(super) fn values(
    axes: &[(String, Axis)],
    given: &[(String, u64)],
) -> Result<BTreeMap<String, u64>, Wrong> {
    if let Some((name, _)) = given
        .iter()
        .find(|(name, _)| !axes.iter().any(|(n, axis)| n == name && matches!(axis, Axis::Var)))
    {
        return Err(Wrong::workload(format!(
            "its axis `{}` is no variable axis of the definition",
            super::one_line(name, 40)
        )));
    }
    let mut values = BTreeMap::new();
    for (name, axis) in axes {
        let value = match axis {
            Axis::Const(value) => *value,
            Axis::Var => {
                let found = given.iter().find(|(n, _)| n == name);
                found
                    .ok_or_else(|| {
                        Wrong::workload(format!("it has no value for the axis `{name}`"))
                    })?
                    .1
            }
            Axis::Expr(_) => continue,
        };
        values.insert(name.clone(), value);
    }
    for (name, axis) in axes {
        if let Axis::Expr(text) = axis {
            let value = evaluate(text, &values).map_err(|what| {
                Wrong::workload(format!("its axis `{name}` = {} {what}", shown(text)))
            })?;
            values.insert(name.clone(), value);
        }
    }
    for (name, value) in &values {
        if *value > LARGEST_AXIS {
            return Err(Wrong::workload(format!(
                "its axis `{name}` is {value}, not a number up to {LARGEST_AXIS}"
            )));
        }
    }
    Ok(values)
}

/// Text of a stranger, short and on one line.
fn shown(text: &str) -> String {
    super::one_line(text, 60)
}

/// Whether an expression can be copied into a source: names, numbers and operators only.
pub(super) fn plain(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-*/%() ".contains(c);
    text.len() <= LONGEST_EXPRESSION && text.chars().all(allowed)
}

/// The value of an arithmetic expression of axes.
fn evaluate(text: &str, values: &BTreeMap<String, u64>) -> Result<u64, String> {
    if !plain(text) {
        return Err("is not arithmetic of axes and numbers".to_owned());
    }
    let parsed = ruff_python_parser::parse_expression(text.trim())
        .map_err(|error| format!("cannot be read: {}", error.error))?;
    let value = number(&parsed.syntax().body, values)?;
    u64::try_from(value).map_err(|_| format!("is {value}"))
}

/// Whether a constraint on axes holds; `None` where it is about values too, and these decide.
pub(super) fn holds(text: &str, values: &BTreeMap<String, u64>) -> Option<bool> {
    if text.len() > LONGEST_EXPRESSION {
        return None;
    }
    let parsed = ruff_python_parser::parse_expression(text.trim()).ok()?;
    is_true(&parsed.syntax().body, values)
}

fn is_true(expression: &Expr, values: &BTreeMap<String, u64>) -> Option<bool> {
    match expression {
        Expr::Compare(compare) => compares(compare, values),
        Expr::BooleanLiteral(literal) => Some(literal.value),
        Expr::UnaryOp(unary) if unary.op == UnaryOp::Not => {
            is_true(&unary.operand, values).map(|holds| !holds)
        }
        Expr::BoolOp(all) => {
            // One operand that decides is enough, whatever the others are about.
            let decides = all.op == BoolOp::Or;
            let mut known = Some(!decides);
            for operand in &all.values {
                match is_true(operand, values) {
                    Some(holds) if holds == decides => return Some(decides),
                    Some(_) => {}
                    None => known = None,
                }
            }
            known
        }
        // A number is true unless it is zero, as `rows % 8`.
        other => number(other, values).ok().map(|value| value != 0),
    }
}

fn compares(compare: &ExprCompare, values: &BTreeMap<String, u64>) -> Option<bool> {
    let mut left = number(&compare.left, values).ok()?;
    for (op, right) in compare.ops.iter().zip(&compare.comparators) {
        let right = number(right, values).ok()?;
        let right_holds = match op {
            CmpOp::Eq => left == right,
            CmpOp::NotEq => left != right,
            CmpOp::Lt => left < right,
            CmpOp::LtE => left <= right,
            CmpOp::Gt => left > right,
            CmpOp::GtE => left >= right,
            _ => return None,
        };
        if !right_holds {
            return Some(false);
        }
        left = right;
    }
    Some(true)
}

fn number(expression: &Expr, values: &BTreeMap<String, u64>) -> Result<i128, String> {
    let beyond = || "is too large".to_owned();
    match expression {
        Expr::NumberLiteral(literal) => match &literal.value {
            Number::Int(n) => n.as_u64().map(i128::from).ok_or_else(beyond),
            _ => Err("has a number that is not whole".to_owned()),
        },
        Expr::Name(name) => values
            .get(name.id.as_str())
            .map(|value| i128::from(*value))
            .ok_or_else(|| format!("names `{}`, which is no earlier axis", name.id)),
        Expr::UnaryOp(unary) => {
            let value = number(&unary.operand, values)?;
            match unary.op {
                UnaryOp::USub => value.checked_neg().ok_or_else(beyond),
                UnaryOp::UAdd => Ok(value),
                _ => Err("has an operator other than + - * / // % **".to_owned()),
            }
        }
        Expr::BinOp(binary) => {
            let (a, b) = (number(&binary.left, values)?, number(&binary.right, values)?);
            if matches!(binary.op, Operator::Div | Operator::FloorDiv | Operator::Mod) && b == 0 {
                return Err("divides by zero".to_owned());
            }
            match binary.op {
                Operator::Add => a.checked_add(b).ok_or_else(beyond),
                Operator::Sub => a.checked_sub(b).ok_or_else(beyond),
                Operator::Mult => a.checked_mul(b).ok_or_else(beyond),
                Operator::Div if a.checked_rem(b) == Some(0) => a.checked_div(b).ok_or_else(beyond),
                Operator::Div => Err("is not a whole number".to_owned()),
                Operator::FloorDiv => floored(a, b).ok_or_else(beyond),
                Operator::Mod => {
                    let whole = floored(a, b).and_then(|quotient| quotient.checked_mul(b));
                    whole.and_then(|whole| a.checked_sub(whole)).ok_or_else(beyond)
                }
                Operator::Pow => {
                    let power = u32::try_from(b).map_err(|_| beyond())?;
                    a.checked_pow(power).ok_or_else(beyond)
                }
                _ => Err("has an operator other than + - * / // % **".to_owned()),
            }
        }
        _ => Err("is not arithmetic of axes and numbers".to_owned()),
    }
}

/// Python's `//`.
fn floored(a: i128, b: i128) -> Option<i128> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    if rest != 0 && (rest < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some() -> BTreeMap<String, u64> {
        [("a", 12), ("b", 5)].into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn expressions_have_the_values_of_python() {
        for (text, value) in [
            ("a * b + 1", 61),
            ("a // b", 2),
            ("-a // b + 4", 1),
            ("-a % b", 3),
            ("a / 4", 3),
            ("2 ** b", 32),
            ("(a + 2 * b - 3) // b + 1", 4),
        ] {
            assert_eq!(evaluate(text, &some()), Ok(value), "{text}");
        }
    }

    #[test]
    fn other_expressions_are_refused_with_a_reason() {
        for text in
            ["a / 5", "c", "a // 0", "2 ** 900", "a.b", "f(a)", "1.5", "b - a", "a if b else b", ""]
        {
            assert!(evaluate(text, &some()).is_err(), "{text}");
        }
    }

    #[test]
    fn constraints_of_axes_are_checked() {
        assert_eq!(holds("a == b + 7", &some()), Some(true));
        assert_eq!(holds("a == b * 2", &some()), Some(false));
        assert_eq!(holds("a == x[-1].item()", &some()), None);
        for (text, known) in [
            ("a > 1 and b > 1", Some(true)),
            ("a > 1 and b > 5", Some(false)),
            ("a < 1 or b == 5", Some(true)),
            ("a < 1 or b > 5", Some(false)),
            ("not a < 1", Some(true)),
            ("not (a > 1 and b > 1)", Some(false)),
            ("a < 1 and n == x.item()", Some(false)),
            ("n == x.item() and a < 1", Some(false)),
            ("a > 1 and n == x.item()", None),
            ("n == x.item() or a > 1", Some(true)),
            ("not n == x.item()", None),
            ("a % 6", Some(false)),
            ("True", Some(true)),
        ] {
            assert_eq!(holds(text, &some()), known, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_expression_is_read_without_panic(text in "[ab0-9+*/%() .-]{0,40}") {
            let _ = evaluate(&text, &some());
            let _ = holds(&format!("{text} == a"), &some());
            let _ = holds(&format!("not {text} == a or {text}"), &some());
        }
    }
}
