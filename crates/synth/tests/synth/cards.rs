//! Statistics and the dataset card.

use std::collections::{BTreeMap, BTreeSet};

use warpwright_synth::{DataSet, Decontamination, Likeness, Row, Shares, Split, Thresholds, card};
use warpwright_task::{Suite, Task};

use crate::rows::row;

fn set() -> DataSet {
    let mut set = DataSet::new(Shares::new(0.2, 0.3).expect("shares"));
    for number in 0..40 {
        let ops: &[&str] = match number % 4 {
            0 => &["torch.relu"],
            1 => &["torch.relu", "torch.sum"],
            2 => &["nn.Conv2d", "torch.relu", "torch.relu"],
            _ => &["torch.exp"],
        };
        set.push(row(number, ops)).expect("a row");
    }
    set
}

#[test]
fn statistics_match_the_rows() {
    let set = set();
    let stats = set.stats();
    assert_eq!((stats.rows, stats.combinations, stats.operators.len()), (40, 4, 4));
    assert_eq!(stats.operator_counts, BTreeMap::from([(1, 20), (2, 10), (3, 10)]));
    assert_eq!(stats.over_forty_percent, Some(1));
    assert_eq!(stats.operators["torch.relu"], 30, "a task counts once for an operator");
    assert_eq!(stats.levels.values().sum::<u64>(), 40);
    assert_eq!(stats.test_combinations_trained_on, 0);
    for split in &stats.splits {
        let rows: Vec<&Row> = set.split(split.split).collect();
        let combinations: BTreeSet<_> = rows.iter().map(|row| row.combination()).collect();
        assert_eq!(
            (split.rows, split.combinations),
            (rows.len() as u64, combinations.len() as u64)
        );
    }
    assert_eq!(stats.splits.iter().map(|split| split.rows).sum::<u64>(), 40);
    assert_eq!(stats.data_sources["torch#2"], 10);
    assert_eq!((stats.composers["grammar"], stats.mutated, stats.with_graph), (40, 14, 20));
    let device = &stats.devices[0];
    assert_eq!((stats.devices.len(), device.rows), (1, 40));
    assert!((device.eager_ms.min - 0.3).abs() < 1e-12);
    assert!((device.head_room.min - 4.0).abs() < 1e-9, "0.2 ms over 0.05 ms");
    let text = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<warpwright_synth::Stats>(&text).unwrap(), stats);
}

#[test]
fn times_under_different_fingerprints_are_not_merged() {
    let mut set = set();
    let mut other = row(99, &["torch.exp"]);
    if let Some(measured) = &mut other.measured {
        measured.fingerprint = r#"{"hardware":"another card"}"#.to_owned();
        measured.eager_ms = 1000.0;
    }
    set.push(other).unwrap();
    let stats = set.stats();
    assert_eq!(stats.devices.iter().map(|device| device.rows).collect::<Vec<_>>(), [40, 1]);
    assert!(stats.devices[0].eager_ms.max < 10.0);
}

#[test]
fn empty_set_has_a_card() {
    let empty = DataSet::default();
    assert_eq!(empty.stats().over_forty_percent, None);
    assert!(card("empty", &empty, None).starts_with("# empty\n\n0 tasks"));
    assert_eq!(empty.split(Split::Train).count(), 0);
}

#[test]
fn card_shows_the_statistics() {
    let source = |op: &str| {
        format!(
            "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n\
             \x20       return torch.{op}(x)\n"
        )
    };
    let suite =
        Suite { name: "bench".to_owned(), tasks: vec![Task::from_source("relu", source("relu"))] };
    let mut found = Decontamination::new(Thresholds::default());
    found.add_suite(&suite, &BTreeMap::new()).unwrap();
    for op in ["relu", "tanh", "sigmoid"] {
        found.admit(op, Likeness::of(&source(op), None).unwrap());
    }
    let text = card("Composed tasks", &set(), Some(found.summary()));
    for line in [
        "# Composed tasks",
        "40 tasks in KernelBench form, of 4 operators in 4 combinations.",
        "More than 40 % of the tasks have 1 operators: the set is narrow.",
        "| `torch.relu` | 30 | 75.0 % |",
        "Compared with bench (1 tasks, 0 traced).",
        "| source like a suite's | 1 | 33.3 % |",
        "| head-room | 4.00 |",
        "{\"hardware\":\"a card\"}",
        "| `grammar` | 40 |",
        "14 tasks are mutations of others.",
        "Combinations of the test split that are trained on: 0.",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // As many bars as the tasks that were kept.
    assert!(text.contains("## Nearest source of any suite, of kept tasks"));
    assert!(!text.contains("  \n") && !text.contains("NaN"), "{text}");
}
