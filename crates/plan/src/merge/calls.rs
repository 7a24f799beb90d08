//! What the two calls of a recording have to do with each other, and with streams.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Blocks;
use super::nodes::Phased;
use super::refusal::{NotRecordable, Place};
use crate::limits::MAX_EDGES;
use crate::plan::{Address, Node, Op, TensorMap};
use crate::recording::Phase;

/// Blocks that hold inputs, by the call: position of the input.
pub(super) type Inputs = [BTreeMap<u32, u32>; 2];

/// The two calls and what they use.
pub(super) struct Calls<'a> {
    pub(super) blocks: &'a Blocks<'a>,
    pub(super) maps: &'a [TensorMap],
    pub(super) inputs: &'a Inputs,
}

impl Calls<'_> {
    /// Checks that each operation uses memory that is there, and that the second call repeats the first.
    pub(super) fn check(&self, phased: &Phased, joined: &[u32]) -> Result<(), NotRecordable> {
        self.lifetimes(Phase::Prepare, &phased.prepare)?;
        self.lifetimes(Phase::First, &phased.first)?;
        self.lifetimes(Phase::Second, &phased.second)?;
        self.repeats(&phased.first, &phased.second)?;
        all_joined(&phased.second, joined)
    }

    /// Addresses of an operation and of its tensor maps.
    pub(super) fn uses(&self, op: &Op) -> Vec<Address> {
        let mut found = op.addresses();
        for map in op.clone().tensor_maps() {
            found.extend(self.map(*map).map(|map| map.address));
        }
        found
    }

    fn map(&self, map: u32) -> Option<&TensorMap> {
        usize::try_from(map).ok().and_then(|map| self.maps.get(map))
    }

    fn lifetimes(&self, phase: Phase, nodes: &[Node]) -> Result<(), NotRecordable> {
        let [first, second] = self.inputs;
        for (index, node) in nodes.iter().enumerate() {
            let place = Place { phase, index };
            let now = (phase, u32::try_from(index).unwrap_or(u32::MAX));
            for address in self.uses(&node.op) {
                let block = self.blocks.get(address.block)?;
                if block.phase == Phase::Inputs {
                    match phase {
                        Phase::First if first.contains_key(&address.block) => {}
                        Phase::Second if second.contains_key(&address.block) => {}
                        Phase::Second if first.contains_key(&address.block) => {
                            return Err(NotRecordable::EarlierInput { place });
                        }
                        _ => return Err(NotRecordable::ForeignMemory { place }),
                    }
                }
                let freed = match block.freed {
                    // Which of these a call may use is checked above.
                    _ if block.phase == Phase::Inputs => None,
                    // There are two such phases; what matters is freed in the later one.
                    Some((Phase::Inputs, _)) => Some((Phase::First, u32::MAX)),
                    freed => freed,
                };
                if (block.phase, block.born) > now || freed.is_some_and(|freed| freed <= now) {
                    return Err(NotRecordable::Lifetime { place });
                }
            }
        }
        Ok(())
    }

    /// Whether the second call does to its memory what the first did to its own.
    fn repeats(&self, first: &[Node], second: &[Node]) -> Result<(), NotRecordable> {
        let differs = |detail: String| Err(NotRecordable::SecondCallDiffers { detail });
        if first.len() != second.len() {
            return differs(format!(": {} operations, then {}", first.len(), second.len()));
        }
        let [own, others] = [first, second].map(|nodes| self.used(nodes));
        let of = |blocks: &BTreeSet<u32>, phase| -> Result<Vec<u32>, NotRecordable> {
            let mut found = Vec::new();
            for block in blocks {
                if self.blocks.get(*block)?.phase == phase {
                    found.push(*block);
                }
            }
            Ok(found)
        };
        // What the second call uses of the first's is kept: it means itself.
        let made: Vec<u32> =
            of(&own, Phase::First)?.into_iter().filter(|block| !others.contains(block)).collect();
        let again = of(&others, Phase::Second)?;
        if made.len() != again.len() {
            return differs(": it uses other memory".to_owned());
        }
        let mut counterpart: BTreeMap<u32, u32> = made.into_iter().zip(again).collect();
        let [first_inputs, second_inputs] = self.inputs;
        let position: BTreeMap<u32, u32> = second_inputs.iter().map(|(b, i)| (*i, *b)).collect();
        let pairs = first_inputs.iter().filter_map(|(b, i)| Some((*b, *position.get(i)?)));
        counterpart.extend(pairs);
        for (one, other) in &counterpart {
            if self.blocks.get(*one)?.bytes != self.blocks.get(*other)?.bytes {
                return differs(": it allocates other sizes".to_owned());
            }
        }
        let mut same = |address: &mut Address| -> Result<(), std::convert::Infallible> {
            address.block = *counterpart.get(&address.block).unwrap_or(&address.block);
            Ok(())
        };
        for (index, (one, other)) in first.iter().zip(second).enumerate() {
            let (mut one, mut other) = (one.clone(), other.clone());
            let Ok(()) = one.op.try_each_address(&mut same);
            let mut maps = [self.take_maps(&mut one.op), self.take_maps(&mut other.op)];
            let [maps_of_first, _] = &mut maps;
            for map in maps_of_first {
                let Ok(()) = same(&mut map.address);
            }
            let [a, b] = maps;
            if one != other || a != b {
                return differs(format!(" (operation {index})"));
            }
        }
        Ok(())
    }

    /// The tensor maps of an operation, whose numbers become 0: each call may encode its own.
    fn take_maps(&self, op: &mut Op) -> Vec<TensorMap> {
        let mut found = Vec::new();
        for map in op.tensor_maps() {
            found.extend(self.map(*map).cloned());
            *map = 0;
        }
        found
    }

    /// Blocks that operations use.
    pub(super) fn used(&self, nodes: &[Node]) -> BTreeSet<u32> {
        nodes.iter().flat_map(|node| self.uses(&node.op)).map(|address| address.block).collect()
    }
}

/// Checks that stream 0 waits for every operation of other streams: `joined` are those it waits for at the end.
fn all_joined(nodes: &[Node], joined: &[u32]) -> Result<(), NotRecordable> {
    NotRecordable::beyond("events after the last launch", joined.len() as u64, MAX_EDGES as u64)?;
    let mut waited: BTreeSet<u32> = joined.iter().copied().collect();
    // Streams of which stream 0 waits for a later operation, and so for all earlier ones.
    let mut streams = BTreeSet::from([0]);
    for (index, node) in nodes.iter().enumerate().rev() {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        if !streams.contains(&node.stream) && !waited.contains(&number) {
            let place = Place { phase: Phase::Second, index };
            return Err(NotRecordable::NotJoined { place });
        }
        streams.insert(node.stream);
        waited.extend(&node.after);
    }
    Ok(())
}
