//! `replay` refuses what it cannot replay before it opens a device, with cause and cure.

use std::collections::BTreeMap;

use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Tier, Verdict, WorkloadVerdict};

use crate::program::Program;
use crate::sample;

/// A verdict of the device tier on this launch plan.
pub(crate) fn verdict(plan: &[u8]) -> Verdict {
    let files = BTreeMap::from([("model_new.py".to_owned(), Vec::new())]);
    let candidate = Candidate::from_files(files);
    let measured = sample::measured("bias_gelu", "cuda:0", &candidate, 2.0);
    Verdict { tier: Tier::Device, plan: Some(BlobHash::of(plan)), ..measured }
}

fn write(program: &Program, verdict: &Verdict) {
    program.write("verdict.json", &serde_json::to_string(verdict).unwrap());
}

#[test]
fn verdict_without_a_plan_is_refused_with_its_tier() {
    let program = Program::bare();
    let host = Verdict { tier: Tier::Host, plan: None, ..verdict(b"") };
    // As `judge --json` prints it.
    program.write("verdict.json", &serde_json::json!({"version": 1, "verdict": host}).to_string());
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to replay the verdict: the candidate was judged in the host tier: there is no plan
    hint: judge the candidate again, with `--require-tier device` to be sure of a plan
    ");
    write(&program, &Verdict { plan: None, ..verdict(b"") });
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to replay the verdict: the verdict names no launch plan: it could not be recorded or stored
    hint: judge the candidate again, with `--require-tier device` to be sure of a plan
    ");
}

#[test]
fn missing_or_foreign_plan_file_is_refused() {
    let program = Program::bare();
    write(&program, &verdict(b"plan"));
    let ran = program.run(&["replay", "verdict.json"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to find the launch plan of the verdict: there is no [folder]/cache/plans/29/fde71e3ef298312227db745efc78ceb1c4e97c3a45f8e1f3f8680fa8a8f9ac
    hint: name the cache folder of the judge with `--cache DIR`, or a copy of the file with `--plan FILE`; old plans leave the cache, and then the candidate must be judged again
    ");
    let ran = program.run(&["replay", "verdict.json", "--plan", "nothing"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to read the launch plan nothing: failed to open file `nothing`: No such file or directory (os error 2)
    hint: name the plan file that was stored with the verdict
    ");
    program.write("other", "another plan");
    let ran = program.run(&["replay", "verdict.json", "--plan", "other"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to use the launch plan other: the content of the launch plan file is not that of its name: 576f2f63f14d4c5e058b6edaedd9a0da27da4a647bbcc8fd16d2da5dec412db6
    hint: copy the file again from where the verdict was made, or judge the candidate again
    ");
    // The right content is found in the cache, and is no plan.
    let hash = BlobHash::of(b"plan").to_string();
    program.write(&format!("cache/plans/{}/{}", &hash[..2], &hash[2..]), "plan");
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to use the launch plan [folder]/cache/plans/29/fde71e3ef298312227db745efc78ceb1c4e97c3a45f8e1f3f8680fa8a8f9ac: the file is no launch plan of warpwright
    hint: name the plan file that was stored with the verdict
    ");
}

#[test]
fn verdict_on_workloads_needs_a_plan_of_each() {
    let program = Program::bare();
    let one = |name: &str, plan: Option<&[u8]>| WorkloadVerdict {
        refused: None,
        verified: true,
        tier: Tier::Device,
        plan: plan.map(BlobHash::of),
        ..WorkloadVerdict::refused(name.to_owned(), false, String::new())
    };
    let refused = WorkloadVerdict::refused("c".to_owned(), false, "too large".to_owned());
    let mut merged = Verdict { plan: None, ..verdict(b"") };
    merged.workloads = vec![one("a", Some(b"plan")), one("b", None), refused];
    write(&program, &merged);
    let ran = program.run(&["replay", "verdict.json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("workload b: the verdict names no launch plan"), "{}", ran.show());
    merged.workloads[1].plan = Some(BlobHash::of(b"other"));
    write(&program, &merged);
    let ran = program.run(&["replay", "verdict.json"]);
    assert!(ran.stderr.contains("plans/29/fde71e3ef298312227db745efc78ceb1"), "{}", ran.show());
    let ran = program.run(&["replay", "verdict.json", "--plan", "plan.bin"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("one for each of several workloads"), "{}", ran.show());
}

#[test]
fn plan_of_another_version_names_the_cure() {
    let program = Program::bare();
    let plan = b"wwplan\r\n\x07\0\0\0rest";
    write(&program, &verdict(plan));
    fs_err::write(program.path("plan"), plan).unwrap();
    let ran = program.run(&["replay", "verdict.json", "--plan", "plan"]);
    insta::assert_snapshot!(ran.show(), @r"
    exit code 2
    --- stderr
    error: failed to use the launch plan plan: the launch plan file has version 7, and this program reads version 1
    hint: judge the candidate again with this version of the program, or replay with the one that wrote it
    ");
}

#[test]
fn unreadable_verdicts_are_refused() {
    let program = Program::bare();
    program.write("verdict.json", "{\"verdict\": {\"version\": 2}}");
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a verdict from verdict.json: missing field `task`
    hint: name the output of `warpwright judge --json`, or a run folder
    ");
    insta::assert_snapshot!(program.run(&["replay", "nothing.json"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a verdict from nothing.json: failed to open file `nothing.json`: No such file or directory (os error 2)
    hint: name the output of `warpwright judge --json`, or a run folder
    ");
    write(&program, &Verdict { version: 99, ..verdict(b"plan") });
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @r"
    exit code 6
    --- stderr
    error: failed to read the verdict verdict.json: its version is 99, and this program reads version 2
    hint: use the version of the program that wrote it
    ");
    fs_err::create_dir(program.path("run")).unwrap();
    insta::assert_snapshot!(program.run(&["replay", "run"]).show(), @r"
    exit code 2
    --- stderr
    error: failed to read a run from run: there is no run.json
    hint: name the folder of a run, e.g. the `--out` folder of `warpwright optimize`
    ");
}
