//! `export`: packages of judged candidates are installed and used as users do, and what cannot be exported is refused.

use std::path::{Path, PathBuf};

use serde_json::json;
use warpwright_record::blob::BlobHash;
use warpwright_record::event::{EpisodeId, Event, Outcome, RunOutcome};
use warpwright_record::run::RunInfo;
use warpwright_record::verdict::{ReplayerTurn, Tier, Verdict};
use warpwright_record::writer::RunWriter;

use crate::program::{Program, Ran};

fn exported() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exported")
}

/// Judges a task in the device tier, and records it as a run of that name.
fn judge(program: &Program, task: &str, more: &[&str]) -> Ran {
    let folder = exported().join(task);
    let model = folder.join(format!("{task}.py"));
    let candidate = folder.join("candidate");
    let (model, candidate) = (model.to_str().unwrap(), candidate.to_str().unwrap());
    let common = ["judge", model, "--candidate", candidate, "--device", "cpu", "--json"];
    let stage = ["--stage", "verified", "--out", task];
    program.run(&[&common[..], &stage, more].concat())
}

fn good(ran: Ran) -> Ran {
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    ran
}

/// Runs a program of the fresh environment.
fn python(program: &Program, arguments: &[&str]) -> Ran {
    let python = program.path("fresh/bin/python");
    let mut command = program.other(python.to_str().unwrap());
    command.args(arguments);
    program.ran(command)
}

#[test]
fn exported_packages_install_and_survive_torch() {
    let program = Program::new();
    for task in ["add_relu", "rms_norm", "linear", "scale"] {
        good(judge(&program, task, &["--require-tier", "device"]));
        let out = format!("packages/{task}");
        let ran = good(program.run(&["export", task, "--out", &out, "--json"]));
        let object = ran.object();
        assert_eq!(object["package"], task);
        assert_eq!(object["operators"][0], format!("warpwright_{task}::{task}"));
        assert_eq!(object["checks"].as_array().unwrap().len(), 4, "{object}");
    }
    let mut venv = program.other(program.python().to_str().unwrap());
    venv.args(["-m", "venv", "fresh"]);
    good(program.ran(venv));
    // Torch and setuptools of the tests' environment, first: the new one's own setuptools may be old.
    let mut site = program.other(program.python().to_str().unwrap());
    site.args(["-c", "import torch, pathlib; print(pathlib.Path(torch.__file__).parent.parent)"]);
    let path =
        format!("import sys; sys.path.insert(0, {:?})\n", good(program.ran(site)).stdout.trim());
    let write = "import pathlib, site, sys; \
                 pathlib.Path(site.getsitepackages()[0], 'torch.pth').write_text(sys.argv[1])";
    good(python(&program, &["-c", write, &path]));
    let packages = ["packages/add_relu", "packages/rms_norm", "packages/linear", "packages/scale"];
    let install = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index"];
    let version = ["--disable-pip-version-check"];
    good(python(&program, &[&install[..], &version, &packages].concat()));
    let tests = exported().join("installed.py");
    good(python(&program, &[tests.to_str().unwrap()]));
}

