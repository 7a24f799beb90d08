//! Our own headers and the harvest script, as files for compilers and Python.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::cache;
use crate::entry;
use crate::host;

/// The cpu device's versions of torch's CUDA headers: they come before torch's own.
const CPU_HEADERS: [(&str, &str); 8] = [
    ("warpwright_cpu_device.h", include_str!("../include-cpu/warpwright_cpu_device.h")),
    ("c10/cuda/CUDAStream.h", include_str!("../include-cpu/c10/cuda/CUDAStream.h")),
    ("c10/cuda/CUDAGuard.h", include_str!("../include-cpu/c10/cuda/CUDAGuard.h")),
    ("c10/cuda/CUDAException.h", include_str!("../include-cpu/c10/cuda/CUDAException.h")),
    ("c10/cuda/CUDAFunctions.h", include_str!("../include-cpu/c10/cuda/CUDAFunctions.h")),
    ("ATen/cuda/CUDAContext.h", include_str!("../include-cpu/ATen/cuda/CUDAContext.h")),
    ("ATen/cuda/CUDAContextLight.h", include_str!("../include-cpu/ATen/cuda/CUDAContextLight.h")),
    ("ATen/cuda/Exceptions.h", include_str!("../include-cpu/ATen/cuda/Exceptions.h")),
];

/// The script that collects `load_inline` sources. It belongs to the Python package, and is
/// embedded here so that a harvest needs only an interpreter with torch.
const HARVEST: &str = include_str!("../../../python/warpwright_oracle/harvest.py");

/// The files, written once per content.
#[derive(Clone, Debug)]
pub(crate) struct Support {
    /// Hash of the content; part of cache keys.
    pub hash: String,
    /// Headers of `hostcuda`.
    pub hostcuda: PathBuf,
    /// [`CPU_HEADERS`].
    pub torch_cpu: PathBuf,
    /// [`HARVEST`].
    pub harvest: PathBuf,
}

impl Support {
    /// Writes missing files below `root`. Safe for concurrent processes.
    pub(crate) fn write(root: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(root)?;
        let staged = tempfile::Builder::new().prefix("s").tempdir_in(root)?;
        let hostcuda = staged.path().join("hostcuda");
        fs::create_dir_all(&hostcuda)?;
        host::write_headers(&hostcuda)?;
        for (name, text) in CPU_HEADERS {
            let path = staged.path().join("torch-cpu").join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, text)?;
        }
        fs::write(staged.path().join("harvest.py"), HARVEST)?;

        let mut parts = BTreeMap::new();
        for (name, path) in entry::files_below(staged.path())? {
            parts.insert(name, fs::read(path)?);
        }
        let flat = parts.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes.as_slice()]);
        let hash = cache::key(flat);
        let place = root.join(&hash[..16]);
        if !Self::intact(&place, &parts) {
            // One at a time: a good copy that another process has just put there must not be taken
            // for the broken one.
            let turn = fs::File::create(root.join("lock"))?.into_file();
            turn.lock()?;
            if !Self::intact(&place, &parts) {
                let grave = tempfile::Builder::new().prefix("s").tempdir_in(root)?;
                let _ = fs::rename(&place, grave.path().join("broken"));
                entry::open_to_readers(staged.path())?;
                fs::rename(staged.path(), &place)?;
            }
        }
        Ok(Self {
            hash,
            hostcuda: place.join("hostcuda"),
            torch_cpu: place.join("torch-cpu"),
            harvest: place.join("harvest.py"),
        })
    }

    fn intact(place: &Path, parts: &BTreeMap<String, Vec<u8>>) -> bool {
        parts
            .iter()
            .all(|(name, bytes)| fs::read(place.join(name)).is_ok_and(|found| found == *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_writers_keep_each_others_files() {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        let support = Support::write(folder.path()).unwrap();
                        for _ in 0..100 {
                            assert_eq!(fs::read_to_string(&support.harvest).unwrap(), HARVEST);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn modified_support_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let support = Support::write(folder.path()).unwrap();
        fs::write(&support.harvest, "half").unwrap();
        Support::write(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&support.harvest).unwrap(), HARVEST);
    }
}
