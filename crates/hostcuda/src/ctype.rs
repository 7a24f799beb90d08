//! C types by their words, at the binary interface of 64-bit Linux.

use crate::signature::{Element, ParamKind};

/// Words that cannot be a parameter's name.
pub(crate) fn is_type_word(word: &str) -> bool {
    matches!(word, "int" | "unsigned" | "signed" | "long" | "short" | "char" | "float" | "double")
        || matches!(word, "bool" | "void" | "struct" | "enum")
        || word == "cudaStream_t"
        || element(word).is_some()
}

/// The kind of a parameter passed by value.
pub(crate) fn scalar(base: &str) -> Option<ParamKind> {
    Some(match integer(base) {
        Some((true, 1)) => ParamKind::I8,
        Some((false, 1)) => ParamKind::U8,
        Some((true, 2)) => ParamKind::I16,
        Some((false, 2)) => ParamKind::U16,
        Some((true, 4)) => ParamKind::I32,
        Some((false, 4)) => ParamKind::U32,
        Some((true, 8)) => ParamKind::I64,
        Some((false, 8)) => ParamKind::U64,
        _ => match base {
            "float" => ParamKind::F32,
            "double" => ParamKind::F64,
            "bool" => ParamKind::Bool,
            _ => return None,
        },
    })
}

/// Signedness and bytes of an integer type.
fn integer(base: &str) -> Option<(bool, u8)> {
    match base {
        "size_t" | "uint64_t" | "uintptr_t" => return Some((false, 8)),
        "int64_t" | "ptrdiff_t" | "ssize_t" | "intptr_t" => return Some((true, 8)),
        "int32_t" => return Some((true, 4)),
        "uint32_t" | "uint" => return Some((false, 4)),
        "int16_t" => return Some((true, 2)),
        "uint16_t" | "ushort" => return Some((false, 2)),
        "int8_t" => return Some((true, 1)),
        "uint8_t" | "uchar" => return Some((false, 1)),
        _ => {}
    }
    let (mut signed, mut long, mut short, mut char_) = (true, 0, false, false);
    for word in base.split(' ') {
        match word {
            "unsigned" => signed = false,
            "long" => long += 1,
            "short" => short = true,
            "char" => char_ = true,
            "signed" | "int" => {}
            _ => return None,
        }
    }
    Some((
        signed,
        if char_ {
            1
        } else if short {
            2
        } else if long > 0 {
            8
        } else {
            4
        },
    ))
}

/// The element type of a pointer to `base`.
pub(crate) fn element(base: &str) -> Option<Element> {
    let vector = base.strip_suffix(['1', '2', '3', '4']).unwrap_or(base);
    let stem = if base.starts_with("__nv_fp8") { base } else { vector };
    Some(match stem {
        "float" => Element::F32,
        "double" => Element::F64,
        "__half" | "half" | "__half_raw" => Element::F16,
        "__nv_bfloat16" | "nv_bfloat16" => Element::BF16,
        "__nv_fp8_e4m3" | "__nv_fp8x2_e4m3" | "__nv_fp8x4_e4m3" => Element::F8E4M3,
        "__nv_fp8_e5m2" | "__nv_fp8x2_e5m2" | "__nv_fp8x4_e5m2" => Element::F8E5M2,
        "void" => Element::Void,
        "bool" => Element::Bool,
        "longlong" => Element::I64,
        "ulonglong" => Element::U64,
        _ => match integer(base).or_else(|| integer(stem))? {
            (true, 1) => Element::I8,
            (false, 1) => Element::U8,
            (true, 2) => Element::I16,
            (false, 2) => Element::U16,
            (true, 4) => Element::I32,
            (false, 4) => Element::U32,
            (true, 8) => Element::I64,
            _ => Element::U64,
        },
    })
}
