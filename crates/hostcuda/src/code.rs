//! A flat view of a translation unit: significant tokens, macro bodies, scopes.

use std::collections::HashMap;
use std::ops::Range;

use crate::brackets::Brackets;
use crate::lexer::{Token, TokenKind, lex};

/// Significant tokens of one region: the code outside directives, or one macro's body.
pub(crate) struct Seq<'a> {
    pub(crate) source: &'a str,
    pub(crate) tokens: Vec<Token>,
    /// The brackets of the tokens.
    brackets: Brackets,
}

/// A `#define` with its replacement.
pub(crate) struct Macro<'a> {
    pub(crate) name: &'a str,
    pub(crate) body: Seq<'a>,
}

/// The content of a pair of braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespace,
    Class,
    Body,
}

/// A lexed translation unit.
pub(crate) struct Unit<'a> {
    pub(crate) main: Seq<'a>,
    pub(crate) macros: Vec<Macro<'a>>,
    /// `#include` lines: the header's token with its delimiters.
    pub(crate) includes: Vec<Token>,
    /// Scope of each token of `main`.
    pub(crate) scopes: Vec<Scope>,
    /// Index in `main` of the bracket that matches this one.
    pub(crate) partner: HashMap<usize, usize>,
}

impl<'a> Seq<'a> {
    pub(crate) fn text(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| t.text(self.source))
    }

    pub(crate) fn is_ident(&self, i: usize) -> bool {
        self.tokens.get(i).is_some_and(|t| t.kind == TokenKind::Ident)
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn new(source: &'a str, tokens: Vec<Token>) -> Self {
        let brackets = Brackets::new(source, &tokens);
        Self { source, tokens, brackets }
    }

    /// The token at which brackets are nested deeper than [`MAX_NESTING`](crate::brackets::MAX_NESTING).
    pub(crate) fn too_deep(&self) -> Option<&Token> {
        self.tokens.get(self.brackets.too_deep?)
    }

    /// Index of the bracket that closes the one at `open`. For another token, the bracket that
    /// follows it closely, as in `if constexpr (`.
    pub(crate) fn close(&self, open: usize) -> Option<usize> {
        let bracket = |i: &usize| matches!(self.text(*i), "(" | "[" | "{" | ")" | "]" | "}");
        let open = (open..open + 8).find(bracket)?;
        self.brackets.partner(open).filter(|close| *close > open)
    }

    /// Index of the bracket that opens the one that closes at `close`.
    pub(crate) fn open(&self, close: usize) -> Option<usize> {
        self.brackets.partner(close).filter(|open| *open < close && self.text(close) != ">")
    }

    /// Index of the `<` that opens the template argument list closed by the `>` at `close`.
    pub(crate) fn open_angle(&self, close: usize) -> Option<usize> {
        self.brackets.partner(close).filter(|_| self.text(close) == ">")
    }

    /// Index past the `>` that closes the template argument list opened at `open`.
    pub(crate) fn past_angle(&self, open: usize) -> Option<usize> {
        let close = self.brackets.partner(open).filter(|_| self.text(open) == "<")?;
        Some(close + 1)
    }

    /// First token of the statement that contains the token at `i`: after the last `;`, `{` or `}`.
    pub(crate) fn statement(&self, i: usize) -> usize {
        self.brackets.statements.get(i).map_or(0, |start| *start as usize)
    }

    /// The next `;` at or after the token at `i`.
    pub(crate) fn semicolon(&self, i: usize) -> Option<usize> {
        self.brackets.semicolons.get(i).map(|at| *at as usize).filter(|at| *at < self.len())
    }

    /// Comma-separated token ranges between `from` and `to`, outside brackets.
    pub(crate) fn split_commas(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let (mut first, mut i) = (from, from);
        while i < to {
            match self.text(i) {
                "(" | "[" | "{" => i = self.close(i).unwrap_or(to),
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

    /// Source text from the first token of a range to its last, or nothing.
    pub(crate) fn range_text(&self, from: usize, to: usize) -> &'a str {
        if from >= to {
            return "";
        }
        &self.source[self.tokens[from].start..self.tokens[to - 1].end]
    }
}

impl<'a> Unit<'a> {
    /// Reads a text except its `dead` ranges, which are sorted.
    pub(crate) fn new(source: &'a str, dead: &[Range<usize>]) -> Self {
        let tokens = lex(source);
        let mut unit = Self {
            main: Seq::new(source, Vec::new()),
            macros: Vec::new(),
            includes: Vec::new(),
            scopes: Vec::new(),
            partner: HashMap::new(),
        };
        let mut main = Vec::new();
        let mut dead = dead.iter().peekable();
        let mut at = 0;
        while at < tokens.len() {
            while dead.next_if(|range| range.end <= tokens[at].start).is_some() {}
            let live = dead.peek().is_none_or(|range| tokens[at].start < range.start);
            if !tokens[at].directive {
                if live && tokens[at].is_code() {
                    main.push(tokens[at]);
                }
                at += 1;
                continue;
            }
            let end = (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
            if live {
                let line: Vec<Token> =
                    tokens[at..end].iter().copied().filter(Token::is_code).collect();
                unit.directive(source, &line);
            }
            at = end;
        }
        unit.main = Seq::new(source, main);
        unit.find_scopes();
        unit
    }

    /// The token at which brackets are nested too deep to be read.
    pub(crate) fn too_deep(&self) -> Option<&Token> {
        std::iter::once(&self.main)
            .chain(self.macros.iter().map(|m| &m.body))
            .find_map(Seq::too_deep)
    }

    fn directive(&mut self, source: &'a str, line: &[Token]) {
        match line.get(1).map(|t| t.text(source)) {
            Some("include") => self.includes.extend(line.get(2)),
            Some("define") if line.len() > 2 => {
                let name = line[2].text(source);
                let mut body = 3;
                // A parameter list follows the name without a blank.
                if line.get(3).is_some_and(|t| t.text(source) == "(" && t.start == line[2].end) {
                    while body < line.len() && line[body].text(source) != ")" {
                        body += 1;
                    }
                    body += 1;
                }
                let tokens = line.get(body..).unwrap_or_default().to_vec();
                self.macros.push(Macro { name, body: Seq::new(source, tokens) });
            }
            _ => {}
        }
    }

    fn find_scopes(&mut self) {
        let mut stack: Vec<(Scope, usize)> = Vec::new();
        let mut statement = 0; // first token of the current statement
        for i in 0..self.main.len() {
            let text = self.main.text(i);
            if text == "}"
                && let Some((_, open)) = stack.pop()
            {
                self.partner.insert(open, i);
                self.partner.insert(i, open);
            }
            self.scopes.push(stack.last().map_or(Scope::Namespace, |s| s.0));
            match text {
                "{" => {
                    stack.push((self.scope_of(statement, i), i));
                    statement = i + 1;
                }
                "}" | ";" => statement = i + 1,
                _ => {}
            }
        }
    }

    fn scope_of(&self, statement: usize, brace: usize) -> Scope {
        let words: Vec<&str> = (statement..brace).map(|i| self.main.text(i)).collect();
        if words.contains(&"namespace") || words == ["extern", "\"C\""] {
            return Scope::Namespace;
        }
        // `struct A f() {` is a function, `template <class T> void f() {` too.
        let mut depth = 0_i32;
        let mut bare = false; // a class keyword outside template parameters
        for w in &words {
            match *w {
                "<" => depth += 1,
                ">" => depth -= 1,
                "class" | "struct" | "union" if depth == 0 => bare = true,
                _ => {}
            }
        }
        let function = words.last().is_some_and(|w| matches!(*w, ")" | "const" | "noexcept"));
        if bare && !function { Scope::Class } else { Scope::Body }
    }
}

/// The name at token `i` is assigned to, or its address is taken.
pub(crate) fn changes(seq: &Seq<'_>, i: usize) -> bool {
    let (before, after) = (seq.text(i - 1), seq.text(i + 1));
    let taken = before == "&" && !(seq.is_ident(i - 2) || matches!(seq.text(i - 2), ")" | "]"));
    let assigned = matches!(
        after,
        "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=" | "++" | "--"
    );
    taken || assigned || matches!(before, "++" | "--")
}

/// The tokens' texts with blanks between.
pub(crate) fn joined(seq: &Seq<'_>, from: usize, to: usize) -> String {
    (from..to).map(|i| seq.text(i)).collect::<Vec<_>>().join(" ")
}
