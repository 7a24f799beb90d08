//! `trajectory` and `compare` read records only, without Python, torch or a device.

use insta::assert_snapshot;

use crate::program::Program;
use crate::suite;

/// A program in a folder with two runs: `run` over a small suite, and `host` with one episode on the cpu device.
fn program() -> Program {
    let program = Program::bare();
    drop(suite::write(&program.path("run")));
    let names = ["level1-1_relu"];
    let attempts = [suite::attempt("alpha", names[0], suite::right(2.0))];
    drop(suite::write_attempts(&program.path("host"), &names, &attempts, "cpu"));
    program
}

#[test]
fn trajectory_show_lists_episodes_and_prints_one() {
    let program = program();
    let ran = program.run(&["trajectory", "show", "run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let line = "    5  level3-1_mlp, policy alpha, attempt 0: infrastructure error, 1 turns";
    assert!(ran.stdout.contains(line), "{}", ran.show());
    let ran = program.run(&["trajectory", "show", "run", "--episode", "0"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.starts_with("episode 0: level1-1_relu, policy alpha on cuda:0"));
    assert!(!ran.stdout.contains('\u{1b}'), "not a terminal");
    let ran = program.run(&["trajectory", "show", "host", "--json"]);
    let object = ran.object();
    assert_eq!(object["version"], 1);
    assert_eq!(object["trajectory"]["messages"][1]["role"], "user");
    assert_eq!(object["episodes"][0]["result"], "verified");
    let ran = program.run(&["trajectory", "show", "host", "--html", "page.html"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.show());
    assert!(program.path("page.html").is_file());
}

#[test]
fn trajectory_show_refuses_invalid_selections() {
    let program = program();
    assert_snapshot!(program.run(&["trajectory", "show", "run", "--episode", "99"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to show episode 99: run has 11 episodes
    hint: `warpwright trajectory show run` lists them
    ");
    assert_snapshot!(program.run(&["trajectory", "show", "run", "--html", "page.html"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to write a page: the run has 11 episodes
    hint: name one with `--episode N`
    ");
    let ran = program.run(&["trajectory", "show", "nowhere", "--json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert_eq!(ran.object()["error"]["kind"], "usage");
}

#[test]
fn trajectory_export_reports_skipped_episodes() {
    let program = program();
    let export = |format| {
        let command =
            ["trajectory", "export", "run", "host", "--format", format, "--out", "out.jsonl"];
        program.run(&command)
    };
    assert_snapshot!(export("messages").show(), @r"
    exit code 0
    --- stderr
    wrote 10 lines of 10 episodes to out.jsonl
    skipped: 1 episodes without a reward: an infrastructure failure ended them
    skipped: 1 episodes without a reward: they did not finish
    ");
    let text = fs_err::read_to_string(program.path("out.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 10);
    assert_snapshot!(export("tokens").show(), @r"
    exit code 0
    --- stderr
    wrote 0 lines of 0 episodes to out.jsonl
    skipped: 1 episodes without a reward: an infrastructure failure ended them
    skipped: 1 episodes without a reward: they did not finish
    skipped: 10 episodes without tokens: the policy or its server returns none
    ");
    let ran = program.run(&[
        "trajectory",
        "export",
        "run",
        "--format",
        "openai",
        "--out",
        "no/such/folder.jsonl",
        "--json",
    ]);
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    assert_eq!(ran.object()["error"]["hint"], "name another file with `--out`");
}

#[test]
fn compare_pairs_tasks_and_refuses_incomparable_runs() {
    let program = program();
    let both = ["compare", "run", "run", "--policy-a", "alpha", "--policy-b", "beta"];
    let ran = program.run(&both);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("4 tasks judged in both"), "{}", ran.show());
    let object = program.run(&[&both[..], &["--json"]].concat()).object();
    assert_eq!((object["version"].as_u64(), object["tasks"].as_u64()), (Some(1), Some(4)));
    assert_snapshot!(program.run(&["compare", "run", "host", "--policy-a", "alpha"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to compare run with host: their device differs: cuda and cpu
    hint: evaluate both on the same device under the same profile
    ");
    assert_snapshot!(program.run(&["compare", "run", "run"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to choose a policy of run: there are several; the run has alpha, beta
    hint: name one with `--policy-a` or `--policy-b`
    ");
}
