//! What works before anything is set up.

use crate::program::Program;

#[test]
fn help_names_the_commands_and_the_exit_codes() {
    let ran = Program::bare().run(&["--help"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 0
    --- stdout
    Makes PyTorch modules faster with verified CUDA kernels

    Usage: warpwright <COMMAND>

    Commands:
      optimize     Let a policy write faster kernels for PyTorch modules, verified and timed by the
                   judge
      eval         Let policies work on a suite, and say how good they are
      judge        Verify and time one candidate
      report       Show what runs came to, as a table and as a page
      compare      Compare two runs over a suite, task by task
      trajectory   Show episodes as conversations, or export them for training
      doctor       Say what works on this machine, what is missing, and the command that mends it
      synth        Make tasks to train on
      task         Look at tasks themselves
      train        Train a policy on the run time of its kernels
      experiment   Hold ways to train against each other
      watch        Watch a training run from another terminal
      serve        Judge for other programs, over HTTP
      worker       Judge for a server on another host, over NATS
      bench        Measure how fast judging is here
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Examples:
      warpwright optimize model.py
      warpwright judge model.py --candidate workspace/
      warpwright eval --suite suites/starter
      warpwright doctor

    Exit codes: 0 good; 2 usage; 3 not verified; 4 infrastructure; 5 isolation;
    6 record of another version; 7 disk full; 130 interrupted.
    ");
}

#[test]
fn every_command_has_help_with_examples() {
    let program = Program::bare();
    let commands = [
        "optimize",
        "judge",
        "report",
        "compare",
        "trajectory show",
        "trajectory export",
        "doctor",
        "train",
        "watch",
    ];
    for command in commands {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let ran = program.run(&arguments);
        assert_eq!(ran.code, Some(0));
        assert!(
            ran.stdout.contains(&format!("Examples:\n  warpwright {command}")),
            "{}",
            ran.show()
        );
    }
}

#[test]
fn doctor_says_what_is_missing_and_how_to_mend_it() {
    let program = Program::bare();
    let nowhere = program.path("nowhere/python");
    let ran = program.run(&["doctor", "--json", "--python", nowhere.to_str().unwrap()]);
    let object = ran.object();
    assert_eq!((ran.code, object["version"].as_u64()), (Some(4), Some(1)), "{}", ran.show());
    assert_eq!(object["ready"], false);
    let check = |name: &str| {
        let checks = object["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).cloned().unwrap()
    };
    assert_eq!(check("python")["state"], "missing");
    assert!(check("python")["mend"].as_str().unwrap().contains("make setup"));
    assert!(check("isolation")["detail"].as_str().unwrap().contains("no network"));
    assert_eq!(object["devices"].as_array().unwrap().last().unwrap()["device"], "cpu");
}

#[test]
fn doctor_is_content_where_everything_is_set_up() {
    let ran = Program::new().run(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("\nready: tasks can be judged on "), "{}", ran.show());
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let program = Program::bare();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = program.run(&["completions", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains("optimize") && ran.stdout.contains("max-turns"), "{shell}");
    }
    assert_eq!(program.run(&["man", "pages"]).code, Some(0));
    let mut pages: Vec<_> = fs_err::read_dir(program.path("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    insta::assert_snapshot!(pages.join(" "), @"warpwright-bench-judge.1 warpwright-bench-serve.1 warpwright-bench.1 warpwright-compare.1 warpwright-completions.1 warpwright-doctor.1 warpwright-eval.1 warpwright-experiment.1 warpwright-judge.1 warpwright-optimize.1 warpwright-report.1 warpwright-serve.1 warpwright-synth.1 warpwright-task-compose.1 warpwright-task-drop.1 warpwright-task-lint.1 warpwright-task-show.1 warpwright-task-stats.1 warpwright-task.1 warpwright-train.1 warpwright-trajectory-export.1 warpwright-trajectory-show.1 warpwright-trajectory.1 warpwright-watch.1 warpwright-worker.1 warpwright.1");
}

#[test]
fn a_skill_that_cannot_be_rendered_is_refused_before_anything_starts() {
    let program = Program::bare();
    fs_err::write(program.path("skill.md"), "For {{ devise }}.").unwrap();
    fs_err::write(
        program.path("task.py"),
        include_str!("../../../../examples/bias_gelu_residual.py"),
    )
    .unwrap();
    let ran = program.run(&["optimize", "task.py", "--skill", "skill.md", "--out", "run"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("docs/agent.md"), "{}", ran.show());
    assert!(!program.path("run").exists(), "{}", ran.show());
}
