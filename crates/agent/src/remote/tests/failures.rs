//! Failures of requests to a server, and their consequences.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Say, Server};
use super::{endpoint, fixture, quick};
use crate::remote::endpoint::{Endpoint, EndpointError, Limits};
use crate::remote::key::Key;
use crate::remote::openai_chat::OpenAiChat;
use crate::remote::wire::{Answer, Assembler, Request, WireError, WireFormat};
use crate::tools::shell::tests::eventually;

/// Chat completions, with a count of the requests that were tried, whether or not a server got them.
#[derive(Clone, Debug, Default)]
struct Counted {
    tries: Arc<AtomicU32>,
}

impl Counted {
    fn tries(&self) -> u32 {
        self.tries.load(Ordering::SeqCst)
    }
}

impl WireFormat for Counted {
    fn url(&self, base: &str) -> String {
        OpenAiChat.url(base)
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        OpenAiChat.headers(key)
    }

    fn body(&self, request: &Request<'_>) -> Value {
        OpenAiChat.body(request)
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        OpenAiChat.assembler()
    }

    fn whole(&self, body: &Value) -> Result<Answer, WireError> {
        OpenAiChat.whole(body)
    }
}

fn good() -> Say {
    Say::stream(fixture("openai_chat/text.sse"))
}

fn ask(script: Vec<Say>) -> (Result<u32, EndpointError>, usize) {
    ask_within(quick(), script)
}

fn ask_within(limits: Limits, script: Vec<Say>) -> (Result<u32, EndpointError>, usize) {
    let server = Server::start(script);
    let endpoint = endpoint(Box::new(OpenAiChat), &server, limits);
    let answered = endpoint.complete(&json!({})).map(|completed| {
        assert_eq!(completed.answer.text, "The kernels are done.");
        completed.attempts
    });
    (answered, server.asked().len())
}

fn error(script: Vec<Say>) -> String {
    let server = Server::start(script);
    let endpoint = endpoint(Box::new(OpenAiChat), &server, quick());
    let error = endpoint.complete(&json!({})).unwrap_err().to_string();
    error.replace(&server.port.to_string(), "PORT")
}

#[test]
fn success_takes_one_request() {
    let (answered, requests) = ask(vec![good()]);
    assert_eq!((answered.unwrap(), requests), (1, 1));
}

#[test]
fn retry_after_header_delays_the_next_request() {
    // Without the header the pause is longer than the patience.
    let hour = Duration::from_hours(1);
    let limits = Limits { backoff_first: hour, backoff_most: hour, ..quick() };
    for (status, header, value) in
        [(429, "retry-after", "0.3"), (503, "retry-after-ms", "300"), (529, "retry-after", "0.3")]
    {
        let (answered, requests) =
            ask_within(limits, vec![Say::wait(status, header, value), good()]);
        assert_eq!((answered.unwrap(), requests), (2, 2), "{status}");
        let (answered, requests) = ask_within(limits, vec![Say::json(status, "later"), good()]);
        let error = answered.unwrap_err();
        assert!(matches!(error, EndpointError::Busy { .. }), "{status}: {error}");
        assert_eq!(requests, 1, "{status}");
    }
}

#[test]
fn retry_after_beyond_the_patience_is_an_error() {
    let said = error(vec![Say::wait(429, "retry-after", "3600")]);
    insta::assert_snapshot!(said, @"failed to get an answer from http://127.0.0.1:PORT/v1/chat/completions: the server asks to wait longer than 60 s: 429 slow down");
}

#[test]
fn server_errors_and_broken_responses_are_retried() {
    let fails = || Say::json(500, "oops");
    let cut = {
        let mut body = fixture("openai_chat/text.sse");
        body.truncate(body.len() / 2);
        Say::stream(body)
    };
    let (answered, requests) = ask(vec![fails(), fails(), fails(), fails(), good()]);
    assert_eq!((answered.unwrap(), requests), (5, 5));
    let broken = vec![Say::stream("data: {nonsense\n\n"), Say::Nothing, cut, good()];
    let (answered, requests) = ask(broken);
    assert_eq!((answered.unwrap(), requests), (4, 4));
}

