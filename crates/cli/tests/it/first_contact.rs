//! Commands that work before set-up.

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
      optimize     Optimise PyTorch modules: a policy writes kernels, the judge verifies and times them
      eval         Evaluate policies on a suite of tasks: pass rates and speed-ups
      judge        Verify one candidate against its task, and time it
      replay       Verify and time again what a verdict of the device tier was given on: its launch plan
      export       Write verified kernels as a Python package of torch operators
      rejudge      Judge the final candidates of earlier runs again, by today's rules
      report       Print the results of runs as a table and write them as an HTML page
      compare      Compare two runs of `eval`, task by task
      analyze      Analyse evaluations and training runs: gap closed, best of N, roofline, times, plots
      trajectory   Show episodes as conversations, or export them as training data
      doctor       Check this machine: what works, what is missing, and the command that fixes it
      synth        Synthesise training tasks: compose them, try them in the judge, keep the sound ones
      task         Lint, show and compose tasks, or remove them from a data set
      train        Train a policy: pretraining, supervised fine-tuning, RL on the judge's measurements
      experiment   Compare training configurations: several arms, several seeds each, the same budget
      watch        Show the live metrics of a training run in this terminal
      serve        Serve the judge over HTTP
      worker       Judge candidates on this host for a server on another host, over NATS
      bench        Benchmark the judge on this machine: latency, throughput, serving overhead
      completions  Print a completion script for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Examples:
      warpwright doctor
      warpwright optimize model.py
      warpwright judge model.py --candidate workspace/
      warpwright eval --suite suites/starter

    Exit codes: 0 success; 2 usage error; 3 not verified; 4 infrastructure failure;
    5 isolation not available; 6 record of another version; 7 disk full; 130 interrupted.
    `-h` prints a summary of the options of a command, `--help` the details.
    ");
}

#[test]
fn doctor_names_missing_parts_and_their_fix() {
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
fn doctor_succeeds_on_a_complete_setup() {
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
    insta::assert_snapshot!(pages.join(" "), @"warpwright-analyze-best-of.1 warpwright-analyze-gap.1 warpwright-analyze-merge.1 warpwright-analyze-plot.1 warpwright-analyze-roofline.1 warpwright-analyze-step-times.1 warpwright-analyze-steps.1 warpwright-analyze-verdict-times.1 warpwright-analyze.1 warpwright-bench-judge.1 warpwright-bench-record.1 warpwright-bench-serve.1 warpwright-bench.1 warpwright-compare.1 warpwright-completions.1 warpwright-doctor.1 warpwright-eval.1 warpwright-experiment.1 warpwright-export.1 warpwright-judge.1 warpwright-optimize.1 warpwright-rejudge.1 warpwright-replay.1 warpwright-report.1 warpwright-serve.1 warpwright-synth.1 warpwright-task-compose.1 warpwright-task-drop.1 warpwright-task-extract.1 warpwright-task-lint.1 warpwright-task-show.1 warpwright-task-stats.1 warpwright-task.1 warpwright-train.1 warpwright-trajectory-export.1 warpwright-trajectory-show.1 warpwright-trajectory.1 warpwright-watch.1 warpwright-worker.1 warpwright.1");
}

#[test]
fn skill_with_an_unknown_placeholder_is_refused() {
    let program = Program::bare();
    fs_err::write(program.path("skill.md"), "For {{ devise }}.").unwrap();
    fs_err::write(
        program.path("task.py"),
        include_str!("../../../../examples/bias_gelu_residual.py"),
    )
    .unwrap();
    let ran = program.run(&["optimize", "task.py", "--skill", "skill.md", "--out", "run"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("docs/concepts/agent.md"), "{}", ran.show());
    assert!(!program.path("run").exists(), "{}", ran.show());
}
