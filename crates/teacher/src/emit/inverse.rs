//! Division by what many elements share becomes multiplication by its inverse.
//!
//! An IEEE division costs about ten instructions and a branch; on an H200 a softmax row program
//! that divides each element by the row's sum is bound by them (398 us where memory needs 254),
//! and by memory without them (262 us): medians of 15 runs of a throwaway program on 2026-11-20, whose raw
//! data was not kept; the judged times are under docs/measurements/. One rounding more: at most one unit in the last place.

use super::Emitter;
use crate::dtype::DType;
use crate::emit::scalar::Value;
use crate::index::Expr;
use crate::ir::{NodeId, Op, apply_all};

impl Emitter<'_> {
    /// The inverse of `value`, which is `divisor` at `index`, if it is known in an outer scope than
    /// `level`, where the division stands.
    pub(super) fn inverse(
        &mut self,
        divisor: NodeId,
        index: &[Expr],
        value: &Value,
        level: usize,
    ) -> Option<Value> {
        if value.literal.is_some() || value.dtype.compute() != DType::F32 {
            return None;
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
