//! A lossless lexer of C++ with CUDA's launch brackets.
//!
//! Every byte of the input belongs to exactly one token, so the concatenation of all tokens is the
//! input. The lexer never fails: invalid text (an unterminated string, a stray byte) becomes
//! [`TokenKind::Unknown`], and the host compiler reports it.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Blanks, and a backslash before a line end (a line continuation).
    Space,
    /// A line end that is not continued.
    Newline,
    /// `//` to the end of the line.
    LineComment,
    /// `/* */`, possibly unterminated.
    BlockComment,
    /// Identifier or keyword.
    Ident,
    /// Preprocessing number.
    Number,
    /// String literal with its prefix; also raw strings.
    Str,
    /// Character literal with its prefix.
    Char,
    /// `<name>` or `"name"` after `#include`.
    HeaderName,
    /// Text of `#error`, `#warning` and `#pragma`, to the end of the line.
    DirectiveText,
    /// Operator or punctuator. `<<<` is one token; `>` is always alone except in `>=` and `>>=`.
    Punct,
    /// Anything else.
    Unknown,
}

/// One token: a byte range of the source with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind.
    pub kind: TokenKind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// 1-based line of the first byte.
    pub line: u32,
    /// 1-based column of the first byte, in bytes, as compilers count.
    pub column: u32,
    /// Part of a preprocessor line.
    pub directive: bool,
}

impl Token {
    /// The token's text in the source it came from.
    pub fn text<'a>(&self, source: &'a str) -> &'a str {
        &source[self.start..self.end]
    }

    /// Not white space and not a comment.
    pub fn is_code(&self) -> bool {
        !matches!(
            self.kind,
            TokenKind::Space
                | TokenKind::Newline
                | TokenKind::LineComment
                | TokenKind::BlockComment
        )
    }
}

/// Longest first, so that the first match is the longest.
const PUNCTUATORS: [&str; 27] = [
    "<<<", "<<=", ">>=", "...", "->*", "<=>", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=",
    "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", ".*",
];

/// Splits `source` into tokens. The module describes the guarantees.
pub fn lex(source: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        bytes: source.as_bytes(),
        at: 0,
        line: 1,
        line_start: 0,
        directive: None,
        fresh_line: true,
        tokens: Vec::with_capacity(source.len() / 4),
    };
    lexer.run();
    lexer.tokens
}

/// The lexer's position in a preprocessor line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Hash,
    Include,
    Text,
    Body,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
    directive: Option<Directive>,
    fresh_line: bool,
    tokens: Vec<Token>,
}

fn ident_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b == b'$' || b >= 0x80
}

