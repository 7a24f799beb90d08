//! Element types of tensors, and their values as numbers.

/// An element type the judge can compare. `native/compare.cu` knows them by [`Dtype::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
    F8E4m3,
    F8E5m2,
    U16,
    U32,
    U64,
}

impl Dtype {
    /// From torch's name, e.g. `float32`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "float64" => Self::F64,
            "float32" => Self::F32,
            "float16" => Self::F16,
            "bfloat16" => Self::Bf16,
            "int64" => Self::I64,
            "int32" => Self::I32,
            "int16" => Self::I16,
            "int8" => Self::I8,
            "uint8" => Self::U8,
            "bool" => Self::Bool,
            "uint16" => Self::U16,
            "uint32" => Self::U32,
            "uint64" => Self::U64,
            "float8_e4m3fn" => Self::F8E4m3,
            "float8_e5m2" => Self::F8E5m2,
            _ => return None,
        })
    }

    /// The type of one number, from torch's name, and how many make an element: a complex one is a
    /// pair of real ones.
    pub(crate) fn parts(name: &str) -> Option<(Self, u64)> {
        Some(match name {
            "complex64" => (Self::F32, 2),
            "complex128" => (Self::F64, 2),
            plain => (Self::parse(plain)?, 1),
        })
    }

    /// Bytes per element.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool | Self::F8E4m3 | Self::F8E5m2 => 1,
        }
    }

    /// Its number in `native/compare.cu`. Integers are compared bit by bit, so the wider unsigned ones have
    /// the numbers of the signed ones.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::U16 => Self::I16 as u32,
            Self::U32 => Self::I32 as u32,
            Self::U64 => Self::I64 as u32,
            other => other as u32,
        }
    }

    /// Distance from 1 to the next number; `None` for integers and booleans.
    pub(crate) fn epsilon(self) -> Option<f64> {
        Some(match self {
            Self::F64 => f64::EPSILON,
            Self::F32 => f64::from(f32::EPSILON),
            Self::F16 => 2f64.powi(-10),
            Self::Bf16 => 2f64.powi(-7),
            Self::F8E4m3 => 0.125,
            Self::F8E5m2 => 0.25,
            _ => return None,
        })
    }

    /// Whether elements are rounded numbers.
    pub(crate) fn is_real(self) -> bool {
        self.epsilon().is_some()
    }

    /// The least magnitude that rounds to infinity.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::F16 => 65520.0,
            Self::Bf16 => 2f64.powi(128) - 2f64.powi(119),
            Self::F32 => 2f64.powi(128) - 2f64.powi(103),
            _ => f64::INFINITY,
        }
    }

    /// Whether hardware gives these bits where a result is not a number.
    pub(crate) fn usual_nan(self, bits: u64) -> bool {
        match self {
            Self::F16 => matches!(bits, 0x7fff | 0x7e00 | 0xfe00 | 0xffff),
            Self::Bf16 => matches!(bits, 0x7fff | 0x7fc0 | 0xffc0 | 0xffff),
            Self::F32 => matches!(bits, 0x7fff_ffff | 0x7fc0_0000 | 0xffc0_0000 | 0xffff_ffff),
            Self::F64 => {
                matches!(bits, 0x7ff8_0000_0000_0000 | 0xfff8_0000_0000_0000 | u64::MAX)
            }
            Self::F8E4m3 => matches!(bits, 0x7f | 0xff),
            Self::F8E5m2 => matches!(bits, 0x7e | 0x7f | 0xfe | 0xff),
            _ => false,
        }
    }

    /// All elements of `bytes`, after what is in `into`; as [`Dtype::value`], and fast where results
    /// are large.
    pub(crate) fn values(self, bytes: &[u8], into: &mut Vec<f64>) {
        match self {
            Self::F64 => into.extend(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b))),
            Self::F32 => {
                into.extend(bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))));
            }
            _ => into.extend(bytes.chunks_exact(self.size() as usize).map(|b| self.value(b))),
        }
    }

    /// The element at the start of `bytes`; 64-bit values beyond 2^53 round. NaN where `bytes` are
    /// too few.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        self.bits(bytes).map_or(f64::NAN, |bits| self.decoded(bits))
    }

    /// The bits of the element at the start of `bytes`; `None` where these are too few.
    pub(crate) fn bits(self, bytes: &[u8]) -> Option<u64> {
        let n = self.size() as usize;
        let mut word = [0; 8];
        word[..n].copy_from_slice(bytes.get(..n)?);
        Some(u64::from_le_bytes(word))
    }

    /// The number that these bits are.
    pub(crate) fn decoded(self, bits: u64) -> f64 {
        match self {
            Self::F64 => f64::from_bits(bits),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F16 => half(bits as u16),
            Self::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            Self::I64 => bits as i64 as f64,
            Self::I32 => f64::from(bits as i32),
            Self::I16 => f64::from(bits as i16),
            Self::I8 => f64::from(bits as i8),
            Self::U8 | Self::Bool => f64::from(bits as u8),
            Self::U16 => f64::from(bits as u16),
            Self::U32 => f64::from(bits as u32),
            Self::U64 => bits as f64,
            Self::F8E4m3 => e4m3(bits as u8),
            // The upper half of a binary16.
            Self::F8E5m2 => half((bits as u16) << 8),
        }
    }
}

