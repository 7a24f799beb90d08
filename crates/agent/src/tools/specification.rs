//! The tools' specifications for a language model, and the answers to malformed calls.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use warpwright_record::message::ToolCall;

use crate::elide::clip_line;
use crate::tools::arguments::{
    BASH, BASH_OUTPUT, Bash, BashOutput, EDIT, Edit, GLOB, GREP, Glob, Grep, KILL_BASH, KillBash,
    MULTI_EDIT, MultiEdit, READ, Read, TODO_WRITE, TodoWrite, WRITE, Write,
};
use crate::tools::files::NoAnswer;

/// A tool's specification for a language model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpecification {
    /// Name used in [`ToolCall::name`].
    pub name: &'static str,
    /// The tool's description.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// Every tool of this version, in a fixed order.
pub fn specifications() -> Vec<ToolSpecification> {
    fn tool<T: JsonSchema>(name: &'static str, description: &'static str) -> ToolSpecification {
        ToolSpecification { name, description, parameters: parameters::<T>() }
    }
    vec![
        tool::<Bash>(
            BASH,
            "Run a command in the episode's bash. The working directory, variables, functions and \
             background jobs persist between calls; standard input is empty. There is no network \
             and no GPU here: building, verification and profiling are requests to the judge (see \
             SKILL.md), made by a foreground command. A command that exceeds its timeout (default \
             300000, at most 1800000 ms) is killed and the shell continues. Output over 30000 bytes \
             loses its middle.",
        ),
        tool::<BashOutput>(
            BASH_OUTPUT,
            "Show the output of a background command since the last BashOutput call for it, and \
             whether it still runs.",
        ),
        tool::<KillBash>(KILL_BASH, "End a background command and all processes it started."),
        tool::<Read>(READ, "Read a text file of the workspace with line numbers."),
        tool::<Write>(
            WRITE,
            "Write a whole file of the workspace. An existing file must have been read first. \
             Read-only files are refused.",
        ),
        tool::<Edit>(
            EDIT,
            "Replace text in a file of the workspace that has been read. The old text must occur \
             exactly once unless replace_all is set.",
        ),
        tool::<MultiEdit>(
            MULTI_EDIT,
            "Make several replacements in one file of the workspace that has been read, in order. \
             Either all are made or none.",
        ),
        tool::<Glob>(
            GLOB,
            "List files of the workspace whose path matches a pattern such as **/*.cu, the most \
             recently changed first.",
        ),
        tool::<Grep>(
            GREP,
            "Search the files of the workspace for a regular expression, line by line.",
        ),
        tool::<TodoWrite>(
            TODO_WRITE,
            "Keep the to-do list. Each call gives the whole list; at most one \
             entry is in progress.",
        ),
    ]
}

/// Reads a call's arguments. Language models sometimes send a JSON text instead of an object, and
/// null instead of omitting an argument; both are accepted.
pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(call: &ToolCall) -> Result<T, NoAnswer> {
    let mut given = match &call.arguments {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner) => inner,
            Err(error) => {
                let why = format!("they are a text that is not JSON: {error}");
                return Err(mistaken::<T>(call, &why));
            }
        },
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    };
    let Value::Object(fields) = &mut given else {
        return Err(mistaken::<T>(call, "they are not an object"));
    };
    fields.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(given).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        let why = if path == "." { reason } else { format!("{path}: {reason}") };
        mistaken::<T>(call, &why)
    })
}

fn mistaken<T: JsonSchema>(call: &ToolCall, why: &str) -> NoAnswer {
    let name = &call.name;
    let why = clip_line(&why.replace('\n', " "), 300);
    let takes = signature(&parameters::<T>());
    NoAnswer::Refused(format!(
        "failed to read the arguments of {name}: {why}; {name} takes {takes}"
    ))
}

