use super::*;
use crate::process::wire::{Admitted, Declined, ErrorNote, Value};
use rand::SeedableRng;

/// A task with one float32 output whose own inputs tell lower precision by `own` times the noise,
/// and normal ones by `normal` times.
fn families(own: f64, others: &[(InputFamily, f64)]) -> Families {
    let note = |ratio: f64| ErrorNote {
        largest: 4.0,
        noise: 1e-6,
        honest: None,
        lower: Some(ratio * 1e-6),
        between: Some(1.0),
        varies: true,
        compared: true,
        scales: Vec::new(),
    };
    let admitted = |family, ratio| Admitted { family, notes: vec![note(ratio)] };
    let mut families = Families::own(Profile::Strict, vec![Some(Dtype::F32)]);
    families.calibrate(Calibrated {
        admitted: std::iter::once(admitted(InputFamily::Own, own))
            .chain(others.iter().map(|&(family, ratio)| admitted(family, ratio)))
            .collect(),
        refused: vec![Declined { why: "for this reason".into() }],
        untried: Vec::new(),
        exact: true,
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

/// What a family does not show is verified whenever that one has no turn: a softmax that is not shifted by
/// its largest element overflows on one or two of them, and on no other.
#[test]
fn every_plan_has_all_families_and_the_own_inputs_twice() {
    let families = families(2.0, &OTHERS);
    let mut random = random();
    let mut orders = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let plan = families.plan(&mut random);
        assert_eq!(plan.len(), OTHERS.len() + 2);
        for (family, _) in OTHERS {
            assert!(plan.contains(&family), "{plan:?}");
        }
        assert_eq!(plan.iter().filter(|family| **family == InputFamily::Own).count(), 2);
        orders.insert(plan);
    }
    assert!(orders.len() > 90, "the order is drawn");
    assert!(families.caveats().is_empty());
    let few = self::families(2.0, &[(InputFamily::Normal, 2.0)]);
    assert_eq!(few.plan(&mut random).len(), CHECKS);
    let sliced = self::families(2.0, &[(InputFamily::Slices, 2.0)]).plan(&mut random);
    assert_eq!(sliced.iter().filter(|family| **family == InputFamily::Slices).count(), SLICED);
}

#[test]
fn a_task_without_other_families_gets_a_caveat() {
    let families = families(2.0, &[]);
    assert_eq!(families.plan(&mut random()), [InputFamily::Own; CHECKS]);
    assert_eq!(families.usual(), [InputFamily::Own]);
    assert_eq!(families.beside(&mut random()), []);
    let caveats = families.caveats();
    assert!(caveats[0].contains("cannot be told"), "{caveats:?}");
    assert!(caveats[1].contains("for this reason"), "{caveats:?}");
}

/// A candidate could be exact on inputs that it recognises, and fast on the task's own.
#[test]
fn timed_calls_use_informative_inputs_when_own_are_not() {
    let mut random = random();
    let telling = families(2.0, &OTHERS);
    for calls in [1, 2, 30] {
        for _ in 0..50 {
            let draws = telling.timed_draws(calls, true, &mut random);
            assert_eq!(draws.len(), calls);
            assert!(draws.iter().all(|draw| draw.family == InputFamily::Normal), "{draws:?}");
            assert!(telling.looked_at(&draws, 1, &mut random)[0] < calls);
        }
    }
    let several = [(InputFamily::Normal, 500.0), (InputFamily::Small, 500.0)];
    let draws = families(2.0, &several).timed_draws(200, true, &mut random);
    let count = |family| draws.iter().filter(|draw| draw.family == family).count();
    assert!(count(InputFamily::Normal) > 50 && count(InputFamily::Small) > 50);
    assert_eq!(count(InputFamily::Own), 0);
    let plain = families(500.0, &OTHERS);
    let draws = plain.timed_draws(30, true, &mut random);
    assert!(draws.iter().all(|draw| draw.family == InputFamily::Own));
    assert!(plain.looked_at(&draws, 1, &mut random)[0] < 30);
}

/// Sparse inputs may take another time than the task's own.
#[test]
fn special_inputs_are_compared_in_part_of_the_calls() {
    let mut random = random();
    let sparse = families(2.0, &[(InputFamily::Normal, 2.0), (InputFamily::Sparse, 500.0)]);
    let (mut timed, mut looked) = (0, 0);
    for _ in 0..200 {
        let draws = sparse.timed_draws(30, true, &mut random);
        timed += draws.iter().filter(|draw| draw.family == InputFamily::Sparse).count();
        let at = sparse.looked_at(&draws, 1, &mut random)[0];
        looked += usize::from(draws[at].family == InputFamily::Sparse);
    }
    assert!((1200..2000).contains(&timed), "{timed} of 6000");
    assert!((100..170).contains(&looked), "{looked} of 200");
}

/// Where each output is told by other inputs, no kernel knows which of them it is paid for.
#[test]
fn timed_calls_use_a_family_that_tests_every_output() {
    let note = |ratio: f64| ErrorNote {
        largest: 4.0,
        noise: 1e-6,
        honest: None,
        lower: Some(ratio * 1e-6),
        between: Some(1.0),
        varies: true,
        compared: true,
        scales: Vec::new(),
    };
    let admitted = |family, ratios: [f64; 2]| Admitted { family, notes: ratios.map(note).into() };
    let usual = |others: &[(InputFamily, [f64; 2])]| {
        let mut families = Families::own(Profile::Strict, vec![Some(Dtype::F32); 2]);
        let own = std::iter::once(admitted(InputFamily::Own, [500.0, 2.0]));
        let others = others.iter().map(|&(family, ratios)| admitted(family, ratios));
        let all = own.chain(others).collect();
        let (refused, untried) = (vec![], vec![]);
        families.calibrate(Calibrated { admitted: all, refused, untried, exact: true });
        families.usual()
    };
    let told = [(InputFamily::Normal, [500.0, 2.0]), (InputFamily::Large, [2.0, 500.0])];
    assert_eq!(usual(&told), [InputFamily::Own, InputFamily::Normal, InputFamily::Large]);
    assert_eq!(usual(&told[..1]), [InputFamily::Own]);
    let both = [(InputFamily::Small, [500.0, 500.0]), told[1]];
    assert_eq!(usual(&both), [InputFamily::Small]);
}

fn expected(error: f64, agrees: bool, void: &str) -> Expected {
    let value = || Value { tree: serde_json::Value::Null, tensors: Vec::new() };
    let note = OutputNote { error, beyond: error, agrees, ..OutputNote::of_unit_size("float64") };
    Expected {
        inputs: value(),
        outputs: value(),
        exact_tree: None,
        after: vec![],
        notes: vec![note],
        doubt: String::new(),
        void: void.into(),
    }
}

#[test]
fn inputs_that_break_the_reference_are_discarded() {
    let families = families(500.0, &OTHERS);
    let normal = InputFamily::Normal;
    assert!(families.sound(normal, &expected(2e-6, true, "")));
    assert!(!families.sound(normal, &expected(2e-3, true, "")));
    assert!(!families.sound(normal, &expected(2e-6, false, "")));
    assert!(!families.sound(normal, &expected(0.0, true, "it raised")));
    assert!(families.sound(InputFamily::Own, &expected(2e-3, false, "")), "its own always count");
}

#[test]
fn error_estimates_are_kept_per_family() {
    let mut families = families(500.0, &OTHERS);
    families.learn(InputFamily::Normal, &expected(5e-6, true, "").notes);
    assert!((families.errors(InputFamily::Normal, 0).noise - 5e-6).abs() < 1e-12);
    assert!((families.errors(InputFamily::Own, 0).noise - 1e-6).abs() < 1e-12);
}

/// A task with a float32 output and one of flags, which the families named make vary.
fn with_flags(own: bool, on: &[InputFamily]) -> Families {
    let note = |varies, lower| ErrorNote {
        largest: 4.0,
        noise: 1e-6,
        honest: None,
        lower,
        between: Some(1.0),
        varies,
        compared: true,
        scales: Vec::new(),
    };
    let admitted =
        |family, flags| Admitted { family, notes: vec![note(true, Some(5e-4)), note(flags, None)] };
    let mut families = Families::own(Profile::Strict, vec![Some(Dtype::F32), Some(Dtype::Bool)]);
    let others = OTHERS.iter().map(|&(family, _)| admitted(family, on.contains(&family)));
    let all = std::iter::once(admitted(InputFamily::Own, own)).chain(others).collect();
    families.calibrate(Calibrated { admitted: all, refused: vec![], untried: vec![], exact: true });
    families
}

#[test]
fn rare_flags_are_exercised_in_every_plan_and_while_timed() {
    let families = with_flags(false, &[InputFamily::Large]);
    let mut random = random();
    for _ in 0..50 {
        let plan = families.plan(&mut random);
        assert!(plan.contains(&InputFamily::Large) && plan.contains(&InputFamily::Normal));
        assert!(plan.iter().filter(|family| **family == InputFamily::Own).count() >= 2);
    }
    assert_eq!(families.usual(), [InputFamily::Own]);
    assert_eq!(families.beside(&mut random), [InputFamily::Large]);
    assert_eq!(families.capped(), None);
    assert!(!families.fresh(1), "what is expected of flags is the same in every draw");
    assert!(with_flags(true, &[]).fresh(1));
}

#[test]
fn a_constant_output_earns_at_most_one() {
    let capped = with_flags(false, &[]).capped().unwrap();
    assert!(capped.contains("output 1 has one value"), "{capped}");
    assert_eq!(with_flags(true, &[]).capped(), None);
}

#[test]
fn equally_exact_lower_precision_caps_no_reward() {
    let lower = |own: Option<f64>, normal: Option<f64>| {
        let note = |lower| ErrorNote {
            largest: 4.0,
            noise: 0.0,
            honest: None,
            lower,
            between: Some(1.0),
            varies: true,
            compared: true,
            scales: Vec::new(),
        };
        let admitted = |family, lower| Admitted { family, notes: vec![note(lower)] };
        let mut families = Families::own(Profile::Strict, vec![Some(Dtype::F32)]);
        let all = vec![admitted(InputFamily::Own, own), admitted(InputFamily::Normal, normal)];
        families.calibrate(Calibrated {
            admitted: all,
            refused: vec![],
            untried: vec![],
            exact: true,
        });
        families.capped().is_some()
    };
    assert!(!lower(Some(0.0), Some(5e-4)), "a copy of whole numbers, and of others");
    assert!(!lower(Some(0.0), Some(0.0)), "a sign");
    assert!(lower(Some(0.0), Some(1e-8)));
    assert!(lower(None, None), "nobody knows");
}

#[test]
fn untried_families_are_listed_in_a_caveat() {
    let mut families = families(500.0, &[(InputFamily::Normal, 500.0)]);
    assert!(families.caveats().is_empty(), "{:?}", families.caveats());
    families.untried = vec![InputFamily::Steep, InputFamily::Huge];
    let caveats = families.caveats();
    assert!(caveats[0].contains("no time") && caveats[0].ends_with("steep, huge"), "{caveats:?}");
}
