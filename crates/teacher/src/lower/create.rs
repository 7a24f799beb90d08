//! Tensors without inputs: ranges, constants.

use super::{CallView, Family, Lowering};
use crate::dtype::DType;
use crate::ir::{Fun, NodeId, Op, axis};
use crate::trace;

/// See the module.
pub(super) struct Creation;

impl Family for Creation {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let base = call.base();
        let fill = match base {
            "full" | "full_like" => call.arg(1, "fill_value").and_then(trace::number),
            "new_full" => call.arg(2, "fill_value").and_then(trace::number),
            "scalar_tensor" => call.arg(0, "s").and_then(trace::number),
            "zeros" | "zeros_like" | "new_zeros" => Some(0.0),
            "ones" | "ones_like" | "new_ones" => Some(1.0),
            // What is never written has any value; zero is one.
            "empty" | "empty_like" | "new_empty" | "empty_strided" | "new_empty_strided" => {
                Some(0.0)
            }
            "arange" | "iota" => return range(call, to).map(|id| Some(vec![id])),
            _ => return Ok(None),
        };
        let meta = call.result(0)?;
        let value = to.graph.scalar(fill.ok_or("a fill value that is not a number")?, meta.dtype);
        Ok(Some(vec![to.graph.broadcast(value, &meta.shape)]))
    }
}

fn range(call: &CallView<'_>, to: &mut Lowering) -> Result<NodeId, String> {
    let meta = call.result(0)?;
    let (name, shape, dtype) = (call.name(), meta.shape.clone(), meta.dtype);
    let (start, step) = if call.base() == "iota" {
        (call.float(1, "start").unwrap_or(0.0), call.float(2, "step").unwrap_or(1.0))
    } else {
        (call.float(0, "start").unwrap_or(0.0), call.float(2, "step").unwrap_or(1.0))
    };
    let count = axis(0, shape.first().copied().unwrap_or(1));
    let position = to.graph.push(name, Op::Index(count), shape.clone(), DType::I64);
    if start.fract() == 0.0 && step.fract() == 0.0 {
        let at = axis(0, shape.first().copied().unwrap_or(1)).mul(step as i64);
        let id =
            to.graph.push(name, Op::Index(at.add_const(start as i64)), shape.clone(), DType::I64);
        return Ok(if dtype == DType::I64 {
            id
        } else {
            to.graph.map(name, Fun::Cast, &[id], &shape, dtype)
        });
    }
    let (start, step) = (to.graph.scalar(start, DType::F64), to.graph.scalar(step, DType::F64));
    let scaled = to.graph.map(name, Fun::Mul, &[position, step], &shape, dtype);
    Ok(to.graph.map(name, Fun::Add, &[scaled, start], &shape, dtype))
}
