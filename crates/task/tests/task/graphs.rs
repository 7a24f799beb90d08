//! Equality of operator graphs.

use proptest::prelude::*;
use serde_json::json;
use warpwright_task::similarity::{GraphError, OpGraph, OpNode, TraceError};

fn node(op: &str, inputs: &[usize]) -> OpNode {
    OpNode { op: op.to_owned(), inputs: inputs.to_vec() }
}

fn graph(nodes: &[(&str, &[usize])], outputs: &[usize]) -> OpGraph {
    let nodes = nodes.iter().map(|(op, inputs)| node(op, inputs)).collect();
    OpGraph::new(nodes, outputs.to_vec()).expect("a graph")
}

#[test]
fn only_commutative_operands_may_be_swapped() {
    let of = |op: &str, first: usize, second: usize| {
        let relu: &[usize] = &[0];
        graph(&[("input", &[]), ("aten.relu.default", relu), (op, &[first, second])], &[2])
    };
    assert!(of("aten.add.Tensor", 0, 1).same(&of("aten.add.Tensor", 1, 0)));
    assert!(!of("aten.sub.Tensor", 0, 1).same(&of("aten.sub.Tensor", 1, 0)));
    assert!(!of("aten.add.Tensor", 0, 1).same(&of("aten.mul.Tensor", 0, 1)));
}

#[test]
fn shared_input_differs_from_two_inputs() {
    let shared = graph(&[("input", &[]), ("aten.add.Tensor", &[0, 0])], &[1]);
    let two = graph(&[("input", &[]), ("input", &[]), ("aten.add.Tensor", &[0, 1])], &[2]);
    assert!(!shared.same(&two));
    // A parameter is not an input.
    let weighted = graph(&[("input", &[]), ("parameter", &[]), ("aten.add.Tensor", &[0, 1])], &[2]);
    assert!(!two.same(&weighted));
}

/// Both graphs have the same nodes and expressions; only the sharing of an input differs.
#[test]
fn graphs_that_share_different_inputs_differ() {
    let products = |second: [usize; 2]| {
        graph(
            &[
                ("input", &[]),
                ("input", &[]),
                ("aten.mm.default", &[0, 1]),
                ("aten.mm.default", &second),
            ],
            &[2, 3],
        )
    };
    assert!(!products([0, 1]).same(&products([1, 0])));
    assert!(products([0, 1]).similarity(&products([1, 0])) < 1.0);
}

#[test]
fn dead_nodes_are_ignored_and_output_order_matters() {
    let nodes: &[(&str, &[usize])] =
        &[("input", &[]), ("aten.relu.default", &[0]), ("aten.exp.default", &[0])];
    assert!(graph(nodes, &[1]).same(&graph(&nodes[..2], &[1])));
    assert!(!graph(nodes, &[1, 2]).same(&graph(nodes, &[2, 1])));
    assert!(!graph(nodes, &[1]).same(&graph(nodes, &[2])));
}

/// Changing one operator of a long chain changes only its neighbourhood.
#[test]
fn one_changed_operator_lowers_similarity_locally() {
    let chain = |other: usize| {
        let mut nodes = vec![node("input", &[])];
        for i in 0..40 {
            let op = if i < other { "aten.exp.default" } else { "aten.relu.default" };
            nodes.push(node(op, &[i]));
        }
        OpGraph::new(nodes, vec![40]).unwrap()
    };
    let similarities: Vec<f64> =
        [0, 1, 5, 20, 40].map(|other| chain(0).similarity(&chain(other))).into();
    assert!(similarities.is_sorted_by(|a, b| a > b), "{similarities:?}");
    assert!((similarities[0] - 1.0).abs() < 1e-12 && similarities[1] > 0.8, "{similarities:?}");
    assert!(similarities[4].abs() < 1e-12, "{similarities:?}");
}

#[test]
fn reference_to_a_missing_node_is_refused() {
    let error = OpGraph::new(vec![node("input", &[3])], vec![0]).unwrap_err();
    assert_eq!(error, GraphError::NoSuchNode { index: 3, nodes: 1 });
    let text = r#"{"nodes":[{"op":"input","inputs":[]}],"outputs":[1]}"#;
    let error = serde_json::from_str::<OpGraph>(text).unwrap_err().to_string();
    assert!(error.contains("node 1, but has 1 nodes"), "{error}");
}

