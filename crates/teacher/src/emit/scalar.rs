//! C++ for one pointwise function of register values.
//!
//! Accurate math functions only: the judge's strict tolerance is a small multiple of eager's own
//! error, so nothing here may rely on fast-math intrinsics. The one exception is a float32 division
//! with an error of at most two units in the last place, which compiled baselines also use. It is
//! not used before a discontinuous function (`inverse.rs`).

use crate::dtype::DType;
use crate::ir::Fun;

/// A value in a register: an expression without side effects, cheap to repeat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// C++ expression, an identifier or a literal.
    pub(crate) text: String,
    /// Register type.
    pub(crate) dtype: DType,
    /// The number, if the value is a literal; literals take the type of the other operand.
    pub(crate) literal: Option<f64>,
    /// Smallest and largest value of an integer, if known.
    pub(crate) range: Option<(i64, i64)>,
}

impl Value {
    pub(crate) fn new(text: impl Into<String>, dtype: DType) -> Self {
        Self { text: text.into(), dtype: dtype.compute(), literal: None, range: None }
    }

    pub(crate) fn number(value: f64, dtype: DType) -> Self {
        let dtype = dtype.compute();
        let whole = value.fract() == 0.0 && value.abs() <= f64::from(i32::MAX);
        let range = whole.then_some((value as i64, value as i64));
        Self { text: literal(value, dtype), dtype, literal: Some(value), range }
    }

    /// The same, known to lie in `range`.
    pub(crate) fn within(self, range: (i64, i64)) -> Self {
        Self { range: Some(range), ..self }
    }

    /// The value converted to register type `to`.
    pub(crate) fn cast(&self, to: DType) -> String {
        let to = to.compute();
        if let Some(value) = self.literal {
            return literal(value, to);
        }
        match (self.dtype, to) {
            (a, b) if a == b => self.text.clone(),
            (_, DType::Bool) => format!("({} != 0)", self.text),
            (_, b) => format!("({})({})", b.register(), self.text),
        }
    }
}

/// A C++ literal.
pub(crate) fn literal(value: f64, dtype: DType) -> String {
    let suffix = if dtype == DType::F64 { "" } else { "f" };
    match dtype.compute() {
        DType::Bool => (value != 0.0).to_string(),
        DType::F32 | DType::F64 if value.is_nan() => "NAN".to_owned(),
        DType::F32 | DType::F64 if value.is_infinite() => {
            let text = if dtype == DType::F64 { "(double)INFINITY" } else { "INFINITY" };
            if value > 0.0 { text.to_owned() } else { format!("-{text}") }
        }
        DType::F32 => format!("{:?}{suffix}", value as f32),
        DType::F64 => format!("{value:?}"),
        // The most negative integers cannot be written as literals.
        DType::I64 if value <= i64::MIN as f64 => "INT64_MIN".to_owned(),
        DType::I64 if value >= i64::MAX as f64 => "INT64_MAX".to_owned(),
        DType::I64 => format!("int64_t({})", value as i64),
        _ if value <= f64::from(i32::MIN) => "INT32_MIN".to_owned(),
        _ if value >= f64::from(i32::MAX) => "INT32_MAX".to_owned(),
        _ => (value as i64).to_string(),
    }
}

