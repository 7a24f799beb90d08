//! Elementwise arithmetic, comparisons, activations, casts.

use super::{CallView, Family, Lowering};
use crate::dtype::DType;
use crate::ir::{Fun, NodeId};

/// See the module.
pub(super) struct Pointwise;

fn unary(base: &str) -> Option<Fun> {
    Some(match base {
        "neg" => Fun::Neg,
        "abs" => Fun::Abs,
        "sign" | "sgn" => Fun::Sign,
        "sqrt" => Fun::Sqrt,
        "rsqrt" => Fun::Rsqrt,
        "reciprocal" => Fun::Reciprocal,
        "exp" => Fun::Exp,
        "exp2" => Fun::Exp2,
        "expm1" => Fun::Expm1,
        "log" => Fun::Log,
        "log2" => Fun::Log2,
        "log10" => Fun::Log10,
        "log1p" => Fun::Log1p,
        "sin" => Fun::Sin,
        "cos" => Fun::Cos,
        "tan" => Fun::Tan,
        "asin" => Fun::Asin,
        "acos" => Fun::Acos,
        "atan" => Fun::Atan,
        "sinh" => Fun::Sinh,
        "cosh" => Fun::Cosh,
        "tanh" => Fun::Tanh,
        "asinh" => Fun::Asinh,
        "acosh" => Fun::Acosh,
        "atanh" => Fun::Atanh,
        "erf" => Fun::Erf,
        "erfc" => Fun::Erfc,
        "lgamma" => Fun::Lgamma,
        "sigmoid" => Fun::Sigmoid,
        "relu" => Fun::Relu,
        "floor" => Fun::Floor,
        "ceil" => Fun::Ceil,
        "round" => Fun::Round,
        "trunc" => Fun::Trunc,
        "isnan" => Fun::IsNan,
        "isinf" => Fun::IsInf,
        "square" => Fun::Square,
        "logical_not" => Fun::Not,
        "bitwise_not" => Fun::BitNot,
        _ => return None,
    })
}

fn binary(base: &str) -> Option<Fun> {
    Some(match base {
        "mul" => Fun::Mul,
        "floor_divide" => Fun::FloorDiv,
        "remainder" => Fun::Remainder,
        "fmod" => Fun::Fmod,
        "atan2" => Fun::Atan2,
        "hypot" => Fun::Hypot,
        "copysign" => Fun::Copysign,
        "maximum" => Fun::Max,
        "minimum" => Fun::Min,
        "fmax" => Fun::Fmax,
        "fmin" => Fun::Fmin,
        "eq" => Fun::Eq,
        "ne" => Fun::Ne,
        "lt" => Fun::Lt,
        "le" => Fun::Le,
        "gt" => Fun::Gt,
        "ge" => Fun::Ge,
        "logical_and" => Fun::And,
        "logical_or" => Fun::Or,
        "logical_xor" => Fun::Xor,
        "bitwise_and" => Fun::BitAnd,
        "bitwise_or" => Fun::BitOr,
        "bitwise_xor" => Fun::BitXor,
        "bitwise_left_shift" | "__lshift__" | "shift_left" => Fun::Shl,
        "bitwise_right_shift" | "__rshift__" | "shift_right_arithmetic" => Fun::Shr,
        _ => return None,
    })
}

