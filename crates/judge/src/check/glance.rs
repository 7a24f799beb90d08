//! Expects of a timed call what its truth alone says.
//!
//! The tolerance of a call grows with the same-precision reference's own error on its inputs, and with nothing
//! else that only that reference says. So what is right by the truth, with that error left out, is right; what is
//! not is looked at once more with everything (`verify.rs`). About a hundred timed calls of a candidate are
//! compared, and the truth takes a third of the time.

use crate::check::dtype::Dtype;
use crate::check::families::{Draw, Families};
use crate::process::wire::{Expected, OutputNote, Size, Truth, Value};

/// Whether the truth of a call says all about the outputs of others like it: they are in float64, no view of an
/// input and no changed input, their elements have one scale, and no second answer counts.
pub(crate) fn enough(expected: &Expected) -> bool {
    let plain = |note: &OutputNote| {
        let Some((dtype, parts)) = Dtype::parts(&note.dtype) else { return false };
        let all_count = || note.count == note.shape.iter().product::<u64>();
        let calm = || note.agrees && note.apart == 0 && note.own.is_none() && all_count();
        note.truth == "float64"
            && note.view_of.is_none()
            && note.scales.is_empty()
            && parts == 1
            && (!dtype.is_real() || calm())
    };
    expected.after.is_empty() && expected.notes.iter().all(plain)
}

/// What is expected of a call by its truth; `like` is a call of which everything is known. `None` where the truth is
/// not enough.
pub(crate) fn expected(
    families: &Families,
    like: &Expected,
    truth: Truth,
    draw: Draw,
) -> Option<Expected> {
    let Truth { inputs, outputs, sizes } = truth;
    let shapes = outputs.tensors.iter().map(|place| &place.shape);
    if sizes.len() != like.notes.len() || !shapes.eq(like.notes.iter().map(|note| &note.shape)) {
        return None;
    }
    let pairs = like.notes.iter().zip(sizes).enumerate();
    let notes = pairs.map(|(output, (note, size))| {
        let (dtype, _) = Dtype::parts(&note.dtype)?;
        if !families.scales(draw.family, output).is_empty() {
            return None;
        }
        let note = OutputNote { own: None, stated: None, ..note.clone() };
        if !dtype.is_real() {
            return Some(note);
        }
        let Size { rms, spread, largest } = size.filter(|size| size.largest < dtype.limit())?;
        let count = note.shape.iter().product();
        // The check shows the largest error of the reference so far. The tolerance has none of it (`beyond`).
        let error = families.errors(draw.family, output).noise * rms;
        Some(OutputNote { rms, spread, largest, count, error, beyond: 0.0, ..note })
    });
    Some(Expected {
        inputs,
        exact_tree: Some(outputs.tree),
        outputs: Value { tree: like.outputs.tree.clone(), tensors: outputs.tensors },
        after: Vec::new(),
        notes: notes.collect::<Option<_>>()?,
        doubt: String::new(),
        void: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use serde_json::json;
    use warpwright_record::inputs::InputFamily;
    use warpwright_record::verdict::Profile;

    use super::*;
    use crate::check::tolerance::{Errors, tolerance};
    use crate::process::wire::Place;

    fn full(dtype: &str) -> Expected {
        let note = OutputNote { dtype: dtype.to_owned(), ..OutputNote::of_unit_size("float64") };
        let nothing = || Value { tree: json!({"tuple": []}), tensors: Vec::new() };
        Expected {
            inputs: nothing(),
            outputs: Value { tree: json!({"tensor": 0}), tensors: Vec::new() },
            exact_tree: None,
            after: Vec::new(),
            notes: vec![note],
            doubt: String::new(),
            void: String::new(),
        }
    }

    fn truth(size: Option<Size>) -> Truth {
        let shape = vec![1 << 20];
        let place = Place {
            offset: Some(0),
            shape,
            strides: vec![1],
            dtype: "float64".to_owned(),
            bytes: 8 << 20,
        };
        let outputs = Value { tree: json!({"tensor": 0}), tensors: vec![place] };
        Truth { inputs: outputs.clone(), outputs, sizes: vec![size] }
    }

    fn families() -> Families {
        Families::own(Profile::Strict, vec![Some(Dtype::F32)])
    }

    const SIZE: Size = Size { rms: 2.0, spread: 1.0, largest: 9.0 };

    #[test]
    fn tolerance_by_truth_alone_is_never_looser() {
        let mut random = StdRng::seed_from_u64(3);
        let mut below = 0;
        for _ in 0..2000 {
            let mut some = || 10f64.powf(random.random_range(-9.0..0.0));
            let known = Errors {
                noise: some(),
                honest: some(),
                lower: Some(some()),
                largest: 4.0,
                between: Some(some()),
            };
            let (rms, spread, beyond) = (some(), some(), some());
            let whole = OutputNote { beyond, rms, spread, ..OutputNote::of_unit_size("float64") };
            let alone = OutputNote { beyond: 0.0, ..whole.clone() };
            for profile in Profile::ALL {
                for family in [InputFamily::Own, InputFamily::Outliers] {
                    let of = |note| tolerance(profile, Dtype::F32, note, &known, family);
                    let (whole, alone) = (of(&whole), of(&alone));
                    assert!(alone.atol <= whole.atol && alone.rtol <= whole.rtol, "{known:?}");
                    below += u32::from(alone.atol < whole.atol);
                }
            }
        }
        assert!(below > 100, "positive control: {below}");
    }

    #[test]
    fn only_plain_outputs_are_judged_by_truth_alone() {
        let mut plain = full("float32");
        assert!(enough(&plain));
        let changes: [fn(&mut OutputNote); 6] = [
            |note| note.agrees = false,
            |note| note.apart = 1,
            |note| note.view_of = Some(0),
            |note| note.count -= 1,
            |note| "same precision".clone_into(&mut note.truth),
            |note| "complex64".clone_into(&mut note.dtype),
        ];
        for change in changes {
            let mut other = plain.clone();
            change(&mut other.notes[0]);
            assert!(!enough(&other), "{:?}", other.notes);
        }
        plain.void = String::new();
        let own = Draw::own(1);
        let of = |like: &Expected, size| expected(&families(), like, truth(size), own);
        let by_truth = of(&plain, Some(SIZE)).unwrap();
        assert_eq!((by_truth.notes[0].rms, by_truth.notes[0].count), (2.0, 1 << 20));
        assert!(of(&plain, None).is_none(), "not finite");
        let vast = Size { largest: 1e39, ..SIZE };
        assert!(of(&plain, Some(vast)).is_none(), "float32 overflows");
        let mut other = plain.clone();
        other.notes[0].shape = vec![7];
        assert!(of(&other, Some(SIZE)).is_none(), "another shape");
        assert!(of(&full("int64"), None).is_some(), "integers are exact");
    }
}
