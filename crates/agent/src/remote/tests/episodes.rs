//! Whole episodes with a scripted server: what the loop makes of a model's words and of a server's
//! failures.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpwright_record::event::Outcome;

use super::dialogues::settings;
use super::server::{Say, Server};
use super::{episode, fixture, quick};
use crate::remote::endpoint::{Endpoint, Limits};
use crate::remote::key::Key;
use crate::remote::openai_chat::OpenAiChat;
use crate::remote::policy::RemotePolicy;
use crate::tools::shell::tests::eventually;

const SECRET: &str = "sk-very-secret";

fn policy(base: &str, limits: Limits, stop: &Arc<AtomicBool>) -> RemotePolicy {
    let (format, key) = (Box::new(OpenAiChat), Key::new(SECRET));
    let endpoint = Endpoint::new(format, base, key, false, limits, Arc::clone(stop)).unwrap();
    RemotePolicy::new(Arc::new(endpoint), settings())
}

/// Whether any file beneath `folder` has the text in it.
fn mentions(folder: &Path, text: &str) -> bool {
    fs_err::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return mentions(&path, text);
        }
        let bytes = fs_err::read(&path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[test]
fn truncated_message_continues_and_refusal_ends_the_episode() {
    let folder = tempfile::tempdir().unwrap();
    let cut = String::from_utf8(fixture("openai_chat/text.sse")).unwrap().replace("stop", "length");
    let server = Server::start(vec![
        Say::stream(cut),
        Say::stream(fixture("openai_chat/calls.sse")),
        Say::stream(fixture("openai_chat/content_filter.sse")),
    ]);
    let stop = Arc::default();
    let mut policy = policy(&server.base(), quick(), &stop);
    let ended = episode(&mut policy, folder.path(), None, &stop);
    assert_eq!((ended.outcome, ended.turns), (Outcome::Refused, 3));
    let asked = server.asked();
    let last = asked[1].body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("Your answer was cut"), "{last}");
    let last = asked[2].body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("call_b"), "{last}");
}

#[test]
fn api_key_is_not_in_the_run_record() {
    let folder = tempfile::tempdir().unwrap();
    let body = format!(r#"{{"error":{{"message":"the key {SECRET} is not known here"}}}}"#);
    let calls = String::from_utf8(fixture("openai_chat/calls.sse")).unwrap();
    let calls = calls.replace("Two files.", &format!("I heard {SECRET}."));
    let server = Server::start(vec![Say::stream(calls), Say::json(401, body)]);
    let stop = Arc::default();
    let mut policy = policy(&server.base(), quick(), &stop);
    let ended = episode(&mut policy, folder.path(), None, &stop);
    assert!(server.asked()[0].head.contains(SECRET), "positive control: it was sent");
    let Outcome::Infrastructure { message } = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert!(message.contains("the key [key] is not known here"), "{message}");
    let run = folder.path().join("run");
    assert!(mentions(&run, "I heard [key]."), "positive control: the record is searched");
    assert!(!mentions(&run, SECRET));
}

#[test]
fn interrupt_during_a_request_gives_outcome_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(vec![Say::Hang { body: Vec::new() }]);
    let stop = Arc::new(AtomicBool::new(false));
    let mut policy = policy(&server.base(), Limits::default(), &stop);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = eventually(|| !server.asked().is_empty());
            stop.store(true, Ordering::SeqCst);
            assert!(asked, "the policy sent no request");
        });
        episode(&mut policy, folder.path(), None, &stop)
    });
    assert_eq!((ended.outcome, ended.turns), (Outcome::Interrupted, 0));
}

#[test]
fn unreachable_server_is_a_resumable_infrastructure_failure() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let limits = Limits { patience: Duration::from_millis(200), ..quick() };
    let stop = Arc::default();
    let ended = episode(&mut policy(&base, limits, &stop), folder.path(), None, &stop);
    assert!(ended.outcome.is_resumable(), "{:?}", ended.outcome);
    assert!(matches!(ended.outcome, Outcome::Infrastructure { .. }));
}
