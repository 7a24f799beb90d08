//! Macro definitions, and the expansion of invocations as the preprocessor does it.
//!
//! All work is charged to a [`Budget`]: a chain of macros can double at every link, and the
//! expander stops instead of computing such an expansion.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::lexer::{Token, TokenKind, lex};

/// A token of a macro's body, of an argument or of an expansion.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) text: Rc<str>,
    pub(crate) kind: TokenKind,
    /// Whether the token follows the previous one without white space.
    glued: bool,
    /// A macro's name inside its own expansion: it is not expanded.
    painted: bool,
}

impl Piece {
    fn new(source: &str, token: &Token, before: Option<&Token>) -> Self {
        let glued = before.is_some_and(|b| b.end == token.start);
        Self { text: token.text(source).into(), kind: token.kind, glued, painted: false }
    }

    /// A synthesised value.
    pub(crate) fn value(text: &str) -> Self {
        Self::made(text, TokenKind::Number)
    }

    fn made(text: &str, kind: TokenKind) -> Self {
        Self { text: text.into(), kind, glued: false, painted: false }
    }
}

/// The pieces of some tokens.
pub(crate) fn pieces(source: &str, tokens: &[Token]) -> Vec<Piece> {
    (0..tokens.len())
        .map(|i| Piece::new(source, &tokens[i], i.checked_sub(1).map(|b| &tokens[b])))
        .collect()
}

/// The pieces as source text.
pub(crate) fn written(pieces: &[Piece]) -> String {
    let mut text = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 && !piece.glued {
            text.push(' ');
        }
        text.push_str(&piece.text);
    }
    text
}

/// One `#define`.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Number of parameters; `None` for a macro without a parameter list.
    params: Option<usize>,
    /// Whether the last parameter takes all remaining arguments.
    variadic: bool,
    /// The replacement, with the parameter that each of its tokens names.
    body: Vec<(Piece, Option<usize>)>,
    /// Whether it is defined regardless of unknown conditions.
    pub(crate) sure: bool,
}

impl Definition {
    /// Reads the significant tokens of a `#define` line: the name and its definition.
    pub(crate) fn read<'a>(source: &'a str, line: &[Token]) -> Option<(&'a str, Self)> {
        let name = line.get(2).filter(|t| t.kind == TokenKind::Ident)?;
        let text = |i: usize| line.get(i).map_or("", |t| t.text(source));
        let mut at = 3;
        let mut names: HashMap<&str, usize> = HashMap::new();
        let (mut params, mut variadic) = (None, false);
        // A parameter list follows the name without a blank.
        if text(3) == "(" && line[3].start == name.end {
            let mut count = 0;
            at = 4;
            while at < line.len() && text(at) != ")" {
                match text(at) {
                    "," => {}
                    "..." => {
                        variadic = true;
                        // `rest...` has a name of its own.
                        if text(at - 1) == "," || text(at - 1) == "(" {
                            names.insert("__VA_ARGS__", count);
                            count += 1;
                        }
                    }
                    word => {
                        names.insert(word, count);
                        count += 1;
                    }
                }
                at += 1;
            }
            at += 1;
            params = Some(count);
        }
        let tokens = line.get(at..).unwrap_or_default();
        let mut body: Vec<(Piece, Option<usize>)> = Vec::with_capacity(tokens.len());
        for mut piece in pieces(source, tokens) {
            // What follows a parameter does not stick to what replaces it.
            piece.glued &= body.last().is_some_and(|(_, param)| param.is_none());
            let param = names.get(&*piece.text).copied().filter(|_| piece.kind == TokenKind::Ident);
            body.push((piece, param));
        }
        Some((name.text(source), Self { params, variadic, body, sure: true }))
    }

    pub(crate) fn takes_arguments(&self) -> bool {
        self.params.is_some()
    }

    /// Whether the argument after `commas` commas takes all remaining arguments.
    pub(crate) fn takes_rest(&self, commas: usize) -> bool {
        self.variadic && self.params.is_some_and(|count| commas + 1 >= count)
    }

    /// The replacement's tokens.
    pub(crate) fn words(&self) -> impl Iterator<Item = &Piece> {
        self.body.iter().map(|(piece, _)| piece)
    }
}

/// The macros that are defined at one place.
pub(crate) type Table = HashMap<Rc<str>, Rc<Definition>>;

/// Why an invocation is not expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its parentheses do not close here; the compiler handles it.
    Unclosed,
    /// Its expansion exceeds the budget.
    TooMuch,
}

/// Limit on all expansions of a unit.
pub(crate) struct Budget {
    tokens: usize,
    bytes: usize,
    /// For `__COUNTER__`, which must differ from the compiler's own.
    counter: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { tokens: 1 << 20, bytes: 16 << 20, counter: 1_000_000 }
    }
}

impl Budget {
    fn spend(&mut self, tokens: usize, bytes: usize) -> Result<(), Stop> {
        let left = self.tokens.checked_sub(tokens).zip(self.bytes.checked_sub(bytes));
        (self.tokens, self.bytes) = left.ok_or(Stop::TooMuch)?;
        Ok(())
    }
}