/// The tracer's output for a linear layer and an activation, on tensors of `shape`; with `views` as
/// for more than two axes.
fn trace(shape: &[i64], views: bool, activation: &str) -> String {
    let meta = json!({"shape": shape, "stride": shape, "dtype": "float32"});
    let viewed = if views { "view" } else { "x" };
    let mut nodes = vec![
        json!({"name": "permute", "op": "aten.permute.default", "args": [{"n": "p_w"}, [1, 0]], "kwargs": {}, "out": [meta]}),
        json!({"name": "addmm", "op": "aten.addmm.default",
               "args": [{"n": "p_b"}, {"n": viewed}, {"n": "permute"}], "kwargs": {}, "out": [meta]}),
        json!({"name": "act", "op": activation, "args": [{"n": "addmm"}], "kwargs": {}, "out": [meta]}),
    ];
    if views {
        nodes.insert(0, json!({"name": "view", "op": "aten.view.default", "args": [{"n": "x"}, [6, 8]], "kwargs": {}, "out": [meta]}));
    }
    json!({
        "version": 1, "tracer": "torch.export", "init_signature": "(self)",
        "inputs": [{"name": "x", "tensor": meta}],
        "state": [
            {"name": "w", "kind": "parameter", "shape": [8, 8], "dtype": "float32", "persistent": true},
            {"name": "b", "kind": "parameter", "shape": [8], "dtype": "float32", "persistent": true},
        ],
        "structure": "tensor",
        "leaves": [{"name": "p_w", "state": "w"}, {"name": "p_b", "state": "b"}, {"name": "x", "input": 0}],
        "constants": [],
        "nodes": nodes,
        "outputs": [{"n": "act"}],
    })
    .to_string()
}

#[test]
fn traces_of_different_shapes_give_the_same_graph() {
    let read = |text: &str| OpGraph::from_trace(text).unwrap();
    let two = read(&trace(&[6, 8], false, "aten.relu.default"));
    let three = read(&format!("a warning\n{}\n", trace(&[2, 3, 8], true, "aten.relu.default")));
    assert!(two.same(&three));
    assert!((two.similarity(&three) - 1.0).abs() < 1e-12);
    let other = read(&trace(&[6, 8], false, "aten.tanh.default"));
    assert!(!two.same(&other));
    assert!(two.similarity(&other) < 0.9);
    assert_eq!(two.nodes().iter().filter(|node| node.op == "parameter").count(), 2);
}

/// ATen has one operator for every convolution.
#[test]
fn convolution_kinds_differ_and_sizes_are_ignored() {
    let of = |stride: &[i64], transposed: bool, groups: u64| {
        let text = json!({
            "version": 1,
            "leaves": [{"name": "x", "input": 0}, {"name": "w", "state": "w"}],
            "state": [{"name": "w", "kind": "parameter"}],
            "nodes": [{"name": "conv", "op": "aten.convolution.default", "args":
                [{"n": "x"}, {"n": "w"}, null, stride, stride, stride, transposed, stride, groups]}],
            "outputs": [{"n": "conv"}],
        });
        OpGraph::from_trace(&text.to_string()).unwrap()
    };
    let plain = of(&[1, 1], false, 1);
    assert!(plain.same(&of(&[2, 3], false, 1)));
    assert!(of(&[1, 1], false, 8).same(&of(&[1, 1], false, 16)));
    for other in [of(&[1], false, 1), of(&[1, 1], true, 1), of(&[1, 1], false, 8)] {
        assert!(!plain.same(&other));
    }
}

