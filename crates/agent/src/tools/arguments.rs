//! Arguments of each tool. The types define the schema that a language model sees.
//!
//! Names of tools and arguments are those that language models know from coding agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use warpwright_record::message::ToolCall;

/// Runs a command in the episode's shell.
pub const BASH: &str = "Bash";
/// Shows the output of a background command.
pub const BASH_OUTPUT: &str = "BashOutput";
/// Ends a background command.
pub const KILL_BASH: &str = "KillBash";
/// Reads a file.
pub const READ: &str = "Read";
/// Writes a whole file.
pub const WRITE: &str = "Write";
/// Replaces text in a file.
pub const EDIT: &str = "Edit";
/// Replaces several texts in a file, all or none.
pub const MULTI_EDIT: &str = "MultiEdit";
/// Finds files by name.
pub const GLOB: &str = "Glob";
/// Finds text in files.
pub const GREP: &str = "Grep";
/// Keeps the to-do list.
pub const TODO_WRITE: &str = "TodoWrite";

/// Arguments of `Bash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bash {
    /// The command line, run by the episode's bash.
    pub command: String,
    /// Milliseconds after which the command is ended.
    #[serde(default, alias = "timeout_ms", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// What the command is for, in a few words; for readers of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Return at once and keep the command running; BashOutput shows its output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_in_background: bool,
    /// First end the shell and all its processes, and start a new one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

/// Arguments of `BashOutput`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BashOutput {
    /// The background command, e.g. `bash_1`.
    pub bash_id: String,
    /// Regular expression: only matching lines are shown; the others are discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// Arguments of `KillBash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillBash {
    /// The background command, e.g. `bash_1`.
    pub shell_id: String,
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
    /// Maximum number of lines to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Arguments of `Write`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Write {
    /// File to write, relative to the workspace. Missing folders are created.
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
    /// Text to replace, exactly as in the file.
    pub old_string: String,
    /// Replacement text.
    pub new_string: String,
    /// Replace every occurrence instead of requiring exactly one.
    #[serde(default)]
    pub replace_all: bool,
}

/// One replacement of `MultiEdit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// Text to replace, exactly as it is after the previous replacements.
    pub old_string: String,
    /// Replacement text.
    pub new_string: String,
    /// Replace every occurrence instead of requiring exactly one.
    #[serde(default)]
    pub replace_all: bool,
}

/// Arguments of `MultiEdit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiEdit {
    /// File to change, relative to the workspace.
    pub file_path: String,
    /// Replacements, applied in this order.
    pub edits: Vec<Replacement>,
}

/// Arguments of `Glob`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Glob {
    /// Pattern for paths below `path`, e.g. `**/*.cu`.
    pub pattern: String,
    /// Folder to search, relative to the workspace; default: the whole workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Output of `Grep`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// Matching lines.
    Content,
    /// Paths of files with a matching line.
    #[default]
    FilesWithMatches,
    /// Number of matching lines per file.
    Count,
}

/// Arguments of `Grep`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    /// Regular expression, matched line by line.
    pub pattern: String,
    /// File or folder to search, relative to the workspace; default: the whole workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only files whose path or name matches this pattern, e.g. `*.cu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// Output mode; default: `files_with_matches`.
    #[serde(default)]
    pub output_mode: OutputMode,
    /// Ignore case.
    #[serde(default, rename = "-i", skip_serializing_if = "std::ops::Not::not")]
    pub ignore_case: bool,
    /// Show line numbers; with `content` only.
    #[serde(default, rename = "-n", skip_serializing_if = "std::ops::Not::not")]
    pub line_numbers: bool,
    /// Lines to show after each match; with `content` only.
    #[serde(default, rename = "-A", skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// Lines to show before each match; with `content` only.
    #[serde(default, rename = "-B", skip_serializing_if = "Option::is_none")]
    pub before: Option<u32>,
    /// Lines to show before and after each match; with `content` only.
    #[serde(default, rename = "-C", skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// Maximum number of lines or entries to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_limit: Option<u32>,
}

/// Status of a to-do entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not started.
    #[default]
    Pending,
    /// In progress; at most one entry is.
    InProgress,
    /// Done.
    Completed,
}

/// An entry of the to-do list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    /// The work to do.
    pub content: String,
    /// Its status.
    pub status: TodoStatus,
    /// Description while in progress, e.g. `Fusing the epilogue`.
    #[serde(default, rename = "activeForm", skip_serializing_if = "Option::is_none")]
    pub active_form: Option<String>,
    /// Accepted from policies that number their entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Accepted from policies that rank their entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}

/// Arguments of `TodoWrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TodoWrite {
    /// The whole list; it replaces the previous one.
    pub todos: Vec<Todo>,
}

impl Bash {
    /// A call with this command and the default timeout.
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
