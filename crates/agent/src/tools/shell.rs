//! Runs one command of the policy in the jail, with the judge's socket beside it.
//!
//! Inside: the workspace (its read-only part mounted read-only), the interpreter and compilers
//! read-only, a private `/tmp`, no network, no GPU. Every command is a new jail: what it leaves
//! running dies with it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use warpwright_jail::{Access, Jail, JailError, Limits, Mount, Outcome, Spec};
use warpwright_record::message::ToolStatus;

use crate::elide::elide_middle;
use crate::judge::{Judge, JudgeUnavailable};
use crate::service::{self, Answered, Closer, Judged};
use crate::workspace::{JAILED_PATH, READ_ONLY, Workspace};

/// Most bytes of output that a policy sees of one command.
pub const MAX_OUTPUT_BYTES: usize = 30_000;
/// Largest file a command may write: the workspace lies on the user's disk.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The judge's socket, where the jail can give it a name of its own.
const SOCKET_PATH: &str = "/run/warpwright/judge.sock";
/// How often an interrupt is looked for.
const POLL: Duration = Duration::from_millis(100);

/// What commands can use.
#[derive(Clone, Debug, Default)]
pub struct Provision {
    /// Interpreter with torch; `python3` inside.
    pub python: Option<PathBuf>,
    /// Folders shown read-only under their own names, e.g. a CUDA toolkit.
    pub folders: Vec<PathBuf>,
    /// Folders searched for programs before the system's.
    pub path: Vec<PathBuf>,
    /// Resident memory of a command and what it starts, if bounded.
    pub memory_bytes: Option<u64>,
}

/// A way to run commands.
#[derive(Clone, Debug)]
pub struct Shell {
    jail: Jail,
    provision: Provision,
}

/// A command that came to an end.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ToolStatus,
    pub(crate) text: String,
    pub(crate) judged: Vec<Judged>,
    pub(crate) unavailable: Option<JudgeUnavailable>,
}

/// Our own failure to run a command.
#[derive(Debug, Error)]
pub enum ShellError {
    /// The jail failed.
    #[error(transparent)]
    Jail(#[from] JailError),
    /// The judge's socket could not be made.
    #[error("failed to make the judge's socket: {0}")]
    Socket(std::io::Error),
    /// The thread that answers requests died; a mistake of ours.
    #[error("failed to answer requests to the judge: the thread for them ended early")]
    Service,
}

impl Shell {
    /// Commands run in `jail`.
    pub fn new(jail: Jail, mut provision: Provision) -> Self {
        // A virtual environment is known by the link to its interpreter, so only the folder is
        // resolved: a mount's name may hold no `..`.
        provision.python = provision.python.map(|python| {
            let folder = python.parent().and_then(|folder| fs_err::canonicalize(folder).ok());
            match (folder, python.file_name()) {
                (Some(folder), Some(name)) => folder.join(name),
                _ => python,
            }
        });
        Self { jail, provision }
    }

    /// Runs a command line and answers its requests to the judge.
    pub(crate) fn run(
        &self,
        command: &str,
        timeout: Duration,
        workspace: &Workspace,
        judge: &dyn Judge,
        stop: &AtomicBool,
    ) -> Result<Ran, ShellError> {
        let folder = tempfile::Builder::new().prefix("warpwright-").tempdir();
        let folder = folder.map_err(ShellError::Socket)?;
        let socket = folder.path().join("judge.sock");
        let listener = service::listen(&socket).map_err(ShellError::Socket)?;
        let closer = Closer::new().map_err(ShellError::Socket)?;
        let spec = self.spec(command, timeout, workspace, &socket);
        let (finished, answered) = std::thread::scope(|scope| {
            let serving = scope.spawn(|| service::serve(&listener, &closer, workspace, judge));
            let finished = self.wait(spec, stop);
            closer.close();
            (finished, serving.join())
        });
        let Answered { judged, unavailable } = answered.map_err(|_| ShellError::Service)?;
        let finished = finished?;
        let mut output = finished.stdout.text();
        // Bash writes to descriptor 2 itself before the redirection below takes effect, if at all.
        output.push_str(&finished.stderr.text());
        let mut text = elide_middle(&output, MAX_OUTPUT_BYTES);
        let (status, note) = end(finished.outcome, timeout);
        if let Some(note) = note {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&note);
            text.push('\n');
        }
        Ok(Ran { status, text, judged, unavailable })
    }

