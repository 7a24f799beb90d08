//! Lowers traced calls to the graph; one file per operator family.
//!
//! A [`Family`] looks at one call and either declines, or adds nodes and names the results.
//! Families are tried in the order of [`FAMILIES`]. Operators that no family supports are reported
//! by name.

mod convolution;
mod create;
mod operand;
mod phases;
mod pointwise;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod scan;
mod take;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::algebra;
use crate::dtype::DType;
use crate::index;
use crate::ir::{Fun, Graph, Leaf, NodeId, Op, Source, Split};
use crate::trace::{self, Call, Meta, Trace};

/// Rules for some operators.
pub(crate) trait Family: Sync {
    /// Lowers `call`, giving one node per result; `Ok(None)` if the operator does not belong to
    /// this family. An `Err` is a variant of the operator that the family does not support.
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String>;
}

/// Tried in order. A new family is one line here.
const FAMILIES: &[&dyn Family] = &[
    &pointwise::Pointwise,
    &reduce::Reductions,
    &view::Views,
    &create::Creation,
    &take::Takes,
    &scan::Scans,
    &product::Products,
    &convolution::Convolutions,
    &pool::Pooling,
    &recurrent::Recurrent,
];

/// The graph under construction.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    pub(crate) graph: Graph,
    /// Results by traced name.
    results: BTreeMap<String, Vec<NodeId>>,
    /// Traced strides by node, for `as_strided`.
    strides: BTreeMap<NodeId, Vec<i64>>,
    /// Input tensors as traced, by position.
    inputs: Vec<Option<Meta>>,
}

/// Why a graph could not be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported {
    /// Operators by name, each with a reason if one is known. Sorted.
    pub(crate) operators: Vec<String>,
}

/// One call with typed access to its arguments.
#[derive(Debug)]
pub(crate) struct CallView<'a> {
    call: &'a Call,
    base: &'a str,
}

impl<'a> CallView<'a> {
    fn new(call: &'a Call) -> Self {
        // `aten.add.Tensor`, `prims.sum.default`, `getitem`
        let base = call.op.split('.').nth(1).unwrap_or(&call.op);
        Self { call, base }
    }

    /// `add` of `aten.add.Tensor`.
    pub(crate) fn base(&self) -> &'a str {
        self.base
    }

    /// Whether the operator is in the `prims` namespace.
    pub(crate) fn is_prim(&self) -> bool {
        self.call.op.starts_with("prims.")
    }

    /// The traced name of the call.
    pub(crate) fn name(&self) -> &'a str {
        &self.call.name
    }

    /// Shape, strides and type of result `i`.
    pub(crate) fn result(&self, i: usize) -> Result<&'a Meta, String> {
        let meta = self.call.out.get(i).and_then(Option::as_ref);
        meta.ok_or_else(|| format!("result {i} is not a tensor of a known type"))
    }

    /// Argument by position or keyword; `None` if absent or `null`.
    pub(crate) fn arg(&self, position: usize, keyword: &str) -> Option<&'a Value> {
        let value = self.call.args.get(position).or_else(|| self.call.kwargs.get(keyword));
        value.filter(|v| !v.is_null())
    }

    /// An integer argument.
    pub(crate) fn int(&self, position: usize, keyword: &str) -> Option<i64> {
        self.arg(position, keyword)?.as_i64()
    }

    /// A number.
    pub(crate) fn float(&self, position: usize, keyword: &str) -> Option<f64> {
        trace::number(self.arg(position, keyword)?)
    }

    /// A flag; `false` if absent.
    pub(crate) fn flag(&self, position: usize, keyword: &str) -> bool {
        self.arg(position, keyword).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A list of integers; a single integer is a list of one.
    pub(crate) fn ints(&self, position: usize, keyword: &str) -> Option<Vec<i64>> {
        match self.arg(position, keyword)? {
            Value::Array(items) => items.iter().map(Value::as_i64).collect(),
            one => Some(vec![one.as_i64()?]),
        }
    }

    /// Dims, wrapped to `0..rank`; `None` if absent.
    pub(crate) fn dims(&self, position: usize, keyword: &str, rank: usize) -> Option<Vec<usize>> {
        Some(self.ints(position, keyword)?.iter().map(|d| wrap(*d, rank)).collect())
    }
}

/// A dim that may count from the end.
pub(crate) fn wrap(dim: i64, rank: usize) -> usize {
    let rank = rank.max(1) as i64;
    dim.rem_euclid(rank) as usize
}

impl Lowering {
    /// The node an argument refers to; a number becomes a scalar node.
    pub(crate) fn operand(&mut self, value: Option<&Value>) -> Result<NodeId, String> {
        let value = value.ok_or("an argument is missing")?;
        if let Some(name) = value.get("n").and_then(Value::as_str) {
            let found = self.results.get(name).and_then(|r| r.first());
            return found.copied().ok_or_else(|| format!("{name} is not a tensor known here"));
        }
        let number = trace::number(value).ok_or_else(|| format!("argument {value}"))?;
        let dtype = match value {
            Value::Bool(_) => DType::Bool,
            Value::Number(n) if n.is_i64() => DType::I64,
            _ => DType::F64,
        };
        Ok(self.graph.scalar(number, dtype))
    }

    /// Argument `position` of a call as a node.
    pub(crate) fn node(&mut self, call: &CallView<'_>, position: usize) -> Result<NodeId, String> {
        self.operand(call.arg(position, ""))
    }

    /// A copy of an output that is one of the inputs: results have their own memory.
    fn owned(&mut self, id: NodeId) -> NodeId {
        let node = self.graph.node(id).clone();
        if !matches!(node.op, Op::Leaf(_)) {
            return id;
        }
        let op = Op::Map { f: Fun::Cast, args: vec![id] };
        self.graph.push(&format!("{}_copy", node.name), op, node.shape, node.dtype)
    }

