//! Decides which branches of `#if` are live, as far as the text itself determines it.
//!
//! Known are: macros that the text defines; `__CUDA_ARCH__` and similar names, which no host
//! compiler defines; and names that the text does not define and that belong to no compiler or
//! library, which are undefined. If a condition is unknown, both branches count as live.

use std::rc::Rc;

use crate::lexer::{Token, TokenKind};
use crate::macros::{Budget, Definition, Expander, Piece, Table, pieces};

/// The preprocessor's state at one place of a text.
#[derive(Default)]
pub(crate) struct Preprocessor {
    pub(crate) table: Table,
    pub(crate) budget: Budget,
    levels: Vec<Level>,
    /// Number of enclosing levels that are dead.
    dead: usize,
    /// Number of enclosing levels that may be dead.
    doubtful: usize,
}

/// One open `#if`.
struct Level {
    /// Whether the branch is live; `None` if unknown.
    live: Option<bool>,
    /// Whether an earlier branch was taken.
    taken: Option<bool>,
    /// The name in `#ifndef NAME`: after its `#define` it is defined regardless of the condition.
    guard: Option<Rc<str>>,
}

impl Preprocessor {
    /// Whether code here may be compiled.
    pub(crate) fn live(&self) -> bool {
        self.dead == 0
    }

    /// Processes the significant tokens of a preprocessor line.
    pub(crate) fn directive(&mut self, source: &str, line: &[Token]) {
        let word = |i: usize| line.get(i).map_or("", |t| t.text(source));
        match word(1) {
            "if" => {
                let live = self.nested(|own| own.evaluate(source, &line[2..]));
                let negated = matches!(word(2), "!") && word(3) == "defined";
                let name = if word(4) == "(" { word(5) } else { word(4) };
                self.open(live, negated.then(|| name.into()));
            }
            "ifdef" => {
                let live = self.nested(|own| own.defined(word(2)));
                self.open(live, None);
            }
            "ifndef" => {
                let live = self.nested(|own| own.defined(word(2)).map(|d| !d));
                self.open(live, Some(word(2).into()));
            }
            "elif" | "else" => {
                let Some(mut level) = self.close() else { return };
                let value = if word(1) == "else" || level.taken == Some(true) {
                    Some(true)
                } else {
                    self.nested(|own| own.evaluate(source, &line[2..]))
                };
                level.live = and(level.taken.map(|taken| !taken), value);
                level.taken = or(level.taken, level.live);
                level.guard = None;
                self.enter(level);
            }
            "endif" => drop(self.close()),
            "define" if self.live() => self.define(source, line),
            "undef" if self.live() => {
                if self.doubtful == 0 {
                    self.table.remove(word(2));
                } else if let Some(definition) = self.table.get_mut(word(2)).and_then(Rc::get_mut) {
                    definition.sure = false;
                }
            }
            _ => {}
        }
    }

    fn define(&mut self, source: &str, line: &[Token]) {
        let Some((name, mut definition)) = Definition::read(source, line) else { return };
        let guarded = self.doubtful == 1
            && self.levels.last().is_some_and(|level| level.guard.as_deref() == Some(name));
        definition.sure = self.doubtful == 0 || guarded;
        self.table.insert(name.into(), Rc::new(definition));
    }

    /// A condition's value; conditions in dead branches are not evaluated.
    fn nested(&mut self, value: impl FnOnce(&mut Self) -> Option<bool>) -> Option<bool> {
        if self.live() { value(self) } else { Some(false) }
    }

    fn open(&mut self, live: Option<bool>, guard: Option<Rc<str>>) {
        self.enter(Level { live, taken: live, guard });
    }

    fn enter(&mut self, level: Level) {
        self.dead += usize::from(level.live == Some(false));
        self.doubtful += usize::from(level.live.is_none());
        self.levels.push(level);
    }

    fn close(&mut self) -> Option<Level> {
        let level = self.levels.pop()?;
        self.dead -= usize::from(level.live == Some(false));
        self.doubtful -= usize::from(level.live.is_none());
        Some(level)
    }

    fn defined(&self, name: &str) -> Option<bool> {
        match self.table.get(name) {
            Some(definition) => definition.sure.then_some(true),
            None if NEVER.contains(&name) => Some(false),
            None if name == "__cplusplus" || name == "__GNUC__" => Some(true),
            None => (!somebody_elses(name)).then_some(false),
        }
    }

