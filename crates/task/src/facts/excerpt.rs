//! Positions in a source, and the lines shown round them.

use std::fmt;

use ruff_text_size::TextSize;

/// Most characters of a line that are shown.
const SHOWN_COLUMNS: usize = 96;

/// Line and column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A position with the line it is on and a caret below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where.
    pub position: Position,
    /// Two lines: the source line with its number, the caret.
    pub excerpt: String,
}

/// A source by lines.
pub(crate) struct Lines<'a> {
    source: &'a str,
    /// Byte offset of each line's first character.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        // Python's line ends: \n, \r\n and a lone \r.
        let bytes = source.as_bytes();
        let ends = (0..bytes.len()).filter(|&i| {
            bytes[i] == b'\n' || (bytes[i] == b'\r' && bytes.get(i + 1) != Some(&b'\n'))
        });
        let starts = std::iter::once(0).chain(ends.map(|i| i + 1)).collect();
        Self { source, starts }
    }

    pub(crate) fn position(&self, offset: TextSize) -> Position {
        let (line, before) = self.split(offset);
        Position { line: line as u32 + 1, column: before.chars().count() as u32 + 1 }
    }

    pub(crate) fn place(&self, offset: TextSize) -> Place {
        let (line, before) = self.split(offset);
        let position = self.position(offset);
        let caret = before.chars().count();
        let text: Vec<char> = self.line(line).chars().map(plain).collect();
        // A long line is cut so that the caret stays in view.
        let first = if caret < SHOWN_COLUMNS { 0 } else { caret - SHOWN_COLUMNS / 2 };
        let shown: String = text.iter().skip(first).take(SHOWN_COLUMNS).collect();
        let (left, right) = (
            if first > 0 { "..." } else { "" },
            if text.len() > first + SHOWN_COLUMNS { "..." } else { "" },
        );
        let number = position.line.to_string();
        let indent = " ".repeat(number.len());
        let gap = " ".repeat(left.len() + caret - first);
        let excerpt =
            format!("  {number} | {left}{}{right}\n  {indent} | {gap}^", shown.trim_end());
        Place { position, excerpt }
    }

    /// The line (from 0) that `offset` is on, and the text between its start and `offset`.
    fn split(&self, offset: TextSize) -> (usize, &'a str) {
        let mut offset = offset.to_usize().min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= offset) - 1;
        (line, &self.source[self.starts[line]..offset])
    }

    fn line(&self, line: usize) -> &'a str {
        let end = self.starts.get(line + 1).copied().unwrap_or(self.source.len());
        self.source[self.starts[line]..end].trim_end_matches(['\n', '\r'])
    }
}

/// Characters that would move a terminal's cursor become a space: the caret must point at the
/// right place, and a source must not be able to write to the reader's screen.
fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}
