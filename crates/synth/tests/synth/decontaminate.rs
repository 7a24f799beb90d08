//! Copies of suites and of each other are refused; other tasks are kept.

use std::collections::BTreeMap;

use proptest::prelude::*;
use warpwright_synth::{DataSet, Decontamination, Likeness, RefusalKind, Row, Thresholds};
use warpwright_task::similarity::{OpGraph, OpNode};
use warpwright_task::{Suite, Task};

const OPERATORS: [&str; 12] = [
    "relu", "tanh", "sigmoid", "exp", "abs", "sin", "cos", "erf", "square", "floor", "ceil",
    "log1p",
];

/// A chain of operators as source; `size` appears as a constant.
fn source(chain: &[usize], size: u32) -> String {
    let steps: String = chain
        .iter()
        .map(|&operator| ["        x = torch.", OPERATORS[operator], "(x)\n"].concat())
        .collect();
    format!(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n{steps}\
         \x20       return x\ndef get_inputs():\n    return [torch.randn({size})]\n"
    )
}

fn graph(chain: &[usize]) -> OpGraph {
    let mut nodes = vec![OpNode { op: "input".to_owned(), inputs: Vec::new() }];
    for (i, &operator) in chain.iter().enumerate() {
        nodes.push(OpNode { op: format!("aten.{}.default", OPERATORS[operator]), inputs: vec![i] });
    }
    OpGraph::new(nodes, vec![chain.len()]).expect("a graph")
}

fn suite(name: &str, chains: &[&[usize]]) -> Suite {
    let tasks = chains.iter().enumerate();
    let tasks = tasks.map(|(i, chain)| Task::from_source(&format!("task{i}"), source(chain, 8)));
    Suite { name: name.to_owned(), tasks: tasks.collect() }
}

fn of(chain: &[usize]) -> Likeness {
    Likeness::of(&source(chain, 4096), Some(&graph(chain))).expect("a task")
}

fn against(chains: &[&[usize]]) -> Decontamination {
    let mut found = Decontamination::new(Thresholds::default());
    let graphs: BTreeMap<String, OpGraph> =
        chains.iter().enumerate().map(|(i, chain)| (format!("task{i}"), graph(chain))).collect();
    found.add_suite(&suite("bench", chains), &graphs).expect("a suite");
    found
}

#[test]
fn copy_of_a_suite_task_is_refused_by_its_graph() {
    let found = against(&[&[0, 1, 2], &[3, 4]]);
    let finding = found.check(&of(&[3, 4]));
    let refusal = finding.refusal.expect("a copy");
    assert_eq!(refusal.kind, RefusalKind::SameGraph);
    assert_eq!(refusal.to_string(), "it has the same operator graph as `task1` of suite `bench`");
    let nearest = &finding.nearest[0];
    assert_eq!((nearest.task.as_str(), nearest.graph), ("task1", Some(1.0)));
    assert!(nearest.ast > 0.999);
}

/// The source is disguised; the graph still matches.
#[test]
fn disguised_copy_is_refused_only_by_its_graph() {
    let found = against(&[&[0, 1, 2]]);
    let disguised = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n\
                     \x20       for step in [torch.relu, torch.tanh, torch.sigmoid]:\n            x = step(x)\n\
                     \x20       return x\n";
    let without = Likeness::of(disguised, None).unwrap();
    assert!(found.check(&without).refusal.is_none(), "the source alone does not tell");
    let with = Likeness::of(disguised, Some(&graph(&[0, 1, 2]))).unwrap();
    assert_eq!(found.check(&with).refusal.unwrap().kind, RefusalKind::SameGraph);
}

#[test]
fn without_a_graph_only_the_source_is_compared() {
    let found = against(&[&[0, 1, 2]]);
    let copy = Likeness::of(&source(&[0, 1, 2], 77), None).unwrap();
    let finding = found.check(&copy);
    assert_eq!(finding.refusal.unwrap().kind, RefusalKind::Ast);
    assert_eq!((finding.nearest[0].graph, finding.nearest[0].highest_graph), (None, None));
}

#[test]
fn similarity_thresholds_are_applied() {
    let admits = |ast: f64, graph: f64| {
        let mut found = Decontamination::new(Thresholds { ast, graph });
        let graphs = BTreeMap::from([("task0".to_owned(), self::graph(&[0, 1, 2, 3]))]);
        found.add_suite(&suite("bench", &[&[0, 1, 2, 3]]), &graphs).unwrap();
        found.check(&of(&[0, 1, 2, 4])).refusal.map(|refusal| refusal.kind)
    };
    assert_eq!(admits(0.9, 1.0), None);
    assert_eq!(admits(0.5, 1.0), Some(RefusalKind::Ast));
    assert_eq!(admits(0.9, 0.3), Some(RefusalKind::Graph));
    // The same inside the set, where the index proposes whom to compare.
    let mut found = Decontamination::new(Thresholds { ast: 1.0, graph: 0.3 });
    assert!(found.admit("first", of(&[0, 1, 2, 3])).refusal.is_none());
    let refusal = found.admit("near", of(&[0, 1, 2, 4])).refusal.unwrap();
    assert_eq!((refusal.kind, refusal.copied.task.as_str()), (RefusalKind::Graph, "first"));
    assert!(found.admit("far", of(&[7, 8, 9, 10])).refusal.is_none());
    let text = r#"{"ast": 0.8}"#;
    let read: Thresholds = serde_json::from_str(text).unwrap();
    assert_eq!(read, Thresholds { ast: 0.8, graph: 1.0 });
}