#[test]
fn malformed_and_empty_responses_are_described_in_the_error() {
    let html = Say::Answer {
        status: 200,
        headers: vec![("content-type", "text/html")],
        body: b"<html>hello</html>".to_vec(),
    };
    let empty = Say::Answer { status: 200, headers: vec![], body: Vec::new() };
    let all = [
        Say::stream("data: {nonsense\n\n"),
        Say::stream("data: {\"greeting\": 1}\n\n"),
        Say::stream(fixture("openai_chat/cut.sse")),
        Say::stream(fixture("openai_chat/error_in_stream.sse")),
        Say::json(200, "[]"),
        html,
        empty,
    ];
    let said: Vec<String> = all.into_iter().map(|say| error(vec![say])).collect();
    let said = said.join("\n").replace("http://127.0.0.1:PORT/v1/chat/completions", "URL");
    insta::assert_snapshot!(said, @r#"
    failed to get an answer from URL: 4 requests failed; last error: the answer has an unexpected format: key must be a string at line 1 column 2 in {nonsense
    failed to get an answer from URL: 4 requests failed; last error: the answer has an unexpected format: it has no `choices`
    failed to get an answer from URL: 4 requests failed; last error: the answer ended early
    failed to get an answer from URL: 4 requests failed; last error: the server reported an error: internal_error: CUDA out of memory
    failed to get an answer from URL: 4 requests failed; last error: the answer has an unexpected format: it has no `choices`
    failed to get an answer from URL: 4 requests failed; last error: the answer is not an event stream (18 bytes)
    failed to get an answer from URL: 4 requests failed; last error: the answer is empty (0 bytes)
    "#);
}

#[test]
fn client_errors_are_not_retried() {
    let refused = |status, body: &'static str| {
        let server = Server::start(vec![Say::json(status, body)]);
        let endpoint = endpoint(Box::new(OpenAiChat), &server, quick());
        let error = endpoint.complete(&json!({})).unwrap_err().to_string();
        assert_eq!(server.asked().len(), 1, "{error}");
        error.replace(&server.base(), "URL")
    };
    let all = [
        refused(
            404,
            r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
        ),
        refused(401, r#"{"error":{"message":"Incorrect API key provided"}}"#),
        refused(403, r#"{"detail":"not allowed"}"#),
        refused(
            400,
            r#"{"error":{"message":"context length is 8192","type":"invalid_request_error"}}"#,
        ),
        refused(429, r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#),
    ];
    insta::assert_snapshot!(all.join("\n"), @r#"
    failed to get an answer from URL/chat/completions: the server has no such model or path (404): model_not_found: The model `x` does not exist
    failed to get an answer from URL/chat/completions: the server refuses the API key, or needs one (401): Incorrect API key provided
    failed to get an answer from URL/chat/completions: the server refuses the API key, or needs one (403): not allowed
    failed to get an answer from URL/chat/completions: the server refuses the request (400): invalid_request_error: context length is 8192
    failed to get an answer from URL/chat/completions: the server refuses the request (429): insufficient_quota: no money
    "#);
}

#[test]
fn hanging_server_times_out() {
    let limits = Limits { between_chunks: Duration::from_millis(150), ..quick() };
    let server = Server::start(vec![Say::Hang { body: b"data: {\"cho".to_vec() }]);
    let endpoint = endpoint(Box::new(OpenAiChat), &server, limits);
    let error = endpoint.complete(&json!({})).unwrap_err();
    assert!(
        matches!(&error, EndpointError::Failing { tries: 4, why, .. } if why.contains("timeout: per read")),
        "{error}"
    );
}

#[test]
fn callers_wait_until_an_unreachable_server_returns() {
    // A port that nobody listens on, until somebody does.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let limits = Limits { requests: 4, ..quick() };
    let format = Counted::default();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let endpoint = Endpoint::new(
        Box::new(format.clone()),
        &format!("http://{address}/v1"),
        None,
        false,
        limits,
        Arc::default(),
    )
    .unwrap()
    .with_notice(Box::new(move |text| tell.lock().unwrap().push(text.to_owned())));
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| endpoint.complete(&json!({})))).collect();
        // More tries than callers: some have tried again.
        assert!(eventually(|| format.tries() > 8), "{} tries", format.tries());
        assert!(callers.iter().all(|caller| !caller.is_finished()), "all wait");
        let server = Server::on(TcpListener::bind(address).unwrap(), vec![good()]);
        let attempts: Vec<u32> =
            callers.into_iter().map(|caller| caller.join().unwrap().unwrap().attempts).collect();
        assert_eq!(server.asked().len(), 8);
        assert_eq!(attempts.iter().sum::<u32>(), format.tries(), "{attempts:?}");
    });
    let told = told.lock().unwrap().join("\n").replace(&address.port().to_string(), "PORT");
    insta::assert_snapshot!(told, @r#"
    http://127.0.0.1:PORT/v1/chat/completions is unavailable (io: Connection refused (os error 111)); retrying for up to 60 s
    http://127.0.0.1:PORT/v1/chat/completions answers again
    "#);
}

#[test]
fn unreachable_server_is_an_error_after_the_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let limits = Limits { patience: Duration::from_secs(1), ..quick() };
    let format = Counted::default();
    let counted = Box::new(format.clone());
    let endpoint = Endpoint::new(counted, &base, None, false, limits, Arc::default()).unwrap();
    let error = endpoint.complete(&json!({})).unwrap_err();
    assert!(matches!(error, EndpointError::Away { seconds: 1.., .. }), "{error}");
    // A later caller tries once and does not wait for the patience again.
    let before = format.tries();
    assert!(before > 0, "positive control");
    let error = endpoint.complete(&json!({})).unwrap_err();
    assert!(matches!(error, EndpointError::Away { .. }), "{error}");
    assert_eq!(format.tries() - before, 1);
}

#[test]
fn stop_flag_ends_waiting_and_running_requests() {
    let stop = Arc::new(AtomicBool::new(false));
    let server = Server::start(vec![Say::Hang { body: Vec::new() }]);
    let limits = Limits { requests: 1, ..Limits::default() };
    let endpoint =
        Endpoint::new(Box::new(OpenAiChat), &server.base(), None, false, limits, Arc::clone(&stop))
            .unwrap();
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| endpoint.complete(&json!({})))).collect();
        let asked = eventually(|| !server.asked().is_empty());
        let wait = callers.iter().all(|caller| !caller.is_finished());
        stop.store(true, Ordering::SeqCst);
        assert!(asked && wait, "positive control");
        for caller in callers {
            let error = caller.join().unwrap().unwrap_err();
            assert!(matches!(error, EndpointError::Interrupted { .. }), "{error}");
        }
        assert_eq!(server.asked().len(), 1, "the other waited");
    });
}