    fn wait(&self, spec: Spec, stop: &AtomicBool) -> Result<warpwright_jail::Finished, JailError> {
        let mut child = self.jail.spawn(spec)?;
        while !child.wait_timeout(POLL)? {
            if stop.load(Ordering::SeqCst) {
                child.kill();
                break;
            }
        }
        child.wait()
    }

    fn spec(&self, command: &str, timeout: Duration, workspace: &Workspace, socket: &Path) -> Spec {
        let renames = self.jail.can_rename();
        let inside = if renames { PathBuf::from(JAILED_PATH) } else { workspace.path().to_owned() };
        let socket_inside = if renames { PathBuf::from(SOCKET_PATH) } else { socket.to_owned() };
        let mut path: Vec<PathBuf> = Vec::new();
        path.extend(self.provision.python.as_deref().and_then(Path::parent).map(Path::to_owned));
        path.extend(self.provision.path.iter().cloned());
        path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
        let path: Vec<_> = path.iter().map(|p| p.to_string_lossy()).collect();
        let limits = Limits {
            wall: timeout,
            memory_bytes: self.provision.memory_bytes,
            output_bytes: 4 * MAX_OUTPUT_BYTES,
            file_bytes: MAX_FILE_BYTES,
            ..Limits::default()
        };
        // One stream, so that messages stay in their order.
        let mut spec = Spec::new("bash")
            .label("agent shell")
            .args(["-c".to_owned(), format!("exec 2>&1\n{command}")])
            .with_system()
            .cwd(&inside)
            .env("PATH", path.join(":"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("WARPWRIGHT_JUDGE_SOCKET", socket_inside.to_string_lossy())
            .limits(limits)
            .mount(Mount::new(workspace.path(), &inside, Access::ReadWrite))
            .mount(Mount::new(socket, socket_inside, Access::ReadWrite));
        for name in READ_ONLY {
            let (outside, inside) = (workspace.path().join(name), inside.join(name));
            spec = spec.mount(Mount::new(outside, inside, Access::ReadOnly));
        }
        if let Some(python) = &self.provision.python {
            spec = spec.with_python(python);
        }
        for folder in &self.provision.folders {
            spec = spec.read_only(folder);
        }
        spec
    }
}

fn end(outcome: Outcome, timeout: Duration) -> (ToolStatus, Option<String>) {
    match outcome {
        Outcome::Exited(0) => (ToolStatus::Ok, None),
        Outcome::Exited(code) => (ToolStatus::Error, Some(format!("[exit code {code}]"))),
        Outcome::Signalled(signal) => {
            (ToolStatus::Error, Some(format!("[killed by signal {signal}]")))
        }
        Outcome::DeadlineExceeded => {
            let seconds = timeout.as_secs();
            (
                ToolStatus::TimedOut,
                Some(format!("[stopped after {seconds} s; everything it started was killed]")),
            )
        }
        Outcome::CpuExceeded => {
            (ToolStatus::Error, Some("[stopped: too much CPU time]".to_owned()))
        }
        Outcome::OutOfMemory => (ToolStatus::Error, Some("[killed: out of memory]".to_owned())),
        Outcome::Killed => (ToolStatus::Error, Some("[interrupted]".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use warpwright_record::verdict::Stage;

    use super::*;
    use crate::scripted::{self, ScriptedJudge};
    use crate::workspace;

    struct Scene {
        _folder: tempfile::TempDir,
        workspace: Workspace,
        shell: Shell,
        judge: ScriptedJudge,
        stop: AtomicBool,
    }

    impl Scene {
        fn new(speedups: &[f64]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let workspace = workspace::for_tests(&folder.path().join("w"));
            let judge = ScriptedJudge::new(speedups);
            let stop = AtomicBool::new(false);
            Self { _folder: folder, workspace, shell: scripted::shell(), judge, stop }
        }
        fn run(&self, command: &str) -> Ran {
            self.run_for(command, Duration::from_secs(20))
        }
        fn run_for(&self, command: &str, timeout: Duration) -> Ran {
            self.shell.run(command, timeout, &self.workspace, &self.judge, &self.stop).unwrap()
        }
    }

    #[test]
    fn a_command_works_in_the_workspace_and_its_end_is_told() {
        let scene = Scene::new(&[]);
        let ran = scene.run("echo out; echo err >&2; echo new > kernels/a.cu; exit 3");
        assert_eq!(ran.text, "out\nerr\n[exit code 3]\n");
        assert_eq!(ran.status, ToolStatus::Error);
        assert_eq!(scene.workspace.files().read("kernels/a.cu", 10).unwrap(), b"new\n");
        // What the jailed user made is ours to replace.
        scene.workspace.files().write("kernels/a.cu", b"ours").unwrap();
        assert_eq!(scene.run("cat kernels/a.cu; echo theirs > kernels/a.cu").text, "ours");
        assert_eq!(scene.workspace.files().read("kernels/a.cu", 10).unwrap(), b"theirs\n");
    }

    #[test]
    fn the_scripts_ask_the_judge_and_exit_as_it_answers() {
        let scene = Scene::new(&[1.0, 2.0]);
        let command =
            "bash utils/compile.sh && python3 -m utils.verification && python3 -m utils.profiling";
        let ran = scene.run(command);
        assert_eq!(
            ran.text,
            "failed to take the candidate: there is no model_new.py in the workspace\n[exit code 1]\n"
        );
        assert!(ran.judged.is_empty());
        scene.workspace.files().write("model_new.py", b"new").unwrap();
        let ran = scene.run(command);
        let stages: Vec<_> = ran.judged.iter().map(|j| j.verdict.stage).collect();
        assert_eq!(stages, [Stage::Built, Stage::Verified, Stage::Measured], "{}", ran.text);
        assert!(ran.text.starts_with("BUILD OK"), "{}", ran.text);
        // The third has no number in the script: not verified, so the script fails.
        assert_eq!(ran.status, ToolStatus::Error, "{}", ran.text);
    }

    #[test]
    fn the_read_only_part_cannot_be_changed_from_the_shell() {
        let scene = Scene::new(&[]);
        let attempts = [
            "echo x >> SKILL.md",
            "rm model.py",
            "mv utils mine",
            "echo x > utils/verification.py",
            "touch utils/new.py",
            "chmod 777 binding.cpp",
            "ln -sf /etc/passwd binding_registry.h",
        ];
        for attempt in attempts {
            let ran = scene.run(attempt);
            assert_ne!(ran.status, ToolStatus::Ok, "{attempt}: {}", ran.text);
        }
        let control = "echo x >> notes; mv notes other; chmod 777 other; rm other; ln -s a b";
        assert_eq!(scene.run(control).status, ToolStatus::Ok, "positive control");
        let again = workspace::for_tests(&scene.workspace.path().with_file_name("again"));
        for name in ["SKILL.md", "model.py", "utils/verification.py"] {
            let left = scene.workspace.files().read(name, 1 << 20).unwrap();
            assert_eq!(left, again.files().read(name, 1 << 20).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_command_ends_at_its_deadline_with_all_it_started() {
        let scene = Scene::new(&[]);
        let begun = Instant::now();
        let ran = scene.run_for("(sleep 3; touch late) & sleep 600", Duration::from_secs(1));
        assert_eq!(ran.status, ToolStatus::TimedOut);
        assert!(ran.text.contains("stopped after 1 s"), "{}", ran.text);
        assert!(begun.elapsed() < Duration::from_secs(15));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!scene.workspace.files().exists("late"), "a child outlived its command");
    }

    #[test]
    fn an_interrupt_kills_the_running_command() {
        let scene = Scene::new(&[]);
        let begun = Instant::now();
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                scene.stop.store(true, Ordering::SeqCst);
            });
            scene.run_for("sleep 600", Duration::from_mins(10))
        });
        assert!(ran.text.contains("interrupted"), "{}", ran.text);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn output_loses_its_middle_and_says_so() {
        let scene = Scene::new(&[]);
        let ran = scene.run("echo first; seq 1 1000000; echo last");
        assert!(ran.text.starts_with("first\n") && ran.text.ends_with("last\n"));
        assert!(ran.text.contains("left out"), "{}", &ran.text[..200]);
        assert!(ran.text.len() < MAX_OUTPUT_BYTES + 200, "{}", ran.text.len());
    }
}
