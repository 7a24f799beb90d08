//! An engine in a process of its own gives the results of one in this process.

#![expect(clippy::disallowed_types, reason = "starts the program that is tested")]

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use warpwright_engine::Settings;
use warpwright_learn::engine::{Engine, Loss, Prompt, Row, Sampler, Sampling, Step, Which};
use warpwright_learn::remote::{RemoteEngine, RemoteError};

use crate::oracle::{actions, engine, rows, tiny};

fn program(args: &[&str], stdin: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_warpwright-engine"))
        .args(args)
        .stdin(stdin)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// An engine process with the weights of `oracle::engine`.
fn started(folder: &std::path::Path, more: &[&str]) -> (RemoteEngine<UnixStream>, Child) {
    let config = folder.join("tiny.json");
    tiny().write(&config).unwrap();
    let config = config.to_string_lossy();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let args = [&["--initial", &config, "--seed", "5"], more].concat();
    let child = program(&args, Stdio::from(OwnedFd::from(theirs)));
    (RemoteEngine::greet(ours).unwrap(), child)
}

fn train<E: Engine>(engine: &mut E) -> (f64, f64) {
    let passed = engine.backward(&rows(), &Loss::Likelihood, actions(&rows())).unwrap();
    (passed.loss, engine.step(Which::Policy, &Step::default()).unwrap())
}

#[test]
fn engine_process_matches_local_engine() {
    let folder = tempfile::tempdir().unwrap();
    let (mut remote, mut child) =
        started(folder.path(), &["--max-num-seqs", "2", "--num-threads", "1"]);
    // With several threads libtorch adds up in another order from one process to the next.
    let mut local =
        engine(Settings { max_num_seqs: 2, num_threads: Some(1), ..Settings::default() });
    assert_eq!(remote.describe().unwrap(), local.describe().unwrap());
    assert_eq!(train(&mut remote), train(&mut local));
    assert_eq!(remote.score(&rows()).unwrap(), local.score(&rows()).unwrap());
    let prompts = Prompt::numbered([vec![1, 2], vec![3], vec![4, 5, 6]], 0);
    let sampling = Sampling { max_new_tokens: 9, ..Sampling::default() };
    let drawn = remote.sample(&prompts, &sampling).unwrap();
    assert_eq!(drawn, local.sample(&prompts, &sampling).unwrap());
    remote.begin_critic().unwrap();
    assert!(remote.describe().unwrap().has_critic);

    // After a refusal the engine stays usable.
    let row = Row { ids: vec![99], actions: vec![1], ..Row::default() };
    let refused = remote.score(&[row]).unwrap_err();
    assert!(matches!(&refused, RemoteError::Refused(r) if !r.is_memory), "{refused:?}");
    assert!(
        refused.to_string().contains("row 0: token 99 is not in the vocabulary of 61"),
        "{refused}"
    );
    let saved = folder.path().join("saved");
    remote.save(&saved).unwrap();
    drop(remote);
    assert!(child.wait().unwrap().success(), "the process ends when the client disconnects");

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = program(
        &["--model", &saved.to_string_lossy(), "--max-num-seqs", "2"],
        Stdio::from(OwnedFd::from(theirs)),
    );
    let mut remote = RemoteEngine::greet(ours).unwrap();
    assert_eq!(train(&mut remote), train(&mut local));
    drop(remote);
    assert!(child.wait().unwrap().success());
}

#[test]
fn dead_engine_process_is_reported_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut remote, mut child) = started(folder.path(), &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(remote.score(&rows()).unwrap_err().is_lost());
}

#[test]
fn load_failure_is_reported_before_any_request() {
    let said = |args: &[&str]| {
        let done = program(args, Stdio::null()).wait_with_output().unwrap();
        assert!(!done.status.success());
        String::from_utf8(done.stderr).unwrap()
    };
    let none = said(&["--model", "/nowhere"]);
    assert!(none.contains("error: failed to read the model's config "), "{none}");
    assert!(none.contains("/nowhere/config.json"), "{none}");
    assert!(said(&[]).contains("--model"));
    // A terminal is no socket.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tiny.json");
    tiny().write(&config).unwrap();
    let terminal = said(&["--initial", &config.to_string_lossy()]);
    assert!(terminal.contains("error: "), "{terminal}");
}
