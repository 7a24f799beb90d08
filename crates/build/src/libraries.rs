//! CUTLASS, CuTe, cub and thrust: where their headers are, and which of them a compiler read.
//!
//! A dependency file of the compiler says what was read, whatever macros an `#include` is made of. What a candidate
//! brings along in its own files is its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use warpwright_record::libraries::{Library, LibrarySet};
use warpwright_record::verdict::{Diagnostic, Severity};

use crate::artifact::Target;
use crate::diagnostics;
use crate::error::BuildError;
use crate::files::Texts;
use crate::process::Command;
use crate::python::Python;
use crate::toolchain::Toolchain;
use crate::unit::included;

/// The environment variable that names the folder of a CUTLASS checkout, for machines with one.
pub const CUTLASS_VARIABLE: &str = "WARPWRIGHT_CUTLASS";

/// Keeps cub from loading a library for NVTX at run time.
pub(crate) const NO_NVTX: &str = "-DCCCL_DISABLE_NVTX";

/// Sets variables of the host's functions to zero, with the gaps in structures. CUTLASS passes kernels large structures
/// with gaps, and parts that it never sets; a launch plan must not depend on what was on the stack.
pub(crate) const CLEARED: &str = "-ftrivial-auto-var-init=zero";

/// Longest dependency file that is read, in bytes. Those of CUTLASS have half a megabyte.
const MAX_BYTES: u64 = 16 << 20;

/// The headers of CUTLASS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cutlass {
    /// The folder with `include`: that of a checkout, or in the wheel `nvidia-cutlass`.
    pub root: PathBuf,
    /// e.g. `4.2.0`.
    pub version: String,
}

impl Cutlass {
    /// Looks in the folder that [`CUTLASS_VARIABLE`] names, then among Python's packages.
    pub(crate) fn find(python: Option<&Python>) -> Option<Self> {
        let named = std::env::var_os(CUTLASS_VARIABLE).map(PathBuf::from);
        let sites = python.map(|p| p.site_packages.as_slice()).unwrap_or_default();
        let packaged = sites.iter().map(|site| site.join("cutlass_library/source"));
        named.into_iter().chain(packaged).find_map(|root| Self::read(&root))
    }

    fn read(root: &Path) -> Option<Self> {
        let root = fs::canonicalize(root).ok()?;
        let text = fs::read_to_string(root.join("include/cutlass/version.h")).ok()?;
        let number = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("#define CUTLASS_")?.strip_prefix(name));
            line?.trim().parse::<u32>().ok()
        };
        let version = format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?);
        Some(Self { root, version })
    }

    pub(crate) fn includes(&self) -> Vec<PathBuf> {
        let folders = ["include", "tools/util/include"].map(|folder| self.root.join(folder));
        folders.into_iter().filter(|folder| folder.is_dir()).collect()
    }
}

impl Toolchain {
    /// The headers of CUTLASS, or an error with the command that installs them.
    pub(crate) fn need_cutlass(&self) -> Result<&Cutlass, BuildError> {
        self.cutlass.as_ref().ok_or_else(|| BuildError::MissingTool {
            tool: "CUTLASS".to_owned(),
            hint: format!(
                "run `scripts/setup.d/libraries`, or name a checkout in {CUTLASS_VARIABLE}"
            ),
        })
    }

    /// Whether these libraries are installed.
    ///
    /// # Errors
    /// [`BuildError::MissingTool`], with the command that installs them.
    pub fn has(&self, libraries: LibrarySet) -> Result<(), BuildError> {
        if libraries.contains(Library::Cutlass) {
            self.need_cutlass()?;
        }
        Ok(())
    }
}

impl Toolchain {
    /// The allowed libraries with their versions, for cache keys.
    pub(crate) fn label(&self, target: &Target, allowed: LibrarySet) -> String {
        let version = self.cutlass.as_ref().filter(|_| allowed.contains(Library::Cutlass));
        match target {
            Target::Cpu => String::new(),
            Target::Cuda { .. } => {
                format!("{allowed} {}", version.map_or("", |cutlass| cutlass.version.as_str()))
            }
        }
    }
}

/// Those that the candidate's own text includes.
pub(crate) fn mentioned(texts: &Texts) -> BTreeSet<Library> {
    let headers: Vec<&str> = texts.values().flat_map(|text| included(text)).collect();
    let named = |library: &Library| {
        headers.iter().any(|header| {
            let header = header.strip_prefix("cccl/").unwrap_or(header);
            library.folders().iter().any(|folder| header.starts_with(folder))
        })
    };
    Library::ALL.into_iter().filter(named).collect()
}

