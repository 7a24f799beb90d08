//! Compares the nesting of outputs and the plain values in them, as `tensors.py` writes them: each node is
//! an object with one key, which names the kind of the node.

use std::fmt;

use serde_json::{Value as Json, json};

/// Longest outline, in characters.
const MAX_OUTLINE: usize = 160;
/// How far a number may be off, relative to itself: a float32 sum's rounding.
const NUMBER_SLACK: f64 = 1e-5;
/// How many times the same-precision reference's own error it may be off.
const OWN_SLACK: f64 = 16.0;
/// A number that the two precisions disagree on by more, relative to itself, is right as either gives
/// it.
const OWN_CEILING: f64 = 1e-2;

/// Where two trees differ, without a value of either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differs {
    at: String,
    what: &'static str,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "as a whole" } else { &self.at };
        write!(f, "{at}, {}", self.what)
    }
}

/// Equal nesting and equal plain values. A list and a tuple count as the same. So do a dict and a record
/// with the same keys, in any order, and a record and a tuple of its items in order. Numbers are as near to the reference's, or to those of the tree in float64, as
/// honest programs come. Of each tensor of the reference, which of the claimed ones it is.
pub(crate) fn same(
    claimed: &Json,
    wanted: &Json,
    exact: Option<&Json>,
) -> Result<Vec<usize>, Differs> {
    let mut tensors = Vec::new();
    same_at(claimed, wanted, exact, "", &mut tensors)?;
    Ok(tensors)
}

fn same_at(
    claimed: &Json,
    wanted: &Json,
    exact: Option<&Json>,
    at: &str,
    tensors: &mut Vec<usize>,
) -> Result<(), Differs> {
    let differs = |what| Err(Differs { at: at.to_owned(), what });
    let (Some((kind, mine)), Some((other, theirs))) = (node(claimed), node(wanted)) else {
        return differs("what was given is no value");
    };
    let exact = exact.and_then(node);
    match (kind, other) {
        ("list" | "tuple" | "record", "list" | "tuple") | ("list" | "tuple", "record") => {
            let (Some(x), Some(y)) = (in_order(kind, mine), in_order(other, theirs)) else {
                return differs("what was given is no value");
            };
            if x.len() != y.len() {
                return differs("the number of items differs");
            }
            x.into_iter().zip(y).enumerate().try_for_each(|(i, (p, q))| {
                same_at(
                    p,
                    q,
                    exact.and_then(|exact| item(exact, i)),
                    &format!("{at}[{i}]"),
                    tensors,
                )
            })
        }
        ("dict" | "record", "dict" | "record") => {
            let (Some(x), Some(y)) = (by_name(kind, mine), by_name(other, theirs)) else {
                return differs("what was given is no value");
            };
            // A record has all of its fields, a mapping only those that are not None.
            let optional = [kind, other].contains(&"record");
            let none = |pair: &Json| pair.get(1) == Some(&json!({"value": null}));
            let mut used = 0;
            for (i, q) in y.iter().enumerate() {
                // In the same place, as a rule.
                let mut same = x.get(i).into_iter().chain(x).filter(|p| p.get(0) == q.get(0));
                let Some(p) = same.next() else {
                    if optional && none(q) {
                        continue;
                    }
                    return differs("the keys differ");
                };
                used += 1;
                let key = q.get(0).map(ToString::to_string).unwrap_or_default();
                let null = &Json::Null;
                let (p, q) = (p.get(1).unwrap_or(null), q.get(1).unwrap_or(null));
                same_at(
                    p,
                    q,
                    exact.and_then(|exact| item(exact, i)),
                    &format!("{at}[{key}]"),
                    tensors,
                )?;
            }
            let named = |pair: &Json| y.iter().any(|q| q.get(0) == pair.get(0));
            let spare = x.iter().filter(|&p| optional && none(p) && !named(p)).count();
            if used + spare == x.len() { Ok(()) } else { differs("the keys differ") }
        }
        // The reference's are numbered in this order.
        ("tensor", "tensor") => match mine.as_u64().and_then(|index| usize::try_from(index).ok()) {
            Some(index) if theirs.as_u64() == Some(tensors.len() as u64) => {
                tensors.push(index);
                Ok(())
            }
            _ => differs("what was given is no value"),
        },
        ("value", "value") => match (mine.as_number(), theirs.as_number()) {
            (Some(x), Some(y)) => {
                let exact = exact.and_then(|(_, body)| body.as_number());
                if near(x, y, exact) { Ok(()) } else { differs("the number is another") }
            }
            _ if mine == theirs => Ok(()),
            _ => differs("the value is another"),
        },
        _ if kind == other && mine == theirs => Ok(()),
        _ => differs("the kinds differ"),
    }
}

/// What a list, a tuple or a record holds.
fn in_order<'a>(kind: &str, body: &'a Json) -> Option<Vec<&'a Json>> {
    if kind == "record" {
        return by_name(kind, body)?.iter().map(|pair| pair.get(1)).collect();
    }
    Some(body.as_array()?.iter().collect())
}

