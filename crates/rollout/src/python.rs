//! Finds the Python interpreter with torch without running Python: the program starts in
//! milliseconds.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::environment;
use crate::error::RolloutError;

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// The executable, with links unresolved: a virtual environment is recognised by its link.
    pub executable: PathBuf,
    /// The place where it was found, as text.
    pub found: &'static str,
    /// Version of torch in its site-packages; `None` without torch.
    pub torch: Option<String>,
    /// Folder with torch.
    pub site_packages: Option<PathBuf>,
}

impl Python {
    /// Whether torch is compiled to bytecode. If not, every process of the judge compiles it again,
    /// since it cannot write the bytecode.
    pub fn torch_is_compiled(&self) -> bool {
        // Its compiler is imported late and by few: where it is compiled, all is.
        let cached = |folder: &PathBuf| fs::read_dir(folder.join("torch/_inductor/__pycache__"));
        let entries = self.site_packages.as_ref().and_then(|folder| cached(folder).ok());
        let compiled = |name: &str| name.starts_with("compile_fx.");
        entries.into_iter().flatten().flatten().any(|e| compiled(&e.file_name().to_string_lossy()))
    }
}

/// Tries `--python` or the environment, then the `.venv` of the executable's project, then that of
/// the current folder, then `python3` on the PATH. Returns the first one with torch; one named by
/// the user is returned as it is.
pub fn find(named: Option<&Path>) -> Option<Python> {
    if let Some(path) = named {
        return Some(look_at(path, "named with --python or WARPWRIGHT_PYTHON"));
    }
    let candidates = candidates();
    let with_torch = candidates.iter().find(|python| python.torch.is_some());
    with_torch.or(candidates.first()).cloned()
}

/// As [`find`], but an interpreter without torch is an error whose hint has the cure.
pub fn require(named: Option<&Path>) -> Result<Python, RolloutError> {
    let hint = "run `make setup` in the project, or name an interpreter that has torch with \
                --python or WARPWRIGHT_PYTHON"
        .to_owned();
    let Some(python) = find(named) else {
        return Err(RolloutError::infrastructure("failed to find a Python interpreter", hint));
    };
    if !python.executable.exists() {
        let message = format!(
            "failed to find the Python interpreter {}: no such file",
            python.executable.display()
        );
        return Err(RolloutError::usage(message, hint));
    }
    if python.torch.is_none() {
        let path = python.executable.display();
        let message = format!("failed to find torch: {path} ({}) does not have it", python.found);
        return Err(RolloutError::infrastructure(message, hint));
    }
    Ok(python)
}

fn candidates() -> Vec<Python> {
    let mut found = Vec::new();
    let mut add = |path: PathBuf, how: &'static str| {
        if path.exists() {
            found.push(look_at(&path, how));
        }
    };
    if let Ok(executable) = std::env::current_exe() {
        // target/release/warpwright -> the project; bin/warpwright of a virtual environment.
        for folder in executable.ancestors().skip(1).take(3) {
            add(folder.join(".venv/bin/python"), "next to the executable");
        }
        if let Some(folder) = executable.parent() {
            add(folder.join("python3"), "next to the executable");
        }
    }
    if let Ok(folder) = std::env::current_dir() {
        add(folder.join(".venv/bin/python"), "in the current folder");
    }
    for folder in environment::get(environment::PATH).iter().flat_map(std::env::split_paths) {
        add(folder.join("python3"), "on the PATH");
    }
    found
}

/// The interpreter at this path; `found` says how it was found.
pub fn look_at(executable: &Path, found: &'static str) -> Python {
    // Only the folder is resolved: the jail wants plain absolute names, and a virtual environment is
    // known by the link to its interpreter.
    let folder = executable.parent().and_then(|folder| fs::canonicalize(folder).ok());
    let resolved = folder.zip(executable.file_name()).map(|(folder, name)| folder.join(name));
    let executable = resolved.as_deref().unwrap_or(executable);
    let torch = site_packages(executable)
        .into_iter()
        .find_map(|folder| torch_version(&folder).map(|version| (version, folder)));
    let (torch, site_packages) = torch.unzip();
    Python { executable: executable.to_owned(), found, torch, site_packages }
}

/// The site-packages folders of this interpreter: those of its virtual environment or of its
/// prefix.
fn site_packages(executable: &Path) -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    let mut add = |path: &Path| {
        if let Some(prefix) = path.parent().and_then(Path::parent) {
            prefixes.push(prefix.to_owned());
        }
    };
    add(executable);
    if let Ok(resolved) = fs::canonicalize(executable) {
        add(&resolved);
    }
    let mut folders = Vec::new();
    for prefix in prefixes {
        for library in ["lib", "lib64", "local/lib"] {
            let Ok(entries) = fs::read_dir(prefix.join(library)) else { continue };
            for entry in entries.flatten() {
                if entry.file_name().to_string_lossy().starts_with("python3") {
                    folders.push(entry.path().join("site-packages"));
                    folders.push(entry.path().join("dist-packages"));
                }
            }
        }
    }
    folders.sort();
    folders.dedup();
    folders
}

fn torch_version(site_packages: &Path) -> Option<String> {
    let text = fs::read_to_string(site_packages.join("torch/version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    Some(line.split(['\'', '"']).nth(1)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_is_found_without_running_python() {
        let folder = tempfile::tempdir().unwrap();
        let torch = folder.path().join("lib/python3.11/site-packages/torch");
        fs::create_dir_all(&torch).unwrap();
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        let python = folder.path().join("bin/python");
        fs::write(&python, "").unwrap();
        assert_eq!(look_at(&python, "here").torch, None);
        fs::write(torch.join("version.py"), "__version__ = '2.11.0+cu130'\ndebug = False\n")
            .unwrap();
        assert_eq!(look_at(&python, "here").torch.as_deref(), Some("2.11.0+cu130"));

        assert!(!look_at(&python, "here").torch_is_compiled());
        let cached = torch.join("_inductor/__pycache__");
        fs::create_dir_all(&cached).unwrap();
        fs::write(cached.join("compile_fx.cpython-311.pyc"), "").unwrap();
        assert!(look_at(&python, "here").torch_is_compiled());
    }
}