#[test]
fn api_key_is_in_its_header_and_nowhere_else() {
    let secret = "sk-very-secret";
    let echo = format!(r#"{{"error":{{"message":"Incorrect API key provided: {secret}"}}}}"#);
    let in_stream = format!("data: {{\"error\": \"{secret} is no key\"}}\n\n");
    let garbage = format!("data: {secret}\n\n");
    let inside = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{secret}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
    );
    for say in
        [Say::json(401, echo), Say::stream(in_stream), Say::stream(garbage), Say::stream(inside)]
    {
        let server = Server::start(vec![say]);
        let key = Key::new(secret);
        let endpoint = Endpoint::new(
            Box::new(OpenAiChat),
            &server.base(),
            key,
            false,
            quick(),
            Arc::default(),
        )
        .unwrap();
        let text = format!("{:?} {:?}", endpoint.complete(&json!({})), endpoint);
        assert!(server.asked()[0].head.contains(secret), "positive control");
        assert!(!text.contains(secret), "{text}");
        assert!(text.contains("[key]"), "{text}");
    }
}

#[test]
fn api_key_is_sent_over_plain_http_to_loopback_only() {
    let open = |base: &str, key: Option<Key>, named: bool| {
        let endpoint =
            Endpoint::new(Box::new(OpenAiChat), base, key, named, quick(), Arc::default());
        endpoint.map(|_| ()).map_err(|error| error.to_string())
    };
    let key = || Key::new("sk-secret");
    for base in [
        "https://api.example.com/v1",
        "http://127.0.0.1:1/v1",
        "http://[::1]:1",
        "http://localhost",
    ] {
        assert_eq!(open(base, key(), false), Ok(()));
    }
    assert_eq!(open("http://10.0.0.1:8000/v1", None, false), Ok(()));
    assert_eq!(open("http://10.0.0.1:8000/v1", key(), true), Ok(()));
    let refused = open("http://10.0.0.1:8000/v1", key(), false).unwrap_err();
    insta::assert_snapshot!(refused, @"failed to use the base URL http://10.0.0.1:8000/v1: the API key would be sent unencrypted");
    for bad in ["", "ftp://a", "no url", "https://user:password@host"] {
        let error = open(bad, None, false).unwrap_err();
        assert!(error.starts_with("failed to use the base URL"), "{error}");
        assert!(!error.contains("password@"), "{error}");
    }
}
