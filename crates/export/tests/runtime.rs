//! The Python of packages, run without the judge: a function of torch stands in for each launch.

#![expect(clippy::disallowed_types, reason = "a test starts Python")]

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn calls_of_packages_match_their_references() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| here.join("../../.venv/bin/python"));
    let ran = Command::new(python)
        .arg("-B")
        .arg(here.join("tests/runtime_calls.py"))
        .args([here.join("runtime"), here.join("../task/src/cast.py")])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
