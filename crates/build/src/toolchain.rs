//! The compilers, libraries and headers of this machine.
//!
//! Nothing here is required: a missing tool becomes an error, with the command that installs it,
//! when a build needs it. `doctor` shows the same findings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fs_err as fs;
use warpwright_jail::Jail;

use crate::elf;
use crate::error::BuildError;
use crate::libraries::Cutlass;
use crate::process;
use crate::python::{Python, Torch};

/// The tools available to builds.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The host compiler.
    pub cxx: Option<Compiler>,
    /// The compiler of GPU bindings, if it differs: clang reads torch's headers many times faster,
    /// once they are precompiled.
    pub clang: Option<Compiler>,
    /// The CUDA compiler.
    pub nvcc: Option<Cuda>,
    /// The interpreter that will load the artifact.
    pub python: Option<Python>,
    /// Its torch.
    pub torch: Option<Torch>,
    /// A linker that is faster than the default one.
    pub linker: Option<Linker>,
    /// The headers of CUTLASS, which few candidates may use.
    pub cutlass: Option<Cutlass>,
}

/// g++ or clang++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// Executable.
    pub path: PathBuf,
    /// First line of `--version`.
    pub version: String,
}

/// The command-line dialect of a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Gnu,
    Clang,
}

impl Compiler {
    pub(crate) fn family(&self) -> Family {
        if self.version.contains("clang") { Family::Clang } else { Family::Gnu }
    }

    /// Whether it has an option that sets variables to zero: g++ since 12, clang since 16.
    pub(crate) fn clears_variables(&self) -> bool {
        let since = match self.family() {
            Family::Gnu => 12,
            Family::Clang => 16,
        };
        // `g++ (Debian 12.2.0-14) 12.2.0`, `Ubuntu clang version 18.1.3 (1ubuntu1)`.
        let numbers = self.version.split_whitespace().filter(|word| word.contains('.'));
        let mut majors = numbers.filter_map(|word| word.split('.').next()?.parse::<u32>().ok());
        majors.next_back().is_some_and(|major| major >= since)
    }
}

/// A CUDA toolkit, from NVIDIA's installer, a distribution or Python wheels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuda {
    /// Executable, links resolved.
    pub nvcc: PathBuf,
    /// Last line of `--version`, e.g. `Build cuda_13.0.r13.0/compiler.36424714_0`.
    pub version: String,
    /// The toolkit's folder.
    pub root: PathBuf,
    /// `libcudart.so.N`: linked by its full name, because wheels have no `libcudart.so`.
    pub cudart: Option<PathBuf>,
    /// `libcublas.so.N`.
    pub cublas: Option<PathBuf>,
    /// `libcublasLt.so.N`.
    pub cublas_lt: Option<PathBuf>,
    /// `libcudnn.so.N`.
    pub cudnn: Option<PathBuf>,
    /// Folder with `cudnn.h`, if it is outside the toolkit's headers.
    pub cudnn_include: Option<PathBuf>,
}

impl Cuda {
    /// Names of the functions of the runtime, cuBLAS and cuDNN, as far as they are installed.
    pub fn library_functions(&self) -> std::io::Result<BTreeSet<String>> {
        let libraries = [&self.cudart, &self.cublas, &self.cublas_lt, &self.cudnn];
        let mut found = BTreeSet::new();
        for path in libraries.into_iter().flatten() {
            found.extend(elf::exports(&fs::read(path)?).unwrap_or_default());
        }
        Ok(found)
    }
}

/// A linker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linker {
    /// Name as in `-fuse-ld=`.
    pub name: String,
    /// Executable.
    pub path: PathBuf,
}

/// Names of clang, the newest first. Older versions cannot keep instantiated templates.
const CLANGS: [&str; 9] = [
    "clang++-22",
    "clang++-21",
    "clang++-20",
    "clang++-19",
    "clang++-18",
    "clang++-17",
    "clang++-16",
    "clang++-15",
    "clang++",
];

impl Toolchain {
    /// Finds the tools. `python` is the interpreter that runs the judge's processes; compilers are
    /// taken from `PATH` and the usual locations. Their versions are queried in `jail`.
    pub fn detect(jail: &Jail, python: &Path) -> Result<Self, BuildError> {
        let python = Python::find(python);
        let torch = python.as_ref().and_then(Python::torch);
        let cxx = match in_path("g++").or_else(|| in_path("clang++")) {
            Some(path) => {
                let version = process::version(jail, &path, &[], 0)?;
                Some(Compiler { path, version })
            }
            None => None,
        };
        let clang = CLANGS.iter().find_map(|name| in_path(name));
        let clang = match clang.filter(|path| cxx.as_ref().is_none_or(|c| c.path != *path)) {
            Some(path) => {
                let version = process::version(jail, &path, &[], 0)?;
                Some(Compiler { path, version })
            }
            None => None,
        };
        let linker = [("mold", "mold"), ("lld", "ld.lld")].into_iter().find_map(|(name, file)| {
            in_path(file).map(|path| Linker { name: name.to_owned(), path })
        });
        let nvcc = match find_nvcc(python.as_ref()) {
            Some(nvcc) => Some(Cuda::read(jail, nvcc, python.as_ref())?),
            None => None,
        };
        let cutlass = Cutlass::find(python.as_ref());
        Ok(Self { cxx, clang, nvcc, python, torch, linker, cutlass })
    }

