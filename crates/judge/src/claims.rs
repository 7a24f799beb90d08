//! What a runner claims of its outputs, checked: places inside the zone the judge gave, of the
//! reference's shape and dtype, dense, distinct from every input.

use crate::dtype::Dtype;
use crate::wire::{Place, Value};

/// A part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Zone {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.bytes
    }

    pub(crate) fn contains(self, offset: u64, bytes: u64) -> bool {
        offset >= self.offset && offset.checked_add(bytes).is_some_and(|end| end <= self.end())
    }
}

/// One output whose place has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) offset: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<u64>,
    pub(crate) dtype: Dtype,
}

impl Located {
    /// Elements.
    pub(crate) fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether the elements lie one after the other.
    pub(crate) fn contiguous(&self) -> bool {
        let mut expected = 1;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return false;
            }
            expected *= n.max(1);
        }
        true
    }

    /// Trusts a place of the oracle's.
    pub(crate) fn trusted(place: &Place) -> Option<Self> {
        Some(Self {
            offset: place.offset?,
            shape: place.shape.clone(),
            strides: place.strides.iter().map(|&s| s as u64).collect(),
            dtype: Dtype::parse(&place.dtype)?,
        })
    }
}

/// Why a claim is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Wrong number, nesting, shape, dtype or device.
    Shape(String),
    /// Memory that no call of this window can have written.
    Integrity { class: &'static str, message: String },
}

/// Checks the outputs of one call against the reference's. `zone` is where this window's results
/// must lie; `aliasing` says that the reference itself returns views of its inputs, which then may
/// lie in `inputs`.
pub(crate) fn check(
    claimed: &Value,
    reference: &Value,
    zone: Zone,
    aliasing: Option<Zone>,
) -> Result<Vec<Located>, Refused> {
    if !same_tree(&claimed.tree, &reference.tree) {
        let message = format!(
            "the outputs are built differently: expected {}, got {}",
            outline(&reference.tree),
            outline(&claimed.tree)
        );
        return Err(Refused::Shape(message));
    }
    if claimed.tensors.len() != reference.tensors.len() {
        let (want, got) = (reference.tensors.len(), claimed.tensors.len());
        return Err(Refused::Shape(format!("expected {want} output tensors, got {got}")));
    }
    let pairs = claimed.tensors.iter().zip(&reference.tensors).enumerate();
    pairs.map(|(i, (got, want))| one(i, got, want, zone, aliasing)).collect()
}

fn one(
    i: usize,
    got: &Place,
    want: &Place,
    zone: Zone,
    aliasing: Option<Zone>,
) -> Result<Located, Refused> {
    let shape = |message: String| Err(Refused::Shape(format!("output {i}: {message}")));
    if got.shape != want.shape {
        return shape(format!("expected shape {:?}, got {:?}", want.shape, got.shape));
    }
    if got.dtype != want.dtype {
        return shape(format!("expected dtype {}, got {}", want.dtype, got.dtype));
    }
    let Some(dtype) = Dtype::parse(&got.dtype) else {
        return shape(format!("dtype {} is not supported", got.dtype));
    };
    let count: u64 = got.shape.iter().product();
    if count == 0 {
        let strides = vec![0; got.shape.len()];
        return Ok(Located { offset: zone.offset, shape: got.shape.clone(), strides, dtype });
    }
    if got.strides.len() != got.shape.len() || got.strides.iter().any(|&s| s < 0) {
        return shape("its strides make no sense".to_owned());
    }
    let strides: Vec<u64> = got.strides.iter().map(|&s| s as u64).collect();
    if overlaps(&got.shape, &strides) {
        return shape(format!("its elements share memory (strides {strides:?})"));
    }
    let Some(offset) = got.offset else {
        return shape("it does not lie in the memory that torch allocates here".to_owned());
    };
    let span = got
        .shape
        .iter()
        .zip(&strides)
        .try_fold(1u64, |sum, (&n, &s)| (n - 1).checked_mul(s).and_then(|x| sum.checked_add(x)))
        .and_then(|elements| elements.checked_mul(dtype.size()));
    let Some(span) = span else {
        return shape("its strides make no sense".to_owned());
    };
    if !zone.contains(offset, span) && !aliasing.is_some_and(|z| z.contains(offset, span)) {
        return Err(Refused::Integrity {
            class: "stale_or_aliased_output",
            message: format!(
                "output {i} lies outside the memory given for this call's results: it is an \
                 input, a parameter, or was made before the call"
            ),
        });
    }
    Ok(Located { offset, shape: got.shape.clone(), strides, dtype })
}

/// Whether two different elements may lie at one place. Exact for the layouts that views and
/// permutations of dense tensors give; anything odder counts as overlapping.
fn overlaps(shape: &[u64], strides: &[u64]) -> bool {
    let mut dims: Vec<(u64, u64)> =
        strides.iter().copied().zip(shape.iter().copied()).filter(|&(_, n)| n > 1).collect();
    dims.sort_unstable();
    let mut reach = 0u64;
    for (stride, n) in dims {
        if stride <= reach {
            return true;
        }
        reach = reach.saturating_add(stride.saturating_mul(n - 1));
    }
    false
}

