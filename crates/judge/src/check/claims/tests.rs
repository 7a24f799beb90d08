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

fn checked(claimed: &Value) -> Result<Vec<Located>, Refused> {
    checked_as(claimed, None)
}

fn checked_as(claimed: &Value, view_of: Option<Zone>) -> Result<Vec<Located>, Refused> {
    let wanted = Wanted { shape: &[4, 8], strides: &[8, 1], dtype: "float32", view_of };
    let tree = json!({"tensor": 0});
    check(claimed, Reference { tree: &tree, exact: None, outputs: &[wanted] }, ZONE)
}

#[test]
fn an_honest_output_is_accepted_in_any_dense_layout() {
    for strides in [[8, 1], [1, 4]] {
        let claimed = value(Some(4096), &[4, 8], &strides, "float32");
        assert!(checked(&claimed).is_ok());
    }
}

#[test]
fn memory_outside_the_zone_is_an_integrity_finding() {
    for offset in [0, 4095, 4096 + 4096 - 127, u64::MAX - 3] {
        let claimed = value(Some(offset), &[4, 8], &[8, 1], "float32");
        let refused = checked(&claimed);
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
        let refused = checked(&claimed);
        assert!(refused.is_err(), "{claimed:?}");
    }
}

#[test]
fn an_output_may_expand_the_dimensions_the_reference_expands() {
    let told = |theirs: [i64; 2], mine: [i64; 2]| {
        let wanted = Wanted { shape: &[4, 8], strides: &theirs, dtype: "float32", view_of: None };
        let claimed = value(Some(4096), &[4, 8], &mine, "float32");
        let tree = json!({"tensor": 0});
        check(&claimed, Reference { tree: &tree, exact: None, outputs: &[wanted] }, ZONE).is_ok()
    };
    assert!(told([0, 1], [0, 1]) && told([0, 1], [8, 1]) && told([0, 0], [0, 1]));
    assert!(!told([8, 1], [0, 1]) && !told([0, 1], [1, 0]) && !told([0, 1], [0, 0]));
}

#[test]
fn outputs_of_a_dict_are_found_by_their_keys() {
    let place = |offset| value(Some(offset), &[4, 8], &[8, 1], "float32").tensors.remove(0);
    let tree =
        |keys: [&str; 2]| json!({"dict": [[keys[0], {"tensor": 0}], [keys[1], {"tensor": 1}]]});
    let wanted = || Wanted { shape: &[4, 8], strides: &[8, 1], dtype: "float32", view_of: None };
    let outputs = [wanted(), wanted()];
    let claimed = Value { tree: tree(["b", "a"]), tensors: vec![place(4096), place(4608)] };
    let reference = tree(["a", "b"]);
    let located =
        check(&claimed, Reference { tree: &reference, exact: None, outputs: &outputs }, ZONE);
    let offsets: Vec<u64> = located.unwrap().iter().map(|each| each.offset).collect();
    assert_eq!(offsets, [4608, 4096]);
    // Indices are the candidate's word.
    let wild = json!({"dict": [["a", {"tensor": 7}], ["b", {"tensor": 0}]]});
    let claimed = Value { tree: wild, ..claimed };
    let told =
        check(&claimed, Reference { tree: &reference, exact: None, outputs: &outputs }, ZONE);
    assert!(told.is_err());
}

/// Of two outputs one is a view of an input in the reference: the other must not lie there.
#[test]
fn an_output_may_alias_only_the_references_input() {
    let input = Zone { offset: 0, bytes: 128 };
    let claimed = value(Some(0), &[4, 8], &[8, 1], "float32");
    assert!(checked_as(&claimed, Some(input)).is_ok());
    assert!(matches!(checked_as(&claimed, None), Err(Refused::Integrity { .. })));
    let other = Zone { offset: 128, bytes: 128 };
    assert!(matches!(checked_as(&claimed, Some(other)), Err(Refused::Integrity { .. })));
}

#[test]
fn a_complex_output_is_pairs_of_numbers() {
    let wanted = Wanted { shape: &[4, 8], strides: &[8, 1], dtype: "complex64", view_of: None };
    let tree = json!({"tensor": 0});
    let reference = Reference { tree: &tree, exact: None, outputs: &[wanted] };
    let claimed = value(Some(4096), &[4, 8], &[1, 4], "complex64");
    let located = check(&claimed, reference, ZONE).unwrap().pop().unwrap();
    assert_eq!((located.shape, located.strides), (vec![4, 8, 2], vec![2, 8, 1]));
    assert_eq!(located.dtype, Dtype::F32);
    let end = value(Some(4096 + 4096 - 128), &[4, 8], &[8, 1], "complex64");
    assert!(matches!(check(&end, reference, ZONE), Err(Refused::Integrity { .. })));
}

#[test]
fn a_message_holds_no_value_of_the_reference() {
    let tree = json!({"tuple": [{"tensor": 0}, {"value": 862.5}, {"value": "logits"}]});
    let claimed = Value { tree: json!({"tensor": 0}), tensors: vec![] };
    let refused = check(&claimed, Reference { tree: &tree, exact: None, outputs: &[] }, ZONE);
    let Err(Refused::Shape(message)) = refused else { unreachable!() };
    assert!(message.contains("(tensor, number, text)"), "{message}");
    assert!(!message.contains("862") && !message.contains("logits"), "{message}");
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
    fn hostile_claims_never_panic(
        offset in any::<Option<u64>>(),
        strides in prop::collection::vec(any::<i64>(), 0..3),
    ) {
        let claimed = value(offset, &[4, 8], &strides, "float32");
        let _ = checked(&claimed);
    }
}
