//! Accumulators of reductions: initial value, update with an element, combination of two.

use super::scalar::{self, Value};
use crate::dtype::DType;
use crate::ir::ReduceKind;

/// The accumulator of a reduction.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    pub(crate) kind: ReduceKind,
    pub(crate) name: String,
    /// Type accumulated in.
    pub(crate) dtype: DType,
    /// One running value per lane.
    pub(crate) lanes: bool,
}

impl Accumulator {
    pub(crate) fn new(kind: ReduceKind, name: &str, src: DType) -> Self {
        let dtype = match kind {
            ReduceKind::Any | ReduceKind::All => DType::Bool,
            ReduceKind::Sum | ReduceKind::Prod if !src.is_float() => DType::I64,
            _ => src.compute(),
        };
        Self { kind, name: name.to_owned(), dtype, lanes: true }
    }

    pub(crate) fn is_arg(&self) -> bool {
        matches!(self.kind, ReduceKind::ArgMax | ReduceKind::ArgMin)
    }

    fn at(&self) -> &'static str {
        if self.lanes { "[j]" } else { "" }
    }

    /// The neutral element.
    pub(crate) fn identity(&self) -> String {
        let integer = !self.dtype.is_float();
        let value = match self.kind {
            ReduceKind::Sum | ReduceKind::Any => 0.0,
            ReduceKind::Prod | ReduceKind::All => 1.0,
            ReduceKind::Max | ReduceKind::ArgMax if self.dtype == DType::Bool => 0.0,
            ReduceKind::Min | ReduceKind::ArgMin if self.dtype == DType::Bool => 1.0,
            ReduceKind::Max | ReduceKind::ArgMax if integer => i64::MIN as f64,
            ReduceKind::Min | ReduceKind::ArgMin if integer => i64::MAX as f64,
            ReduceKind::Max | ReduceKind::ArgMax => f64::NEG_INFINITY,
            ReduceKind::Min | ReduceKind::ArgMin => f64::INFINITY,
        };
        scalar::literal(value, self.dtype)
    }

    /// Declarations of a scalar accumulator (or its index companion).
    pub(crate) fn declarations(&self) -> Vec<String> {
        let mut out =
            vec![format!("{} {} = {};", self.dtype.register(), self.name, self.identity())];
        if self.is_arg() {
            // Past every position, so that the first element wins even if it is the neutral one.
            out.push(format!("int {}_at = INT32_MAX;", self.name));
        }
        out
    }

    /// Declarations of per-lane accumulators.
    pub(crate) fn lane_declarations(&self) -> Vec<String> {
        let mut out = vec![format!("{} {}[kVec];", self.dtype.register(), self.name)];
        let mut fill = format!("{}[j] = {};", self.name, self.identity());
        if self.is_arg() {
            out.push(format!("int {}_at[kVec];", self.name));
            fill.push_str(&format!(" {}_at[j] = INT32_MAX;", self.name));
        }
        out.push(format!("for (int j = 0; j < kVec; ++j) {{ {fill} }}"));
        out
    }

    /// Folds in one element at row position `position`.
    pub(crate) fn update(&self, value: &Value, position: &str) -> Vec<String> {
        let v = value.cast(self.dtype);
        let acc = format!("{}{}", self.name, self.at());
        if self.is_arg() {
            let at = format!("{}_at{}", self.name, self.at());
            let better = if self.kind == ReduceKind::ArgMax { "arg_max" } else { "arg_min" };
            return vec![format!("{better}({acc}, {at}, {v}, {position});")];
        }
        vec![format!("{acc} = {};", self.combine(&acc, &v))]
    }

    /// `a` and `b` combined.
    pub(crate) fn combine(&self, a: &str, b: &str) -> String {
        let float = self.dtype.is_float();
        match self.kind {
            ReduceKind::Sum => format!("{a} + {b}"),
            ReduceKind::Prod => format!("{a} * {b}"),
            ReduceKind::Max if float => format!("nan_max({a}, {b})"),
            ReduceKind::Min if float => format!("nan_min({a}, {b})"),
            ReduceKind::Max | ReduceKind::ArgMax => format!("{a} > {b} ? {a} : {b}"),
            ReduceKind::Min | ReduceKind::ArgMin => format!("{a} < {b} ? {a} : {b}"),
            ReduceKind::Any => format!("{a} || {b}"),
            ReduceKind::All => format!("{a} && {b}"),
        }
    }

    /// Name of the device functor that combines two of these.
    pub(crate) fn functor(&self) -> &'static str {
        match self.kind {
            ReduceKind::Sum => "Add",
            ReduceKind::Prod => "Multiply",
            ReduceKind::Max | ReduceKind::ArgMax => "Largest",
            ReduceKind::Min | ReduceKind::ArgMin => "Smallest",
            ReduceKind::Any => "Or",
            ReduceKind::All => "And",
        }
    }

    /// The finished value.
    pub(crate) fn result(&self) -> Value {
        let at = self.at();
        if self.is_arg() {
            Value::new(format!("{}_at{at}", self.name), DType::I32)
        } else {
            Value::new(format!("{}{at}", self.name), self.dtype)
        }
    }
}
