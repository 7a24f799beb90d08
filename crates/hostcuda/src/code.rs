//! A flat view of a translation unit: significant tokens, macro bodies, scopes.

use std::collections::HashMap;

use crate::lexer::{Token, TokenKind, lex};

/// Significant tokens of one region: the code outside directives, or one macro's body.
pub(crate) struct Seq<'a> {
    pub(crate) source: &'a str,
    pub(crate) tokens: Vec<Token>,
}

/// A `#define` with its replacement.
pub(crate) struct Macro<'a> {
    pub(crate) name: &'a str,
    pub(crate) body: Seq<'a>,
}

/// What a pair of braces holds.
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

    /// Index of the bracket that closes the one at `open`.
    pub(crate) fn close(&self, open: usize) -> Option<usize> {
        let mut depth = 0_u32;
        for i in open..self.len() {
            match self.text(i) {
                "(" | "{" | "[" => depth += 1,
                ")" | "}" | "]" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(i);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Index of the bracket that opens the one that closes at `close`.
    pub(crate) fn open(&self, close: usize) -> Option<usize> {
        let mut depth = 0_u32;
        for i in (0..=close).rev() {
            match self.text(i) {
                ")" | "}" | "]" => depth += 1,
                "(" | "{" | "[" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(i);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Index of the `<` that opens the template argument list closed by the `>` at `close`.
    pub(crate) fn open_angle(&self, close: usize) -> Option<usize> {
        let mut depth = 0_u32;
        let mut i = close;
        loop {
            match self.text(i) {
                ">" => depth += 1,
                "<" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(i);
                    }
                }
                ")" | "]" | "}" => i = self.open(i)?,
                ";" | "{" | "(" => return None,
                _ => {}
            }
            i = i.checked_sub(1)?;
        }
    }

    /// Index past the `>` that closes the template argument list opened at `open`.
    pub(crate) fn past_angle(&self, open: usize) -> Option<usize> {
        let mut depth = 0_u32;
        let mut i = open;
        while i < self.len() {
            match self.text(i) {
                "<" => depth += 1,
                ">" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(i + 1);
                    }
                }
                "(" | "[" | "{" => i = self.close(i)?,
                ";" | "}" | ")" => return None,
                _ => {}
            }
            i += 1;
        }
        None
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
    pub(crate) fn new(source: &'a str) -> Self {
        let tokens = lex(source);
        let mut unit = Self {
            main: Seq { source, tokens: Vec::new() },
            macros: Vec::new(),
            includes: Vec::new(),
            scopes: Vec::new(),
            partner: HashMap::new(),
        };
        let mut conditions = Conditions::default();
        let mut at = 0;
        while at < tokens.len() {
            if !tokens[at].directive {
                if conditions.active() && tokens[at].is_code() {
                    unit.main.tokens.push(tokens[at]);
                }
                at += 1;
                continue;
            }
            let end = (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
            let line: Vec<Token> = tokens[at..end].iter().copied().filter(Token::is_code).collect();
            conditions.directive(source, &line);
            if conditions.active() {
                unit.directive(source, &line);
            }
            at = end;
        }
        unit.find_scopes();
        unit
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
                self.macros.push(Macro { name, body: Seq { source, tokens } });
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

/// Which preprocessor branches are known to be dead: `#if 0`, and what asks for `__CUDA_ARCH__`,
/// which is never defined here. Everything else counts as live, both branches.
#[derive(Default)]
struct Conditions {
    /// Per open `#if`: is this branch live, and was one of its branches surely taken.
    stack: Vec<(bool, bool)>,
}

impl Conditions {
    fn active(&self) -> bool {
        self.stack.iter().all(|s| s.0)
    }

    fn directive(&mut self, source: &str, line: &[Token]) {
        let word = |i: usize| line.get(i).map_or("", |t| t.text(source));
        let known = |from: usize| -> Option<bool> {
            let words: Vec<&str> = (from..line.len()).map(word).collect();
            match words.as_slice() {
                ["0"] => Some(false),
                ["1"] => Some(true),
                ["!", "defined", "__CUDA_ARCH__"] | ["!", "defined", "(", "__CUDA_ARCH__", ")"] => {
                    Some(true)
                }
                ["defined", "__CUDA_ARCH__", rest @ ..]
                | ["defined", "(", "__CUDA_ARCH__", ")", rest @ ..]
                    if rest.first().is_none_or(|w| *w == "&&") =>
                {
                    Some(false)
                }
                ["__CUDA_ARCH__", ">" | ">=" | "==", n] if *n != "0" => Some(false),
                _ => None,
            }
        };
        match word(1) {
            "if" => self.open(known(2)),
            "ifdef" => self.open((word(2) == "__CUDA_ARCH__").then_some(false)),
            "ifndef" => self.open((word(2) == "__CUDA_ARCH__").then_some(true)),
            "elif" => {
                let value = known(2);
                if let Some((live, taken)) = self.stack.last_mut() {
                    *live = !*taken && value != Some(false);
                    *taken |= value == Some(true);
                }
            }
            "else" => {
                if let Some((live, taken)) = self.stack.last_mut() {
                    *live = !*taken;
                }
            }
            "endif" => {
                self.stack.pop();
            }
            _ => {}
        }
    }

    fn open(&mut self, value: Option<bool>) {
        self.stack.push((value != Some(false), value == Some(true)));
    }
}
