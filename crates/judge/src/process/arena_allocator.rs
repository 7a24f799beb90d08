//! Builds the arena allocator library, once per torch version and source, and caches it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use warpwright_build::Toolchain;
use warpwright_jail::{Jail, Limits, Outcome, Spec};

use crate::device::backend::UnopenedDevice;
use crate::error::JudgeError;
use crate::process::embedded::Embedded;

/// Path of the library for this device; builds it if the cache lacks it.
pub(crate) fn library(
    jail: &Jail,
    toolchain: &Toolchain,
    device: &dyn UnopenedDevice,
    embedded: &Embedded,
    cache: &Path,
) -> Result<PathBuf, JudgeError> {
    let cxx = toolchain.cxx.as_ref();
    let cxx =
        cxx.ok_or_else(|| JudgeError::lacks("no C++ compiler found", "run `apt install g++`"))?;
    let torch = toolchain.torch.as_ref();
    let torch = torch.ok_or_else(|| {
        JudgeError::lacks("the Python environment has no torch", "run `make setup`")
    })?;
    let kind = device.allocator();
    let key =
        blake3::hash(format!("{}|{}|{}", embedded.hash, torch.version, cxx.version).as_bytes());
    let folder = cache.join("native");
    let target = folder.join(format!("arena-{kind}-{}.so", &key.to_hex()[..16]));
    if target.exists() {
        return Ok(target);
    }
    fs::create_dir_all(&folder).map_err(|e| JudgeError::infrastructure("create the cache", e))?;
    // A folder of its own: two judges may do this at once, in one process or in two.
    let work = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(&folder)
        .map_err(|e| JudgeError::infrastructure("create the cache", e))?;
    let built = work.path().join("arena.so");
    let spec = Spec::new(&cxx.path)
        .label("arena library")
        .args(["-O2", "-std=c++17", "-fPIC", "-shared", "-o", &built.to_string_lossy()])
        .arg(embedded.native.join(format!("arena_{kind}.cpp")).to_string_lossy())
        .limits(Limits { wall: Duration::from_mins(5), ..Limits::default() })
        .with_system()
        .read_only(&embedded.native)
        .read_write(work.path());
    let spec = device.link_allocator(spec, toolchain, &torch.root)?;
    let done =
        jail.run(spec).map_err(|e| JudgeError::infrastructure("build the arena library", e))?;
    if done.outcome != Outcome::Exited(0) {
        let text = String::from_utf8_lossy(&done.stderr.bytes).into_owned();
        return Err(JudgeError::infrastructure("build the arena library", text));
    }
    fs::rename(&built, &target)
        .map_err(|e| JudgeError::infrastructure("store the arena library", e))?;
    Ok(target)
}
