//! Dialogues with a scripted server on loopback, and one with a real model server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::endpoint::{Endpoint, Limits};
use super::wire::WireFormat;

mod dialogues;
mod failures;
mod real_server;
mod server;

/// A body as a server would send it. The fixtures were written after the public descriptions of the
/// formats; `tests/fixtures/remote/README.md` says which.
fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/remote");
    fs_err::read(folder.join(name)).unwrap()
}

/// Limits that let a test be over in a moment.
fn quick() -> Limits {
    Limits {
        connect: Duration::from_secs(2),
        first_byte: Duration::from_secs(5),
        between_chunks: Duration::from_secs(5),
        whole: Duration::from_secs(20),
        backoff_first: Duration::from_millis(20),
        backoff_most: Duration::from_millis(100),
        patience: Duration::from_secs(2),
        ..Limits::default()
    }
}

fn endpoint(format: Box<dyn WireFormat>, server: &server::Server, limits: Limits) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(format, &server.base(), None, false, limits, Arc::default()).unwrap())
}
