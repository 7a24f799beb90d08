//! Edits of a text by byte range, applied together.

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

    /// Replaces a range, keeping its line ends, so that later lines keep their numbers.
    pub(crate) fn replace(
        &mut self,
        source: &str,
        start: usize,
        end: usize,
        text: impl Into<String>,
    ) {
        let mut text = text.into();
        for _ in source[start..end].bytes().filter(|b| *b == b'\n') {
            text.push('\n');
        }
        self.list.push((start, end, 2, text));
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
    }
}
