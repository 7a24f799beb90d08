//! How an error shows a value that a person wrote, in a TOML file or in a model's `config.json`.

/// Longest text that an error quotes, characters.
const MAX_QUOTED: usize = 60;

/// The beginning of a text that an error quotes, and `...` if the text is longer.
pub fn shortened(text: &str) -> (&str, &'static str) {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => (&text[..end], "..."),
        None => (text, ""),
    }
}

/// A string.
pub fn string(text: &str) -> String {
    let (text, dots) = shortened(text);
    format!("the string {text:?}{dots}")
}

/// A list of `count` values.
pub fn list(count: usize) -> String {
    match count {
        0 => "an empty list".to_owned(),
        1 => "a list of one value".to_owned(),
        count => format!("a list of {count} values"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_texts_are_shortened() {
        let limit = "ä".repeat(MAX_QUOTED);
        assert_eq!(shortened(&limit), (&*limit, ""));
        assert_eq!(shortened(&format!("{limit}b")), (&*limit, "..."));
        assert_eq!(string("a\"b"), r#"the string "a\"b""#);
        assert_eq!(string(&format!("{limit}b")), format!("the string \"{limit}\"..."));
    }
}
