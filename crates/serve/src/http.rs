//! Connections: their limit, their timeouts, and graceful shutdown.

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

/// Limit of concurrent connections: each may hold a request's body.
const CONNECTIONS: usize = 2048;
/// Timeout of receiving a request's head.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Timeout of unacknowledged response bytes: a client that never reads is disconnected.
const UNREAD_TIME: Duration = Duration::from_mins(1);
/// Pause after a failed accept (mostly too many descriptors), and between two checks for running sessions.
const PAUSE: Duration = Duration::from_millis(100);
/// Timeout of sending the last responses.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves until `stop` resolves. It then accepts no more jobs, waits at most `drain` for accepted jobs and running
/// sessions, and sends the last responses. Returns whether every accepted request was answered.
///
/// # Errors
///
/// If the listener cannot be used.
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
        // The permit first: other connections wait in the kernel's backlog.
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
        // A connection works without these options, only slower.
        let _ = prepare(&stream);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = connection.into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A broken connection has no reader for an error.
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
    // Idle clients are not waited for.
    let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
    Ok(all)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(stream, UNREAD_TIME.as_millis() as u32)?;
    Ok(())
}
