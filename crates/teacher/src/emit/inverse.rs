//! Divisions by a value that many elements share become multiplications by its inverse.
//!
//! An IEEE division costs about ten instructions and a branch. A softmax row program on an H200
//! that divides each element by the row's sum is bound by divisions: 398 us, where memory needs 254
//! us. With the inverse it is bound by memory: 262 us. (Medians of 15 runs, 2026-11-20; raw data
//! was not kept. docs/results/kernelbench.md has judged times.) The cost is one more rounding, at
//! most one unit in the last place.

use super::Emitter;
use crate::dtype::DType;
use crate::emit::scalar::Value;
use crate::index::Expr;
use crate::ir::{Fun, NodeId, Op, apply_all};

impl Emitter<'_> {
    /// Whether a function that is discontinuous at whole numbers is applied to a quotient. There
    /// the last digit of a division by a number matters, because the quotient is often a whole
    /// number.
    pub(super) fn jumps_after(&self, quotient: NodeId) -> bool {
        self.graph.nodes.iter().any(|n| match &n.op {
            Op::Map { f, args } => {
                let jumps = matches!(f, Fun::Floor | Fun::Ceil | Fun::Round | Fun::Trunc)
                    || matches!(f, Fun::Remainder | Fun::Fmod | Fun::FloorDiv | Fun::TruncDiv)
                    || matches!(f, Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge)
                    || (*f == Fun::Cast && !n.dtype.is_float());
                jumps && args.iter().any(|a| self.is_view_of(*a, quotient))
            }
            _ => false,
        })
    }

    fn is_view_of(&self, node: NodeId, of: NodeId) -> bool {
        match &self.graph.node(node).op {
            _ if node == of => true,
            Op::View { src, .. } => self.is_view_of(*src, of),
            _ => false,
        }
    }

    /// The inverse of `value`, which is `divisor` at `index`, if it is a number, equal in all
    /// lanes, or known in a scope outside `level`, the scope of the division.
    pub(super) fn inverse(
        &mut self,
        quotient: NodeId,
        divisor: NodeId,
        index: &[Expr],
        value: &Value,
        level: usize,
    ) -> Option<Value> {
        if let Some(number) = value.literal {
            let inverse = 1.0 / number;
            let normal = (inverse as f32).is_normal() && (number as f32).is_normal();
            return (normal && !self.jumps_after(quotient))
                .then(|| Value::number(inverse, DType::F32));
        }
        if value.dtype.compute() != DType::F32 {
            return None;
        }
        if let Some(shared) = self.shared_values.get(&value.text).cloned() {
            // All lanes divide by the same: once before their loop.
            if let Some(known) = self.shared_inverses.get(&shared) {
                return Some(Value::new(known.clone(), DType::F32));
            }
            let made = self.fresh(&format!("inv_{shared}"));
            self.vectors.push(format!("const float {made} = 1.0f / {shared};"));
            self.shared_inverses.insert(shared, made.clone());
            return Some(Value::new(made, DType::F32));
        }
        let (mut node, mut at) = (divisor, index.to_vec());
        while let Op::View { src, map } = &self.graph.node(node).op
            && !self.buffers.contains_key(&node)
        {
            at = apply_all(map, &at);
            node = *src;
        }
        let key = (node, at);
        // Where it stands, which can be deeper than its index alone would allow.
        let outer = self.scopes.iter().rposition(|s| s.memo.contains_key(&key))?;
        if outer >= level {
            return None;
        }
        if let Some(known) = self.scopes[outer].inverses.get(&key) {
            return Some(known.clone());
        }
        let name = format!("inv_{}", self.graph.node(node).name);
        let inner = self.scopes.split_off(outer + 1);
        let made = self.define(&name, &format!("1.0f / {}", value.text), DType::F32);
        self.scopes.extend(inner);
        self.scopes[outer].inverses.insert(key, made.clone());
        Some(made)
    }
}
