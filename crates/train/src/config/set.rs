//! `--set KEY=VALUE`: overrides keys of a configuration from the command line.

use toml::{Table, Value};

/// Applies overrides such as `ppo.lr=3e-5` to a configuration. Values are TOML; a value that is not is a string.
pub(super) fn apply(mut table: Table, overrides: &[String]) -> Result<Table, String> {
    for each in overrides {
        let (key, value) = each
            .split_once('=')
            .ok_or_else(|| format!("--set {each}: write KEY=VALUE, e.g. --set ppo.lr=3e-5"))?;
        put(&mut table, key.trim(), value_of(value.trim()))
            .map_err(|reason| format!("--set {each}: {reason}"))?;
    }
    Ok(table)
}

fn value_of(text: &str) -> Value {
    toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn put(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (path, last) = key.rsplit_once('.').map_or(("", key), |(path, last)| (path, last));
    if last.is_empty() || path.split('.').any(str::is_empty) && !path.is_empty() {
        return Err(format!("`{key}` is no key"));
    }
    let mut at = table;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        at = next.as_table_mut().ok_or_else(|| format!("`{part}` is a value, not a table"))?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str, overrides: &[&str]) -> Result<Table, String> {
        let overrides: Vec<String> = overrides.iter().map(|each| (*each).to_owned()).collect();
        apply(toml::from_str(text).unwrap(), &overrides)
    }

    #[test]
    fn overrides_replace_and_add_values_of_every_type() {
        let text = "max_turns = 3\n[ppo]\nlr = 1e-3\n";
        let overrides = [
            "ppo.lr=3e-5",
            "max_turns=4",
            "ppo.algorithm=rloo",
            "ppo.halt_on=[\"divergence\"]",
            "value.fit.lr = 0.1",
            "tasks.train=[\"a=b.py\"]",
        ];
        let table = applied(text, &overrides).unwrap();
        assert_eq!(table["ppo"]["lr"], Value::Float(3e-5));
        assert_eq!(table["max_turns"], Value::Integer(4));
        assert_eq!(table["ppo"]["algorithm"].as_str(), Some("rloo"));
        assert_eq!(table["ppo"]["halt_on"][0].as_str(), Some("divergence"));
        assert_eq!(table["value"]["fit"]["lr"], Value::Float(0.1));
        assert_eq!(table["tasks"]["train"][0].as_str(), Some("a=b.py"));
    }

    #[test]
    fn malformed_overrides_are_refused() {
        for (text, told) in [
            ("ppo.lr", "write KEY=VALUE"),
            ("=3", "is no key"),
            ("ppo..lr=3", "is no key"),
            ("max_turns.lr=3", "is a value, not a table"),
        ] {
            let error = applied("max_turns = 3\n", &[text]).unwrap_err();
            assert!(error.contains(told) && error.contains(text), "{text}: {error}");
        }
    }
}
