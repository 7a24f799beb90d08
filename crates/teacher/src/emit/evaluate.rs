//! Code for a node's value at an index, by kind of node.

use super::scalar::{self, Value, expression, from_storage};
use super::{Emitter, Key, Line, Scope};
use crate::dtype::DType;
use crate::index::Expr;
use crate::ir::{Bound, Fun, NodeId, Op, apply, apply_all};

impl Emitter<'_> {
    /// The value of a node; its statements go to the scope of this level.
    pub(super) fn compute(&mut self, key: &Key, level: usize) -> Result<Value, String> {
        let (node, index) = (key.0, &key.1[..]);
        if level == self.element_scope
            && !self.keep_index.is_empty()
            && let Some((name, dtype)) = self.earlier.get(key).cloned()
        {
            self.kept.insert(name.clone(), dtype);
            let text = format!("kept_{name}{}", self.keep_index);
            return Ok(self.define_again(&name, &text, dtype));
        }
        if self.buffers.contains_key(&node) {
            return self.load(node, index, level);
        }
        let graph = self.graph;
        let found = graph.node(node);
        let name = found.name.as_str();
        match &found.op {
            Op::Map { f, args } => self.pointwise(node, *f, args, index, level),
            Op::Index(at) => Ok(self.position(name, &apply(at, index))),
            Op::Guard { bounds, inside, outside } => {
                self.guarded(node, bounds, (*inside, *outside), index, level)
            }
            Op::Take { src, picks } => {
                let at = self.picked(*src, picks, index)?;
                self.value(*src, &at)
            }
            Op::Reduce { kind, src, dims, .. } => {
                self.inline_reduction(name, *kind, *src, dims, index)
            }
            Op::View { src, map } => self.value(*src, &apply_all(map, index)),
            Op::Scalar(x) => Ok(Value::number(*x, found.dtype)),
            Op::Leaf(_) | Op::Scan { .. } | Op::Heavy { .. } => {
                Err(format!("{name} is not in memory where it is needed"))
            }
        }
    }

    /// A function of values at the same index.
    fn pointwise(
        &mut self,
        node: NodeId,
        mut f: Fun,
        args: &[NodeId],
        index: &[Expr],
        level: usize,
    ) -> Result<Value, String> {
        let found = self.graph.node(node);
        let name = found.name.as_str();
        if f == Fun::Where
            && let Some(value) = self.lazy_choice(node, args, index, level)?
        {
            return Ok(value);
        }
        let mut values = Vec::new();
        if f == Fun::Where {
            // The mask first, as people read it.
            values.push(self.value(args[0], index)?);
        }
        for arg in args.iter().skip(values.len()) {
            values.push(self.value(*arg, index)?);
        }
        for (value, arg) in values.iter_mut().zip(args) {
            if let Some(rounded) = self.rounded(f, *arg, value, found.dtype) {
                *value = self.define(name, &rounded.text, rounded.dtype);
            }
        }
        if f == Fun::Div
            && found.dtype.compute() == DType::F32
            && let Some(inverse) = self.inverse(node, args[1], index, &values[1], level)
        {
            (f, values[1]) = (Fun::Mul, inverse);
        }
        if f == Fun::Div && found.dtype.compute() == DType::F32 && !self.jumps_after(node) {
            let (a, b) = (values[0].cast(DType::F32), values[1].cast(DType::F32));
            return Ok(self.define(name, &format!("quotient({a}, {b})"), found.dtype));
        }
        if found.dtype == DType::I64
            && let Some(range) = scalar::narrow_range(f, &values)
        {
            let text = expression(f, &values, DType::I32);
            return Ok(self.define(name, &text, DType::I32).within(range));
        }
        let text = expression(f, &values, found.dtype);
        if f == Fun::Cast && values[0].text == text {
            return Ok(values[0].clone());
        }
        Ok(self.define(name, &text, found.dtype))
    }

    /// An integer expression as a value, in 32 bits where they hold it.
    fn position(&mut self, name: &str, at: &Expr) -> Value {
        if let Some(c) = at.as_constant() {
            return Value::number(c as f64, DType::I64);
        }
        let (low, high) = at.range();
        if low > i64::from(i32::MIN) && high < i64::from(i32::MAX) {
            let narrow = self.define(name, &at.print(false), DType::I32);
            return narrow.within((low, high));
        }
        self.define(name, &at.print(false), DType::I64)
    }

    /// Selects one of two values and computes only the selected one.
    fn guarded(
        &mut self,
        node: NodeId,
        bounds: &[Bound],
        (inside, outside): (NodeId, NodeId),
        index: &[Expr],
        level: usize,
    ) -> Result<Value, String> {
        let found = self.graph.node(node);
        let (name, dtype) = (found.name.as_str(), found.dtype);
        let mut tests = Vec::new();
        let mut agreed = level >= self.element_scope;
        for b in bounds {
            let mut at = apply(&b.at, index);
            let (low, high) = at.range();
            if low >= b.low && high < b.high {
                continue;
            }
            let first = self.before_lanes(&at).or_else(|| self.bound_before_lanes(&at, b));
            match first.filter(|_| level >= self.element_scope) {
                Some(first) => at = first,
                None => agreed = false,
            }
            if low < b.low {
                tests.push(format!("{} >= {}", at.print(false), b.low));
            }
            if high >= b.high {
                tests.push(format!("{} < {}", at.print(false), b.high));
            }
        }
        if tests.is_empty() {
            return self.value(inside, index);
        }
        let dtype = dtype.compute();
        let result = self.fresh(name);
        let test = tests.join(" && ");
        let (yes, then) = self.under(agreed.then(|| test.clone()), inside, index)?;
        let (no, other) = self.under(agreed.then(|| format!("!({test})")), outside, index)?;
        let start = if other.is_empty() { format!(" = {}", no.cast(dtype)) } else { String::new() };
        self.line(format!("{} {result}{start};", dtype.register()));
        self.line(format!("if ({test}) {{"));
        for l in then {
            self.line(format!("  {}", l.text));
        }
        self.line(format!("  {result} = {};", yes.cast(dtype)));
        if !other.is_empty() {
            self.line("} else {".to_owned());
            for l in other {
                self.line(format!("  {}", l.text));
            }
            self.line(format!("  {result} = {};", no.cast(dtype)));
        }
        self.end(&result, dtype);
        Ok(self.lasting(name, Value::new(result, dtype)))
    }

    /// A value computed under a condition, and the statements for it.
    fn under(
        &mut self,
        condition: Option<String>,
        node: NodeId,
        index: &[Expr],
    ) -> Result<(Value, Vec<Line>), String> {
        self.guards.push(condition);
        self.scopes.push(Scope { closed: true, ..Scope::default() });
        let value = self.value(node, index);
        let lines = self.scopes.pop().unwrap_or_default().lines;
        self.guards.pop();
        Ok((value?, lines))
    }

    /// Half-precision values are carried in float, which only improves accuracy. They are rounded
    /// before discontinuous functions and at casts to half that the model requests.
    fn rounded(&self, f: Fun, arg: NodeId, value: &Value, to: DType) -> Option<Value> {
        let narrow = |t: DType| matches!(t, DType::F16 | DType::BF16);
        let round = |t: DType| {
            let text = from_storage(&scalar::to_storage(value, t), t);
            Some(Value::new(text, t))
        };
        if value.literal.is_some() || !value.dtype.is_float() {
            return None;
        }
        if f == Fun::Cast && narrow(to) {
            return round(to);
        }
        let jumps = matches!(
            f,
            Fun::Floor
                | Fun::Ceil
                | Fun::Round
                | Fun::Trunc
                | Fun::FloorDiv
                | Fun::TruncDiv
                | Fun::Remainder
                | Fun::Fmod
                | Fun::Sign
                | Fun::Eq
                | Fun::Ne
                | Fun::Lt
                | Fun::Le
                | Fun::Gt
                | Fun::Ge
        ) || (f == Fun::Cast && !to.is_float());
        let from = self.graph.dtype(arg);
        let mut source = arg;
        while let Op::View { src, .. } = self.graph.node(source).op {
            source = src;
        }
        (jumps && narrow(from) && !self.buffers.contains_key(&source)).then(|| round(from))?
    }
}
