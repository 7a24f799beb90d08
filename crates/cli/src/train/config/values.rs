//! Reads a TOML file into a type. The values are first checked against the type's JSON schema: an error names the key,
//! the value and the expected type in TOML's terms.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{choices, resolve, type_name};

/// Longest string that an error quotes, characters.
const MAX_QUOTED: usize = 60;

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A person's file: errors name its lines.
    File,
    /// A text that no person wrote, such as a file with overrides: errors name no lines.
    Generated,
}

impl Source {
    /// The sentence, with the line of a byte position.
    fn at(self, text: &str, position: Option<usize>, sentence: &str) -> String {
        match position.and_then(|position| text.get(..position)) {
            Some(before) if self == Self::File => {
                format!("line {}: {sentence}", before.matches('\n').count() + 1)
            }
            _ => sentence.to_owned(),
        }
    }
}

/// Reads a text. All values of a wrong type are listed; unknown keys are left to the type.
pub(crate) fn read<T: DeserializeOwned + JsonSchema>(
    text: &str,
    source: Source,
) -> Result<T, String> {
    // A syntax error shows its line.
    let document = DeTable::parse(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let schema = schemars::schema_for!(T).to_value();
    let mut check = Check { root: &schema, faults: Vec::new() };
    check.table(&schema, "", None, document.get_ref());
    check.faults.sort_by_key(|(position, _)| *position);
    if !check.faults.is_empty() {
        let faults = check.faults.iter();
        let told: Vec<String> =
            faults.map(|(position, sentence)| source.at(text, *position, sentence)).collect();
        return Err(told.join("; "));
    }
    toml::from_str(text).map_err(|error: toml::de::Error| {
        source.at(text, error.span().map(|span| span.start), &plain(error.message()))
    })
}

/// A message of the deserializer without words of Rust.
fn plain(message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        return match rest.split_once(", expected ") {
            Some((name, known)) => {
                let known = known.trim_start_matches("one of ");
                format!("there is no key {name}; the keys are {known}")
            }
            None => format!("there is no key {rest}"),
        };
    }
    match message.strip_prefix("missing field ") {
        Some(name) => format!("the key {name} is missing"),
        None => message.to_owned(),
    }
}

/// The values that a schema allows.
enum Kind<'s> {
    Choice(Vec<&'s str>),
    Table,
    /// A list of fixed length, with the schema of each entry.
    Tuple(&'s [Json]),
    List(&'s Json),
    Integer {
        min: i128,
        max: i128,
    },
    Number,
    String,
    Boolean,
    Any,
}

impl<'s> Kind<'s> {
    fn of(root: &'s Json, schema: &'s Json) -> Self {
        let schema = resolve(root, schema);
        let choices = choices(schema);
        if !choices.is_empty() {
            return Self::Choice(choices);
        }
        match type_name(schema) {
            "object" => Self::Table,
            "array" => match (schema.get("prefixItems").and_then(Json::as_array), &schema["items"])
            {
                (Some(entries), _) => Self::Tuple(entries),
                (None, entry) => Self::List(entry),
            },
            "integer" => {
                let bound = |name: &str| schema.get(name).and_then(Json::as_i64).map(i128::from);
                // TOML's integers have 64 bits.
                let max = match schema.get("format").and_then(Json::as_str) {
                    Some("uint32") => i128::from(u32::MAX),
                    Some("int32") => i128::from(i32::MAX),
                    _ => i128::from(i64::MAX),
                };
                let min = bound("minimum").unwrap_or(i128::from(i64::MIN));
                Self::Integer { min, max: bound("maximum").unwrap_or(max) }
            }
            "number" => Self::Number,
            "string" => Self::String,
            "boolean" => Self::Boolean,
            _ => Self::Any,
        }
    }

    /// The allowed values, for people.
    fn expected(&self, root: &Json) -> String {
        match self {
            Self::Choice(choices) => one_of(choices),
            Self::Table => "a table".to_owned(),
            Self::Tuple(entries) => {
                let count = match entries.len() {
                    2 => "two".to_owned(),
                    3 => "three".to_owned(),
                    count => count.to_string(),
                };
                let entry = entries.first().map_or(Kind::Any, |entry| Kind::of(root, entry));
                format!("a list of {count} {}", entry.plural())
            }
            Self::List(entry) => match Kind::of(root, entry) {
                Kind::Choice(choices) => format!("a list; each entry is {}", one_of(&choices)),
                entry => format!("a list of {}", entry.plural()),
            },
            Self::Integer { min, .. } if *min > i128::from(i64::MIN) => {
                format!("a whole number of at least {min}")
            }
            Self::Integer { .. } => "a whole number".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::String => "a string".to_owned(),
            Self::Boolean => "`true` or `false`".to_owned(),
            Self::Any => "a value".to_owned(),
        }
    }

    fn plural(&self) -> &'static str {
        match self {
            Self::Table => "tables",
            Self::Tuple(_) | Self::List(_) => "lists",
            Self::Integer { .. } => "whole numbers",
            Self::Number => "numbers",
            Self::String | Self::Choice(_) => "strings",
            Self::Boolean => "`true` or `false`",
            Self::Any => "values",
        }
    }
}

fn one_of(choices: &[&str]) -> String {
    let all: Vec<String> = choices.iter().map(|choice| format!("\"{choice}\"")).collect();
    if let [only] = &all[..] { only.clone() } else { format!("one of {}", all.join(", ")) }
}

/// A value in an error.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > MAX_QUOTED => {
            let text: String = text.chars().take(MAX_QUOTED).collect();
            format!("the string {text:?}...")
        }
        DeValue::String(text) => format!("the string {text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(list) => match list.len() {
            0 => "an empty list".to_owned(),
            1 => "a list of one value".to_owned(),
            count => format!("a list of {count} values"),
        },
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Compares values with a schema.
struct Check<'s> {
    root: &'s Json,
    /// Byte positions, where there are some, and sentences.
    faults: Vec<(Option<usize>, String)>,
}

