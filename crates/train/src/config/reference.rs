//! The reference of the configuration, `docs/reference/configuration.md`, and its JSON schema. Both are generated from the
//! types; `UPDATE_REFERENCE=1` writes them.

use std::fmt::Write as _;

use warpwright_test_support::generated;

use super::Config;
use super::keys::{Key, all};

const HEAD: &str = "\
# Configuration of training

This page is generated from the program's types: `UPDATE_REFERENCE=1 cargo nextest run --release --workspace reference`.

`warpwright train STAGE CONFIG` reads one TOML file for all stages. `--set KEY=VALUE` overrides any key. Paths are relative \
to the file. An unknown key is an error that names the nearest key; a key of verl is answered with ours. \
`schemas/train-config.schema.json` has the same keys for editors.

The column *verl, HF* has the key's name in verl's PPO configuration (with its last table) and in Hugging Face's or TRL's \
configuration, where one exists.
";

/// One table of the reference: a heading, a sentence, a row per key.
fn section(text: &mut String, path: &str, about: &str, keys: &[Key]) {
    let own = |key: &&Key| key.path.rsplit_once('.').map_or("", |(of, _)| of) == path;
    let rows: Vec<&Key> = keys.iter().filter(own).filter(|key| !key.is_table).collect();
    if rows.is_empty() {
        return;
    }
    let heading = if path.is_empty() { "Top level".to_owned() } else { format!("`[{path}]`") };
    let _ = write!(text, "\n## {heading}\n\n");
    if !about.is_empty() {
        let _ = write!(text, "{about}\n\n");
    }
    text.push_str("| key | type | default | meaning | verl, HF |\n|---|---|---|---|---|\n");
    for key in rows {
        let name = key.path.rsplit('.').next().unwrap_or(&key.path);
        let default = match &key.default {
            Some(default) => format!("`{default}`"),
            None if key.is_required => "required".to_owned(),
            None => String::new(),
        };
        let kind = key.kind.replace('"', "`");
        let (meaning, names) = (&key.description, names(key));
        let _ = writeln!(text, "| `{name}` | {kind} | {default} | {meaning} | {names} |");
    }
}

/// verl's names with their last table, and Hugging Face's.
fn names(key: &Key) -> String {
    let short = |name: &String| {
        let mut parts = name.rsplit('.');
        let (last, table) = (parts.next().unwrap_or_default(), parts.next());
        table.map_or(last.to_owned(), |table| format!("{table}.{last}"))
    };
    let mut names: Vec<String> = key.verl.iter().map(short).chain(key.hf.iter().cloned()).collect();
    names.dedup();
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn markdown() -> String {
    let keys = all();
    let mut text = HEAD.to_owned();
    section(&mut text, "", "", &keys);
    for table in keys.iter().filter(|key| key.is_table) {
        // The stages that train on rollouts have the same keys, and so have all fits.
        let same = match table.path.as_str() {
            "single_turn" => Some("ppo"),
            "rft.fit" | "value.fit" | "pretrain.fit" => Some("sft"),
            "pretrain.flaws" => Some("demos.flaws"),
            _ => None,
        };
        match same {
            Some(same) => {
                let (path, about) = (&table.path, &table.description);
                let _ = write!(text, "\n## `[{path}]`\n\n{about} It has the keys of `[{same}]`.\n");
            }
            None => section(&mut text, &table.path, &table.description, &keys),
        }
    }
    text
}

#[test]
fn the_configuration_reference_matches_the_types() {
    generated::check("docs/reference/configuration.md", &markdown());
}

#[test]
fn the_configuration_schema_matches_the_types() {
    let schema = schemars::schema_for!(Config).to_value();
    generated::check("schemas/train-config.schema.json", &format!("{schema:#}\n"));
}

#[test]
fn every_key_is_described() {
    for key in all() {
        assert!(!key.description.is_empty(), "{} has no description", key.path);
        let cell = key.description.len();
        assert!(cell <= 300, "the description of {} has {cell} characters", key.path);
    }
}
