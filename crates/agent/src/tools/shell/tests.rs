use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use warpwright_record::findings::{Inspection, SanitizerCheck};
use warpwright_record::verdict::Stage;
use warpwright_test_support::{Need, missing};

use super::*;
use crate::scripted::{self, ScriptedJudge};
use crate::tools::files::NoAnswer;
use crate::workspace;

/// The workspace, judge and shell of an episode.
struct Scene {
    _folder: tempfile::TempDir,
    workspace: Workspace,
    shell: Shell,
    judge: ScriptedJudge,
    stop: AtomicBool,
}

impl Scene {
    fn new(speedups: &[f64]) -> Self {
        Self::with(scripted::shell(), speedups)
    }

    fn with(shell: Shell, speedups: &[f64]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace::for_tests(&folder.path().join("w"));
        let judge = ScriptedJudge::new(speedups);
        Self { _folder: folder, workspace, shell, judge, stop: AtomicBool::new(false) }
    }

    fn session(&self) -> Session<'_> {
        Session::new(&self.shell, &self.workspace, &self.judge, &self.stop)
    }
}

impl Session<'_> {
    fn order(&self, command: &str, seconds: f64, background: bool) -> Ran {
        let timeout = Duration::from_secs_f64(seconds);
        let order = Order { command, timeout, until: None, background, restart: false };
        Session::run(self, order).unwrap()
    }
    fn bash(&self, command: &str) -> Ran {
        self.order(command, 120.0, false)
    }
    fn text(&self, command: &str) -> String {
        self.bash(command).text
    }
    fn shown(&self, id: &str, filter: Option<&str>) -> String {
        match self.jobs.show(id, filter) {
            Ok(text) | Err(NoAnswer::Refused(text)) => text,
            Err(NoAnswer::Ours(error)) => panic!("{error}"),
        }
    }
}

/// Whether the condition becomes true; false only if something hangs.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_mins(2);
    while Instant::now() < until {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Processes of the host whose command line holds a text.
pub(crate) fn processes_with(text: &str) -> usize {
    let own = std::process::id().to_string();
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy() != own)
        .filter_map(|entry| fs_err::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

/// A number of seconds that no other test sleeps, to be found by.
pub(crate) fn unique_seconds() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::SeqCst);
    format!("9{}{count}", std::process::id())
}

#[test]
fn command_runs_in_the_workspace_and_reports_its_exit_code() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let ran = session.bash("echo out; echo err >&2; echo new > kernels/a.cu; (exit 3)");
    assert_eq!(ran.text, "out\nerr\n[exit code 3]\n");
    assert_eq!(ran.status, ToolStatus::Error);
    assert_eq!(scene.workspace.files().read("kernels/a.cu", 10).unwrap(), b"new\n");
    // What the jailed user made is ours to replace, and the other way round.
    scene.workspace.files().write("kernels/a.cu", b"ours").unwrap();
    assert_eq!(session.text("cat kernels/a.cu; echo theirs > kernels/a.cu"), "ours");
    assert_eq!(scene.workspace.files().read("kernels/a.cu", 10).unwrap(), b"theirs\n");
}

#[test]
fn shell_state_persists_between_commands() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let first =
        "cd kernels; x=5; export Y=6; f() { echo \"f $x\"; }; sleep 300 & echo $! > /tmp/job";
    assert_eq!(session.text(first), "");
    let inside = session.text("pwd");
    assert!(inside.ends_with("/kernels\n"), "{inside}");
    assert_eq!(
        session.text("f; sh -c 'echo $Y'; kill -0 $(cat /tmp/job) && echo alive"),
        "f 5\n6\nalive\n"
    );
    // What a command does to its own streams, or asks of the shell's strictness, does not.
    assert_eq!(session.text("exec > /dev/null 2>&1; set -eux; echo unseen; true"), "");
    assert_eq!(session.text("echo $not_set; false; echo seen"), "\nseen\n");
    assert_eq!(session.bash("echo 'unfinished").status, ToolStatus::Error);
    assert_eq!(session.text("read line; echo \"[$line]\"; echo to > /dev/stdout"), "[]\nto\n");
    assert_eq!(session.text("cat <<END\nhere\nEND\n"), "here\n");
    let other = scene.session();
    assert!(!other.text("pwd").contains("kernels"), "another episode has another shell");
}

