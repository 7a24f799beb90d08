//! The key that a misspelt key probably stands for.

use super::Key;

/// Similarity (Jaro-Winkler) below which no key is suggested.
const MIN_SIMILARITY: f64 = 0.82;

/// The key with the most similar name; none if no name is similar. `table` is the table of the unknown key.
pub(super) fn nearest<'a>(table: &str, name: &str, keys: &'a [Key]) -> Option<&'a Key> {
    let similarity = |key: &Key| {
        let (of, own) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        let near = strsim::jaro_winkler(own, name);
        // A key of the same table is meant more often.
        if of == table { near } else { near - 0.1 }
    };
    let nearest = keys.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    nearest.filter(|key| similarity(key) > MIN_SIMILARITY)
}
