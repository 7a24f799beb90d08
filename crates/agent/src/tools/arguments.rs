//! What each tool takes. The types are the schema that a language model is given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use warpwright_record::message::ToolCall;

/// Runs a command.
pub const BASH: &str = "Bash";
/// Reads a file.
pub const READ: &str = "Read";
/// Writes a whole file.
pub const WRITE: &str = "Write";
/// Replaces text in a file.
pub const EDIT: &str = "Edit";

/// Arguments of `Bash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bash {
    /// The command line, run by `bash -c` in the workspace.
    pub command: String,
    /// Milliseconds after which the command and everything it started are killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Arguments of `Read`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// File to read, relative to the workspace, e.g. `kernels/gelu.cu`.
    pub file_path: String,
    /// First line to show, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Most lines to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Arguments of `Write`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// File to write, relative to the workspace. Missing folders are made.
    pub file_path: String,
    /// The whole new contents.
    pub content: String,
}

/// Arguments of `Edit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// File to change, relative to the workspace.
    pub file_path: String,
    /// Text to replace, exactly as it stands in the file.
    pub old_string: String,
    /// Text to put in its place.
    pub new_string: String,
    /// Replace every occurrence instead of requiring exactly one.
    #[serde(default)]
    pub replace_all: bool,
}

/// A tool as a language model is told of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpecification {
    /// Name used in [`ToolCall::name`].
    pub name: &'static str,
    /// What it does and what it refuses.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

/// Every tool of this version, in a fixed order.
pub fn specifications() -> Vec<ToolSpecification> {
    vec![
        ToolSpecification {
            name: BASH,
            description: "Run a bash command in the workspace. Each call is a new shell; only files \
                under the workspace last. There is no network and no GPU here: building, \
                verification and profiling are requests to the judge (see SKILL.md). Output is \
                capped; the middle of a long one is left out.",
            parameters: parameters::<Bash>(),
        },
        ToolSpecification {
            name: READ,
            description: "Read a text file of the workspace with line numbers.",
            parameters: parameters::<Read>(),
        },
        ToolSpecification {
            name: WRITE,
            description: "Write a whole file of the workspace. An existing file must have been read \
                first. Read-only files are refused.",
            parameters: parameters::<Write>(),
        },
        ToolSpecification {
            name: EDIT,
            description: "Replace text in a file of the workspace that has been read. The old text \
                must occur exactly once unless replace_all is set.",
            parameters: parameters::<Edit>(),
        },
    ]
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

impl Bash {
    /// A call with this command and the default deadline.
    pub fn call(id: impl Into<String>, command: impl Into<String>) -> ToolCall {
        let command = command.into();
        call(id, BASH, json!({ "command": command }))
    }
}

impl Read {
    /// A call that reads a whole file.
    pub fn call(id: impl Into<String>, file_path: impl Into<String>) -> ToolCall {
        let file_path = file_path.into();
        call(id, READ, json!({ "file_path": file_path }))
    }
}

impl Write {
    /// A call that writes a whole file.
    pub fn call(
        id: impl Into<String>,
        file_path: impl Into<String>,
        content: impl Into<String>,
    ) -> ToolCall {
        let (file_path, content) = (file_path.into(), content.into());
        call(id, WRITE, json!({ "file_path": file_path, "content": content }))
    }
}

impl Edit {
    /// A call that replaces the only occurrence of `old_string`.
    pub fn call(
        id: impl Into<String>,
        file_path: impl Into<String>,
        old_string: impl Into<String>,
        new_string: impl Into<String>,
    ) -> ToolCall {
        let (file_path, old, new) = (file_path.into(), old_string.into(), new_string.into());
        call(id, EDIT, json!({ "file_path": file_path, "old_string": old, "new_string": new }))
    }
}

fn call(id: impl Into<String>, name: &str, arguments: Value) -> ToolCall {
    ToolCall { id: id.into(), name: name.to_owned(), arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_a_tool_is_what_a_model_is_given() {
        let edit = &specifications()[3];
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
              "description": "Text to replace, exactly as it stands in the file."
            },
            "new_string": {
              "type": "string",
              "description": "Text to put in its place."
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
    }

    #[test]
    fn a_constructed_call_fits_its_own_type() {
        let call = Write::call("c1", "kernels/a.cu", "x");
        let parsed: Write = serde_json::from_value(call.arguments).unwrap();
        assert_eq!(parsed.file_path, "kernels/a.cu");
        let unknown = serde_json::from_value::<Bash>(json!({ "command": "ls", "cmd": "ls" }));
        assert!(unknown.unwrap_err().to_string().contains("unknown field `cmd`"));
    }
}
