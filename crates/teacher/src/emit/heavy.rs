//! The context in which a heavy operator's file is written.

use std::collections::BTreeMap;

use super::scalar::Value;
use super::{Buffer, Emitter};
use crate::index::Expr;
use crate::ir::{Graph, NodeId};
use crate::plan::Target;

/// Given to [`HeavyOp::emit`](crate::heavy::HeavyOp::emit).
///
/// The heavy node is `node`; its operands are `args`, each in memory as `buffers` says (strides of
/// a view included). `stores` are the nodes to write: the heavy node itself, or elementwise results
/// that follow from it (the epilogue). To write element `index` of a store, bind the accumulated
/// value with [`HeavyContext::bind`], then ask the emitter for the store's value there.
#[derive(Debug)]
pub(crate) struct HeavyContext<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) buffers: &'a BTreeMap<NodeId, Buffer>,
    pub(crate) target: &'a Target,
    /// Name of the file and the launcher.
    pub(crate) name: String,
    pub(crate) node: NodeId,
    pub(crate) args: Vec<NodeId>,
    pub(crate) stores: Vec<NodeId>,
    /// Which of the family's variants to write, from 0.
    pub(crate) variant: usize,
    /// Launchers take sizes where the operator can be written so.
    pub(crate) sizes: bool,
    /// The number of rows to tune for, instead of the one that is there.
    pub(crate) like: Option<i64>,
}

impl<'a> HeavyContext<'a> {
    /// An emitter over the graph and the memory of this kernel.
    pub(crate) fn emitter(&self) -> Emitter<'a> {
        Emitter::new(self.graph, self.buffers)
    }

    /// Sets the heavy node's value at `index` to `value` in the emitter's innermost scope.
    pub(crate) fn bind(&self, emitter: &mut Emitter<'_>, index: &[Expr], value: Value) {
        emitter.bind(self.node, index, value);
    }
}
