//! Every environment variable that the program reads. `docs/reference/cli.md` lists them.

/// Python interpreter with torch, for the judge's processes. `--python` wins over it.
pub const PYTHON: &str = "WARPWRIGHT_PYTHON";
/// Folder for compiled artifacts and other data that can be rebuilt.
pub const CACHE: &str = "WARPWRIGHT_CACHE";
/// The program that runs the model; by default the one in this program's folder.
pub const ENGINE: &str = "WARPWRIGHT_ENGINE";
/// Any non-empty value turns off colours in the terminal.
pub const NO_COLOR: &str = "NO_COLOR";
/// Base of the default cache folder (freedesktop's convention).
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Home folder, for the default cache folder.
pub const HOME: &str = "HOME";
/// Folders that are searched for programs.
pub const PATH: &str = "PATH";

/// API key of `openai:` and `responses:` policies, unless `--key-env` names another variable.
pub const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
/// Base URL of `openai:` and `responses:` policies. `--base-url` wins over it.
pub const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
/// API key of `anthropic:` policies, unless `--key-env` names another variable.
pub const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// Base URL of `anthropic:` policies. `--base-url` wins over it.
pub const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";

/// Token for the server of `judge --server`. `--token` wins over it.
pub const SERVER_TOKEN: &str = "WARPWRIGHT_SERVER_TOKEN";

/// A variable that is set and not empty.
pub fn get(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