/// Maximum nesting of arguments; honest macros stay below it.
const MAX_DEPTH: u32 = 200;

/// The source after an invocation.
pub(crate) struct Feed<'s> {
    pub(crate) source: &'s str,
    pub(crate) tokens: &'s [Token],
    /// The next token.
    pub(crate) at: usize,
}

impl Feed<'_> {
    /// The next significant token, unless a preprocessor line comes first.
    fn peek(&mut self) -> Option<&Token> {
        while self.tokens.get(self.at).is_some_and(|t| !t.is_code() && !t.directive) {
            self.at += 1;
        }
        self.tokens.get(self.at).filter(|t| !t.directive)
    }

    fn next(&mut self) -> Option<Piece> {
        let token = *self.peek()?;
        let before = self.at.checked_sub(1).map(|i| &self.tokens[i]);
        let piece = Piece::new(self.source, &token, before.filter(|b| b.is_code()));
        self.at += 1;
        Some(piece)
    }
}

/// Tokens still to be read, last first, and the macro that they replace.
struct Frame {
    pieces: Vec<Piece>,
    of: Option<Rc<str>>,
}

/// Expands invocations with the macros of one place.
pub(crate) struct Expander<'t> {
    pub(crate) table: &'t Table,
    pub(crate) budget: &'t mut Budget,
    /// `__LINE__` of the invocation.
    pub(crate) line: u32,
    active: HashSet<Rc<str>>,
    depth: u32,
}

impl<'t> Expander<'t> {
    pub(crate) fn new(table: &'t Table, budget: &'t mut Budget, line: u32) -> Self {
        Self { table, budget, line, active: HashSet::new(), depth: 0 }
    }

    /// `pieces` with all macros expanded; an invocation that they only begin continues in `feed`.
    pub(crate) fn expand(
        &mut self,
        mut pieces: Vec<Piece>,
        mut feed: Option<&mut Feed<'_>>,
    ) -> Result<Vec<Piece>, Stop> {
        if self.depth >= MAX_DEPTH {
            return Err(Stop::TooMuch);
        }
        self.depth += 1;
        pieces.reverse();
        let mut frames = vec![Frame { pieces, of: None }];
        let mut out = Vec::new();
        while let Some(mut piece) = self.pop(&mut frames) {
            if piece.kind != TokenKind::Ident || piece.painted {
                out.push(piece);
                continue;
            }
            let Some(definition) = self.table.get(&piece.text).cloned() else {
                out.push(self.builtin(piece));
                continue;
            };
            if self.active.contains(&piece.text) {
                piece.painted = true;
                out.push(piece);
                continue;
            }
            let args = match definition.params {
                None => Vec::new(),
                Some(_) if !opens(&frames, feed.as_deref_mut()) => {
                    out.push(piece);
                    continue;
                }
                Some(count) => {
                    self.arguments(&mut frames, feed.as_deref_mut(), &definition, count)?
                }
            };
            let mut body = self.substitute(&definition, &args)?;
            if let Some(first) = body.first_mut() {
                first.glued = false;
            }
            body.reverse();
            self.active.insert(Rc::clone(&piece.text));
            frames.push(Frame { pieces: body, of: Some(piece.text) });
        }
        self.depth -= 1;
        Ok(out)
    }

    /// The next token; a macro whose replacement has ended may be expanded again.
    fn pop(&mut self, frames: &mut Vec<Frame>) -> Option<Piece> {
        let mut over = false;
        loop {
            let frame = frames.last_mut()?;
            if let Some(mut piece) = frame.pieces.pop() {
                piece.glued &= !over;
                return Some(piece);
            }
            over = true;
            if let Some(name) = frames.pop().and_then(|frame| frame.of) {
                self.active.remove(&name);
            }
        }
    }

    fn builtin(&mut self, piece: Piece) -> Piece {
        match &*piece.text {
            "__LINE__" => Piece {
                glued: piece.glued,
                ..Piece::made(&self.line.to_string(), TokenKind::Number)
            },
            "__COUNTER__" => {
                self.budget.counter += 1;
                let count = self.budget.counter.to_string();
                Piece { glued: piece.glued, ..Piece::made(&count, TokenKind::Number) }
            }
            _ => piece,
        }
    }

