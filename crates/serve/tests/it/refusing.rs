//! Refused requests and their problem types.

use axum::body::Body;
use axum::body::Bytes;
use axum::http::Request;
use axum::http::StatusCode;
use futures_util::future::join_all;
use serde_json::json;
use tower::ServiceExt;
use warpwright_fleet::Limits;
use warpwright_serve::Settings;
use warpwright_serve::Tokens;

use crate::server::{Server, TOKEN, kind_of, post, question, settings};

#[tokio::test]
async fn each_invalid_request_has_its_problem_type() {
    let server = Server::usual();
    let files = |name: &str| json!({ "task": "t", "reference": "", "files": { "model_new.py": "", name: "" } });
    let mut late = question("t");
    late["deadline_seconds"] = json!(-1.0);
    let mut unknown = question("t");
    unknown["fils"] = json!({});
    let long = json!({ "task": "t", "reference": "x".repeat(1_000_000), "files": {} }).to_string();
    let cases = [
        ("/judge", "{".to_owned(), 400, "malformed-json"),
        ("/judge", String::new(), 400, "malformed-json"),
        ("/judge", format!("{} x", question("t")), 400, "malformed-json"),
        ("/judge", json!([1]).to_string(), 422, "invalid-request"),
        ("/judge", unknown.to_string(), 422, "invalid-request"),
        ("/judge", late.to_string(), 422, "invalid-request"),
        (
            "/judge",
            json!({ "task": "t", "reference": "", "files": {} }).to_string(),
            422,
            "invalid-request",
        ),
        ("/judge", files("../model.py").to_string(), 422, "invalid-request"),
        ("/judge", files("kernels/../../x").to_string(), 422, "invalid-request"),
        ("/judge", files("/etc/passwd").to_string(), 422, "invalid-request"),
        ("/judge", files("kernels/.hidden").to_string(), 422, "invalid-request"),
        (
            "/judge",
            json!({ "task": "no", "files": { "model_new.py": "" } }).to_string(),
            404,
            "unknown-task",
        ),
        ("/judge", format!("{long}{long}"), 413, "body-too-large"),
        ("/nowhere", "{}".to_owned(), 404, "not-found"),
        ("/health", "{}".to_owned(), 404, "not-found"),
        (
            "/judge/batch",
            json!({ "items": vec![question("t"); 9] }).to_string(),
            422,
            "invalid-request",
        ),
    ];
    for (path, body, status, name) in cases {
        let shown = body.chars().take(80).collect::<String>();
        let (found, body, headers) = server.send(post(path, body)).await;
        assert_eq!((found.as_u16(), kind_of(&body)), (status, name), "{path} {shown}");
        assert_eq!(headers["content-type"], "application/problem+json");
        assert_eq!(body["status"], status);
    }
    assert_eq!(server.judged(), 0);
    // What comes in pieces is bounded as well, and what does not come at all is not waited for.
    let pieces = futures_util::stream::iter(
        (0..40).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 16]))),
    );
    let (status, body, _) = server.send(post("/judge", Body::from_stream(pieces))).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (413, "body-too-large"));
    let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let (status, body, _) = server.send(post("/judge", Body::from_stream(never))).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (422, "invalid-request"));
}

