//! Files of an inspected process: one call's inputs, the weights and the candidate. Also reads back the files
//! that the process left, which are untrusted.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::json;
use tempfile::TempDir;

use crate::check::families::Draw;
use crate::check::layout::place_all;
use crate::device::arena::Arena;
use crate::error::JudgeError;
use crate::process::oracle::Oracle;
use crate::process::wire::Place;

/// Most bytes of inputs and weights that are copied into a file.
pub(crate) const MAX_BYTES: u64 = 8 << 30;
/// Bytes copied at once.
const CHUNK: usize = 16 << 20;

/// Folder of one inspection; removed when dropped. The process may read `given` and write into the
/// three files, and nothing else: it makes no file or folder here.
pub(crate) struct Folder {
    _root: TempDir,
    pub(crate) given: PathBuf,
    pub(crate) report: PathBuf,
    pub(crate) trace: PathBuf,
    pub(crate) log: PathBuf,
}

/// The candidate and the rules under which it is loaded.
pub(crate) struct Load<'a> {
    pub(crate) source: &'a str,
    pub(crate) artifact: &'a Path,
    pub(crate) profile: &'a str,
    pub(crate) mode: &'a str,
    /// Seed of the inputs.
    pub(crate) seed: u64,
}

impl Folder {
    /// Fills a new folder below `cache`. `Ok(None)`: the inputs are too large to be carried.
    pub(crate) fn new(
        cache: &Path,
        oracle: &mut Oracle,
        load: &Load<'_>,
    ) -> Result<Option<Self>, JudgeError> {
        let opened = &oracle.opened;
        let state: u64 = opened.sizes.state.iter().map(|p| p.bytes).sum();
        if opened.sizes.inputs.bytes() + opened.sizes.init.bytes() + state > MAX_BYTES {
            return Ok(None);
        }
        let fail = |e: std::io::Error| JudgeError::infrastructure("prepare an inspection", e);
        let home = cache.join("inspect");
        fs::create_dir_all(&home).map_err(fail)?;
        let root = tempfile::Builder::new().prefix("call-").tempdir_in(&home).map_err(fail)?;
        let at = |name: &str| root.path().join(name);
        let folder = Self {
            given: at("given"),
            report: at("report.json"),
            trace: at("trace.json"),
            log: at("tool.log"),
            _root: root,
        };
        fs::create_dir(&folder.given).map_err(fail)?;
        for path in [&folder.report, &folder.trace, &folder.log] {
            fs::write(path, "").map_err(fail)?;
        }
        let mut file = fs::File::create(folder.given.join("tensors.bin")).map_err(fail)?;
        let mut end = 0;
        // Each answer lies at the start of the oracle's arena: copied before the next is asked for.
        let mut init = oracle.init()?;
        end = append(&mut file, &oracle.arena, &mut init.tensors, end)?;
        let mut weights = oracle.state(oracle.played)?;
        end = append(&mut file, &oracle.arena, &mut weights.tensors, end)?;
        let inputs = oracle.inputs(&[Draw::own(load.seed)], 0)?.sets.pop();
        let mut inputs = inputs
            .ok_or_else(|| JudgeError::infrastructure("make inputs", "the oracle sent none"))?;
        end = append(&mut file, &oracle.arena, &mut inputs.tensors, end)?;
        // A file of no bytes cannot be mapped.
        file.set_len(end.max(1)).map_err(fail)?;
        let given = json!({
            "source": load.source,
            "artifact": load.artifact.to_string_lossy(),
            "profile": load.profile,
            "mode": load.mode,
            "init": init,
            "state": {"names": weights.names, "tensors": weights.tensors},
            "inputs": inputs,
        });
        fs::write(folder.given.join("given.json"), given.to_string()).map_err(fail)?;
        Ok(Some(folder))
    }

    /// Empties what the process writes into, before another one starts.
    pub(crate) fn clear(&self) -> Result<(), JudgeError> {
        for path in [&self.report, &self.trace, &self.log] {
            fs::write(path, "")
                .map_err(|e| JudgeError::infrastructure("clear an inspection report", e))?;
        }
        Ok(())
    }
}

/// Copies tensors to the end of the file and gives them their places in it; the new end.
fn append(
    file: &mut fs::File,
    arena: &Arena,
    tensors: &mut [Place],
    end: u64,
) -> Result<u64, JudgeError> {
    let from: Vec<u64> = tensors.iter().map(|t| t.offset.unwrap_or(0)).collect();
    let after = place_all(tensors, end);
    let fail = |e: std::io::Error| JudgeError::infrastructure("write inputs for an inspection", e);
    let mut buffer = vec![0; CHUNK];
    for (tensor, from) in tensors.iter().zip(from) {
        std::io::Seek::seek(file, std::io::SeekFrom::Start(tensor.offset.unwrap_or(0)))
            .map_err(fail)?;
        let mut done = 0;
        while done < tensor.bytes {
            let part = (tensor.bytes - done).min(CHUNK as u64) as usize;
            arena.read(from + done, &mut buffer[..part])?;
            file.write_all(&buffer[..part]).map_err(fail)?;
            done += part as u64;
        }
    }
    Ok(after)
}

/// At most `most` bytes of a file that a process could write to. Empty for what is not a plain file.
pub(crate) fn read(path: &Path, most: u64) -> Result<String, JudgeError> {
    let fail = |e: std::io::Error| JudgeError::infrastructure("read an inspection report", e);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(String::new()) };
    let kind =
        FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(|e| fail(e.into()))?.st_mode);
    if kind != FileType::RegularFile {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(most).read_to_end(&mut bytes).map_err(fail)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_report_files_are_read_safely() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("plain"), "0123456789").unwrap();
        assert_eq!(read(&at("plain"), 4).unwrap(), "0123");
        std::os::unix::fs::symlink(at("plain"), at("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        for name in ["link", "pipe", "none"] {
            assert_eq!(read(&at(name), 4).unwrap(), "", "{name}");
        }
    }
}
