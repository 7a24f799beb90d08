//! Signatures of `extern "C"` launchers, which callers outside C++ need: for both devices.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ctype::{element, is_type_word, scalar};
use crate::lexer::{Token, TokenKind, lex};
use crate::refusal::Refusal;

/// One `extern "C"` function defined in a `.cu` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Launcher {
    /// Symbol name.
    pub name: String,
    /// What it returns.
    pub returns: Returns,
    /// Parameters in order, without the trailing stream.
    pub params: Vec<Param>,
    /// Whether a trailing `cudaStream_t` follows the parameters.
    pub has_stream: bool,
    /// 1-based line of the name.
    pub line: u32,
}

/// What a launcher returns. A non-zero `int` or `cudaError_t` is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// Nothing.
    Void,
    /// A C `int`.
    Int,
    /// A `cudaError_t`; the same size as `int`.
    CudaError,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Param {
    /// Name as written; `argN` when there is none.
    pub name: String,
    /// The type as written, comments removed, blanks normalised.
    pub c_type: String,
    /// What it means at the binary interface.
    pub kind: ParamKind,
}

/// A parameter at the binary interface (LP64: `long` and `size_t` have 64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// Address of device memory.
    Pointer {
        /// What it points to.
        element: Element,
        /// Whether the pointee is `const`: the launcher promises not to write.
        constant: bool,
    },
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// Binary32.
    F32,
    /// Binary64.
    F64,
    /// C++ `bool`, one byte.
    Bool,
}

/// What a pointer points to. Vector types count as their element: `float4*` is `F32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// `float`
    F32,
    /// `double`
    F64,
    /// `__half`
    F16,
    /// `__nv_bfloat16`
    BF16,
    /// `int8_t`, `char`
    I8,
    /// `uint8_t`
    U8,
    /// `int16_t`
    I16,
    /// `uint16_t`
    U16,
    /// `int32_t`
    I32,
    /// `uint32_t`
    U32,
    /// `int64_t`
    I64,
    /// `uint64_t`
    U64,
    /// `bool`
    Bool,
    /// `void`: any dtype.
    Void,
}

/// Finds the `extern "C"` functions that `source` defines, in order.
///
/// Functions that are only declared are skipped. Parameters of a type that cannot cross the
/// boundary (a struct by value, a reference, a function pointer) are refused by name.
pub fn launchers(source: &str, file: &str) -> Result<Vec<Launcher>, Vec<Refusal>> {
    let tokens: Vec<Token> =
        lex(source).into_iter().filter(|t| t.is_code() && !t.directive).collect();
    let mut scan = Scan { source, file, tokens, found: Vec::new(), refusals: Vec::new() };
    scan.run();
    if scan.refusals.is_empty() { Ok(scan.found) } else { Err(scan.refusals) }
}

struct Scan<'a> {
    source: &'a str,
    file: &'a str,
    tokens: Vec<Token>,
    found: Vec<Launcher>,
    refusals: Vec<Refusal>,
}

/// Words in a declaration that do not change its type.
const SPECIFIERS: [&str; 11] = [
    "extern",
    "inline",
    "static",
    "__host__",
    "__device__",
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "constexpr",
];

