//! A range of an arena.

/// A part of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Zone {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.bytes
    }

    pub(crate) fn contains(self, offset: u64, bytes: u64) -> bool {
        offset >= self.offset && offset.checked_add(bytes).is_some_and(|end| end <= self.end())
    }
}
