//! What a program printed, bounded: the first half of the allowance and the last half.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sys;

/// The captured part of one output stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The captured bytes; a line marks a gap and says how many bytes are missing.
    pub bytes: Vec<u8>,
    /// Whether bytes are missing.
    pub truncated: bool,
}

impl Captured {
    /// The bytes as text; invalid UTF-8 becomes replacement characters.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Head and tail of a stream of any length, in bounded memory.
#[derive(Debug, Default)]
struct Window {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    dropped: u64,
}

impl Window {
    fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, dropped: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        // Only the last half of a long piece can survive.
        let skipped = rest.len().saturating_sub(self.half);
        self.tail.extend(&rest[skipped..]);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
        self.dropped += (skipped + excess) as u64;
    }

    fn captured(&self) -> Captured {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend(format!("\n[{} bytes left out]\n", self.dropped).into_bytes());
        }
        bytes.extend(&self.tail);
        Captured { bytes, truncated: self.dropped > 0 }
    }
}

/// A thread that empties one pipe; without one, nothing was printed here.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    window: Arc<Mutex<Window>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    pub(crate) fn start(pipe: impl Read + AsFd + Send + 'static, limit: usize) -> Self {
        let window = Arc::new(Mutex::new(Window::new(limit)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (window, stop) = (Arc::clone(&window), Arc::clone(&stop));
            move || drain(pipe, &window, &stop)
        });
        Self { window, stop, thread: Some(thread) }
    }

    pub(crate) fn so_far(&self) -> Captured {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).captured()
    }

    /// What came until the end of the stream, or until `patience` is over: a descriptor that was passed
    /// out of the jail can hold the pipe open for ever.
    pub(crate) fn finish(&mut self, patience: Duration) -> Captured {
        if let Some(thread) = self.thread.take() {
            let deadline = Instant::now() + patience;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.stop.store(true, Ordering::Relaxed);
            if thread.is_finished() {
                drop(thread.join());
            }
        }
        self.so_far()
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn drain(mut pipe: impl Read + AsFd, window: &Mutex<Window>, stop: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        match sys::poll_readable(&[pipe.as_fd()], 100) {
            Ok(ready) if ready.first() == Some(&true) => match pipe.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    window.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..count]);
                }
            },
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole_in_any_chunking() {
        let mut window = Window::new(10);
        for piece in [&b"abc"[..], b"", b"defg", b"hij"] {
            window.push(piece);
        }
        assert_eq!(window.captured(), Captured { bytes: b"abcdefghij".into(), truncated: false });
    }

    #[test]
    fn oversized_output_keeps_head_and_tail_and_counts_the_rest() {
        let mut window = Window::new(8);
        for _ in 0..1000 {
            window.push(b"0123456789");
        }
        window.push(b"the end");
        let captured = window.captured();
        assert!(captured.truncated);
        assert_eq!(captured.text(), format!("0123\n[{} bytes left out]\n end", 10_007 - 8));
    }
}
