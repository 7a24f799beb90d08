//! Files of the repository that tests generate from the program's types.

use std::path::Path;

/// Fails if the file differs from this content. `UPDATE_REFERENCE=1` writes the file first.
pub(crate) fn check(path: &str, content: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs_err::write(&path, content).unwrap();
    }
    // A missing file is stale too.
    let found = fs_err::read_to_string(&path).unwrap_or_default();
    assert!(found == content, "{} is stale: run with UPDATE_REFERENCE=1", path.display());
}