    /// The arguments of an invocation whose `(` is next.
    fn arguments(
        &mut self,
        frames: &mut Vec<Frame>,
        mut feed: Option<&mut Feed<'_>>,
        definition: &Definition,
        count: usize,
    ) -> Result<Vec<Vec<Piece>>, Stop> {
        let mut args = vec![Vec::new()];
        let mut depth = 0_u32;
        loop {
            let piece = match self.pop(frames) {
                Some(piece) => piece,
                None => feed.as_deref_mut().and_then(Feed::next).ok_or(Stop::Unclosed)?,
            };
            self.budget.spend(1, piece.text.len())?;
            match &*piece.text {
                "(" if depth == 0 => {
                    depth = 1;
                    continue;
                }
                "(" => depth += 1,
                ")" => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                "," if depth == 1 && !(definition.variadic && args.len() >= count) => {
                    args.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            if let Some(last) = args.last_mut() {
                last.push(piece);
            }
        }
        if args.len() > count.max(1) {
            return Err(Stop::Unclosed);
        }
        args.resize(count.max(1), Vec::new());
        Ok(args)
    }

    /// The replacement with its parameters substituted and `#` and `##` applied.
    fn substitute(
        &mut self,
        definition: &Definition,
        args: &[Vec<Piece>],
    ) -> Result<Vec<Piece>, Stop> {
        let body = &definition.body;
        let is = |i: usize, text: &str| body.get(i).is_some_and(|(piece, _)| &*piece.text == text);
        let mut expanded: Vec<Option<Vec<Piece>>> = vec![None; args.len()];
        let mut out: Vec<Piece> = Vec::new();
        // `##` came last, and whether there is something on its left.
        let (mut pasting, mut left) = (false, false);
        let mut optional: Vec<usize> = Vec::new();
        let rest_empty = definition.variadic && args.last().is_none_or(Vec::is_empty);
        let mut i = 0;
        while i < body.len() {
            let (piece, param) = &body[i];
            if is(i, "##") && i > 0 {
                pasting = true;
                i += 1;
                continue;
            }
            if &*piece.text == "__VA_OPT__" && definition.variadic && is(i + 1, "(") {
                let close = closing(body, i + 1);
                if rest_empty {
                    i = close + 1;
                } else {
                    optional.push(close);
                    i += 2;
                }
                continue;
            }
            if optional.last() == Some(&i) {
                optional.pop();
                i += 1;
                continue;
            }
            let mut items = match param {
                _ if definition.params.is_some()
                    && is(i, "#")
                    && body.get(i + 1).is_some_and(|n| n.1.is_some()) =>
                {
                    i += 1;
                    let arg = body[i].1.and_then(|p| args.get(p)).map_or(&[][..], Vec::as_slice);
                    vec![stringised(arg)]
                }
                Some(p) => {
                    let raw = args.get(*p).map_or(&[][..], Vec::as_slice);
                    let mut items = if pasting || is(i + 1, "##") {
                        raw.to_vec()
                    } else {
                        if expanded[*p].is_none() {
                            expanded[*p] = Some(self.expand(raw.to_vec(), None)?);
                        }
                        expanded[*p].clone().unwrap_or_default()
                    };
                    if let Some(first) = items.first_mut() {
                        first.glued = false;
                    }
                    items
                }
                None => vec![piece.clone()],
            };
            self.budget.spend(items.len() + 1, items.iter().map(|p| p.text.len()).sum())?;
            let there = !items.is_empty();
            // `, ## __VA_ARGS__` is no paste: the comma goes where nothing follows it.
            let comma = pasting
                && definition.variadic
                && *param == definition.params.and_then(|n| n.checked_sub(1))
                && out.last().is_some_and(|p| &*p.text == ",");
            if comma {
                if !there {
                    out.pop();
                }
                out.append(&mut items);
            } else if pasting && left && there {
                if let Some(before) = out.pop() {
                    let second = items.remove(0);
                    self.budget.spend(1, before.text.len())?;
                    out.push(pasted(&before, &second));
                }
                out.append(&mut items);
            } else {
                out.append(&mut items);
            }
            left = there || (pasting && left);
            pasting = false;
            i += 1;
        }
        Ok(out)
    }
}

/// Whether a `(` is next.
fn opens(frames: &[Frame], feed: Option<&mut Feed<'_>>) -> bool {
    match frames.iter().rev().find_map(|frame| frame.pieces.last()) {
        Some(piece) => &*piece.text == "(",
        None => feed.is_some_and(|feed| {
            let source = feed.source;
            feed.peek().is_some_and(|token| token.text(source) == "(")
        }),
    }
}

fn closing(body: &[(Piece, Option<usize>)], open: usize) -> usize {
    let mut depth = 0_u32;
    for (i, (piece, _)) in body.iter().enumerate().skip(open) {
        match &*piece.text {
            "(" => depth += 1,
            ")" if depth == 1 => return i,
            ")" => depth -= 1,
            _ => {}
        }
    }
    body.len()
}

fn pasted(left: &Piece, right: &Piece) -> Piece {
    let text = format!("{}{}", left.text, right.text);
    let kind = match lex(&text).as_slice() {
        [one] => one.kind,
        _ => TokenKind::Unknown,
    };
    Piece { glued: left.glued, ..Piece::made(&text, kind) }
}

fn stringised(pieces: &[Piece]) -> Piece {
    let mut text = String::from("\"");
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 && !piece.glued {
            text.push(' ');
        }
        if matches!(piece.kind, TokenKind::Str | TokenKind::Char) {
            text.push_str(&piece.text.replace('\\', "\\\\").replace('"', "\\\""));
        } else {
            text.push_str(&piece.text);
        }
    }
    text.push('"');
    Piece::made(&text, TokenKind::Str)
}

#[cfg(test)]
mod tests;
