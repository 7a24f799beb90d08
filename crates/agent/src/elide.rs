//! Truncates texts for a policy, with a notice of the omitted size.

/// Keeps the beginning and the end of `text`, with a notice of the omitted size between them. The
/// result has about `limit` bytes. Cuts at line ends if any are near.
pub fn elide_middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let half = limit / 2;
    let head = cut_back(text, half);
    let tail = cut_forward(text, text.len() - (limit - half));
    if tail <= head {
        return text.to_owned();
    }
    let left_out = &text[head..tail];
    let lines = left_out.matches('\n').count();
    format!(
        "{}\n[... {} bytes in {lines} lines left out ...]\n{}",
        text[..head].trim_end_matches('\n'),
        left_out.len(),
        &text[tail..]
    )
}

/// Keeps the beginning of one line.
pub(crate) fn clip_line(line: &str, limit: usize) -> String {
    if line.len() <= limit {
        return line.to_owned();
    }
    let mut end = limit;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [... {} bytes more]", &line[..end], line.len() - end)
}

/// The last line end at or before `at`, unless that would lose more than a quarter.
fn cut_back(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    match text[..at].rfind('\n') {
        Some(line_end) if line_end + 1 >= at - at / 4 => line_end + 1,
        _ => at,
    }
}

/// The first line start at or after `at`, unless that would lose more than a quarter.
fn cut_forward(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    let rest = text.len() - at;
    match text[at..].find('\n') {
        Some(line_end) if line_end < rest / 4 => at + line_end + 1,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn oversized_text_loses_its_middle_and_counts_it() {
        let lines: Vec<_> = (0..1000).map(|i| format!("line {i}\n")).collect();
        let text = lines.concat();
        let shown = elide_middle(&text, 200);
        assert!(shown.starts_with("line 0\n"), "{shown}");
        assert!(shown.ends_with("line 999\n"), "{shown}");
        assert!(shown.contains("lines left out ...]\n"), "{shown}");
        assert!(shown.len() < 260, "{}", shown.len());
    }

    #[test]
    fn short_text_is_unchanged() {
        assert_eq!(elide_middle("abc", 3), "abc");
        assert_eq!(clip_line("abcdef", 3), "abc [... 3 bytes more]");
    }

    proptest! {
        #[test]
        fn any_text_keeps_both_ends_and_stays_near_the_limit(text in "\\PC{0,400}", limit in 16_usize..200) {
            let shown = elide_middle(&text, limit);
            prop_assert!(shown.len() <= limit + 80 || shown == text);
            let first: String = text.chars().take(2).collect();
            prop_assert!(shown.starts_with(&first) || text.starts_with('\n'));
            prop_assert!(shown.ends_with(&text.chars().last().map(String::from).unwrap_or_default()));
        }
    }
}
