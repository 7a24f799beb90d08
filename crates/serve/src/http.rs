//! Connections: how many, how long they may be silent, and how they end.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::app::App;

/// Most connections at once: each may hold a request's body.
const CONNECTIONS: usize = 2048;
/// Longest time for a request's head to come.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Longest time that what was sent may stay unread: one who never reads is cut off.
const UNREAD_TIME: Duration = Duration::from_mins(1);
/// After an error to accept (too many descriptors, mostly), and between looks whether sessions are over.
const PAUSE: Duration = Duration::from_millis(100);
/// For answers to be read when the server has given everything up.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Answers until `stop`. Then no job is taken in any more, those that are there are judged, for `drain` at
/// the most, sessions played to their end, and answers read. Whether all were.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> io::Result<bool> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (places, graceful) = (Arc::new(Semaphore::new(CONNECTIONS)), GracefulShutdown::new());
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    let mut stop = std::pin::pin!(stop);
    loop {
        // The place first: who has none waits in the kernel's queue.
        let place = tokio::select! {
            () = &mut stop => break,
            place = Arc::clone(&places).acquire_owned() => place.map_err(io::Error::other)?,
        };
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Without these a connection works, only longer than it should.
        let _ = prepare(&stream);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = connection.into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Who breaks off has nobody to tell.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    app.queue.end();
    app.sessions.end();
    let (queue, until) = (Arc::clone(&app.queue), tokio::time::Instant::now() + drain);
    let idle = tokio::task::spawn_blocking(move || queue.wait_idle(drain)).await;
    let mut all = idle.unwrap_or(false);
    if !all {
        app.queue.abandon();
    }
    while app.sessions.played() > 0 && tokio::time::Instant::now() < until {
        tokio::time::sleep(PAUSE).await;
    }
    all &= app.sessions.played() == 0;
    app.sessions.abandon();
    // Those who are silent are not waited for.
    let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
    Ok(all)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(stream, UNREAD_TIME.as_millis() as u32)?;
    Ok(())
}
