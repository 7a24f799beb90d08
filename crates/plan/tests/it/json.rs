//! Changes single fields of serialised values.

use serde_json::{Value, json};

/// Paths of all numbers, texts, booleans, nulls and lists of a value.
pub(crate) fn fields(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, String::new(), &mut found);
    found
}

fn walk(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{path}/{index}"), found);
            }
            found.push(path);
        }
        Value::Object(entries) => {
            for (key, item) in entries {
                walk(item, format!("{path}/{key}"), found);
            }
        }
        _ => found.push(path),
    }
}

/// The value with another content at `path`, which `choice` picks. `None` if there is nothing else.
pub(crate) fn changed(value: &Value, path: &str, choice: u64) -> Option<Value> {
    let mut value = value.clone();
    let field = value.pointer_mut(path)?;
    let numbers = [
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(7),
        json!(255),
        json!(1024),
        json!(65_536),
        json!(i32::MAX),
        json!(u32::MAX),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(-1),
        json!(i64::MIN),
    ];
    let pick = |from: &[Value]| from.get(choice as usize % from.len()).cloned();
    let other = match &*field {
        Value::Number(number) if choice.is_multiple_of(3) => {
            json!(number.as_u64()?.wrapping_add(1 + choice / 3 % 3))
        }
        Value::Number(_) | Value::Null => pick(&numbers)?,
        Value::String(text) => {
            let longer = "00".repeat(1 + text.len());
            pick(&[
                json!(""),
                json!("/"),
                json!("../x"),
                json!(text.get(..text.len() / 2)?),
                json!(longer),
            ])?
        }
        Value::Bool(value) => json!(!value),
        Value::Array(items) => match choice % 4 {
            0 => json!([]),
            1 => Value::Array(items.iter().skip(1).cloned().collect()),
            2 => Value::Array(items.iter().chain(items.last()).cloned().collect()),
            _ => Value::Array(items.iter().rev().cloned().collect()),
        },
        Value::Object(_) => return None,
    };
    let differs = other != *field;
    *field = other;
    differs.then_some(value)
}