#[test]
fn scripts_ask_the_judge_and_exit_with_its_result() {
    let scene = Scene::new(&[1.0, 2.0]);
    let session = scene.session();
    let command =
        "bash utils/compile.sh && python3 -m utils.verification && python3 -m utils.profiling";
    let ran = session.bash(command);
    assert_eq!(
        ran.text,
        "failed to take the candidate: there is no model_new.py in the workspace\n[exit code 1]\n"
    );
    assert!(ran.judged.is_empty());
    scene.workspace.files().write("model_new.py", b"new").unwrap();
    let ran = session.bash(command);
    let stages: Vec<_> = ran.judged.iter().map(|j| j.verdict.stage).collect();
    assert_eq!(stages, [Stage::Built, Stage::Verified, Stage::Measured], "{}", ran.text);
    assert!(ran.text.starts_with("BUILD OK"), "{}", ran.text);
    // The third has no number in the script: not verified, so the script fails.
    assert_eq!(ran.status, ToolStatus::Error, "{}", ran.text);
}

#[test]
fn inspection_options_give_findings_and_no_verdict() {
    let scene = Scene::new(&[1.0]);
    let session = scene.session();
    scene.workspace.files().write("model_new.py", b"new").unwrap();
    let asked = |command: &str| {
        let ran = session.bash(command);
        assert!(ran.judged.is_empty() && ran.text.contains("NOT AVAILABLE"), "{}", ran.text);
        assert_eq!(ran.status, ToolStatus::Error, "{}", ran.text);
        ran.findings.into_iter().map(|found| found.inspection).collect::<Vec<_>>()
    };
    assert_eq!(asked("python3 -m utils.profiling --kernels"), [Inspection::Kernels]);
    assert_eq!(asked("python3 -m utils.profiling --counters"), [Inspection::Counters]);
    let sanitize = |checks: &[SanitizerCheck]| Inspection::Sanitize { checks: checks.to_vec() };
    assert_eq!(
        asked("python3 -m utils.verification --sanitize"),
        [sanitize(&[SanitizerCheck::Memcheck, SanitizerCheck::Racecheck])]
    );
    assert_eq!(
        asked("python3 -m utils.verification --sanitize synccheck"),
        [sanitize(&[SanitizerCheck::Synccheck])]
    );
    for wrong in ["utils.profiling --kernel", "utils.verification --sanitize all"] {
        let ran = session.bash(&format!("python3 -m {wrong}"));
        assert!(ran.findings.is_empty() && ran.text.contains("usage: "), "{}", ran.text);
        assert!(ran.text.contains("[exit code 2]"), "{}", ran.text);
    }
}

#[test]
fn verdict_is_recorded_only_for_the_call_that_asked() {
    let scene = Scene::new(&[1.0; 8]);
    let session = scene.session();
    scene.workspace.files().write("model_new.py", b"new").unwrap();
    let asked_later = "(until [ -e go ]; do sleep 0.05; done; \
                       bash utils/compile.sh > later 2>&1; echo $? >> later) & true";
    assert!(session.bash(asked_later).judged.is_empty());
    scene.workspace.files().write("go", b"").unwrap();
    let later = || scene.workspace.files().read("later", 10_000).unwrap_or_default();
    assert!(eventually(|| later().ends_with(b"1\n")));
    let refusal = String::from_utf8(later()).unwrap();
    assert!(refusal.contains("only during a foreground Bash call"), "{refusal}");
    let ran = session.bash("bash utils/compile.sh");
    assert_eq!((ran.judged.len(), ran.status), (1, ToolStatus::Ok), "control: {}", ran.text);
    session.order("bash utils/compile.sh", 20.0, true);
    assert!(eventually(|| session.shown("bash_1", None).contains("ended with exit code 1")));
}

#[test]
fn read_only_files_cannot_be_changed_from_the_shell() {
    let scene = Scene::new(&[]);
    let session = scene.session();
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
        let ran = session.bash(attempt);
        assert_ne!(ran.status, ToolStatus::Ok, "{attempt}: {}", ran.text);
    }
    let control = "echo x >> notes; mv notes other; chmod 777 other; rm other; ln -s a b";
    assert_eq!(session.bash(control).status, ToolStatus::Ok, "positive control");
    let again = workspace::for_tests(&scene.workspace.path().with_file_name("again"));
    for name in ["SKILL.md", "model.py", "utils/verification.py"] {
        let left = scene.workspace.files().read(name, 1 << 20).unwrap();
        assert_eq!(left, again.files().read(name, 1 << 20).unwrap(), "{name}");
    }
}

