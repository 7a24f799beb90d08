//! Theoretical occupancy: how many warps of a kernel fit on one multiprocessor at once.
//!
//! The rules are those of NVIDIA's own calculator, `cuda_occupancy.h` of CUDA 13.0; the limits are in
//! `warpwright_record::gpu`. The test compares with values that `cuda_occupancy.h` gave.

use warpwright_record::findings::{Occupancy, OccupancyLimit};
use warpwright_record::gpu::GpuArchitecture;

const WARP: u32 = 32;
const MOST_THREADS_PER_BLOCK: u32 = 1024;
const MOST_REGISTERS_PER_THREAD: u32 = 255;
/// Registers of one multiprocessor, and the most of one block, on every architecture here.
const REGISTERS: u32 = 64 << 10;
/// Registers are given to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// A multiprocessor's registers lie in this many equal parts; a warp's lie in one.
const PARTITIONS: u32 = 4;

/// Limits of one multiprocessor.
#[derive(Clone, Copy, Debug)]
struct Limits {
    threads: u32,
    blocks: u32,
    shared_bytes: u32,
    /// Most shared memory of one block, by opting in.
    shared_bytes_per_block: u32,
    /// Shared memory that the driver takes of each block.
    reserved_bytes: u32,
    /// Shared memory is given in units of this many bytes.
    shared_unit: u32,
}

/// `None` for an architecture that is not in the table.
fn limits(arch: &str) -> Option<Limits> {
    let known = GpuArchitecture::of(arch)?;
    Some(Limits {
        threads: known.threads,
        blocks: known.blocks,
        shared_bytes: known.shared_kib << 10,
        shared_bytes_per_block: known.shared_kib_per_block() << 10,
        reserved_bytes: known.reserved_bytes(),
        // Units are smaller from Ampere on.
        shared_unit: if known.capability < 80 { 256 } else { 128 },
    })
}

/// Occupancy of blocks of `threads` threads, each with `registers` registers, and `shared_bytes`
/// bytes of static and dynamic shared memory a block, if shared memory may take all it can of the
/// L1 cache. `None` for unknown architectures and for what cannot be launched.
pub(crate) fn occupancy(
    arch: &str,
    threads: u32,
    registers: u32,
    shared_bytes: u32,
) -> Option<Occupancy> {
    let limits = limits(arch)?;
    let launchable = (1..=MOST_THREADS_PER_BLOCK).contains(&threads)
        && registers <= MOST_REGISTERS_PER_THREAD
        && shared_bytes <= limits.shared_bytes_per_block;
    if !launchable {
        return None;
    }
    let warps = threads.div_ceil(WARP);
    let most_warps = limits.threads / WARP;
    let by_registers = match (registers * WARP).next_multiple_of(REGISTER_UNIT) {
        0 => u32::MAX,
        per_warp if per_warp * warps.next_multiple_of(PARTITIONS) > REGISTERS => 0,
        per_warp => (REGISTERS / PARTITIONS / per_warp) * PARTITIONS / warps,
    };
    let taken = (shared_bytes + limits.reserved_bytes).next_multiple_of(limits.shared_unit);
    let by_shared = limits.shared_bytes.checked_div(taken).unwrap_or(u32::MAX);
    // Of equal limits the one that a programmer can do least about is named.
    let candidates = [
        (most_warps / warps, OccupancyLimit::Threads),
        (limits.blocks, OccupancyLimit::Blocks),
        (by_registers, OccupancyLimit::Registers),
        (by_shared, OccupancyLimit::SharedMemory),
    ];
    let (blocks, limit) = candidates.into_iter().min_by_key(|(blocks, _)| *blocks)?;
    (blocks > 0).then_some(Occupancy { blocks, warps: blocks * warps, most_warps, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `arch threads registers shared blocks`, from `cudaOccMaxActiveBlocksPerMultiprocessor`.
    const CALCULATED: &str = include_str!("occupancy.txt");

    #[test]
    fn occupancy_agrees_with_nvidias_calculator() {
        let mut compared = 0;
        for row in CALCULATED.lines().filter(|line| !line.starts_with('#')) {
            let [arch, threads, registers, shared, blocks] =
                row.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let number = |text: &str| text.parse::<u32>().unwrap();
            let ours = occupancy(arch, number(threads), number(registers), number(shared));
            let ours = ours.map_or(0, |o| o.blocks);
            assert_eq!(ours, number(blocks), "{row}");
            compared += 1;
        }
        assert!(compared > 300, "{compared}");
    }

    /// Figures that the profiler printed on an H200: 16 registers, 256 threads, no shared memory.
    #[test]
    fn the_limiting_resource_is_named() {
        let full = occupancy("sm_90", 256, 16, 0).unwrap();
        assert_eq!((full.blocks, full.warps, full.limit), (8, 64, OccupancyLimit::Threads));
        let of = |registers, shared| occupancy("sm_90a", 256, registers, shared).unwrap().limit;
        assert_eq!(of(128, 0), OccupancyLimit::Registers);
        assert_eq!(of(32, 100_000), OccupancyLimit::SharedMemory);
        assert_eq!(occupancy("sm_90", 32, 16, 0).unwrap().limit, OccupancyLimit::Blocks);
        assert_eq!(occupancy("sm_52", 256, 16, 0), None);
        assert_eq!(occupancy("cpu", 256, 16, 0), None);
    }

    proptest! {
        /// A profile is the candidate's word: any numbers may come.
        #[test]
        fn any_figures_give_a_valid_occupancy(threads: u32, registers: u32, shared: u32) {
            if let Some(found) = occupancy("sm_90", threads, registers, shared) {
                prop_assert!(found.warps <= found.most_warps && found.share() <= 1.0);
            }
        }
    }
}
