use super::*;
use crate::wire::{Admitted, Declined, ErrorNote, Value};
use rand::SeedableRng;

/// A task with one float32 output whose own inputs tell lower precision by `own` times the noise,
/// and normal ones by `normal` times.
fn families(own: f64, others: &[(InputFamily, f64)]) -> Families {
    let note = |ratio: f64| ErrorNote {
        largest: 4.0,
        noise: 1e-6,
        honest: None,
        lower: Some(ratio * 1e-6),
    };
    let admitted = |family, ratio| Admitted { family, notes: vec![note(ratio)] };
    let mut families = Families::own(Profile::Strict, vec![Some(Dtype::F32)]);
    families.calibrate(Calibrated {
        admitted: std::iter::once(admitted(InputFamily::Own, own))
            .chain(others.iter().map(|&(family, ratio)| admitted(family, ratio)))
            .collect(),
        refused: vec![Declined { why: "for this reason".into() }],
    });
    families
}

fn random() -> StdRng {
    StdRng::seed_from_u64(3)
}

const OTHERS: [(InputFamily, f64); 6] = [
    (InputFamily::Normal, 500.0),
    (InputFamily::Offset, 2.0),
    (InputFamily::Large, 2.0),
    (InputFamily::Small, 2.0),
    (InputFamily::Sparse, 2.0),
    (InputFamily::Integers, 2.0),
];

#[test]
fn every_plan_tells_lower_precision_where_some_inputs_do() {
    let families = families(2.0, &OTHERS);
    let mut random = random();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let plan = families.plan(&mut random);
        assert_eq!(plan.len(), CHECKS);
        assert!(plan.contains(&InputFamily::Normal), "{plan:?}");
        assert!(plan.iter().filter(|family| **family == InputFamily::Own).count() >= 2);
        seen.extend(plan);
    }
    assert_eq!(seen.len(), 7, "all of them have their turn");
    assert!(families.caveats().is_empty());
    let sparse = self::families(2.0, &[(InputFamily::Normal, 2.0), (InputFamily::Sparse, 500.0)]);
    assert!(sparse.plan(&mut random).contains(&InputFamily::Sparse));
    assert!(sparse.plan(&mut random).contains(&InputFamily::Normal));
}

#[test]
fn a_task_that_allows_nothing_else_has_its_own_inputs_and_says_so() {
    let families = families(2.0, &[]);
    assert_eq!(families.plan(&mut random()), [InputFamily::Own; CHECKS]);
    assert_eq!(families.timed(), None);
    let caveats = families.caveats();
    assert!(caveats[0].contains("cannot be told"), "{caveats:?}");
    assert!(caveats[1].contains("for this reason"), "{caveats:?}");
}

/// A candidate that counts calls could be exact in the first six and not later.
#[test]
fn timed_calls_have_telling_inputs_where_their_own_do_not_tell() {
    let mut random = random();
    let telling = families(2.0, &OTHERS);
    let mut looked = 0;
    for calls in [1, 2, 30] {
        for _ in 0..200 {
            let draws = telling.timed_draws(calls, true, &mut random);
            assert_eq!(draws.len(), calls);
            let at = telling.looked_at(&draws, 1, &mut random)[0];
            looked += usize::from(draws[at].family == InputFamily::Normal);
        }
    }
    assert!((250..500).contains(&looked), "{looked} of 600");
    let plain = families(500.0, &OTHERS);
    let draws = plain.timed_draws(30, true, &mut random);
    assert!(draws.iter().all(|draw| draw.family == InputFamily::Own));
    let at = plain.looked_at(&draws, 1, &mut random)[0];
    assert!(at < 30);
}

fn expected(error: f64, agrees: bool, void: &str) -> Expected {
    let value = || Value { tree: serde_json::Value::Null, tensors: Vec::new() };
    let note =
        OutputNote { error, rms: 1.0, largest: 4.0, agrees, truth: "float64".into(), own: None };
    Expected {
        inputs: value(),
        outputs: value(),
        notes: vec![note],
        doubt: String::new(),
        void: void.into(),
    }
}

#[test]
fn inputs_on_which_the_reference_itself_goes_wrong_do_not_count() {
    let families = families(500.0, &OTHERS);
    let normal = InputFamily::Normal;
    assert!(families.sound(normal, &expected(2e-6, true, "")));
    assert!(!families.sound(normal, &expected(2e-3, true, "")));
    assert!(!families.sound(normal, &expected(2e-6, false, "")));
    assert!(!families.sound(normal, &expected(0.0, true, "it raised")));
    assert!(families.sound(InputFamily::Own, &expected(2e-3, false, "")), "its own always count");
}

#[test]
fn what_calls_say_is_remembered_by_family() {
    let mut families = families(500.0, &OTHERS);
    families.learn(InputFamily::Normal, &expected(5e-6, true, "").notes);
    assert!((families.errors(InputFamily::Normal, 0).noise - 5e-6).abs() < 1e-12);
    assert!((families.errors(InputFamily::Own, 0).noise - 1e-6).abs() < 1e-12);
}
