//! Builds the library that stands for CUDA in recorders, once per toolkit and source, and caches it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use warpwright_build::{Compiler, Cuda, Toolchain};
use warpwright_jail::{Jail, Limits, Outcome, Spec};

use crate::error::JudgeError;
use crate::process::embedded::{Embedded, HOST_RECORDER, RECORDER};
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
    let cxx = compiler(toolchain)?;
    let cuda = toolchain.nvcc.as_ref();
    let cuda = cuda.ok_or_else(|| {
        JudgeError::lacks("no CUDA toolkit found", "run `make setup`, or install CUDA")
    })?;
    let versions = format!("{}|{}|{}", embedded.hash, cuda.version, cxx.version);
    let folder = cached(cache, &versions, |work| build(jail, (&cxx.path, cuda), embedded, work))?;
    let library = folder.join(LIBRARY);
    let env = vec![("LD_PRELOAD".to_owned(), library.to_string_lossy().into_owned())];
    Ok(RecorderLibrary { library, folder, env })
}

/// The library of the cpu device's recorders; builds it if the cache lacks it.
pub(crate) fn of_host(
    jail: &Jail,
    toolchain: &Toolchain,
    embedded: &Embedded,
    cache: &Path,
) -> Result<RecorderLibrary, JudgeError> {
    let cxx = compiler(toolchain)?;
    let torch = toolchain.torch.as_ref();
    let torch = torch.ok_or_else(|| {
        JudgeError::lacks("the Python environment has no torch", "run `make setup`")
    })?;
    let versions = format!("host|{}|{}|{}", embedded.hash, torch.version, cxx.version);
    let folder = cached(cache, &versions, |work| {
        let spec = compile(&cxx.path, embedded, work, HOST_RECORDER)
            .arg(torch.root.join("include").to_string_lossy())
            .arg("-DRECORDER_ON_HOST")
            .arg(format!("-L{}", torch.root.join("lib").display()))
            .arg("-lc10")
            .read_only(&torch.root);
        run(jail, spec)
    })?;
    Ok(RecorderLibrary { library: folder.join(LIBRARY), folder, env: Vec::new() })
}

fn compiler(toolchain: &Toolchain) -> Result<&Compiler, JudgeError> {
    let cxx = toolchain.cxx.as_ref();
    cxx.ok_or_else(|| JudgeError::lacks("no C++ compiler found", "run `apt install g++`"))
}

/// The folder of what `build` makes of these versions.
fn cached(
    cache: &Path,
    versions: &str,
    build: impl FnOnce(&Path) -> Result<(), JudgeError>,
) -> Result<PathBuf, JudgeError> {
    let key = blake3::hash(versions.as_bytes());
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
        build(work.path())?;
        let built = work.keep();
        if let Err(error) = fs::rename(&built, &folder)
            && !folder.exists()
        {
            return Err(JudgeError::infrastructure("store the recorder's library", error));
        }
    }
    Ok(folder)
}

/// A command that makes the library of these sources; the next argument is a folder of headers.
fn compile(cxx: &Path, embedded: &Embedded, work: &Path, sources: &[&str]) -> Spec {
    let mut spec = Spec::new(cxx)
        .label("recorder library")
        .args(["-O2", "-std=c++17", "-fPIC", "-shared", "-w"])
        .arg(format!("-Wl,--version-script={}", embedded.native.join(EXPORTS).display()))
        .arg("-o")
        .arg(work.join(LIBRARY).to_string_lossy())
        .limits(Limits { wall: Duration::from_mins(5), ..Limits::default() })
        .with_system()
        .read_only(&embedded.native)
        .read_write(work);
    for name in sources {
        spec = spec.arg(embedded.native.join(name).to_string_lossy());
    }
    spec.arg("-isystem")
}

fn run(jail: &Jail, spec: Spec) -> Result<(), JudgeError> {
    let failed = |e| JudgeError::infrastructure("build the recorder's library", e);
    let done = jail.run(spec).map_err(failed)?;
    if done.outcome != Outcome::Exited(0) {
        let text = String::from_utf8_lossy(&done.stderr.bytes).into_owned();
        return Err(JudgeError::infrastructure("build the recorder's library", text));
    }
    Ok(())
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
    let spec = compile(cxx, embedded, work, RECORDER)
        .arg(cuda.root.join("include").to_string_lossy())
        // Torch looks for the driver by this name.
        .arg("-Wl,-soname,libcuda.so.1")
        .arg(work.join("unknown.cpp").to_string_lossy())
        .read_only(&cuda.root);
    let spec = match &cuda.cudnn_include {
        Some(include) => spec.args(["-isystem", &include.to_string_lossy()]).read_only(include),
        None => spec,
    };
    run(jail, spec)
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
