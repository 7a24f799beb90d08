//! Expressions that are linear in `threadIdx.x`.

use std::collections::{HashMap, HashSet};

use crate::code::Seq;

/// Integer types by the operations that are safe on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Unsigned,
    Auto,
    /// 64 bits.
    Wide,
}

/// A word of an arithmetic type.
pub(crate) fn fits(word: &str) -> bool {
    matches!(
        word,
        "int"
            | "unsigned"
            | "signed"
            | "long"
            | "short"
            | "char"
            | "float"
            | "double"
            | "bool"
            | "size_t"
            | "ssize_t"
            | "ptrdiff_t"
            | "uint"
            | "half"
            | "__half"
            | "intptr_t"
            | "uintptr_t"
            | "sizeof"
            | "static_cast"
    ) || (word.ends_with("_t") && word.contains("int"))
}

/// The integer type at token `i`, and the token past it.
pub(crate) fn declared_type(seq: &Seq<'_>, mut i: usize) -> Option<(Kind, usize)> {
    let mut words = Vec::new();
    loop {
        match seq.text(i) {
            "const" | "constexpr" => {}
            word if fits(word) || word == "auto" => words.push(word),
            _ => break,
        }
        i += 1;
    }
    Some((kind(&words)?, i))
}

/// The kind of a type of these words.
pub(crate) fn kind(words: &[&str]) -> Option<Kind> {
    Some(match words {
        ["int" | "int32_t" | "signed"] | ["signed", "int"] => Kind::Int,
        ["unsigned" | "uint32_t" | "uint"] | ["unsigned", "int"] => Kind::Unsigned,
        ["auto"] => Kind::Auto,
        ["size_t" | "ptrdiff_t" | "int64_t" | "uint64_t" | "ssize_t"] => Kind::Wide,
        _ if words.contains(&"long") && !words.contains(&"double") => Kind::Wide,
        _ => return None,
    })
}

/// A value for thread 0, as text, and a factor of `threadIdx.x`.
pub(crate) struct Linear {
    pub(crate) base: String,
    pub(crate) factor: i64,
    /// Built from indices, dimensions and small numbers by sums and products, so it does not wrap.
    pub(crate) grown: bool,
}

/// Larger factors could make the signed sum wrap.
const LARGEST: i64 = 64;

impl Linear {
    /// The varying part.
    pub(crate) fn rest(&self) -> String {
        match self.factor {
            1 => "hostcuda_threadIdx.x".to_owned(),
            factor => format!("hostcuda_threadIdx.x * ({factor})"),
        }
    }

    /// The whole value as a `kind`; `whole` is the original text, for types that are not integers.
    pub(crate) fn text(&self, kind: &str, whole: &str) -> String {
        format!("::hostcuda::plus<{kind}>({whole}, {}, {})", self.base, self.rest())
    }
}

/// Reads sums, differences, and products with small numbers. `known` holds linear variables.
pub(crate) fn linear(
    seq: &Seq<'_>,
    from: usize,
    to: usize,
    known: &HashMap<&str, (String, i64)>,
    opaque: &HashSet<&str>,
) -> Option<Linear> {
    let reader = Reader { seq, known, opaque };
    reader.sum(from, to).filter(|l| l.factor.abs() <= LARGEST)
}

struct Reader<'s, 'a> {
    seq: &'s Seq<'a>,
    known: &'s HashMap<&'s str, (String, i64)>,
    opaque: &'s HashSet<&'s str>,
}

impl Reader<'_, '_> {
    /// Splits at `signs` outside brackets, where they have an operand on their left.
    fn split(&self, from: usize, to: usize, signs: &[&str]) -> Option<Vec<(usize, usize)>> {
        let mut parts = Vec::new();
        let (mut first, mut i) = (from, from);
        while i < to {
            match self.seq.text(i) {
                "(" => i = self.seq.close(i).filter(|&c| c < to)?,
                sign if signs.contains(&sign) && i > first => {
                    parts.push((first, i));
                    first = i + 1;
                }
                _ => {}
            }
            i += 1;
        }
        parts.push((first, to));
        Some(parts)
    }

