//! The protocol between a trainer and an engine in a process of its own.
//!
//! A frame is its length (32 bits, little-endian) and a message in postcard's format.
//! Floating-point numbers arrive bit-exactly, NaN included. Each request is answered before the
//! next is read. The first message on either side has the protocol version.

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::engine::{
    Completion, Description, Loss, Passed, Refusal, Row, SampleRequest, Scores, Step, Which,
};

/// Protocol version.
pub const VERSION: u32 = 4;

/// Maximum frame length, in bytes. A longer frame is a protocol error.
pub const LONGEST: u32 = 1 << 30;

/// The first message on either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the sender.
    pub version: u32,
}

/// A request to the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// See [`crate::engine::Engine::describe`].
    Describe,
    /// See [`crate::engine::Engine::begin_critic`].
    BeginCritic,
    /// See [`crate::engine::Engine::score`].
    Score(Vec<Row>),
    /// See [`crate::engine::Engine::backward`].
    Backward(Vec<Row>, Loss, f64),
    /// See [`crate::engine::Engine::step`].
    Step(Which, Step),
    /// See [`crate::engine::Sampler::draw`].
    Draw(Vec<SampleRequest>, u32),
    /// See [`crate::engine::Engine::save`].
    Save(PathBuf),
}

/// An answer of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Describe`].
    Described(Description),
    /// To [`Request::BeginCritic`] and [`Request::Save`].
    Done,
    /// To [`Request::Score`].
    Scored(Vec<Scores>),
    /// To [`Request::Backward`].
    Passed(Passed),
    /// To [`Request::Step`].
    Stepped(f64),
    /// To [`Request::Draw`].
    Drawn(Vec<Completion>),
    /// To any request that the engine refuses.
    Refused(Refusal),
}

/// Why sending or receiving a message failed.
#[derive(Debug, Error)]
pub enum LineError {
    /// The other side has closed the connection.
    #[error("the engine closed the connection")]
    Gone,
    /// No message arrived within the line's timeout.
    #[error("the engine did not answer in time")]
    Silent,
    /// The connection failed.
    #[error("failed to exchange messages with the engine")]
    Io(#[source] std::io::Error),
    /// The bytes received are not a message.
    #[error("the engine sent an invalid message: {0}")]
    Garbled(String),
    /// The other side has another protocol version.
    #[error("the engine has protocol version {theirs}; this program has {VERSION}")]
    Version {
        /// Its version.
        theirs: u32,
    },
}

impl From<std::io::Error> for LineError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{
            BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
        };
        match error.kind() {
            UnexpectedEof | BrokenPipe | ConnectionReset => Self::Gone,
            WouldBlock | TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

/// Sends a message.
pub fn send(line: &mut impl Write, message: &impl Serialize) -> Result<(), LineError> {
    let garbled = |e: postcard::Error| LineError::Garbled(e.to_string());
    let bytes = postcard::to_stdvec(message).map_err(garbled)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| LineError::Garbled(too_long(bytes.len())))?;
    line.write_all(&length.to_le_bytes())?;
    line.write_all(&bytes)?;
    Ok(line.flush()?)
}

/// Receives the next message. Memory is allocated as bytes arrive, not by the announced length.
pub fn receive<T: DeserializeOwned>(line: &mut impl Read) -> Result<T, LineError> {
    let mut length = [0; 4];
    line.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(LineError::Garbled(too_long(length as usize)));
    }
    let mut bytes = Vec::new();
    let read = line.take(u64::from(length)).read_to_end(&mut bytes)?;
    if read < length as usize {
        return Err(LineError::Gone);
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            Err(LineError::Garbled(format!("{} bytes follow the message", rest.len())))
        }
        Err(error) => Err(LineError::Garbled(error.to_string())),
    }
}

/// Exchanges versions and refuses another version.
pub fn greet(line: &mut (impl Read + Write)) -> Result<(), LineError> {
    send(line, &Hello { version: VERSION })?;
    let Hello { version: theirs } = receive(line)?;
    if theirs == VERSION { Ok(()) } else { Err(LineError::Version { theirs }) }
}

fn too_long(bytes: usize) -> String {
    format!("the message has {bytes} bytes; at most {LONGEST} are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row() -> impl Strategy<Value = Row> {
        let numbers = || prop::collection::vec(prop::num::f32::ANY, 0..5);
        let ids = || prop::collection::vec(any::<u32>(), 0..9);
        (ids(), ids(), numbers(), numbers(), numbers()).prop_map(|(ids, actions, a, b, c)| Row {
            ids,
            actions,
            advantages: a,
            old_log_probs: b.clone(),
            rollout_log_probs: c.clone(),
            returns: c,
            values: b,
        })
    }

    proptest! {
        #[test]
        fn floats_round_trip_bit_exactly(rows in prop::collection::vec(row(), 0..4)) {
            let mut line = Vec::new();
            send(&mut line, &Request::Score(rows.clone())).unwrap();
            let Request::Score(found) = receive(&mut line.as_slice()).unwrap() else { panic!() };
            // NaN is not equal to itself; its bits are.
            let bits = |rows: &[Row]| {
                let all = rows.iter().flat_map(|row| [&row.advantages, &row.old_log_probs, &row.returns]);
                all.flatten().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            prop_assert_eq!(bits(&found), bits(&rows));
            prop_assert_eq!(found.len(), rows.len());
        }

        #[test]
        fn invalid_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Any bytes: no panic, and no allocation beyond the bytes received.
            let _ = receive::<Request>(&mut bytes.as_slice());
            let _ = receive::<Answer>(&mut bytes.as_slice());
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend(&bytes);
            let _ = receive::<Request>(&mut framed.as_slice());
            let _ = receive::<Answer>(&mut framed.as_slice());
        }
    }

    #[test]
    fn truncated_or_oversized_frames_are_errors() {
        let mut line = Vec::new();
        send(&mut line, &Request::Describe).unwrap();
        for keep in 0..line.len() {
            let cut = receive::<Request>(&mut &line[..keep]);
            assert!(matches!(cut, Err(LineError::Gone)), "{keep}: {cut:?}");
        }
        let promised = receive::<Request>(&mut &[0xff; 8][..]);
        assert!(matches!(promised, Err(LineError::Garbled(_))), "{promised:?}");
        // Promised and not sent.
        let mut short = (1_u32 << 29).to_le_bytes().to_vec();
        short.extend([0; 10]);
        assert!(matches!(receive::<Request>(&mut short.as_slice()), Err(LineError::Gone)));
        line[0] += 1;
        line.push(0);
        let behind = receive::<Request>(&mut line.as_slice()).unwrap_err().to_string();
        assert!(behind.contains("1 bytes follow the message"), "{behind}");
    }
}
