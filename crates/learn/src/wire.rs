//! What goes over the line between a program that learns and an engine in a process of its own.
//!
//! A frame is its length (32 bits, little-endian) and a message in postcard's format: numbers arrive as
//! they were sent, those that are none included. Each request is answered before the next is read. The
//! first message on either side says which version it speaks.

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::engine::{
    Completion, Description, Loss, Passed, Refusal, Row, SampleRequest, Scores, Step, Which,
};

/// Of the messages.
pub const VERSION: u32 = 4;

/// Longest frame, in bytes. Longer ones are somebody else's, or a mistake.
pub const LONGEST: u32 = 1 << 30;

/// The first message on either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of whoever sends it.
    pub version: u32,
}

/// What is asked.
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

/// What is answered.
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
    /// To anything that could not be done.
    Refused(Refusal),
}

/// Why a message did not come, or did not go.
#[derive(Debug, Error)]
pub enum LineError {
    /// The other side is gone.
    #[error("failed to reach the engine: it is gone")]
    Gone,
    /// Nothing came in the time that the line allows.
    #[error("failed to hear from the engine in time")]
    Silent,
    /// The line failed.
    #[error("failed to speak to the engine")]
    Io(#[source] std::io::Error),
    /// What came is no message.
    #[error("failed to understand the engine: {0}")]
    Garbled(String),
    /// The other side speaks another version.
    #[error("failed to agree with the engine: it speaks version {theirs}, this is {VERSION}")]
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

/// The next message. Memory is taken as bytes come, not as a length promises.
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
        Ok((_, rest)) => Err(LineError::Garbled(format!("{} bytes behind a message", rest.len()))),
        Err(error) => Err(LineError::Garbled(error.to_string())),
    }
}

/// Says hello, hears it, and refuses another version.
pub fn greet(line: &mut (impl Read + Write)) -> Result<(), LineError> {
    send(line, &Hello { version: VERSION })?;
    let Hello { version: theirs } = receive(line)?;
    if theirs == VERSION { Ok(()) } else { Err(LineError::Version { theirs }) }
}

fn too_long(bytes: usize) -> String {
    format!("a message of {bytes} bytes, where {LONGEST} is most")
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
        fn numbers_arrive_as_they_were_sent(rows in prop::collection::vec(row(), 0..4)) {
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
        fn what_is_no_message_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Whatever comes: no panic, and no memory that nobody sent.
            let _ = receive::<Request>(&mut bytes.as_slice());
            let _ = receive::<Answer>(&mut bytes.as_slice());
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend(&bytes);
            let _ = receive::<Request>(&mut framed.as_slice());
            let _ = receive::<Answer>(&mut framed.as_slice());
        }
    }

    #[test]
    fn a_line_that_ends_or_promises_too_much_is_an_error() {
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
        assert!(behind.contains("1 bytes behind a message"), "{behind}");
    }
}