/// Equal nesting and equal plain values; a list and a tuple count as the same.
fn same_tree(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    let body = |v: &serde_json::Value| {
        v.as_object().and_then(|o| o.iter().next().map(|(k, v)| (k.clone(), v.clone())))
    };
    let (Some((ka, va)), Some((kb, vb))) = (body(a), body(b)) else { return false };
    let sequence = |k: &str| k == "list" || k == "tuple";
    if sequence(&ka) && sequence(&kb) {
        let (Some(x), Some(y)) = (va.as_array(), vb.as_array()) else { return false };
        return x.len() == y.len() && x.iter().zip(y).all(|(p, q)| same_tree(p, q));
    }
    if ka == "dict" && kb == "dict" {
        let (Some(x), Some(y)) = (va.as_array(), vb.as_array()) else { return false };
        return x.len() == y.len()
            && x.iter().zip(y).all(|(p, q)| p[0] == q[0] && same_tree(&p[1], &q[1]));
    }
    ka == kb && va == vb
}

fn outline(tree: &serde_json::Value) -> String {
    let mut text = tree.to_string();
    if let Some((cut, _)) = text.char_indices().nth(160) {
        text.truncate(cut);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const ZONE: Zone = Zone { offset: 4096, bytes: 4096 };

    fn value(offset: Option<u64>, shape: &[u64], strides: &[i64], dtype: &str) -> Value {
        let place = Place {
            offset,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            dtype: dtype.to_owned(),
            bytes: 0,
        };
        Value { tree: json!({"tensor": 0}), tensors: vec![place] }
    }

    fn reference() -> Value {
        value(Some(0), &[4, 8], &[8, 1], "float32")
    }

    #[test]
    fn an_honest_output_is_accepted_in_any_dense_layout() {
        for strides in [[8, 1], [1, 4]] {
            let claimed = value(Some(4096), &[4, 8], &strides, "float32");
            assert!(check(&claimed, &reference(), ZONE, None).is_ok());
        }
    }

    #[test]
    fn memory_outside_the_zone_is_an_integrity_finding() {
        for offset in [0, 4095, 4096 + 4096 - 127, u64::MAX - 3] {
            let claimed = value(Some(offset), &[4, 8], &[8, 1], "float32");
            let refused = check(&claimed, &reference(), ZONE, None);
            assert!(matches!(refused, Err(Refused::Integrity { .. })), "{offset}");
        }
    }

    #[test]
    fn wrong_shape_dtype_device_and_broadcast_are_refused() {
        for claimed in [
            value(Some(4096), &[8, 4], &[4, 1], "float32"),
            value(Some(4096), &[4, 8], &[8, 1], "float16"),
            value(None, &[4, 8], &[8, 1], "float32"),
            value(Some(4096), &[4, 8], &[0, 1], "float32"),
            value(Some(4096), &[4, 8], &[-8, 1], "float32"),
            value(Some(4096), &[4, 8], &[i64::MAX, 1], "float32"),
        ] {
            let refused = check(&claimed, &reference(), ZONE, None);
            assert!(refused.is_err(), "{claimed:?}");
        }
    }

    #[test]
    fn nesting_must_agree_but_a_list_may_be_a_tuple() {
        let tree = |kind: &str| json!({kind: [{"tensor": 0}, {"value": 3}]});
        assert!(same_tree(&tree("list"), &tree("tuple")));
        assert!(!same_tree(&tree("list"), &json!({"tensor": 0})));
        assert!(!same_tree(&tree("list"), &json!({"list": [{"tensor": 0}, {"value": 4}]})));
    }

    proptest! {
        /// Against plain enumeration of all addresses.
        #[test]
        fn overlap_is_never_missed(
            shape in prop::collection::vec(1u64..5, 1..4),
            raw in prop::collection::vec(0u64..12, 3),
        ) {
            let strides = &raw[..shape.len()];
            let mut seen = std::collections::BTreeSet::new();
            let mut clash = false;
            let count: u64 = shape.iter().product();
            for mut i in 0..count {
                let mut at = 0;
                for (n, s) in shape.iter().zip(strides) {
                    at += i % n * s;
                    i /= n;
                }
                clash |= !seen.insert(at);
            }
            prop_assert!(!clash || overlaps(&shape, strides));
        }

        #[test]
        fn no_claim_makes_it_panic(
            offset in any::<Option<u64>>(),
            strides in prop::collection::vec(any::<i64>(), 0..3),
        ) {
            let claimed = value(offset, &[4, 8], &strides, "float32");
            let _ = check(&claimed, &reference(), ZONE, None);
        }
    }
}