/// The expression of `f` with result type `out`.
pub(crate) fn expression(f: Fun, args: &[Value], out: DType) -> String {
    // Comparisons and logic meet in the operands' type, everything else in the result's.
    let meeting = meeting_type(args);
    let t = match f {
        Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge | Fun::IsNan | Fun::IsInf => {
            meeting
        }
        _ => out.compute(),
    };
    let v = |i: usize| args.get(i).map_or_else(String::new, |a| a.cast(t));
    let (a, b) = (v(0), v(1));
    let float = t.is_float();
    let m = |name: &str| {
        if t == DType::F64 { format!("{name}({a})") } else { format!("{name}f({a})") }
    };
    let m2 = |name: &str| {
        if t == DType::F64 { format!("{name}({a}, {b})") } else { format!("{name}f({a}, {b})") }
    };
    let one = literal(1.0, t);
    let zero = literal(0.0, t);
    match f {
        Fun::Add | Fun::BitOr if t == DType::Bool => format!("{a} || {b}"),
        Fun::Mul | Fun::BitAnd if t == DType::Bool => format!("{a} && {b}"),
        Fun::Square if t == DType::Bool => a,
        Fun::Add => format!("{a} + {b}"),
        Fun::Sub => format!("{a} - {b}"),
        Fun::Mul => format!("{a} * {b}"),
        Fun::FloorDiv if float => {
            format!("floor{}({a} / {b})", if t == DType::F64 { "" } else { "f" })
        }
        Fun::FloorDiv => format!("floor_div({a}, {b})"),
        Fun::TruncDiv if float => {
            format!("trunc{}({a} / {b})", if t == DType::F64 { "" } else { "f" })
        }
        Fun::Div | Fun::TruncDiv => format!("{a} / {b}"),
        Fun::Remainder => format!("floor_mod({a}, {b})"),
        Fun::Fmod if float => m2("fmod"),
        Fun::Fmod => format!("{a} % {b}"),
        Fun::Pow if float => m2("pow"),
        Fun::Pow => format!("integer_power({a}, {b})"),
        Fun::Atan2 => m2("atan2"),
        Fun::Hypot => m2("hypot"),
        Fun::Copysign => m2("copysign"),
        Fun::Fmax if float => m2("fmax"),
        Fun::Fmin if float => m2("fmin"),
        Fun::Max | Fun::Fmax if float => format!("nan_max({a}, {b})"),
        Fun::Min | Fun::Fmin if float => format!("nan_min({a}, {b})"),
        Fun::Max | Fun::Fmax => format!("{a} > {b} ? {a} : {b}"),
        Fun::Min | Fun::Fmin => format!("{a} < {b} ? {a} : {b}"),
        Fun::Eq => format!("{a} == {b}"),
        Fun::Ne => format!("{a} != {b}"),
        Fun::Lt => format!("{a} < {b}"),
        Fun::Le => format!("{a} <= {b}"),
        Fun::Gt => format!("{a} > {b}"),
        Fun::Ge => format!("{a} >= {b}"),
        Fun::And => format!("{} && {}", args[0].cast(DType::Bool), args[1].cast(DType::Bool)),
        Fun::Or => format!("{} || {}", args[0].cast(DType::Bool), args[1].cast(DType::Bool)),
        Fun::Xor => format!("{} != {}", args[0].cast(DType::Bool), args[1].cast(DType::Bool)),
        Fun::Not => format!("!{}", args[0].cast(DType::Bool)),
        Fun::BitXor if t == DType::Bool => format!("{a} != {b}"),
        Fun::BitNot if t == DType::Bool => format!("!{a}"),
        Fun::BitAnd => format!("{a} & {b}"),
        Fun::BitOr => format!("{a} | {b}"),
        Fun::BitXor => format!("{a} ^ {b}"),
        Fun::BitNot => format!("~{a}"),
        Fun::Shl => format!("{a} << {b}"),
        Fun::Shr => format!("{a} >> {b}"),
        Fun::Where => format!("{} ? {} : {}", args[0].cast(DType::Bool), v(1), v(2)),
        Fun::Cast => narrow(&args[0], out),
        Fun::Neg => format!("-{a}"),
        Fun::Abs if float => m("fabs"),
        Fun::Abs => format!("{a} < 0 ? -{a} : {a}"),
        Fun::Sign => format!("({})(({a} > {zero}) - ({a} < {zero}))", t.register()),
        Fun::Sqrt => m("sqrt"),
        Fun::Rsqrt => m("rsqrt"),
        Fun::Reciprocal if t == DType::F32 => format!("quotient({one}, {a})"),
        Fun::Reciprocal => format!("{one} / {a}"),
        Fun::Exp => m("exp"),
        Fun::Exp2 => m("exp2"),
        Fun::Expm1 => m("expm1"),
        Fun::Log => m("log"),
        Fun::Log2 => m("log2"),
        Fun::Log10 => m("log10"),
        Fun::Log1p => m("log1p"),
        Fun::Sin => m("sin"),
        Fun::Cos => m("cos"),
        Fun::Tan => m("tan"),
        Fun::Asin => m("asin"),
        Fun::Acos => m("acos"),
        Fun::Atan => m("atan"),
        Fun::Sinh => m("sinh"),
        Fun::Cosh => m("cosh"),
        Fun::Tanh => m("tanh"),
        Fun::Asinh => m("asinh"),
        Fun::Acosh => m("acosh"),
        Fun::Atanh => m("atanh"),
        Fun::Erf => m("erf"),
        Fun::Erfc => m("erfc"),
        Fun::Lgamma => m("lgamma"),
        Fun::Sigmoid => {
            if t == DType::F64 {
                format!("{one} / ({one} + exp(-{a}))")
            } else {
                format!("quotient({one}, {one} + expf(-{a}))")
            }
        }
        // Written so that NaN stays NaN.
        Fun::Relu => format!("{a} < {zero} ? {zero} : {a}"),
        Fun::Floor => m("floor"),
        Fun::Ceil => m("ceil"),
        Fun::Round => m("rint"),
        Fun::Trunc => m("trunc"),
        Fun::IsNan => format!("{a} != {a}"),
        Fun::IsInf if float => format!("{} == {}", m("fabs"), literal(f64::INFINITY, t)),
        Fun::IsInf => "false".to_owned(),
        Fun::Square => format!("{a} * {a}"),
        Fun::Cube => format!("{a} * {a} * {a}"),
        Fun::Tf32High => format!("tf32_high({a})"),
        Fun::Tf32Low => format!("tf32_low({a})"),
    }
}