#[test]
fn invalid_traces_are_refused_with_a_reason() {
    let refused = OpGraph::from_trace(r#"{"error": "ValueError: no", "hint": "mend it"}"#);
    assert_eq!(
        refused,
        Err(TraceError::Refused { error: "ValueError: no".to_owned(), hint: "mend it".to_owned() })
    );
    let newer = trace(&[2], false, "aten.relu.default").replace("\"version\":1", "\"version\":2");
    assert_eq!(OpGraph::from_trace(&newer), Err(TraceError::Newer { found: 2 }));
    let dangling =
        trace(&[2], false, "aten.relu.default").replace("{\"n\":\"x\"}", "{\"n\":\"y\"}");
    for text in ["", "no object", "{\"version\": 1}", "{", &dangling] {
        let error = OpGraph::from_trace(text).unwrap_err();
        assert!(matches!(error, TraceError::Malformed { .. }), "{text}: {error}");
    }
}

/// Random graphs, inputs before users.
fn graphs() -> impl Strategy<Value = (Vec<OpNode>, Vec<usize>)> {
    let ops = ["aten.add.Tensor", "aten.sub.Tensor", "aten.relu.default", "aten.mm.default"];
    prop::collection::vec(
        (0..ops.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        1..25,
    )
    .prop_map(move |calls| {
        let mut nodes = vec![node("input", &[]), node("parameter", &[])];
        for (op, first, second) in calls {
            let (first, second) = (first.index(nodes.len()), second.index(nodes.len()));
            let inputs = if ops[op].contains("relu") { vec![first] } else { vec![first, second] };
            nodes.push(OpNode { op: ops[op].to_owned(), inputs });
        }
        let last = nodes.len() - 1;
        (nodes, vec![last, last / 2])
    })
}

proptest! {
    #[test]
    fn the_order_of_nodes_and_of_free_operands_never_matters(
        (nodes, outputs) in graphs(),
        keys in prop::collection::vec(any::<u32>(), 30),
        flips in prop::collection::vec(any::<bool>(), 30),
    ) {
        let original = OpGraph::new(nodes.clone(), outputs.clone()).unwrap();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let place = |i: usize| order.iter().position(|&at| at == i).unwrap();
        let shuffled = order.iter().map(|&i| {
            let mut inputs: Vec<usize> = nodes[i].inputs.iter().map(|&input| place(input)).collect();
            if flips[i] && nodes[i].op.contains("add") {
                inputs.reverse();
            }
            OpNode { op: nodes[i].op.clone(), inputs }
        });
        let shuffled =
            OpGraph::new(shuffled.collect(), outputs.iter().map(|&i| place(i)).collect()).unwrap();
        prop_assert_eq!(original.canonical_hash(), shuffled.canonical_hash());
        prop_assert_eq!(original.features(), shuffled.features());
    }

    /// The oracle is an independent computation: the expression of the first result, written out.
    /// Where it differs, so must the hash.
    #[test]
    fn different_expressions_have_different_hashes(a in graphs(), b in graphs()) {
        let written = |(nodes, outputs): &(Vec<OpNode>, Vec<usize>)| {
            let mut texts: Vec<String> = Vec::new();
            for node in nodes {
                let mut inputs: Vec<&str> = node.inputs.iter().map(|&i| texts[i].as_str()).collect();
                if node.op.contains("add") {
                    inputs.sort_unstable();
                }
                // Hashed, or sharing would make it grow exponentially.
                let text = format!("{}({})", node.op, inputs.join(","));
                texts.push(if text.len() > 64 { blake_like(&text) } else { text });
            }
            outputs.iter().map(|&i| texts[i].clone()).collect::<Vec<_>>()
        };
        let of = |(nodes, outputs): &(Vec<OpNode>, Vec<usize>)| {
            OpGraph::new(nodes.clone(), outputs.clone()).unwrap().canonical_hash()
        };
        if written(&a) != written(&b) {
            prop_assert_ne!(of(&a), of(&b));
        }
    }

    #[test]
    fn graph_round_trips_through_json((nodes, outputs) in graphs()) {
        let graph = OpGraph::new(nodes, outputs).unwrap();
        let text = serde_json::to_string(&graph).unwrap();
        prop_assert_eq!(serde_json::from_str::<OpGraph>(&text).unwrap(), graph);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,80}|\\{\"version\": ?1,.{0,80}\\}") {
        let _ = OpGraph::from_trace(&text);
    }
}

/// A short name for a long text.
fn blake_like(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
