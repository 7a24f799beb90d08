//! Every environment variable the program reads. Listed in `docs/reference/cli.md`.

/// Python interpreter with torch, for the judge's processes. `--python` wins over it.
pub(crate) const PYTHON: &str = "WARPWRIGHT_PYTHON";
/// Folder for compiled artifacts and other things that can be made again.
pub(crate) const CACHE: &str = "WARPWRIGHT_CACHE";
/// The program that computes with a model's weights; without, the one beside this program.
pub(crate) const ENGINE: &str = "WARPWRIGHT_ENGINE";
/// Any value but an empty one: no colours in what is shown on a terminal.
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// Base of the default cache folder (freedesktop's convention).
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Home folder, for the default cache folder.
pub(crate) const HOME: &str = "HOME";
/// Where programs are looked for.
pub(crate) const PATH: &str = "PATH";

/// API key of `openai:` and `responses:` policies, unless `--key-env` names another variable.
pub(crate) const OPENAI_API_KEY: &str = "OPENAI_API_KEY";
/// Base URL of `openai:` and `responses:` policies. `--base-url` wins over it.
pub(crate) const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";
/// API key of `anthropic:` policies, unless `--key-env` names another variable.
pub(crate) const ANTHROPIC_API_KEY: &str = "ANTHROPIC_API_KEY";
/// Base URL of `anthropic:` policies. `--base-url` wins over it.
pub(crate) const ANTHROPIC_BASE_URL: &str = "ANTHROPIC_BASE_URL";

/// Token of the server that `judge --server` asks. `--token` wins over it.
pub(crate) const SERVER_TOKEN: &str = "WARPWRIGHT_SERVER_TOKEN";

/// A variable that is set and not empty.
pub(crate) fn get(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
