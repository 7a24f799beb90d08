//! Expands macros that hide CUDA syntax from the rewriter, before any analysis.
//!
//! Most macros stay: the rewriter changes their definitions. But some constructs are visible in no
//! definition: a kernel that a macro defines, a qualifier under another name, a launch whose kernel
//! is an argument. Invocations that expand to such constructs are replaced with their expansion in
//! one line, so that all lines keep their numbers.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::brackets::MAX_NESTING;
use crate::condition::Preprocessor;
use crate::include::Flat;
use crate::lexer::{Token, TokenKind, lex};
use crate::macros::{Definition, Expander, Feed, Stop, pieces, written};
use crate::refusal::Refusal;

/// Which macros are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// None; only the dead ranges are found.
    None,
    /// Those that hide something from the rewriter.
    Hiding,
    /// All.
    All,
}

/// Replaces macros in a unit and finds its dead branches.
pub(crate) fn expand(flat: Flat, which: Which) -> Result<Flat, Vec<Refusal>> {
    let text = flat.text.as_str();
    let tokens = lex(text);
    let parentheses = parentheses(text, &tokens)
        .map_err(|at| vec![flat.refusal(&tokens[at], "(".to_owned(), crate::brackets::TOO_DEEP)])?;
    let hiding = match which {
        Which::None => HashSet::new(),
        Which::Hiding => hiding(text, &tokens, false),
        Which::All => hiding(text, &tokens, true),
    };
    let mut pass = Pass {
        text,
        parentheses,
        places: (0..tokens.len()).filter(|&i| hiding.contains(tokens[i].text(text))).collect(),
        tokens: &tokens,
        hiding,
        preprocessor: Preprocessor::default(),
        out: String::with_capacity(text.len() + text.len() / 4),
        copied: 0,
        dead: Vec::new(),
    };
    match pass.run() {
        Ok(()) => {
            let (text, dead) = (pass.out, pass.dead);
            Ok(Flat { text, dead, ..flat })
        }
        Err(at) => {
            let token = &tokens[at];
            let why = "its macros expand to more than a million tokens, or are nested too deep: write it out";
            Err(vec![flat.refusal(token, token.text(text).to_owned(), why)])
        }
    }
}

/// Words that must not stay hidden in a macro.
fn hides(word: &str) -> bool {
    matches!(
        word,
        "__global__"
            | "__device__"
            | "__constant__"
            | "__shared__"
            | "<<<"
            | "extern"
            | "template"
            | "namespace"
            | "##"
            | "cudaLaunchKernel"
    )
}

/// Names of the macros with at least one definition that expands to a word of [`hides`].
fn hiding<'a>(text: &'a str, tokens: &[Token], all: bool) -> HashSet<&'a str> {
    let mut users: HashMap<&str, Vec<&'a str>> = HashMap::new();
    let mut found: Vec<&'a str> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at].directive {
            at += 1;
            continue;
        }
        let end = (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
        let line: Vec<&Token> = tokens[at..end].iter().filter(|t| t.is_code()).collect();
        at = end;
        if line.len() < 3 || line[1].text(text) != "define" {
            continue;
        }
        let name = line[2].text(text);
        let mut open = 0_i32;
        let mut itself = all;
        for token in &line[3..] {
            let word = token.text(text);
            match word {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open -= 1,
                _ => {}
            }
            itself |= hides(word);
            if token.kind == TokenKind::Ident {
                users.entry(word).or_default().push(name);
            }
        }
        if itself || open != 0 {
            found.push(name);
        }
    }
    let mut hiding: HashSet<&str> = found.iter().copied().collect();
    while let Some(name) = found.pop() {
        for user in users.remove(name).unwrap_or_default() {
            if hiding.insert(user) {
                found.push(user);
            }
        }
    }
    hiding
}

