//! Framed JSON over a socket to a Python process, with a deadline on every answer.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::device::device_arbiter::AccessMode;
use crate::process::wire::Complaint;

/// Largest answer read. A runner's answer is hostile input; the largest honest one, the places of
/// a few thousand results, is a tenth of this.
pub(crate) const MAX_FRAME_BYTES: u32 = 16 << 20;

/// Longest that an answer is looked for without sleeping.
const AWAKE: Duration = Duration::from_millis(200);

/// The judge's end of a conversation.
pub(crate) struct Channel {
    stream: UnixStream,
}

/// Why a process gave no usable answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The process exited or closed the connection.
    Closed,
    /// It did not answer in time.
    Late(Duration),
    /// It answered with something that is not an answer.
    Malformed(String),
    /// Its answer has so many bytes, which is more than is read.
    TooLarge(u32),
    /// It reported an error.
    Complaint(Complaint),
    /// It sent an answer without a request, or to another request.
    Unasked,
    /// One of its processes ran while frozen.
    RanWhileFrozen,
    /// The judge could not freeze it.
    CannotFreeze(String),
    /// Its GPU work continued long after its answer.
    LeftRunning,
}

impl std::error::Error for NoAnswer {}

impl std::fmt::Display for NoAnswer {
    /// For people, with the process as the subject.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed the connection"),
            Self::Late(limit) => {
                write!(f, "it did not answer within {:.0} s", limit.as_secs_f64())
            }
            Self::Malformed(what) => write!(f, "its answer is malformed: {what}"),
            Self::TooLarge(bytes) => write!(f, "its answer has {bytes} bytes"),
            Self::Complaint(complaint) => f.write_str(&complaint.message),
            Self::Unasked => f.write_str("it sent an answer without a request"),
            Self::RanWhileFrozen => f.write_str("one of its processes ran while frozen"),
            Self::CannotFreeze(reason) => write!(f, "the judge could not freeze it: {reason}"),
            Self::LeftRunning => f.write_str("its GPU work did not finish"),
        }
    }
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Asks, and waits for the answer at most `deadline`.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
    ) -> Result<T, NoAnswer> {
        self.send(request, deadline)?;
        let reply = self.receive(deadline)?;
        decode(&reply)
    }

    /// Waits for the answer to what was sent: with `awake` without sleeping, for a while. To be woken
    /// takes a sleeping core tens of microseconds, now more and now fewer.
    pub(crate) fn answer(&mut self, awake: bool, deadline: Duration) -> Result<Vec<u8>, NoAnswer> {
        let end = Instant::now() + AWAKE.min(deadline);
        while awake && !self.is_readable() && Instant::now() < end {
            std::hint::spin_loop();
        }
        self.receive(deadline)
    }

    /// Whether there is something to be read, or the conversation is closed.
    pub(crate) fn is_readable(&self) -> bool {
        // Looks, and takes nothing.
        let looks = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        recv(&self.stream, &mut [0u8; 1][..], looks).err() != Some(Errno::AGAIN)
    }

    /// Whether an unrequested message has arrived.
    pub(crate) fn has_unasked(&self) -> bool {
        let looks = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        matches!(recv(&self.stream, &mut [0u8; 1][..], looks), Ok((_, 1..)))
    }

    /// Asks a process that may request the device while it answers. `hold` waits for the requested
    /// access; the deadline then starts anew. Only for processes that run our own code.
    pub(crate) fn ask_holding<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        hold: impl FnMut(AccessMode),
    ) -> Result<T, NoAnswer> {
        self.send(request, deadline)?;
        self.answer_holding(deadline, hold)
    }

    /// The answer to what was sent, of a process as in [`Channel::ask_holding`].
    pub(crate) fn answer_holding<T: DeserializeOwned>(
        &mut self,
        deadline: Duration,
        mut hold: impl FnMut(AccessMode),
    ) -> Result<T, NoAnswer> {
        #[derive(serde::Deserialize)]
        struct Asked {
            hold: AccessMode,
        }
        loop {
            let reply = self.receive(deadline)?;
            let Ok(asked) = serde_json::from_slice::<Asked>(&reply) else { return decode(&reply) };
            hold(asked.hold);
            self.send(&Json::Object(serde_json::Map::new()), deadline)?;
        }
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, request: &Json, deadline: Duration) -> Result<(), NoAnswer> {
        let body = request.to_string().into_bytes();
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&body);
        let _ = self.stream.set_write_timeout(Some(deadline));
        self.stream.write_all(&frame).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                NoAnswer::Late(deadline)
            }
            _ => NoAnswer::Closed,
        })
    }

    /// Sends a descriptor, with one byte that says nothing: the request before it says what for.
    pub(crate) fn send_descriptor(&self, descriptor: BorrowedFd<'_>) -> Result<(), NoAnswer> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = sendmsg(&self.stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|_| NoAnswer::Closed)
    }

    /// The bytes of the next answer.
    pub(crate) fn receive(&mut self, deadline: Duration) -> Result<Vec<u8>, NoAnswer> {
        let end = Instant::now() + deadline;
        let mut head = [0; 4];
        self.fill(&mut head, end, deadline)?;
        let length = u32::from_le_bytes(head);
        if length > MAX_FRAME_BYTES {
            return Err(NoAnswer::TooLarge(length));
        }
        let mut body = vec![0; length as usize];
        self.fill(&mut body, end, deadline)?;
        Ok(body)
    }

    fn fill(&mut self, mut into: &mut [u8], end: Instant, whole: Duration) -> Result<(), NoAnswer> {
        while !into.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer::Late(whole));
            }
            let _ = self.stream.set_read_timeout(Some(left));
            match self.stream.read(into) {
                Ok(0) => return Err(NoAnswer::Closed),
                Ok(n) => into = &mut into[n..],
                Err(e) => match e.kind() {
                    std::io::ErrorKind::Interrupted => {}
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                        return Err(NoAnswer::Late(whole));
                    }
                    _ => return Err(NoAnswer::Closed),
                },
            }
        }
        Ok(())
    }
}

