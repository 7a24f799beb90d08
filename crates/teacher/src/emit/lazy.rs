//! Lazy selections: if one side of a selection by position is a number, the other side is computed
//! only if it is selected.
//!
//! Causal masks are such selections. Neighbouring threads mostly select the same side, so whole
//! warps skip the work. In other warps a branch costs little more than computing both sides.

use std::collections::BTreeSet;

use super::{Emitter, Scope};
use crate::emit::scalar::Value;
use crate::index::Expr;
use crate::ir::{Fun, NodeId, Op};
use crate::plan;

impl Emitter<'_> {
    /// `where(mask, a, b)` with a branch, if that may save work.
    pub(super) fn lazy_choice(
        &mut self,
        node: NodeId,
        args: &[NodeId],
        index: &[Expr],
        level: usize,
    ) -> Result<Option<Value>, String> {
        let on_gpu = self.lanes.as_ref().is_some_and(|l| l.vector);
        let [mask, yes, no] = args else { return Ok(None) };
        let (number, dear) = match (self.is_number(*yes), self.is_number(*no)) {
            (true, false) => (*yes, *no),
            (false, true) => (*no, *yes),
            _ => return Ok(None),
        };
        let here = on_gpu && level == self.element_scope && self.is_positional(*mask);
        if !here || !self.is_dear(dear) || self.users(dear) > 1 {
            return Ok(None);
        }
        let mask = self.value(*mask, index)?;
        let otherwise = self.value(number, index)?;
        // Loads stay outside, where they are vector accesses.
        for (loaded, at) in plan::loads(self.graph, dear, index, self.buffers) {
            self.value(loaded, &at)?;
        }
        let found = self.graph.node(node);
        let dtype = found.dtype.compute();
        let result = self.fresh(&found.name);
        self.scopes.push(Scope { closed: true, ..Scope::default() });
        let value = self.value(dear, index);
        let inside = self.scopes.pop().unwrap_or_default().lines;
        let value = value?;
        let not = if dear == *no { "!" } else { "" };
        self.line(format!("{} {result} = {};", dtype.register(), otherwise.cast(dtype)));
        self.line(format!("if ({not}{}) {{", mask.text));
        for l in inside {
            self.line(format!("  {}", l.text));
        }
        self.line(format!("  {result} = {};", value.cast(dtype)));
        self.end(&result, dtype);
        let name = found.name.clone();
        Ok(Some(self.lasting(&name, Value::new(result, dtype))))
    }

    fn is_number(&self, node: NodeId) -> bool {
        match &self.graph.node(node).op {
            Op::Scalar(_) => true,
            Op::View { src, .. } => self.is_number(*src),
            _ => false,
        }
    }

    /// Whether a node depends on nothing but its index.
    fn is_positional(&self, node: NodeId) -> bool {
        !self.buffers.contains_key(&node)
            && match &self.graph.node(node).op {
                Op::Scalar(_) | Op::Index(_) => true,
                Op::View { src, .. } => self.is_positional(*src),
                Op::Map { args, .. } => args.iter().all(|a| self.is_positional(*a)),
                _ => false,
            }
    }

    /// Whether a node uses an expensive function and reads only loads and numbers.
    fn is_dear(&self, node: NodeId) -> bool {
        let (mut stack, mut seen) = (vec![node], BTreeSet::new());
        let mut many = false;
        while let Some(n) = stack.pop() {
            if self.buffers.contains_key(&n) || !seen.insert(n) {
                continue;
            }
            match &self.graph.node(n).op {
                Op::Scalar(_) | Op::Index(_) | Op::Reduce { inline: false, .. } => {}
                Op::View { src, .. } => stack.push(*src),
                Op::Map { f, args } => {
                    many |= matches!(
                        f,
                        Fun::Tanh
                            | Fun::Exp
                            | Fun::Log
                            | Fun::Pow
                            | Fun::Erf
                            | Fun::Sigmoid
                            | Fun::Sin
                    );
                    stack.extend(args);
                }
                _ => return false,
            }
        }
        many
    }

    fn users(&self, node: NodeId) -> usize {
        let uses = |n: &NodeId| self.graph.operands(*n).contains(&node);
        self.graph.reachable().iter().filter(|n| uses(n)).count()
    }
}
