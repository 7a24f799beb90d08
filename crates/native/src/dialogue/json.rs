//! JSON as Python's `json.dumps` writes it, with a space after commas and colons: the form of tools
//! and calls in models' training data.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// Serialises `value` on one line.
pub(super) fn spaced<T: Serialize>(value: &T) -> String {
    let mut out = Vec::new();
    // Cannot fail: it writes to memory, and the values are representable in JSON.
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, Spaced));
    if let Err(error) = written {
        debug_assert!(false, "failed to serialise to memory: {error}");
    }
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn output_equals_python_json_dumps() {
        let value =
            json!({ "a": [1, 2.5, null, true], "b": { "c": "d: e, \"f\" \u{e9}\n" }, "g": [] });
        assert_eq!(
            super::spaced(&value),
            "{\"a\": [1, 2.5, null, true], \"b\": {\"c\": \"d: e, \\\"f\\\" \u{e9}\\n\"}, \"g\": []}"
        );
    }
}
