//! A NATS server for tests.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use warpwright_test_support::{Need, missing};

/// A NATS server with its own store; it can be killed and restarted.
pub(crate) struct Nats {
    child: Child,
    store: tempfile::TempDir,
    at: &'static str,
    port: u16,
}

impl Nats {
    /// `None` if no server is installed and `WARPWRIGHT_SKIP` allows that.
    pub(crate) fn start() -> Option<Self> {
        Self::start_at("127.0.0.1")
    }

    pub(crate) fn start_at(at: &'static str) -> Option<Self> {
        let store = tempfile::tempdir().unwrap();
        let port = TcpListener::bind((at, 0)).unwrap().local_addr().unwrap().port();
        match Self::spawn(at, port, store.path()) {
            Ok(child) => {
                let nats = Self { child, store, at, port };
                nats.wait();
                Some(nats)
            }
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    ErrorKind::NotFound,
                    "nats-server does not start: {error}"
                );
                missing(Need::NatsServer);
                None
            }
        }
    }

    #[expect(clippy::disallowed_types, reason = "a test starts a server")]
    fn spawn(at: &str, port: u16, store: &std::path::Path) -> std::io::Result<Child> {
        std::process::Command::new("nats-server")
            .args(["--jetstream", "--addr", at, "--port", &port.to_string(), "--store_dir"])
            .arg(store)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_mins(1);
        while TcpStream::connect((self.at, self.port)).is_err() {
            assert!(Instant::now() < until, "nats-server did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        self.child = Self::spawn(self.at, self.port, self.store.path()).unwrap();
        self.wait();
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}:{}", self.at, self.port)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
