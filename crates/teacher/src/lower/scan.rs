//! Running sums, products and log-sum-exps along one dim.

use super::{CallView, Family, Lowering};
use crate::ir::{Fun, NodeId, Op, ScanKind};

/// See the module.
pub(super) struct Scans;

impl Family for Scans {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let kind = match call.base() {
            "cumsum" => ScanKind::Sum,
            "cumprod" => ScanKind::Prod,
            "logcumsumexp" | "_logcumsumexp" => ScanKind::LogSumExp,
            _ => return Ok(None),
        };
        let src = to.node(call, 0)?;
        let meta = call.result(0)?;
        let name = call.name();
        let src = to.graph.map(name, Fun::Cast, &[src], &meta.shape, meta.dtype);
        if meta.shape.is_empty() {
            return Ok(Some(vec![src]));
        }
        let dim = super::wrap(call.int(1, "dim").unwrap_or(0), meta.shape.len());
        if meta.shape[dim] == 1 {
            return Ok(Some(vec![src]));
        }
        let op = Op::Scan { kind, src, dim };
        Ok(Some(vec![to.graph.push(name, op, meta.shape.clone(), meta.dtype)]))
    }
}
