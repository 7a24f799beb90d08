//! A sum over the columns (or rows) of a matrix product is computed without the product: `sum_n
//! sum_k a[m, k] b[k, n] = sum_k a[m, k] (sum_n b[k, n])`.
//!
//! The sum is pushed through additions, scalings and views down to the product.

use super::{Rewriter, drop_dims};
use crate::dtype::DType;
use crate::index::{Expr, numel};
use crate::ir::{Fun, NodeId, Op, ReduceKind, apply_all, axes};

impl Rewriter {
    /// The reduction `id` without the product under it, if there is one.
    pub(super) fn sum_of_product(&mut self, id: NodeId) -> Option<NodeId> {
        let Op::Reduce { kind: ReduceKind::Sum, src, dims, inline: false } =
            &self.graph.node(id).op
        else {
            return None;
        };
        let (src, dims) = (*src, dims.clone());
        let dtype = self.graph.dtype(id);
        if !matches!(dtype, DType::F32 | DType::F64) || self.graph.dtype(src) != dtype {
            return None;
        }
        self.pushed(src, &dims)
    }

    /// The sum of `node` over `dims`, if that eliminates a product.
    fn pushed(&mut self, node: NodeId, dims: &[usize]) -> Option<NodeId> {
        if !self.used_once(node) {
            return None;
        }
        let found = self.graph.node(node).clone();
        let (shape, _) = drop_dims(&found.shape, dims);
        match &found.op {
            Op::Map { f: f @ (Fun::Add | Fun::Sub), args } => {
                let (left, right) = (self.pushed(args[0], dims), self.pushed(args[1], dims));
                if left.is_none() && right.is_none() {
                    return None;
                }
                let left = left.unwrap_or_else(|| self.total(args[0], dims));
                let right = right.unwrap_or_else(|| self.total(args[1], dims));
                Some(self.graph.map(&found.name, *f, &[left, right], &shape, found.dtype))
            }
            Op::Map { f: f @ (Fun::Mul | Fun::Div), args } => {
                for first in [true, false] {
                    let (inner, factor) =
                        if first { (args[0], args[1]) } else { (args[1], args[0]) };
                    if *f == Fun::Div && !first {
                        continue;
                    }
                    let Some(factor) = self.without(factor, dims) else { continue };
                    let Some(sum) = self.pushed(inner, dims) else { continue };
                    return Some(self.graph.map(
                        &found.name,
                        *f,
                        &[sum, factor],
                        &shape,
                        found.dtype,
                    ));
                }
                None
            }
            Op::Map { f: Fun::Neg, args } => {
                let sum = self.pushed(args[0], dims)?;
                Some(self.graph.map(&found.name, Fun::Neg, &[sum], &shape, found.dtype))
            }
            Op::Heavy { .. } => self.product(node, node, &axes(&found.shape), dims),
            Op::View { src, map } if self.used_once(*src) => match &self.graph.node(*src).op {
                Op::Heavy { .. } => self.product(node, *src, map, dims),
                Op::Map { .. } => self.through_view(*src, map, &found.shape, dims),
                _ => None,
            },
            _ => None,
        }
    }

    /// A reshape between the sum and its operand, e.g. `[b, s, n]` of `[b * s, n]`: both sides have
    /// the same last dim, and the sum runs over it.
    fn through_view(
        &mut self,
        src: NodeId,
        map: &[Expr],
        shape: &[i64],
        dims: &[usize],
    ) -> Option<NodeId> {
        let (last, inner) = (shape.len() - 1, map.len().checked_sub(1)?);
        let same = self.graph.shape(src)[inner] == shape[last] && map[inner] == axes(shape)[last];
        let apart = !map[..inner].iter().any(|e| e.mentions(&format!("#{last}")));
        if dims != [last] || !same || !apart || shape[last] < 2 {
            return None;
        }
        let sum = self.pushed(src, &[inner])?;
        Some(self.graph.view(sum, map[..inner].to_vec(), shape[..last].to_vec()))
    }