/// The pairs of key and value of a dict or a record.
fn by_name<'a>(kind: &str, body: &'a Json) -> Option<&'a [Json]> {
    let pairs = if kind == "record" { body.get("items")? } else { body };
    pairs.as_array().map(Vec::as_slice)
}

/// An item of a node, by its place.
fn item<'a>((kind, body): (&str, &'a Json), index: usize) -> Option<&'a Json> {
    match kind {
        "dict" | "record" => by_name(kind, body)?.get(index)?.get(1),
        _ => body.get(index),
    }
}

/// A node's kind and what it holds.
fn node(tree: &Json) -> Option<(&str, &Json)> {
    tree.as_object()?.iter().next().map(|(kind, body)| (kind.as_str(), body))
}

/// Whether a number is the reference's: exactly if that is a whole one.
fn near(
    claimed: &serde_json::Number,
    wanted: &serde_json::Number,
    exact: Option<&serde_json::Number>,
) -> bool {
    if !wanted.is_f64() {
        return claimed == wanted || exact.is_some_and(|exact| claimed == exact);
    }
    let (Some(x), Some(y)) = (claimed.as_f64(), wanted.as_f64()) else { return false };
    let truth = exact.and_then(serde_json::Number::as_f64).unwrap_or(y);
    let error = (y - truth).abs();
    let error = if error <= OWN_CEILING * truth.abs() { OWN_SLACK * error } else { 0.0 };
    let allowed = |of: f64| error.min(OWN_CEILING * of.abs()) + NUMBER_SLACK * of.abs();
    (x - truth).abs() <= allowed(truth) || (x - y).abs() <= NUMBER_SLACK * y.abs()
}

/// The nesting and the kinds, without values: what was expected must not be told, it would pass if it
/// were returned.
pub(crate) fn outline(tree: &Json) -> String {
    let mut text = String::new();
    write_outline(tree, &mut text);
    if let Some((cut, _)) = text.char_indices().nth(MAX_OUTLINE) {
        text.truncate(cut);
        text.push_str("...");
    }
    text
}

