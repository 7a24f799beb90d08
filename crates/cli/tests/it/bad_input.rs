//! Every invalid input results in a message that names the failed step, a hint, and the documented exit code.

use crate::program::{Program, Ran, TASK};

fn refuse(task: &str) -> Ran {
    let program = Program::bare();
    program.write("task.py", task);
    let ran = program.run(&["optimize", "task.py", "--out", "run"]);
    assert!(!program.path("run").exists(), "nothing was started");
    ran
}

#[test]
fn task_without_model_class_is_refused() {
    insta::assert_snapshot!(refuse("class Net: ...\ndef get_inputs(): return []\n").show(), @r"
    exit code 2
    --- stderr
    error: failed to read the task task.py: it has no class `Model`
    hint: a task is a file with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`; rename the module to `Model`
    ");
}

#[test]
fn task_without_get_inputs_is_refused() {
    let task = TASK.replace("get_inputs", "make_inputs");
    insta::assert_snapshot!(refuse(&task).show(), @r"
    exit code 2
    --- stderr
    error: failed to read the task task.py: it has no function `get_inputs`
    hint: add `def get_inputs(): return [torch.randn(...)]`, the arguments of `forward`
    ");
}

#[test]
fn task_syntax_error_names_its_line() {
    let task = TASK.replace("return [torch", "return [[torch");
    insta::assert_snapshot!(refuse(&task).show(), @r"
    exit code 2
    --- stderr
    error: failed to read the task task.py: syntax error at line 12, column 1: unexpected EOF while parsing
      12 | 
         | ^
    hint: `python3 -m py_compile FILE` shows the same error
    ");
}

#[test]
fn missing_task_path_and_empty_suite_are_refused() {
    let program = Program::bare();
    insta::assert_snapshot!(program.run(&["optimize", "nothing.py"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a task from nothing.py: there is no such file or folder
    hint: check the path; tasks are .py, .jsonl or .parquet files, or folders of .py files
    ");
    fs_err::create_dir(program.path("empty")).unwrap();
    insta::assert_snapshot!(program.run(&["optimize", "empty"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a suite from empty: it contains no tasks
    hint: a suite is a folder of .py files, a KernelBench checkout (level1, level2, ...), a table with a `code` column, or a folder with a definition.json in each folder; files whose names begin with `_` or `.` are ignored
    ");
}

#[test]
fn invalid_optimize_arguments_are_usage_errors() {
    let program = Program::bare();
    program.write("task.py", TASK);
    insta::assert_snapshot!(program.run(&["optimize"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to find a task: the command names none
    hint: name a .py, .jsonl or .parquet file or a folder, or use `--resume RUN_DIR`
    ");
    let ran = program.run(&["optimize", "task.py", "--policy", "magic"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to find the policy magic
    hint: policies are `teacher`, `teacher:exhaustive`, `native`, `openai:MODEL`, `responses:MODEL`, `anthropic:MODEL`, `native:CHECKPOINT` and `replay:RUN_DIR`
    ");
    let ran = program.run(&["optimize", "task.py", "--device", "gpu"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: invalid value 'gpu' for '--device <DEVICE>': expected auto, cpu, cuda:N or all

    For more information, try '--help'.
    ");
    let ran = program.run(&["optimize", "task.py", "--max-minutes", "0"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    let ran = program.run(&["optimize", "task.py", "--policy", "replay:nothing"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to read a run from nothing: there is no run.json
    hint: name the folder of a run, e.g. the `--out` folder of `warpwright optimize`
    ");
}

#[test]
fn json_errors_are_one_object_on_stdout() {
    let program = Program::bare();
    let ran = program.run(&["optimize", "nothing.py", "--json"]);
    insta::assert_snapshot!(ran.stdout, @r#"{"version":1,"error":{"kind":"usage","message":"failed to read a task from nothing.py: there is no such file or folder","hint":"check the path; tasks are .py, .jsonl or .parquet files, or folders of .py files"}}"#);
    let ran = program.run(&["judge", "--json"]);
    assert_eq!(ran.code, Some(2));
    insta::assert_snapshot!(ran.stdout, @r#"{"version":1,"error":{"kind":"usage","message":"the following required arguments were not provided: --candidate <DIR_OR_FILE> <TASK>","hint":"see `warpwright --help`"}}"#);
}

#[test]
fn missing_or_incomplete_candidate_is_refused() {
    let program = Program::bare();
    program.write("task.py", TASK);
    program.write("workspace/kernels/a.cu", "");
    let ran = program.run(&["judge", "task.py", "--candidate", "workspace"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to read a candidate from workspace: the folder has no model_new.py
    hint: a candidate is a folder with model_new.py and kernels/, or one Python file with ModelNew
    ");
    let ran = program.run(&["judge", "task.py", "--candidate", "nowhere"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to read a candidate from nowhere: there is no such file or folder
    hint: a candidate is a folder with model_new.py and kernels/, or one Python file with ModelNew
    ");
    program.write("linked/kernels/a.cu", "");
    std::os::unix::fs::symlink("/etc/passwd", program.path("linked/model_new.py")).unwrap();
    let ran = program.run(&["judge", "task.py", "--candidate", "linked"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to read a candidate from linked/model_new.py: it is a symbolic link
    hint: model_new.py and the files in kernels/ must be regular files of at most 4 MiB
    ");
}

#[test]
fn missing_python_interpreter_is_refused() {
    let program = Program::bare();
    program.write("task.py", TASK);
    let ran = program.run(&["optimize", "task.py", "--python", "nowhere/python"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to find the Python interpreter nowhere/python: no such file
    hint: run `make setup` in the project, or name an interpreter that has torch with --python or WARPWRIGHT_PYTHON
    ");
}

#[test]
fn remote_policy_needs_an_api_key_and_a_valid_url() {
    let program = Program::bare();
    program.write("task.py", TASK);
    let ask = |more: &[&str]| {
        let mut arguments = vec!["optimize", "task.py", "--out", "run", "--policy"];
        arguments.extend(more);
        let ran = program.run(&arguments);
        assert!(!program.path("run").exists(), "nothing was started");
        ran.show()
    };
    insta::assert_snapshot!(ask(&["anthropic:a-model"]), @r"
    exit code 2
    --- stderr
    error: failed to find the API key for https://api.anthropic.com: ANTHROPIC_API_KEY is not set or is empty
    hint: set ANTHROPIC_API_KEY to your key, name another variable with --key-env, or name your own server with --base-url
    ");
    insta::assert_snapshot!(ask(&["openai:m", "--base-url", "http://127.0.0.1:1", "--key-env", "MY_KEY"]), @r"
    exit code 2
    --- stderr
    error: failed to find the API key for http://127.0.0.1:1: MY_KEY is not set or is empty
    hint: set MY_KEY to the key
    ");
    insta::assert_snapshot!(ask(&["responses:m", "--base-url", "127.0.0.1:1"]), @r"
    exit code 2
    --- stderr
    error: failed to use the base URL 127.0.0.1:1: expected http:// or https:// and a host
    hint: write it like `--base-url http://127.0.0.1:8000/v1`
    ");
}

#[test]
fn task_beyond_the_memory_limit_is_too_large() {
    let program = Program::new();
    program.write("task.py", TASK);
    let limited = ["optimize", "task.py", "--device", "cpu", "--memory-limit", "64MiB", "--json"];
    let ran = program.run(&limited);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    let message = ran.object()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("it is too large: it needs at least "), "{message}");
    assert!(message.ends_with("the judge may use 64 MiB"), "{message}");
}
