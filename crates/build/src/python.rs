//! Finds an interpreter's headers and packages, and its torch, by reading files. Importing torch
//! takes two seconds, and every start needs this information.

use std::path::{Path, PathBuf};

use fs_err as fs;

/// A Python interpreter and its folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Path as the caller gave it; a virtual environment's link is not resolved.
    pub path: PathBuf,
    /// `3.11`.
    pub version: String,
    /// Folder with `Python.h`, if the headers are installed.
    pub include: Option<PathBuf>,
    /// Folders with packages, in the interpreter's order.
    pub site_packages: Vec<PathBuf>,
    /// Folders that the interpreter needs to start: its prefix and its base's prefix.
    pub prefixes: Vec<PathBuf>,
}

/// An installed torch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// The package's folder.
    pub root: PathBuf,
    /// `torch.__version__`.
    pub version: String,
    /// CUDA version of the build; `None` for a build without CUDA.
    pub cuda: Option<String>,
    /// `_GLIBCXX_USE_CXX11_ABI` of its libraries.
    pub cxx11_abi: bool,
}

impl Python {
    /// Reads the installation around `path`. `None` if there is no interpreter.
    pub fn find(path: &Path) -> Option<Self> {
        let real = fs::canonicalize(path).ok()?;
        let base = real.parent()?.parent()?.to_owned();
        let own = path.parent()?.parent()?;
        let settings = fs::read_to_string(own.join("pyvenv.cfg")).ok();
        let setting = |key: &str| {
            let text = settings.as_deref()?;
            let line =
                text.lines().find(|l| l.split('=').next().is_some_and(|k| k.trim() == key))?;
            Some(line.split_once('=')?.1.trim().to_owned())
        };
        let version = version_of(&real, &base).or_else(|| {
            let full = setting("version").or_else(|| setting("version_info"))?;
            Some(full.splitn(3, '.').take(2).collect::<Vec<_>>().join("."))
        })?;
        let lib = format!("lib/python{version}");
        let mut site_packages = Vec::new();
        let mut prefixes = vec![base.clone()];
        if settings.is_some() {
            let own = std::path::absolute(own).ok()?;
            site_packages.push(own.join(&lib).join("site-packages"));
            prefixes.push(own);
        }
        if settings.is_none() || setting("include-system-site-packages").as_deref() == Some("true")
        {
            for prefix in [Path::new("/usr/local"), &base] {
                site_packages.push(prefix.join(&lib).join("site-packages"));
                site_packages.push(prefix.join(&lib).join("dist-packages"));
            }
            site_packages.push("/usr/lib/python3/dist-packages".into());
        }
        site_packages.retain(|p| p.is_dir());
        let include = base.join(format!("include/python{version}"));
        let include = include.join("Python.h").is_file().then_some(include);
        Some(Self { path: path.to_owned(), version, include, site_packages, prefixes })
    }

    /// The torch that this interpreter would import.
    pub fn torch(&self) -> Option<Torch> {
        let root = self
            .site_packages
            .iter()
            .map(|site| site.join("torch"))
            .find(|root| root.join("version.py").is_file())?;
        let text = fs::read_to_string(root.join("version.py")).ok()?;
        let config = root.join("share/cmake/Torch/TorchConfig.cmake");
        // Wheels before 2.6 still had the old ABI; they say so here. Later ones have the new one.
        let old = fs::read_to_string(config).is_ok_and(|t| t.contains("_GLIBCXX_USE_CXX11_ABI=0"));
        Some(Torch {
            version: assigned(&text, "__version__")?,
            cuda: assigned(&text, "cuda"),
            cxx11_abi: !old,
            root,
        })
    }
}

/// The version in the name, as in `python3.11`; for a bare `python3`, that of its library folder.
fn version_of(real: &Path, base: &Path) -> Option<String> {
    let name = real.file_name()?.to_str()?;
    if let Some(version) = name.strip_prefix("python")
        && version.contains('.')
    {
        return Some(version.trim_end_matches(|c: char| c.is_alphabetic()).to_owned());
    }
    let mut found: Vec<String> = fs::read_dir(base.join("lib"))
        .ok()?
        .filter_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("python3.").map(str::to_owned))
        .filter(|minor| minor.bytes().all(|b| b.is_ascii_digit()))
        .collect();
    found.sort();
    found.pop().map(|minor| format!("3.{minor}"))
}

/// The string assigned by `name = '...'` or `name: T = '...'`.
fn assigned(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| {
        let left = line.split('=').next().unwrap_or_default();
        left.split(':').next().is_some_and(|n| n.trim() == name)
    })?;
    let value = line.split_once('=')?.1.trim();
    let quoted = value.strip_prefix(['\'', '"'])?;
    Some(quoted.trim_end_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_version_file_is_parsed() {
        let text = "from typing import Optional\n__all__ = ['__version__', 'cuda']\n\
             __version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n";
        assert_eq!(assigned(text, "__version__").as_deref(), Some("2.11.0+cu130"));
        assert_eq!(assigned(text, "cuda").as_deref(), Some("13.0"));
        assert_eq!(assigned(text, "hip"), None);
    }

    #[test]
    fn virtual_environment_and_its_base_are_found() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        for folder in [
            "base/bin",
            "base/include/python3.12",
            "venv/bin",
            "venv/lib/python3.12/site-packages/torch",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("base/bin/python3.12"), "").unwrap();
        fs::write(root.join("base/include/python3.12/Python.h"), "").unwrap();
        fs::write(root.join("venv/pyvenv.cfg"), "home = x\nversion = 3.12.1\n").unwrap();
        let version = root.join("venv/lib/python3.12/site-packages/torch/version.py");
        fs::write(version, "__version__ = '2.11.0'\ncuda = None\n").unwrap();
        let link = root.join("venv/bin/python");
        std::os::unix::fs::symlink(root.join("base/bin/python3.12"), &link).unwrap();

        let python = Python::find(&link).unwrap();
        assert_eq!(python.version, "3.12");
        assert_eq!(python.include, Some(root.join("base/include/python3.12")));
        assert_eq!(python.prefixes, [root.join("base"), root.join("venv")]);
        let torch = python.torch().unwrap();
        assert_eq!((torch.version.as_str(), torch.cuda), ("2.11.0", None));
        assert!(torch.cxx11_abi);
        assert_eq!(Python::find(&root.join("none")), None);
    }
}
