//! Where the blocks of a plan lie in the judge's memory.

use warpwright_plan::{Block, Role};

use crate::failure::Failure;
use crate::memory::Room;
use crate::wire::MAX_CALLS;

/// Offsets of the lasting blocks of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Per block of the plan: its offset, if it is lasting.
    offsets: Vec<Option<u64>>,
    /// Start and end of each, by start. None overlap.
    taken: Vec<(u64, u64)>,
}

/// Offsets of the other blocks, call by call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calls {
    count: usize,
    /// Indices of the blocks that are not lasting.
    blocks: Vec<usize>,
    /// As many per call as there are blocks.
    offsets: Vec<u64>,
}

/// Whether a block stays from call to call.
fn is_lasting(block: &Block) -> bool {
    match block.role {
        Role::Weight(_) | Role::Init(_) | Role::Constant(_) | Role::Kept => true,
        Role::Input(_) | Role::Call { .. } => false,
    }
}

impl Placement {
    /// Checks the offsets of lasting blocks, which come in the order of the plan's blocks.
    pub(crate) fn settle(blocks: &[Block], at: &[u64], room: Room) -> Result<Self, Failure> {
        let lasting = blocks.iter().filter(|block| is_lasting(block)).count();
        if lasting != at.len() {
            return Err(Failure::Request(format!(
                "the plan has {lasting} lasting blocks, and the request places {}",
                at.len()
            )));
        }
        let mut places = at.iter();
        let mut offsets = Vec::with_capacity(blocks.len());
        let mut taken = Vec::with_capacity(at.len());
        for (index, block) in blocks.iter().enumerate() {
            let offset = if is_lasting(block) { places.next().copied() } else { None };
            if let Some(offset) = offset {
                let end = offset.checked_add(block.bytes);
                let end = end.filter(|_| room.in_arena(offset, block.bytes));
                let end = end.ok_or_else(|| outside(index, offset, block.bytes))?;
                if offset < end {
                    taken.push((offset, end));
                }
            }
            offsets.push(offset);
        }
        taken.sort_unstable();
        if let Some([(a, _), (b, _)]) =
            taken.array_windows().find(|[before, after]| after.0 < before.1)
        {
            return Err(Failure::Request(format!("lasting blocks at {a} and {b} overlap")));
        }
        Ok(Self { offsets, taken })
    }

    /// Per block of the plan: its offset, if it is lasting.
    pub(crate) fn offsets(&self) -> &[Option<u64>] {
        &self.offsets
    }

    /// Whether these bytes are those of a lasting block.
    fn overlaps(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.saturating_add(bytes);
        let next = self.taken.partition_point(|(_, taken)| *taken <= offset);
        bytes > 0 && self.taken.get(next).is_some_and(|(start, _)| *start < end)
    }

    /// Checks the offsets of `count` calls. `words` are as in [`crate::wire::Stage::at`].
    pub(crate) fn calls(
        &self,
        blocks: &[Block],
        count: u32,
        words: &str,
        room: Room,
    ) -> Result<Calls, Failure> {
        if count > MAX_CALLS {
            return Err(Failure::Request(format!("{count} calls are more than {MAX_CALLS}")));
        }
        let count = count as usize;
        let passing: Vec<usize> =
            (0..).zip(blocks).filter(|(_, block)| !is_lasting(block)).map(|(i, _)| i).collect();
        let offsets = words_of(words)
            .ok_or_else(|| Failure::Request("offsets are not words in hexadecimal".to_owned()))?;
        if Some(offsets.len()) != passing.len().checked_mul(count) {
            return Err(Failure::Request(format!(
                "{} offsets were sent for {count} calls with {} blocks each",
                offsets.len(),
                passing.len()
            )));
        }
        let calls = Calls { count, blocks: passing, offsets };
        for call in 0..count {
            for (index, offset) in calls.of(call) {
                let Some(block) = blocks.get(index) else { continue };
                let held = room.in_arena(offset, block.bytes)
                    || matches!(block.role, Role::Input(_)) && room.in_apart(offset, block.bytes);
                if !held {
                    return Err(outside(index, offset, block.bytes));
                }
                if self.overlaps(offset, block.bytes) {
                    return Err(Failure::Request(format!(
                        "block {index} at {offset} overlaps a lasting block"
                    )));
                }
            }
        }
        Ok(calls)
    }
}

fn outside(block: usize, offset: u64, bytes: u64) -> Failure {
    Failure::Request(format!("block {block} of {bytes} bytes at {offset} is outside the memory"))
}

