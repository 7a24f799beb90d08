//! Where the blocks of a launch plan lie in the judge's memory: lasting ones with the weights, those of a call
//! anew for every call.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use warpwright_plan::{LaunchPlan, Role};

use crate::check::layout::Layout;
use crate::device::arena::Zone;
use crate::process::wire::{ALIGN, padded};

/// The blocks of a plan, by how long they last.
pub(crate) struct Placement {
    /// Block and offset of everything that lasts from call to call, in the order of the blocks.
    pub(crate) lasting: Vec<(usize, u64)>,
    /// Blocks that each call has for itself, in the order of the blocks.
    own: Vec<Own>,
    /// Bytes of each of these.
    sizes: Vec<u64>,
    /// Bytes of a call's results.
    results: u64,
    /// Bytes of a call's intermediates, which all calls of a window share.
    scratch: u64,
}

/// A block that each call has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Tensor of this position among the inputs.
    Input(u32),
    /// At so many bytes of the call's results.
    Result(u64),
    /// At so many bytes of its intermediates.
    Scratch(u64),
}

/// Memory that a plan needs and does not get.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) what: &'static str,
    pub(crate) wanted: u64,
    pub(crate) available: u64,
}

/// A window's memory.
pub(crate) struct Placed {
    /// The part in which results and intermediates lie.
    pub(crate) zone: Zone,
    /// Offsets of the blocks that calls have for themselves, call after call.
    pub(crate) at: Vec<u64>,
}

impl Placement {
    /// Divides the memory of a layout among the blocks.
    pub(crate) fn of(plan: &LaunchPlan, layout: &Layout) -> Result<Self, TooLarge> {
        let (mut lasting, mut next) = (Vec::new(), layout.weights.offset);
        for (index, block) in plan.blocks.iter().enumerate() {
            if lasts(block.role) {
                lasting.push((index, next));
                next += padded(block.bytes);
            }
        }
        let available = layout.weights.bytes;
        let wanted = next - layout.weights.offset;
        if wanted > available {
            return Err(TooLarge { what: "weights and tables", wanted, available });
        }
        let is_result = |index: usize| {
            plan.outputs.tensors.iter().any(|output| output.at.block as usize == index)
        };
        let (mut own, mut sizes, mut results) = (Vec::new(), Vec::new(), 0);
        let mut intermediates = Intermediates::default();
        // On several streams, one may still read what the host has freed.
        let gives_way = plan.forward.iter().all(|node| node.stream == 0);
        for (index, block) in plan.blocks.iter().enumerate() {
            if !lasts(block.role) {
                sizes.push(padded(block.bytes));
            }
            match block.role {
                Role::Input(input) => own.push(Own::Input(input)),
                Role::Call { .. } if is_result(index) => {
                    own.push(Own::Result(results));
                    results += padded(block.bytes);
                }
                Role::Call { born, freed } => {
                    let until = freed.filter(|_| gives_way).unwrap_or(u32::MAX);
                    own.push(Own::Scratch(intermediates.add(block.bytes, born..until)));
                }
                _ => {}
            }
        }
        let scratch = intermediates.bytes;
        let (wanted, available) = (results + scratch, layout.results.bytes);
        if wanted > available {
            return Err(TooLarge {
                what: "one call's results and intermediates",
                wanted,
                available,
            });
        }
        Ok(Self { lasting, own, sizes, results, scratch })
    }

    /// Most calls whose results fit.
    pub(crate) fn most_calls(&self, layout: &Layout) -> u64 {
        let left = layout.results.bytes - self.scratch;
        left.checked_div(self.results).unwrap_or(u64::MAX).min(layout.calls)
    }

