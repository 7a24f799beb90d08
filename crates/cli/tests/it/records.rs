//! Records of other versions, invalid records, full disks.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use warpwright_record::reader::RunReader;
use warpwright_test_support::{Need, missing};

use crate::judging::recorded;
use crate::program::{KERNEL, Program, Ran, TASK};

/// Writes the record of an unfinished run.
fn interrupted_run(program: &Program) {
    let run = r#"{"format":1,"program":"0.1.0","created":"2026-01-02T03:04:05Z","command":"warpwright optimize task.py","config":CONFIG,"machine":{"system":"","kernel":"","arch":"x86_64","cpu":"","cores":2,"memory_bytes":0}}"#;
    let config = r#"{"version":2,"purpose":"optimize","suite":["task.py"],"tasks":[{"name":"task","source":"SOURCE","origin":null,"mode":"eval","level":null,"ops":null,"data_source":null}],"policies":["teacher"],"attempts":1,"jobs":1,"devices":["cpu"],"profile":"as-run","seed":0,"all_baselines":false,"require_full_isolation":false,"max_turns":3,"max_seconds":null,"max_tokens":null,"max_device_seconds":null}"#;
    let event = r#"{"version":1,"seq":0,"time":"2026-01-02T03:04:05Z","event":{"type":"run_started","program":"0.1.0","command":"warpwright optimize task.py"}}"#;
    program.write("run/run.json", &run.replace("CONFIG", config));
    program.write("run/events.jsonl", &format!("{event}\n"));
}

fn change(program: &Program, file: &str, from: &str, to: &str) {
    let path = program.path(file);
    let text = fs_err::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    fs_err::write(path, text.replace(from, to)).unwrap();
}

fn resume(program: &Program) -> Ran {
    program.run(&["optimize", "--resume", "run"])
}