/// The `)` of every `(` outside preprocessor lines, or the one that is nested too deep.
fn parentheses(text: &str, tokens: &[Token]) -> Result<HashMap<usize, usize>, usize> {
    let mut open = Vec::new();
    let mut found = HashMap::new();
    for (i, token) in tokens.iter().enumerate().filter(|(_, t)| !t.directive) {
        match token.text(text) {
            "(" if open.len() >= MAX_NESTING => return Err(i),
            "(" => open.push(i),
            ")" => {
                if let Some(start) = open.pop() {
                    found.insert(start, i);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

struct Pass<'a> {
    text: &'a str,
    tokens: &'a [Token],
    parentheses: HashMap<usize, usize>,
    hiding: HashSet<&'a str>,
    /// Positions of the names of `hiding`, in order.
    places: Vec<usize>,
    preprocessor: Preprocessor,
    out: String,
    /// End of the text copied so far.
    copied: usize,
    dead: Vec<std::ops::Range<usize>>,
}

impl Pass<'_> {
    /// Expands the unit. The error is the token of an invocation whose expansion is too large.
    fn run(&mut self) -> Result<(), usize> {
        let tokens = self.tokens;
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at].directive {
                let end =
                    (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
                let line: Vec<Token> =
                    tokens[at..end].iter().copied().filter(Token::is_code).collect();
                let before = self.preprocessor.live();
                self.preprocessor.directive(self.text, &line);
                self.turn(before, tokens[at].start, tokens[end - 1].end);
                at = end;
                continue;
            }
            at = match self.invocation(at)? {
                Some(end) => end,
                None => at + 1,
            };
        }
        self.copy(self.text.len());
        if let Some(open) = self.dead.last_mut().filter(|range| range.end == usize::MAX) {
            open.end = self.out.len();
        }
        Ok(())
    }

    fn copy(&mut self, to: usize) {
        self.out.push_str(&self.text[self.copied..to]);
        self.copied = to;
    }

    /// Notes the start or end of dead code, at a preprocessor line between two bytes.
    fn turn(&mut self, before: bool, start: usize, end: usize) {
        let now = self.preprocessor.live();
        if before && !now {
            self.copy(end);
            let from = self.out.len();
            self.dead.push(from..usize::MAX);
        } else if !before && now {
            self.copy(start);
            let to = self.out.len();
            if let Some(range) = self.dead.last_mut() {
                range.end = to;
            }
        }
    }

    /// Replaces the invocation at a token; returns the token after it.
    fn invocation(&mut self, at: usize) -> Result<Option<usize>, usize> {
        let token = &self.tokens[at];
        if token.kind != TokenKind::Ident || !self.preprocessor.live() {
            return Ok(None);
        }
        let name = token.text(self.text);
        let Some(definition) = self.preprocessor.table.get(name) else { return Ok(None) };
        if !self.hiding.contains(name) && !self.takes_hiding(at, &Rc::clone(definition)) {
            return Ok(None);
        }
        let first = pieces(self.text, &self.tokens[at..=at]);
        let mut feed = Feed { source: self.text, tokens: self.tokens, at: at + 1 };
        let Preprocessor { table, budget, .. } = &mut self.preprocessor;
        let expanded = match Expander::new(table, budget, token.line).expand(first, Some(&mut feed))
        {
            Ok(expanded) => expanded,
            Err(Stop::Unclosed) => return Ok(None),
            Err(Stop::TooMuch) => return Err(at),
        };
        // Nothing but the name may have been read: `F` without its parentheses. Peeking goes past blanks.
        let end =
            (at + 1..feed.at).rev().find(|&i| self.tokens[i].is_code()).map_or(at + 1, |i| i + 1);
        let text = written(&expanded);
        if text.contains('\n') || (end == at + 1 && text == name) {
            return Ok(None);
        }
        self.copy(token.start);
        let range = token.start..self.tokens[end - 1].end;
        self.out.push(' ');
        self.out.push_str(&text);
        self.out.push(' ');
        self.out.extend(self.text[range.clone()].chars().filter(|c| *c == '\n'));
        self.copied = range.end;
        Ok(Some(end))
    }

    /// Whether the arguments of the invocation at `at` name a macro of `hiding` that cannot be
    /// expanded separately: one passed by name to be invoked, or one whose expansion has commas
    /// that the outer macro would split at.
    fn takes_hiding(&self, at: usize, definition: &Definition) -> bool {
        let next = |from: usize| (from + 1..self.tokens.len()).find(|&i| self.tokens[i].is_code());
        let opens = |i: &usize| self.tokens[*i].text(self.text) == "(";
        let Some(open) = next(at).filter(opens).filter(|_| definition.takes_arguments()) else {
            return false;
        };
        let Some(&close) = self.parentheses.get(&open) else { return false };
        let first = self.places.partition_point(|&place| place < open);
        let inside = self.places[first..].iter().copied().take_while(|&place| place < close);
        let mut counted = (open + 1, 0, 0_i32);
        for place in inside {
            let name = self.tokens[place].text(self.text);
            let Some(inner) = self.preprocessor.table.get(name) else { continue };
            // Commas of the invocation's own before this place.
            while counted.0 < place {
                match self.tokens[counted.0].text(self.text) {
                    "(" => counted.2 += 1,
                    ")" => counted.2 -= 1,
                    "," if counted.2 == 0 => counted.1 += 1,
                    _ => {}
                }
                counted.0 += 1;
            }
            let bare = inner.takes_arguments() && !next(place).is_some_and(|i| opens(&i));
            if bare || (counted.2 == 0 && !definition.takes_rest(counted.1)) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::include::flatten;

    fn expanded(text: &str) -> String {
        let flat = flatten(text, "a.cu", &|_, _| None).unwrap();
        let flat = expand(flat, Which::Hiding).unwrap();
        flat.text.strip_prefix("#line 1 \"a.cu\"\n").unwrap().to_owned()
    }

    #[test]
    fn only_macros_that_hide_cuda_syntax_are_expanded() {
        let kept = "#define N 256\n#define TID threadIdx.x\n#define CHECK(x) do { x; } while (0)\nint i = N; CHECK(f(N));\n";
        assert_eq!(expanded(kept), kept);
        let text = "#define DEV __device__ inline\n#define MAKE(T, n) \\\n  DEV T n##_f(T x) { return x; }\n\nMAKE(float,\n     a)\nDEV int b();\n";
        let lines = expanded(text);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[4].trim(), "__device__ inline float a_f( float x) { return x; }");
        assert_eq!(lines[6].trim(), "__device__ inline  int b();");
    }

    #[test]
    fn outer_macro_is_expanded_if_its_arguments_require_it() {
        let head = "#define L(k) k<<<1, 2>>>()\n#define CHECK(x) (x)\n#define ALL(...) { __VA_ARGS__ }\n#define LIST(X) X(a) X(b)\n";
        let last = |line: &str| {
            expanded(&format!("{head}{line}\n")).lines().last().unwrap().trim().to_owned()
        };
        assert_eq!(last("CHECK(L(k));"), "( k <<<1, 2>>>() ) ;");
        assert_eq!(last("ALL(L(k));"), "ALL( k <<<1, 2>>>() );");
        assert_eq!(last("LIST(L)"), "a <<<1, 2>>>() b <<<1, 2>>>()");
        assert_eq!(last("#undef L\nLIST(L)"), "LIST(L)");
    }

    #[test]
    fn dead_branches_are_located_in_the_expanded_text() {
        let text = "#define D __device__ __forceinline__ int\nD a;\n#ifdef NO\nD b;\n#else\nD c;\n#endif\n#if 0\nlast";
        let flat = expand(flatten(text, "a.cu", &|_, _| None).unwrap(), Which::Hiding).unwrap();
        let dead: Vec<&str> = flat.dead.iter().map(|r| flat.text[r.clone()].trim()).collect();
        assert_eq!(dead, ["D b;", "last"]);
    }
}
