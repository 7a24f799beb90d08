//! `bench judge`: figures of every stage, from candidates that are really judged.

use crate::program::{Program, Ran};

fn bench(program: &Program, arguments: &[&str]) -> Ran {
    let common =
        ["bench", "judge", "--device", "cpu", "--candidates", "1", "--builders", "2", "--json"];
    program.run(&[&common, arguments].concat())
}

#[test]
fn the_judge_is_measured() {
    let program = Program::new();
    let ran = bench(&program, &["--seconds", "1", "--cold", "0", "--out", "figures.json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    for form in 0..2 {
        let row = &found["latency"][form];
        let all = row["seconds"][0].as_f64().unwrap();
        let stages = row["stages"][0].as_object().unwrap();
        let sum: f64 = stages.values().filter_map(serde_json::Value::as_f64).sum();
        // What is not of a stage is little, and no stage counts twice.
        assert!(sum > 0.5 * all && sum <= all, "{sum} s of {all} s");
        let build = stages["build"].as_f64().unwrap();
        assert!(
            build > 0.05,
            "a candidate that no cache knows takes longer to build than {build} s"
        );
    }
    let row = &found["sustained"][0];
    let shares = ["alone", "shared", "starved"].map(|share| row[share].as_f64().unwrap());
    assert!(row["candidates"].as_u64().unwrap() >= 2, "each of two judged one at the least");
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!(shares[0] + shares[1] <= 1.0 + 1e-6, "{shares:?}");
    let kept = fs_err::read_to_string(program.path("figures.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&kept).unwrap(), found);
    // Its own cache is gone.
    let left = fs_err::read_dir(program.cache()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("bench-")
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn figures_that_cannot_be_written_are_refused_before_anything_is_measured() {
    let ran = bench(&Program::new(), &["--out", "nowhere/figures.json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("nowhere"), "{}", ran.show());
}

#[test]
fn long_the_cold_way_is_longer() {
    let ran = bench(&Program::new(), &["--seconds", "1", "--cold", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    let stages = found["cold"]["stages"][0].as_object().unwrap();
    for stage in ["import", "build", "verify", "compile", "profile"] {
        assert!(stages[stage].as_f64().unwrap() > 0.0, "{stage}");
    }
    assert!(found["ratio"].as_f64().unwrap() > 1.0, "{}", found["ratio"]);
}
