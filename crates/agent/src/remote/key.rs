//! A secret that cannot be printed by accident.

use std::borrow::Cow;
use std::fmt;

/// Replaces a key in text.
const HIDDEN: &str = "[key]";

/// An API key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Trims the environment variable's value; `None` if nothing is left.
    pub fn new(value: &str) -> Option<Self> {
        let value = value.trim();
        (!value.is_empty()).then(|| Self(value.to_owned()))
    }

    /// The secret, for the request's header only.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without the key: servers quote it in their error messages.
    pub(super) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.contains(&self.0) {
            Cow::Owned(text.replace(&self.0, HIDDEN))
        } else {
            Cow::Borrowed(text)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_redacted_in_debug_output_and_text() {
        let key = Key::new(" sk-secret\n").unwrap();
        assert_eq!(key.expose(), "sk-secret", "positive control");
        assert_eq!(format!("{key:?}"), "[key]");
        assert_eq!(key.redact("no such key: sk-secret!"), "no such key: [key]!");
        assert!(Key::new(" \n").is_none());
    }
}
