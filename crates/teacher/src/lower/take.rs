//! Indexing by loaded indices: embedding, gather, index_select, advanced indexing.

use serde_json::Value;

use super::{CallView, Family, Lowering, wrap};
use crate::dtype::DType;
use crate::index::Expr;
use crate::ir::{NodeId, Op, Pick, axes, axis};

/// See the module.
pub(super) struct Takes;

impl Family for Takes {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let picks = match call.base() {
            "embedding" | "index_select" | "gather" | "index" | "_unsafe_index" => picks(call, to)?,
            _ => return Ok(None),
        };
        let meta = call.result(0)?;
        let src = to.node(call, 0)?;
        let op = Op::Take { src, picks };
        Ok(Some(vec![to.graph.push(call.name(), op, meta.shape.clone(), meta.dtype)]))
    }
}

fn picks(call: &CallView<'_>, to: &mut Lowering) -> Result<Vec<Pick>, String> {
    let src = to.node(call, 0)?;
    let from = to.graph.shape(src).to_vec();
    let out = call.result(0)?.shape.clone();
    match call.base() {
        // weight [V, E], indices [..] -> [.., E]
        "embedding" => {
            let index = to.node(call, 1)?;
            let lead = to.graph.shape(index).len();
            let map = axes(&out)[..lead].to_vec();
            let column = axis(lead, out[lead]);
            Ok(vec![Pick::Loaded { index, map }, Pick::At(column)])
        }
        "index_select" | "gather" => {
            let dim = wrap(call.int(1, "dim").unwrap_or(0), from.len());
            let index = to.node(call, 2)?;
            let whole = call.base() == "gather";
            Ok((0..from.len())
                .map(|d| {
                    if d != dim {
                        return Pick::At(axis(d, out[d]));
                    }
                    let map = if whole { axes(&out) } else { vec![axis(d, out[d])] };
                    Pick::Loaded { index, map }
                })
                .collect())
        }
        _ => advanced(call, to, &from, &out),
    }
}

/// `aten.index`: a list with an index tensor or nothing per dim. The index tensors broadcast
/// together; their dims replace the indexed dims if those are adjacent, else they come first.
fn advanced(
    call: &CallView<'_>,
    to: &mut Lowering,
    from: &[i64],
    out: &[i64],
) -> Result<Vec<Pick>, String> {
    let list = call.arg(1, "indices").and_then(Value::as_array).ok_or("no index list")?.clone();
    let mut indices: Vec<Option<NodeId>> = Vec::new();
    for value in &list {
        indices.push(if value.is_null() { None } else { Some(to.operand(Some(value))?) });
    }
    indices.resize(from.len(), None);
    let used: Vec<usize> = (0..from.len()).filter(|d| indices[*d].is_some()).collect();
    if indices.iter().flatten().any(|i| to.graph.dtype(*i) == DType::Bool) {
        return Err("boolean mask".to_owned());
    }
    let rank = indices.iter().flatten().map(|i| to.graph.shape(*i).len()).max().unwrap_or(0);
    let first = used.first().copied().unwrap_or(0);
    let adjacent = used.windows(2).all(|w| w[1] == w[0] + 1);
    let start = if adjacent { first } else { 0 };
    let all = axes(out);
    let mut next = if adjacent { 0 } else { rank };
    let mut picks = Vec::new();
    for index in &indices {
        if let Some(index) = index {
            let shape = to.graph.shape(*index).to_vec();
            let lead = rank - shape.len();
            let map = shape
                .iter()
                .enumerate()
                .map(|(d, e)| if *e == 1 { Expr::default() } else { all[start + lead + d].clone() })
                .collect();
            picks.push(Pick::Loaded { index: *index, map });
            if adjacent {
                next = start + rank;
            }
        } else {
            picks.push(Pick::At(all[next].clone()));
            next += 1;
        }
    }
    Ok(picks)
}