fn ident_continue(b: u8) -> bool {
    ident_start(b) || b.is_ascii_digit()
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let start = self.at;
            let (line, column) = (self.line, (start - self.line_start + 1) as u32);
            if self.fresh_line && self.directive.is_none() && self.bytes[start] == b'#' {
                self.directive = Some(Directive::Hash);
            }
            let kind = self.next_kind();
            debug_assert!(self.at > start, "every token has at least one byte");
            let directive = self.directive.is_some() && kind != TokenKind::Newline;
            self.count_lines(start);
            self.tokens.push(Token { kind, start, end: self.at, line, column, directive });
            self.after(kind, start);
        }
    }

    fn count_lines(&mut self, start: usize) {
        for i in start..self.at {
            if self.bytes[i] == b'\n' {
                self.line += 1;
                self.line_start = i + 1;
            }
        }
    }

    /// Keeps track of the preprocessor line.
    fn after(&mut self, kind: TokenKind, start: usize) {
        match kind {
            TokenKind::Newline => {
                self.directive = None;
                self.fresh_line = true;
            }
            TokenKind::Space | TokenKind::LineComment | TokenKind::BlockComment => {}
            _ => {
                self.fresh_line = false;
                if self.directive == Some(Directive::Hash) && kind == TokenKind::Ident {
                    self.directive = Some(match &self.bytes[start..self.at] {
                        b"include" | b"include_next" | b"import" => Directive::Include,
                        b"error" | b"warning" | b"pragma" => Directive::Text,
                        _ => Directive::Body,
                    });
                } else if self.directive == Some(Directive::Include) {
                    self.directive = Some(Directive::Body);
                }
            }
        }
    }

    fn next_kind(&mut self) -> TokenKind {
        let b = self.bytes[self.at];
        match b {
            b'\n' => {
                self.at += 1;
                TokenKind::Newline
            }
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => {
                while matches!(self.peek(0), b' ' | b'\t' | b'\r' | 0x0b | 0x0c) {
                    self.at += 1;
                }
                TokenKind::Space
            }
            b'\\' if self.splice() > 0 => {
                self.at += self.splice();
                TokenKind::Space
            }
            b'/' if self.peek(1) == b'/' => {
                self.skip_line();
                TokenKind::LineComment
            }
            b'/' if self.peek(1) == b'*' => {
                self.block_comment();
                TokenKind::BlockComment
            }
            _ if self.directive == Some(Directive::Text) => {
                self.directive_text();
                TokenKind::DirectiveText
            }
            b'<' if self.directive == Some(Directive::Include) => self.delimited(b'>'),
            b'"' if self.directive == Some(Directive::Include) => self.delimited(b'"'),
            b'"' => self.literal(b'"', TokenKind::Str),
            b'\'' => self.literal(b'\'', TokenKind::Char),
            _ if b.is_ascii_digit() || (b == b'.' && self.peek(1).is_ascii_digit()) => {
                self.number();
                TokenKind::Number
            }
            _ if ident_start(b) => self.ident_or_prefixed_literal(),
            _ => self.punctuator(),
        }
    }

    /// Length of a line continuation at the cursor, 0 if there is none.
    fn splice(&self) -> usize {
        match (self.peek(0), self.peek(1), self.peek(2)) {
            (b'\\', b'\n', _) => 2,
            (b'\\', b'\r', b'\n') => 3,
            _ => 0,
        }
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            self.at += self.splice().max(1);
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn block_comment(&mut self) {
        self.at += 2;
        while self.at < self.bytes.len() {
            if self.peek(0) == b'*' && self.peek(1) == b'/' {
                self.at += 2;
                return;
            }
            self.at += 1;
        }
    }

    /// To the end of the logical line, or to a comment.
    fn directive_text(&mut self) {
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            if self.peek(0) == b'/' && matches!(self.peek(1), b'/' | b'*') {
                return;
            }
            self.at += self.splice().max(1);
        }
    }

    fn delimited(&mut self, close: u8) -> TokenKind {
        self.at += 1;
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            self.at += 1;
            if self.bytes[self.at - 1] == close {
                return TokenKind::HeaderName;
            }
        }
        TokenKind::Unknown
    }

    fn literal(&mut self, quote: u8, kind: TokenKind) -> TokenKind {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'\\' if self.at + 1 < self.bytes.len() => self.at += self.splice().max(2),
                b'\n' => return TokenKind::Unknown,
                b if b == quote => {
                    self.at += 1;
                    return kind;
                }
                _ => self.at += 1,
            }
        }
        TokenKind::Unknown
    }

    fn number(&mut self) {
        self.at += 1;
        loop {
            let b = self.peek(0);
            let exponent = matches!(self.bytes[self.at - 1], b'e' | b'E' | b'p' | b'P');
            if (exponent && matches!(b, b'+' | b'-') && self.at < self.bytes.len())
                || (b == b'\'' && self.peek(1).is_ascii_alphanumeric())
                || b == b'.'
                || ident_continue(b)
            {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn ident_or_prefixed_literal(&mut self) -> TokenKind {
        let start = self.at;
        while self.at < self.bytes.len() && ident_continue(self.bytes[self.at]) {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        match (word, self.peek(0)) {
            (b"R" | b"LR" | b"uR" | b"UR" | b"u8R", b'"') => self.raw_string(),
            (b"L" | b"u" | b"U" | b"u8", b'"') => self.literal(b'"', TokenKind::Str),
            (b"L" | b"u" | b"U" | b"u8", b'\'') => self.literal(b'\'', TokenKind::Char),
            _ => TokenKind::Ident,
        }
    }

    fn raw_string(&mut self) -> TokenKind {
        let open = self.at + 1;
        let mut paren = open;
        while paren < self.bytes.len() && paren - open <= 16 && self.bytes[paren] != b'(' {
            paren += 1;
        }
        if self.bytes.get(paren) != Some(&b'(') {
            self.at += 1;
            return TokenKind::Unknown;
        }
        let mut close = vec![b')'];
        close.extend_from_slice(&self.bytes[open..paren]);
        close.push(b'"');
        let rest = &self.bytes[paren + 1..];
        if let Some(found) = rest.windows(close.len()).position(|w| w == close) {
            self.at = paren + 1 + found + close.len();
            TokenKind::Str
        } else {
            self.at = self.bytes.len();
            TokenKind::Unknown
        }
    }

    fn punctuator(&mut self) -> TokenKind {
        let rest = &self.bytes[self.at..];
        let long = PUNCTUATORS.iter().find(|p| rest.starts_with(p.as_bytes()));
        self.at += long.map_or(1, |p| p.len());
        if long.is_some() || b"{}[]()#;:?.+-*/%^&|~!=<>,".contains(&rest[0]) {
            TokenKind::Punct
        } else {
            TokenKind::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(source: &str) -> Vec<&str> {
        lex(source).iter().filter(|t| t.is_code()).map(|t| t.text(source)).collect()
    }

    #[test]
    fn launch_brackets_and_shifts_are_distinguished() {
        assert_eq!(
            code("k<T<int>><<<g,b>>>(x>>1,y>>=2)"),
            [
                "k", "<", "T", "<", "int", ">", ">", "<<<", "g", ",", "b", ">", ">", ">", "(", "x",
                ">", ">", "1", ",", "y", ">>=", "2", ")"
            ]
        );
    }

    #[test]
    fn comments_and_strings_hide_code() {
        let text = "a /* <<< \" */ \"x // y\\\"\" R\"q(\" )\" )q\" '\\'' // end\nb";
        assert_eq!(code(text), ["a", "\"x // y\\\"\"", "R\"q(\" )\" )q\"", "'\\''", "b"]);
    }

    #[test]
    fn directives_continue_over_spliced_lines() {
        let text = "#define A(x) \\\n  (x + 1)\n#include <cuda.h> // c\n#error it's\nint y;";
        let tokens = lex(text);
        let in_directive: String =
            tokens.iter().filter(|t| t.directive).map(|t| t.text(text)).collect();
        assert!(in_directive.contains("(x + 1)") && !in_directive.contains("int y"));
        assert!(tokens.iter().any(|t| t.kind == TokenKind::HeaderName));
        let y = tokens.iter().find(|t| t.text(text) == "y").unwrap();
        assert_eq!((y.line, y.column), (5, 5));
    }

    #[test]
    fn digit_separators_do_not_open_a_character() {
        assert_eq!(
            code("1'000'000 + 0x1p-3f + .5e+2"),
            ["1'000'000", "+", "0x1p-3f", "+", ".5e+2"]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn lexing_any_text_is_lossless(text in "(?s).{0,200}") {
            let joined: String = lex(&text).iter().map(|t| t.text(&text)).collect();
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn lexing_arbitrary_bytes_is_lossless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let joined: String = lex(&text).iter().map(|t| t.text(&text)).collect();
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn lexing_cuda_fragments_is_lossless(parts in proptest::collection::vec(prop_oneof![
            Just("<<<"), Just(">>>"), Just("\""), Just("'"), Just("R\"("), Just(")\""), Just("/*"),
            Just("*/"), Just("//"), Just("\\\n"), Just("\n"), Just("#include "), Just("<a>"),
            Just("#define X "), Just("1e"), Just("+"), Just("__shared__ "), Just("é"), Just("\r\n"),
        ], 0..60)) {
            let text: String = parts.concat();
            let joined: String = lex(&text).iter().map(|t| t.text(&text)).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
