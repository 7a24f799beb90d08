//! Builds the library that stands for CUDA in recorders, once per toolkit and source, and caches it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use warpwright_build::{Cuda, Toolchain};
use warpwright_jail::{Jail, Limits, Outcome, Spec};

use crate::error::JudgeError;
use crate::process::embedded::{Embedded, RECORDER};
use crate::process::host::RecorderLibrary;

/// Name of the library.
const LIBRARY: &str = "recorder.so";
/// What the library exports.
const EXPORTS: &str = "recorder_exports.map";

/// The library for this toolkit; builds it if the cache lacks it.
pub(crate) fn library(
    jail: &Jail,
    toolchain: &Toolchain,
    embedded: &Embedded,
    cache: &Path,
) -> Result<RecorderLibrary, JudgeError> {
    let cxx = toolchain.cxx.as_ref();
    let cxx =
        cxx.ok_or_else(|| JudgeError::lacks("no C++ compiler found", "run `apt install g++`"))?;
    let cuda = toolchain.nvcc.as_ref();
    let cuda = cuda.ok_or_else(|| {
        JudgeError::lacks("no CUDA toolkit found", "run `make setup`, or install CUDA")
    })?;
    let key =
        blake3::hash(format!("{}|{}|{}", embedded.hash, cuda.version, cxx.version).as_bytes());
    let native = cache.join("native");
    let folder = native.join(format!("recorder-{}", &key.to_hex()[..16]));
    if !folder.exists() {
        fs::create_dir_all(&native)
            .map_err(|e| JudgeError::infrastructure("create the cache", e))?;
        // A folder of its own: two judges may do this at once, in one process or in two.
        let work = tempfile::Builder::new()
            .prefix("build-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in(&native)
            .map_err(|e| JudgeError::infrastructure("create the cache", e))?;
        build(jail, (&cxx.path, cuda), embedded, work.path())?;
        let built = work.keep();
        if let Err(error) = fs::rename(&built, &folder)
            && !folder.exists()
        {
            return Err(JudgeError::infrastructure("store the recorder's library", error));
        }
    }
    let library = folder.join(LIBRARY);
    let env = vec![("LD_PRELOAD".to_owned(), library.to_string_lossy().into_owned())];
    Ok(RecorderLibrary { library, folder, env })
}

fn build(
    jail: &Jail,
    (cxx, cuda): (&Path, &Cuda),
    embedded: &Embedded,
    work: &Path,
) -> Result<(), JudgeError> {
    let failed = |e| JudgeError::infrastructure("build the recorder's library", e);
    let names = cuda.library_functions().map_err(failed)?;
    fs::write(work.join("unknown.cpp"), unknown(&names)).map_err(failed)?;
    let mut spec = Spec::new(cxx)
        .label("recorder library")
        .args(["-O2", "-std=c++17", "-fPIC", "-shared", "-w", "-isystem"])
        .arg(cuda.root.join("include").to_string_lossy())
        // Torch looks for the driver by this name.
        .arg("-Wl,-soname,libcuda.so.1")
        .arg(format!("-Wl,--version-script={}", embedded.native.join(EXPORTS).display()))
        .limits(Limits { wall: Duration::from_mins(5), ..Limits::default() })
        .with_system()
        .read_only(&embedded.native)
        .read_only(&cuda.root)
        .read_write(work);
    if let Some(include) = &cuda.cudnn_include {
        spec = spec.args(["-isystem", &include.to_string_lossy()]).read_only(include);
    }
    for name in RECORDER {
        spec = spec.arg(embedded.native.join(name).to_string_lossy());
    }
    let spec = spec.arg(work.join("unknown.cpp").to_string_lossy());
    let spec = spec.arg("-o").arg(work.join(LIBRARY).to_string_lossy());
    let done = jail
        .run(spec)
        .map_err(|e| JudgeError::infrastructure("build the recorder's library", e))?;
    if done.outcome != Outcome::Exited(0) {
        let text = String::from_utf8_lossy(&done.stderr.bytes).into_owned();
        return Err(JudgeError::infrastructure("build the recorder's library", text));
    }
    Ok(())
}

/// Source of functions that name themselves and refuse. Those that the recorder knows win over them: these are
/// weak.
fn unknown(names: &BTreeSet<String>) -> String {
    let plain = |name: &&String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let ours = |name: &&String| {
        let name = name.trim_start_matches('_');
        ["cuda", "cublas", "cudnn"].iter().any(|prefix| name.starts_with(prefix))
    };
    let mut text = "extern \"C\" int recorder_unknown(const char*);\n".to_owned();
    for name in names.iter().filter(plain).filter(ours) {
        let _ = writeln!(
            text,
            "extern \"C\" __attribute__((weak)) int {name}() \
             {{ return recorder_unknown(\"{name}\"); }}"
        );
    }
    text
}