/// The arguments in one line, e.g. `{file_path: string, limit?: integer}`.
fn signature(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema["properties"].as_object();
    let fields: Vec<String> = properties
        .into_iter()
        .flatten()
        .map(|(name, property)| {
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            format!("{name}{mark}: {}", kind(property))
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

fn kind(property: &Value) -> String {
    let choices = |options: &Value| -> Option<Vec<String>> {
        let named = options.as_array()?.iter();
        Some(named.filter_map(|o| o["const"].as_str().map(|name| format!("{name:?}"))).collect())
    };
    if let Some(named) = choices(&property["oneOf"]) {
        return named.join(" | ");
    }
    match &property["type"] {
        Value::String(name) if name == "array" => match &property["items"] {
            items if items["properties"].is_object() => format!("[{}]", signature(items)),
            items => format!("[{}]", kind(items)),
        },
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let named = names.iter().filter_map(Value::as_str).find(|name| *name != "null");
            named.unwrap_or("any").to_owned()
        }
        _ => "any".to_owned(),
    }
}

/// The answer to a call of a tool that does not exist.
pub(crate) fn unknown_tool(name: &str) -> NoAnswer {
    let names: Vec<&str> = specifications().iter().map(|tool| tool.name).collect();
    let plain = |name: &str| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let near = names
        .iter()
        .map(|known| (distance(&plain(known), &plain(&clip_line(name, 64))), known))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    let hint = near.map_or_else(String::new, |(_, known)| format!("; the most similar is {known}"));
    NoAnswer::Refused(format!(
        "failed to run the tool {}: no tool has this name{hint}; the tools are {}",
        clip_line(&name.escape_debug().to_string(), 100),
        names.join(", ")
    ))
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn parameters<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| {
        s.meta_schema = None;
        s.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.remove("description");
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused<T: DeserializeOwned + JsonSchema + std::fmt::Debug>(
        name: &str,
        arguments: Value,
    ) -> String {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments };
        match parse::<T>(&call).unwrap_err() {
            NoAnswer::Refused(text) => text,
            NoAnswer::Ours(error) => panic!("{error}"),
        }
    }

    #[test]
    fn tool_schema_given_to_the_model() {
        let tools = specifications();
        let edit = tools.iter().find(|tool| tool.name == EDIT).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&edit.parameters).unwrap(), @r#"
        {
          "type": "object",
          "additionalProperties": false,
          "properties": {
            "file_path": {
              "type": "string",
              "description": "File to change, relative to the workspace."
            },
            "old_string": {
              "type": "string",
              "description": "Text to replace, exactly as in the file."
            },
            "new_string": {
              "type": "string",
              "description": "Replacement text."
            },
            "replace_all": {
              "type": "boolean",
              "description": "Replace every occurrence instead of requiring exactly one.",
              "default": false
            }
          },
          "required": [
            "file_path",
            "old_string",
            "new_string"
          ]
        }
        "#);
        let lines: Vec<_> =
            tools.iter().map(|t| format!("{} {}", t.name, signature(&t.parameters))).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        Bash {command: string, timeout?: integer, description?: string, run_in_background?: boolean, restart?: boolean}
        BashOutput {bash_id: string, filter?: string}
        KillBash {shell_id: string}
        Read {file_path: string, offset?: integer, limit?: integer}
        Write {file_path: string, content: string}
        Edit {file_path: string, old_string: string, new_string: string, replace_all?: boolean}
        MultiEdit {file_path: string, edits: [{old_string: string, new_string: string, replace_all?: boolean}]}
        Glob {pattern: string, path?: string}
        Grep {pattern: string, path?: string, glob?: string, output_mode?: "content" | "files_with_matches" | "count", -i?: boolean, -n?: boolean, -A?: integer, -B?: integer, -C?: integer, head_limit?: integer}
        TodoWrite {todos: [{content: string, status: "pending" | "in_progress" | "completed", activeForm?: string, id?: string, priority?: string}]}
        "#);
    }

    #[test]
    fn constructed_call_parses_as_its_own_type() {
        let call = Write::call("c1", "kernels/a.cu", "x");
        assert_eq!(parse::<Write>(&call).unwrap().file_path, "kernels/a.cu");
    }

    #[test]
    fn common_argument_mistakes_are_accepted() {
        let given = |arguments| ToolCall { id: "1".into(), name: BASH.into(), arguments };
        let text = given(json!(r#"{"command": "ls", "timeout": 5}"#));
        assert_eq!(parse::<Bash>(&text).unwrap().timeout, Some(5));
        let old_name = given(json!({ "command": "ls", "timeout_ms": 7, "description": null }));
        assert_eq!(parse::<Bash>(&old_name).unwrap().timeout, Some(7));
    }

    #[test]
    fn argument_error_names_the_field_and_the_schema() {
        let cases = [
            refused::<Bash>(BASH, json!({ "cmd": "ls" })),
            refused::<Read>(READ, json!([1])),
            refused::<Read>(READ, json!("kernels/a.cu")),
            refused::<Read>(READ, json!({ "file_path": "a", "limit": "ten" })),
            refused::<Write>(WRITE, json!({ "file_path": "a" })),
            refused::<MultiEdit>(
                MULTI_EDIT,
                json!({ "file_path": "a", "edits": [{ "old_string": 1 }] }),
            ),
        ];
        insta::assert_snapshot!(cases.join("\n"), @r#"
        failed to read the arguments of Bash: cmd: unknown field `cmd`, expected one of `command`, `timeout`, `timeout_ms`, `description`, `run_in_background`, `restart`; Bash takes {command: string, timeout?: integer, description?: string, run_in_background?: boolean, restart?: boolean}
        failed to read the arguments of Read: they are not an object; Read takes {file_path: string, offset?: integer, limit?: integer}
        failed to read the arguments of Read: they are a text that is not JSON: expected value at line 1 column 1; Read takes {file_path: string, offset?: integer, limit?: integer}
        failed to read the arguments of Read: limit: invalid type: string "ten", expected u64; Read takes {file_path: string, offset?: integer, limit?: integer}
        failed to read the arguments of Write: missing field `content`; Write takes {file_path: string, content: string}
        failed to read the arguments of MultiEdit: edits[0].old_string: invalid type: integer `1`, expected a string; MultiEdit takes {file_path: string, edits: [{old_string: string, new_string: string, replace_all?: boolean}]}
        "#);
    }

    #[test]
    fn unknown_tool_error_lists_tools_and_suggests_a_similar_one() {
        let said = |name: &str| match unknown_tool(name) {
            NoAnswer::Refused(text) => text,
            NoAnswer::Ours(error) => panic!("{error}"),
        };
        insta::assert_snapshot!(said("Browse"), @"failed to run the tool Browse: no tool has this name; the tools are Bash, BashOutput, KillBash, Read, Write, Edit, MultiEdit, Glob, Grep, TodoWrite");
        assert!(said("bash").contains("; the most similar is Bash;"));
        assert!(said("bash_output").contains("; the most similar is BashOutput;"));
        assert!(said("Raed").contains("; the most similar is Read;"));
        assert!(!said(&"x".repeat(1 << 20)).contains("the most similar"));
    }
}
