//! Online softmax: the sum of exponentials less the maximum, in the pass that finds the maximum.
//!
//! Softmax and log-sum-exp need the row's maximum before they can add `exp(x - maximum)`: two
//! passes. A thread can use one pass: when it meets a larger element it rescales its sum. This is
//! faster if a row is too long for the registers, so that each pass would read it again.

use super::rows::{Online, RowProgram};
use crate::dtype::DType;
use crate::ir::{Fun, Graph, NodeId, Op, ReduceKind};

/// Minimum row length; shorter rows are kept in registers between passes.
const LONG: i64 = 8192;

/// The program with such sums moved to the pass of their maximum.
pub(crate) fn merge(program: &RowProgram, graph: &Graph) -> RowProgram {
    let mut out = program.clone();
    if program.frame.cols() < LONG {
        return out;
    }
    for p in 1..out.passes.len() {
        let (before, after) = out.passes.split_at_mut(p);
        let (Some(host), Some(pass)) = (before.last_mut(), after.first_mut()) else { continue };
        let found: Vec<Online> =
            pass.iter().flat_map(|s| host.iter().filter_map(|m| matching(graph, *s, *m))).collect();
        pass.retain(|r| found.iter().all(|o| o.sum != *r));
        // After its maximum, whose final value it needs.
        host.extend(found.iter().map(|o| o.sum));
        out.online.extend(found);
    }
    out.passes.retain(|p| !p.is_empty());
    out
}

/// Whether `sum` adds `exp(x - maximum)` over the elements that `maximum` is the largest of.
fn matching(graph: &Graph, sum: NodeId, maximum: NodeId) -> Option<Online> {
    let Op::Reduce { kind: ReduceKind::Sum, src, dims, .. } = &graph.node(sum).op else {
        return None;
    };
    let Op::Reduce { kind: ReduceKind::Max, src: x, dims: same, .. } = &graph.node(maximum).op
    else {
        return None;
    };
    let (Fun::Exp, [power]) = function(graph, *src)? else { return None };
    let (Fun::Sub, [from, less]) = function(graph, *power)? else { return None };
    let single = graph.dtype(sum) == DType::F32 && graph.dtype(*x) == DType::F32;
    if from != x || dims != same || !single {
        return None;
    }
    let less = source(graph, *less);
    if less == maximum {
        return Some(Online { sum, maximum, guarded: false });
    }
    let (Fun::Where, [infinite, zero, finite]) = function(graph, less)? else { return None };
    let (Fun::Eq, [size, bound]) = function(graph, source(graph, *infinite))? else { return None };
    let (Fun::Abs, [of]) = function(graph, source(graph, *size))? else { return None };
    let is = |n: NodeId, x: f64| matches!(graph.node(source(graph, n)).op, Op::Scalar(v) if v.total_cmp(&x).is_eq());
    let guarded = is(*zero, 0.0)
        && is(*bound, f64::INFINITY)
        && source(graph, *finite) == maximum
        && source(graph, *of) == maximum;
    guarded.then_some(Online { sum, maximum, guarded: true })
}

fn function(graph: &Graph, node: NodeId) -> Option<(Fun, &[NodeId])> {
    match &graph.node(node).op {
        Op::Map { f, args } => Some((*f, args)),
        _ => None,
    }
}

/// The node under a node's views.
fn source(graph: &Graph, node: NodeId) -> NodeId {
    match &graph.node(node).op {
        Op::View { src, .. } => source(graph, *src),
        _ => node,
    }
}

impl Online {
    /// Adds an element.
    pub(crate) fn update(name: &str, element: &str) -> String {
        format!("add_exponential({name}_high, {name}, {element});")
    }

    /// Converts a thread's sum to the row's, once the row's `maximum` is known; `reduce` adds the
    /// sums of the row's threads.
    pub(crate) fn finish(self, name: &str, maximum: &str, reduce: &str) -> Vec<String> {
        let other = if self.guarded {
            format!("({maximum} > 0.0f ? INFINITY : 0.0f)")
        } else {
            "NAN".to_owned()
        };
        vec![
            format!("if ({name}_high != {maximum}) {name} *= expf({name}_high - {maximum});"),
            format!("{name} = {reduce}({name});"),
            format!("if (fabsf({maximum}) == INFINITY) {name} = {other};"),
        ]
    }
}
