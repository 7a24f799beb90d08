//! Runs compilers in the jail.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use warpwright_jail::{Jail, JailError, Limits, Outcome, Spec};

use crate::error::BuildError;
use crate::settings::Settings;

/// A compiler and its mounts: the system, its working folder, and the named paths.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// For messages.
    pub tool: String,
    program: PathBuf,
    cwd: PathBuf,
    arguments: Vec<String>,
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    path: Vec<PathBuf>,
    python: bool,
}

/// Result of a run. The output is that of both streams, truncated by the jail.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Exited {
        code: i32,
        output: String,
    },
    /// A limit or a signal ended it; `reason` is a phrase.
    Stopped {
        reason: String,
        output: String,
    },
}

impl Command {
    pub(crate) fn new(tool: &str, program: &Path, cwd: &Path) -> Self {
        Self {
            tool: tool.to_owned(),
            program: program.to_owned(),
            cwd: cwd.to_owned(),
            arguments: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
            path: Vec::new(),
            python: false,
        }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_string_lossy().into_owned());
        self
    }

    pub(crate) fn args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Mounts a file or folder read-only.
    pub(crate) fn read(mut self, path: &Path) -> Self {
        self.readable.push(path.to_owned());
        self
    }

    /// Mounts a folder in which the program writes.
    pub(crate) fn write(mut self, path: &Path) -> Self {
        self.writable.push(path.to_owned());
        self
    }

    /// Prepends a folder to `PATH`.
    pub(crate) fn path_before(mut self, folder: &Path) -> Self {
        self.path.push(folder.to_owned());
        self
    }

    /// Mounts the installation of the program, which is a Python interpreter.
    pub(crate) fn with_python(mut self) -> Self {
        self.python = true;
        self
    }

    /// The arguments without the parts that differ between builds.
    pub(crate) fn stable_arguments(&self, tree: &Path) -> Vec<String> {
        let tree = tree.to_string_lossy().into_owned();
        self.arguments.iter().map(|a| a.replace(&tree, ".")).collect()
    }

    fn spec(&self, settings: &Settings) -> Spec {
        let mut path: Vec<String> = self.path.iter().map(|p| p.display().to_string()).collect();
        path.extend(self.program.parent().map(|p| p.display().to_string()));
        path.push("/usr/local/bin:/usr/bin:/bin".to_owned());
        let limits = Limits {
            // Processor time, so that a busy machine does not fail a candidate; the wall clock is
            // for what waits for ever.
            cpu: Some(Duration::from_secs_f64(settings.compile_seconds)),
            wall: Duration::from_secs_f64(60.0 + 6.0 * settings.compile_seconds),
            memory_bytes: Some(settings.compile_memory_bytes),
            processes: 256,
            // Nobody waits for it as those do who hold a device.
            yields: true,
            file_bytes: 1 << 30,
            ..Limits::default()
        };
        let mut spec = Spec::new(&self.program)
            .label(self.tool.clone())
            .args(self.arguments.iter().cloned())
            .env("PATH", path.join(":"))
            // Messages in one language, and with the quotes the parser knows.
            .env("LC_ALL", "C")
            .limits(limits)
            .with_system()
            .cwd(&self.cwd);
        if self.python {
            spec = spec.with_python(&self.program).env("PYTHONDONTWRITEBYTECODE", "1");
        }
        let mut writable = self.writable.clone();
        writable.sort();
        writable.dedup();
        let mut readable = self.readable.clone();
        readable.push(self.cwd.clone());
        readable.sort();
        readable.dedup();
        // The system is shown already, and a folder inside a shown folder needs no mount.
        let shown = |path: &Path, others: &[PathBuf]| {
            path.starts_with("/usr") || others.iter().any(|o| o != path && path.starts_with(o))
        };
        for path in readable.iter().filter(|p| !shown(p, &readable) && !writable.contains(p)) {
            spec = spec.read_only(path);
        }
        for path in &writable {
            spec = spec.read_write(path);
        }
        spec
    }
}

/// Runs a command to its end. A compiler that fails, or hits a limit, is not an error here.
pub(crate) fn run(
    jail: &Jail,
    command: &Command,
    settings: &Settings,
) -> Result<Ended, BuildError> {
    let failed = |error: JailError| {
        let hint = error.hint().map(|h| format!("\nhint: {h}")).unwrap_or_default();
        BuildError::Jail { tool: command.tool.clone(), reason: format!("{error}{hint}") }
    };
    let finished = jail.run(command.spec(settings)).map_err(failed)?;
    let output = finished.stdout.text() + &finished.stderr.text();
    let stopped = |reason: String, output| Ok(Ended::Stopped { reason, output });
    let seconds = settings.compile_seconds;
    match finished.outcome {
        Outcome::Exited(code) => Ok(Ended::Exited { code, output }),
        // The kernel's own limit speaks by SIGXCPU.
        Outcome::CpuExceeded | Outcome::Signalled(24) => {
            stopped(format!("it used more than {seconds} s of processor time"), output)
        }
        Outcome::DeadlineExceeded => {
            stopped(format!("it ran for more than {:.0} s", 60.0 + 6.0 * seconds), output)
        }
        Outcome::OutOfMemory => {
            let mebibytes = settings.compile_memory_bytes >> 20;
            stopped(format!("it used more than {mebibytes} MiB"), output)
        }
        Outcome::Signalled(signal) => stopped(format!("signal {signal} ended it"), output),
        Outcome::Killed => Err(BuildError::Jail {
            tool: command.tool.clone(),
            reason: "another process killed it".to_owned(),
        }),
    }
}

/// One line of the output of `program --version`: the `line`th, or the last if there are fewer.
pub(crate) fn version(
    jail: &Jail,
    program: &Path,
    folders: &[PathBuf],
    line: usize,
) -> Result<String, BuildError> {
    let mut command = Command::new("a compiler", program, Path::new("/tmp")).arg("--version");
    command.readable.extend(folders.iter().cloned());
    let broken =
        |reason: String| BuildError::BrokenTool { tool: program.display().to_string(), reason };
    match run(jail, &command, &Settings::default())? {
        Ended::Exited { code: 0, output } => {
            let lines: Vec<&str> = output.lines().filter(|l| !l.trim().is_empty()).collect();
            let chosen = lines.get(line).or(lines.last()).map(|l| l.trim().to_owned());
            chosen.ok_or_else(|| broken("it prints no version".to_owned()))
        }
        Ended::Exited { code, .. } => Err(broken(format!("--version ended with {code}"))),
        Ended::Stopped { reason, .. } => Err(broken(reason)),
    }
}
