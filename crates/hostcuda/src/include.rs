//! Inlines local headers into the unit, so that one pass sees every function.

use std::collections::HashSet;
use std::ops::Range;

use crate::condition::Preprocessor;
use crate::lexer::{Token, TokenKind, lex};
use crate::refusal::Refusal;

/// A unit with its local headers inlined, and the origin of each line.
pub(crate) struct Flat {
    pub(crate) text: String,
    /// `(first line of the flat text, file, line in that file)`, sorted by the first.
    pub(crate) lines: Vec<(u32, String, u32)>,
    /// Inlined headers, in order, each once.
    pub(crate) inlined: Vec<String>,
    /// Ranges of the text that are certainly not compiled, in order; found by
    /// [`crate::expand::expand`].
    pub(crate) dead: Vec<Range<usize>>,
}

impl Flat {
    /// A refusal at a token of the text.
    pub(crate) fn refusal(&self, at: &Token, construct: String, reason: &str) -> Refusal {
        let (file, line) = self.origin(at.line);
        let (file, column) = (file.to_owned(), at.column);
        Refusal { file, line, column, construct, reason: reason.to_owned() }
    }

    /// File and line of a line of the flat text.
    pub(crate) fn origin(&self, line: u32) -> (&str, u32) {
        let at = self.lines.partition_point(|l| l.0 <= line);
        match at.checked_sub(1).and_then(|i| self.lines.get(i)) {
            Some((first, file, start)) => (file, start + (line - first)),
            None => ("", line),
        }
    }
}

/// Finds local headers: maps the name as written and the including file to the header's own name
/// and text. `None` leaves the line to the host compiler.
pub type Resolve<'a> = dyn Fn(&str, &str) -> Option<(String, String)> + 'a;

pub(crate) fn flatten(
    source: &str,
    file: &str,
    resolve: &Resolve<'_>,
) -> Result<Flat, Vec<Refusal>> {
    let mut flattener = Flattener {
        resolve,
        flat: Flat {
            text: String::with_capacity(source.len() + 256),
            lines: Vec::new(),
            inlined: Vec::new(),
            dead: Vec::new(),
        },
        line: 1,
        preprocessor: Preprocessor::default(),
        once: HashSet::new(),
        taken: 0,
        refusals: Vec::new(),
    };
    flattener.file(source, file, 0);
    if flattener.refusals.is_empty() { Ok(flattener.flat) } else { Err(flattener.refusals) }
}

/// Maximum number of includes: headers without guards can double at every level.
const MAX_INCLUDES: u32 = 1000;

/// Maximum bytes of a unit with its headers.
const MAX_BYTES: usize = 32 << 20;

struct Flattener<'a> {
    resolve: &'a Resolve<'a>,
    flat: Flat,
    /// Current line of the flat text.
    line: u32,
    /// Macros and conditions so far.
    preprocessor: Preprocessor,
    /// Headers with `#pragma once` that were inlined.
    once: HashSet<String>,
    /// Number of header inclusions, repeated ones too.
    taken: u32,
    refusals: Vec<Refusal>,
}

impl Flattener<'_> {
    fn push(&mut self, text: &str) {
        self.flat.text.push_str(text);
        self.line += text.bytes().filter(|b| *b == b'\n').count() as u32;
    }

    /// Records the file and line of the next line.
    fn mark(&mut self, file: &str, line: u32) {
        if !self.flat.text.is_empty() && !self.flat.text.ends_with('\n') {
            self.push("\n");
        }
        let quoted = file.replace('\\', "\\\\").replace('"', "\\\"");
        self.push(&format!("#line {line} \"{quoted}\"\n"));
        self.flat.lines.push((self.line, file.to_owned(), line));
    }

    fn file(&mut self, source: &str, file: &str, depth: u32) {
        self.mark(file, 1);
        let tokens = lex(source);
        let mut copied = 0;
        let mut at = 0;
        while at < tokens.len() && self.refusals.is_empty() {
            if !tokens[at].directive {
                at += 1;
                continue;
            }
            let end = (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
            let line: Vec<Token> = tokens[at..end].iter().copied().filter(Token::is_code).collect();
            at = end;
            self.preprocessor.directive(source, &line);
            if !self.preprocessor.live() {
                continue;
            }
            let word = |i: usize| line.get(i).map_or("", |t| t.text(source));
            if word(1) == "pragma" && word(2).trim() == "once" {
                if depth > 0 {
                    // The pragma would speak of the file it now stands in.
                    self.push(&source[copied..line[0].start]);
                    copied = line[2].end;
                }
                self.once.insert(file.to_owned());
            } else if word(1) == "include"
                && let Some(header) = line.get(2)
                && let Some(name) = self.header(source, header)
                && let Some((path, text)) = (self.resolve)(&name, file)
            {
                self.push(&source[copied..line[0].start]);
                copied = header.end;
                self.taken += 1;
                let too_long = self.flat.text.len() + text.len() > MAX_BYTES;
                if depth >= 32 || self.taken > MAX_INCLUDES || too_long {
                    let reason = if too_long {
                        "the file and its headers are longer than 32 MiB"
                    } else {
                        "headers include one another without end: add #pragma once"
                    };
                    self.refusals.push(Refusal {
                        file: file.to_owned(),
                        line: header.line,
                        column: header.column,
                        construct: format!("#include \"{name}\""),
                        reason: reason.to_owned(),
                    });
                    return;
                }
                if !self.once.contains(&path) {
                    if !self.flat.inlined.contains(&path) {
                        self.flat.inlined.push(path.clone());
                    }
                    self.file(&text, &path, depth + 1);
                    self.mark(file, header.line);
                }
            }
        }
        self.push(&source[copied..]);
    }

    /// The quoted name in an `#include`, written directly or through a macro.
    fn header(&self, source: &str, header: &Token) -> Option<String> {
        let text = header.text(source);
        let name = match header.kind {
            TokenKind::HeaderName => text,
            TokenKind::Ident => {
                let definition = self.preprocessor.table.get(text)?;
                let mut words = definition.words();
                let only = words.next().filter(|_| words.next().is_none())?;
                return Some(only.text.strip_prefix('"')?.trim_end_matches('"').to_owned());
            }
            _ => return None,
        };
        Some(name.strip_prefix('"')?.trim_end_matches('"').to_owned())
    }
}
