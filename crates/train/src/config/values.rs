//! Checks the values of a TOML document against the JSON schema of a type: an error names the key, the value and the
//! expected type in TOML's terms.

use schemars::JsonSchema;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use warpwright_learn::quoted;

use super::kind::{Kind, required, resolve};

/// All values of a wrong type and all missing keys: their byte position, where there is one, and a sentence. Unknown
/// keys are no fault.
pub(super) fn faults<T: JsonSchema>(table: &DeTable<'_>) -> Vec<(Option<usize>, String)> {
    let schema = schemars::schema_for!(T).to_value();
    let mut check = Check { root: &schema, faults: Vec::new() };
    check.table(&schema, "", None, table);
    check.faults.sort_by_key(|(position, _)| *position);
    check.faults
}

/// A value in an error.
fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted::string(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(list) => quoted::list(list.len()),
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
        for name in required(schema).filter(|name| !table.contains_key(*name)) {
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
    use crate::config::Config;
    use crate::config::document::{Document, Source};

    const TASKS: &str = "[tasks]\ntrain = [\"a.py\"]\n";

    fn read(text: &str, source: Source) -> Result<Config, String> {
        Document::parse(text, source)?.read()
    }

    fn refused(text: &str, source: Source) -> String {
        let told = read(text, source).unwrap_err();
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
    fn valid_values_of_every_kind_are_accepted() {
        let text = format!(
            "profile = \"as-run\"\nmax_turns = 3\n{TASKS}\
             [sft]\nlr = 1\ntotal_epochs = 1\nadam_betas = [0, 0.9]\n\
             [sampling]\ntemperature = inf\n[engine]\ncuda_graphs = false\nnum_gpus = 0x2\n"
        );
        let config = read(&text, Source::File).unwrap();
        assert_eq!((config.max_turns, config.engine.num_gpus), (3, Some(2)));
    }
}
