//! A candidate: the content-hashed snapshot of the files that count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use thiserror::Error;

/// Largest file a candidate may contain, in bytes.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Largest number of files a candidate may contain. A network of two hundred layers, or a loop unrolled
/// over as many steps, with a kernel in each file has several hundred.
pub const MAX_FILES: usize = 1024;
/// The file with the model.
const MODEL: &str = "model_new.py";
/// Path components under `kernels/`, at most.
const DEEPEST: usize = 5;

/// The files of one candidate by workspace-relative path, e.g. `model_new.py`, `kernels/gelu.cu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    files: BTreeMap<String, Vec<u8>>,
    hash: String,
}

/// Why a folder or file is not a candidate. The caller's error, except where noted.
#[derive(Debug, Error)]
pub enum CandidateError {
    /// Neither a folder with `model_new.py` nor a Python file.
    #[error("failed to read a candidate from {path}: the folder has no model_new.py")]
    NoModel {
        /// The folder looked at.
        path: PathBuf,
    },
    /// Something in the folder is not a plain file, or too large, or too many.
    #[error("failed to read a candidate from {path}: {reason}")]
    Unacceptable {
        /// The entry refused.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file system refused.
    #[error("failed to read a candidate: {0}")]
    Io(#[from] std::io::Error),
}

impl Candidate {
    /// From files in memory. Keys are relative paths with `/`.
    pub fn from_files(files: BTreeMap<String, Vec<u8>>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for (name, bytes) in &files {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        let hash = hasher.finalize().to_hex().to_string();
        Self { files, hash }
    }

    /// From untrusted files in memory: `model_new.py`, and files under `kernels/` with plain relative names.
    ///
    /// # Errors
    ///
    /// If `model_new.py` is missing, a name is not plain, or a limit is exceeded.
    pub fn from_stranger(files: BTreeMap<String, Vec<u8>>) -> Result<Self, CandidateError> {
        let refused = |path: &str, reason: String| {
            // Names are hostile too, and may be long.
            let path = path.chars().take(100).collect::<String>().escape_debug().to_string();
            CandidateError::Unacceptable { path: path.into(), reason }
        };
        if !files.contains_key(MODEL) {
            return Err(refused(MODEL, "the file is missing".to_owned()));
        }
        if files.len() > MAX_FILES {
            return Err(refused(MODEL, format!("the candidate has more than {MAX_FILES} files")));
        }
        for (name, bytes) in &files {
            if bytes.len() as u64 > MAX_FILE_BYTES {
                return Err(refused(
                    name,
                    format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20),
                ));
            }
            let beneath = name.strip_prefix("kernels/");
            let is_plain = |part: &str| {
                let first = part.chars().next();
                let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                first.is_some_and(|c| c != '.') && part.chars().all(known) && part.len() <= 120
            };
            let parts = beneath.map(|path| path.split('/').collect::<Vec<_>>());
            if name != MODEL
                && !parts.is_some_and(|p| p.len() <= DEEPEST && p.iter().all(|p| is_plain(p)))
            {
                let reason = "it is neither model_new.py nor a plain name in kernels/".to_owned();
                return Err(refused(name, reason));
            }
        }
        // A file cannot be a folder as well.
        for name in files.keys() {
            let mut above = name.as_str();
            while let Some((folder, _)) = above.rsplit_once('/') {
                if files.contains_key(folder) {
                    return Err(refused(name, format!("{folder} is a file")));
                }
                above = folder;
            }
        }
        Ok(Self::from_files(files))
    }

    /// From a workspace folder (`model_new.py` and `kernels/`; nothing else counts), or from one
    /// Python file in KernelBench's single-file form. Symbolic links are refused: a link could name
    /// a file that the workspace's owner cannot read, or change between check and use.
    pub fn read(path: &Path) -> Result<Self, CandidateError> {
        let mut files = BTreeMap::new();
        if fs::symlink_metadata(path)?.is_file() {
            files.insert("model_new.py".to_owned(), read_plain(path)?);
            return Ok(Self::from_files(files));
        }
        let model = path.join("model_new.py");
        if fs::symlink_metadata(&model).is_err() {
            return Err(CandidateError::NoModel { path: path.to_owned() });
        }
        files.insert("model_new.py".to_owned(), read_plain(&model)?);
        let kernels = path.join("kernels");
        if fs::symlink_metadata(&kernels).is_ok_and(|m| m.is_dir()) {
            collect(&kernels, "kernels", &mut files)?;
        }
        Ok(Self::from_files(files))
    }

    /// BLAKE3 of names and contents, hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Contents by relative path, sorted.
    pub fn files(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.files
    }
}

fn collect(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), CandidateError> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            let reason = "its name is not UTF-8".to_owned();
            return Err(CandidateError::Unacceptable { path, reason });
        };
        let name = format!("{prefix}/{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if name.matches('/').count() > 4 {
                let reason = "the folder is nested more than four levels deep".to_owned();
                return Err(CandidateError::Unacceptable { path, reason });
            }
            collect(&path, &name, files)?;
        } else {
            files.insert(name, read_plain(&path)?);
        }
        if files.len() > MAX_FILES {
            let reason = format!("the folder has more than {MAX_FILES} files");
            return Err(CandidateError::Unacceptable { path: folder.to_owned(), reason });
        }
    }
    Ok(())
}

/// Reads a regular file through a descriptor opened without following links, so that what was
/// checked is what is read.
fn read_plain(path: &Path) -> Result<Vec<u8>, CandidateError> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    const O_NOFOLLOW: i32 = 0o400_000;
    const O_NONBLOCK: i32 = 0o4_000;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let refuse = |reason: String| CandidateError::Unacceptable { path: path.to_owned(), reason };
    let file = options.open(path).map_err(|e| match e.raw_os_error() {
        Some(40) => refuse("it is a symbolic link".to_owned()),
        _ => CandidateError::Io(std::io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
    })?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(refuse("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(refuse(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}