    fn evaluate(&mut self, source: &str, tokens: &[Token]) -> Option<bool> {
        let pieces = pieces(source, tokens);
        let mut plain = Vec::with_capacity(pieces.len());
        let mut i = 0;
        let text = |i: usize| pieces.get(i).map_or("", |p: &Piece| &*p.text);
        while i < pieces.len() {
            let unsure = self.table.get(&pieces[i].text).is_some_and(|d| !d.sure);
            if text(i) == "defined" {
                let bracket = usize::from(text(i + 1) == "(");
                let value = match self.defined(text(i + 1 + bracket)) {
                    Some(true) => "1",
                    Some(false) => "0",
                    None => UNKNOWN,
                };
                plain.push(Piece::value(value));
                i += 2 + 2 * bracket;
            } else if unsure {
                plain.push(Piece::value(UNKNOWN));
                i += 1;
            } else {
                plain.push(pieces[i].clone());
                i += 1;
            }
        }
        let line = tokens.first().map_or(0, |t| t.line);
        let expanded =
            Expander::new(&self.table, &mut self.budget, line).expand(plain, None).ok()?;
        let mut reader = Reader { preprocessor: self, pieces: &expanded, at: 0, depth: 0 };
        let value = reader.expression(0);
        (reader.at == expanded.len()).then_some(value?.map(|v| v != 0)).flatten()
    }
}

/// Represents an unknown value: a token that no text can contain.
const UNKNOWN: &str = "?unknown";

/// Never defined when host code is compiled for the cpu device.
const NEVER: [&str; 9] = [
    "__CUDA_ARCH__",
    "__CUDA_ARCH_LIST__",
    "_WIN32",
    "_WIN64",
    "_MSC_VER",
    "__APPLE__",
    "__HIPCC__",
    "__HIP_PLATFORM_AMD__",
    "__HIP_DEVICE_COMPILE__",
];

/// A name that a compiler or a library's header may define.
fn somebody_elses(name: &str) -> bool {
    const PREFIXES: [&str; 30] = [
        "_", "CUDA", "CUBLAS", "CUDNN", "CUFFT", "CU_", "TORCH", "AT_", "C10_", "PYBIND11", "PY_",
        "Py", "M_", "INT", "UINT", "SIZE_", "FLT_", "DBL_", "LDBL_", "CHAR_", "SCHAR_", "UCHAR_",
        "SHRT_", "USHRT_", "LONG_", "ULONG_", "LLONG_", "FE_", "PRI", "HUGE_VAL",
    ];
    const NAMES: [&str; 14] = [
        "NDEBUG", "NULL", "NAN", "INFINITY", "EOF", "BUFSIZ", "RAND_MAX", "assert", "offsetof",
        "errno", "linux", "unix", "major", "minor",
    ];
    name.is_empty() || NAMES.contains(&name) || PREFIXES.iter().any(|p| name.starts_with(p))
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|v| !v), b.map(|v| !v)).map(|v| !v)
}

/// Reads an expression; a value of `None` is unknown.
struct Reader<'p> {
    preprocessor: &'p Preprocessor,
    pieces: &'p [Piece],
    at: usize,
    depth: u32,
}

/// `None` if the text is not an expression.
type Value = Option<Option<i64>>;

