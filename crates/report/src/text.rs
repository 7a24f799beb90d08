//! Text of unknown origin made fit to be shown. Candidates, tools and policies write what they
//! like: terminal escapes, markup, characters that reorder a line.

use std::fmt::Write;

/// `text` with every control character and every invisible direction mark made visible. Newlines
/// and tabs stay.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            // Line ends of other systems; the newline that follows is enough.
            '\r' => {}
            // As a C string would say it: every font has these letters.
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            // Direction marks can make code read otherwise than it runs; the rest has no place in
            // a text at all, and HTML forbids most of it.
            '\u{80}'..='\u{9f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fdd0}'..='\u{fdef}' => {
                let _ = write!(out, "\\u{{{:04x}}}", c as u32);
            }
            c if c as u32 & 0xfffe == 0xfffe => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// [`clean`], then escaped for HTML text and quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// At most `limit` bytes of `text`, whole characters, and whether something was left out.
pub(crate) fn cut(text: &str, limit: usize) -> (&str, bool) {
    (&text[..text.floor_char_boundary(limit)], text.len() > limit)
}

/// The first line of `text` that says something, cleaned, at most `width` characters.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let text = clean(text).replace('\t', " ");
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_or_the_page_raw() {
        assert_eq!(clean("\u{1b}[31mred\u{7}\r\n\tok"), "\\x1b[31mred\\x07\n\tok");
        assert_eq!(clean("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(
            escape("<a href='x' b=\"y\">&</a>"),
            "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;&lt;/a&gt;"
        );
    }

    #[test]
    fn a_cut_leaves_characters_whole() {
        assert_eq!(cut("aµb", 2), ("a", true));
        assert_eq!(cut("aµb", 4), ("aµb", false));
    }

    #[test]
    fn one_line_keeps_what_says_something() {
        assert_eq!(one_line("\n\n  bash utils/compile.sh \nmore", 40), "bash utils/compile.sh");
        assert_eq!(one_line("abcdefgh", 5), "abcd…");
        assert_eq!(one_line("", 5), "");
    }
}
