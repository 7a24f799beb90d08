//! Looks for writes where nobody may write: memory that was poisoned and belongs to no block.

use std::ffi::c_void;
use std::sync::PoisonError;

use super::cuda::CudaDevice;
use super::cuda_arena::CudaArena;
use super::driver::check;
use super::{ArenaError, Poison, Zone};

/// Bytes of a range that one block of threads reads.
const PIECE: u64 = 4 << 20;
/// Ranges of one launch.
pub(super) const MAX_RANGES: usize = 1 << 15;
/// Granularity of the kernel, in bytes.
const WORD: u64 = 16;

impl CudaDevice {
    /// Words of 16 bytes in these zones that do not hold the poison. The caller has checked the zones. What of a
    /// zone is no whole word is not looked at.
    pub(crate) fn foreign(
        &self,
        arena: &CudaArena,
        zones: &[Zone],
        poison: Poison,
    ) -> Result<u64, ArenaError> {
        let ranges = pieces(zones);
        self.current()?;
        let (table, told) = (self.kernels.ranges, &self.kernels.scratch);
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut base, mut table_at, mut word, mut told_at) =
            (arena.base(), table, poison.word(), *told);
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut base).cast(),
            (&raw mut table_at).cast(),
            (&raw mut word).cast(),
            (&raw mut told_at).cast(),
        ];
        let mut count = 0u64;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `guard` takes exactly these four arguments; the ranges lie inside the arena and are multiples
        // of 16 bytes; the table holds MAX_RANGES of them.
        unsafe {
            let d = self.driver();
            check("clear a result", (d.fill16)(told_at, 0, 4))?;
            for ranges in ranges.chunks(MAX_RANGES) {
                let bytes = size_of_val(ranges);
                check("send ranges", (d.copy_in)(table, ranges.as_ptr().cast(), bytes))?;
                let (f, a, null) =
                    (self.kernels.guard, arguments.as_mut_ptr(), std::ptr::null_mut());
                let n = ranges.len() as u32;
                let run = (d.launch)(f, n, 1, 1, 256, 1, 1, 0, null, a, std::ptr::null_mut());
                check("look for foreign writes", run)?;
            }
            let read = (d.copy_out)((&raw mut count).cast(), told_at, 8);
            check("read what was found", read)?;
        }
        Ok(count)
    }
}

/// The zones as pairs of offsets, whole words only, none longer than a piece.
fn pieces(zones: &[Zone]) -> Vec<[u64; 2]> {
    let mut pieces = Vec::new();
    for zone in zones {
        let (mut from, end) = (zone.offset.next_multiple_of(WORD), zone.end() / WORD * WORD);
        while from < end {
            let to = end.min(from + PIECE);
            pieces.push([from, to]);
            from = to;
        }
    }
    pieces
}

/// What of a zone is in none of these, in order.
pub(crate) fn gaps(zone: Zone, mut taken: Vec<Zone>) -> Vec<Zone> {
    taken.sort_by_key(|zone| zone.offset);
    let (mut found, mut from) = (Vec::new(), zone.offset);
    for Zone { offset, bytes } in taken {
        if offset >= zone.end() {
            break;
        }
        if offset > from {
            found.push(Zone { offset: from, bytes: offset - from });
        }
        from = from.max(offset.saturating_add(bytes));
    }
    if from < zone.end() {
        found.push(Zone { offset: from, bytes: zone.end() - from });
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gaps_and_taken_zones_cover_each_byte_once(
            taken in prop::collection::vec((0u64..300, 0u64..80), 0..8),
        ) {
            let zone = Zone { offset: 40, bytes: 200 };
            let taken: Vec<Zone> =
                taken.into_iter().map(|(offset, bytes)| Zone { offset, bytes }).collect();
            let gaps = gaps(zone, taken.clone());
            for byte in 40..240 {
                let is_taken = taken.iter().any(|zone| zone.contains(byte, 1));
                let free = gaps.iter().filter(|gap| gap.contains(byte, 1)).count();
                prop_assert_eq!(free, usize::from(!is_taken), "byte {}", byte);
            }
        }
    }

    #[test]
    fn pieces_are_whole_words() {
        let zone = Zone { offset: 8, bytes: PIECE + 64 };
        assert_eq!(pieces(&[zone]), [[16, 16 + PIECE], [16 + PIECE, 64 + PIECE]]);
    }
}
