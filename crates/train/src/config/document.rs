//! A TOML text that is parsed once: the checks of its keys and values and the deserializer read the same document.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::de::DeTable;
use toml::{Deserializer, Spanned, Table};

use super::values::faults;

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A person's file: errors name its lines.
    File,
    /// A text that no person wrote, such as a file with overrides: errors name no lines.
    Generated,
}

/// A parsed text.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    source: Source,
    table: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses a text. A syntax error shows its line.
    pub fn parse(text: &'t str, source: Source) -> Result<Self, String> {
        let table =
            DeTable::parse(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        Ok(Self { text, source, table })
    }

    /// Its keys and values.
    pub(super) fn root(&self) -> &DeTable<'t> {
        self.table.get_ref()
    }

    /// Whether it has a key or a table with this name outside all tables.
    pub fn has(&self, name: &str) -> bool {
        self.root().contains_key(name)
    }

    /// A copy of its keys and values that can be changed.
    pub fn table(&self) -> Result<Table, String> {
        self.deserialize()
    }

    /// Reads it into a type. All values of a wrong type are listed; unknown keys are left to the type.
    pub fn read<T: DeserializeOwned + JsonSchema>(&self) -> Result<T, String> {
        let faults = faults::<T>(self.root());
        if faults.is_empty() {
            return self.deserialize();
        }
        let told: Vec<String> =
            faults.iter().map(|(position, sentence)| self.at(*position, sentence)).collect();
        Err(told.join("; "))
    }

    fn deserialize<T: DeserializeOwned>(&self) -> Result<T, String> {
        let deserializer = Deserializer::from(self.table.clone());
        serde::Deserialize::deserialize(deserializer).map_err(|error: toml::de::Error| {
            self.at(error.span().map(|span| span.start), &plain(error.message()))
        })
    }

    /// The sentence, with the line of a byte position.
    fn at(&self, position: Option<usize>, sentence: &str) -> String {
        match position.and_then(|position| self.text.get(..position)) {
            Some(before) if self.source == Source::File => {
                format!("line {}: {sentence}", before.matches('\n').count() + 1)
            }
            _ => sentence.to_owned(),
        }
    }
}

/// A message of the deserializer without words of Rust.
fn plain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ") else { return message.to_owned() };
    match rest.split_once(", expected ") {
        Some((name, known)) => {
            let known = known.trim_start_matches("one of ");
            format!("there is no key {name}; the keys are {known}")
        }
        None => format!("there is no key {rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn syntax_error_shows_its_line() {
        let error = Document::parse("max_turns = \n", Source::File).unwrap_err();
        assert!(error.contains("line 1") && !error.ends_with('\n'), "{error}");
    }

    #[test]
    fn unknown_key_names_its_line() {
        let text = "max_turns = 3\nmax_turn = 4\n[tasks]\ntrain = [\"a.py\"]\n";
        let refused = |source| Document::parse(text, source).unwrap().read::<Config>().unwrap_err();
        let told = "there is no key `max_turn`; the keys are `tasks`, `profile`";
        let (of_file, generated) = (refused(Source::File), refused(Source::Generated));
        assert!(of_file.starts_with(&format!("line 2: {told}")), "{of_file}");
        assert!(generated.starts_with(told), "{generated}");
    }

    #[test]
    fn deserializer_messages_contain_no_rust_terms() {
        let cases = [
            (
                "unknown field `a`, expected one of `b`, `c`",
                "there is no key `a`; the keys are `b`, `c`",
            ),
            ("unknown field `a`, expected `b`", "there is no key `a`; the keys are `b`"),
            ("duplicate key", "duplicate key"),
        ];
        for (message, told) in cases {
            assert_eq!(plain(message), told);
        }
    }
}