#[test]
fn timed_out_command_is_stopped_and_the_shell_continues() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    session.bash("x=kept; sleep 300 & echo $! > /tmp/job");
    let waits = [
        "sleep 600; echo late",
        "(trap '' TERM INT USR1; while :; do sleep 600; done); echo late",
        "while :; do :; done; echo late",
        "f() { while :; do sleep 1; done; }; f; sleep 600",
        "cat /dev/zero | cat > /dev/null | sleep 600; echo late",
        "y=$(sleep 600); echo late",
        "wait; echo late",
    ];
    for command in waits {
        let ran = session.order(command, 0.5, false);
        assert_eq!(ran.status, ToolStatus::TimedOut, "{command}: {}", ran.text);
        assert!(
            ran.text.contains("[stopped after 0.5 s; the running command was killed"),
            "{command}: {}",
            ran.text
        );
        assert!(!ran.text.contains("late\n"), "{command}: {}", ran.text);
    }
    let left = session
        .text("echo $x; kill -0 $(cat /tmp/job) && echo alive; ps -e -o comm= | grep -c cat");
    assert!(left.starts_with("kept\nalive\n0\n"), "{left}");
}

#[test]
fn unresponsive_shell_is_restarted_with_a_notice() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    session.bash("x=1; echo 1 > /tmp/file");
    let ran = session.order("trap '' USR1; while :; do :; done", 0.5, false);
    assert_eq!(ran.status, ToolStatus::TimedOut);
    assert!(ran.text.contains("the shell did not respond"), "{}", ran.text);
    assert_eq!(session.text("echo \"[$x]\"; cat /tmp/file"), "[]\n1\n");
}

#[test]
fn exited_shell_is_replaced_with_a_notice() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    session.order("sleep 300", 1.0, true);
    for (command, words) in [
        ("x=1; echo a; exit 3", "a\n[exit code 3]\n[the shell itself ended"),
        ("x=1; kill -9 $$", "[exit code 137]\n[the shell itself ended"),
        ("x=1; exec true", "[exit code 0]\n[the shell itself ended"),
        ("x=1; set -e; false; echo b", "[exit code 1]\n[the shell itself ended"),
    ] {
        let ran = session.bash(command);
        // Bash itself complains of `set -e` inside an evaluated command.
        assert!(ran.text.contains(words), "{command}: {}", ran.text);
        assert_eq!(session.text("echo \"[$x]\"; pwd | wc -l"), "[]\n1\n", "{command}");
    }
    assert!(session.shown("bash_1", None).contains("running"), "background commands go on");
    // This spares the shell itself, but not its keeper, and with that the jail ends.
    let mut said = session.text("kill -9 -1");
    assert!(eventually(|| {
        said.push_str(&session.text("echo again"));
        said.contains("variables, functions and the working directory are gone")
    }));
    assert!(eventually(|| session.text("echo again") == "again\n"));
    assert!(session.shown("bash_1", None).contains("gone"), "with the jail they end");
}

#[test]
fn background_command_output_is_read_and_it_can_be_killed() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    session.bash("cd kernels; greeting=hello");
    let ran = session.order(
        "echo $greeting; pwd; for i in 1 2 3; do sleep 0.3; echo line $i; done; exit 7",
        1.0,
        true,
    );
    assert!(ran.text.starts_with("started bash_1"), "{}", ran.text);
    let mut all = String::new();
    assert!(eventually(|| {
        all.push_str(&session.shown("bash_1", None));
        all.contains("[bash_1: ended with exit code 7]")
    }));
    assert!(all.contains("hello\n") && all.contains("/kernels\n"), "{all}");
    assert_eq!(all.matches("line 2\n").count(), 1, "each piece is shown once: {all}");
    let seconds = unique_seconds();
    session.order(&format!("echo one; echo two; sleep {seconds} & sleep {seconds}"), 1.0, true);
    assert!(eventually(|| processes_with(&seconds) >= 2), "control: they run");
    let mut filtered = String::new();
    assert!(eventually(|| {
        filtered = session.shown("bash_2", Some("^t"));
        filtered.contains("two")
    }));
    insta::assert_snapshot!(filtered, @"
    two
    [bash_2: running]
    ");
    assert_eq!(session.text("echo free"), "free\n", "the shell is free meanwhile");
    insta::assert_snapshot!(session.jobs.kill("bash_2").unwrap().split(':').next().unwrap(), @"killed bash_2");
    assert!(eventually(|| processes_with(&seconds) == 0));
    insta::assert_snapshot!(session.shown("bash_2", None), @"
    (no new output)
    [bash_2: killed]
    ");
    insta::assert_snapshot!(session.shown("bash_9", None), @"failed to find bash_9 among the background commands: bash_1, bash_2");
    assert!(session.shown("bash_1", Some("(")).contains("failed to use the pattern"));
    for _ in 0..job::MAX_RUNNING {
        assert_eq!(session.order("sleep 300", 1.0, true).status, ToolStatus::Ok);
    }
    let refused = session.order("sleep 300", 1.0, true);
    assert!(refused.text.contains("end one with KillBash"), "{}", refused.text);
}

#[test]
fn an_interrupt_kills_the_running_command() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let seconds = unique_seconds();
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let runs = eventually(|| processes_with(&seconds) > 0);
            scene.stop.store(true, Ordering::SeqCst);
            assert!(runs, "control: it runs");
        });
        session.order(&format!("sleep {seconds}"), 600.0, false)
    });
    assert!(ran.text.contains("[interrupted]"), "{}", ran.text);
    assert!(eventually(|| processes_with(&seconds) == 0));
}

