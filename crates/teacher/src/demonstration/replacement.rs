//! The shortest edit (old and new lines) that turns one text into another.

/// Maximum number of replaced lines.
const MOST: usize = 3;

/// The text to replace, which occurs once in `old`, and its replacement; `None` if more than a few
/// lines differ.
pub(super) fn of(old: &str, new: &str) -> Option<(String, String)> {
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev());
    let tail = tail.take(rest).take_while(|(a, b)| a == b).count();
    let (mut from, mut tail) = (same, tail);
    if old == new || before.len().max(after.len()) - tail - from > MOST {
        return None;
    }
    loop {
        let text = |lines: &[&str]| lines[from..lines.len() - tail].join("\n");
        let (replaced, with) = (text(&before), text(&after));
        let is_one = !replaced.is_empty() && old.matches(&replaced).count() == 1;
        if is_one && old.replace(&replaced, &with) == new {
            return Some((replaced, with));
        }
        // With a line more on both sides, if there is one.
        if from == 0 && tail == 0 {
            return None;
        }
        (from, tail) = (from.saturating_sub(1), tail.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replaced_lines_have_enough_context_to_be_unique() {
        let pair = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
        assert_eq!(of("a\nb\nc\n", "a\nB\nc\n"), pair("b", "B"));
        assert_eq!(of("a\nb\nc\nb\n", "a\nB\nc\nb\n"), pair("a\nb\nc", "a\nB\nc"));
        assert_eq!(of("a\nb\n", "a\nx\nb\n"), pair("a\nb", "a\nx\nb"));
        assert_eq!(of("a\nb\nc\n", "a\nc\n"), pair("a\nb\nc", "a\nc"), "no line is left empty");
        assert_eq!(of("a\nb\nc\nd\ne\n", "A\nB\nC\nD\ne\n"), None, "as well written anew");
        assert_eq!(of("a\n", "a\n"), None);
    }

    proptest! {
        #[test]
        fn applying_the_replacement_gives_the_new_text(
            old in "([ab]{0,2}\n){0,8}",
            new in "([ab]{0,2}\n){0,8}",
        ) {
            if let Some((replaced, with)) = of(&old, &new) {
                prop_assert_eq!(old.matches(&replaced).count(), 1);
                prop_assert_eq!(old.replace(&replaced, &with), new);
            }
        }
    }
}