#[test]
fn host_tier_verdict_is_not_exported() {
    let program = Program::new();
    good(judge(&program, "add_relu", &[]));
    let ran = program.run(&["export", "add_relu", "--out", "package"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to export add_relu: it was judged in the host tier, so its host code was never judged by itself, and packages hold none of it
    hint: judge the candidate with `warpwright judge model.py --candidate workspace/ --require-tier device --out RUN`, and export RUN
    ");
    assert!(!program.path("package").exists());
}

#[test]
fn unusable_verdicts_are_refused_by_name() {
    let program = Program::bare();
    let refused = |verdict: &Verdict, more: &[&str]| {
        program.write("verdict.json", &serde_json::to_string(verdict).unwrap());
        let ran = program.run(&[&["export", "verdict.json", "--out", "package"], more].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.show());
        assert!(ran.stderr.contains("hint: "), "{}", ran.show());
        assert!(!program.path("package").exists());
        ran.stderr
    };
    let good = crate::replaying::verdict(b"plan");
    let failed = Verdict { verified: false, failure: None, ..good.clone() };
    let cases = [
        (failed, "failed to export bias_gelu: the verdict is not verified"),
        (Verdict { version: 1, ..good.clone() }, "an earlier program judged it, by older rules"),
        (Verdict { plan: None, ..good.clone() }, "the verdict names no launch plan"),
        (good.clone(), "its launch plan is missing: there is no [folder]/cache/plans/"),
    ];
    for (verdict, expected) in cases {
        let told = refused(&verdict, &[]);
        assert!(told.contains(expected), "{told}");
    }
    let told = refused(&good, &["other"]);
    assert!(
        told.contains("failed to export other: verdict.json has no verdict on that task"),
        "{told}"
    );
    // The cache has a file of that name.
    let hash = good.plan.unwrap().to_string();
    program.write(&format!("cache/plans/{}/{}", &hash[..2], &hash[2..]), "plan");
    let told = refused(&good, &[]);
    assert!(told.contains("the file is no launch plan of warpwright"), "{told}");
    program.write("full/file", "");
    let ran = program.run(&["export", "verdict.json", "--out", "full"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("failed to write the package: full exists"), "{}", ran.stderr);
}

#[test]
fn verdict_of_a_newer_program_is_not_exported() {
    let program = Program::bare();
    let newer = Verdict { version: 99, ..crate::replaying::verdict(b"plan") };
    program.write("verdict.json", &serde_json::to_string(&newer).unwrap());
    let ran = program.run(&["export", "verdict.json", "--out", "package"]);
    assert_eq!(ran.code, Some(6), "{}", ran.show());
    assert!(ran.stderr.contains("the verdict's version is 99"), "{}", ran.show());
}

/// Records a run of one task whose episodes ended with these verdicts.
fn recorded(program: &Program, verdicts: &[Verdict]) {
    let run = RunWriter::create(&program.path("run"), RunInfo::default()).unwrap();
    for (number, verdict) in (0..).zip(verdicts) {
        let episode = EpisodeId(number);
        let setup = crate::sample::setup(&run, &verdict.task, "cuda:0");
        run.append(&Event::EpisodeStarted { episode, setup }).unwrap();
        let ended = Event::EpisodeFinished {
            episode,
            outcome: Outcome::BudgetTurns,
            final_verdict: Some(Box::new(verdict.clone())),
            best_verdict: None,
            candidate: None,
            turns: 1,
            seconds: 1.0,
        };
        run.append(&ended).unwrap();
    }
    run.append(&Event::RunFinished { outcome: RunOutcome::Completed }).unwrap();
    run.close().unwrap();
}

#[test]
fn faster_verdict_of_the_host_tier_hides_none() {
    let program = Program::bare();
    let slow = crate::replaying::verdict(b"plan");
    let mut fast = Verdict { tier: Tier::Host, plan: None, ..slow.clone() };
    fast.reward.speedup = slow.reward.speedup + 1.0;
    recorded(&program, &[slow, fast.clone()]);
    let told = program.run(&["export", "run", "--out", "package"]).stderr;
    assert!(told.contains("its launch plan is missing"), "{told}");
    // Control: alone it is refused by its tier.
    let program = Program::bare();
    recorded(&program, &[fast]);
    let told = program.run(&["export", "run", "--out", "package"]).stderr;
    assert!(told.contains("it was judged in the host tier"), "{told}");
}

#[test]
fn plan_of_another_task_is_not_exported() {
    let program = Program::bare();
    let verdict = gpu_verdict(&program);
    let of = |verdict: &Verdict| {
        program.write("verdict.json", &serde_json::to_string(verdict).unwrap());
        program.run(&["export", "verdict.json", "--out", "package", "--cache", "cache"])
    };
    let told = of(&Verdict { task: "columns".into(), ..verdict.clone() }).stderr;
    assert!(told.contains("its launch plan is of task rows, not columns"), "{told}");
    good(of(&verdict));
}

#[test]
fn void_verdict_is_not_exported() {
    let program = Program::bare();
    let replayer = ReplayerTurn { id: "replayer".into(), turn: 3 };
    let verdict = Verdict { replayer: Some(replayer), ..crate::replaying::verdict(b"plan") };
    program.write("verdict.json", &serde_json::to_string(&verdict).unwrap());
    let told = || program.run(&["export", "verdict.json", "--out", "package"]).stderr;
    assert!(told().contains("its launch plan is missing"), "control: {}", told());
    let voided = json!({
        "replayer": "replayer", "after": 2, "through": 4, "time": "2026-12-01T00:00:00Z", "task": "bias_gelu",
        "candidate": "00", "reason": "test",
    });
    program.write("cache/void.jsonl", &format!("{}\n", json!({"version": 1, "voided": voided})));
    assert!(told().contains("the verdict is void: a repeat"), "{}", told());
}

/// A verdict with the plan of a GPU that a test of the judge wrote. The plan is put into the cache.
fn gpu_verdict(program: &Program) -> Verdict {
    let plan = fs_err::read(exported().join("gpu.plan")).unwrap();
    let hash = BlobHash::of(&plan);
    let name = hash.to_string();
    let place = program.path("cache").join("plans").join(&name[..2]).join(&name[2..]);
    fs_err::create_dir_all(place.parent().unwrap()).unwrap();
    fs_err::write(place, plan).unwrap();
    let verdict = crate::replaying::verdict(b"");
    Verdict { plan: Some(hash), candidate: "ab".repeat(32), task: "rows".into(), ..verdict }
}

/// Exports the plan of a GPU, and runs its tests.
fn gpu_plan(arguments: &[&str]) {
    let program = Program::new();
    let verdict = gpu_verdict(&program);
    program.write("verdict.json", &serde_json::to_string(&verdict).unwrap());
    let ran = program.run(&["export", "verdict.json", "--out", "package", "--cache", "cache"]);
    assert_eq!(
        ran.code,
        Some(0),
        "{}\nUPDATE_FIXTURES=1 cargo nextest run -p warpwright-judge \
        plan_of_a_gpu_is_stored_with_its_forms writes a new plan",
        ran.show()
    );
    let mut command = program.other(program.python().to_str().unwrap());
    command
        .arg("-B")
        .arg(exported().join("gpu_plan.py"))
        .args(arguments)
        .env("PYTHONPATH", program.path("package/torch-ext"))
        .env("WARPWRIGHT_PACKAGE_CACHE", program.path("compiled"));
    good(program.ran(command));
}

#[test]
fn package_for_a_gpu_falls_back_without_one() {
    gpu_plan(&[]);
}

#[test]
fn gpu_package_runs_in_graphs_and_streams() {
    gpu_plan(&["--gpu"]);
}
