//! Parses texts and numbers from files that a candidate's process could have written.

/// Longest name of a kernel or file kept, bytes.
pub(crate) const MAX_NAME: usize = 300;
/// Longest line of a tool kept, bytes.
pub(crate) const MAX_LINE: usize = 600;

/// `text` in one line of at most `most` bytes, without control characters: what a terminal or a
/// table would take for something else becomes a space.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut kept = String::with_capacity(text.len().min(most));
    for character in text.chars() {
        // Also the characters that turn the direction of a line round.
        let odd = character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        let character = if odd { ' ' } else { character };
        if kept.len() + character.len_utf8() > most {
            break;
        }
        kept.push(character);
    }
    kept
}

/// A number as tools print it, e.g. `67,117,824` or `47.11`. `None` for what is none, or not finite.
pub(crate) fn number(text: &str) -> Option<f64> {
    let plain: String = text.trim().chars().filter(|c| *c != ',').take(64).collect();
    plain.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// `(256, 1, 1)` or `(3,0,0)`; also at the start of a longer text.
pub(crate) fn triple(text: &str) -> Option<[u32; 3]> {
    let inside = text.trim_start().strip_prefix('(')?.split_once(')')?.0;
    let mut parts = inside.split(',').map(|part| part.trim().parse::<u32>().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_and_triples_of_tools_are_parsed() {
        assert_eq!(number("67,117,824"), Some(67_117_824.0));
        assert_eq!(number(" 47.11 "), Some(47.11));
        for text in ["", "n/a", "nan", "inf", "1e999", "PolicySpread"] {
            assert_eq!(number(text), None, "{text}");
        }
        assert_eq!(triple("(256, 1, 1)"), Some([256, 1, 1]));
        assert_eq!(triple("(3,0,0) in block (1,2,3)"), Some([3, 0, 0]));
        for text in ["", "()", "(1,2)", "(1,2,3,4)", "(-1,0,0)", "(1,2,99999999999)", "1,2,3"] {
            assert_eq!(triple(text), None, "{text}");
        }
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}d", 99), "a [31mb c d");
        assert_eq!(clean("ééé", 3), "é");
    }

    proptest! {
        #[test]
        fn cleaned_text_has_no_control_characters(text: String, most in 0usize..200) {
            let kept = clean(&text, most);
            prop_assert!(kept.len() <= most && !kept.chars().any(char::is_control));
            let _ = (number(&text), triple(&text));
        }
    }
}
