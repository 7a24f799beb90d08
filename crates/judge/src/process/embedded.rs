//! The Python package and the native allocators, embedded in the program and written to disk once.

use std::path::{Path, PathBuf};

use fs_err as fs;

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../python/warpwright_oracle/", $name)))),*]
    };
}

/// The files of `python/warpwright_oracle`.
const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "arena.py",
    "arguments.py",
    "meta_compile.py",
    "baseline.py",
    "batches.py",
    "calibration.py",
    "channel.py",
    "clusters.py",
    "computes.py",
    "conditioning.py",
    "constants.py",
    "dispatch.py",
    "distance.py",
    "described.py",
    "device_sampling.py",
    "examiner.py",
    "expected.py",
    "extension.py",
    "families.py",
    "forkserver.py",
    "forms.py",
    "graph.py",
    "harvest.py",
    "headers.py",
    "hostdevice.py",
    "inspector.py",
    "looked.py",
    "opening.py",
    "peak.py",
    "oracle.py",
    "plain.py",
    "player.py",
    "precision.py",
    "inductor_warmup.py",
    "records.py",
    "reference.py",
    "repeats.py",
    "rounding.py",
    "rules.py",
    "runner.py",
    "scales.py",
    "sizes.py",
    "slices.py",
    "process_reuse.py",
    "steps.py",
    "structures.py",
    "sums.py",
    "tensors.py",
    "ties.py",
    "truth.py",
    "truths.py",
    "unsaved.py",
    "stub_runtime.py",
    "shadow.py",
    "recorder.py",
    "sampler.py",
    "host_recording.py",
    "widening.py",
];

/// The kernel of `sampler.py`, which reads it from beside itself.
const SAMPLING: (&str, &str) = ("sampling.ptx", include_str!("../../native/sampling.ptx"));

/// The native sources.
const NATIVE: &[(&str, &str)] = &[
    ("arena.h", include_str!("../../native/arena.h")),
    ("arena_cpu.cpp", include_str!("../../native/arena_cpu.cpp")),
    ("arena_cuda.cpp", include_str!("../../native/arena_cuda.cpp")),
    ("host_recorder.cpp", include_str!("../../native/host_recorder.cpp")),
    ("host_recorder.h", include_str!("../../native/host_recorder.h")),
    ("hostcuda_record.h", include_str!("../../../hostcuda/include/hostcuda/record.h")),
    ("recorder.h", include_str!("../../native/recorder.h")),
    ("recorder_blas.cpp", include_str!("../../native/recorder_blas.cpp")),
    ("recorder_device.cpp", include_str!("../../native/recorder_device.cpp")),
    ("recorder_dnn.cpp", include_str!("../../native/recorder_dnn.cpp")),
    ("recorder_dnn.h", include_str!("../../native/recorder_dnn.h")),
    ("recorder_dnn_descriptors.cpp", include_str!("../../native/recorder_dnn_descriptors.cpp")),
    ("recorder_exports.map", include_str!("../../native/recorder_exports.map")),
    ("recorder_launch.cpp", include_str!("../../native/recorder_launch.cpp")),
    ("recorder_lt.cpp", include_str!("../../native/recorder_lt.cpp")),
    ("recorder_memory.cpp", include_str!("../../native/recorder_memory.cpp")),
    ("recorder_modules.cpp", include_str!("../../native/recorder_modules.cpp")),
    ("recorder_session.cpp", include_str!("../../native/recorder_session.cpp")),
    ("recorder_streams.cpp", include_str!("../../native/recorder_streams.cpp")),
    ("recorder_tensormap.cpp", include_str!("../../native/recorder_tensormap.cpp")),
    ("recorder_timeline.cpp", include_str!("../../native/recorder_timeline.cpp")),
    ("recorder_timeline.h", include_str!("../../native/recorder_timeline.h")),
    ("recorder_transfer.cpp", include_str!("../../native/recorder_transfer.cpp")),
    ("recorder_write.cpp", include_str!("../../native/recorder_write.cpp")),
];

/// Those of [`NATIVE`] that become the library of recorders.
pub(crate) const RECORDER: &[&str] = &[
    "recorder_blas.cpp",
    "recorder_device.cpp",
    "recorder_dnn.cpp",
    "recorder_dnn_descriptors.cpp",
    "recorder_launch.cpp",
    "recorder_lt.cpp",
    "recorder_memory.cpp",
    "recorder_modules.cpp",
    "recorder_session.cpp",
    "recorder_streams.cpp",
    "recorder_tensormap.cpp",
    "recorder_timeline.cpp",
    "recorder_transfer.cpp",
    "recorder_write.cpp",
];

/// Those of [`NATIVE`] that become the library of the cpu device's recorders.
pub(crate) const HOST_RECORDER: &[&str] =
    &["host_recorder.cpp", "recorder_memory.cpp", "recorder_session.cpp", "recorder_write.cpp"];

/// Where the embedded files lie on disk.
pub(crate) struct Embedded {
    /// Folder for `PYTHONPATH`.
    pub(crate) python: PathBuf,
    /// Folder of the native sources.
    pub(crate) native: PathBuf,
    /// Hash of all of them.
    pub(crate) hash: String,
}

/// Writes the files below `cache`, in a folder named by their hash, unless they are there.
pub(crate) fn write(cache: &Path) -> std::io::Result<Embedded> {
    let mut hasher = blake3::Hasher::new();
    for (name, text) in PACKAGE.iter().chain(NATIVE).chain([&SAMPLING]) {
        hasher.update(name.as_bytes());
        hasher.update(text.as_bytes());
    }
    let hash = hasher.finalize().to_hex()[..16].to_owned();
    let folder = cache.join("program").join(&hash);
    let embedded = Embedded { python: folder.join("python"), native: folder.join("native"), hash };
    if folder.join("complete").exists() {
        return Ok(embedded);
    }
    let package = embedded.python.join("warpwright_oracle");
    fs::create_dir_all(&package)?;
    fs::create_dir_all(&embedded.native)?;
    for (folder, files) in
        [(&package, PACKAGE), (&package, &[SAMPLING]), (&embedded.native, NATIVE)]
    {
        for (name, text) in files {
            put(&folder.join(name), text.as_bytes())?;
        }
    }
    fs::write(folder.join("complete"), "")?;
    Ok(embedded)
}

/// Writes a file of the cache whole or not at all: two judges may do this at once, in one process
/// or in two. Everyone may read it, jails above all.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut beside = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder)?;
    std::io::Write::write_all(&mut beside, bytes)?;
    beside.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn concurrent_writers_leave_one_complete_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for byte in b'a'..b'i' {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        super::put(path, &[byte; 10_000]).unwrap();
                    }
                });
            }
        });
        let bytes = fs_err::read(&path).unwrap();
        assert!(bytes.len() == 10_000 && bytes.iter().all(|b| *b == bytes[0]));
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// A file that is imported but not carried would only be missed on another machine.
    #[test]
    fn every_file_of_the_package_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/warpwright_oracle");
        let mut on_disk: Vec<String> = fs_err::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| std::path::Path::new(n).extension().is_some_and(|e| e == "py"))
            .collect();
        on_disk.sort();
        let mut carried: Vec<&str> = super::PACKAGE.iter().map(|(name, _)| *name).collect();
        carried.sort_unstable();
        assert_eq!(on_disk, carried);
    }
}
