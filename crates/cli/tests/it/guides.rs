//! Runs the commands of the guides in `docs/` as they are written.
//!
//! The plain `sh` blocks of a page run in order, as one bash script in an empty folder. Blocks that
//! need a GPU or something from outside have another info string: `sh gpu`, `sh needs=network`.

use std::io::{Read as _, Seek as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::program::Program;

/// Time limit for one page. A guide should take two minutes on two idle cores.
const TIMEOUT: Duration = Duration::from_secs(400);
/// Time limit for bash and its children to end after a signal.
const GRACE: Duration = Duration::from_secs(10);

macro_rules! pages {
    ($($test:ident: $page:literal,)+) => {
        /// Every page that has blocks to run, relative to `docs/`.
        const PAGES: &[&str] = &[$($page),+];

        $(
            #[test]
            fn $test() {
                run($page);
            }
        )+
    };
}

pages! {
    get_started: "get-started.md",
    connect_a_trainer: "guides/connect-a-trainer.md",
    deploy_a_kernel: "guides/deploy-a-kernel.md",
    divide_a_model: "guides/divide-a-model.md",
    evaluate_a_model: "guides/evaluate-a-model.md",
    make_tasks: "guides/make-tasks.md",
    optimise_a_module: "guides/optimise-a-module.md",
    read_a_trajectory: "guides/read-a-trajectory.md",
    run_a_judge_fleet: "guides/run-a-judge-fleet.md",
    run_an_experiment: "guides/run-an-experiment.md",
    train_a_policy: "guides/train-a-policy.md",
}

#[test]
fn every_guide_with_plain_shell_blocks_has_a_test() {
    let mut pages = vec!["get-started.md".to_owned()];
    let mut folders = vec![docs().join("guides")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(docs()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    pages.retain(|page| script(page).is_some());
    pages.sort();
    assert_eq!(pages, PAGES, "pages with plain `sh` blocks, and those with a test here");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn docs() -> PathBuf {
    repository().join("docs")
}

/// The plain blocks of a page as a script with the line numbers of the page; `None` without such
/// blocks. The first line, in place of the page's title, reports where a command failed, and ends
/// background processes.
fn script(page: &str) -> Option<String> {
    let text = fs_err::read_to_string(docs().join(page)).unwrap();
    assert!(text.starts_with("# "), "docs/{page}:1: a page begins with its title");
    // Bash outlives SIGTERM, to say which command it was that ran.
    let failed = format!(r#"trap 'echo "docs/{page}:$LINENO: exit code $?" >&2' ERR; trap : TERM"#);
    let mut lines =
        vec![format!("{failed}; trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT")];
    let mut blocks = 0;
    let mut block: Option<&str> = None;
    for (index, line) in text.lines().enumerate().skip(1) {
        let fence = line.trim_start().strip_prefix("```");
        match (block, fence) {
            (None, Some(info)) => {
                let shell = info == "sh" || info == "sh gpu" || info.starts_with("sh needs=");
                let other = ["", "text", "json", "toml", "python", "yaml", "diff"].contains(&info);
                assert!(shell || other, "docs/{page}:{}: a block of {info:?}", index + 1);
                blocks += usize::from(info == "sh");
                block = Some(info);
            }
            (Some(_), Some("")) => block = None,
            _ => {}
        }
        let runs = block == Some("sh") && fence.is_none();
        lines.push(if runs { line.to_owned() } else { String::new() });
    }
    assert_eq!(block, None, "docs/{page}: a block without an end");
    (blocks > 0).then(|| lines.join("\n") + "\n")
}

/// Runs the plain blocks of a page.
fn run(page: &str) {
    // Guides serve at the same port, and the judge measures: one at a time.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = script(page).unwrap();
    if script.contains("127.0.0.1:8000") {
        let free = TcpListener::bind("127.0.0.1:8000");
        assert!(free.is_ok(), "docs/{page} serves at port 8000, which is taken");
    }
    let program = Program::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("script");
    fs_err::write(&file, &script).unwrap();

    let bin = Path::new(env!("CARGO_BIN_EXE_warpwright")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)));
    // A file rather than a pipe: a process that outlives bash would keep a pipe open.
    let mut output = tempfile::tempfile().unwrap();
    let mut command = program.other("bash");
    command
        .args(["-Eeuo", "pipefail"])
        .arg(&file)
        .env("PATH", path.unwrap())
        .env("WARPWRIGHT_REPO", repository())
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap())
        .process_group(0);
    let mut child = command.spawn().unwrap();
    let mut ended = wait(&mut child, TIMEOUT);
    let in_time = ended.is_some();
    let group = Pid::from_child(&child);
    for signal in [Signal::TERM, Signal::KILL] {
        if ended.is_none() {
            kill_process_group(group, signal).unwrap();
            ended = wait(&mut child, GRACE);
        }
    }

    let mut bytes = Vec::new();
    output.rewind().unwrap();
    output.read_to_end(&mut bytes).unwrap();
    let told = String::from_utf8_lossy(&bytes);
    assert!(in_time, "docs/{page} takes more than {} s\n{told}", TIMEOUT.as_secs());
    assert!(ended.is_some_and(|status| status.success()), "docs/{page}: {ended:?}\n{told}");
}

/// The exit status of a process; `None` if it does not end in time.
fn wait(child: &mut std::process::Child, timeout: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        let ended = child.try_wait().unwrap();
        if ended.is_some() || Instant::now() >= deadline {
            return ended;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