#[test]
fn dropping_the_session_leaves_no_process() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let seconds = unique_seconds();
    session.order(&format!("sleep {seconds}"), 1.0, true);
    session.bash(&format!("(setsid sleep {seconds} &) ; trap '' TERM HUP; sleep {seconds} &"));
    assert!(eventually(|| processes_with(&seconds) >= 3), "control: they run");
    drop(session);
    assert!(eventually(|| processes_with(&seconds) == 0));
}

#[test]
fn oversized_output_loses_its_middle_with_a_notice() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let ran = session.bash("echo first; seq 1 1000000; echo last");
    assert!(ran.text.starts_with("first\n") && ran.text.ends_with("last\n"));
    assert!(ran.text.contains("left out"), "{}", &ran.text[..200]);
    assert!(ran.text.len() < MAX_OUTPUT_BYTES + 200, "{}", ran.text.len());
    assert_eq!(session.text("echo next"), "next\n");
}

#[test]
fn resumed_episode_gets_a_notice_of_its_new_shell() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    session.recall(false);
    session.recall(true);
    let first = session.text("echo one");
    assert!(first.starts_with("one\n[the run was resumed"), "{first}");
    assert_eq!(session.text("echo two"), "two\n");
    assert!(session.shown("bash_1", None).contains("its shell is gone"));
    let next = session.order("true", 1.0, true);
    assert!(next.text.starts_with("started bash_2"), "{}", next.text);
}

#[test]
fn restart_ends_all_processes_and_begins_a_new_shell() {
    let scene = Scene::new(&[]);
    let session = scene.session();
    let seconds = unique_seconds();
    session.bash(&format!("x=1; setsid sleep {seconds} & true"));
    assert!(eventually(|| processes_with(&seconds) > 0));
    let timeout = Duration::from_mins(2);
    let order =
        Order { command: "echo \"[$x]\"", timeout, until: None, background: false, restart: true };
    let text = Session::run(&session, order).unwrap().text;
    assert!(text.starts_with("[]\n[the shell and everything in it was ended"), "{text}");
    assert_eq!(processes_with(&seconds), 0);
}

/// Landlock cannot rename and has no process namespace: the shell must work there too.
#[test]
fn shell_works_on_every_jail_backend() {
    use warpwright_jail::{Backend, Jail};
    for (backend, need) in [
        (Backend::Namespaces, Need::Root),
        (Backend::Bubblewrap, Need::Bubblewrap),
        (Backend::UserNamespaces, Need::UserNamespaces),
        (Backend::Landlock, Need::Landlock),
    ] {
        let jail = match Jail::with_backend(backend) {
            Ok(jail) => jail,
            Err(error) => {
                eprintln!("{error}");
                missing(need);
                continue;
            }
        };
        let scene = Scene::with(Shell::new(jail, Provision::default()), &[]);
        let session = scene.session();
        let name = backend.name();
        assert_eq!(session.text("x=1; cd kernels; echo $x > a.cu"), "", "{name}");
        assert_eq!(session.text("echo $x; cat a.cu; basename $PWD"), "1\n1\nkernels\n", "{name}");
        let ran = session.order("sleep 600", 0.3, false);
        assert!(ran.text.contains("the shell continues"), "{name}: {}", ran.text);
        let seconds = unique_seconds();
        let started = session.order(&format!("echo at work; sleep {seconds}"), 1.0, true);
        assert_eq!(started.status, ToolStatus::Ok, "{name}: {}", started.text);
        assert!(eventually(|| processes_with(&seconds) > 0), "{name}");
        session.jobs.kill("bash_1").unwrap();
        assert!(eventually(|| processes_with(&seconds) == 0), "{name}");
        let mut all = String::new();
        assert!(
            eventually(|| {
                all.push_str(&session.shown("bash_1", None));
                all.contains("at work\n")
            }),
            "{name}: {all}"
        );
        let ended = session.text("exit 2");
        assert!(ended.contains("the shell itself ended"), "{name}: {ended}");
        assert_eq!(session.text("echo [$x]; basename $PWD | wc -l"), "[]\n1\n", "{name}");
    }
}