#[test]
fn first_duplicate_is_kept_and_refusals_are_counted() {
    let mut found = against(&[&[0, 1, 2]]);
    assert!(found.admit("first", of(&[5, 6])).refusal.is_none());
    let refusal = found.admit("second", of(&[5, 6])).refusal.unwrap();
    assert_eq!((refusal.copied.suite, refusal.copied.task.as_str()), (None, "first"));
    assert!(found.admit("copied", of(&[0, 1, 2])).refusal.is_some());
    // Whoever only asks is counted where it is a copy, and kept nowhere.
    assert!(found.refuse(&of(&[5, 6])).is_some());
    assert!(found.refuse(&of(&[3, 4])).is_none());
    assert_eq!(found.kept(), 1);
    let summary = found.summary();
    assert_eq!((summary.checked, summary.with_graph, summary.kept), (4, 4, 1));
    assert_eq!(summary.refused["same graph as another's"], 2);
    assert_eq!(summary.refused["same graph as a suite's"], 1);
    assert_eq!(summary.suites[0].ast.total(), 4);
    assert_eq!((summary.kept_ast.total(), summary.kept_graph.total()), (1, 1));
    assert!(summary.kept_ast.highest < 0.9 && summary.suites[0].ast.highest > 0.999);
    let text = serde_json::to_string(summary).unwrap();
    assert_eq!(&serde_json::from_str::<warpwright_synth::Summary>(&text).unwrap(), summary);
}

#[test]
fn suite_with_a_broken_task_is_refused_by_name() {
    let mut broken = suite("bench", &[&[0]]);
    broken.tasks.push(Task::from_source("torn", "class Model(:"));
    let error = Decontamination::new(Thresholds::default())
        .add_suite(&broken, &BTreeMap::new())
        .unwrap_err();
    assert!(error.to_string().contains("suite `bench`"), "{error}");
    let text = error.source.to_string();
    assert!(text.contains("torn") && text.contains("syntax error"), "{text}");
}

/// A second check finds no copies in the kept rows. With an additional suite it finds some.
#[test]
fn decontaminated_set_passes_a_second_check() {
    let chains: [&[usize]; 6] = [&[0], &[1, 2], &[1, 2], &[3, 4, 5], &[0], &[6]];
    let mut found = against(&[&[6]]);
    let mut set = DataSet::default();
    for (i, chain) in chains.iter().enumerate() {
        let mut row =
            Row::unmeasured(&format!("t{i}"), &source(chain, 64 + i as u32), &[], "torch#1");
        row.graph = Some(graph(chain));
        if found.admit(&row.name, of(chain)).refusal.is_none() {
            set.push(row).unwrap();
        }
    }
    let names: Vec<&str> = set.rows().iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["t0", "t1", "t3"]);
    assert_eq!(against(&[&[6]]).admit_set(&set).unwrap(), []);
    let mut clear = against(&[&[6], &[3, 4, 5]]);
    let refused = clear.admit_set(&set).unwrap();
    assert_eq!((refused.len(), clear.kept(), clear.summary().kept), (1, 3, 2));
    assert_eq!((refused[0].0.as_str(), refused[0].1.kind), ("t3", RefusalKind::SameGraph));
}

fn chain() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..OPERATORS.len(), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The oracle compares with every task.
    #[test]
    fn nearest_task_equals_exhaustive_search(
        chains in prop::collection::vec(chain(), 1..25),
        task in chain(),
    ) {
        let chains: Vec<&[usize]> = chains.iter().map(Vec::as_slice).collect();
        let found = against(&chains).check(&of(&task));
        let highest = |similarity: &dyn Fn(&Likeness) -> f64| {
            chains.iter().map(|chain| similarity(&of(chain))).fold(0.0, f64::max)
        };
        let task = of(&task);
        let ast = highest(&|other| task.ast_similarity(other));
        let graph = highest(&|other| task.graph_similarity(other).unwrap());
        prop_assert!((found.nearest[0].highest_ast - ast).abs() < 1e-12);
        prop_assert!((found.nearest[0].highest_graph.unwrap() - graph).abs() < 1e-12);
        prop_assert_eq!(found.refusal.is_some(), ast > 0.9 || graph > 1.0 - 1e-12);
    }

    /// No two kept tasks exceed a threshold; every refused task exceeds one with a kept task.
    #[test]
    fn kept_tasks_have_no_near_duplicates(chains in prop::collection::vec(chain(), 1..60)) {
        let mut found = Decontamination::new(Thresholds::default());
        let mut kept: Vec<Likeness> = Vec::new();
        for (i, chain) in chains.iter().enumerate() {
            let refused = found.admit(&i.to_string(), of(chain)).refusal.is_some();
            let copy = kept.iter().any(|other| {
                let graph = other.graph_similarity(&of(chain)).unwrap();
                other.ast_similarity(&of(chain)) > 0.9 || graph > 1.0 - 1e-12
            });
            prop_assert_eq!(refused, copy, "{:?}", chain);
            if !refused {
                kept.push(of(chain));
            }
        }
        prop_assert_eq!(found.kept(), kept.len());
    }
}
