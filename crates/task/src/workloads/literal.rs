//! Python literals as JSON values.

use ruff_python_ast::{Expr, Number, UnaryOp};
use ruff_text_size::{Ranged, TextRange};
use serde_json::{Map, Value};

/// Deepest nesting of lists and dicts.
const MAX_DEPTH: usize = 8;

/// What is no literal of JSON values, and where.
pub(super) struct NotLiteral {
    pub(super) message: String,
    pub(super) at: TextRange,
    pub(super) computed: bool,
}

impl NotLiteral {
    pub(super) fn new(at: &impl Ranged, message: impl Into<String>) -> Self {
        Self { message: message.into(), at: at.range(), computed: false }
    }
}

/// The value of a literal expression.
pub(super) fn value(expression: &Expr) -> Result<Value, NotLiteral> {
    within(expression, MAX_DEPTH)
}

fn within(expression: &Expr, depth: usize) -> Result<Value, NotLiteral> {
    let inner = |items: &[Expr]| -> Result<Value, NotLiteral> {
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("it is nested more than {MAX_DEPTH} deep");
            return Err(NotLiteral::new(expression, message));
        };
        let values = items.iter().map(|item| within(item, depth));
        values.collect::<Result<Vec<_>, _>>().map(Value::Array)
    };
    match expression {
        Expr::NoneLiteral(_) => Ok(Value::Null),
        Expr::BooleanLiteral(literal) => Ok(Value::Bool(literal.value)),
        Expr::StringLiteral(literal) => Ok(Value::String(literal.value.to_str().to_owned())),
        Expr::NumberLiteral(literal) => number(&literal.value, false)
            .ok_or_else(|| NotLiteral::new(expression, "the number is not one of JSON")),
        Expr::UnaryOp(unary) => match (&unary.op, &*unary.operand) {
            (UnaryOp::USub | UnaryOp::UAdd, Expr::NumberLiteral(literal)) => {
                number(&literal.value, unary.op == UnaryOp::USub)
                    .ok_or_else(|| NotLiteral::new(expression, "the number is not one of JSON"))
            }
            _ => Err(computed(expression)),
        },
        Expr::List(list) => inner(&list.elts),
        Expr::Tuple(tuple) => inner(&tuple.elts),
        Expr::Dict(_) => dict(expression, depth),
        _ => Err(computed(expression)),
    }
}

fn dict(expression: &Expr, depth: usize) -> Result<Value, NotLiteral> {
    let Expr::Dict(dict) = expression else { return Err(computed(expression)) };
    let Some(depth) = depth.checked_sub(1) else {
        let message = format!("it is nested more than {MAX_DEPTH} deep");
        return Err(NotLiteral::new(expression, message));
    };
    let mut map = Map::new();
    for item in &dict.items {
        let Some(Expr::StringLiteral(key)) = &item.key else {
            return Err(NotLiteral::new(&item.value, "a key of a dict is not a string literal"));
        };
        let name = key.value.to_str().to_owned();
        let value = within(&item.value, depth)?;
        if map.insert(name.clone(), value).is_some() {
            return Err(NotLiteral::new(key, format!("the key {name:?} is there twice")));
        }
    }
    Ok(Value::Object(map))
}

fn computed(expression: &Expr) -> NotLiteral {
    let message = "it is computed, and tasks are read without executing them".to_owned();
    NotLiteral { message, at: expression.range(), computed: true }
}

fn number(number: &Number, negative: bool) -> Option<Value> {
    match number {
        Number::Int(int) if negative => {
            let text = int.to_string();
            format!("-{text}").parse::<i64>().ok().map(Value::from)
        }
        Number::Int(int) => int.as_u64().map(Value::from),
        Number::Float(float) => {
            let float = if negative { -*float } else { *float };
            serde_json::Number::from_f64(float).map(Value::Number)
        }
        Number::Complex { .. } => None,
    }
}

/// A value as a Python literal.
pub(super) fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        // The escapes of JSON are escapes of Python.
        Value::String(_) => value.to_string(),
        Value::Array(values) => {
            let all: Vec<String> = values.iter().map(python).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Object(map) => {
            let one = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::String(key.clone()), python(value))
            };
            let all: Vec<String> = map.iter().map(one).collect();
            format!("{{{}}}", all.join(", "))
        }
    }
}
