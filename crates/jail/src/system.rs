//! What programs need of the system: libraries, interpreters, GPU devices.

use std::path::{Path, PathBuf};

use crate::spec::{Access, Gpu, Mount, Spec};

/// Folders of programs and libraries; links among them (merged `/usr`) stay links.
const FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What the dynamic linker and the alternatives system read.
const ETC: [&str; 5] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
];

impl Spec {
    /// Shows what ordinary programs need: `/usr` and its kin and the linker's configuration, read-only.
    /// `/proc`, a minimal `/dev`, `/tmp`, a home and a synthetic `/etc/passwd` are always there.
    #[must_use]
    pub fn with_system(mut self) -> Self {
        for folder in FOLDERS.iter().chain(&ETC).map(Path::new) {
            self.add_system(folder);
        }
        self
    }

    /// Shows a Python installation: a virtual environment, its interpreter, or any prefix with
    /// `bin/python3`, and whatever base installation it leads to by links and `pyvenv.cfg`. The parts keep
    /// their names, so the interpreter's path outside is its path inside.
    #[must_use]
    pub fn with_python(mut self, python: &Path) -> Self {
        for prefix in python_prefixes(python) {
            if !FOLDERS.iter().any(|folder| prefix.starts_with(folder)) && prefix != Path::new("/")
            {
                self.add_system(&prefix);
            }
        }
        self
    }

    /// Sets GPU access, with what the driver needs to be seen.
    #[must_use]
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.gpu = gpu;
        self.mounts.retain(|mount| !mount.device);
        if gpu != Gpu::None {
            for path in gpu_devices(gpu) {
                self.mounts.push(Mount {
                    device: true,
                    access: Access::ReadWrite,
                    ..Mount::read_only(path)
                });
            }
            for path in ["/sys", "/usr/local/nvidia", "/opt/nvidia"].map(Path::new) {
                if path.exists() && !self.mounts.iter().any(|mount| path.starts_with(&mount.target))
                {
                    self.add_system(path);
                }
            }
        }
        self
    }

    fn add_system(&mut self, path: &Path) {
        let Ok(meta) = path.symlink_metadata() else { return };
        let known = |target: &Path| self.mounts.iter().any(|mount| mount.target == target);
        if meta.is_symlink() && FOLDERS.map(Path::new).contains(&path) {
            if let Ok(points_to) = fs_err::read_link(path)
                && self.symlinks.iter().all(|(link, _)| link != path)
            {
                self.symlinks.push((path.into(), points_to));
            }
        } else if let Ok(source) = fs_err::canonicalize(path)
            && !known(path)
        {
            self.mounts.push(Mount { system: true, ..Mount::new(source, path, Access::ReadOnly) });
        }
    }
}

/// Every installation prefix between a name of a Python and the interpreter that really runs.
fn python_prefixes(python: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(python).unwrap_or_else(|_| python.into());
    let mut prefixes: Vec<PathBuf> = Vec::new();
    let mut add = |prefix: PathBuf| {
        if let Ok(real) = fs_err::canonicalize(&prefix) {
            for path in [prefix, real] {
                if !prefixes.contains(&path) {
                    prefixes.push(path);
                }
            }
        }
    };
    let mut interpreter = if absolute.is_dir() { absolute.join("bin/python3") } else { absolute };
    if !interpreter.exists() {
        interpreter.set_file_name("python");
    }
    let prefix_of = |binary: &Path| binary.parent().and_then(Path::parent).map(Path::to_path_buf);
    if let Some(prefix) = prefix_of(&interpreter) {
        let config = fs_err::read_to_string(prefix.join("pyvenv.cfg")).unwrap_or_default();
        let home = config
            .lines()
            .find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('='));
        add(prefix);
        if let Some(base) = home.and_then(|home| Path::new(home.trim()).parent()) {
            add(base.into());
        }
    }
    // A chain of links; forty is the kernel's own bound.
    for _ in 0..40 {
        let Ok(next) = fs_err::read_link(&interpreter) else { break };
        interpreter = interpreter.parent().unwrap_or(Path::new("/")).join(next);
        if let Some(prefix) = prefix_of(&interpreter) {
            add(prefix);
        }
    }
    prefixes
}

/// The NVIDIA device nodes of this machine that such a program sees.
fn gpu_devices(gpu: Gpu) -> Vec<PathBuf> {
    let seen = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| sees(gpu, name))
    };
    let mut found: Vec<PathBuf> = fs_err::read_dir("/dev")
        .map(|entries| {
            entries.flatten().map(|entry| entry.path()).filter(|path| seen(path)).collect()
        })
        .unwrap_or_default();
    found.sort();
    found
}

/// Whether such a program sees the node of this name in `/dev`.
fn sees(gpu: Gpu, name: &str) -> bool {
    let Some(rest) = name.strip_prefix("nvidia") else { return false };
    let is_gpu = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    match gpu {
        Gpu::None => false,
        Gpu::One(minor) if is_gpu => rest == minor.to_string(),
        Gpu::All if is_gpu => true,
        Gpu::All | Gpu::One(_) => matches!(rest, "ctl" | "-uvm" | "-uvm-tools" | "-caps"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_selected_gpu_is_visible() {
        let nodes =
            ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"];
        let seen = |gpu| nodes.into_iter().filter(|name| sees(gpu, name)).collect::<Vec<_>>();
        assert_eq!(seen(Gpu::None), Vec::<&str>::new());
        assert_eq!(seen(Gpu::All), nodes[..6]);
        assert_eq!(seen(Gpu::One(1)), ["nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"]);
    }

    #[test]
    fn virtual_environment_includes_its_base_python() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = fs_err::canonicalize(folder.path()).expect("its real name");
        for path in ["base/bin", "venv/bin"] {
            fs_err::create_dir_all(root.join(path)).expect("folders");
        }
        fs_err::write(root.join("base/bin/python3.11"), "").expect("an interpreter");
        let link =
            |to: &Path, at: &str| std::os::unix::fs::symlink(to, root.join(at)).expect("a link");
        link(&root.join("base"), "alias");
        link(&root.join("alias/bin/python3.11"), "venv/bin/python");
        link(Path::new("python"), "venv/bin/python3");
        fs_err::write(
            root.join("venv/pyvenv.cfg"),
            format!("home = {}/bin\n", root.join("alias").display()),
        )
        .expect("its configuration");
        for named in ["venv", "venv/bin/python"] {
            let mut prefixes = python_prefixes(&root.join(named));
            prefixes.sort();
            assert_eq!(
                prefixes,
                ["alias", "base", "venv"].map(|name| root.join(name)),
                "from {named}"
            );
        }
    }
}
