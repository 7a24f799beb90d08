//! `coverage SUITE TRACES [cpu|cuda]`: prints as Markdown which tasks of a suite the built-in
//! policy writes kernels for, and which operators it lacks for the others.
//!
//! Nothing is executed and no GPU is needed: each reference is traced on fake tensors, in a jail,
//! at its full size. Traces are stored in the folder TRACES, one `task.json` each; existing traces
//! are reused. `WARPWRIGHT_PYTHON` is the path of an interpreter with torch.

#![expect(clippy::print_stdout, reason = "the table is what the program is for")]
#![expect(clippy::print_stderr, reason = "how far it is")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpwright_agent::judge::DeviceFacts;
use warpwright_jail::{Jail, Limits, Requirement, Spec};
use warpwright_record::verdict::Profile;
use warpwright_task::Suite;

/// Longest time for one reference to be traced.
const SECONDS_PER_TASK: u64 = 300;

fn main() -> Result<(), Box<dyn Error>> {
    warpwright_jail::init_if_requested();
    let args: Vec<String> = std::env::args().collect();
    let [_, suite, traces, rest @ ..] = args.as_slice() else {
        return Err("usage: coverage SUITE TRACES [cpu|cuda]".into());
    };
    let suite = Suite::read(Path::new(suite))?;
    fs_err::create_dir_all(traces)?;
    let traces = fs_err::canonicalize(traces)?;
    trace(&suite, &traces)?;
    let on_cpu = rest.first().is_some_and(|d| d == "cpu");
    let device = DeviceFacts::assumed(if on_cpu { "cpu" } else { "cuda:0" });
    let mut rows = Vec::new();
    let mut lacking: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut written: BTreeMap<Option<u8>, (usize, usize)> = BTreeMap::new();
    for task in &suite.tasks {
        let level = written.entry(task.level).or_default();
        level.1 += 1;
        let text = fs_err::read_to_string(place(&traces, &task.name))?;
        let start = Instant::now();
        let outcome = match warpwright_teacher::translate(&text, &device, Profile::Strict, false) {
            Ok(files) => {
                level.0 += 1;
                let kernels = files.keys().filter(|f| f.starts_with("kernels/")).count();
                format!("{kernels} kernel file(s)")
            }
            Err(reason) => {
                let known = reason.strip_prefix("no rule for these operators: ");
                for operator in known.map_or(vec![reason.as_str()], split_list) {
                    lacking.entry(operator.to_owned()).or_default().insert(&task.name);
                }
                reason.replace('|', "\\|").replace('\n', " ")
            }
        };
        eprintln!("{} {:.1} s: {outcome}", task.name, start.elapsed().as_secs_f64());
        rows.push(format!("| {} | {outcome} |", task.name));
    }
    println!("| level | tasks | written |\n|---|---|---|");
    for (level, (good, all)) in &written {
        let level = level.map_or_else(|| "none".to_owned(), |l| l.to_string());
        println!("| {level} | {all} | {good} |");
    }
    let mut operators: Vec<(&String, &BTreeSet<&str>)> = lacking.iter().collect();
    operators.sort_by_key(|(name, tasks)| (std::cmp::Reverse(tasks.len()), name.as_str()));
    println!("\n| lacking | tasks | which |\n|---|---|---|");
    for (operator, tasks) in operators {
        let which: Vec<&str> = tasks.iter().copied().collect();
        println!("| {} | {} | {} |", operator.replace('|', "\\|"), tasks.len(), which.join(", "));
    }
    println!("\n| task | outcome |\n|---|---|\n{}", rows.join("\n"));
    Ok(())
}

/// `a, b (x, y), c` at the commas outside of brackets.
fn split_list(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out
}

fn place(traces: &Path, task: &str) -> PathBuf {
    traces.join(format!("{task}.json"))
}

/// Traces what has no trace yet.
fn trace(suite: &Suite, traces: &Path) -> Result<(), Box<dyn Error>> {
    let missing: Vec<_> = suite.tasks.iter().filter(|t| !place(traces, &t.name).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let sources = tempfile::tempdir()?;
    for task in &missing {
        fs_err::write(sources.path().join(format!("{}.py", task.name)), &task.source)?;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var_os("WARPWRIGHT_PYTHON")
        .map_or_else(|| here.join("../../.venv/bin/python"), PathBuf::from);
    let folder = fs_err::canonicalize(python.parent().ok_or("an interpreter without a folder")?)?;
    let python = folder.join(python.file_name().ok_or("an interpreter without a name")?);
    let tests = fs_err::canonicalize(here.join("tests"))?;
    let template = fs_err::canonicalize(here.join("../agent/template"))?;
    // The jailed interpreter may run as someone else.
    open_to_all(sources.path(), 0o755)?;
    open_to_all(traces, 0o777)?;
    let wall = Duration::from_secs(60 + SECONDS_PER_TASK * missing.len() as u64);
    let spec = Spec::new(&python)
        .with_system()
        .with_python(&python)
        .read_only(&tests)
        .read_only(&template)
        .read_only(sources.path())
        .read_write(traces)
        .env("PYTHONPATH", template.display().to_string())
        .args(["-W", "ignore", "-B"])
        .arg(tests.join("harness.py").display().to_string())
        .args(["trace", "--files", &sources.path().display().to_string()])
        .args(["--into", &traces.display().to_string()])
        .args(["--seconds", &SECONDS_PER_TASK.to_string()])
        .limits(Limits { wall, ..Limits::default() });
    let finished = Jail::detect(Requirement::Any)?.run(spec)?;
    if !finished.outcome.is_success() {
        return Err(format!("tracing failed: {}", finished.stderr.text()).into());
    }
    Ok(())
}

fn open_to_all(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