    /// The position and layout of the input that a node is, if it is an unchanged input.
    pub(crate) fn strided_input(&self, id: NodeId) -> Option<(usize, Meta)> {
        let Op::Leaf(Leaf { source: Source::Input(slot), .. }) = &self.graph.node(id).op else {
            return None;
        };
        Some((*slot, self.inputs.get(*slot)?.clone()?))
    }

    /// Strides that the tracer gave a node; row-major where unknown.
    pub(crate) fn traced_strides(&self, id: NodeId) -> Vec<i64> {
        let known = self.strides.get(&id).cloned();
        known.unwrap_or_else(|| index::strides_of(self.graph.shape(id)))
    }
}

/// Lowers a trace, or names every unsupported operator.
pub(crate) fn lower(trace: &Trace, split: Split) -> Result<Graph, Unsupported> {
    let inputs = trace.inputs.iter().map(|i| i.tensor.clone()).collect();
    let mut to = Lowering { inputs, ..Lowering::default() };
    to.graph.split = Some(split);
    let mut unknown: BTreeSet<String> = BTreeSet::new();
    if let Err(reason) = leaves(trace, &mut to) {
        unknown.insert(reason);
    }
    for call in &trace.nodes {
        // Assertions that the tracer leaves behind compute nothing.
        if call.out.is_empty() && call.op.contains("assert") {
            continue;
        }
        let view = CallView::new(call);
        match one(&view, &mut to) {
            Ok(Some(nodes)) => {
                for (id, meta) in nodes.iter().zip(&call.out) {
                    if let Some(meta) = meta
                        && to.graph.shape(*id) == meta.shape
                    {
                        to.strides.insert(*id, meta.stride.clone());
                    }
                }
                to.results.insert(call.name.clone(), nodes);
            }
            Ok(None) => _ = unknown.insert(call.op.clone()),
            Err(reason) => _ = unknown.insert(format!("{} ({reason})", call.op)),
        }
        if !unknown.is_empty() && !to.results.contains_key(&call.name) {
            // Go on, so that all unknown operators are named: stand in for the result.
            let stand_in = call.out.iter().flatten().map(|m| {
                let zero = to.graph.scalar(0.0, m.dtype);
                to.graph.broadcast(zero, &m.shape)
            });
            let stand_in = stand_in.collect();
            to.results.insert(call.name.clone(), stand_in);
        }
    }
    let outputs = match &trace.outputs {
        Value::Array(items) => items.clone(),
        one => vec![one.clone()],
    };
    for value in &outputs {
        match to.operand(Some(value)) {
            Ok(id) => {
                let id = to.owned(id);
                to.graph.outputs.push(id);
            }
            Err(reason) => _ = unknown.insert(format!("output ({reason})")),
        }
    }
    if unknown.is_empty() {
        Ok(algebra::simplify(&to.graph))
    } else {
        Err(Unsupported { operators: unknown.into_iter().collect() })
    }
}

fn one(call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
    if call.base() == "getitem" {
        let list = call.arg(0, "").and_then(|v| v.get("n")).and_then(Value::as_str);
        let list = list.and_then(|name| to.results.get(name)).ok_or("a list not known here")?;
        let at = call.int(1, "").unwrap_or(0) as usize;
        return Ok(Some(vec![*list.get(at).ok_or("a result that is not computed")?]));
    }
    for family in FAMILIES {
        if let Some(nodes) = family.lower(call, to)? {
            for (i, id) in nodes.iter().enumerate() {
                let wanted = call.result(i)?;
                if to.graph.shape(*id) != wanted.shape {
                    let (shape, traced_shape) = (to.graph.shape(*id), &wanted.shape);
                    return Err(format!("shape {shape:?} where {traced_shape:?} was traced"));
                }
            }
            return Ok(Some(nodes));
        }
    }
    Ok(None)
}

fn leaves(trace: &Trace, to: &mut Lowering) -> Result<(), String> {
    for leaf in &trace.leaves {
        let id = if let Some(slot) = leaf.input {
            let input = trace.inputs.get(slot).ok_or("an input that is not there")?;
            let Some(meta) = &input.tensor else { continue };
            let (strides, offset) = (meta.stride.clone(), meta.offset);
            let op = Op::Leaf(Leaf { source: Source::Input(slot), strides, offset });
            let id = to.graph.push(&input.name, op, meta.shape.clone(), meta.dtype);
            to.strides.insert(id, meta.stride.clone());
            id
        } else {
            let name = leaf.state.as_deref().unwrap_or_default();
            let state = trace.state.iter().find(|s| s.name == name);
            let state = state.ok_or_else(|| format!("state {name} is not in the model"))?;
            let strides = index::strides_of(&state.shape);
            let source = Source::State(name.to_owned());
            let op = Op::Leaf(Leaf { source, strides, offset: 0 });
            to.graph.push(name, op, state.shape.clone(), state.dtype)
        };
        to.results.insert(leaf.name.clone(), vec![id]);
    }
    for constant in &trace.constants {
        let id = if constant.values.len() == 1 {
            let value = trace::number(&constant.values[0]).ok_or("a constant that is no number")?;
            let scalar = to.graph.scalar(value, constant.dtype);
            to.graph.broadcast(scalar, &constant.shape)
        } else {
            let strides = index::strides_of(&constant.shape);
            let source = Source::State(constant.name.clone());
            let op = Op::Leaf(Leaf { source, strides, offset: 0 });
            to.graph.push(&constant.name, op, constant.shape.clone(), constant.dtype)
        };
        to.results.insert(constant.name.clone(), vec![id]);
    }
    Ok(())
}
