//! Edits of a text by byte range, applied together.

use crate::code::Seq;

/// Replacements of byte ranges; an empty range inserts.
#[derive(Default)]
pub(crate) struct Edits {
    list: Vec<(usize, usize, u8, String)>,
}

impl Edits {
    /// Inserts before the byte at `at`. Insertions at the same place keep their order.
    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.list.push((at, at, 1, text.into()));
    }

    /// Inserts before all other insertions at that place.
    pub(crate) fn insert_outer(&mut self, at: usize, text: impl Into<String>) {
        self.list.push((at, at, 0, text.into()));
    }

    /// The replaced ranges.
    pub(crate) fn ranges(&self) -> Ranges {
        let mut list: Vec<(usize, usize)> =
            self.list.iter().filter(|e| e.2 == 2).map(|e| (e.0, e.1)).collect();
        list.sort_unstable();
        list.dedup_by(|next, last| {
            let inside = next.0 < last.1;
            last.1 = if inside { last.1.max(next.1) } else { last.1 };
            inside
        });
        Ranges(list)
    }

    /// Replaces a range and keeps its line ends, so that later lines keep their numbers. A macro's
    /// line continuations are kept too.
    pub(crate) fn replace(
        &mut self,
        source: &str,
        start: usize,
        end: usize,
        text: impl Into<String>,
    ) {
        let mut text = text.into();
        for line in source[start..end].split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let goes_on = line.trim_end_matches(['\n', '\r']).ends_with('\\');
            text.push_str(if goes_on { "\\\n" } else { "\n" });
        }
        self.list.push((start, end, 2, text));
    }

    /// Edited tokens with blanks between.
    pub(crate) fn joined(mut self, seq: &Seq<'_>, from: usize, to: usize) -> String {
        self.list.sort_by_key(|(start, _, order, _)| (*start, *order));
        let mut edits = self.list.into_iter().peekable();
        let (mut parts, mut past) = (Vec::new(), 0);
        for token in &seq.tokens[from..to] {
            while let Some((_, end, _, text)) = edits.next_if(|e| e.0 <= token.start) {
                past = past.max(end);
                parts.push(text);
            }
            if token.start >= past {
                parts.push(token.text(seq.source).to_owned());
            }
        }
        parts.extend(edits.map(|e| e.3));
        parts.join(" ")
    }

    /// The edited text. Where two ranges overlap the later one is dropped: an outer rewrite has
    /// already taken its text along.
    pub(crate) fn apply(mut self, source: &str) -> String {
        self.list.sort_by_key(|(start, _, order, _)| (*start, *order));
        let mut out = String::with_capacity(source.len() * 5 / 4);
        let mut at = 0;
        for (start, end, _, text) in self.list {
            if start < at {
                continue;
            }
            out.push_str(&source[at..start]);
            out.push_str(&text);
            at = end;
        }
        out.push_str(&source[at..]);
        out
    }
}

/// Disjoint byte ranges in order.
pub(crate) struct Ranges(Vec<(usize, usize)>);

impl Ranges {
    /// Whether one of the ranges contains this range.
    pub(crate) fn cover(&self, start: usize, end: usize) -> bool {
        let after = self.0.partition_point(|r| r.0 <= start);
        after > 0 && self.0[after - 1].1 >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertions_and_replacements_keep_lines() {
        let source = "a b\nc d";
        let mut edits = Edits::default();
        edits.replace(source, 2, 5, "X");
        edits.insert(0, "<");
        edits.insert(2, "^");
        edits.insert(3, "lost");
        assert_eq!(edits.apply(source), "<a ^X\n d");
        let source = "#define A b \\\n c \\\r\n d";
        let mut edits = Edits::default();
        edits.replace(source, 10, source.len(), "X");
        assert_eq!(edits.apply(source), "#define A X\\\n\\\n");
    }
}
