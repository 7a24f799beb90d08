//! Operator graphs from the output of the workspace's tracer (`utils/trace.py`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::graph::{GraphError, OpGraph, OpNode};

/// Version of the tracer's format that is read here.
const TRACE_VERSION: u32 = 1;

/// Operators of ATen and of torch's `prims` that only say how a tensor lies in memory or how its axes are
/// grouped. Whether one comes about depends on shapes: a linear layer on three axes is `view`, `addmm`,
/// `view`, and on two it is `addmm`. They are taken for their input.
const TRANSPARENT: [&str; 21] = [
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "broadcast_in_dim",
    "clone",
    "collapse",
    "collapse_view",
    "contiguous",
    "detach",
    "expand",
    "expand_as",
    "flatten",
    "lift_fresh_copy",
    "reshape",
    "split_dim",
    "squeeze",
    "unflatten",
    "unsqueeze",
    "view",
    "view_as",
    "view_of",
];

/// Why a trace has no graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// The tracer refused the reference.
    #[error("failed to trace the reference: {error}")]
    Refused {
        /// Its reason.
        error: String,
        /// Its hint.
        hint: String,
    },
    /// The trace is not in the tracer's format.
    #[error("failed to read a trace: {reason}")]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// Written by a later version.
    #[error(
        "failed to read a trace: its format {found} is newer than this program's {TRACE_VERSION}"
    )]
    Newer {
        /// Its version.
        found: u32,
    },
    /// Its nodes are no graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    #[serde(default)]
    hint: String,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Trace {
    leaves: Vec<Leaf>,
    #[serde(default)]
    constants: Vec<Named>,
    #[serde(default)]
    state: Vec<State>,
    nodes: Vec<Call>,
    outputs: Value,
}

#[derive(Deserialize)]
struct Leaf {
    name: String,
    state: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct State {
    name: String,
    kind: String,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    op: String,
    args: Vec<Value>,
    #[serde(default)]
    kwargs: serde_json::Map<String, Value>,
}

impl OpGraph {
    /// From the text that the tracer prints: the first JSON object in it.
    ///
    /// # Errors
    ///
    /// If the tracer refused the reference, the text is not a trace, or its format is newer.
    pub fn from_trace(text: &str) -> Result<Self, TraceError> {
        let malformed = |reason: String| TraceError::Malformed { reason };
        let start = text.find('{').ok_or_else(|| malformed("it has no JSON object".to_owned()))?;
        let value = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next();
        let value = match value {
            Some(Ok(value)) => value,
            Some(Err(error)) => return Err(malformed(error.to_string())),
            None => return Err(malformed("it is empty".to_owned())),
        };
        if let Ok(Refused { error, hint }) = Refused::deserialize(&value) {
            return Err(TraceError::Refused { error, hint });
        }
        let Version { version } =
            Version::deserialize(&value).map_err(|error| malformed(error.to_string()))?;
        if version > TRACE_VERSION {
            return Err(TraceError::Newer { found: version });
        }
        let trace = Trace::deserialize(&value).map_err(|error| malformed(error.to_string()))?;
        build(&trace)
    }
}

fn build(trace: &Trace) -> Result<OpGraph, TraceError> {
    let kinds: BTreeMap<&str, &str> =
        trace.state.iter().map(|state| (state.name.as_str(), state.kind.as_str())).collect();
    let mut nodes = Vec::new();
    let mut by_name = BTreeMap::new();
    for leaf in &trace.leaves {
        let kind = match &leaf.state {
            None => "input",
            Some(state) => kinds.get(state.as_str()).copied().unwrap_or("parameter"),
        };
        by_name.insert(leaf.name.as_str(), nodes.len());
        nodes.push(OpNode { op: kind.to_owned(), inputs: Vec::new() });
    }
    for constant in &trace.constants {
        by_name.insert(constant.name.as_str(), nodes.len());
        nodes.push(OpNode { op: "constant".to_owned(), inputs: Vec::new() });
    }
    for call in &trace.nodes {
        let mut inputs = Vec::new();
        for argument in call.args.iter().chain(call.kwargs.values()) {
            references(argument, &by_name, &mut inputs)?;
        }
        if let [input, ..] = inputs[..]
            && is_transparent(&call.op)
        {
            by_name.insert(call.name.as_str(), input);
            continue;
        }
        let op = operator(call);
        by_name.insert(call.name.as_str(), nodes.len());
        nodes.push(OpNode { op, inputs });
    }
    let mut outputs = Vec::new();
    references(&trace.outputs, &by_name, &mut outputs)?;
    Ok(OpGraph::new(nodes, outputs)?)
}

/// The name of what is called, with what is no shape and not in ATen's name: which of several results
/// is taken, and which convolution it is. ATen has one for all of them, and its arguments are input,
/// weight, bias, stride, padding, dilation, transposed, output padding, groups.
fn operator(call: &Call) -> String {
    let mut parts = vec![call.op.clone()];
    if call.op == "getitem" {
        parts.extend(call.args.get(1).and_then(Value::as_u64).map(|index| index.to_string()));
    } else if call.op == "aten.convolution.default" {
        let axes = call.args.get(3).and_then(Value::as_array).map(Vec::len);
        parts.extend(axes.map(|axes| format!("{axes}d")));
        if call.args.get(6).and_then(Value::as_bool) == Some(true) {
            parts.push("transposed".to_owned());
        }
        if call.args.get(8).and_then(Value::as_u64).is_some_and(|groups| groups > 1) {
            parts.push("grouped".to_owned());
        }
    }
    parts.join(".")
}

/// Nodes that an encoded argument refers to, in order.
fn references(
    value: &Value,
    by_name: &BTreeMap<&str, usize>,
    out: &mut Vec<usize>,
) -> Result<(), TraceError> {
    match value {
        Value::Array(items) => {
            items.iter().try_for_each(|item| references(item, by_name, out))?;
        }
        Value::Object(object) => {
            if let Some(name) = object.get("n").and_then(Value::as_str) {
                let node = by_name.get(name).ok_or_else(|| TraceError::Malformed {
                    reason: format!("`{name}` is used and not defined before"),
                })?;
                out.push(*node);
            }
        }
        _ => {}
    }
    Ok(())
}

/// `aten.view.default`, whatever its overload.
fn is_transparent(op: &str) -> bool {
    let mut parts = op.split('.');
    matches!(parts.next(), Some("aten" | "prims"))
        && parts.next().is_some_and(|name| TRANSPARENT.contains(&name))
}
