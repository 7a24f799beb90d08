//! Blocks of two recordings, side by side, and what an address of one recording and an address of the other have
//! in common.

use super::refusal::NotRecordable;
use crate::limits::{BEYOND, MAX_ALLOCATIONS, MAX_BLOCK_BYTES};
use crate::plan::Address;
use crate::recording::{RecordedBlock, Recording};

/// The blocks that both recordings agree on.
pub(super) struct Blocks<'a> {
    /// Those of the first recording; all but the addresses are also the other's.
    pub(super) all: &'a [RecordedBlock],
    places: [Places; 2],
}

/// Ranges of one recording, by address.
struct Places(Vec<Range>);

#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    block: u32,
}

impl<'a> Blocks<'a> {
    /// Pairs the blocks of two recordings, which must lie elsewhere and at other distances.
    pub(super) fn pair(recordings: [&'a Recording; 2]) -> Result<Self, NotRecordable> {
        let [all, others] = recordings.map(|recording| recording.blocks.as_slice());
        for blocks in [all, others] {
            NotRecordable::beyond("allocations", blocks.len() as u64, MAX_ALLOCATIONS as u64)?;
        }
        let alike = |(a, b): (&RecordedBlock, &RecordedBlock)| {
            RecordedBlock { address: 0, ..a.clone() } == RecordedBlock { address: 0, ..b.clone() }
        };
        if all.len() != others.len() || !all.iter().zip(others).all(alike) {
            return Err(NotRecordable::differs(
                "the number, order, size or lifetime of allocations",
            ));
        }
        if let Some(block) = all.iter().find(|block| block.bytes > MAX_BLOCK_BYTES) {
            return Err(NotRecordable::TooMuch {
                what: "bytes in one allocation",
                found: block.bytes,
                most: MAX_BLOCK_BYTES,
            });
        }
        // Gaps are random, so that a few may be equal by chance.
        let moved: Vec<u64> =
            all.iter().zip(others).map(|(a, b)| b.address.wrapping_sub(a.address)).collect();
        let same = moved.windows(2).filter(|pair| pair.first() == pair.last()).count();
        let fixed = all.iter().zip(others).any(|(a, b)| a.address == b.address);
        if fixed || same * 4 > moved.len().saturating_sub(1) * 3 {
            return Err(NotRecordable::recorder(
                "two recordings place memory at the same addresses or distances",
            ));
        }
        Ok(Self { all, places: [Places::of(all)?, Places::of(others)?] })
    }

    /// The block and the offset that both addresses stand for. An address in a block counts for that block, and
    /// one shortly behind a block may count for it.
    pub(super) fn resolve(&self, addresses: [u64; 2]) -> Option<Address> {
        let [a, b] = &self.places;
        let [one, other] = addresses;
        let others: Vec<Address> = b.candidates(other).collect();
        a.candidates(one).find(|candidate| others.contains(candidate))
    }

    /// A block.
    pub(super) fn get(&self, block: u32) -> Result<&'a RecordedBlock, NotRecordable> {
        let found = usize::try_from(block).ok().and_then(|block| self.all.get(block));
        found.ok_or_else(|| NotRecordable::recorder("a block does not exist"))
    }
}

impl Places {
    fn of(blocks: &[RecordedBlock]) -> Result<Self, NotRecordable> {
        let range = |(block, index): (&RecordedBlock, u32)| {
            let end = block.address.checked_add(block.bytes)?;
            let start = (block.address != 0).then_some(block.address)?;
            // Addresses behind it must be numbers too.
            end.checked_add(BEYOND)?;
            Some(Range { start, end, block: index })
        };
        let ranges: Option<Vec<Range>> = blocks.iter().zip(0..).map(range).collect();
        let mut ranges = ranges
            .ok_or_else(|| NotRecordable::recorder("an allocation has no place in memory"))?;
        ranges.sort_unstable_by_key(|range| range.start);
        let apart = |pair: &[Range]| match pair {
            [one, next] => one.end <= next.start,
            _ => true,
        };
        if !ranges.windows(2).all(apart) {
            return Err(NotRecordable::recorder("two allocations overlap"));
        }
        Ok(Self(ranges))
    }

    /// What an address may stand for, the likelier first: the block that contains it, the one that ends before it.
    fn candidates(&self, address: u64) -> impl Iterator<Item = Address> {
        let after = self.0.partition_point(|range| range.start <= address);
        let near = self.0.get(after.saturating_sub(2)..after).unwrap_or_default();
        let within = move |range: &&Range| address <= range.end.saturating_add(BEYOND);
        let place =
            move |range: &Range| Address { block: range.block, offset: address - range.start };
        near.iter().rev().filter(within).map(place)
    }
}
