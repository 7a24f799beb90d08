//! Reductions computed where their value is used, because they are too short for a kernel or a part
//! of a warp.

use super::{Accumulator, Emitter, Scope, Value};
use crate::index::{self, Expr};
use crate::ir::{NodeId, ReduceKind, reduction_index};

/// In-place reductions over at most this many elements are unrolled.
const MOST_UNROLLED: i64 = 4;

impl Emitter<'_> {
    /// A short reduction as nested loops in place: pooling windows, small dims.
    pub(super) fn inline_reduction(
        &mut self,
        name: &str,
        kind: ReduceKind,
        src: NodeId,
        dims: &[usize],
        index: &[Expr],
    ) -> Result<Value, String> {
        let (graph, dtype) = (self.graph, self.graph.dtype(src));
        let inner = graph.inner_of(src, dims);
        if index::numel(&inner) <= MOST_UNROLLED
            && !matches!(kind, ReduceKind::ArgMax | ReduceKind::ArgMin)
        {
            return self.unrolled_reduction(name, kind, src, dims, index);
        }
        let vars: Vec<String> = inner.iter().map(|_| self.fresh("r")).collect();
        let exprs: Vec<Expr> = vars.iter().zip(&inner).map(|(v, e)| Expr::var(v, *e)).collect();
        let at = reduction_index(graph.shape(src).len(), dims, index, &exprs);
        let own = self.fresh(name);
        let mut acc = Accumulator::new(kind, &own, dtype);
        acc.lanes = false;
        for l in acc.declarations() {
            self.line(l);
        }
        let names: Vec<&str> = vars.iter().map(String::as_str).collect();
        self.scopes.push(Scope { closed: true, ..Scope::default() });
        for var in names {
            self.declare(var);
        }
        let value = self.value(src, &at)?;
        let position = index::dot(&exprs, &index::strides_of(&inner)).print(false);
        for l in acc.update(&value, &position) {
            self.line(l);
        }
        let body = self.scopes.pop().unwrap_or_default().lines;
        let mut indent = String::new();
        for (var, extent) in vars.iter().zip(&inner) {
            self.line(format!("{indent}for (int {var} = 0; {var} < {extent}; ++{var}) {{"));
            indent.push_str("  ");
        }
        for l in body {
            self.line(format!("{indent}{}", l.text));
        }
        for _ in 1..vars.len() {
            indent.truncate(indent.len() - 2);
            self.line(format!("{indent}}}"));
        }
        let result = acc.result();
        self.end(&result.text, result.dtype);
        Ok(self.lasting(name, result))
    }

    /// A reduction over very few elements, unrolled: neighbours in memory become one load, and
    /// other expressions reuse the loaded elements.
    fn unrolled_reduction(
        &mut self,
        name: &str,
        kind: ReduceKind,
        src: NodeId,
        dims: &[usize],
        index: &[Expr],
    ) -> Result<Value, String> {
        let graph = self.graph;
        let inner = graph.inner_of(src, dims);
        let acc = Accumulator::new(kind, name, graph.dtype(src));
        let mut total: Option<Value> = None;
        for k in 0..index::numel(&inner) {
            let place = index::unflatten(&Expr::constant(k), &inner);
            let at = reduction_index(graph.shape(src).len(), dims, index, &place);
            let value = self.value(src, &at)?;
            let element = Value::new(value.cast(acc.dtype), acc.dtype);
            total = Some(match total {
                None => element,
                Some(t) => self.define(name, &acc.combine(&t.text, &element.text), acc.dtype),
            });
        }
        total.ok_or_else(|| format!("{name} reduces nothing"))
    }
}
