//! Framed JSON over the socket to the judge: four bytes of length, little endian, then UTF-8.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};
use serde_json::{Value as Json, json};

use crate::failure::Failure;
use crate::wire::{self, MAX_FRAME_BYTES, Received};

/// Longest that an announced request is polled for. To be woken takes tens of microseconds, which vary.
const AWAKE: Duration = Duration::from_millis(20);

/// The replayer's end of the conversation.
pub(crate) struct Channel {
    stream: UnixStream,
    /// Whether to poll for the next request instead of sleeping.
    pub(crate) awake: bool,
}

/// The judge closed the conversation, or broke its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl From<std::io::Error> for Closed {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, awake: false }
    }

    /// The next frame.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>, Closed> {
        if std::mem::take(&mut self.awake) {
            self.poll();
        }
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_le_bytes(head);
        if length > MAX_FRAME_BYTES {
            return Err(Closed);
        }
        let mut body = Vec::new();
        // Memory is taken as bytes arrive.
        let read = (&self.stream).take(u64::from(length)).read_to_end(&mut body)?;
        if read == length as usize { Ok(body) } else { Err(Closed) }
    }

    /// Waits without sleeping until there is something to read.
    fn poll(&self) {
        let end = Instant::now() + AWAKE;
        let looks = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        while recv(&self.stream, &mut [0u8; 1][..], looks).err() == Some(Errno::AGAIN)
            && Instant::now() < end
        {
            std::hint::spin_loop();
        }
    }

    /// The descriptor that follows the last request, with one byte that says nothing.
    pub(crate) fn descriptor(&mut self) -> Result<OwnedFd, Closed> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            let into = &mut [IoSliceMut::new(&mut byte)];
            match recvmsg(&self.stream, into, &mut control, flags) {
                Err(Errno::INTR) => {}
                other => break other.map_err(|_| Closed)?,
            }
        };
        if received.bytes != 1 {
            return Err(Closed);
        }
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        descriptors.last().ok_or(Closed)
    }

    /// Answers the last request.
    pub(crate) fn send(&mut self, reply: &Json) -> Result<(), Closed> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, reply).map_err(|_| Closed)?;
        let length = u32::try_from(frame.len() - 4).map_err(|_| Closed)?;
        if length > MAX_FRAME_BYTES {
            return Err(Closed);
        }
        frame[..4].copy_from_slice(&length.to_le_bytes());
        Ok(self.stream.write_all(&frame)?)
    }

    /// Asks the judge for access to the device, and waits until it is granted.
    fn hold(&mut self, how: &str) -> Result<(), Closed> {
        self.send(&json!({ "hold": how }))?;
        self.receive().map(drop)
    }

    /// Starts up: the judge's first request is answered when `start` is done, which holds the device.
    /// The inner result says whether it succeeded, and has been sent.
    pub(crate) fn starting<T>(
        &mut self,
        start: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Result<T, Failure>, Closed> {
        let nonce = Received::read(&self.receive()?).nonce;
        self.hold("shared")?;
        let started = start();
        self.hold("nothing")?;
        let reply = started.as_ref().map(|_| json!({})).map_err(Clone::clone);
        self.send(&wire::answer(reply, nonce))?;
        Ok(started)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), theirs)
    }

    #[test]
    fn frames_are_read_whole_and_in_order() {
        let (mut channel, mut theirs) = pair();
        theirs.write_all(b"\x02\0\0\0{}\x03\0\0\0[1]").unwrap();
        drop(theirs);
        assert_eq!(channel.receive().unwrap(), b"{}");
        channel.awake = true;
        assert_eq!(channel.receive().unwrap(), b"[1]");
        assert!(!channel.awake);
        assert_eq!(channel.receive(), Err(Closed));
    }

    #[test]
    fn polling_ends_without_a_request() {
        let (mut channel, mut theirs) = pair();
        channel.awake = true;
        let writer = std::thread::spawn(move || {
            std::thread::sleep(2 * AWAKE);
            theirs.write_all(b"\x01\0\0\x007").unwrap();
        });
        assert_eq!(channel.receive().unwrap(), b"7");
        writer.join().unwrap();
    }

    #[test]
    fn oversized_and_short_frames_close_the_conversation() {
        let (mut channel, mut theirs) = pair();
        theirs.write_all(&(MAX_FRAME_BYTES + 1).to_le_bytes()).unwrap();
        assert_eq!(channel.receive(), Err(Closed));
        let (mut channel, mut theirs) = pair();
        theirs.write_all(b"\x09\0\0\0{}").unwrap();
        drop(theirs);
        assert_eq!(channel.receive(), Err(Closed));
    }

    #[test]
    fn descriptor_arrives_between_two_frames() {
        let (mut channel, mut theirs) = pair();
        theirs.write_all(b"\x02\0\0\0{}").unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&theirs, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).unwrap();
        theirs.write_all(b"\x01\0\0\x005").unwrap();
        assert_eq!(channel.receive().unwrap(), b"{}");
        let mut received = std::fs::File::from(channel.descriptor().unwrap());
        (&file).write_all(b"same").unwrap();
        let mut text = String::new();
        std::io::Seek::rewind(&mut received).unwrap();
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "same");
        assert_eq!(channel.receive().unwrap(), b"5");
    }

    #[test]
    fn byte_without_a_descriptor_is_refused() {
        let (mut channel, mut theirs) = pair();
        theirs.write_all(&[0]).unwrap();
        assert_eq!(channel.descriptor().err(), Some(Closed));
    }

    #[test]
    fn start_holds_the_device_and_then_answers() {
        let (mut channel, theirs) = pair();
        let judge = std::thread::spawn(move || {
            let mut judge = Channel::new(theirs);
            let mut said = Vec::new();
            for request in [json!({"do": "ping", "nonce": "a"}), json!({}), json!({})] {
                judge.send(&request).unwrap();
                said.push(String::from_utf8(judge.receive().unwrap()).unwrap());
            }
            said
        });
        let failure = Failure::Request("no".to_owned());
        let started = channel.starting(|| Err::<(), _>(failure.clone())).unwrap();
        assert_eq!(started, Err(failure));
        let said = judge.join().unwrap();
        assert_eq!(said[..2], [r#"{"hold":"shared"}"#, r#"{"hold":"nothing"}"#]);
        assert!(said[2].contains(r#""nonce":"a""#) && said[2].contains("request"), "{}", said[2]);
    }
}