fn write_outline(tree: &Json, text: &mut String) {
    let Some((kind, body)) = node(tree) else {
        text.push('?');
        return;
    };
    if text.len() > 4 * MAX_OUTLINE {
        return;
    }
    let items = by_name(kind, body).unwrap_or_default();
    match kind {
        "list" | "tuple" => {
            text.push('(');
            for (i, item) in items.iter().enumerate() {
                text.push_str(if i > 0 { ", " } else { "" });
                write_outline(item, text);
            }
            text.push(')');
        }
        "dict" | "record" => {
            text.push('{');
            for (i, item) in items.iter().enumerate() {
                text.push_str(if i > 0 { ", " } else { "" });
                if let (Some(key), Some(value)) = (item.get(0), item.get(1)) {
                    text.push_str(&key.to_string());
                    text.push_str(": ");
                    write_outline(value, text);
                }
            }
            text.push('}');
        }
        "value" => text.push_str(match body {
            Json::Null => "None",
            Json::Bool(_) => "bool",
            Json::Number(_) => "number",
            _ => "text",
        }),
        "float" | "complex" => text.push_str("number"),
        "tensor" => text.push_str("tensor"),
        other => text.extend(other.chars().filter(char::is_ascii_alphanumeric).take(16)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nesting_must_agree_but_a_list_may_be_a_tuple() {
        let tree = |kind: &str| json!({kind: [{"tensor": 0}, {"value": 3}]});
        assert_eq!(same(&tree("list"), &tree("tuple"), None), Ok(vec![0]));
        assert!(same(&tree("list"), &json!({"tensor": 0}), None).is_err());
        let other = json!({"list": [{"tensor": 0}, {"value": 4}]});
        assert!(same(&tree("list"), &other, None).is_err());
    }

    #[test]
    fn a_dict_may_have_its_keys_in_another_order() {
        let wanted =
            json!({"dict": [["a", {"tensor": 0}], ["b", {"value": 1}], ["c", {"tensor": 1}]]});
        let claimed =
            json!({"dict": [["c", {"tensor": 0}], ["b", {"value": 1}], ["a", {"tensor": 1}]]});
        assert_eq!(same(&claimed, &wanted, None), Ok(vec![1, 0]));
        for other in [
            json!({"dict": [["c", {"tensor": 0}], ["b", {"value": 1}], ["d", {"tensor": 1}]]}),
            json!({"dict": [["c", {"tensor": 0}], ["b", {"value": 2}], ["a", {"tensor": 1}]]}),
            json!({"dict": [["c", {"tensor": 0}], ["b", {"value": 1}]]}),
            json!({"dict": [["c", {"tensor": -1}], ["b", {"value": 1}], ["a", {"tensor": 1}]]}),
        ] {
            assert!(same(&other, &wanted, None).is_err(), "{other}");
        }
        // One of its own cannot stand for two of the reference's.
        let twice =
            json!({"dict": [["a", {"tensor": 0}], ["a", {"tensor": 1}], ["b", {"value": 1}]]});
        assert!(same(&twice, &wanted, None).is_err());
    }

    #[test]
    fn a_record_may_be_a_dict_or_a_tuple() {
        let record = |items: Json| json!({"record": {"name": "Out", "items": items}});
        let wanted = record(json!([["y", {"tensor": 0}], ["aux", {"value": null}]]));
        for (claimed, right) in [
            (record(json!([["aux", {"value": null}], ["y", {"tensor": 0}]])), true),
            (record(json!([["y", {"tensor": 0}]])), true),
            (record(json!([["y", {"tensor": 0}], ["more", {"value": null}]])), true),
            (json!({"dict": [["y", {"tensor": 0}]]}), true),
            (json!({"dict": [["y", {"tensor": 0}], ["aux", {"value": null}]]}), true),
            (json!({"tuple": [{"tensor": 0}, {"value": null}]}), true),
            (json!({"tuple": [{"value": null}, {"tensor": 0}]}), false),
            (json!({"tuple": [{"tensor": 0}]}), false),
            (json!({"dict": [["z", {"tensor": 0}]]}), false),
            (json!({"dict": [["y", {"tensor": 0}], ["aux", {"value": 0}]]}), false),
            (json!({"dict": [["y", {"tensor": 0}], ["more", {"tensor": 1}]]}), false),
            (json!({"dict": [["y", {"tensor": 0}], ["y", {"tensor": 0}]]}), false),
            (json!({"record": [["y", {"tensor": 0}]]}), false),
            (json!({"record": {"items": 3}}), false),
            (json!({"tensor": 0}), false),
        ] {
            assert_eq!(same(&claimed, &wanted, None).is_ok(), right, "{claimed}");
        }
        // A dict has no order, and all of its keys.
        let wanted = json!({"dict": [["y", {"tensor": 0}], ["aux", {"value": null}]]});
        assert!(same(&json!({"tuple": [{"tensor": 0}, {"value": null}]}), &wanted, None).is_err());
        assert!(same(&json!({"dict": [["y", {"tensor": 0}]]}), &wanted, None).is_err());
        let pair = json!({"list": [{"tensor": 0}, {"value": null}]});
        let named = record(json!([["y", {"tensor": 0}], ["aux", {"value": null}]]));
        assert_eq!(same(&named, &pair, None), Ok(vec![0]));
    }

    #[test]
    fn integer_keys_are_not_text() {
        let tree = |key: Json| json!({"dict": [[key, {"tensor": 0}]]});
        assert!(same(&tree(json!(1)), &tree(json!(1)), None).is_ok());
        assert!(same(&tree(json!("1")), &tree(json!(1)), None).is_err());
    }

    #[test]
    fn none_and_text_must_equal_the_references() {
        let tree =
            |last: Json| json!({"dict": [["a", {"list": [{"tensor": 0}, {"value": last}]}]]});
        for (mine, right) in [(json!(null), true), (json!("x"), false), (json!(0), false)] {
            let same = same(&tree(mine), &tree(json!(null)), None);
            assert_eq!(same.is_ok(), right);
        }
        let differs = same(&tree(json!("secret")), &tree(json!("other")), None).unwrap_err();
        assert_eq!(differs.to_string(), "[\"a\"][1], the value is another");
    }

    proptest! {
        /// Another draw's number fails; the same sum in another order passes.
        #[test]
        fn numbers_are_compared_at_float32_precision(
            value in -1e6f64..1e6, off in -1e-6f64..1e-6, other in 0.01f64..1.0,
        ) {
            prop_assume!(value.abs() > 1e-3);
            let tree = |v: f64| json!({"value": v});
            let (own, exact) = (tree(value * (1.0 + 1e-7)), tree(value));
            prop_assert!(same(&tree(value * (1.0 + off)), &own, Some(&exact)).is_ok());
            prop_assert!(same(&tree(value * (1.0 + other)), &own, Some(&exact)).is_err());
            prop_assert!(same(&tree(0.0), &own, Some(&exact)).is_err());
        }
    }

    #[test]
    fn a_number_may_match_either_precision() {
        let tree = |v: f64| json!({"value": v});
        let (own, exact) = (tree(2.0), tree(3.0));
        for (value, right) in [(2.0, true), (3.0, true), (2.5, false), (0.0, false)] {
            assert_eq!(same(&tree(value), &own, Some(&exact)).is_ok(), right, "{value}");
        }
    }

    #[test]
    fn integers_are_compared_exactly() {
        let tree = |v: i64| json!({"value": v});
        assert!(same(&tree(100_000), &tree(100_000), None).is_ok());
        assert!(same(&tree(100_001), &tree(100_000), None).is_err());
    }
}
