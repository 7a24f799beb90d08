//! Tensors that a workload takes from a safetensors file.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use serde::Deserialize;

use super::schema::Ordered;
use super::wrong::Wrong;

/// Largest header of a safetensors file that is read.
const LARGEST_HEADER: u64 = 1 << 20;
/// Largest tensor: it becomes a part of the task's source.
const LARGEST_TENSOR: u64 = 64 << 10;

const CURE: &str = "safetensors files are sought by their relative path in the folder of the definition and in the opened folder, also from the path's part `blob` on";

/// A tensor's bytes, little-endian.
pub(super) struct Stored {
    pub(super) bytes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The names of a header: tensors, and `__metadata__`, which may be anything.
#[derive(Deserialize)]
struct Header(Ordered<serde_json::Value>);

/// Reads the tensor `key` of the file `path`, relative to one of `roots`. It must have this dtype
/// (safetensors' name) and shape.
pub(super) fn read(
    roots: &[&Path],
    path: &str,
    key: &str,
    dtype: (&str, u64),
    shape: &[u64],
) -> Result<Stored, Wrong> {
    let said = super::one_line(path, 160);
    let wrong = |what: &str| Wrong::new(format!("{said} {what}"), CURE);
    let file = found(roots, path)?;
    let mut file =
        fs::File::open(file).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let length = file.metadata().map_err(|error| wrong(&error.to_string()))?.len();
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(|_| wrong("is no safetensors file"))?;
    let size = u64::from_le_bytes(size);
    if size > LARGEST_HEADER || size > length.saturating_sub(8) {
        return Err(wrong("is no safetensors file, or a Git LFS pointer"));
    }
    let mut header = vec![0; usize::try_from(size).unwrap_or_default()];
    file.read_exact(&mut header).map_err(|_| wrong("is shorter than it says"))?;
    let Header(header) = serde_json::from_slice(&header)
        .map_err(|error| wrong(&format!("has a damaged header: {error}")))?;
    let key_said = super::one_line(key, 80);
    let entry = header.get(key).ok_or_else(|| wrong(&format!("has no tensor `{key_said}`")))?;
    let entry: Entry = serde_json::from_value(entry.clone())
        .map_err(|error| wrong(&format!("has a damaged entry `{key_said}`: {error}")))?;
    if entry.dtype != dtype.0 || entry.shape != shape {
        let (is, held) = (super::one_line(&entry.dtype, 20), entry.shape);
        let held = held.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let wanted = dtype.0;
        return Err(wrong(&format!(
            "holds `{key_said}` as {is} [{held}], and the definition says {wanted} {shape:?}"
        )));
    }
    let bytes = shape.iter().try_fold(dtype.1, |bytes, n| bytes.checked_mul(*n));
    let (begin, end) = entry.data_offsets;
    let data = size.saturating_add(8);
    let inside =
        end.checked_sub(begin) == bytes && data.checked_add(end).is_some_and(|e| e <= length);
    let Some(bytes) = bytes.filter(|_| inside) else {
        return Err(wrong(&format!("has a damaged entry `{key_said}`")));
    };
    if bytes > LARGEST_TENSOR {
        return Err(wrong(&format!(
            "holds {bytes} bytes as `{key_said}`, more than the {LARGEST_TENSOR} that a task's source can hold"
        )));
    }
    file.seek(SeekFrom::Start(data.saturating_add(begin)))
        .map_err(|error| wrong(&error.to_string()))?;
    let mut read = vec![0; usize::try_from(bytes).unwrap_or_default()];
    file.read_exact(&mut read).map_err(|_| wrong("is shorter than it says"))?;
    Ok(Stored { bytes: read })
}

/// The file below one of `roots`. Other places are not looked at, whatever the path says.
fn found(roots: &[&Path], path: &str) -> Result<PathBuf, Wrong> {
    let relative = Path::new(path);
    let said = super::one_line(path, 160);
    if path.is_empty() || relative.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Wrong::new(format!("{said} is not a relative path without `..`"), CURE));
    }
    let from_blob: PathBuf =
        relative.components().skip_while(|part| part.as_os_str() != "blob").collect();
    for root in roots {
        for candidate in [relative, &from_blob] {
            let file = root.join(candidate);
            if candidate.as_os_str().is_empty() || !file.is_file() {
                continue;
            }
            let inside = matches!(
                (fs::canonicalize(&file), fs::canonicalize(root)),
                (Ok(file), Ok(root)) if file.starts_with(&root)
            );
            if !inside {
                return Err(Wrong::new(format!("{said} leads out of its folder"), CURE));
            }
            return Ok(file);
        }
    }
    Err(Wrong::new(format!("{said} is not there"), CURE))
}
