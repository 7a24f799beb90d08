//! Local headers become part of the unit, so that one pass sees every function.

use crate::lexer::{Token, TokenKind, lex};
use crate::refusal::Refusal;

/// A unit with its local headers in place, and where each line came from.
pub(crate) struct Flat {
    pub(crate) text: String,
    /// `(first line of the flat text, file, line in that file)`, sorted by the first.
    lines: Vec<(u32, String, u32)>,
    /// Headers taken in, in order, each once.
    pub(crate) inlined: Vec<String>,
}

impl Flat {
    /// File and line of a line of the flat text.
    pub(crate) fn origin(&self, line: u32) -> (&str, u32) {
        let at = self.lines.partition_point(|l| l.0 <= line);
        match at.checked_sub(1).and_then(|i| self.lines.get(i)) {
            Some((first, file, start)) => (file, start + (line - first)),
            None => ("", line),
        }
    }
}

/// How local headers are found: the name as written and the file that includes it, to the header's
/// own name and text. `None` leaves the line to the host compiler.
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
        },
        line: 1,
        once: Vec::new(),
        taken: 0,
        refusals: Vec::new(),
    };
    flattener.file(source, file, 0);
    if flattener.refusals.is_empty() { Ok(flattener.flat) } else { Err(flattener.refusals) }
}

/// Headers without guards can double at every level.
const MAX_INCLUDES: u32 = 1000;

struct Flattener<'a> {
    resolve: &'a Resolve<'a>,
    flat: Flat,
    /// Current line of the flat text.
    line: u32,
    /// Headers with `#pragma once` that were taken in.
    once: Vec<String>,
    /// How often a header was taken in.
    taken: u32,
    refusals: Vec<Refusal>,
}

impl Flattener<'_> {
    fn push(&mut self, text: &str) {
        self.flat.text.push_str(text);
        self.line += text.bytes().filter(|b| *b == b'\n').count() as u32;
    }

    /// Says from which file and line the next line comes.
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
        while at < tokens.len() {
            if !tokens[at].directive {
                at += 1;
                continue;
            }
            let end = (at..tokens.len()).find(|&i| !tokens[i].directive).unwrap_or(tokens.len());
            let line: Vec<&Token> = tokens[at..end].iter().filter(|t| t.is_code()).collect();
            let word = |i: usize| line.get(i).map_or("", |t| t.text(source));
            if word(1) == "pragma" && word(2).trim() == "once" {
                if depth > 0 {
                    // The pragma would speak of the file it now stands in.
                    self.push(&source[copied..line[0].start]);
                    copied = line[2].end;
                }
                self.once.push(file.to_owned());
            } else if word(1) == "include"
                && let Some(header) = line.get(2).filter(|t| t.kind == TokenKind::HeaderName)
                && let Some(name) = header.text(source).strip_prefix('"')
                && let name = name.trim_end_matches('"')
                && let Some((path, text)) = (self.resolve)(name, file)
            {
                self.push(&source[copied..line[0].start]);
                copied = header.end;
                self.taken += 1;
                if depth >= 32 || self.taken > MAX_INCLUDES {
                    self.refusals.push(Refusal {
                        file: file.to_owned(),
                        line: header.line,
                        column: header.column,
                        construct: format!("#include \"{name}\""),
                        reason: "headers include one another without end: add #pragma once"
                            .to_owned(),
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
            at = end;
        }
        self.push(&source[copied..]);
    }
}