impl<'a> Scan<'a> {
    fn text(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| t.text(self.source))
    }

    fn run(&mut self) {
        let mut i = 0;
        while i + 1 < self.tokens.len() {
            if self.text(i) == "extern" && self.text(i + 1) == "\"C\"" {
                if self.text(i + 2) == "{" {
                    i = self.block(i + 3);
                } else {
                    i = self.declaration(i + 2);
                }
            } else {
                i += 1;
            }
        }
    }

    /// Declarations up to the closing brace of `extern "C" {`.
    fn block(&mut self, mut i: usize) -> usize {
        while i < self.tokens.len() && self.text(i) != "}" {
            i = self.declaration(i);
        }
        i + 1
    }

    /// Index past the bracket that closes the one at `open`.
    fn past(&self, open: usize) -> usize {
        let mut depth = 0_i32;
        for i in open..self.tokens.len() {
            match self.text(i) {
                "(" | "{" | "[" => depth += 1,
                ")" | "}" | "]" => {
                    depth -= 1;
                    if depth == 0 {
                        return i + 1;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// One declaration from `start`; returns the index past it.
    fn declaration(&mut self, start: usize) -> usize {
        let mut i = start;
        let mut name = None;
        let mut kernel = false;
        while i < self.tokens.len() {
            match self.text(i) {
                "__global__" => kernel = true,
                ";" => return i + 1,
                "=" => {
                    while i < self.tokens.len() && self.text(i) != ";" {
                        i = if self.text(i) == "{" { self.past(i) } else { i + 1 };
                    }
                    return i + 1;
                }
                "{" => {
                    // Without a name it is a struct or an enum.
                    if let Some((at, from, to)) = name
                        && !kernel
                    {
                        self.define(start, at, from, to);
                    }
                    return self.past(i);
                }
                "(" if name.is_none()
                    && i > start
                    && self.tokens[i - 1].kind == TokenKind::Ident
                    && !matches!(
                        self.text(i - 1),
                        "__launch_bounds__"
                            | "__attribute__"
                            | "__declspec"
                            | "alignas"
                            | "__align__"
                    ) =>
                {
                    let end = self.past(i);
                    name = Some((i - 1, i + 1, end - 1));
                    i = end;
                    continue;
                }
                "(" => {
                    i = self.past(i);
                    continue;
                }
                _ => {}
            }
            i += 1;
        }
        i
    }

    fn refuse(&mut self, at: usize, construct: String, reason: &str) {
        let (line, column) = self.tokens.get(at).map_or((1, 1), |t| (t.line, t.column));
        let reason = reason.to_owned();
        self.refusals.push(Refusal { file: self.file.to_owned(), line, column, construct, reason });
    }

    fn define(&mut self, start: usize, at: usize, from: usize, to: usize) {
        let returns: Vec<&str> =
            (start..at).map(|i| self.text(i)).filter(|w| !SPECIFIERS.contains(w)).collect();
        let returns = match returns.join(" ").as_str() {
            "void" => Returns::Void,
            "int" | "int32_t" | "std :: int32_t" => Returns::Int,
            "cudaError_t" | "cudaError" | "enum cudaError" => Returns::CudaError,
            other => {
                let why = "an extern \"C\" launcher returns void, int or cudaError_t";
                self.refuse(start, format!("{other} {}", self.text(at)), why);
                return;
            }
        };
        let mut params = Vec::new();
        let mut has_stream = false;
        for (index, (first, last)) in self.split(from, to).into_iter().enumerate() {
            if first == last || (last - first == 1 && self.text(first) == "void") {
                continue;
            }
            if has_stream {
                let why = "the stream must be the last parameter of a launcher";
                self.refuse(first, "cudaStream_t".to_owned(), why);
                return;
            }
            match self.param(index, first, last) {
                Ok(Some(param)) => params.push(param),
                Ok(None) => has_stream = true,
                Err((construct, reason)) => {
                    self.refuse(first, construct, &reason);
                    return;
                }
            }
        }
        let (name, line) = (self.text(at).to_owned(), self.tokens[at].line);
        self.found.push(Launcher { name, returns, params, has_stream, line });
    }

    /// The comma-separated ranges between `from` and `to`.
    fn split(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let (mut first, mut i) = (from, from);
        while i < to {
            match self.text(i) {
                "(" | "{" | "[" => {
                    i = self.past(i);
                    continue;
                }
                "," => {
                    parts.push((first, i));
                    first = i + 1;
                }
                _ => {}
            }
            i += 1;
        }
        parts.push((first, to));
        parts
    }

    /// A parameter, or `None` for the stream.
    fn param(
        &self,
        index: usize,
        first: usize,
        last: usize,
    ) -> Result<Option<Param>, (String, String)> {
        let default = (first..last).find(|&i| self.text(i) == "=").unwrap_or(last);
        let mut words: Vec<&str> = (first..default).map(|i| self.text(i)).collect();
        let written = words.join(" ");
        let refuse = |why: &str| Err((written.clone(), why.to_owned()));
        if words.iter().any(|w| matches!(*w, "&" | "&&")) {
            return refuse("a launcher parameter cannot be a reference: pass a pointer or a value");
        }
        if words.iter().any(|w| matches!(*w, "(" | "<" | "...")) {
            return refuse("a launcher parameter is a pointer, a number or the stream");
        }
        let mut stars = words.iter().filter(|w| **w == "*").count();
        if let Some(open) = words.iter().position(|w| *w == "[") {
            words.truncate(open);
            stars += 1;
        }
        let words: Vec<&str> = words.into_iter().filter(|w| *w != "std" && *w != "::").collect();
        let base: Vec<&str> =
            words.iter().copied().filter(|w| *w != "*" && !SPECIFIERS.contains(w)).collect();
        // The last word is the name, unless the words are all part of the type. It may have a type's, as in
        // `int half`.
        let is_known = |words: &[&str]| {
            let text = words.join(" ");
            scalar(&text).is_some() || element(&text).is_some()
        };
        let (type_words, name) = match base.split_last() {
            Some((name, rest))
                if !rest.is_empty()
                    && (!is_type_word(name) || (!is_known(&base) && is_known(rest))) =>
            {
                (rest, (*name).to_owned())
            }
            _ => (base.as_slice(), format!("arg{index}")),
        };
        let base = type_words.join(" ");
        if stars == 0 && matches!(base.as_str(), "cudaStream_t" | "CUstream") {
            return Ok(None);
        }
        let before_star = words.iter().position(|w| *w == "*").unwrap_or(words.len());
        let constant = words[..before_star].contains(&"const");
        let kind = match stars {
            0 => scalar(&base),
            1 => element(&base).map(|element| ParamKind::Pointer { element, constant }),
            _ => return refuse("a launcher parameter cannot be a pointer to a pointer"),
        };
        let Some(kind) = kind else {
            return refuse(
                "unknown type at the extern \"C\" boundary: use pointers to numbers, int, unsigned, \
                 long long, size_t, float, double, bool and a trailing cudaStream_t",
            );
        };
        let c_type = if name.starts_with("arg") {
            written.clone()
        } else {
            written.strip_suffix(&format!(" {name}")).unwrap_or(&written).to_owned()
        };
        Ok(Some(Param { name, c_type, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_definitions_blocks_and_declarations() {
        let source = r#"
            // extern "C" void not_me(int) {}
            extern "C" void only_declared(float* x, int n);
            extern "C" cudaError_t gelu(const float* __restrict__ x, __half *y, size_t n,
                                        float eps = 1e-5f, cudaStream_t stream) { return 0; }
            extern "C" {
              struct S { int a; };
              static const int table[] = {1, 2};
              __global__ void kernel(float* x) {}
              int two(const __nv_bfloat16* a, unsigned char b[], long long n, bool f, unsigned k,
                      const void* v, float4* q, double, unsigned long long) { if (1) { return 1; } return 0; }
            }
        "#;
        let found = launchers(source, "a.cu").unwrap();
        assert_eq!(found.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["gelu", "two"]);
        let pointer = |element, constant| ParamKind::Pointer { element, constant };
        let kinds = |l: &Launcher| l.params.iter().map(|p| p.kind).collect::<Vec<_>>();
        assert!(found[0].has_stream && found[0].returns == Returns::CudaError);
        assert_eq!(
            kinds(&found[0]),
            [
                pointer(Element::F32, true),
                pointer(Element::F16, false),
                ParamKind::U64,
                ParamKind::F32
            ]
        );
        assert_eq!(found[0].params[0].c_type, "const float * __restrict__");
        assert_eq!((found[0].line, found[1].line), (4, 10));
        assert_eq!(
            kinds(&found[1]),
            [
                pointer(Element::BF16, true),
                pointer(Element::U8, false),
                ParamKind::I64,
                ParamKind::Bool,
                ParamKind::U32,
                pointer(Element::Void, true),
                pointer(Element::F32, false),
                ParamKind::F64,
                ParamKind::U64
            ]
        );
        assert_eq!(found[1].params[7].name, "arg7");
    }

    #[test]
    fn a_parameter_may_have_the_name_of_a_type() {
        let source = "extern \"C\" void f(const float *x, int half, unsigned int, const half *half, long long) {}";
        let found = launchers(source, "a.cu").unwrap();
        let told: Vec<_> =
            found[0].params.iter().map(|p| (p.c_type.as_str(), p.name.as_str(), p.kind)).collect();
        let halves = ParamKind::Pointer { element: Element::F16, constant: true };
        assert_eq!(told[1], ("int", "half", ParamKind::I32));
        assert_eq!((told[2].1, told[2].2), ("arg2", ParamKind::U32));
        assert_eq!(told[3], ("const half *", "half", halves));
        assert_eq!((told[4].1, told[4].2), ("arg4", ParamKind::I64));
    }

    #[test]
    fn unknown_types_are_refused_with_their_place() {
        for (line, text) in [
            "extern \"C\" void f(int n,\n  Config c) {}",
            "extern \"C\" void f(\n  float& x) {}",
            "extern \"C\" void f(\n  void (*g)(int)) {}",
            "extern \"C\" void f(\n  float** x) {}",
            "extern \"C\"\nfloat f(int x) {}",
        ]
        .iter()
        .map(|t| (2, t))
        {
            let refused = launchers(text, "a.cu").unwrap_err();
            assert_eq!((refused[0].line, refused.len()), (line, 1), "{text}");
        }
    }
}
