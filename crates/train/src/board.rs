//! Writes metrics in TensorBoard's format: an event file per stage.
//!
//! Each record of the file is a length, the masked checksum of these eight bytes, an event in the
//! protobuf form of `tensorflow/core/util/event.proto`, and its masked checksum
//! (`tensorflow/core/lib/io/record_writer.h`).

use std::io::Write;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::figures::Figure;

/// Writes a stage's events.
pub(crate) struct Board {
    file: fs::File,
    /// Number of the next step.
    next: i64,
}

impl Board {
    /// Rewrites the stage's file with the known steps, so that truncated records and steps after
    /// the last checkpoint do not appear twice.
    pub(crate) fn begin(folder: &Path, known: &[Vec<Figure>]) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut file = fs::File::create(path(folder))?;
        let version =
            [varint_field(1, 1, &seconds().to_le_bytes()), text_field(3, "brain.Event:2")];
        file.write_all(&record(&version.concat()))?;
        let mut board = Self { file, next: 1 };
        for step in known {
            board.add(step)?;
        }
        Ok(board)
    }

    /// Appends the metrics of the next step.
    pub(crate) fn add(&mut self, figures: &[Figure]) -> std::io::Result<()> {
        let mut summary = Vec::new();
        for (name, value) in figures {
            let number = varint_field(2, 5, &(*value as f32).to_le_bytes());
            let entry = [text_field(1, &tag(name)), number].concat();
            summary.extend(bytes_field(1, &entry));
        }
        let mut event = varint_field(1, 1, &seconds().to_le_bytes());
        event.extend(varint_field(2, 0, &varint(self.next as u64)));
        event.extend(bytes_field(5, &summary));
        self.next += 1;
        self.file.write_all(&record(&event))
    }
}

/// TensorBoard recognises the file by its name.
fn path(folder: &Path) -> PathBuf {
    folder.join("events.out.tfevents.1.warpwright")
}

/// TensorBoard groups metrics by the part before a slash.
fn tag(name: &str) -> String {
    name.replace(": ", "/").replace(' ', "_")
}

fn seconds() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), event, &masked(event)].concat()
}

/// CRC-32C, rotated and offset as the format requires.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field: its number, wire type and bytes.
fn varint_field(number: u64, wire: u64, bytes: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | wire)[..], bytes].concat()
}

fn bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint_field(number, 2, &varint(bytes.len() as u64)), bytes.to_vec()].concat()
}

fn text_field(number: u64, text: &str) -> Vec<u8> {
    bytes_field(number, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(value: f64) -> Vec<Figure> {
        vec![("reward".to_owned(), value), ("after to before: mean ratio".to_owned(), 1.0)]
    }

    /// The records of a file, checksums checked.
    fn records(bytes: &[u8]) -> Vec<&[u8]> {
        let (mut rest, mut all) = (bytes, Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(rest[8..12], masked(&rest[..8]));
            let event = &rest[12..12 + length];
            assert_eq!(rest[12 + length..16 + length], masked(event));
            all.push(event);
            rest = &rest[16 + length..];
        }
        all
    }

    #[test]
    fn checksum_matches_the_crc32c_standard() {
        // RFC 3720, B.4: 32 bytes of zeros, and the usual check value.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn steps_count_from_one_without_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = Board::begin(folder.path(), &[step(0.25)]).unwrap();
        board.add(&step(0.5)).unwrap();
        drop(board);
        Board::begin(folder.path(), &[step(0.25)]).unwrap().add(&step(0.75)).unwrap();
        let bytes = fs::read(path(folder.path())).unwrap();
        let events = records(&bytes);
        assert_eq!(events.len(), 3, "the version and two steps");
        assert!(events[0].ends_with(b"brain.Event:2"));
        // Time, 9 bytes; the step, field 2; the summary, field 5.
        assert_eq!(events[1][9..11], [0x10, 1]);
        assert_eq!(events[2][9..11], [0x10, 2]);
        let tag = b"after_to_before/mean_ratio";
        assert!(events[2].windows(tag.len()).any(|part| part == tag));
        assert!(events[2].windows(4).any(|part| part == 0.75f32.to_le_bytes()));
        assert_eq!(varint(300), [0xac, 2], "by protobuf's documentation");
    }
}
