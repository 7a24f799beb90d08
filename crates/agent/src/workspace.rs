//! The folder in which an agent works on one task.
//!
//! `SKILL.md`, `model.py`, the two binding files and `utils/` are written once and read-only for
//! the agent; `model_new.py`, `kernels/` and all other files are its own. Nothing here is trusted
//! afterwards: the judge gets a snapshot of `model_new.py` and `kernels/`, and the scripts in
//! `utils/` only send a request to the judge and print its answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;
use thiserror::Error;
use warpwright_record::candidate::{Candidate, MAX_FILE_BYTES, MAX_FILES};

use crate::confined_fs::{ConfinedDir, FileError, Snapshot, SnapshotLimits};

/// The workspace's path inside a jail with mounts.
pub const JAILED_PATH: &str = "/workspace";

/// Files and folders that the agent cannot change.
pub const READ_ONLY: [&str; 5] =
    ["SKILL.md", "binding.cpp", "binding_registry.h", "model.py", "utils"];

/// Limits of a snapshot of the whole workspace; other files are listed as skipped.
const SNAPSHOT_LIMITS: SnapshotLimits =
    SnapshotLimits { files: 512, file_bytes: MAX_FILE_BYTES, total_bytes: 32 << 20 };
/// Limits of a candidate.
const CANDIDATE_LIMITS: SnapshotLimits =
    SnapshotLimits { files: MAX_FILES, file_bytes: MAX_FILE_BYTES, total_bytes: 32 << 20 };

/// The scripts of `utils/`, embedded: the program is one file.
pub(crate) const UTILS: [(&str, &str); 11] = [
    ("utils/__init__.py", include_str!("../template/utils/__init__.py")),
    ("utils/compile.py", include_str!("../template/utils/compile.py")),
    ("utils/compile.sh", include_str!("../template/utils/compile.sh")),
    ("utils/graph_export.py", include_str!("../template/utils/graph_export.py")),
    ("utils/graph_json.py", include_str!("../template/utils/graph_json.py")),
    ("utils/judge_client.py", include_str!("../template/utils/judge_client.py")),
    ("utils/profiling.py", include_str!("../template/utils/profiling.py")),
    ("utils/trace.py", include_str!("../template/utils/trace.py")),
    ("utils/trace_setup.py", include_str!("../template/utils/trace_setup.py")),
    ("utils/trace_workloads.py", include_str!("../template/utils/trace_workloads.py")),
    ("utils/verification.py", include_str!("../template/utils/verification.py")),
];

/// The files of a new workspace that depend on the task and the device.
#[derive(Clone, Debug)]
pub struct Contents {
    /// `SKILL.md`, rendered for the device.
    pub skill: String,
    /// `model.py`: the task's source.
    pub reference: String,
    /// `binding.cpp`, from the builder.
    pub binding: String,
    /// `binding_registry.h`, from the builder.
    pub binding_registry: String,
}

/// A workspace on disk.
#[derive(Debug)]
pub struct Workspace {
    files: ConfinedDir,
}

/// Why a workspace could not be created, read or restored: an infrastructure error.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The folder could not be created.
    #[error("failed to create the workspace {path}: {source}")]
    Make {
        /// The workspace.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file in it could not be used.
    #[error("failed to access the workspace {path}: {source}")]
    File {
        /// The workspace.
        path: PathBuf,
        /// The file and the reason.
        source: FileError,
    },
}

/// Why there is no candidate to judge: the policy's error.
#[derive(Debug, Error)]
pub enum NoCandidate {
    /// `model_new.py` is missing.
    #[error("failed to take the candidate: there is no model_new.py in the workspace")]
    NoModel,
    /// Some file is not a regular file or is too large, or there are too many.
    #[error(
        "failed to take the candidate: {0}: links, pipes, files over {size} MiB and more than {MAX_FILES} files are refused",
        size = MAX_FILE_BYTES >> 20
    )]
    Unacceptable(String),
    /// The file system failed.
    #[error("failed to take the candidate: {0}")]
    File(#[from] FileError),
}

impl Workspace {
    /// Creates a workspace at `path`. Existing files stay.
    pub fn create(path: &Path, contents: &Contents) -> Result<Self, WorkspaceError> {
        let make = |source| WorkspaceError::Make { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(make)?;
        let workspace = Self::open(path)?;
        let texts = [
            ("SKILL.md", contents.skill.as_str()),
            ("model.py", contents.reference.as_str()),
            ("binding.cpp", contents.binding.as_str()),
            ("binding_registry.h", contents.binding_registry.as_str()),
        ];
        for (name, text) in texts.into_iter().chain(UTILS) {
            workspace.files.write(name, text.as_bytes()).map_err(|source| failed(path, source))?;
        }
        workspace.files.make_folder("kernels").map_err(|source| failed(path, source))?;
        Ok(workspace)
    }

    /// Opens an existing workspace.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let files = ConfinedDir::open(path).map_err(|source| failed(path, source))?;
        Ok(Self { files })
    }

