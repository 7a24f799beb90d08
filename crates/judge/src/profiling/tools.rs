//! Finds NVIDIA's tools and the library of `AddressSanitizer` on this host.

use std::path::{Path, PathBuf};

use warpwright_build::Toolchain;

/// A tool on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) program: PathBuf,
    /// Folder that it needs to see beside the system's own.
    pub(crate) needs: Option<PathBuf>,
}

/// Nsight Compute's command line.
pub(crate) fn ncu(toolchain: &Toolchain) -> Option<Tool> {
    let mut places = usual_folders(toolchain, "bin");
    // Installed on its own: one folder per version, the newest last.
    let mut versions: Vec<PathBuf> = fs_err::read_dir("/opt/nvidia/nsight-compute")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    versions.sort_by_cached_key(|path| version(path));
    places.extend(versions.into_iter().rev());
    find(places, "ncu")
}

/// The sanitizer of the CUDA toolkit.
pub(crate) fn compute_sanitizer(toolchain: &Toolchain) -> Option<Tool> {
    let mut places = usual_folders(toolchain, "bin");
    places.extend(usual_folders(toolchain, "compute-sanitizer"));
    find(places, "compute-sanitizer")
}

fn usual_folders(toolchain: &Toolchain, inner: &str) -> Vec<PathBuf> {
    let toolkit = toolchain.nvcc.as_ref().map(|cuda| cuda.root.join(inner));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = toolkit.into_iter().collect();
    places.extend(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
    places.push(Path::new("/usr/local/cuda").join(inner));
    places
}

/// `2025.3.1` as numbers, so that 2025.10 comes after 2025.9.
fn version(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

fn find(places: Vec<PathBuf>, name: &str) -> Option<Tool> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &PathBuf| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let program = places.into_iter().map(|folder| folder.join(name)).find(runs)?;
    // The jail shows these to every process with a GPU.
    let shown = ["/usr", "/opt/nvidia"].iter().any(|folder| program.starts_with(folder));
    let needs = program.parent().and_then(Path::parent).filter(|_| !shown);
    Some(Tool { needs: needs.map(Path::to_owned), program })
}

/// AddressSanitizer's library of the compiler that builds for the host. It must be the first library
/// of a process.
pub(crate) fn address_sanitizer(toolchain: &Toolchain) -> Option<PathBuf> {
    let cxx = toolchain.cxx.as_ref()?;
    // GCC keeps it beside its other libraries, under its major version; distributions link it.
    let major: String = cxx
        .version
        .split(' ')
        .rev()
        .find_map(|word| word.split_once('.').map(|(major, _)| major))
        .filter(|major| !major.is_empty() && major.chars().all(|c| c.is_ascii_digit()))?
        .to_owned();
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let places = [
        format!("/usr/lib/gcc/{triple}/{major}/libasan.so"),
        format!("/usr/lib/gcc/{}-redhat-linux/{major}/libasan.so", std::env::consts::ARCH),
    ];
    places.iter().map(PathBuf::from).find_map(|path| fs_err::canonicalize(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_executable_on_the_path_is_found() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let places: Vec<PathBuf> =
            ["a/bin", "b/bin", "c/bin"].map(|n| folder.path().join(n)).into();
        for place in &places {
            fs_err::create_dir_all(place).unwrap();
        }
        assert_eq!(find(places.clone(), "tool"), None);
        fs_err::write(places[0].join("tool"), "no program").unwrap();
        for place in &places[1..] {
            fs_err::write(place.join("tool"), "#!/bin/sh").unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            fs_err::set_permissions(place.join("tool"), mode).unwrap();
        }
        let needs = Some(folder.path().join("b"));
        assert_eq!(
            find(places.clone(), "tool"),
            Some(Tool { program: places[1].join("tool"), needs })
        );
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version(Path::new("/x/2025.10.0")) > version(Path::new("/x/2025.9.1")));
    }
}
