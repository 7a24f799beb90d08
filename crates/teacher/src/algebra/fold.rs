//! Folding a scale and a shift per channel into the weights of a convolution or a linear layer:
//! batch norm at inference, scalings by a number, layer scale.

use super::Rewriter;
use crate::dtype::DType;
use crate::heavy::Channels;
use crate::index::Expr;
use crate::ir::{Fun, NodeId, Op, apply, axis};

/// `scale[c] * heavy + shift[c]`; both are vectors over channels and depend on weights only.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    heavy: NodeId,
    channels: Channels,
    scale: Option<NodeId>,
    shift: Option<NodeId>,
}

impl Rewriter {
    /// A pointwise function of an affine function of a heavy node, with the scale in the weights.
    pub(super) fn fold(&mut self, id: NodeId) -> Option<NodeId> {
        let Op::Map { f, args } = &self.graph.node(id).op else { return None };
        if !matches!(f, Fun::Add | Fun::Sub | Fun::Mul | Fun::Div) || args.len() != 2 {
            return None;
        }
        let (f, pair) = (*f, [args[0], args[1]]);
        let dtype = self.graph.dtype(id);
        if !matches!(dtype, DType::F32 | DType::F64) {
            return None;
        }
        for first in [true, false] {
            let (inner, other) = if first { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
            if f == Fun::Div && !first {
                continue;
            }
            let Some(affine) = self.affine_of(inner) else { continue };
            let Some(vector) = self.channel_vector(other, &affine, dtype) else { continue };
            let folded = self.then(&affine, f, first, vector);
            let node = self.build(id, &folded);
            self.affine.insert(node, folded);
            return Some(node);
        }
        None
    }

    /// A node as an affine function, if it has no other user.
    fn affine_of(&mut self, id: NodeId) -> Option<Affine> {
        if !self.used_once(id) {
            return None;
        }
        if let Some(known) = self.affine.get(&id) {
            return Some(known.clone());
        }
        let Op::Heavy { op, args } = &self.graph.node(id).op else { return None };
        let (op, args) = (op.clone(), args.clone());
        let channels = op.channels(&self.graph, &args)?;
        let weights = args[channels.weights];
        self.is_fixed(weights).then_some(Affine { heavy: id, channels, scale: None, shift: None })
    }

    /// A node as a vector over channels, if it depends on nothing else.
    fn channel_vector(&mut self, node: NodeId, affine: &Affine, dtype: DType) -> Option<NodeId> {
        if !self.is_fixed(node)
            || self.graph.dtype(node).compute() != dtype && !self.is_number(node)
        {
            return None;
        }
        let Op::View { src, map } = &self.graph.node(node).op else { return None };
        let (src, map) = (*src, map.clone());
        let shape = self.graph.shape(node).to_vec();
        let others = |e: &Expr| {
            (0..shape.len()).any(|d| d != affine.channels.axis && e.mentions(&format!("#{d}")))
        };
        if map.iter().any(others) {
            return None;
        }
        let count = shape[affine.channels.axis];
        let mut place = vec![Expr::default(); shape.len()];
        place[affine.channels.axis] = axis(0, count);
        let map = map.iter().map(|e| apply(e, &place)).collect();
        Some(self.graph.view(src, map, vec![count]))
    }

    fn is_number(&self, node: NodeId) -> bool {
        super::number(&self.graph, node).is_some()
    }

    /// Applies one more function: `affine f vector`, or `vector f affine`.
    fn then(&mut self, affine: &Affine, f: Fun, first: bool, vector: NodeId) -> Affine {
        let heavy = affine.heavy;
        let dtype = self.graph.dtype(heavy);
        let count = self.graph.shape(vector).to_vec();
        let name = self.graph.node(heavy).name.clone();
        let mut map = |f, args: &[NodeId], what: &str| {
            self.graph.map(&format!("{name}_{what}"), f, args, &count, dtype)
        };
        let mut out = affine.clone();
        match f {
            Fun::Mul | Fun::Div => {
                out.scale = Some(match (affine.scale, f) {
                    (Some(s), _) => map(f, &[s, vector], "scale"),
                    (None, Fun::Mul) => vector,
                    (None, _) => map(Fun::Reciprocal, &[vector], "scale"),
                });
                out.shift = affine.shift.map(|s| map(f, &[s, vector], "shift"));
            }
            Fun::Add => {
                out.shift =
                    Some(affine.shift.map_or(vector, |s| map(Fun::Add, &[s, vector], "shift")));
            }
            _ if first => {
                out.shift = Some(match affine.shift {
                    Some(s) => map(Fun::Sub, &[s, vector], "shift"),
                    None => map(Fun::Neg, &[vector], "shift"),
                });
            }
            _ => {
                out.shift =
                    Some(affine.shift.map_or(vector, |s| map(Fun::Sub, &[vector, s], "shift")));
                out.scale = Some(if let Some(s) = affine.scale {
                    map(Fun::Neg, &[s], "scale")
                } else {
                    let minus = self.graph.scalar(-1.0, dtype);
                    self.graph.broadcast(minus, &count)
                });
            }
        }
        out
    }

    /// The heavy node with scaled weights, plus the shift. Without a scale, the node itself:
    /// a lone shift stays an addition.
    fn build(&mut self, id: NodeId, affine: &Affine) -> NodeId {
        let Some(scale) = affine.scale else { return id };
        let heavy = self.graph.node(affine.heavy).clone();
        let Op::Heavy { op, args } = heavy.op else { return id };
        let weights = args[affine.channels.weights];
        let (shape, dtype) = (self.graph.shape(weights).to_vec(), self.graph.dtype(weights));
        let along = self.graph.view(scale, vec![affine.channels.of_weight.clone()], shape.clone());
        let name = format!("{}_weights", heavy.name);
        let scaled = self.graph.map(&name, Fun::Mul, &[weights, along], &shape, dtype);
        let mut args = args;
        args[affine.channels.weights] = scaled;
        let result =
            self.graph.push(&heavy.name, Op::Heavy { op, args }, heavy.shape.clone(), heavy.dtype);
        let Some(shift) = affine.shift else { return result };
        let at = vec![crate::ir::axes(&heavy.shape)[affine.channels.axis].clone()];
        let shift = self.graph.view(shift, at, heavy.shape.clone());
        let name = self.graph.node(id).name.clone();
        self.graph.map(&name, Fun::Add, &[result, shift], &heavy.shape, heavy.dtype)
    }
}
