//! Content-addressed files: sources, outputs, artifacts. A blob is named by the BLAKE3 hash of its
//! bytes, lies at `blobs/ab/cdef...`, is written to a temporary name and renamed, and is checked
//! against its name whenever it is read.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// BLAKE3 of a blob's bytes; 64 lowercase hexadecimal digits in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobHash([u8; 32]);

impl BlobHash {
    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The hash of a file's bytes. The file may be larger than memory.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(path)?)?;
        Ok(Self(*hasher.finalize().as_bytes()))
    }

    /// Where the blob lies beneath a run folder.
    pub fn path(&self, run: &Path) -> PathBuf {
        let hex = self.to_string();
        run.join("blobs").join(&hex[..2]).join(&hex[2..])
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobHash({self})")
    }
}

impl FromStr for BlobHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.bytes().any(|b| b.is_ascii_uppercase());
        match blake3::Hash::from_hex(text) {
            Ok(hash) if !upper => Ok(Self(*hash.as_bytes())),
            _ => Err(format!("`{text}` is not a blob hash: 64 lowercase hexadecimal digits")),
        }
    }
}

impl Serialize for BlobHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for BlobHash {
    fn schema_name() -> Cow<'static, str> {
        "BlobHash".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "BLAKE3 of a blob's bytes.",
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
        })
    }
}

/// Writes `bytes` beneath `run` unless they are there already.
pub(crate) fn put(run: &Path, bytes: &[u8]) -> io::Result<BlobHash> {
    // Two threads may store the same bytes at once; each needs a temporary name of its own.
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let hash = BlobHash::of(bytes);
    let path = hash.path(run);
    // Compared, not trusted: storing a blob again mends one that was damaged.
    if fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(hash);
    }
    let folder = run.join("blobs").join(&hash.to_string()[..2]);
    fs::create_dir_all(&folder)?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = written {
        // Leave no half blob behind, above all when the disk is full.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(hash)
}
