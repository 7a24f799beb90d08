//! Converts launcher signatures from `hostcuda`'s form to the runner's.

use warpwright_hostcuda as hostcuda;

use crate::artifact::{Element, Launcher, Param, ParamKind, Returns};
use crate::files::Texts;
use crate::host;

/// Launchers defined in the file `name` of `files`, or the refused parameters that cannot cross
/// into Python.
pub(crate) fn read(name: &str, files: &Texts) -> Result<Vec<Launcher>, Vec<hostcuda::Refusal>> {
    let file = name;
    let found = host::launchers(&files[name], name, files)?;
    Ok(found.into_iter().map(|launcher| convert(launcher, file)).collect())
}

fn convert(from: hostcuda::Launcher, file: &str) -> Launcher {
    Launcher {
        name: from.name,
        file: file.to_owned(),
        params: from.params.into_iter().map(param).collect(),
        returns: match from.returns {
            hostcuda::Returns::Void => Returns::Void,
            hostcuda::Returns::Int => Returns::Int,
            hostcuda::Returns::CudaError => Returns::CudaError,
        },
        has_stream: from.has_stream,
    }
}

fn param(from: hostcuda::Param) -> Param {
    use hostcuda::ParamKind as Kind;
    let scalar = |element| (ParamKind::Scalar, Some(element), 1, false);
    let (kind, element, lanes, constant) = match from.kind {
        Kind::Pointer { element, constant } => {
            (ParamKind::Pointer, pointee(element), lanes(&from.c_type), constant)
        }
        Kind::I8 => scalar(Element::Int8),
        Kind::U8 => scalar(Element::Uint8),
        Kind::I16 => scalar(Element::Int16),
        Kind::U16 => scalar(Element::Uint16),
        Kind::I32 => scalar(Element::Int32),
        Kind::U32 => scalar(Element::Uint32),
        Kind::I64 => scalar(Element::Int64),
        Kind::U64 => scalar(Element::Uint64),
        Kind::F32 => scalar(Element::Float32),
        Kind::F64 => scalar(Element::Float64),
        Kind::Bool => scalar(Element::Bool),
    };
    Param { name: from.name, kind, element, lanes, constant }
}

fn pointee(element: hostcuda::Element) -> Option<Element> {
    use hostcuda::Element as From;
    Some(match element {
        From::F32 => Element::Float32,
        From::F64 => Element::Float64,
        From::F16 => Element::Float16,
        From::BF16 => Element::Bfloat16,
        From::F8E4M3 => Element::Float8E4m3fn,
        From::F8E5M2 => Element::Float8E5m2,
        From::I8 => Element::Int8,
        From::U8 => Element::Uint8,
        From::I16 => Element::Int16,
        From::U16 => Element::Uint16,
        From::I32 => Element::Int32,
        From::U32 => Element::Uint32,
        From::I64 => Element::Int64,
        From::U64 => Element::Uint64,
        From::Bool => Element::Bool,
        From::Void => return None,
    })
}

/// CUDA's vector types end in their length: `float4`, `uchar2`, `__half2`, `__nv_bfloat162`. Those of
/// 8-bit floating point have it in the middle: `__nv_fp8x4_e4m3`.
fn lanes(c_type: &str) -> u32 {
    let vector = |word: &str| {
        if let Some(rest) = word.strip_prefix("__nv_fp8") {
            return rest.strip_prefix('x')?.chars().next()?.to_digit(10);
        }
        let word = word
            .strip_prefix("__nv_bfloat16")
            .map_or(word, |rest| if rest.is_empty() { "__nv_bfloat" } else { rest });
        let digit = word.chars().next_back().and_then(|c| c.to_digit(10))?;
        let stem = &word[..word.len() - 1];
        let known = [
            "",
            "float",
            "double",
            "char",
            "uchar",
            "short",
            "ushort",
            "int",
            "uint",
            "long",
            "ulong",
            "longlong",
            "ulonglong",
            "half",
            "__half",
        ];
        (known.contains(&stem) && (2..=4).contains(&digit)).then_some(digit)
    };
    c_type.split([' ', '*']).find_map(vector).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launcher_signature_becomes_python_parameters() {
        let text = r#"extern "C" int scale(const float4* x, __half2* y, void* z, const __nv_bfloat16* b,
            long long n, float a, unsigned short k, cudaStream_t s) { return 0; }"#;
        let files = Texts::from([("kernels/a.cu".to_owned(), text.to_owned())]);
        let found = read("kernels/a.cu", &files).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].has_stream);
        assert_eq!(found[0].returns, Returns::Int);
        let seen: Vec<_> =
            found[0].params.iter().map(|p| (p.kind, p.element, p.lanes, p.constant)).collect();
        assert_eq!(
            seen,
            [
                (ParamKind::Pointer, Some(Element::Float32), 4, true),
                (ParamKind::Pointer, Some(Element::Float16), 2, false),
                (ParamKind::Pointer, None, 1, false),
                (ParamKind::Pointer, Some(Element::Bfloat16), 1, true),
                (ParamKind::Scalar, Some(Element::Int64), 1, false),
                (ParamKind::Scalar, Some(Element::Float32), 1, false),
                (ParamKind::Scalar, Some(Element::Uint16), 1, false),
            ]
        );
    }

    #[test]
    fn vector_types_have_their_lane_count() {
        for (c_type, expected) in [
            ("const float *", 1),
            ("float4 *", 4),
            ("double2*", 2),
            ("uchar3 *", 3),
            ("__half *", 1),
            ("__half2 *", 2),
            ("__nv_bfloat16 *", 1),
            ("__nv_bfloat162 *", 2),
            ("int32_t *", 1),
            ("uint8_t *", 1),
            ("int64_t *", 1),
            ("float2 const *", 2),
            ("__nv_fp8_e4m3 *", 1),
            ("const __nv_fp8x4_e5m2 *", 4),
        ] {
            assert_eq!(lanes(c_type), expected, "{c_type}");
        }
    }
}
