//! `judge` and `optimize` with the real judge on the cpu device. The tests of the judge cover each kind of
//! failure; these tests cover how the command line reports it.

use serde_json::Value;

use crate::program::{KERNEL, MODEL_NEW, Program, TASK};

fn scene() -> Program {
    let program = Program::new();
    program.write("task.py", TASK);
    program.write("good/model_new.py", MODEL_NEW);
    program.write("good/kernels/relu_add.cu", KERNEL);
    program
}

fn judge(program: &Program, candidate: &str, more: &[&str]) -> crate::program::Ran {
    let mut arguments = vec!["judge", "task.py", "--candidate", candidate, "--device", "cpu"];
    arguments.extend(["--stage", "verified", "--json"]);
    arguments.extend(more);
    program.run(&arguments)
}

#[test]
fn correct_candidate_is_verified_and_recorded() {
    let program = scene();
    let ran = judge(&program, "good", &["--out", "run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let object = ran.object();
    assert_eq!(object["verified"], true);
    assert_eq!(object["failure"], Value::Null);
    let mut fields: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    insta::assert_snapshot!(fields.join(" "), @"caveats device failure floor_ms integrity isolation profile reward speedup task tier times_ms verdict verified version");
    let speedup: Vec<_> =
        object["speedup"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        speedup,
        ["eager", "compile", "best", "best_baseline"],
        "as documented for the cpu device"
    );
    let ran = program.run(&["report", "run"]);
    assert!(ran.stdout.contains("verified"), "{}", ran.show());
    // The run is not overwritten.
    let ran = judge(&program, "good", &["--out", "run"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("hint: continue it with `--resume run`, or name another folder"));
}

#[test]
fn unverified_candidate_exits_with_3_and_reward_minus_one() {
    let program = scene();
    program.write("wrong/model_new.py", MODEL_NEW);
    program.write("wrong/kernels/relu_add.cu", &KERNEL.replace("+ 1.0f", "+ 1.1f"));
    let ran = judge(&program, "wrong", &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    let object = ran.object();
    assert_eq!(
        (&object["verified"], &object["failure"]["class"]),
        (&false.into(), &"mismatch".into())
    );
    for scheme in ["paper", "speedup", "bounded"] {
        assert_eq!(object["reward"][scheme], -1.0);
    }
    program.write("broken/model_new.py", MODEL_NEW);
    program.write("broken/kernels/relu_add.cu", &KERNEL.replace("0.5f;", "0.5f"));
    let mut arguments = vec!["judge", "task.py", "--candidate", "broken", "--device", "cpu"];
    arguments.extend(["--stage", "built"]);
    let ran = program.run(&arguments);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    assert!(ran.stdout.starts_with("FAILED build: "), "{}", ran.show());
    assert!(ran.stdout.contains("kernels/relu_add.cu:5:"), "file and line: {}", ran.show());
}

/// Text of a candidate could otherwise move the cursor and overwrite the verdict.
#[test]
fn control_characters_of_a_candidate_are_escaped() {
    let program = scene();
    let raises = "        raise RuntimeError('\\x1b[2K\\x1b[1Averified')\n        y = ";
    let model = MODEL_NEW.replacen("        y = ", raises, 1);
    assert_ne!(model, MODEL_NEW);
    program.write("loud/model_new.py", &model);
    program.write("loud/kernels/relu_add.cu", KERNEL);
    let mut arguments = vec!["judge", "task.py", "--candidate", "loud", "--device", "cpu"];
    arguments.extend(["--stage", "verified"]);
    let ran = program.run(&arguments);
    assert_eq!(ran.code, Some(3), "{}", ran.show());
    assert!(ran.stdout.contains(r"\x1b[2K\x1b[1Averified"), "{}", ran.show());
    assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{}", ran.show());
}

/// A reference that fails on its own is a usage error, neither a verdict nor an infrastructure failure.
#[test]
fn failing_references_are_usage_errors() {
    let program = scene();
    let cases = [
        (
            "raises",
            "return torch.relu(x + 1.0) * 0.5",
            "raise ValueError('not today')",
            "not today",
        ),
        (
            "package",
            "import torch\n",
            "import torch\nimport nonexistent_package\n",
            "nonexistent_package",
        ),
        (
            "random",
            "return torch.relu(x + 1.0) * 0.5",
            "return x + torch.rand_like(x)",
            "different outputs",
        ),
        ("memory", "torch.randn(512, 256)", "torch.randn(1 << 40)", "memory"),
    ];
    for (name, from, to, expected) in cases {
        let task = TASK.replacen(from, to, 1);
        assert_ne!(task, TASK, "{name}");
        program.write("bad.py", &task);
        let arguments = ["judge", "bad.py", "--candidate", "good", "--device", "cpu", "--json"];
        let ran = program.run(&arguments);
        assert_eq!(ran.code, Some(2), "{name}: {}", ran.show());
        let error = &ran.object()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("bad") && message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn missing_gpu_error_suggests_the_cpu_device() {
    let program = scene();
    let arguments = ["judge", "task.py", "--candidate", "good", "--device", "cuda:0"];
    let mut command = program.command(&arguments);
    // Hides the GPUs of this machine.
    command.env("CUDA_VISIBLE_DEVICES", "");
    let ran = program.ran(command);
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    assert!(
        ran.stderr.contains("error: failed to set up the judge: cuda:0 cannot be used"),
        "{}",
        ran.show()
    );
    assert!(ran.stderr.contains("hint: `--device cpu`"), "{}", ran.show());
}

#[test]
fn required_device_tier_without_replayer_blames_no_candidate() {
    let program = scene();
    let judged = |tier: &str| {
        let options = ["--device", "cpu", "--require-tier", tier, "--stage", "built"];
        let arguments = [&["judge", "task.py", "--candidate", "good"], &options[..]].concat();
        let mut command = program.command(&arguments);
        command.env("WARPWRIGHT_REPLAYER", "/nowhere/warpwright-replayer");
        program.ran(command)
    };
    let ran = judged("device");
    assert_eq!(ran.code, Some(4), "{}", ran.show());
    let cause = "error: failed to set up the judge: the device tier is required, and cpu has none here: \
                 WARPWRIGHT_REPLAYER names /nowhere/warpwright-replayer, which is no file";
    let cure = "hint: keep it beside `warpwright`, or set WARPWRIGHT_REPLAYER to its path; or pass \
                `--require-tier any`";
    assert!(ran.stderr.contains(cause) && ran.stderr.contains(cure), "{}", ran.show());
    let ran = judged("any");
    assert_eq!(ran.code, Some(0), "control: {}", ran.show());
}

#[test]
fn failing_reference_does_not_stop_the_suite() {
    let program = scene();
    let broken = TASK.replace("return torch.relu(x + 1.0) * 0.5", "raise ValueError('not today')");
    program.write("suite/a_broken.py", &broken);
    program.write("suite/b_good.py", TASK);
    recorded(&program, "b_good", &KERNEL.replace("0.5f;", "0.5f"));
    let arguments = ["optimize", "suite", "--policy", "replay:recorded", "--device", "cpu"];
    let ran = program.run(&[&arguments[..], &["--out", "run", "--json"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    let object = ran.object();
    assert_eq!(object["verified"], false);
    assert!(object["tasks"][0]["error"]["message"].as_str().unwrap().contains("not today"));
    // Its candidate does not build: a verdict, without the minute that timing takes.
    assert_eq!(object["tasks"][1]["failure"]["class"], "build", "{}", ran.show());
    let workspace = program.path(object["tasks"][1]["workspace"].as_str().unwrap());
    assert!(workspace.join("kernels/relu_add.cu").exists());
}

/// The built-in policy has no rule for `topk`, and cannot trace a module that returns a dict.
#[test]
fn episode_without_a_verdict_reports_its_reason() {
    let program = Program::new();
    let task = |returned: &str| {
        format!(
            "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        \
             return {returned}\n\n\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
        )
    };
    program.write("top.py", &task("torch.topk(x, 3).values"));
    program.write("dict.py", &task("{\"y\": x + 1}"));
    for (file, told) in [("top.py", "no rule for these operators"), ("dict.py", "dict")] {
        let arguments = ["optimize", file, "--policy", "teacher", "--device", "cpu", "--json"];
        let ran = program.run(&arguments);
        assert!(matches!(ran.code, Some(2 | 3)), "{}", ran.show());
        assert!(ran.stdout.contains(told) || ran.stderr.contains(told), "{}", ran.show());
        let object = ran.object();
        let reason = object["reason"].as_str().or_else(|| object["error"]["message"].as_str());
        assert!(reason.is_some_and(|reason| reason.contains(told)), "{object:#}");
    }
}

#[test]
fn optimize_produces_a_verified_kernel() {
    let program = scene();
    recorded(&program, "task", KERNEL);
    let arguments = ["optimize", "task.py", "--policy", "replay:recorded", "--device", "cpu"];
    let ran = settle(&program, &[&arguments[..], &["--out", "run", "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let object = ran.object();
    let fields: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    insta::assert_snapshot!(fields.join(" "), @"version task device policy profile outcome outcome_message verified reason failure integrity reward speedup times_ms floor_ms best_seen turns seconds workspace attempts run report");
    assert_eq!((&object["verified"], &object["outcome"]), (&true.into(), &"stopped".into()));
    let eager = &object["speedup"]["eager"];
    assert!(eager["low"].as_f64().unwrap() <= eager["high"].as_f64().unwrap());
    assert!(program.path("run/report.html").exists());
    assert!(program.path("run/workspace/kernels/relu_add.cu").exists());
    // Once more changes nothing.
    let again = program.run(&["optimize", "--resume", "run", "--json"]);
    assert_eq!(again.code, Some(0), "{}", again.show());
    assert!(again.stderr.contains("complete"), "{}", again.show());
}

/// Runs `optimize` into `run`. On a busy machine the judge refuses to time, which is an infrastructure
/// failure; the run is then resumed, as a user would do.
pub(crate) fn settle(program: &Program, arguments: &[&str]) -> crate::program::Ran {
    let mut ran = program.run(arguments);
    for _ in 0..5 {
        if ran.code != Some(4) || !ran.stdout.contains("too much else runs") {
            break;
        }
        ran = program.run(&["optimize", "--resume", "run", "--json"]);
    }
    ran
}

/// Records a trajectory to replay: it writes a candidate with this kernel, builds it, and stops.
pub(crate) fn recorded(program: &Program, task: &str, kernel: &str) {
    use warpwright_agent::tools::arguments::Write;
    use warpwright_record::event::{Budget, EpisodeId, EpisodeSetup, Event};
    use warpwright_record::message::Message;
    use warpwright_record::run::RunInfo;
    use warpwright_record::verdict::Profile;
    use warpwright_record::writer::RunWriter;
    let record = RunWriter::create(&program.path("recorded"), RunInfo::default()).unwrap();
    let episode = EpisodeId(0);
    let setup = EpisodeSetup {
        task: task.to_owned(),
        source: record.put_blob(TASK.as_bytes()).unwrap(),
        shown: None,
        skill: None,
        policy: "test".to_owned(),
        device: "cpu".to_owned(),
        profile: Profile::Strict,
        dtype: None,
        fit: None,
        backward: false,
        seed: 0,
        attempt: 0,
        level: None,
        budget: Budget::default(),
    };
    record.append(&Event::EpisodeStarted { episode, setup }).unwrap();
    let turns = [
        vec![Write::call("1", "model_new.py", MODEL_NEW)],
        vec![Write::call("2", "kernels/relu_add.cu", kernel)],
        vec![warpwright_agent::tools::arguments::Bash::call("3", "bash utils/compile.sh")],
        vec![],
    ];
    for (turn, calls) in (1..).zip(turns) {
        let message = Message { calls, ..Message::default() };
        record.append(&Event::MessageSaid { episode, turn, message, seconds: 0.0 }).unwrap();
    }
}