impl Calls {
    /// No block but the lasting ones.
    pub(crate) fn lasting_only() -> Self {
        Self { count: 1, blocks: Vec::new(), offsets: Vec::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Index and offset of each block that is not lasting.
    pub(crate) fn of(&self, call: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let each = self.blocks.len();
        let offsets = self.offsets.iter().skip(call.saturating_mul(each));
        self.blocks.iter().copied().zip(offsets.copied())
    }

    /// End of what lies at or behind `from`, if anything does.
    pub(crate) fn end_behind(&self, blocks: &[Block], from: u64) -> Option<u64> {
        let places = (0..self.count).flat_map(|call| self.of(call));
        let ends = places.filter(|(_, offset)| *offset >= from);
        ends.map(|(index, offset)| {
            offset.saturating_add(blocks.get(index).map_or(0, |block| block.bytes))
        })
        .max()
    }
}

/// Little-endian words of eight bytes, from hexadecimal text.
fn words_of(text: &str) -> Option<Vec<u64>> {
    let (words, []) = text.as_bytes().as_chunks::<16>() else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    let word = |digits: &[u8; 16]| {
        digits
            .iter()
            .try_fold(0u64, |word, byte| Some(word << 4 | digit(byte)?))
            .map(u64::swap_bytes)
    };
    words.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::words as hex;

    const ROOM: Room = Room { arena: 4096, apart_at: 8192, apart: 1024 };

    fn blocks() -> Vec<Block> {
        [
            (256, Role::Weight(0)),
            (100, Role::Input(0)),
            (512, Role::Kept),
            (64, Role::Call { born: 0, freed: None }),
            (0, Role::Constant(0)),
        ]
        .map(|(bytes, role)| Block { bytes, role })
        .to_vec()
    }

    #[test]
    fn words_are_little_endian() {
        assert_eq!(
            words_of("0100000000000000ff00000000000080"),
            Some(vec![1, 0x8000_0000_0000_00ff])
        );
        assert_eq!(words_of(""), Some(vec![]));
        for bad in ["01", "+100000000000000", "010000000000000g", "0100000000000000f"] {
            assert_eq!(words_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn blocks_inside_the_memory_are_accepted() {
        let placement = Placement::settle(&blocks(), &[0, 256, 4096], ROOM).unwrap();
        assert_eq!(placement.offsets(), [Some(0), None, Some(256), None, Some(4096)]);
        let calls = placement.calls(&blocks(), 2, &hex(&[8192, 768, 1000, 1024]), ROOM).unwrap();
        assert_eq!(calls.of(0).collect::<Vec<_>>(), [(1, 8192), (3, 768)]);
        assert_eq!(calls.of(1).collect::<Vec<_>>(), [(1, 1000), (3, 1024)]);
        assert_eq!(calls.end_behind(&blocks(), 8192), Some(8292));
        assert_eq!(calls.end_behind(&blocks(), 8193), None);
    }

    #[test]
    fn lasting_blocks_must_be_apart_and_inside() {
        let refused = [
            vec![0, 255, 4096],
            vec![256, 0, 0],
            vec![0, 3585, 0],
            vec![u64::MAX, 256, 0],
            vec![0, 256],
            vec![0, 256, 4097],
            vec![8192, 256, 0],
        ];
        for at in refused {
            let settled = Placement::settle(&blocks(), &at, ROOM);
            assert!(matches!(settled, Err(Failure::Request(_))), "{at:?}: {settled:?}");
        }
    }

    #[test]
    fn blocks_of_a_call_must_be_inside() {
        let placement = Placement::settle(&blocks(), &[0, 256, 4096], ROOM).unwrap();
        let refused = [
            (1, vec![8192, 767], "overlaps"),
            (1, vec![200, 1024], "overlaps"),
            (1, vec![9217, 1024], "outside"),
            (1, vec![9200, 1024], "outside"),
            (1, vec![1024, 8192], "outside"),
            (1, vec![u64::MAX - 8, 1024], "outside"),
            (2, vec![1024, 1024], "2 offsets"),
            (1, vec![1024], "1 offsets"),
            (MAX_CALLS + 1, vec![], "more than"),
        ];
        for (count, at, why) in refused {
            let calls = placement.calls(&blocks(), count, &hex(&at), ROOM);
            let message = calls.unwrap_err().to_string();
            assert!(message.contains(why), "{at:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn overlap_agrees_with_a_byte_map(
            lasting in prop::collection::vec((0u64..64, 0u64..12), 0..6), offset in 0u64..70, bytes in 0u64..12,
        ) {
            let blocks: Vec<_> = lasting.iter().map(|(_, bytes)| Block { bytes: *bytes, role: Role::Kept }).collect();
            let at: Vec<_> = lasting.iter().map(|(at, _)| *at).collect();
            let room = Room { arena: 64, apart_at: 0, apart: 0 };
            let mut map = [0u8; 80];
            for (at, bytes) in &lasting {
                map[*at as usize..(at + bytes) as usize].iter_mut().for_each(|count| *count += 1);
            }
            let fits = lasting.iter().all(|(at, bytes)| at + bytes <= 64) && map.iter().all(|count| *count < 2);
            let settled = Placement::settle(&blocks, &at, room);
            prop_assert_eq!(settled.is_ok(), fits);
            if let Ok(placement) = settled {
                let hit = (offset..offset + bytes).any(|at| map.get(at as usize).is_some_and(|count| *count > 0));
                prop_assert_eq!(placement.overlaps(offset, bytes), hit);
            }
        }

        #[test]
        fn hostile_offsets_never_panic(at in prop::collection::vec(any::<u64>(), 0..5), count: u32, text in ".{0,64}") {
            if let Ok(placement) = Placement::settle(&blocks(), &at, ROOM) {
                let _ = placement.calls(&blocks(), count, &text, ROOM);
            }
            let placement = Placement::settle(&blocks(), &[0, 256, 4096], ROOM).unwrap();
            let _ = placement.calls(&blocks(), count % 4, &text, ROOM);
            let _ = placement.calls(&blocks(), count % 4, &hex(&at), ROOM);
        }
    }
}
