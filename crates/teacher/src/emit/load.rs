//! Loads: parameters, vector accesses, and indices that are themselves loaded.

use super::scalar::{Value, from_storage};
use super::{Emitter, Scope, address};
use crate::dtype::DType;
use crate::index::{self, Expr};
use crate::ir::{Bound, NodeId, Op, Pick, apply, apply_all, stem};

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
        let graph = self.graph;
        let found = graph.node(node);
        // What the reference has is called as it is there.
        let is_its_own = matches!(found.op, Op::Leaf(_));
        let name = if is_its_own { self.exactly(&found.name) } else { self.fresh(&found.name) };
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
        let base = format!("{}_out", stem(&self.graph.node(node).name));
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
        if let Some(vector) = self.guarded_load(node, &offset, level) {
            let text = from_storage(&format!("{vector}.at[j]"), dtype);
            return Ok(self.define(&format!("{param}_at"), &text, dtype));
        }
        if let Some(shared) = self.shared_load(node, &offset, level) {
            let value = self.define(&format!("{param}_at"), &shared, dtype);
            self.shared_values.insert(value.text.clone(), shared);
            return Ok(value);
        }
        if let Some((pack, k)) = self.packed(node, &offset, level) {
            let text = from_storage(&format!("{pack}.at[{k}]"), dtype);
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

    /// An expression at lane 0, if all lanes have the same and it is known before their loop.
    pub(super) fn before_lanes(&self, e: &Expr) -> Option<Expr> {
        let first = self.lanes.as_ref()?.first_lane(std::slice::from_ref(e))?.pop()?;
        self.is_known_before_lanes(e).then_some(first)
    }

    /// A bound's expression at lane 0, if all lanes from there are inside or all are outside: the
    /// expression and the bound are multiples of the number of lanes.
    pub(super) fn bound_before_lanes(&self, e: &Expr, bound: &Bound) -> Option<Expr> {
        let lanes = self.lanes.as_ref()?;
        let multiples = bound.low % lanes.width == 0 && bound.high % lanes.width == 0;
        let first = lanes.vector_base(e).filter(|_| multiples)?;
        self.is_known_before_lanes(e).then_some(first)
    }

    fn is_known_before_lanes(&self, e: &Expr) -> bool {
        let outer = self.scopes.get(..=self.element_scope).unwrap_or_default();
        let mut known = true;
        e.visit_vars(&mut |v| {
            known &= outer.iter().any(|s| s.vars.contains(&*v.name));
            known &= !self.lane_picks.contains(&*v.name);
        });
        known
    }

    /// A vector load under conditions that are equal in all lanes; it is placed before the lane
    /// loop, under the same conditions.
    fn guarded_load(&mut self, node: NodeId, offset: &Expr, level: usize) -> Option<String> {
        let lanes = self.lanes.as_ref().filter(|_| level > self.element_scope)?;
        let (base, width) = (lanes.vector_base(offset)?, lanes.width);
        let conditions: Option<Vec<String>> = self.guards.iter().cloned().collect();
        let conditions = conditions.filter(|c| !c.is_empty())?;
        if !self.is_known_before_lanes(offset) || !self.is_aligned(node, width) {
            return None;
        }
        if let Some(known) = self.vector_memo.get(&(node, base.clone())) {
            return Some(known.clone());
        }
        let param = self.param(node);
        let from = address(&param, &base);
        let condition = conditions.join(" && ");
        let key = format!("{from} if {condition}");
        if let Some(known) = self.guarded_loads.get(&key) {
            return Some(known.clone());
        }
        let name = self.fresh(&format!("{param}_vec"));
        let storage = self.graph.dtype(node).storage();
        let load = if self.streaming { "load_streaming" } else { "load" };
        self.vectors.push(format!("Vec<{storage}, kVec> {name} = {{}};"));
        self.vectors.push(format!("if ({condition}) {name} = {load}<kVec>({from});"));
        self.guarded_loads.insert(key, name.clone());
        Some(name)
    }

    /// A value that all lanes share, loaded before their loop.
    fn shared_load(&mut self, node: NodeId, offset: &Expr, level: usize) -> Option<String> {
        let lanes = self.lanes.as_ref().filter(|_| level == self.element_scope)?;
        let first = lanes.first_lane(std::slice::from_ref(offset))?.pop()?;
        if self.lane_picks.iter().any(|v| offset.mentions(v)) {
            return None;
        }
        let key = (node, first.clone());
        if let Some(known) = self.shared_loads.get(&key) {
            return Some(known.clone());
        }
        let dtype = self.graph.dtype(node);
        let param = self.param(node);
        let text = match self.packed_row(node, &first) {
            Some((start, width, k)) => {
                let row = (node, start.clone());
                let pack = if let Some(known) = self.vector_memo.get(&row) {
                    known.clone()
                } else {
                    let pack = self.fresh(&format!("{param}_row"));
                    let from = address(&param, &start);
                    self.vectors.push(format!("const auto {pack} = load<{width}>({from});"));
                    self.vector_memo.insert(row, pack.clone());
                    pack
                };
                from_storage(&format!("{pack}.at[{k}]"), dtype)
            }
            None => from_storage(&format!("{param}[{}]", first.print(false)), dtype),
        };
        let name = self.fresh(&format!("{param}_shared"));
        self.vectors.push(format!("const {} {name} = {text};", dtype.compute().register()));
        self.shared_loads.insert(key, name.clone());
        Some(name)
    }

    /// A tensor of rows of two or four elements: the row that holds an element, as one access.
    fn packed(&mut self, node: NodeId, offset: &Expr, level: usize) -> Option<(String, i64)> {
        let scope = self.scopes.get(level)?;
        if scope.lane_arrays || self.lanes.as_ref().is_some_and(|l| !l.vector) {
            return None;
        }
        let (start, width, k) = self.packed_row(node, offset)?;
        let key = (node, start.clone());
        if let Some(known) = self.scopes.iter().rev().find_map(|s| s.packs.get(&key)) {
            return Some((known.clone(), k));
        }
        let param = self.param(node);
        let pack = self.fresh(&format!("{param}_row"));
        let from = address(&param, &start);
        self.line(format!("const auto {pack} = load<{width}>({from});"));
        self.scopes.last_mut()?.packs.insert(key, pack.clone());
        Some((pack, k))
    }

    /// Where such a row starts, its length, and the element's place in it.
    fn packed_row(&self, node: NodeId, offset: &Expr) -> Option<(Expr, i64, i64)> {
        let buffer = self.buffers.get(&node)?;
        let width = self.graph.shape(node).last().copied()?;
        let dense = buffer.strides.last() == Some(&1) && matches!(width, 2 | 4);
        let size = buffer.dtype.size() * width;
        if !dense || size > 16 || buffer.dtype == DType::Bool || !self.is_aligned(node, width) {
            return None;
        }
        let (start, k) = offset.split_multiple(width)?;
        Some((start, width, k))
    }

    /// Whether a tensor's first element is aligned for a vector access: an input can be a slice
    /// that begins anywhere in its storage.
    fn is_aligned(&self, node: NodeId, width: i64) -> bool {
        let Op::Leaf(leaf) = &self.graph.node(node).op else { return true };
        let size = self.graph.dtype(node).size();
        (leaf.offset * size) % (size * width).min(16) == 0
    }
}