    /// The plain sum over `dims` of a node without a product; a broadcast value is summed before it
    /// is broadcast.
    fn total(&mut self, node: NodeId, dims: &[usize]) -> NodeId {
        let found = self.graph.node(node).clone();
        let (left, _) = drop_dims(&found.shape, dims);
        let count: i64 = dims.iter().map(|d| found.shape[*d]).product();
        let name = format!("{}_total", found.name);
        if let Some(constant) = self.without(node, dims) {
            let count = self.graph.scalar(count as f64, DType::F64);
            return self.graph.map(&name, Fun::Mul, &[constant, count], &left, found.dtype);
        }
        if let Op::View { src, map } = &found.op {
            let (src, map) = (*src, map.clone());
            let kept: Vec<usize> = (0..found.shape.len()).filter(|d| !dims.contains(d)).collect();
            let varies = |d: &usize| map.iter().any(|e| e.mentions(&format!("#{d}")));
            if !kept.iter().any(varies) {
                let (inner, place) = drop_dims(&found.shape, &kept);
                let inside = self.graph.view(src, apply_all(&map, &place), inner);
                let sum =
                    self.graph.reduce(&name, ReduceKind::Sum, inside, &[], false, found.dtype);
                return self.graph.broadcast(sum, &left);
            }
        }
        self.graph.reduce(&name, ReduceKind::Sum, node, dims, false, found.dtype)
    }

    /// The sum over `dims` of `heavy` at `map`, which is `node`.
    fn product(
        &mut self,
        node: NodeId,
        heavy: NodeId,
        map: &[Expr],
        dims: &[usize],
    ) -> Option<NodeId> {
        let Op::Heavy { op, args } = &self.graph.node(heavy).op else { return None };
        let rank = op.as_product()?.rank;
        let (a, b) = (args[0], args[1]);
        let product = self.graph.node(heavy).clone();
        let shape = self.graph.shape(node).to_vec();
        let all = axes(&shape);
        // The summed dim that is all of the product's dim `p`, and nothing else.
        let whole = |p: usize| {
            dims.iter().copied().find(|d| {
                let alone =
                    map.iter().enumerate().all(|(q, e)| q == p || !e.mentions(&format!("#{d}")));
                shape[*d] > 1 && map[p] == all[*d] && shape[*d] == product.shape[p] && alone
            })
        };
        let (over_row, over_col) = (whole(rank - 2), whole(rank - 1));
        if over_row.is_none() && over_col.is_none() {
            return None;
        }
        let name = product.name.as_str();
        let dtype = product.dtype;
        let lead = rank - 2;
        let k = self.graph.shape(a)[rank - 1];
        // What is left of the product's dims, with the depth behind them.
        let mut wide: Vec<i64> = product.shape[..lead].to_vec();
        wide.extend(over_row.is_none().then(|| product.shape[lead]));
        wide.extend(over_col.is_none().then(|| product.shape[lead + 1]));
        wide.push(k);
        let index = axes(&wide);
        let depth = index[index.len() - 1].clone();
        let batch = index[..lead].to_vec();
        let side = |graph: &mut crate::ir::Graph,
                    x: NodeId,
                    dim: usize,
                    gone: bool,
                    at: Expr,
                    suffix: &str| {
            let mut place = batch.clone();
            let x = if gone {
                graph.reduce(&format!("{name}_{suffix}"), ReduceKind::Sum, x, &[dim], false, dtype)
            } else {
                place.push(at);
                x
            };
            // The depth comes first in the right operand.
            let depth_at = if dim == lead { place.len() } else { lead };
            place.insert(depth_at, depth.clone());
            graph.view(x, place, wide.clone())
        };
        let row_at = index[lead].clone();
        let col_at = index[lead + usize::from(over_row.is_none())].clone();
        let x = side(&mut self.graph, a, lead, over_row.is_some(), row_at, "rows");
        let w = side(&mut self.graph, b, lead + 1, over_col.is_some(), col_at, "columns");
        let terms = self.graph.map(&format!("{name}_terms"), Fun::Mul, &[x, w], &wide, dtype);
        let last = wide.len() - 1;
        let dot = self.graph.reduce(name, ReduceKind::Sum, terms, &[last], false, dtype);
        let gone: Vec<usize> = [over_row, over_col].into_iter().flatten().collect();
        let (left, place) = drop_dims(&shape, &gone);
        let kept = (0..rank).filter(|p| {
            !(*p == lead && over_row.is_some() || *p == lead + 1 && over_col.is_some())
        });
        let at: Vec<Expr> = kept.map(|p| crate::ir::apply(&map[p], &place)).collect();
        let seen = self.graph.view(dot, at, left.clone());
        let rest: Vec<usize> = dims
            .iter()
            .filter(|d| !gone.contains(d))
            .map(|d| d - gone.iter().filter(|g| *g < d).count())
            .collect();
        if rest.is_empty() || numel(&left) == 0 {
            return Some(seen);
        }
        Some(self.graph.reduce(&format!("{name}_sum"), ReduceKind::Sum, seen, &rest, false, dtype))
    }
}
