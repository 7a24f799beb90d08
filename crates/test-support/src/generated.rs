//! Files of the repository that tests generate from the program's types.

use std::path::Path;

/// Fails if the file, named relative to the repository, differs from this content. `UPDATE_REFERENCE=1`
/// writes the file first.
///
/// # Panics
/// If the file differs, or cannot be written.
#[expect(clippy::expect_used, reason = "a test calls it")]
pub fn check(path: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs_err::write(&path, content).expect("the file can be written");
    }
    // A missing file is stale too.
    let found = fs_err::read_to_string(&path).unwrap_or_default();
    assert!(found == content, "{} is stale: run with UPDATE_REFERENCE=1", path.display());
}
