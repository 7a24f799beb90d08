//! Rows for the tests.

use proptest::prelude::*;
use warpwright_synth::{Measured, Proposal, Provenance, Row, TensorForm};
use warpwright_task::similarity::{OpGraph, OpNode};

/// A row whose source is unique to its number.
pub(crate) fn row(number: u64, ops: &[&str]) -> Row {
    let proposal = Proposal {
        name: format!("task_{number}"),
        source: format!("import torch\n# {number}\n"),
        operators: ops.iter().map(|op| (*op).to_owned()).collect(),
        level: 1 + (number % 4) as u8,
        provenance: Provenance {
            composer: "grammar".to_owned(),
            seed: u64::MAX - number,
            catalogue: "c0ffee".to_owned(),
            parent: number.is_multiple_of(3).then(|| "task_1".to_owned()),
        },
    };
    let graph = number.is_multiple_of(2).then(|| {
        let nodes = vec![
            OpNode { op: "input".to_owned(), inputs: vec![] },
            OpNode { op: "aten.relu.default".to_owned(), inputs: vec![0] },
        ];
        OpGraph::new(nodes, vec![1]).expect("a graph")
    });
    Row::admitted(proposal, measured(number), graph)
}

pub(crate) fn measured(number: u64) -> Measured {
    let form = TensorForm { shape: vec![16, number + 1], dtype: "float32".to_owned() };
    Measured {
        inputs: vec![form.clone()],
        outputs: vec![form, TensorForm { shape: vec![], dtype: "bool".to_owned() }],
        bytes: 128 * (number + 1),
        eager_ms: 0.3 + number as f64 / 7.0,
        compile_ms: 0.2 + number as f64 / 11.0,
        floor_ms: 0.05,
        fingerprint: r#"{"hardware":"a card"}"#.to_owned(),
    }
}

/// Any valid row.
pub(crate) fn any_row() -> impl Strategy<Value = Row> {
    let time = || prop::num::f64::POSITIVE.prop_filter("a time", |ms| ms.is_finite());
    let forms = || {
        let form = (prop::collection::vec(any::<u64>(), 0..4), "[a-z0-9]{1,8}")
            .prop_map(|(shape, dtype)| TensorForm { shape, dtype });
        prop::collection::vec(form, 0..3)
    };
    let measured = (forms(), forms(), any::<u64>(), time(), time(), time(), "\\PC{0,20}").prop_map(
        |(inputs, outputs, bytes, eager_ms, compile_ms, floor_ms, fingerprint)| Measured {
            inputs,
            outputs,
            bytes,
            eager_ms,
            compile_ms,
            floor_ms,
            fingerprint,
        },
    );
    let provenance =
        ("\\PC{0,9}", any::<u64>(), "\\PC{0,9}", prop::option::of("\\PC{0,9}")).prop_map(
            |(composer, seed, catalogue, parent)| Provenance { composer, seed, catalogue, parent },
        );
    (
        ("[a-c]{1,2}", prop::option::of(any::<u8>()), "(?s).{0,40}"),
        prop::collection::vec("\\PC{0,6}", 0..5),
        "\\PC{0,10}",
        prop::option::of(measured),
        prop::option::of(provenance),
        any::<bool>(),
    )
        .prop_map(|((name, level, code), ops, data_source, measured, provenance, traced)| {
            Row {
                name,
                level,
                code,
                ops,
                data_source,
                measured,
                graph: traced.then(|| row(0, &[]).graph).flatten(),
                provenance,
            }
        })
}
