//! Collects source code from the machine: Python, C++ and CUDA files of installed packages.

use std::path::{Path, PathBuf};

use fs_err as fs;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::Serialize;
use warpwright_record::blob::BlobHash;
use warpwright_rollout::judge_host::JudgeHost;
use warpwright_rollout::python;

use crate::config::Pretraining;
use crate::error::TrainError;

/// Extensions of the files that are read.
const KINDS: [&str; 9] = ["py", "h", "hpp", "hh", "cuh", "cu", "c", "cc", "cpp"];
/// Larger files are data tables.
const MOST_BYTES: u64 = 256 << 10;

/// The folders that `site-packages/` and `cuda/` stand for.
pub(crate) struct Places {
    pub(crate) site_packages: Option<PathBuf>,
    pub(crate) cuda: Option<PathBuf>,
}

/// The collected files.
#[derive(Debug, Serialize)]
pub(crate) struct Sources {
    pub(crate) files: usize,
    pub(crate) bytes: usize,
    /// Hash of all texts, concatenated.
    pub(crate) hash: BlobHash,
    #[serde(skip)]
    pub(crate) texts: Vec<String>,
}

impl Sources {
    /// Reads the source code of stage pretrain; `None` if it has none. `base` is the configuration's
    /// folder.
    pub(crate) fn of(
        pretrain: &Pretraining,
        places: &Places,
        base: &Path,
        seed: u64,
    ) -> Result<Option<Self>, TrainError> {
        if pretrain.sources.is_empty() {
            return Ok(None);
        }
        let most_bytes = (pretrain.max_source_mib * f64::from(1 << 20)) as usize;
        Self::read(&pretrain.sources, places, base, most_bytes, seed).map(Some)
    }

    /// Reads files below the folders, in an order shuffled by the seed, until the limit in bytes is
    /// reached.
    fn read(
        named: &[PathBuf],
        places: &Places,
        base: &Path,
        most_bytes: usize,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let mut files = Vec::new();
        for name in named {
            let folder = places.find(name, base)?;
            let before = files.len();
            walk(&folder, &mut files).map_err(|error| unreadable(name, &error.to_string()))?;
            if files.len() == before {
                return Err(unreadable(name, "it has no Python, C++ or CUDA files"));
            }
        }
        files.sort();
        files.dedup();
        files.shuffle(&mut StdRng::seed_from_u64(seed));
        let (mut bytes, mut texts) = (0, Vec::new());
        for file in files {
            if bytes >= most_bytes {
                break;
            }
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                // A file that is not UTF-8 is not source code.
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => continue,
                Err(error) => return Err(TrainError::io("read source code", error)),
            };
            bytes += text.len();
            texts.push(text);
        }
        let hash = BlobHash::of(texts.concat().as_bytes());
        Ok(Self { files: texts.len(), bytes, hash, texts })
    }
}

impl Places {
    /// The folders of the device's interpreter and toolkit.
    pub(crate) fn of(host: &JudgeHost) -> Self {
        Self {
            site_packages: python::look_at(&host.python, "").site_packages,
            cuda: host.judge.toolchain().nvcc.as_ref().map(|cuda| cuda.root.clone()),
        }
    }

    fn find(&self, name: &Path, base: &Path) -> Result<PathBuf, TrainError> {
        let within = |prefix: &str, place: &Option<PathBuf>| {
            let rest = name.strip_prefix(prefix).ok()?;
            Some(place.as_ref().map(|place| place.join(rest)))
        };
        let found = within("site-packages", &self.site_packages)
            .or_else(|| within("cuda", &self.cuda))
            .unwrap_or_else(|| Some(base.join(name)));
        let folder = found.ok_or_else(|| unreadable(name, "this machine has no such folder"))?;
        if !folder.is_dir() {
            return Err(unreadable(name, &format!("{} is not a folder", folder.display())));
        }
        Ok(folder)
    }
}

fn unreadable(name: &Path, why: &str) -> TrainError {
    let message = format!("failed to read the source code of {}: {why}", name.display());
    let hint =
        "pretrain.sources must be folders, e.g. \"site-packages/torch/include\", \"cuda/include\"";
    TrainError::usage(message, hint.to_owned())
}

/// Links are not followed: their targets may be elsewhere, or cycles.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            walk(&path, files)?;
        } else if kind.is_file()
            && path.extension().and_then(|e| e.to_str()).is_some_and(|e| KINDS.contains(&e))
            && entry.metadata()?.len() <= MOST_BYTES
        {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_are_seed_ordered_and_size_limited() {
        let base = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let folder = base.path().join(format!("packages/p{number}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("a.py"), format!("a = {number:04}\n")).unwrap();
            fs::write(folder.join("b.bin"), "no source code").unwrap();
        }
        fs::write(base.path().join("packages/broken.py"), [0xff, 0xfe]).unwrap();
        let places = Places { site_packages: Some(base.path().join("packages")), cuda: None };
        let read = |name: &str, most, seed| {
            Sources::read(&[PathBuf::from(name)], &places, base.path(), most, seed)
        };
        let all = read("site-packages", 1 << 20, 1).unwrap();
        assert_eq!((all.files, all.bytes), (20, 20 * 9));
        assert_eq!(all.hash, read("packages", 1 << 20, 1).unwrap().hash);
        assert_ne!(all.texts, read("packages", 1 << 20, 2).unwrap().texts);
        assert_eq!(read("packages", 30, 1).unwrap().texts, all.texts[..4]);
        for (name, why) in [
            ("cuda/include", "has no such folder"),
            ("elsewhere", "is not a folder"),
            ("packages/p1/a.py", "is not a folder"),
        ] {
            let failure = read(name, 30, 1).unwrap_err();
            assert!(failure.to_string().contains(why), "{failure}");
        }
    }
}