#[test]
fn a_record_of_a_newer_format_is_refused() {
    let program = Program::bare();
    interrupted_run(&program);
    change(&program, "run/run.json", "\"format\":1", "\"format\":99");
    insta::assert_snapshot!(resume(&program).show(), @r"
    exit code 6
    --- stderr
    error: failed to open the run in run for writing: its format is 99, and this program writes format 3
    hint: update warpwright
    ");
    change(&program, "run/events.jsonl", "\"version\":1", "\"version\":99");
    change(&program, "run/events.jsonl", "run_started", "run_dreamt");
    insta::assert_snapshot!(program.run(&["report", "run"]).show(), @r"
    exit code 6
    --- stderr
    error: failed to read run/events.jsonl: format 99 is newer than 3, and line 1 cannot be understood: unknown variant `run_dreamt`, expected one of `run_started`, `run_resumed`, `episode_started`, `episode_resumed`, `message_said`, `tool_finished`, `verdict_given`, `verdicts_voided`, `turn_finished`, `episode_finished`, `task_refused`, `progress`, `note`, `run_finished` at line 1 column 80
    hint: update warpwright
    ");
}

/// The recorded run of `make demo` must stay readable when the record's format changes.
#[test]
fn report_shows_the_bundled_run_as_recorded() {
    let program = Program::bare();
    interrupted_run(&program);
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/recorded/h200");
    let ran = program.run(&["report", "run", "--recorded", bundled]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert!(ran.stdout.contains("recorded on NVIDIA H200 on 2026-11-30, not measured now"));
    assert!(ran.stdout.contains("10 of 10 verified"), "{}", ran.show());
    let page = fs_err::read_to_string(program.path("run/report.html")).unwrap();
    assert_eq!(page.matches("Recorded run.").count(), 1);
    assert!(page.contains("diagonal_matmul"));
}

#[test]
fn an_interrupted_run_is_not_resumed_by_another_version() {
    let program = Program::bare();
    interrupted_run(&program);
    change(&program, "run/events.jsonl", "0.1.0", "0.0.9");
    change(&program, "run/run.json", "0.1.0", "0.0.9");
    insta::assert_snapshot!(resume(&program).show(), @r"
    exit code 6
    --- stderr
    error: failed to resume the run in run: version 0.0.9 wrote it, and this is version 0.1.0
    hint: resume with version 0.0.9, or pass `--force` to mix versions in one record
    ");
    let events = fs_err::read_to_string(program.path("run/events.jsonl")).unwrap();
    assert_eq!(events.lines().count(), 1, "nothing was appended");
}

#[test]
fn resumed_run_keeps_its_memory_limit_and_libraries() {
    let program = Program::bare();
    interrupted_run(&program);
    for (option, value, was) in [
        ("--memory-limit", "48GiB", "none"),
        ("--libraries", "cutlass", "none"),
        ("--require-tier", "device", "any"),
    ] {
        let ran = program.run(&["optimize", "--resume", "run", option, value]);
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        let told = format!("{option} differs from what it was started with ({was})");
        assert!(ran.stderr.contains(&told), "{}", ran.show());
    }
    let events = fs_err::read_to_string(program.path("run/events.jsonl")).unwrap();
    assert_eq!(events.lines().count(), 1, "nothing was appended");
}

#[test]
fn resume_and_report_refuse_folders_without_a_run() {
    let program = Program::bare();
    insta::assert_snapshot!(resume(&program).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a run from run: there is no run.json
    hint: name the folder of a run, e.g. the `--out` folder of `warpwright optimize`
    ");
    insta::assert_snapshot!(program.run(&["report", "nowhere"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a run from nowhere: there is no run.json
    hint: name the folder of a run, e.g. the `--out` folder of `warpwright optimize`
    ");
    interrupted_run(&program);
    change(&program, "run/run.json", "\"max_turns\"", "\"turns\"");
    insta::assert_snapshot!(resume(&program).show(), @r"
    exit code 2
    --- stderr
    error: failed to resume the run: its settings cannot be read: missing field `max_turns`
    hint: only runs of `warpwright optimize` and `warpwright eval` can be resumed
    ");
}

#[test]
fn interrupted_run_gets_a_report() {
    let program = Program::bare();
    interrupted_run(&program);
    let ran = program.run(&["report", "run", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    assert_eq!(ran.object()["report"], "run/report.html");
    assert!(program.path("run/report.html").exists());
}

#[test]
fn report_of_an_unfinished_evaluation_lists_its_tasks() {
    let program = Program::bare();
    interrupted_run(&program);
    change(&program, "run/run.json", "\"purpose\":\"optimize\"", "\"purpose\":\"eval\"");
    let ran = program.run(&["report", "run", "--out", "page.html", "--json"]);
    // What is missing is no failure of the report.
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let object = ran.object();
    assert_eq!(
        (object["complete"].as_bool(), &object["rows"][0]["task"]),
        (Some(false), &"task".into())
    );
    assert!(program.path("page.html").exists() && !program.path("run/report.html").exists());
}

/// Mounts a tmpfs of 32 KiB.
#[test]
fn full_disk_exits_with_7_and_keeps_the_record() {
    // A thread has a mount namespace of its own, which the program inherits.
    let thread = std::thread::spawn(|| {
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        if unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).is_err()
            || mount(none, "/", none, private, none).is_err()
        {
            missing(Need::Mount);
            return;
        }
        let program = Program::new();
        program.write("task.py", TASK);
        recorded(&program, "task", KERNEL);
        let small = program.path("small");
        fs_err::create_dir(&small).unwrap();
        mount(Some("tmpfs"), &small, Some("tmpfs"), MsFlags::empty(), Some("size=32k")).unwrap();
        let arguments = ["optimize", "task.py", "--policy", "replay:recorded", "--device", "cpu"];
        let ran = program.run(&[&arguments[..], &["--out", "small/run", "--json"]].concat());
        assert_eq!(ran.code, Some(7), "{}", ran.show());
        assert_eq!(ran.object()["error"]["kind"], "disk_full");
        assert!(ran.stderr.contains("hint: free space"), "{}", ran.show());
        let reader = RunReader::open(&small.join("run")).unwrap();
        assert!(reader.events().unwrap().all(|line| line.is_ok()), "what is there is whole");
        let ran = program.run(&["report", "small/run", "--out", "report.html"]);
        assert_eq!(ran.code, Some(0), "{}", ran.show());
    });
    thread.join().unwrap();
}