    /// Places the calls of a window, whose inputs lie at these offsets by call: results in an order drawn anew
    /// and at distances drawn anew, intermediates at a place drawn for each call.
    pub(crate) fn window(
        &self,
        layout: &Layout,
        inputs: &[Vec<u64>],
        random: &mut StdRng,
    ) -> Option<Placed> {
        let calls = inputs.len() as u64;
        let needed = calls.checked_mul(self.results)?.checked_add(self.scratch)?;
        if needed > layout.results.bytes {
            return None;
        }
        // As large as a runner's window, if that is enough: what is poisoned costs time.
        let usual = layout.window(calls, random);
        let bytes = needed.max(usual.bytes).next_multiple_of(ALIGN).min(layout.results.bytes);
        let shift = random.random_range(0..=(layout.results.bytes - bytes) / ALIGN) * ALIGN;
        let zone = Zone { offset: layout.results.offset + shift, bytes };
        let slack = (bytes - needed) / ALIGN;
        // Half of the slack moves the intermediates, the other half the results.
        let (for_scratch, for_results) = (slack / 2, slack - slack / 2);
        let mut gaps: Vec<u64> = (0..calls).map(|_| random.random_range(0..=for_results)).collect();
        gaps.sort_unstable();
        let first = zone.offset + self.scratch + for_scratch * ALIGN;
        let mut starts: Vec<u64> = gaps
            .iter()
            .zip(0u64..)
            .map(|(gap, call)| first + call * self.results + gap * ALIGN)
            .collect();
        starts.shuffle(random);
        let mut at = Vec::with_capacity(inputs.len() * self.own.len());
        for (inputs, start) in inputs.iter().zip(starts) {
            let scratch = zone.offset + random.random_range(0..=for_scratch) * ALIGN;
            for own in &self.own {
                at.push(match *own {
                    Own::Input(input) => *inputs.get(input as usize)?,
                    Own::Result(offset) => start + offset,
                    Own::Scratch(offset) => scratch + offset,
                });
            }
        }
        Some(Placed { zone, at })
    }

    /// The parts of a window that its blocks take.
    pub(crate) fn extents(&self, at: &[u64]) -> Vec<Zone> {
        let sizes = self.sizes.iter().cycle();
        at.iter().zip(sizes).map(|(&offset, &bytes)| Zone { offset, bytes }).collect()
    }

    /// Number of blocks that each call has for itself.
    pub(crate) fn own(&self) -> usize {
        self.own.len()
    }

    /// Position among the blocks that a call has for itself, by block of the plan.
    pub(crate) fn position(plan: &LaunchPlan, block: u32) -> Option<usize> {
        let is_own = |role| matches!(role, Role::Input(_) | Role::Call { .. });
        let roles = plan.blocks.iter().map(|block| block.role);
        is_own(plan.blocks.get(block as usize)?.role)
            .then(|| roles.take(block as usize).filter(|role| is_own(*role)).count())
    }
}

/// Whether a block lasts from call to call.
fn lasts(role: Role) -> bool {
    matches!(role, Role::Weight(_) | Role::Init(_) | Role::Constant(_) | Role::Kept)
}

/// Intermediates that give way to later ones: each takes the first room that nothing alive has.
#[derive(Default)]
struct Intermediates {
    placed: Vec<(Zone, std::ops::Range<u32>)>,
    bytes: u64,
}

impl Intermediates {
    /// The offset of one that is alive from before one node to before another.
    fn add(&mut self, bytes: u64, alive: std::ops::Range<u32>) -> u64 {
        let bytes = padded(bytes);
        let overlaps = |other: &std::ops::Range<u32>| {
            // One that was freed before a node may give way to one that was made before it.
            alive.start < other.end && other.start < alive.end.max(alive.start + 1)
        };
        let mut taken: Vec<Zone> = self
            .placed
            .iter()
            .filter(|(_, other)| overlaps(other))
            .map(|(zone, _)| *zone)
            .collect();
        taken.sort_by_key(|zone| zone.offset);
        let mut offset = 0;
        for zone in taken {
            if offset + bytes <= zone.offset {
                break;
            }
            offset = offset.max(zone.end());
        }
        self.placed.push((Zone { offset, bytes }, alive));
        self.bytes = self.bytes.max(offset + bytes);
        offset
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intermediates_alive_together_never_overlap(
            blocks in prop::collection::vec((1u64..5000, 0u32..8, 0u32..8), 1..24),
        ) {
            let mut all = Intermediates::default();
            let mut placed: Vec<(Zone, std::ops::Range<u32>)> = Vec::new();
            for (bytes, born, lasts) in blocks {
                let alive = born..born + lasts;
                let zone = Zone { offset: all.add(bytes, alive.clone()), bytes: padded(bytes) };
                // An oracle that steps through the nodes.
                for (other, theirs) in &placed {
                    let together = (0..20).any(|node| alive.contains(&node) && theirs.contains(&node));
                    let apart = zone.end() <= other.offset || other.end() <= zone.offset;
                    prop_assert!(!together || apart);
                }
                prop_assert!(zone.end() <= all.bytes);
                placed.push((zone, alive));
            }
        }
    }

    #[test]
    fn freed_intermediates_give_way() {
        let mut all = Intermediates::default();
        assert_eq!(all.add(1024, 0..2), 0);
        assert_eq!(all.add(1024, 1..3), 1024);
        assert_eq!(all.add(1024, 2..4), 0);
        assert_eq!(all.bytes, 2048);
    }
}