/// The range of an integer function of integers in known ranges, where it fits 32 bits: 64-bit
/// arithmetic takes a GPU several instructions each, and most integers in a model are positions.
pub(crate) fn narrow_range(f: Fun, args: &[Value]) -> Option<(i64, i64)> {
    let ranges: Option<Vec<(i64, i64)>> = args
        .iter()
        .map(|a| a.range.filter(|_| a.literal.is_some() || a.dtype == DType::I32))
        .collect();
    let range = match (f, &ranges?[..]) {
        (Fun::Add, [a, b]) => (a.0 + b.0, a.1 + b.1),
        (Fun::Sub, [a, b]) => (a.0 - b.1, a.1 - b.0),
        (Fun::Neg, [a]) => (-a.1, -a.0),
        (Fun::Mul, [a, b]) => {
            let all = [a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1];
            (all.into_iter().min()?, all.into_iter().max()?)
        }
        (Fun::Max, [a, b]) => (a.0.max(b.0), a.1.max(b.1)),
        (Fun::Min, [a, b]) => (a.0.min(b.0), a.1.min(b.1)),
        _ => return None,
    };
    (range.0 > i64::from(i32::MIN) && range.1 < i64::from(i32::MAX)).then_some(range)
}

/// A number takes the type of the tensor it is combined with, unless it is a float among integers.
fn meeting_type(args: &[Value]) -> DType {
    let tensors = args.iter().filter(|a| a.literal.is_none()).map(|a| a.dtype);
    let met = tensors.reduce(DType::promote);
    let fractional =
        args.iter().any(|a| a.literal.is_some_and(|x| x.fract() != 0.0 || !x.is_finite()));
    match met {
        Some(t) if fractional && !t.is_float() => DType::F32,
        Some(DType::Bool)
            if args
                .iter()
                .any(|a| a.literal.is_some_and(|x| x.abs() > 0.0 && (x - 1.0).abs() > 0.0)) =>
        {
            DType::I64
        }
        Some(t) => t,
        None => args.first().map_or(DType::F32, |a| a.dtype),
    }
}

/// A cast to a storage type, with the wrap of narrow integers.
fn narrow(a: &Value, out: DType) -> String {
    match out {
        DType::U8 | DType::I8 | DType::I16 if a.dtype != DType::Bool => {
            // Through 64 bits: what lies outside wraps, as torch does on the host.
            format!("(int)({})(int64_t)({})", out.storage(), a.text)
        }
        _ => a.cast(out),
    }
}

/// Text of a stored value: registers to memory.
pub(crate) fn to_storage(value: &Value, out: DType) -> String {
    let text = value.cast(out);
    match out {
        DType::F16 => format!("__float2half_rn({text})"),
        DType::BF16 => format!("__float2bfloat16_rn({text})"),
        DType::U8 | DType::I8 | DType::I16 => format!("({})({text})", out.storage()),
        _ => text,
    }
}

/// Text of a loaded value: memory to registers.
pub(crate) fn from_storage(text: &str, stored: DType) -> String {
    match stored {
        DType::F16 => format!("__half2float({text})"),
        DType::BF16 => format!("__bfloat162float({text})"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_the_tensors_type() {
        let x = Value::new("x", DType::F16);
        let half = Value::number(0.5, DType::F64);
        assert_eq!(expression(Fun::Mul, &[x.clone(), half.clone()], DType::F16), "x * 0.5f");
        assert_eq!(expression(Fun::Gt, &[x, half.clone()], DType::Bool), "x > 0.5f");
        let i = Value::new("i", DType::I64);
        assert_eq!(expression(Fun::Gt, &[i, half], DType::Bool), "(float)(i) > 0.5f");
    }

    #[test]
    fn infinities_and_extremes_are_written() {
        assert_eq!(literal(f64::NEG_INFINITY, DType::F32), "-INFINITY");
        assert_eq!(literal(i64::MIN as f64, DType::I64), "INT64_MIN");
        assert_eq!(literal(1e-5, DType::F32), "1e-5f");
    }
}