impl Check<'_> {
    /// Checks the keys of a table at `path`, which is empty for the whole file.
    fn table(&mut self, schema: &Json, path: &str, at: Option<usize>, table: &DeTable<'_>) {
        let of = |name: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        for (name, value) in table {
            let name: &str = name.get_ref();
            if let Some(property) = schema["properties"].get(name) {
                self.value(property, &of(name), None, value);
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Json::as_str).filter(|name| !table.contains_key(*name)) {
            let expected = Kind::of(self.root, &schema["properties"][name]).expected(self.root);
            let sentence = format!("`{}` is missing; it must be {expected}", of(name));
            self.faults.push((at, sentence));
        }
    }

    /// Checks the value of a key, or an entry of its list (from 0).
    fn value(
        &mut self,
        schema: &Json,
        path: &str,
        entry: Option<usize>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let root = self.root;
        let schema = resolve(root, schema);
        let kind = Kind::of(root, schema);
        let expected = match (&kind, value.get_ref()) {
            (Kind::Any, _)
            | (Kind::String, DeValue::String(_))
            | (Kind::Boolean, DeValue::Boolean(_)) => return,
            (Kind::Number, DeValue::Integer(number)) => {
                if i64::from_str_radix(number.as_str(), number.radix()).is_ok() {
                    return;
                }
                "a number; write one this large with a decimal point".to_owned()
            }
            (Kind::Number, DeValue::Float(number)) => {
                let is_named = number.as_str().contains("inf");
                let is_finite = number.as_str().parse().is_ok_and(|n: f64| !n.is_infinite());
                if is_finite || is_named {
                    return;
                }
                format!("at most {:e} in magnitude", f64::MAX)
            }
            (Kind::Table, DeValue::Table(table)) => {
                let path = match entry {
                    Some(number) => format!("{path}[{}]", number + 1),
                    None => path.to_owned(),
                };
                return self.table(schema, &path, Some(value.span().start), table);
            }
            (Kind::Tuple(entries), DeValue::Array(list)) if entries.len() == list.len() => {
                for (number, (schema, value)) in entries.iter().zip(list).enumerate() {
                    self.value(schema, path, Some(number), value);
                }
                return;
            }
            (Kind::List(schema), DeValue::Array(list)) => {
                for (number, value) in list.iter().enumerate() {
                    self.value(schema, path, Some(number), value);
                }
                return;
            }
            (Kind::Choice(choices), DeValue::String(text)) if choices.contains(&&**text) => return,
            (Kind::Integer { min, max }, DeValue::Integer(number)) => {
                // A number that has more than 128 bits is too large, or too small, too.
                let beyond = if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
                let number =
                    i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(beyond);
                if (*min..=*max).contains(&number) {
                    return;
                }
                if number > *max { format!("at most {max}") } else { kind.expected(root) }
            }
            (Kind::Integer { .. }, DeValue::Float(_)) => {
                format!("{}, without a decimal point", kind.expected(root))
            }
            _ => kind.expected(root),
        };
        let name = match entry {
            Some(number) => format!("entry {} of `{path}`", number + 1),
            None => format!("`{path}`"),
        };
        let sentence = format!("{name} is {}; it must be {expected}", found(value.get_ref()));
        self.faults.push((Some(value.span().start), sentence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::config::Config;

    const TASKS: &str = "[tasks]\ntrain = [\"a.py\"]\n";

    fn refused(text: &str, source: Source) -> String {
        let told = read::<Config>(text, source).unwrap_err();
        for word in ["usize", "u32", "i64", "f64", "tuple", "variant", "field", "invalid type"] {
            assert!(!told.contains(word), "{word}: {told}");
        }
        told
    }

    #[test]
    fn wrong_values_name_key_value_and_expectation() {
        let whole = "it must be a whole number of at least 0";
        let cases = [
            ("max_turns = \"8\"", format!("`max_turns` is the string \"8\"; {whole}")),
            ("max_turns = 8.0", format!("`max_turns` is 8.0; {whole}, without a decimal point")),
            ("max_turns = -1", format!("`max_turns` is -1; {whole}")),
            (
                "max_turns = 5000000000",
                "`max_turns` is 5000000000; it must be at most 4294967295".to_owned(),
            ),
            (
                "max_turns = 99999999999999999999",
                "`max_turns` is 99999999999999999999; it must be at most 4294967295".to_owned(),
            ),
            (
                "profile = \"strictest\"",
                "`profile` is the string \"strictest\"; it must be one of \"strict\", \"tf32\", \"as-run\", \"paper\""
                    .to_owned(),
            ),
            ("engine = 3", "`engine` is 3; it must be a table".to_owned()),
            (
                "engine = { cuda_graphs = \"yes\" }",
                "`engine.cuda_graphs` is the string \"yes\"; it must be `true` or `false`"
                    .to_owned(),
            ),
            (
                "sampling = { temperature = true }",
                "`sampling.temperature` is `true`; it must be a number".to_owned(),
            ),
            (
                "sampling = { temperature = 1e999 }",
                "`sampling.temperature` is 1e999; it must be at most".to_owned(),
            ),
            (
                "sft = { lr = 1, total_epochs = 1, adam_betas = [0.9] }",
                "`sft.adam_betas` is a list of one value; it must be a list of two numbers"
                    .to_owned(),
            ),
            (
                "sft = { lr = 1, total_epochs = 1, adam_betas = [0.9, \"x\"] }",
                "entry 2 of `sft.adam_betas` is the string \"x\"; it must be a number".to_owned(),
            ),
            (
                "sft = { total_epochs = 1 }",
                "`sft.lr` is missing; it must be a number".to_owned(),
            ),
            (
                "eval = { episodes_per_task = 1, baseline_policies = [\"human\"] }",
                "entry 1 of `eval.baseline_policies` is the string \"human\"; it must be one of \"teacher\""
                    .to_owned(),
            ),
        ];
        for (text, told) in cases {
            let error = refused(&format!("{text}\n{TASKS}"), Source::File);
            assert!(error.starts_with(&format!("line 1: {told}")), "{text}: {error}");
        }
        let error = refused("[tasks]\ntrain = \"a.py\"", Source::Generated);
        let told = "`tasks.train` is the string \"a.py\"; it must be a list of strings";
        assert_eq!(error, told);
        assert_eq!(refused("", Source::File), "`tasks` is missing; it must be a table");
    }

    #[test]
    fn all_wrong_values_are_listed_by_line() {
        let text = format!("reward = 1\n{TASKS}[engine]\ndtype = 3\nnum_threads = 0.5\n");
        let error = refused(&text, Source::File);
        let told: Vec<&str> = error.split("; ").filter(|part| part.starts_with("line ")).collect();
        assert_eq!(told.len(), 3, "{error}");
        let lines = ["line 1: `reward`", "line 5: `engine.dtype`", "line 6: `engine.num_threads`"];
        for (part, line) in told.iter().zip(lines) {
            assert!(part.starts_with(line), "{error}");
        }
    }

    #[test]
    fn syntax_error_shows_its_line() {
        let error = refused("max_turns = \n", Source::File);
        assert!(error.contains("line 1") && !error.ends_with('\n'), "{error}");
    }

    #[test]
    fn valid_values_of_every_kind_are_accepted() {
        let text = format!(
            "profile = \"as-run\"\nmax_turns = 3\n{TASKS}\
             [sft]\nlr = 1\ntotal_epochs = 1\nadam_betas = [0, 0.9]\n\
             [sampling]\ntemperature = inf\n[engine]\ncuda_graphs = false\nnum_gpus = 0x2\n"
        );
        let config: Config = read(&text, Source::File).unwrap();
        assert_eq!((config.max_turns, config.engine.num_gpus), (3, Some(2)));
    }

    #[test]
    fn deserializer_messages_contain_no_rust_terms() {
        let cases = [
            (
                "unknown field `a`, expected one of `b`, `c`",
                "there is no key `a`; the keys are `b`, `c`",
            ),
            ("unknown field `a`, expected `b`", "there is no key `a`; the keys are `b`"),
            ("missing field `a`", "the key `a` is missing"),
            ("duplicate key", "duplicate key"),
        ];
        for (message, told) in cases {
            assert_eq!(plain(message), told);
        }
    }
}
