//! A chat completions server on loopback with scripted answers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The server; dropping it ends it.
pub(crate) struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<Value>>>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Answers with each text in order, then repeats the last one. Each connection has one request.
    pub(crate) fn saying(texts: Vec<String>) -> Self {
        Self::answering(move |number| {
            let text = &texts[number.min(texts.len() - 1)];
            let message = json!({ "role": "assistant", "content": text });
            let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 10 });
            let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
            (200, json!({ "model": "written", "choices": [choice], "usage": usage }))
        })
    }

    /// Answers each request with the status and body for its number.
    pub(crate) fn answering(
        answer: impl Fn(usize) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let (asked, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (keep, end) = (Arc::clone(&asked), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let (keep, answer) = (Arc::clone(&keep), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let Some(body) = read(&mut stream) else { return };
                    let number = {
                        let mut keep = keep.lock().unwrap();
                        keep.push(body);
                        keep.len() - 1
                    };
                    let (status, body) = answer(number);
                    say(&mut stream, status, &body.to_string());
                });
            }
        });
        Self { port, asked, over, thread: Some(thread) }
    }

    /// The value for `--base-url`.
    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The bodies of all requests so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
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

fn say(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The client may be gone: it was interrupted.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

/// Reads the body of a request.
fn read(stream: &mut TcpStream) -> Option<Value> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|text| text.trim().parse().ok())?;
            if bytes.len() >= end + 4 + length {
                return serde_json::from_slice(&bytes[end + 4..end + 4 + length]).ok();
            }
        }
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    }
}
