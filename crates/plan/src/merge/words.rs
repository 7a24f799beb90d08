//! Bytes of two recordings: what is equal is a constant, what differs must be a pointer.

use super::memory::Blocks;
use crate::plan::Relocation;

/// Bytes with zeros where pointers were.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) bytes: Vec<u8>,
    pub(super) relocations: Vec<Relocation>,
}

/// A byte that is neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unexplained {
    pub(super) byte: usize,
    /// Whether the byte is of a pointer that is not aligned, which then begins there.
    pub(super) unaligned: bool,
}

const WORD: usize = 8;

impl Words {
    /// Compares bytes of equal length in words of eight, and resolves those that differ.
    pub(super) fn pair(one: &[u8], other: &[u8], blocks: &Blocks<'_>) -> Result<Self, Unexplained> {
        let mut relocations = Vec::new();
        let mut bytes = one.to_vec();
        for ((word, other_word), at) in
            bytes.chunks_mut(WORD).zip(other.chunks(WORD)).zip((0u32..).step_by(WORD))
        {
            if word == other_word {
                continue;
            }
            let addresses = word.first_chunk().copied().zip(other_word.first_chunk().copied());
            let to = addresses.and_then(|(a, b)| blocks.resolve([a, b].map(u64::from_le_bytes)));
            let Some(to) = to else {
                let first = word.iter().zip(other_word).position(|(a, b)| a != b);
                let byte = at as usize + first.unwrap_or_default();
                return Err(unexplained(one, other, byte, blocks));
            };
            relocations.push(Relocation { at, to });
            word.fill(0);
        }
        Ok(Self { bytes, relocations })
    }
}

/// Tells a pointer at an odd offset from a number.
fn unexplained(one: &[u8], other: &[u8], byte: usize, blocks: &Blocks<'_>) -> Unexplained {
    let pointer = |at: &usize| {
        let word = |bytes: &[u8]| bytes.get(*at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let words = word(one).zip(word(other));
        words.is_some_and(|(a, b)| a != b && blocks.resolve([a, b]).is_some())
    };
    // The lowest bytes of an address are often equal: what differs first may be its second or third byte.
    let starts = byte.saturating_sub(WORD - 1)..=byte;
    match starts.into_iter().find(pointer) {
        Some(byte) => Unexplained { byte, unaligned: true },
        None => Unexplained { byte, unaligned: false },
    }
}
