//! Loads: parameters, vector accesses, and indices that are themselves loaded.

use super::scalar::{Value, from_storage};
use super::{Emitter, Scope, address};
use crate::dtype::DType;
use crate::index::{self, Expr};
use crate::ir::{NodeId, Op, Pick, apply, apply_all};

impl Emitter<'_> {
    /// The source index of a gather: loaded indices become variables.
    pub(super) fn picked(
        &mut self,
        src: NodeId,
        picks: &[Pick],
        index: &[Expr],
    ) -> Result<Vec<Expr>, String> {
        let mut at = Vec::new();
        for (d, pick) in picks.iter().enumerate() {
            at.push(match pick {
                Pick::At(e) => apply(e, index),
                Pick::Loaded { index: from, map } => {
                    let extent = self.graph.shape(src)[d];
                    self.loaded_index(*from, &apply_all(map, index), extent)?
                }
            });
        }
        Ok(at)
    }

    /// An index read from memory, as a variable; negative values count from the end.
    fn loaded_index(&mut self, from: NodeId, at: &[Expr], extent: i64) -> Result<Expr, String> {
        let in_lanes = self.scopes.len() == self.element_scope + 1;
        let shared = self.lanes.as_ref().and_then(|l| l.first_lane(at)).filter(|_| in_lanes);
        if let Some(first) = shared {
            let key = (from, first.clone());
            if let Some(var) = self.shared_picks.get(&key) {
                return Ok(Expr::var(var, extent.max(2)));
            }
            self.scopes.push(Scope { closed: true, ..Scope::default() });
            let picked = self.pick(from, &first, extent);
            let lines = self.scopes.pop().unwrap_or_default().lines;
            self.vectors.extend(lines.into_iter().map(|l| l.text));
            let picked = picked?;
            picked.visit_vars(&mut |v| {
                self.shared_picks.insert(key.clone(), v.name.to_string());
                if let Some(scope) = self.scopes.last_mut() {
                    scope.vars.insert(v.name.to_string());
                }
            });
            return Ok(picked);
        }
        let picked = self.pick(from, at, extent)?;
        if in_lanes {
            picked.visit_vars(&mut |v| _ = self.lane_picks.insert(v.name.to_string()));
        }
        Ok(picked)
    }

    fn pick(&mut self, from: NodeId, at: &[Expr], extent: i64) -> Result<Expr, String> {
        let loaded = self.value(from, at)?;
        if let Some(x) = loaded.literal {
            return Ok(Expr::constant((x as i64).rem_euclid(extent.max(1))));
        }
        let text = &loaded.text;
        let wrapped = format!("(int)({text} < 0 ? {text} + {extent} : {text})");
        let value = self.define("at", &wrapped, DType::I32);
        self.declare(&value.text);
        Ok(Expr::var(&value.text, extent.max(2)))
    }

    /// The parameter through which a node is read, made at the first call.
    pub(crate) fn param(&mut self, node: NodeId) -> String {
        if let Some(name) = self.params.get(&node) {
            return name.clone();
        }
        let base = self.graph.node(node).name.clone();
        let name = self.fresh(&base);
        self.params.insert(node, name.clone());
        self.reads.push(node);
        name
    }

    /// The parameter through which a node is read or written.
    pub(crate) fn param_of(&self, node: NodeId) -> &str {
        self.params.get(&node).map_or("", String::as_str)
    }

    /// A name for a stored node, distinct from all others.
    pub(crate) fn output_param(&mut self, node: NodeId) -> String {
        let base = format!("{}_out", self.graph.node(node).name);
        self.fresh(&base)
    }

    pub(super) fn load(
        &mut self,
        node: NodeId,
        index: &[Expr],
        level: usize,
    ) -> Result<Value, String> {
        let buffer = self.buffers.get(&node).ok_or("a buffer vanished")?;
        let (dtype, offset) = (buffer.dtype, index::dot(index, &buffer.strides));
        let param = self.param(node);
        if level == self.element_scope
            && let Some(lanes) = self.lanes.clone()
            && let Some(base) = lanes.vector_base(&offset)
            && !self.lane_picks.iter().any(|v| offset.mentions(v))
            && self.is_aligned(node, lanes.width)
        {
            let memo = (node, base.clone());
            let vector = if let Some(name) = self.vector_memo.get(&memo) {
                name.clone()
            } else {
                let name = self.fresh(&format!("{param}_vec"));
                let load = if self.streaming { "load_streaming" } else { "load" };
                let text = format!("const auto {name} = {load}<kVec>({});", address(&param, &base));
                self.vectors.push(text);
                self.vector_memo.insert(memo, name.clone());
                name
            };
            let text = from_storage(&format!("{vector}.at[j]"), dtype);
            return Ok(self.define(&format!("{param}_at"), &text, dtype));
        }
        let linear = self.lanes.as_ref().and_then(|l| l.linear_base(&offset));
        let at = match linear.filter(|_| level >= self.element_scope) {
            Some(base) => format!("{} + j", base.print(false)),
            None => offset.print(false),
        };
        if dtype == DType::Bool && self.lanes.as_ref().is_some_and(|l| !l.vector) {
            // The host's compiler does not vectorise a select on a loaded bool.
            let text = format!("((const uint8_t*){param})[{at}] != 0");
            return Ok(self.define(&format!("{param}_at"), &text, dtype));
        }
        let text = from_storage(&format!("{param}[{at}]"), dtype);
        Ok(self.define(&format!("{param}_at"), &text, dtype))
    }

    /// Whether a tensor's first element stands where a vector access may: an input can be a slice
    /// that begins anywhere in its storage.
    fn is_aligned(&self, node: NodeId, width: i64) -> bool {
        let Op::Leaf(leaf) = &self.graph.node(node).op else { return true };
        let size = self.graph.dtype(node).size();
        (leaf.offset * size) % (size * width).min(16) == 0
    }
}
