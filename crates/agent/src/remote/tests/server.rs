//! A server on loopback that says what a script says. One request a connection; every request is kept.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// One answer.
#[derive(Clone)]
pub(super) enum Say {
    /// Status, headers, body.
    Answer { status: u16, headers: Vec<(&'static str, &'static str)>, body: Vec<u8> },
    /// An event stream, in chunks of this many bytes; the connection closes where the bytes end.
    Stream { body: Vec<u8>, chunk: usize },
    /// Headers of a stream, these bytes, then nothing until the server ends.
    Hang { body: Vec<u8> },
    /// The connection is closed without a byte.
    Nothing,
}

impl Say {
    pub(super) fn stream(body: impl Into<Vec<u8>>) -> Self {
        Self::Stream { body: body.into(), chunk: 7 }
    }

    pub(super) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Answer {
            status,
            headers: vec![("content-type", "application/json")],
            body: body.into(),
        }
    }

    pub(super) fn wait(status: u16, header: &'static str, value: &'static str) -> Self {
        let headers = vec![("content-type", "application/json"), (header, value)];
        Self::Answer { status, headers, body: br#"{"error":{"message":"slow down"}}"#.to_vec() }
    }
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) head: String,
    pub(super) body: Value,
}

pub(super) struct Server {
    pub(super) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Answers the script in order, then its last line again and again.
    pub(super) fn start(script: Vec<Say>) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    pub(super) fn on(listener: TcpListener, script: Vec<Say>) -> Self {
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let (asked, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (keep, end) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !end.load(Ordering::SeqCst) {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let say = script[number.min(script.len() - 1)].clone();
                number += 1;
                let (keep, end) = (Arc::clone(&keep), Arc::clone(&end));
                std::thread::spawn(move || serve(stream, &say, &keep, &end));
            }
        });
        Self { port, asked, over, thread: Some(thread) }
    }

    pub(super) fn base(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut stream: TcpStream, say: &Say, keep: &Mutex<Vec<Asked>>, over: &AtomicBool) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let Some(asked) = read(&mut stream) else { return };
    keep.lock().unwrap().push(asked);
    let event_stream =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // The client may be gone: that is what some tests are about.
    let _ = match say {
        Say::Answer { status, headers, body } => {
            let headers: String =
                headers.iter().map(|(n, v)| [n, ": ", v, "\r\n"].concat()).collect();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body))
        }
        Say::Stream { body, chunk } => stream.write_all(event_stream).and_then(|()| {
            stream.set_nodelay(true)?;
            body.chunks(*chunk).try_for_each(|piece| stream.write_all(piece))
        }),
        Say::Hang { body } => {
            let written = stream.write_all(event_stream).and_then(|()| stream.write_all(body));
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            written
        }
        Say::Nothing => Ok(()),
    };
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let length: usize = length.unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let body = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).ok()?;
                return Some(Asked { head, body });
            }
        }
        let read = stream.read(&mut chunk).ok()?;
        if read == 0 {
            return None;
        }
        bytes.extend_from_slice(&chunk[..read]);
    }
}