    fn sum(&self, from: usize, to: usize) -> Option<Linear> {
        let mut all = Linear { base: String::new(), factor: 0, grown: true };
        for (a, b) in self.split(from, to, &["+", "-"])? {
            let part = self.product(a, b)?;
            let minus = a > from && self.seq.text(a - 1) == "-";
            if a > from {
                all.base.push_str(if minus { " - " } else { " + " });
            }
            all.base.push_str(&part.base);
            all.factor += if minus { -part.factor } else { part.factor };
            all.grown &= part.grown && !minus;
        }
        Some(all)
    }

    fn product(&self, from: usize, to: usize) -> Option<Linear> {
        let mut all = Linear { base: String::new(), factor: 0, grown: true };
        let mut numbers = Some(1_i64);
        for (a, b) in self.split(from, to, &["*"])? {
            let part = self.operand(a, b)?;
            if a > from {
                all.base.push_str(" * ");
            }
            all.base.push_str(&part.base);
            all.grown &= part.grown;
            if part.factor == 0 {
                let number = number(self.seq.text(a)).filter(|_| b == a + 1);
                numbers = numbers.zip(number).map(|(x, y)| x.saturating_mul(y));
            } else if all.factor == 0 {
                all.factor = part.factor;
            } else {
                return None;
            }
        }
        if all.factor != 0 {
            all.factor = all.factor.checked_mul(numbers?)?;
        }
        Some(all)
    }

    fn operand(&self, from: usize, to: usize) -> Option<Linear> {
        let seq = self.seq;
        let plain = |base: String, grown| Some(Linear { base, factor: 0, grown });
        let word = seq.text(from);
        let close = (word == "(").then(|| seq.close(from)).flatten();
        if let Some(close) = close {
            if close + 1 == to {
                let inner = self.sum(from + 1, close)?;
                return Some(Linear { base: format!("({})", inner.base), ..inner });
            }
            // `(int)operand`
            let words: Vec<&str> = (from + 1..close).map(|i| seq.text(i)).collect();
            kind(&words).filter(|k| *k != Kind::Auto)?;
            let inner = self.operand(close + 1, to)?;
            return Some(Linear { base: format!("({}){}", words.join(" "), inner.base), ..inner });
        }
        if word == "static_cast" {
            let past = seq.past_angle(from + 1)?;
            let words: Vec<&str> = (from + 2..past - 1).map(|i| seq.text(i)).collect();
            kind(&words).filter(|k| *k != Kind::Auto)?;
            (seq.text(past) == "(" && seq.close(past)? + 1 == to).then_some(())?;
            let inner = self.sum(past + 1, to - 1)?;
            return Some(Linear {
                base: format!("({})({})", words.join(" "), inner.base),
                ..inner
            });
        }
        let words: Vec<&str> = (from..to).map(|i| seq.text(i)).collect();
        match words.as_slice() {
            ["threadIdx", ".", "x"] => {
                Some(Linear { base: "0u".to_owned(), factor: 1, grown: true })
            }
            [index, ".", _] => {
                let index = crate::function::INDICES.contains(index);
                (seq.is_ident(from) && seq.is_ident(from + 2)).then_some(())?;
                plain(words.concat(), index)
            }
            [name] if seq.is_ident(from) => {
                if self.opaque.contains(name) || fits(name) {
                    return None;
                }
                match self.known.get(name) {
                    Some((base, factor)) => {
                        Some(Linear { base: base.clone(), factor: *factor, grown: false })
                    }
                    // `TILE` is a constant.
                    None => plain((*name).to_owned(), *name == name.to_uppercase()),
                }
            }
            [word] => {
                let small = number(word).is_some_and(|n| n <= 4096);
                plain((*word).to_owned(), small)
                    .filter(|_| word.starts_with(|c: char| c.is_ascii_digit()))
            }
            _ => None,
        }
    }
}

/// A decimal number without a suffix except `u`.
fn number(word: &str) -> Option<i64> {
    word.trim_end_matches(['u', 'U']).parse().ok()
}