/// Reads the answer to the request with this nonce: a complaint counts only with it.
pub(crate) fn decode_or_complain(reply: &[u8], nonce: &str) -> Result<Json, NoAnswer> {
    #[derive(serde::Deserialize)]
    struct Failed {
        error: Complaint,
        nonce: Option<String>,
    }
    match serde_json::from_slice::<Failed>(reply) {
        Ok(failed) if failed.nonce.as_deref() == Some(nonce) => {
            Err(NoAnswer::Complaint(failed.error))
        }
        Ok(_) => Err(NoAnswer::Unasked),
        Err(_) => serde_json::from_slice(reply).map_err(|e| NoAnswer::Malformed(e.to_string())),
    }
}

/// Reads an answer: the expected type, or the complaint in its place.
pub(crate) fn decode<T: DeserializeOwned>(reply: &[u8]) -> Result<T, NoAnswer> {
    #[derive(serde::Deserialize)]
    struct Failed {
        error: Complaint,
    }
    if let Ok(failed) = serde_json::from_slice::<Failed>(reply) {
        return Err(NoAnswer::Complaint(failed.error));
    }
    serde_json::from_slice(reply).map_err(|e| NoAnswer::Malformed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours), theirs)
    }

    const SOON: Duration = Duration::from_millis(50);
    /// Only what hangs reaches it.
    const LATE: Duration = Duration::from_mins(2);

    #[test]
    fn an_error_reply_is_not_an_answer() {
        let reply = br#"{"error":{"kind":"raised","message":"ValueError: no","trace":""}}"#;
        assert!(matches!(decode::<Json>(reply), Err(NoAnswer::Complaint(c)) if c.kind == "raised"));
    }

    #[test]
    fn busy_waiting_and_sleeping_receive_the_same_answer() {
        let (mut channel, mut theirs) = pair();
        let answerer = std::thread::spawn(move || {
            for wait in [0, 5, 250] {
                let mut frame = [0; 6];
                theirs.read_exact(&mut frame).unwrap();
                std::thread::sleep(Duration::from_millis(wait));
                theirs.write_all(b"\x01\0\0\x007").unwrap();
            }
        });
        for awake in [true, false, true] {
            channel.send(&serde_json::json!({}), LATE).unwrap();
            assert_eq!(channel.answer(awake, LATE).unwrap(), b"7");
        }
        answerer.join().unwrap();
        let (mut channel, _theirs) = pair();
        assert!(matches!(channel.answer(true, SOON), Err(NoAnswer::Late(_))));
    }

    #[test]
    fn an_unrequested_message_is_detected() {
        let (channel, mut theirs) = pair();
        assert!(!channel.has_unasked());
        theirs.write_all(b"\x02\0\0\0{}").unwrap();
        assert!(channel.has_unasked());
        let (channel, theirs) = pair();
        drop(theirs);
        assert!(!channel.has_unasked(), "a closed conversation says nothing");
        assert!(channel.is_readable());
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let (mut channel, _theirs) = pair();
        assert!(matches!(channel.receive(SOON), Err(NoAnswer::Late(_))));
    }

    #[test]
    fn drip_feeding_does_not_extend_the_deadline() {
        let (mut channel, mut theirs) = pair();
        // An answer of 16 MiB, one byte at a time, until nobody reads it.
        let feeder = std::thread::spawn(move || {
            theirs.write_all(&MAX_FRAME_BYTES.to_le_bytes()).unwrap();
            while theirs.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(matches!(channel.receive(SOON), Err(NoAnswer::Late(_))));
        drop(channel);
        feeder.join().unwrap();
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let (mut channel, mut theirs) = pair();
        theirs.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(matches!(channel.receive(SOON), Err(NoAnswer::TooLarge(u32::MAX))));
    }

    #[test]
    fn a_closed_channel_is_not_a_timeout() {
        let (mut channel, theirs) = pair();
        drop(theirs);
        assert!(matches!(channel.receive(SOON), Err(NoAnswer::Closed)));
    }
}