    /// Its path on the host.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// Its files.
    pub fn files(&self) -> &ConfinedDir {
        &self.files
    }

    /// Whether the agent may not change this path.
    pub fn is_read_only(relative: &str) -> bool {
        let first = relative.split('/').next().unwrap_or(relative);
        READ_ONLY.contains(&first)
    }

    /// The candidate: the model and kernel files as they are now. Safe while a shell is running.
    pub fn candidate(&self) -> Result<Candidate, NoCandidate> {
        let counts = |path: &str| {
            path == "model_new.py" || path == "kernels" || path.starts_with("kernels/")
        };
        let taken = self.files.snapshot(CANDIDATE_LIMITS, &counts)?;
        if !taken.left_out.is_empty() {
            return Err(NoCandidate::Unacceptable(taken.left_out.join(", ")));
        }
        if !taken.files.contains_key("model_new.py") {
            return Err(NoCandidate::NoModel);
        }
        Ok(Candidate::from_files(taken.files))
    }

    /// All of the agent's own files, for the record.
    pub fn snapshot(&self) -> Result<Snapshot, WorkspaceError> {
        let own = |path: &str| {
            !Self::is_read_only(path) && !path.split('/').any(|part| part == "__pycache__")
        };
        let taken = self.files.snapshot(SNAPSHOT_LIMITS, &own);
        taken.map_err(|source| failed(self.path(), source))
    }

    /// Restores the agent's own files to a snapshot: writes its files, removes all others.
    pub fn restore(&self, files: &BTreeMap<String, Vec<u8>>) -> Result<(), WorkspaceError> {
        let failed = |source| failed(self.path(), source);
        let now = self.snapshot()?;
        for path in now.files.keys().chain(&now.left_out) {
            if !files.contains_key(path) {
                // A folder that is in the way stays: it holds nothing that is judged.
                if let Err(e) = self.files.remove(path)
                    && e.is_ours()
                {
                    return Err(failed(e));
                }
            }
        }
        for (path, bytes) in files {
            if now.files.get(path) != Some(bytes) {
                self.files.write(path, bytes).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, source: FileError) -> WorkspaceError {
    WorkspaceError::File { path: path.to_owned(), source }
}

#[cfg(test)]
pub(crate) fn for_tests(path: &Path) -> Workspace {
    let contents = Contents {
        skill: "skill".to_owned(),
        reference: "class Model: ...\n".to_owned(),
        binding: "// binding\n".to_owned(),
        binding_registry: "// registry\n".to_owned(),
    };
    Workspace::create(path, &contents).unwrap()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn candidate_has_only_the_model_and_kernel_files() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = for_tests(folder.path());
        assert!(matches!(workspace.candidate(), Err(NoCandidate::NoModel)));
        workspace.files().write("model_new.py", b"new").unwrap();
        workspace.files().write("kernels/a.cu", b"kernel").unwrap();
        workspace.files().write("notes.txt", b"note").unwrap();
        let candidate = workspace.candidate().unwrap();
        let names: Vec<_> = candidate.files().keys().collect();
        assert_eq!(names, ["kernels/a.cu", "model_new.py"]);
        assert_eq!(candidate.hash(), Candidate::read(folder.path()).unwrap().hash());
    }

    #[test]
    fn symlinked_kernels_folder_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("elsewhere")).unwrap();
        fs::write(outer.path().join("elsewhere/secret.cu"), "secret").unwrap();
        let workspace = for_tests(&outer.path().join("w"));
        workspace.files().write("model_new.py", b"new").unwrap();
        fs::remove_dir(outer.path().join("w/kernels")).unwrap();
        symlink("../elsewhere", outer.path().join("w/kernels")).unwrap();
        let through_link = fs::read(outer.path().join("w/kernels/secret.cu")).unwrap();
        assert_eq!(through_link, b"secret", "positive control");
        let refused = workspace.candidate().unwrap_err();
        assert!(refused.to_string().contains("kernels"), "{refused}");
    }

    #[test]
    fn restore_brings_back_old_files_and_removes_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = for_tests(folder.path());
        workspace.files().write("model_new.py", b"one").unwrap();
        let before = workspace.snapshot().unwrap();
        workspace.files().write("model_new.py", b"two").unwrap();
        workspace.files().write("kernels/new.cu", b"new").unwrap();
        symlink("/etc", folder.path().join("link")).unwrap();
        workspace.restore(&before.files).unwrap();
        assert_eq!(workspace.snapshot().unwrap().files, before.files);
        assert!(workspace.files().exists("utils/verification.py"), "read-only files stay");
    }
}
