use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use warpwright_synth::{
    Budget, Catalogue, Composer, Grammar, GrammarConfig, Level, Library, Plan, Snippet,
};

use crate::support::{all_run, torch};

fn grammar(config: GrammarConfig) -> Grammar {
    let library = Library::new(&[Catalogue::torch().unwrap()]).unwrap();
    Grammar::new(library, config).unwrap()
}

fn small() -> &'static Grammar {
    static SMALL: LazyLock<Grammar> = LazyLock::new(|| {
        grammar(GrammarConfig { budget: Budget::small(), ..GrammarConfig::default() })
    });
    &SMALL
}

/// The proposal and code that checks its result shapes against the inferred ones, for every input.
fn snippet(grammar: &Grammar, plan: &Plan, seed: u64) -> Snippet {
    let proposal = grammar.propose(plan, seed, None).unwrap();
    let shape = grammar.build(plan).unwrap().output().to_vec();
    let code = format!(
        "{}\n\nmodel = Model(*get_init_inputs()).eval()\n\
         result = model(*get_inputs())\n\
         assert list(result.shape) == {shape:?}, (list(result.shape), {shape:?})\n\
         assert result.dtype == torch.float32\n",
        proposal.source
    );
    Snippet { name: format!("{} {}", seed, proposal.name), code }
}

#[test]
fn proposals_run_and_give_the_inferred_shapes() {
    let grammar = small();
    let snippets: Vec<Snippet> =
        (0..120).map(|seed| snippet(grammar, &grammar.plan(seed).unwrap(), seed)).collect();
    all_run(&torch(), &snippets);
}

#[test]
fn restricted_operators_and_shape_are_the_only_ones_used() {
    let library = || Library::new(&[Catalogue::torch().unwrap()]).unwrap();
    let named =
        ["torch.nn.functional.relu", "torch.abs", "torch.add", "torch.amax"].map(str::to_owned);
    let unknown =
        library().only(&["torch.abs".to_owned(), "torch.nonsense".to_owned()]).unwrap_err();
    assert!(unknown.to_string().contains("torch.nonsense"), "{unknown}");
    let shape = Some(vec![96, 48]);
    let config =
        GrammarConfig { budget: Budget::small(), operators: 2..=3, shape, ..Default::default() };
    let grammar = Grammar::new(library().only(&named).unwrap(), config).unwrap();
    let mut snippets = Vec::new();
    for seed in 0..40 {
        let plan = grammar.plan(seed).unwrap();
        let proposal = grammar.propose(&plan, seed, None).unwrap();
        assert!(proposal.operators.iter().all(|op| named.contains(op)), "{:?}", proposal.operators);
        assert!((2..=3).contains(&proposal.operators.len()));
        let Snippet { name, code } = snippet(&grammar, &plan, seed);
        let code =
            format!("{code}first = get_inputs()[0].shape\nassert list(first) == [96, 48], first\n");
        snippets.push(Snippet { name, code });
    }
    all_run(&torch(), &snippets);
}

#[test]
fn mutations_run_and_give_the_inferred_shapes() {
    let grammar = small();
    let snippets: Vec<Snippet> = (0..60)
        .map(|seed| {
            let plan = grammar.plan(seed).unwrap();
            let changed = grammar.mutation(&plan, seed).unwrap();
            assert_ne!(plan, changed);
            snippet(grammar, &changed, seed)
        })
        .collect();
    all_run(&torch(), &snippets);
}

#[test]
fn operator_counts_and_levels_are_diverse() {
    let grammar = grammar(GrammarConfig::default());
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut levels: BTreeMap<u8, usize> = BTreeMap::new();
    let mut operators: BTreeMap<String, usize> = BTreeMap::new();
    let total = 600;
    for seed in 0..total {
        let proposal = grammar.compose(seed).unwrap();
        *counts.entry(proposal.operators.len()).or_default() += 1;
        *levels.entry(proposal.level).or_default() += 1;
        for operator in proposal.operators {
            *operators.entry(operator).or_default() += 1;
        }
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert!(counts.values().all(|n| *n * 100 <= total as usize * 40), "{counts:?}");
    assert_eq!(levels.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5], "{levels:?}");
    assert!(operators.len() >= 200, "{} operators", operators.len());
}

