//! `bench judge` reports times of every stage, from candidates that it judges.

use crate::program::{Program, Ran};

fn bench(program: &Program, arguments: &[&str]) -> Ran {
    let common =
        ["bench", "judge", "--device", "cpu", "--candidates", "1", "--concurrency", "2", "--json"];
    program.run(&[&common, arguments].concat())
}

#[test]
fn bench_judge_reports_latency_and_throughput() {
    let program = Program::new();
    let ran = bench(
        &program,
        &["--forms", "launcher", "--seconds", "1", "--cold-runs", "0", "--out", "figures.json"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    for row in found["latency"].as_array().unwrap() {
        let all = row["seconds"][0].as_f64().unwrap();
        let stages = row["stages"][0].as_object().unwrap();
        let seconds = |name: &str| stages[name].as_f64().unwrap();
        // Parts of others.
        let parts = ["inputs", "windows"];
        let whole = stages.keys().filter(|name| !parts.contains(&name.as_str()));
        let sum: f64 = whole.map(|name| seconds(name)).sum();
        // What is not of a stage is little, and no stage counts twice.
        assert!(sum > 0.5 * all && sum <= all, "{sum} s of {all} s");
        let of_parts: f64 = parts.iter().map(|name| seconds(name)).sum();
        let within = seconds("verify") + seconds("measure");
        assert!(of_parts > 0.2 * within && of_parts <= within, "{of_parts} s of {within} s");
        let build = stages["build"].as_f64().unwrap();
        assert!(
            build > 0.01 * all,
            "a candidate that no cache knows takes longer to build than {build} s of {all} s"
        );
    }
    assert_eq!(found["latency"].as_array().unwrap().len(), 1);
    let row = &found["sustained"][0];
    let shares = ["alone", "shared", "starved"].map(|share| row[share].as_f64().unwrap());
    assert!(row["candidates"].as_u64().unwrap() >= 2, "each of two judged one at the least");
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!(shares[0] + shares[1] <= 1.0 + 1e-6, "{shares:?}");
    let kept = fs_err::read_to_string(program.path("figures.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&kept).unwrap(), found);
    assert_eq!(left(&program), 0);
}

#[test]
fn doctor_calibrates_on_the_cpu_device() {
    let program = Program::new();
    let arguments = ["doctor", "--calibrate", "--device", "cpu", "--pairs", "1", "--json"];
    let ran = program.run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["calibration"]["exactness"]["identical_faster"]["of"], 1, "{found}");
}

/// Number of temporary caches that `bench judge` has not removed.
fn left(program: &Program) -> usize {
    let names = fs_err::read_dir(program.cache()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("bench-")).count()
}

#[test]
fn interrupted_bench_judge_keeps_only_its_figures() {
    use std::io::BufRead as _;
    let program = Program::bare();
    let set_up = Program::new();
    let mut child = program
        .command(&["bench", "judge", "--device", "cpu", "--seconds", "600", "--cold-runs", "0"])
        .args(["--candidates", "1", "--forms", "launcher", "--out", "figures.json"])
        .env("WARPWRIGHT_PYTHON", set_up.python())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains(".cu only (1)")), "nothing was measured");
    assert_eq!(left(&program), 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let said: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said:?}");
    assert_eq!(left(&program), 0);
    let kept = fs_err::read_to_string(program.path("figures.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert!(!kept["latency"].as_array().unwrap().is_empty());
    assert_eq!(kept["sustained"].as_array().unwrap().len(), 0);
}

#[test]
fn bench_judge_refuses_an_unwritable_out_file() {
    let ran = bench(&Program::new(), &["--out", "nowhere/figures.json"]);
    assert_eq!(ran.code, Some(2), "{}", ran.show());
    assert!(ran.stderr.contains("nowhere"), "{}", ran.show());
}

#[test]
fn long_a_cold_start_takes_longer_than_the_judge() {
    let ran = bench(&Program::new(), &["--seconds", "1", "--cold-runs", "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.show());
    let found = ran.object();
    assert_eq!(found["latency"].as_array().unwrap().len(), 2);
    let stages = found["cold"]["stages"][0].as_object().unwrap();
    for stage in ["import", "build", "verify", "compile", "profile"] {
        assert!(stages[stage].as_f64().unwrap() > 0.0, "{stage}");
    }
    assert!(found["ratio"].as_f64().unwrap() > 1.0, "{}", found["ratio"]);
}
