//! What a plan's calls are given and return, compared with what was recorded.

use serde_json::Value as Json;
use warpwright_plan::{LaunchPlan, Output};

use crate::check::dtype::Dtype;
use crate::process::wire::{Place, Value};

/// What a call of a plan returns, without places.
pub(super) fn form(plan: &LaunchPlan) -> Value {
    let place = |output: &Output| {
        let size = Dtype::parts(&output.dtype).map_or(1, |(dtype, parts)| dtype.size() * parts);
        let pairs = output.shape.iter().zip(&output.strides);
        let last: u64 = pairs.map(|(n, stride)| n.saturating_sub(1) * stride.unsigned_abs()).sum();
        let empty = output.shape.contains(&0);
        Place {
            offset: None,
            shape: output.shape.clone(),
            strides: output.strides.clone(),
            dtype: output.dtype.clone(),
            bytes: if empty { 0 } else { (last + 1) * size },
        }
    };
    Value {
        tree: plan.outputs.tree.clone(),
        tensors: plan.outputs.tensors.iter().map(place).collect(),
    }
}

/// Whether the tensors of a set have the shapes and strides of another's.
pub(super) fn same_shapes(set: &Value, other: &Value) -> bool {
    let shape = |place: &Place| (place.shape.clone(), place.strides.clone(), place.dtype.clone());
    set.tensors.iter().map(shape).eq(other.tensors.iter().map(shape))
}

/// Whether a plan holds for these inputs: its recordings differ wherever these differ from either.
pub(super) fn covered(tree: &Json, [one, other]: &[Json; 2]) -> bool {
    match (tree, one, other) {
        (Json::Array(all), Json::Array(ones), Json::Array(others)) => {
            all.len() == ones.len()
                && all.len() == others.len()
                && all
                    .iter()
                    .zip(ones.iter().zip(others))
                    .all(|(item, (one, other))| covered(item, &[one.clone(), other.clone()]))
        }
        (Json::Object(all), Json::Object(ones), Json::Object(others)) => {
            all.len() == ones.len()
                && all.len() == others.len()
                && all.iter().all(|(name, item)| match (ones.get(name), others.get(name)) {
                    (Some(one), Some(other)) => covered(item, &[one.clone(), other.clone()]),
                    _ => false,
                })
        }
        _ => tree == one || tree == other || one != other && tree.is_number() && one.is_number(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::covered;

    #[test]
    fn plans_hold_for_numbers_that_recordings_varied() {
        let list = |a: i32, b: i32| json!({"list": [{"tensor": 0}, {"value": a}, {"value": b}]});
        let recorded = [list(1, 7), list(2, 7)];
        assert!(covered(&list(5, 7), &recorded));
        assert!(!covered(&list(1, 8), &recorded), "the second number never varied");
        assert!(!covered(&json!({"list": [{"tensor": 0}, {"value": 1}]}), &recorded));
        assert!(!covered(&json!({"list": [{"tensor": 1}, {"value": 1}, {"value": 7}]}), &recorded));
        let flags = [json!({"value": true}), json!({"value": false})];
        assert!(covered(&flags[0], &flags) && !covered(&json!({"value": 3}), &flags));
    }
}