    /// Names and versions, for keys, manifests and fingerprints; no paths.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.cxx.as_ref().map(|c| c.version.clone()));
        lines.extend(self.clang.as_ref().map(|c| format!("bindings: {}", c.version)));
        lines.extend(self.nvcc.as_ref().map(|c| format!("nvcc: {}", c.version)));
        lines.extend(self.torch.as_ref().map(|t| format!("torch {}", t.version)));
        lines.extend(self.python.as_ref().map(|p| format!("Python {}", p.version)));
        lines.extend(self.linker.as_ref().map(|l| format!("linker {}", l.name)));
        lines
    }

    /// The host compiler, or an error with the command that installs it.
    pub(crate) fn need_cxx(&self) -> Result<&Compiler, BuildError> {
        self.cxx.as_ref().ok_or_else(|| missing("a C++ compiler", "run `apt install g++`"))
    }

    /// The CUDA compiler, or an error with the command that installs it.
    pub(crate) fn need_nvcc(&self) -> Result<&Cuda, BuildError> {
        let hint = "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc nvidia-nvvm \
                    nvidia-cuda-crt nvidia-cuda-cccl` at one version into the Python environment";
        self.nvcc.as_ref().ok_or_else(|| missing("nvcc", hint))
    }

    /// The interpreter and its torch, or an error with the command that installs them.
    pub(crate) fn need_torch(&self) -> Result<(&Python, &Torch), BuildError> {
        match (&self.python, &self.torch) {
            (Some(python), Some(torch)) => Ok((python, torch)),
            _ => Err(missing("torch in the Python environment", "run `make setup`")),
        }
    }
}

impl Cuda {
    fn read(jail: &Jail, nvcc: PathBuf, python: Option<&Python>) -> Result<Self, BuildError> {
        let nvcc = fs::canonicalize(nvcc)?;
        let root = nvcc.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
        let version = process::version(jail, &nvcc, std::slice::from_ref(&root), usize::MAX)?;
        let wheels: Vec<PathBuf> = nvidia_wheels(python);
        let mut libraries: Vec<PathBuf> =
            ["lib64", "lib", "targets/x86_64-linux/lib"].iter().map(|l| root.join(l)).collect();
        libraries.extend(wheels.iter().map(|w| w.join("lib")));
        libraries.push("/usr/lib/x86_64-linux-gnu".into());
        let library = |name: &str| libraries.iter().find_map(|folder| versioned(folder, name));
        let mut includes: Vec<PathBuf> = vec![root.join("include")];
        includes.extend(wheels.iter().map(|w| w.join("include")));
        let cudnn_include = includes.into_iter().find(|i| i.join("cudnn.h").is_file());
        Ok(Self {
            cudart: library("libcudart.so."),
            cublas: library("libcublas.so."),
            cublas_lt: library("libcublasLt.so."),
            cudnn: library("libcudnn.so."),
            cudnn_include,
            version,
            root,
            nvcc,
        })
    }

    /// Folders that compiling and linking need to read.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.root.clone()];
        folders.extend(self.cudnn_include.clone());
        for library in
            [&self.cudart, &self.cublas, &self.cublas_lt, &self.cudnn].into_iter().flatten()
        {
            folders.extend(library.parent().map(Path::to_owned));
        }
        folders.sort();
        folders.dedup();
        folders
    }
}

fn missing(tool: &str, hint: &str) -> BuildError {
    BuildError::MissingTool { tool: tool.to_owned(), hint: hint.to_owned() }
}

fn find_nvcc(python: Option<&Python>) -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/local/cuda/bin/nvcc");
    in_path("nvcc").or_else(|| usual.is_file().then_some(usual)).or_else(|| {
        nvidia_wheels(python).into_iter().map(|w| w.join("bin/nvcc")).find(|p| p.is_file())
    })
}

/// `site-packages/nvidia/*`: `cu13`, `cudnn`, ..., newest CUDA first.
fn nvidia_wheels(python: Option<&Python>) -> Vec<PathBuf> {
    let sites = python.map(|p| p.site_packages.as_slice()).unwrap_or_default();
    let mut found: Vec<PathBuf> = sites
        .iter()
        .filter_map(|site| fs::read_dir(site.join("nvidia")).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found
}

/// The file in `folder` named `name` plus a version: the shortest, so that `libcublas.so.13` is
/// preferred to `libcublas.so.13.1.0.3`.
fn versioned(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut found: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|e| Some(e.ok()?.file_name().to_str()?.to_owned()))
        .filter(|file| file.starts_with(name))
        .collect();
    found.sort_by_key(|file| (file.len(), file.clone()));
    found.into_iter().next().map(|file| folder.join(file))
}

/// An executable of that name.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_compilers_can_clear_variables() {
        for (version, can) in [
            ("g++ (Debian 12.2.0-14) 12.2.0", true),
            ("g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", true),
            ("g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", false),
            ("Debian clang version 19.1.7 (3~deb12u1)", true),
            ("clang version 14.0.6", false),
            ("", false),
        ] {
            let compiler = Compiler { path: "x".into(), version: version.to_owned() };
            assert_eq!(compiler.clears_variables(), can, "{version}");
        }
    }
}