impl Family for Pointwise {
    fn lower(&self, call: &CallView<'_>, to: &mut Lowering) -> Result<Option<Vec<NodeId>>, String> {
        let base = call.base();
        let known = unary(base).is_some()
            || binary(base).is_some()
            || matches!(
                base,
                "add"
                    | "sub"
                    | "rsub"
                    | "div"
                    | "pow"
                    | "where"
                    | "clamp"
                    | "clamp_min"
                    | "clamp_max"
                    | "_to_copy"
                    | "convert_element_type"
                    | "clone"
                    | "alias"
                    | "detach"
                    | "lift_fresh_copy"
                    | "copy"
                    | "to"
                    | "contiguous"
                    | "fill"
                    | "isfinite"
                    | "gelu"
                    | "silu"
                    | "masked_fill"
                    | "addcmul"
                    | "addcdiv"
                    | "square"
                    | "silu_"
                    | "view_of"
                    | "lift_fresh"
            );
        if !known {
            return Ok(None);
        }
        let meta = call.result(0)?;
        let (name, shape, dtype) = (call.name(), meta.shape.clone(), meta.dtype);
        let a = to.node(call, 0)?;
        let map =
            |to: &mut Lowering, f, args: &[NodeId]| to.graph.map(name, f, args, &shape, dtype);
        if let Some(f) = unary(base) {
            // Rounding functions leave integers alone.
            let rounds = matches!(f, Fun::Floor | Fun::Ceil | Fun::Round | Fun::Trunc);
            if f == Fun::Round && call.int(1, "decimals").unwrap_or(0) != 0 {
                return Err("decimals".to_owned());
            }
            let f = if rounds && !dtype.is_float() { Fun::Cast } else { f };
            return Ok(Some(vec![map(to, f, &[a])]));
        }
        if let Some(f) = binary(base) {
            let b = to.node(call, 1)?;
            // A product with two equal factors is a square: one load, one name.
            let args =
                if f == Fun::Mul && a == b { (Fun::Square, vec![a]) } else { (f, vec![a, b]) };
            return Ok(Some(vec![map(to, args.0, &args.1)]));
        }
        let node = match base {
            "add" | "sub" | "rsub" => {
                let b = to.node(call, 1)?;
                // The second operand of the difference carries alpha in both spellings.
                let (x, mut y) = if base == "rsub" { (b, a) } else { (a, b) };
                let alpha = call.float(2, "alpha").unwrap_or(1.0);
                if (alpha - 1.0).abs() > 0.0 {
                    let scale = to.graph.scalar(alpha, DType::F64);
                    y = map(to, Fun::Mul, &[y, scale]);
                }
                map(to, if base == "add" { Fun::Add } else { Fun::Sub }, &[x, y])
            }
            "div" => {
                let b = to.node(call, 1)?;
                let f = match call.arg(9, "rounding_mode").and_then(serde_json::Value::as_str) {
                    Some("floor") => Fun::FloorDiv,
                    Some("trunc") => Fun::TruncDiv,
                    _ => Fun::Div,
                };
                map(to, f, &[a, b])
            }
            "pow" => power(call, to, a, &shape, dtype)?,
            "where" => {
                let (x, y) = (to.node(call, 1)?, to.node(call, 2)?);
                map(to, Fun::Where, &[a, x, y])
            }
            "masked_fill" => {
                let (mask, value) = (to.node(call, 1)?, to.node(call, 2)?);
                map(to, Fun::Where, &[mask, value, a])
            }
            "clamp" | "clamp_min" | "clamp_max" => {
                let mut x = a;
                let (low, high) = match base {
                    "clamp" => (call.arg(1, "min"), call.arg(2, "max")),
                    "clamp_min" => (call.arg(1, "min"), None),
                    _ => (None, call.arg(1, "max")),
                };
                if low.is_some() {
                    let low = to.operand(low)?;
                    x = map(to, Fun::Max, &[x, low]);
                }
                if high.is_some() {
                    let high = to.operand(high)?;
                    x = map(to, Fun::Min, &[x, high]);
                }
                x
            }
            "isfinite" => {
                let absolute = to.graph.map(name, Fun::Abs, &[a], &shape, to.graph.dtype(a));
                let limit = to.graph.scalar(f64::INFINITY, DType::F64);
                map(to, Fun::Lt, &[absolute, limit])
            }
            "copy" | "fill" => {
                let b = to.node(call, 1)?;
                cast(to, name, b, &shape, dtype)
            }
            "gelu" | "silu" | "addcmul" | "addcdiv" => return Ok(None),
            _ => cast(to, name, a, &shape, dtype),
        };
        Ok(Some(vec![node]))
    }
}

/// A cast, or nothing if the type is unchanged. Half-precision round trips stay in float: the kept
/// value is the more precise one.
fn cast(to: &mut Lowering, name: &str, a: NodeId, shape: &[i64], dtype: DType) -> NodeId {
    if to.graph.dtype(a) == dtype {
        return to.graph.broadcast(a, shape);
    }
    to.graph.map(name, Fun::Cast, &[a], shape, dtype)
}

fn power(
    call: &CallView<'_>,
    to: &mut Lowering,
    a: NodeId,
    shape: &[i64],
    dtype: DType,
) -> Result<NodeId, String> {
    let name = call.name();
    let exponent = call.float(1, "exponent");
    let map = |to: &mut Lowering, f, args: &[NodeId]| to.graph.map(name, f, args, shape, dtype);
    let is = |x: f64| exponent.is_some_and(|e| (e - x).abs() < f64::EPSILON);
    let f = match exponent {
        _ if is(1.0) => Fun::Cast,
        _ if is(2.0) => Fun::Square,
        _ if is(3.0) => Fun::Cube,
        _ if is(0.5) && dtype.is_float() => Fun::Sqrt,
        _ if is(-0.5) && dtype.is_float() => Fun::Rsqrt,
        _ if is(-1.0) && dtype.is_float() => Fun::Reciprocal,
        _ => {
            let b = to.node(call, 1)?;
            return Ok(map(to, Fun::Pow, &[a, b]));
        }
    };
    Ok(map(to, f, &[a]))
}