#[test]
fn unsupported_and_nondeterministic_operators_are_never_composed() {
    let unfit = [
        "torch.index_copy",
        "torch.nn.MaxUnpool1d",
        "torch.nn.functional.max_unpool1d",
        "torch.scatter",
        "torch.linalg.pinv",
        "torch.histogram",
        "torch.histogramdd",
    ];
    let usual = grammar(GrammarConfig::default());
    for name in unfit {
        assert!(usual.library().entry(name).is_some(), "{name} is not in the catalogue");
    }
    for grammar in [&usual, small()] {
        for seed in 0..500 {
            let operators = grammar.plan(seed).unwrap().operators();
            assert!(!operators.iter().any(|name| unfit.contains(&name.as_str())), "{operators:?}");
        }
    }
}

#[test]
fn budget_bounds_the_estimated_gpu_time() {
    for budget in [Budget::fast(), Budget::paper()] {
        let grammar = grammar(GrammarConfig { budget: budget.clone(), ..GrammarConfig::default() });
        for seed in 0..200 {
            let plan = grammar.plan(seed).unwrap();
            let built = grammar.build(&plan).unwrap();
            assert!(budget.gpu_micros.contains(&built.gpu_micros), "{}", built.gpu_micros);
            // Nothing is moved faster than memory is.
            let least = built.traffic_bytes / 5_000_000;
            assert!(least <= built.gpu_micros, "{least} {}", built.gpu_micros);
        }
    }
}

#[test]
fn requested_level_is_composed() {
    for (wished, operators) in [(1, 1..=2), (2, 1..=3), (3, 2..=4), (4, 3..=5), (5, 4..=5)] {
        let level = Level::new(wished);
        let grammar = grammar(GrammarConfig {
            level,
            operators: operators.clone(),
            ..GrammarConfig::default()
        });
        for seed in 0..10 {
            assert_eq!(grammar.compose(seed).unwrap().level, wished);
        }
    }
}

#[test]
fn graphs_are_not_only_chains() {
    let grammar = small();
    let (mut joins, mut forks, mut inputs) = (0, 0, 0);
    for seed in 0..200 {
        let plan = grammar.plan(seed).unwrap();
        let values = |step: &warpwright_synth::Step| {
            let value = |s: &&warpwright_synth::PlanSource| {
                matches!(s, warpwright_synth::PlanSource::Value(_))
            };
            step.sources.iter().filter(value).count()
        };
        joins += usize::from(plan.steps.iter().any(|step| values(step) > 1));
        let uses: usize = plan.steps.iter().map(values).sum();
        forks += usize::from(uses > plan.steps.len());
        inputs += usize::from(
            plan.steps
                .iter()
                .any(|step| step.sources.contains(&warpwright_synth::PlanSource::Input)),
        );
    }
    assert!(joins >= 40 && forks >= 40 && inputs >= 20, "{joins} {forks} {inputs}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn seed_determines_a_valid_task(seed: u64) {
        let proposal = small().compose(seed).unwrap();
        prop_assert_eq!(&small().clone().compose(seed).unwrap(), &proposal);
        let facts = proposal.task().facts().unwrap();
        prop_assert_eq!(facts.required_packages(), ["torch"]);
        let warnings = facts.warnings(warpwright_task::Mode::Eval);
        prop_assert!(warnings.is_empty(), "{warnings:?}");
        prop_assert_eq!(proposal.provenance.seed, seed);
        let longest = proposal.source.lines().map(str::len).max();
        prop_assert!(longest <= Some(160), "{}", proposal.source);
    }
}
