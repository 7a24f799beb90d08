//! `replay` refuses what it cannot replay before it opens a device, with cause and cure.

use std::collections::BTreeMap;

use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::verdict::{Tier, Verdict};

use crate::program::Program;
use crate::sample;

/// A verdict of the device tier on this launch plan.
fn verdict(plan: &[u8]) -> Verdict {
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
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @"");
    write(&program, &Verdict { plan: None, ..verdict(b"") });
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @"");
}

#[test]
fn missing_or_foreign_plan_file_is_refused() {
    let program = Program::bare();
    write(&program, &verdict(b"plan"));
    let ran = program.run(&["replay", "verdict.json"]);
    insta::assert_snapshot!(ran.show(), @"");
    let ran = program.run(&["replay", "verdict.json", "--plan", "nothing"]);
    insta::assert_snapshot!(ran.show(), @"");
    program.write("other", "another plan");
    let ran = program.run(&["replay", "verdict.json", "--plan", "other"]);
    insta::assert_snapshot!(ran.show(), @"");
    // The right content is found in the cache, and is no plan.
    let hash = BlobHash::of(b"plan").to_string();
    program.write(&format!("cache/plans/{}/{}", &hash[..2], &hash[2..]), "plan");
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @"");
}

#[test]
fn plan_of_another_version_names_the_cure() {
    let program = Program::bare();
    let plan = b"wwplan\r\n\x07\0\0\0rest";
    write(&program, &verdict(plan));
    fs_err::write(program.path("plan"), plan).unwrap();
    let ran = program.run(&["replay", "verdict.json", "--plan", "plan"]);
    insta::assert_snapshot!(ran.show(), @"");
}

#[test]
fn unreadable_verdicts_are_refused() {
    let program = Program::bare();
    program.write("verdict.json", "{\"verdict\": {\"version\": 2}}");
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @"");
    insta::assert_snapshot!(program.run(&["replay", "nothing.json"]).show(), @"");
    write(&program, &Verdict { version: 99, ..verdict(b"plan") });
    insta::assert_snapshot!(program.run(&["replay", "verdict.json"]).show(), @"");
    fs_err::create_dir(program.path("run")).unwrap();
    insta::assert_snapshot!(program.run(&["replay", "run"]).show(), @"");
}
