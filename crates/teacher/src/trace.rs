//! The operator graph as `utils/trace.py` prints it: one JSON object.

use serde::Deserialize;
use serde_json::Value;

use crate::dtype::DType;

/// Version that this crate reads.
pub(crate) const TRACE_VERSION: u32 = 1;

/// The JSON object.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Trace {
    pub(crate) version: u32,
    /// `(self, hidden: int = 4)`.
    pub(crate) init_signature: String,
    /// Results of `get_inputs`, in order.
    pub(crate) inputs: Vec<TracedInput>,
    /// Parameters and buffers.
    pub(crate) state: Vec<State>,
    /// `tensor`, `tuple` or `list`.
    pub(crate) structure: String,
    /// Graph inputs, each an input or a piece of state.
    pub(crate) leaves: Vec<TracedLeaf>,
    /// Tensors made by the model outside its state, by value.
    pub(crate) constants: Vec<Constant>,
    /// Calls in order.
    pub(crate) nodes: Vec<Call>,
    /// Node references, as arguments are encoded.
    pub(crate) outputs: Value,
}

/// Shape, strides and element type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Meta {
    pub(crate) shape: Vec<i64>,
    pub(crate) stride: Vec<i64>,
    pub(crate) dtype: DType,
    /// Elements of its storage before its first element; for inputs only.
    #[serde(default)]
    pub(crate) offset: i64,
}

/// One argument of `forward`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TracedInput {
    pub(crate) name: String,
    /// Absent for a number, whose value is part of the graph.
    pub(crate) tensor: Option<Meta>,
    /// That number, or a text or nothing.
    #[serde(default)]
    pub(crate) scalar: Value,
}

/// What the tracer printed.
#[derive(Debug)]
pub(crate) enum Traced {
    /// The graph of a task with one set of inputs.
    Single(Box<Trace>),
    /// Those of a task with workloads.
    Several(Several),
}

/// The graphs of a task with workloads, as JSON: they are compared before they are read.
#[derive(Debug)]
pub(crate) struct Several {
    /// Graphs with the names of the workloads that they are of; at least one.
    pub(crate) workloads: Vec<(Vec<String>, Value)>,
    /// Graphs at other sizes than any workload's.
    pub(crate) probes: Vec<Value>,
}

impl Several {
    /// Most graphs that are read: those of all workloads, and probes.
    const MOST: usize = 96;

    fn new(printed: Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Printed {
            workloads: Vec<Value>,
            probes: Vec<Value>,
        }
        let Printed { workloads, mut probes } = serde_json::from_value(printed)
            .map_err(|e| format!("The tracer's graphs could not be read: {e}."))?;
        if workloads.is_empty() || workloads.len() + probes.len() > Self::MOST {
            return Err(format!("The tracer printed {} graphs.", workloads.len()));
        }
        // Only the first says what the model's state is.
        let state = workloads.first().and_then(|first| first.get("state")).cloned();
        let whole = |graph: &mut Value| {
            if let (Some(state), Some(graph)) = (&state, graph.as_object_mut()) {
                graph.insert("state".to_owned(), state.clone());
            }
        };
        let named = |mut graph: Value| {
            let names = graph.as_object_mut().and_then(|graph| graph.remove("workloads"));
            let names = names.and_then(|names| serde_json::from_value(names).ok());
            whole(&mut graph);
            (names.unwrap_or_default(), graph)
        };
        let mut workloads: Vec<(Vec<String>, Value)> = workloads.into_iter().map(named).collect();
        for at in 1..workloads.len() {
            let (known, others) = workloads.split_at_mut(at);
            if let Some((_, graph)) = others.first_mut() {
                tell_apart(graph, known, at);
            }
        }
        probes.iter_mut().for_each(whole);
        Ok(Self { workloads, probes })
    }
}

/// A parameter or buffer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) name: String,
    /// `parameter` or `buffer`.
    pub(crate) kind: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) dtype: DType,
    /// Whether `state_dict` has it.
    pub(crate) persistent: bool,
    /// Values of non-persistent buffers; a single value stands for all elements.
    #[serde(default)]
    pub(crate) values: Vec<Value>,
}

/// A graph input.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TracedLeaf {
    pub(crate) name: String,
    pub(crate) input: Option<usize>,
    pub(crate) state: Option<String>,
}

/// A tensor known while tracing.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) dtype: DType,
    /// All elements, or one that stands for all.
    pub(crate) values: Vec<Value>,
}

/// One operator call.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// `aten.add.Tensor`.
    pub(crate) op: String,
    pub(crate) args: Vec<Value>,
    pub(crate) kwargs: serde_json::Map<String, Value>,
    /// One entry per result.
    pub(crate) out: Vec<Option<Meta>>,
}

/// `{"error", "hint"}`, the tracer's output on failure.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TraceFailure {
    pub(crate) error: String,
    pub(crate) hint: String,
}

/// A number as the tracer encodes it: infinities and NaN are tagged.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::Object(o) => match o.get("f")?.as_str()? {
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        },
        _ => None,
    }
}

/// Renames the constants of a graph whose names stand for other values in an earlier one.
fn tell_apart(graph: &mut Value, known: &[(Vec<String>, Value)], number: usize) {
    let of = |graph: &Value| -> Vec<Value> {
        graph.get("constants").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for constant in of(graph) {
        let Some(name) = constant.get("name").and_then(Value::as_str) else { continue };
        let other = |c: &Value| c.get("name") == constant.get("name") && *c != constant;
        if known.iter().any(|(_, graph)| of(graph).iter().any(other)) {
            rename(graph, name, &format!("{name}_{number}"));
        }
    }
}

/// Renames a node everywhere in a graph.
fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(map) => {
            for (key, item) in map {
                if matches!(key.as_str(), "n" | "name") && item.as_str() == Some(from) {
                    *item = Value::from(to);
                } else {
                    rename(item, from, to);
                }
            }
        }
        _ => {}
    }
}

/// Parses the tracer's output. The error is a message that gives the reason.
pub(crate) fn parse(text: &str) -> Result<Traced, String> {
    if let Some(failure) = first_object::<TraceFailure>(text) {
        return Err(format!(
            "The reference could not be traced: {}. {}.",
            failure.error, failure.hint
        ));
    }
    let start = text
        .find('{')
        .ok_or_else(|| format!("The tracer printed no graph: {}", first_line(text)))?;
    let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    let printed = match stream.next() {
        Some(Ok(printed)) => printed,
        Some(Err(e)) => return Err(format!("The tracer's graph could not be read: {e}.")),
        None => return Err("The tracer printed no graph.".to_owned()),
    };
    if printed.get("workloads").is_some() {
        return Several::new(printed).map(Traced::Several);
    }
    read(&printed).map(|trace| Traced::Single(Box::new(trace)))
}

/// One graph.
pub(crate) fn read(printed: &Value) -> Result<Trace, String> {
    let trace = Trace::deserialize(printed)
        .map_err(|e| format!("The tracer's graph could not be read: {e}."))?;
    if trace.version > TRACE_VERSION {
        return Err(format!("The tracer's format {} is newer than this policy.", trace.version));
    }
    Ok(trace)
}

/// The first JSON object in a text, if it is a `T`.
pub(crate) fn first_object<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    let start = text.find('{')?;
    serde_json::Deserializer::from_str(&text[start..]).into_iter::<T>().next()?.ok()
}

pub(crate) fn first_line(text: &str) -> String {
    text.lines().find(|l| !l.trim().is_empty()).unwrap_or("no output").chars().take(300).collect()
}
