//! The requests of the dashboard page. The tests of the program open the page in a browser.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;
use warpwright_fleet::Limits;
use warpwright_record::void::VoidTurns;
use warpwright_serve::{DeviceUse, Settings, Tokens};

use crate::server::{Server, TOKEN, kind_of, post, question, settings};

fn get(path: &str) -> Request<Body> {
    Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn dashboard_lists_verdicts_in_arrival_order() {
    let server = Server::usual();
    for task in ["a", "b", "ours"] {
        server.judge(&question(task)).await;
    }
    let uses = vec![DeviceUse { device: "cpu".to_owned(), busy: 0.25, by: vec![] }];
    server.app.uses.say(uses);
    let (_, state, _) = server.send(get("/dashboard/state")).await;
    let lines = state["verdicts"].as_array().unwrap();
    let told: Vec<_> =
        lines.iter().map(|line| (line["number"].clone(), line["task"].clone())).collect();
    assert_eq!(told, [(json!(1), json!("a")), (json!(2), json!("b"))], "ours is none");
    assert_eq!((&lines[0]["by"], &lines[0]["verified"]), (&json!("judge"), &json!(true)));
    assert_eq!(state["devices"][0]["use"]["busy"], 0.25);
    let (_, state, _) = server.send(get("/dashboard/state?after=1")).await;
    assert_eq!(state["verdicts"].as_array().unwrap().len(), 1);

    let (_, page, _) = server.send(get("/dashboard/verdicts/2")).await;
    assert_eq!((&page["task"], &page["reference"]), (&json!("b"), &json!("x = 1")));
    assert_eq!(page["files"], json!({ "model_new.py": "y = 1" }));
    assert_eq!(page["verdict"]["task"], "b");
    let (status, problem, _) = server.send(get("/dashboard/verdicts/3")).await;
    assert_eq!((status, kind_of(&problem)), (StatusCode::NOT_FOUND, "not-found"));
}

#[tokio::test]
async fn client_sees_only_its_own_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let other = TOKEN.replace('0', "9");
    fs_err::write(&path, format!("one {TOKEN}\ntwo {other}\n")).unwrap();
    let settings = Settings { tokens: Tokens::read(&path).unwrap(), ..settings() };
    let server = Server::new(1, settings, Limits { waiting: 9, per_client: 9 });
    let by = |mut request: Request<Body>, token: &str| {
        let value = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", value);
        request
    };
    server.send(by(post("/judge", question("a").to_string()), TOKEN)).await;
    for (token, count, status) in [(TOKEN, 1, 200), (other.as_str(), 0, 404)] {
        let (_, state, _) = server.send(by(get("/dashboard/state"), token)).await;
        assert_eq!(state["verdicts"].as_array().unwrap().len(), count);
        let (found, _, _) = server.send(by(get("/dashboard/verdicts/1"), token)).await;
        assert_eq!(found.as_u16(), status);
    }
    let (status, _, _) = server.send(get("/dashboard/state")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    // The page is for everybody, and says nothing.
    assert_eq!(server.send(get("/")).await.0, StatusCode::OK);
}

/// Stored verdicts use at most 64 MiB.
#[tokio::test]
async fn memory_of_stored_verdicts_is_bounded() {
    let mut big = settings();
    big.body_bytes = 32 << 20;
    let server = Server::new(1, big, Limits { waiting: 9, per_client: 9 });
    // 2 MiB each.
    let files = json!({ "model_new.py": format!("# {}", "x".repeat(2 << 20)) });
    for _ in 0..40 {
        let mut asked = question("a");
        asked["files"] = files.clone();
        let (status, _) = server.judge(&asked).await;
        assert_eq!(status, StatusCode::OK);
    }
    let (_, state, _) = server.send(get("/dashboard/state")).await;
    let lines: Vec<&Value> = state["verdicts"].as_array().unwrap().iter().collect();
    assert!((28..32).contains(&lines.len()), "{}", lines.len());
    assert_eq!(lines.last().unwrap()["number"], 40, "the last ones stay");
}

#[tokio::test]
async fn content_security_policy_allows_only_own_scripts() {
    let server = Server::usual();
    for path in ["/", "/dashboard/app.js", "/dashboard/style.css"] {
        let response = server.router.clone().oneshot(get(path)).await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        for never in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(never), "{path}: {never}");
        }
        assert!(!text.contains("https://"), "{path}: nothing from elsewhere");
    }
}

#[tokio::test]
async fn void_verdicts_are_listed_without_tasks() {
    let server = Server::usual();
    let (_, none, _) = server.send(get("/void")).await;
    assert_eq!(none, json!({ "version": 1, "void": [] }));
    server.app.voids.say(vec![VoidTurns {
        replayer: "ab".to_owned(),
        after: 3,
        through: 7,
        time: jiff::Timestamp::UNIX_EPOCH,
        task: "secret".to_owned(),
        candidate: "secret".to_owned(),
        reason: "verified, then mismatch".to_owned(),
    }]);
    let (_, told, _) = server.send(get("/void")).await;
    let void = json!({"replayer": "ab", "after": 3, "through": 7, "time": "1970-01-01T00:00:00Z"});
    assert_eq!(told["void"], json!([void]), "another client's task is not named");
}