/// FP8 E4M3 without infinities (Micikevicius et al. 2022, arXiv 2209.05433).
fn e4m3(bits: u8) -> f64 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 3 & 0xf);
    let fraction = f64::from(bits & 7);
    sign * match (exponent, bits & 7) {
        (0, _) => fraction * 2f64.powi(-9),
        (0xf, 7) => f64::NAN,
        _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
    }
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "these values are exact")]

    use super::*;

    #[test]
    fn batch_conversion_equals_conversion_per_element() {
        let mixed = |i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8;
        let bytes: Vec<u8> = (0..4096).map(mixed).collect();
        for dtype in [Dtype::F64, Dtype::F32, Dtype::Bf16, Dtype::F16, Dtype::I64, Dtype::U8] {
            let mut values = vec![1.0];
            dtype.values(&bytes, &mut values);
            let size = dtype.size() as usize;
            assert_eq!(values.len(), 1 + bytes.len() / size);
            for (value, element) in values[1..].iter().zip(bytes.chunks_exact(size)) {
                assert_eq!(value.to_bits(), dtype.value(element).to_bits());
            }
        }
    }

    /// Against torch: `torch.tensor([...]).to(torch.float8_e4m3fn).view(torch.uint8)`.
    #[test]
    fn eight_bit_floats_match_known_values() {
        for (bits, value) in [(0x38, 1.0), (0x7e, 448.0), (0x01, 2f64.powi(-9)), (0xc0, -2.0)] {
            assert_eq!(Dtype::F8E4m3.decoded(bits), value);
        }
        for (bits, value) in [(0x3c, 1.0), (0x7b, 57344.0), (0x01, 2f64.powi(-16)), (0xc0, -2.0)] {
            assert_eq!(Dtype::F8E5m2.decoded(bits), value);
        }
        assert!(Dtype::F8E4m3.decoded(0x7f).is_nan());
        assert!(Dtype::F8E5m2.decoded(0x7c).is_infinite());
    }

    #[test]
    fn unsigned_integers_have_no_sign() {
        for (dtype, largest) in [
            (Dtype::U16, f64::from(u16::MAX)),
            (Dtype::U32, f64::from(u32::MAX)),
            (Dtype::U64, 2f64.powi(64)),
        ] {
            assert_eq!(dtype.value(&[0xff; 8]), largest);
            assert!(!dtype.is_real() && dtype.code() <= Dtype::F8E5m2 as u32);
        }
        assert_eq!(Dtype::parse("uint32"), Some(Dtype::U32));
    }

    #[test]
    fn the_overflow_limit_matches_float32_rounding() {
        for (dtype, largest) in [(Dtype::F32, f64::from(f32::MAX)), (Dtype::F16, 65504.0)] {
            assert!(dtype.limit() > largest && dtype.limit() < 1.001 * largest);
        }
        let limit = Dtype::F32.limit();
        assert!((limit as f32).is_infinite() && !((limit * (1.0 - 1e-15)) as f32).is_infinite());
    }

    #[test]
    fn half_precision_matches_known_values() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (0x0001, 2f64.powi(-24)), (0, 0.0)]
        {
            assert_eq!(Dtype::F16.value(&u16::to_le_bytes(bits)), value);
        }
        assert!(Dtype::F16.value(&[0xff, 0x7f]).is_nan());
        assert_eq!(Dtype::F16.value(&[0x00, 0xfc]), f64::NEG_INFINITY);
        assert_eq!(Dtype::Bf16.value(&[0x80, 0x3f]), 1.0);
    }
}
