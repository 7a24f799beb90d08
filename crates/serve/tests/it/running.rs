//! Health, shutdown, metrics and the API description.

use axum::body::Body;
use axum::body::to_bytes;
use axum::http::Request;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use warpwright_fleet::Limits;
use warpwright_serve::document;

use crate::server::{PATIENCE, Server, kind_of, post, question, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_drains_running_jobs_within_its_limit() {
    for (drain, status) in [(PATIENCE, "200"), (Duration::ZERO, "503")] {
        let server = Server::new(1, settings(), Limits { waiting: 100, per_client: 100 });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (app, router) = (Arc::clone(&server.app), server.router.clone());
        let served = tokio::spawn(warpwright_serve::serve(
            listener,
            app,
            router,
            async {
                let _ = stopped.await;
            },
            drain,
        ));
        // One is judged, one waits.
        let ask =
            || tokio::task::spawn_blocking(move || asked(address, &question("slow").to_string()));
        let (first, second) = (ask(), ask());
        server.until_load(1, 1).await;
        stop.send(()).unwrap();
        // With time to drain the one that waits is kept; without, it is given up while the other is judged.
        let waits = usize::from(!drain.is_zero());
        while !server.queue.has_ended() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.until_load(1, waits).await;
        server.release();
        server.release();
        let mut statuses =
            [first.await.unwrap(), second.await.unwrap()].map(|text| text[9..12].to_owned());
        statuses.sort();
        assert_eq!(statuses, ["200", status]);
        assert_eq!(served.await.unwrap().unwrap(), status == "200", "whether all were judged");
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens");
    }
}

/// A hand-written request, and the whole response.
fn asked(address: std::net::SocketAddr, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /judge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn health_reports_whether_a_worker_judges() {
    let health = || Request::get("/health").body(Body::empty()).unwrap();
    let server = Server::new(0, settings(), Limits { waiting: 9, per_client: 9 });
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &json!("no_workers")));
    let server = Server::usual();
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (200, &json!("healthy")));
    server.queue.end();
    let (status, body, _) = server.send(health()).await;
    assert_eq!((status.as_u16(), &body["status"]), (503, &json!("ending")));
    let (status, body) = server.judge(&question("t")).await;
    assert_eq!((status.as_u16(), kind_of(&body)), (503, "ending"));
}

#[tokio::test]
async fn metrics_count_jobs_and_requests() {
    let server = Server::usual();
    server.judge(&question("a")).await;
    server.judge(&question("ours")).await;
    server.send(post("/nowhere/1", "")).await;
    let request =
        Request::get("/metrics").header("host", "[::1]:8000").body(Body::empty()).unwrap();
    let response = server.router.clone().oneshot(request).await.unwrap();
    let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8_lossy(&text);
    for line in [
        "warpwright_jobs_total{outcome=\"verified\"} 1",
        "warpwright_jobs_total{outcome=\"infra_error\"} 1",
        "warpwright_requests_total{path=\"/judge\",status=\"200\"} 2",
        "warpwright_requests_total{path=\"other\",status=\"404\"} 1",
        "warpwright_judge_seconds_count 2",
        "warpwright_workers 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn openapi_document_has_every_path_and_every_referenced_schema() {
    let document = document();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    let expected = [
        "/judge",
        "/judge/batch",
        "/reward/slime",
        "/reward/openrlhf",
        "/seed_session",
        "/{tool}",
        "/verify",
        "/gym/rows.jsonl",
        "/ws",
        "/schema",
        "/metadata",
        "/",
        "/dashboard/state",
        "/dashboard/verdicts/{number}",
        "/tasks",
        "/void",
        "/health",
        "/metrics",
        "/openapi.json",
    ];
    assert_eq!(paths, expected);
    let text = document.to_string();
    let named = text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap());
    let mut count = 0;
    for pointer in named {
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
