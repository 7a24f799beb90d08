//! Parser of server-sent events. It works on chunks of any size.
//!
//! The grammar is that of the HTML standard, section 9.2 (server-sent events): lines end with LF,
//! CR or CRLF; a line is `field: value`; an empty line ends an event; lines that begin with a colon
//! are comments. `id` and `retry` are ignored, because the client never resumes a stream.

use thiserror::Error;

/// Maximum bytes of a line. Some events hold a whole answer in one line.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// Maximum bytes of an event's data.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; empty if the server names none.
    pub name: String,
    /// Its data lines, joined by line feeds. Invalid UTF-8 is replaced.
    pub data: String,
}

/// A stream that exceeds the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SseError {
    /// A line is too long.
    #[error("a line of the stream is longer than {MAX_LINE_BYTES} bytes")]
    Line,
    /// An event is too long.
    #[error("an event of the stream is longer than {MAX_EVENT_BYTES} bytes")]
    Event,
}

/// The parser's state between chunks.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// Whether the last line ended with CR: a following LF belongs to it.
    after_cr: bool,
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
}

impl Parser {
    /// Parses the next chunk, of any size; returns the events that end in it.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end])?;
            let after = &rest[end + 1..];
            rest = if rest[end] == b'\r' {
                self.after_cr = after.is_empty();
                after.strip_prefix(b"\n").unwrap_or(after)
            } else {
                after
            };
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(&line)?);
        }
        self.extend(rest)?;
        Ok(events)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), SseError> {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            return Err(SseError::Line);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Event>, SseError> {
        let line =
            if self.begun { line } else { line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            let event = Event {
                name: std::mem::take(&mut self.name),
                data: std::mem::take(&mut self.data),
            };
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"event" => self.name = value.into_owned(),
            b"data" => {
                if self.data.len() + value.len() > MAX_EVENT_BYTES {
                    return Err(SseError::Event);
                }
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(&value);
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn fields_comments_and_all_line_endings_are_parsed() {
        let stream = "\u{feff}data: a\ndata:b\r\n\r\n: ping\n\nevent: end\rdata\r\rid: 1\n\n";
        let events = Parser::default().push(stream.as_bytes()).unwrap();
        assert_eq!(events, [event("", "a\nb"), event("end", "")]);
    }

    #[test]
    fn event_is_incomplete_without_an_empty_line() {
        assert_eq!(Parser::default().push(b"data: half\n").unwrap(), []);
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let mut parser = Parser::default();
        let chunk = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(parser.push(&chunk), Ok(vec![]), "positive control");
        assert_eq!(parser.push(b"x"), Err(SseError::Line));
        let mut parser = Parser::default();
        let mut line = b"data:".to_vec();
        line.resize(MAX_EVENT_BYTES - 10, b'x');
        line.push(b'\n');
        assert_eq!(parser.push(&line), Ok(vec![]), "positive control");
        assert_eq!(parser.push(&line), Err(SseError::Event));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            lines in prop::collection::vec(("(data|event|id|)", ": ?[a-zé:]{0,6}|", "(\n|\r|\r\n|\n\n|\r\r)"), 0..20),
            cuts in prop::collection::vec(0_usize..200, 0..12),
        ) {
            let stream: String = lines.iter().flat_map(|(a, b, c)| [a.as_str(), b, c]).collect();
            let bytes = stream.as_bytes();
            let whole = Parser::default().push(bytes).unwrap();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let mut pieces = Vec::new();
            for pair in cuts.windows(2) {
                pieces.extend(parser.push(&bytes[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(pieces, whole);
        }
    }
}
