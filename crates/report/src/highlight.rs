//! A small highlighter for CUDA C++ and Python. It colours, it does not parse: whatever it makes
//! of a file, the text that comes out is the text that went in.

use std::fmt::Write;

use crate::text::{clean, escape};

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Cuda,
    Python,
    Plain,
}

impl Language {
    pub(crate) fn of(path: &str) -> Self {
        match path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("cu" | "cuh" | "cpp" | "cc" | "h" | "hpp") => Self::Cuda,
            Some("py") => Self::Python,
            _ => Self::Plain,
        }
    }
}

const CUDA_WORDS: &str = " alignas auto break case class const constexpr continue default delete do \
    else enum extern false for friend goto if inline namespace new nullptr operator private public \
    reinterpret_cast return sizeof static static_assert static_cast struct switch template this \
    true typedef typename union using virtual volatile while asm ";
const CUDA_TYPES: &str = " bool char double float int long short signed unsigned void size_t int8_t \
    int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t half half2 float2 float3 float4 int2 \
    int4 uint4 double2 dim3 cudaStream_t cudaError_t nv_bfloat16 nv_bfloat162 ";
const CUDA_NAMES: &str = " threadIdx blockIdx blockDim gridDim warpSize ";
const PYTHON_WORDS: &str = " False None True and as assert async await break class continue def del \
    elif else except finally for from global if import in is lambda nonlocal not or pass raise \
    return try while with yield ";
const PYTHON_NAMES: &str = " self torch nn cuda_extension super range len int float str bool list \
    tuple dict ";

/// HTML of `source`: each line in `<span class="l">`, tokens in spans with the class `k` keyword,
/// `t` type, `g` name of CUDA or torch, `s` text, `n` number, `c` comment, `p` preprocessor or
/// decorator, `x` launch brackets.
pub(crate) fn highlight(source: &str, language: Language) -> String {
    let source = clean(source);
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut out = String::from("<span class=\"l\">");
    let mut rest = source;
    let mut fresh = true;
    while !rest.is_empty() {
        let (class, length) = token(rest, language, fresh);
        let (text, after) = rest.split_at(length);
        fresh = if text.trim().is_empty() { fresh || text.contains('\n') } else { false };
        for (i, part) in text.split('\n').enumerate() {
            if i > 0 {
                out.push_str("\n</span><span class=\"l\">");
            }
            match class {
                Some(class) if !part.is_empty() => {
                    let _ = write!(out, "<span class=\"{class}\">{}</span>", escape(part));
                }
                _ => out.push_str(&escape(part)),
            }
        }
        rest = after;
    }
    out.push_str("\n</span>");
    out
}

/// Class and length in bytes, at least one character, of the token that `rest` begins with.
/// `fresh`: only blanks stand before it on its line.
fn token(rest: &str, language: Language, fresh: bool) -> (Option<&'static str>, usize) {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    // Looked for only where the line is then consumed: a file may be one long line.
    let line = || rest.find('\n').unwrap_or(rest.len());
    let until = |end: &str, from: usize| {
        rest.get(from..).and_then(|r| r.find(end)).map_or(rest.len(), |at| from + at + end.len())
    };
    let start = rest.as_bytes()[0];
    match (language, start) {
        (Language::Plain, _) => return (None, rest.len()),
        (Language::Cuda, _) if rest.starts_with("//") => return (Some("c"), line()),
        (Language::Cuda, _) if rest.starts_with("/*") => return (Some("c"), until("*/", 2)),
        (Language::Cuda, _) if rest.starts_with("<<<") || rest.starts_with(">>>") => {
            return (Some("x"), 3);
        }
        (Language::Cuda, b'#') if fresh => {
            let line = line();
            return (Some("p"), rest[..line].find("//").unwrap_or(line));
        }
        (Language::Python, b'#') => return (Some("c"), line()),
        (Language::Python, b'@') if fresh => return (Some("p"), line()),
        (Language::Python, _) if rest.starts_with("\"\"\"") => {
            return (Some("s"), until("\"\"\"", 3));
        }
        (Language::Python, _) if rest.starts_with("'''") => return (Some("s"), until("'''", 3)),
        (_, b'"' | b'\'') => return (Some("s"), quoted(rest.as_bytes(), start)),
        (_, b'0'..=b'9') => {
            let number = |c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_');
            return (Some("n"), rest.find(number).unwrap_or(rest.len()));
        }
        _ => {}
    }
    if start.is_ascii_alphabetic() || start == b'_' {
        let length =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        return (word_class(&rest[..length], language), length);
    }
    if rest.starts_with(char::is_whitespace) {
        return (None, rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len()));
    }
    (None, first)
}

/// Length of a quoted text that ends on its line, or of the line.
fn quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\n' => return at,
            // A backslash at the end of a line carries the text on to the next one.
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn word_class(word: &str, language: Language) -> Option<&'static str> {
    let among = |list: &str| list.split_ascii_whitespace().any(|entry| entry == word);
    match language {
        Language::Cuda if among(CUDA_WORDS) => Some("k"),
        Language::Cuda if among(CUDA_TYPES) => Some("t"),
        Language::Cuda if among(CUDA_NAMES) || word.starts_with("__") => Some("g"),
        Language::Python if among(PYTHON_WORDS) => Some("k"),
        Language::Python if among(PYTHON_NAMES) => Some("g"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(html: &str) -> String {
        let mut out = String::new();
        let mut tag = false;
        for c in html.chars() {
            match c {
                '<' => tag = true,
                '>' => tag = false,
                c if !tag => out.push(c),
                _ => {}
            }
        }
        out.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&amp;", "&")
    }

    #[test]
    fn cuda_and_python_are_coloured() {
        let html = highlight("__global__ void f() { g<<<1, 2>>>(); } // a\n", Language::Cuda);
        insta::assert_snapshot!(html, @r#"
        <span class="l"><span class="g">__global__</span> <span class="t">void</span> f() { g<span class="x">&lt;&lt;&lt;</span><span class="n">1</span>, <span class="n">2</span><span class="x">&gt;&gt;&gt;</span>(); } <span class="c">// a</span>
        </span>
        "#);
        let html = highlight("def f(x):  # a\n    return 'b\\'c'", Language::Python);
        insta::assert_snapshot!(html, @r#"
        <span class="l"><span class="k">def</span> f(x):  <span class="c"># a</span>
        </span><span class="l">    <span class="k">return</span> <span class="s">&#39;b\&#39;c&#39;</span>
        </span>
        "#);
    }

    #[test]
    fn a_comment_over_two_lines_is_coloured_on_both() {
        let html = highlight("/* a\nb */ int", Language::Cuda);
        assert_eq!(html.matches("<span class=\"c\">").count(), 2, "{html}");
    }

    #[test]
    fn one_long_line_takes_no_longer_than_many_short_ones() {
        // Would not end within a minute if each token looked through the rest of the line.
        let text = "a\"b\" + ".repeat(100_000);
        assert!(highlight(&text, Language::Cuda).len() > text.len());
    }

    proptest! {
        #[test]
        fn the_text_stays_what_it_was(
            text in prop_oneof![
                any::<String>(),
                "[a-z_#/*'\"\\\\<>&@.0-9 \n\t]{0,200}",
            ],
            language in prop_oneof![
                Just(Language::Cuda), Just(Language::Python), Just(Language::Plain)
            ],
        ) {
            let cleaned = clean(&text);
            let expected = cleaned.strip_suffix('\n').unwrap_or(&cleaned).to_owned() + "\n";
            prop_assert_eq!(text_of(&highlight(&text, language)), expected);
        }
    }
}