/// Requests that a browser page can send without a preflight, and host names that an attacker can
/// point to this server.
#[tokio::test]
async fn cross_site_browser_requests_are_refused() {
    let server = Server::usual();
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        let mut request = post("/judge", question("t").to_string());
        request.headers_mut().remove("content-type");
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", kind.parse().unwrap());
        }
        let (status, body, _) = server.send(request).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (415, "unsupported-media-type"));
    }
    for host in [
        "attacker.example",
        "127.0.0.1.attacker.example:8000",
        "localhost.attacker.example",
        "",
        "[::2]",
    ] {
        let mut request = post("/judge", question("t").to_string());
        request.headers_mut().insert("host", host.parse().unwrap());
        let (status, body, _) = server.send(request).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (421, "misdirected-request"), "{host}");
    }
    assert_eq!(server.judged(), 0);
    // With a token it is whose it is, by whatever name.
    let tokens = Tokens::parse(&format!("trainer {TOKEN}")).unwrap();
    let server =
        Server::new(1, Settings { tokens, ..settings() }, Limits { waiting: 9, per_client: 9 });
    let mut request = post("/judge", question("t").to_string());
    request.headers_mut().insert("host", "judge.example".parse().unwrap());
    request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
        .headers_mut()
        .insert("content-type", "application/json; charset=utf-8".parse().unwrap());
    assert_eq!(server.send(request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn tokens_are_required_and_never_echoed() {
    let text = format!(
        "trainer {TOKEN} 2100-01-01T00:00:00Z\nold {} 2020-01-01T00:00:00Z",
        TOKEN.replace('0', "x")
    );
    let tokens = Tokens::parse(&text).unwrap();
    let server =
        Server::new(1, Settings { tokens, ..settings() }, Limits { waiting: 9, per_client: 9 });
    let ask = |path: &'static str, token: Option<String>| {
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        server.send(request.body(Body::empty()).unwrap())
    };
    for path in ["/tasks", "/metrics"] {
        let (status, body, headers) = ask(path, None).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (401, "unauthorized"));
        assert_eq!(headers["www-authenticate"], "Bearer");
        let (status, body, _) = ask(path, Some(TOKEN.replace('0', "x"))).await;
        assert_eq!((status.as_u16(), kind_of(&body)), (401, "token-expired"));
        let (status, body, _) =
            ask(path, Some("secret-that-is-not-known-here-at-all".to_owned())).await;
        assert_eq!(status.as_u16(), 401);
        assert!(!body.to_string().contains("secret"));
        assert_eq!(ask(path, Some(TOKEN.to_owned())).await.0, StatusCode::OK);
    }
    // For those who start and stop servers, and those who want to know what is served.
    for path in ["/health", "/openapi.json"] {
        assert_eq!(ask(path, None).await.0, StatusCode::OK, "{path}");
    }
    let (status, _, _) = server.send(post("/judge", question("t").to_string())).await;
    assert_eq!((status.as_u16(), server.judged()), (401, 0));
}

#[tokio::test]
async fn full_queue_answers_429_with_retry_after() {
    let server = Server::new(1, settings(), Limits { waiting: 2, per_client: 100 });
    let ask = || post("/judge", question("slow").to_string());
    let mut served = vec![tokio::spawn(server.router.clone().oneshot(ask()))];
    server.until_load(1, 0).await;
    served.extend((0..2).map(|_| tokio::spawn(server.router.clone().oneshot(ask()))));
    server.until_load(1, 2).await;
    for (status, body, headers) in join_all((0..9).map(|_| server.send(ask()))).await {
        assert_eq!((status.as_u16(), kind_of(&body)), (429, "busy"));
        let after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&after) && body["retry_after"] == after);
    }
    for answer in served {
        server.release();
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn disconnected_or_late_client_is_not_judged() {
    let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
    let busy =
        tokio::spawn(server.router.clone().oneshot(post("/judge", question("slow").to_string())));
    server.until_load(1, 0).await;
    let gone = question("gone");
    let answered = tokio::select! {
        biased;
        _ = server.judge(&gone) => true,
        () = server.until_load(1, 1) => false,
    };
    assert!(!answered, "positive control: it waits");
    assert_eq!(server.queue.load().waiting, 0, "given up");
    let mut late = question("late");
    late["deadline_seconds"] = json!(0.05);
    let (status, body) = server.judge(&late).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (504, "deadline-exceeded"));
    assert_eq!(server.queue.load().waiting, 0, "given up");
    server.release();
    assert_eq!(busy.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(server.judged(), 1);
}