impl Reader<'_> {
    fn text(&self) -> &str {
        self.pieces.get(self.at).map_or("", |p| &*p.text)
    }

    fn take(&mut self, text: &str) -> bool {
        let there = self.text() == text;
        self.at += usize::from(there);
        there
    }

    /// Operators that bind at least as tightly as `least`.
    fn expression(&mut self, least: u8) -> Value {
        self.depth += 1;
        if self.depth > 64 {
            return None;
        }
        let mut left = self.operand()?;
        loop {
            let (operator, binding) = self.operator();
            if binding == 0 || binding < least {
                break;
            }
            self.at += if operator == ">>" { 2 } else { 1 };
            if operator == "?" {
                let yes = self.expression(1)?;
                if !self.take(":") {
                    return None;
                }
                let no = self.expression(1)?;
                left = left.and_then(|c| if c == 0 { no } else { yes });
                continue;
            }
            let right = self.expression(binding + 1)?;
            left = combined(&operator, left, right);
        }
        self.depth -= 1;
        Some(left)
    }

    fn operator(&self) -> (String, u8) {
        let next = self.pieces.get(self.at + 1).map_or("", |p| &*p.text);
        // The lexer leaves `>` alone.
        let operator = if self.text() == ">" && next == ">" { ">>" } else { self.text() };
        let binding = match operator {
            "?" => 1,
            "||" => 2,
            "&&" => 3,
            "|" => 4,
            "^" => 5,
            "&" => 6,
            "==" | "!=" => 7,
            "<" | ">" | "<=" | ">=" => 8,
            "<<" | ">>" => 9,
            "+" | "-" => 10,
            "*" | "/" | "%" => 11,
            _ => 0,
        };
        (operator.to_owned(), binding)
    }

    fn operand(&mut self) -> Value {
        let piece = self.pieces.get(self.at)?;
        self.at += 1;
        match &*piece.text {
            "(" => {
                let value = self.expression(0)?;
                return self.take(")").then_some(value);
            }
            "!" => return Some(self.unary()?.map(|v| i64::from(v == 0))),
            "-" => return Some(self.unary()?.map(i64::wrapping_neg)),
            "+" => return self.unary(),
            "~" => return Some(self.unary()?.map(|v| !v)),
            UNKNOWN => return Some(None),
            "true" => return Some(Some(1)),
            "false" => return Some(Some(0)),
            "__cplusplus" => return Some(Some(201_703)),
            _ => {}
        }
        match piece.kind {
            TokenKind::Number => Some(number(&piece.text)),
            // `__has_include(<x>)`, and functions that are not known.
            TokenKind::Ident if self.text() == "(" => {
                let mut depth = 0;
                while self.at < self.pieces.len() {
                    match self.text() {
                        "(" => depth += 1,
                        ")" => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
                Some(None)
            }
            TokenKind::Ident => {
                let known = self.preprocessor.defined(&piece.text);
                Some((known == Some(false)).then_some(0))
            }
            _ => None,
        }
    }

    fn unary(&mut self) -> Value {
        self.depth += 1;
        if self.depth > 64 {
            return None;
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }
}

fn number(text: &str) -> Option<i64> {
    let text = text.replace('\'', "").to_ascii_lowercase();
    let text = text.trim_end_matches(['u', 'l']);
    let (digits, radix) = match text.get(..2) {
        Some("0x") => (&text[2..], 16),
        Some("0b") => (&text[2..], 2),
        _ if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        _ => (text, 10),
    };
    i64::from_str_radix(digits, radix).ok()
}

fn combined(operator: &str, left: Option<i64>, right: Option<i64>) -> Option<i64> {
    let truth = |v: Option<i64>| v.map(|v| v != 0);
    match operator {
        "&&" => return and(truth(left), truth(right)).map(i64::from),
        "||" => return or(truth(left), truth(right)).map(i64::from),
        _ => {}
    }
    let (a, b) = (left?, right?);
    Some(match operator {
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<<" => a.wrapping_shl(b as u32),
        ">>" => a.wrapping_shr(b as u32),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::lex;

    /// The words of `text` that are live.
    fn live(text: &str) -> String {
        let tokens = lex(text);
        let mut state = Preprocessor::default();
        let mut words = Vec::new();
        for line in tokens.split(|t| t.kind == TokenKind::Newline) {
            let code: Vec<Token> = line.iter().copied().filter(Token::is_code).collect();
            if code.first().is_some_and(|t| t.directive) {
                state.directive(text, &code);
            } else if state.live() {
                words.extend(code.iter().map(|t| t.text(text)));
            }
        }
        words.join(" ")
    }

    #[test]
    fn only_certainly_dead_branches_are_removed() {
        for (text, wanted) in [
            ("#if 0\na\n#elif 1\nb\n#else\nc\n#endif\nd", "b d"),
            ("#ifdef __CUDA_ARCH__\na\n#else\nb\n#endif", "b"),
            ("#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800\na\n#else\nb\n#endif", "a"),
            (
                "#if __CUDA_ARCH__ >= 800\na\n#endif\n#if defined __CUDA_ARCH__ && X(1)\nb\n#endif",
                "",
            ),
            ("#ifdef FAST\na\n#else\nb\n#endif", "b"),
            ("#define FAST 1\n#if FAST && (VERSION_ >= 0x10 || 1)\na\n#else\nb\n#endif", "a"),
            ("#if CUDART_VERSION >= 12000\na\n#else\nb\n#endif", "a b"),
            (
                "#if CUDART_VERSION >= 12000\n#define D 1\n#endif\n#ifdef D\na\n#else\nb\n#endif",
                "a b",
            ),
            ("#ifndef __A__\n#define __A__\na\n#endif\n#ifndef __A__\nb\n#endif", "a"),
            (
                "#define N 4\n#if N * (2 + 1) % 5 == 2 ? 1 : 0\na\n#endif\n#undef N\n#ifdef N\nb\n#endif",
                "a",
            ),
            ("#define IS(x) x == 2\n#if IS(2) && IS(3)\na\n#elif 16 >> 2 == 4\nb\n#endif", "b"),
            ("#if __has_include(<x>)\na\n#else\nb\n#endif", "a b"),
            ("#if 0\n#if 1\na\n#else\nb\n#endif\n#endif\nc", "c"),
            ("#if (\na\n#endif\n#else\n#endif\nb", "a b"),
        ] {
            assert_eq!(live(text), wanted, "{text}");
        }
        let deep = format!("#if {}1{}\na\n#endif", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(live(&deep), "a");
    }
}
