//! Memory that an operation reads or writes by itself lies in its block or variable.

use super::{Checker, Rule, at, ensure};
use crate::limits::MAX_NAME;
use crate::plan::{Address, Copy2d, Fill, Memory, Relocation, Upload};

/// Bytes of an address.
const POINTER: u64 = 8;

impl Checker<'_> {
    pub(super) fn fill(&self, fill: &Fill) -> Rule {
        let element = u64::from(fill.element);
        ensure(matches!(element, 1 | 2 | 4), "its elements have an unknown size")?;
        let width = fill.width.checked_mul(element).ok_or("it is too large")?;
        self.rows(&fill.to, width, fill.height, fill.pitch)?;
        let pitch = if fill.height > 1 { fill.pitch } else { 0 };
        let offset = match &fill.to {
            Memory::Block(address) => address.offset,
            Memory::Symbol { offset, .. } => *offset,
        };
        ensure(offset.is_multiple_of(element) && pitch.is_multiple_of(element), "it is not aligned")
    }

    pub(super) fn copy(&self, copy: &Copy2d) -> Rule {
        self.rows(&copy.to, copy.width, copy.height, copy.to_pitch)?;
        self.rows(&copy.from, copy.width, copy.height, copy.from_pitch)
    }

    pub(super) fn upload(&self, upload: &Upload) -> Rule {
        self.rows(&upload.to, upload.bytes.len() as u64, 1, 0)?;
        self.relocations(upload.bytes.len(), &upload.relocations, &[])
    }

    /// Checks that relocations, and other ranges, lie in so many bytes and do not overlap.
    pub(super) fn relocations(
        &self,
        bytes: usize,
        relocations: &[Relocation],
        others: &[(u64, u64)],
    ) -> Rule {
        let pointers = relocations.iter().map(|r| (u64::from(r.at), u64::from(r.at) + POINTER));
        let mut ranges: Vec<(u64, u64)> = pointers.chain(others.iter().copied()).collect();
        ranges.sort_unstable();
        let mut end = 0;
        for (start, next) in ranges {
            ensure(start >= end, "two addresses overlap")?;
            end = next;
        }
        ensure(end <= bytes as u64, "an address lies outside the bytes")?;
        relocations.iter().try_for_each(|relocation| self.near(relocation.to))
    }

    /// Whether bytes lie in their block.
    pub(super) fn within(&self, address: Address, bytes: u64) -> Rule {
        let block = self.block_of(address)?;
        let end = address.offset.checked_add(bytes);
        ensure(end.is_some_and(|end| end <= block.bytes), "it reaches beyond its block")
    }

    /// Whether an address lies in a block or shortly behind it: a kernel may compare with it, or mask it out.
    fn near(&self, address: Address) -> Rule {
        let block = self.block_of(address)?;
        let end = block.bytes.saturating_add(crate::limits::BEYOND);
        ensure(address.offset <= end, "an address lies outside its block")
    }

    fn rows(&self, memory: &Memory, width: u64, height: u64, pitch: u64) -> Rule {
        ensure(width > 0 && height > 0, "it is empty")?;
        let bytes = if height == 1 {
            Some(width)
        } else {
            ensure(pitch >= width, "its rows overlap")?;
            (height - 1).checked_mul(pitch).and_then(|rows| rows.checked_add(width))
        };
        let bytes = bytes.ok_or("it is too large")?;
        match memory {
            Memory::Block(address) => self.within(*address, bytes),
            Memory::Symbol { module, name, offset } => {
                ensure(name.len() <= MAX_NAME, "a variable's name is too long")?;
                let image = at(self.images, *module).ok_or("a module does not exist")?;
                let size = image.symbols.get(name).ok_or("a variable does not exist")?;
                let end = offset.checked_add(bytes);
                ensure(end.is_some_and(|end| end <= *size), "it reaches beyond its variable")
            }
        }
    }
}