/// A run of nvcc that lists what it reads in `file`.
pub(crate) fn listing(command: Command, file: &Path) -> Command {
    let folder = file.parent().unwrap_or(file);
    command.args(["-MD", "-MF"]).arg(file).write(folder)
}

/// Those whose headers a dependency file lists.
pub(crate) fn read(file: &Path, cutlass: Option<&Cutlass>) -> std::io::Result<BTreeSet<Library>> {
    if fs::metadata(file)?.len() > MAX_BYTES {
        return Err(std::io::Error::other("the compiler's dependency file is too long"));
    }
    let text = String::from_utf8_lossy(&fs::read(file)?).into_owned();
    Ok(listed(&text, cutlass))
}

fn listed(text: &str, cutlass: Option<&Cutlass>) -> BTreeSet<Library> {
    let mut found = BTreeSet::new();
    for path in text.split_whitespace().filter(|path| is_outside(path)) {
        if cutlass.is_some_and(|cutlass| Path::new(path).starts_with(&cutlass.root)) {
            found.insert(Library::Cutlass);
        }
        let Some((_, header)) = path.rsplit_once("/include/") else { continue };
        let header = header.strip_prefix("cccl/").unwrap_or(header);
        let has = |library: &Library| library.folders().iter().any(|f| header.starts_with(f));
        found.extend(Library::ALL.into_iter().find(has));
    }
    found
}

/// Whether a file is not the candidate's: its own have relative names in the folder of its sources.
fn is_outside(path: &str) -> bool {
    let mut depth = 0_i64;
    path.starts_with('/')
        || path.split('/').any(|part| {
            match part {
                ".." => depth -= 1,
                "" | "." => {}
                _ => depth += 1,
            }
            depth < 0
        })
}

/// The refusal of a file that uses a library which is not allowed.
pub(crate) fn refusal(file: &str, library: Library) -> Diagnostic {
    let message = format!(
        "{} ({}) may not be used here: `--libraries {library}` allows it",
        library.parts(),
        library.folders().map(|folder| format!("{folder}*")).join(", ")
    );
    diagnostics::error(Some(file), message)
}

/// Says at a header that was not found what would allow it.
pub(crate) fn explain(found: &mut [Diagnostic], allowed: LibrarySet) {
    for diagnostic in found.iter_mut().filter(|d| d.severity == Severity::Error) {
        if !["No such file", "cannot open source file", "not found"]
            .iter()
            .any(|text| diagnostic.message.contains(text))
        {
            continue;
        }
        let named = |library: &Library| {
            let words =
                diagnostic.message.split(|c: char| c.is_whitespace() || "\"'<>:".contains(c));
            words.into_iter().any(|word| library.folders().iter().any(|f| word.starts_with(f)))
        };
        let library = Library::ALL.into_iter().find(named);
        if let Some(library) = library.filter(|library| !allowed.contains(*library)) {
            let _ = write!(
                diagnostic.message,
                " ({} may not be used here: `--libraries {library}` allows it)",
                library.parts()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_files_tell_the_libraries() {
        let cutlass = Cutlass { root: "/x/source".into(), version: "4.2.0".to_owned() };
        let of = |text: &str| listed(text, Some(&cutlass)).into_iter().collect::<Vec<_>>();
        let cuda = "a.o : kernels/a.cu \\\n /cuda/bin/..//include/cccl/cuda/std/array \\\n";
        assert_eq!(of(cuda), []);
        assert_eq!(of(&format!("{cuda} /cuda/bin/..//include/cccl/cub/cub.cuh")), [Library::Cccl]);
        assert_eq!(of("/usr/local/cuda/include/thrust/sort.h"), [Library::Cccl]);
        assert_eq!(of("/x/source/include/cute/tensor.hpp"), [Library::Cutlass]);
        assert_eq!(of("kernels/include/cub/mine.cuh ./kernels/cutlass/a.h"), []);
        assert_eq!(of("kernels/../../../x/include/cute/a.hpp"), [Library::Cutlass]);
        assert_eq!(of("kernels/../include/cute/a.hpp / /include/ .. a/../.."), []);
    }
}
