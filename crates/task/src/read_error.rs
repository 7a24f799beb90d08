//! Why a path cannot be read as tasks.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::MAX_SOURCE_BYTES;

/// A path that is not a task or a suite. The caller's error.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The path does not exist.
    #[error("failed to read a task from {path}: there is no such file or folder")]
    NotFound {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("failed to read a task: {source}")]
    Io {
        /// Names the path.
        source: io::Error,
    },
    /// A folder where one task was expected.
    #[error("failed to read a task from {path}: it is a folder, not one Python file")]
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// Neither Python nor a table.
    #[error("failed to read a task from {path}: it is not a .py, .jsonl or .parquet file")]
    UnknownKind {
        /// The file.
        path: PathBuf,
    },
    /// A source over the limit.
    #[error(
        "failed to read a task from {path}: its {bytes} bytes exceed the limit of {MAX_SOURCE_BYTES}"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Not text.
    #[error("failed to read a task from {path}: the byte at offset {offset} is not UTF-8")]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Where, from 0.
        offset: usize,
    },
    /// A folder or table without tasks.
    #[error("failed to read a suite from {path}: it contains no tasks")]
    Empty {
        /// The folder or table.
        path: PathBuf,
    },
    /// A folder's `suite.json` that is not one.
    #[error("failed to read a suite from {path}: {reason}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A definition of SOL-ExecBench or FlashInfer-Bench, or its workloads.
    #[error("failed to read a definition from {path}: {reason}")]
    Definition {
        /// The definition, or the file of its workloads.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        cure: &'static str,
    },
    /// A table without the column that holds the sources.
    #[error("failed to read a suite from {path}: it has no column `code`; its columns are {found}")]
    NoCode {
        /// The table.
        path: PathBuf,
        /// Its columns, formatted for the message.
        found: String,
    },
    /// One row of a table.
    #[error("failed to read a suite from {path}: row {row}: {reason}")]
    Row {
        /// The table.
        path: PathBuf,
        /// Row number, from 1; in JSONL the line number.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Not Parquet, damaged, or compressed in a way this program cannot read.
    #[error("failed to read a suite from {path}: {reason}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The Parquet reader's message.
        reason: String,
    },
}

impl ReadError {
    /// From a file-system error; `path` is what was asked for.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::NotFound { path: path.to_owned() };
        }
        Self::Io { source }
    }

    /// How the caller can fix it, if possible.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotFound { .. } => "check the path; tasks are .py, .jsonl or .parquet files, or folders of .py files".to_owned(),
            Self::Io { source } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the file must be readable by this user".to_owned()
            }
            Self::Io { .. } => return None,
            Self::Folder { path } => match example_in(path) {
                Some(file) => format!("name one file in it, for example {}", file.display()),
                None => "name one .py file".to_owned(),
            },
            Self::UnknownKind { .. } => {
                "rename a PyTorch module to .py, or a table with a `code` column to .jsonl or .parquet".to_owned()
            }
            Self::TooLarge { .. } => {
                "a task is one module's reference; leave weights and data out of the source".to_owned()
            }
            Self::NotUtf8 { .. } => "save the file as UTF-8".to_owned(),
            Self::Empty { .. } => {
                "a suite is a folder of .py files, a KernelBench checkout (level1, level2, ...), a table with a `code` column, or a folder with a definition.json in each folder; files whose names begin with `_` or `.` are ignored".to_owned()
            }
            Self::Manifest { .. } => {
                r#"suite.json looks like {"version": 1, "name": "mine", "mode": "eval"}; mode is eval or train"#.to_owned()
            }
            Self::Definition { cure, .. } => (*cure).to_owned(),
            Self::NoCode { .. } => "rename the column that holds the Python sources to `code`".to_owned(),
            Self::Row { .. } => {
                r#"a row looks like {"code": "import torch ...", "name": "relu", "ops": ["torch.relu"]}; only `code` is required"#.to_owned()
            }
            Self::Parquet { .. } => {
                "check that the file was downloaded in full (a Git LFS pointer is a small text file); snappy, zstd, gzip and no compression can be read".to_owned()
            }
        };
        Some(hint)
    }
}

/// The first Python file of `folder`, to make a hint concrete.
fn example_in(folder: &Path) -> Option<PathBuf> {
    let mut files: Vec<_> = fs_err::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "py"))
        .collect();
    files.sort();
    files.into_iter().next()
}
