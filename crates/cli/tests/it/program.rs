//! Runs the program and captures its exit code and output.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use warpwright_test_support::{Need, missing};

/// A temporary folder in which the program runs.
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    environment: Vec<(&'static str, PathBuf)>,
}

/// Exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// An empty folder, with the interpreter that `make test` sets up and the cache that all tests of the
    /// workspace share, so that artifacts and torch's headers are compiled once.
    pub(crate) fn new() -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let named = std::env::var_os("WARPWRIGHT_PYTHON").map(PathBuf::from);
        let python = named.unwrap_or_else(|| workspace.join(".venv/bin/python"));
        Self {
            folder: tempfile::tempdir().unwrap(),
            environment: vec![("WARPWRIGHT_PYTHON", python), ("WARPWRIGHT_CACHE", Self::shared())],
        }
    }

    fn shared() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("test-cache")
    }

    /// The cache folder.
    pub(crate) fn cache(&self) -> &Path {
        self.named("WARPWRIGHT_CACHE")
    }

    /// The Python interpreter.
    pub(crate) fn python(&self) -> &Path {
        self.named("WARPWRIGHT_PYTHON")
    }

    fn named(&self, variable: &str) -> &Path {
        &self.environment.iter().find(|(name, _)| *name == variable).unwrap().1
    }

    /// As [`Program::new`], without an interpreter and with an empty cache.
    pub(crate) fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        Self { folder, environment: vec![("WARPWRIGHT_CACHE", cache)] }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    #[expect(clippy::disallowed_types, reason = "the test starts the program under test")]
    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.other(env!("CARGO_BIN_EXE_warpwright"));
        command.args(arguments.iter().map(OsStr::new));
        command
    }

    /// Another program, in this folder and environment.
    #[expect(clippy::disallowed_types, reason = "the test starts programs")]
    pub(crate) fn other(&self, name: &str) -> std::process::Command {
        let mut command = std::process::Command::new(name);
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the tests of a Python package, in this folder.
    #[expect(clippy::disallowed_types, reason = "the test starts an interpreter")]
    pub(crate) fn python_tests(&self, package: &Path, environment: &[(&str, &str)]) -> Ran {
        let mut command = std::process::Command::new(self.python());
        command
            .args(["-B", "-m", "unittest", "discover"])
            .arg(package.join("tests"))
            .current_dir(self.folder.path())
            .env("PYTHONPATH", package.join("src"))
            .envs(environment.iter().copied());
        self.ran(command)
    }

    /// The page's DOM in a browser after its script has run; `None` if no browser is installed and
    /// `WARPWRIGHT_SKIP` allows that.
    #[expect(clippy::disallowed_types, reason = "a browser, which looks at what a user would")]
    pub(crate) fn browsed(&self, url: &str) -> Option<String> {
        let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
            let found = std::process::Command::new(name).arg("--version").output();
            found.is_ok_and(|ran| ran.status.success())
        });
        let Some(browser) = browser else {
            missing(Need::Browser);
            return None;
        };
        let profile = format!("--user-data-dir={}", self.path("browser").display());
        let ran = std::process::Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=8000",
                &profile,
            ])
            .args(["--dump-dom", url])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Some(String::from_utf8(ran.stdout).unwrap())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.ran(self.command(arguments))
    }

    #[expect(clippy::disallowed_types, reason = "the test starts programs")]
    pub(crate) fn ran(&self, mut command: std::process::Command) -> Ran {
        let output = command.output().unwrap();
        let folder = self.folder.path().display().to_string();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&folder, "[folder]");
        Ran {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ran {
    /// Exit code and output as text, for snapshots.
    pub(crate) fn show(&self) -> String {
        let mut shown = String::new();
        match self.code {
            Some(code) => writeln!(shown, "exit code {code}").unwrap(),
            None => writeln!(shown, "killed").unwrap(),
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                write!(shown, "--- {name}\n{text}").unwrap();
            }
        }
        shown
    }

    /// The JSON object on stdout, which must be the only line.
    pub(crate) fn object(&self) -> serde_json::Value {
        assert_eq!(
            self.stdout.trim_end().lines().count(),
            1,
            "exactly one object: {}",
            self.show()
        );
        let object = serde_json::from_str(&self.stdout);
        assert!(object.is_ok(), "not JSON: {}", self.show());
        object.unwrap()
    }
}

/// A small task: its verdict takes little time.
pub(crate) const TASK: &str = "\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + 1.0) * 0.5


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 256)]
";

/// A correct candidate for [`TASK`].
pub(crate) const MODEL_NEW: &str = "\
import torch
from torch import nn

import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        cuda_extension.relu_add(x, y, x.numel())
        return y
";

/// The kernel of that candidate.
pub(crate) const KERNEL: &str = "\
#include <cuda_runtime.h>

__global__ void relu_add_kernel(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + 1.0f, 0.0f) * 0.5f;
}

extern \"C\" int relu_add(const float* x, float* y, long long n, cudaStream_t stream) {
    relu_add_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
";
