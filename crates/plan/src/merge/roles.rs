//! What each block of a plan holds.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::Inputs;
use super::memory::Blocks;
use super::refusal::NotRecordable;
use super::{Content, Sources};
use crate::limits::{MAX_CONSTANT_BYTES, MAX_TENSORS, MAX_ZERO_BYTES};
use crate::plan::{Block, Constant, Role};
use crate::recording::{Phase, Recording};

/// Allocators round up to this, so that a block may be so much larger than its tensor.
const ROUNDING: u64 = 512;

/// Positions of the tensors that the judge made, by block.
pub(super) struct Roles<'a> {
    blocks: &'a Blocks<'a>,
    sources: &'a Sources<'a>,
    weights: BTreeMap<u32, u32>,
    init: BTreeMap<u32, u32>,
    zeroed: BTreeSet<u32>,
    pub(super) inputs: Inputs,
    /// Constants so far, and their contents.
    pub(super) constants: Vec<(Constant, Vec<u8>)>,
    constant_bytes: u64,
}

/// A block's part in the plan.
pub(super) struct Part {
    pub(super) block: Block,
    /// Whether `prepare` must fill it with zeros.
    pub(super) zeroed: bool,
}

impl<'a> Roles<'a> {
    /// Finds the blocks of weights, inputs and arguments of the constructor.
    pub(super) fn find(
        recordings: [&Recording; 2],
        blocks: &'a Blocks<'a>,
        sources: &'a Sources<'a>,
    ) -> Result<Self, NotRecordable> {
        let [one, other] = recordings;
        let mut weights = BTreeMap::new();
        let names = |recording: &Recording| recording.weights.len();
        NotRecordable::beyond("weights", names(one).max(names(other)) as u64, MAX_TENSORS as u64)?;
        let positions: BTreeMap<&str, u32> = sources
            .weights
            .iter()
            .zip(0..)
            .map(|((name, _), position)| (name.as_str(), position))
            .collect();
        if !one.weights.iter().map(|w| &w.name).eq(other.weights.iter().map(|w| &w.name)) {
            return Err(NotRecordable::differs("the state_dict"));
        }
        let mut named = BTreeSet::new();
        for (weight, same) in one.weights.iter().zip(&other.weights) {
            if !named.insert(weight.name.as_str()) {
                return Err(NotRecordable::recorder("two weights have one name"));
            }
            let place = blocks.resolve([weight.address, same.address]);
            let position = positions.get(weight.name.as_str());
            if let (Some(place), Some(position)) = (place.filter(|p| p.offset == 0), position) {
                weights.entry(place.block).or_insert(*position);
            }
        }
        let given: Vec<u64> = sources.init.iter().map(|content| content.bytes).collect();
        let init = tensors(blocks, [&one.init, &other.init], &given, Phase::Init)?;
        NotRecordable::beyond("zeroed tensors", one.zeroed.len() as u64, MAX_TENSORS as u64)?;
        let pairs = one.zeroed.iter().zip(&other.zeroed);
        let zeroed = pairs.filter_map(|(a, b)| Some(blocks.resolve([*a, *b])?.block)).collect();
        let [first, second] = &one.inputs;
        let [other_first, other_second] = &other.inputs;
        let inputs = [
            tensors(blocks, [first, other_first], sources.input_bytes, Phase::Inputs)?,
            tensors(blocks, [second, other_second], sources.input_bytes, Phase::Inputs)?,
        ];
        if inputs.iter().map(BTreeMap::len).sum::<usize>()
            != inputs.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>().len()
        {
            return Err(NotRecordable::recorder("two inputs lie in one allocation"));
        }
        Ok(Self {
            blocks,
            sources,
            weights,
            init,
            zeroed,
            inputs,
            constants: Vec::new(),
            constant_bytes: 0,
        })
    }

    /// The part of a block that a plan uses.
    pub(super) fn part(&mut self, number: u32) -> Result<Part, NotRecordable> {
        let block = self.blocks.get(number)?;
        let whole = |role| Ok(Part { block: Block { bytes: block.bytes, role }, zeroed: false });
        let [_, inputs] = &self.inputs;
        match block.phase {
            Phase::Inputs => {
                let position = inputs.get(&number).copied();
                let input = position.ok_or_else(|| {
                    NotRecordable::recorder("an allocation for inputs holds no input")
                })?;
                let bytes = size(self.sources.input_bytes, input);
                Ok(Part { block: Block { bytes, role: Role::Input(input) }, zeroed: false })
            }
            Phase::First | Phase::Second if block.open => {
                Err(NotRecordable::recorder("memory of a call was open to the host"))
            }
            Phase::Second => {
                let freed =
                    block.freed.and_then(|(phase, at)| (phase == Phase::Second).then_some(at));
                whole(Role::Call { born: block.born, freed })
            }
            Phase::Init | Phase::Prepare if block.open => self.written_by_host(number, block.bytes),
            // An empty fill is none.
            Phase::Prepare if block.bytes > 0 && self.zeroed.contains(&number) => {
                Ok(Part { block: Block { bytes: block.bytes, role: Role::Kept }, zeroed: true })
            }
            Phase::Init | Phase::Prepare | Phase::First => whole(Role::Kept),
        }
    }

    fn written_by_host(&mut self, number: u32, bytes: u64) -> Result<Part, NotRecordable> {
        let tensors: Vec<(Role, Content)> =
            self.tensors_at(number).filter(|(_, content)| content.fills(bytes)).collect();
        let with_it = self.constant_bytes.saturating_add(bytes);
        let constant = || {
            let what = "bytes of tables that __init__ or prepare() computed";
            NotRecordable::beyond(what, with_it, MAX_CONSTANT_BYTES)
        };
        // Before the contents are read: a huge block must not take the judge's memory.
        if tensors.is_empty() {
            constant()?;
        }
        let contents = self.contents(number, bytes)?;
        for (role, content) in tensors {
            if content.is_start_of(&contents) {
                return Ok(Part { block: Block { bytes: content.bytes, role }, zeroed: false });
            }
        }
        if bytes > MAX_ZERO_BYTES && contents.iter().all(|byte| *byte == 0) {
            return Ok(Part { block: Block { bytes, role: Role::Kept }, zeroed: true });
        }
        constant()?;
        self.constant_bytes = with_it;
        let index = u32::try_from(self.constants.len()).unwrap_or(u32::MAX);
        let hash = blake3::hash(&contents).to_hex().to_string();
        self.constants.push((Constant { hash, bytes }, contents));
        Ok(Part { block: Block { bytes, role: Role::Constant(index) }, zeroed: false })
    }

    /// Tensors of the judge that begin a block.
    fn tensors_at(&self, block: u32) -> impl Iterator<Item = (Role, Content)> {
        let weight = self.weights.get(&block).and_then(|position| {
            let (_, content) = at(self.sources.weights, *position)?;
            Some((Role::Weight(*position), *content))
        });
        let init = self
            .init
            .get(&block)
            .and_then(|position| Some((Role::Init(*position), *at(self.sources.init, *position)?)));
        weight.into_iter().chain(init)
    }

    /// What the host left in a block, in both recordings alike.
    fn contents(&self, number: u32, bytes: u64) -> Result<Vec<u8>, NotRecordable> {
        let read = |read: &dyn Fn(u32) -> Option<Vec<u8>>| {
            let contents = read(number).filter(|contents| contents.len() as u64 == bytes);
            contents.ok_or_else(|| NotRecordable::recorder("the contents of a block are missing"))
        };
        let [one, other] = self.sources.contents;
        let contents = read(one)?;
        if contents != read(other)? {
            return Err(NotRecordable::Contents { bytes });
        }
        Ok(contents)
    }
}

impl Content {
    /// Whether a block of so many bytes has room for this and for nothing else.
    fn fills(&self, bytes: u64) -> bool {
        bytes.checked_sub(self.bytes).is_some_and(|rest| rest < ROUNDING)
    }

    /// Whether a block that this fills begins with it, and holds nothing else.
    fn is_start_of(&self, block: &[u8]) -> bool {
        let bytes = usize::try_from(self.bytes).ok();
        let Some((tensor, rest)) = bytes.and_then(|bytes| block.split_at_checked(bytes)) else {
            return false;
        };
        rest.iter().all(|byte| *byte == 0) && blake3::hash(tensor) == self.hash
    }
}

/// The block of each tensor, which begins it, as position by block. An empty tensor has none.
fn tensors(
    blocks: &Blocks<'_>,
    [one, other]: [&[u64]; 2],
    sizes: &[u64],
    phase: Phase,
) -> Result<BTreeMap<u32, u32>, NotRecordable> {
    if one.len() != sizes.len() || other.len() != sizes.len() {
        return Err(NotRecordable::recorder("the number of inputs or arguments is another"));
    }
    let mut found = BTreeMap::new();
    for (((a, b), bytes), position) in one.iter().zip(other).zip(sizes).zip(0..) {
        if *bytes == 0 {
            continue;
        }
        let nowhere = || NotRecordable::recorder("an input or argument begins no allocation");
        let place = blocks.resolve([*a, *b]).filter(|place| place.offset == 0);
        let place = place.ok_or_else(nowhere)?;
        let block = blocks.get(place.block)?;
        if block.phase != phase || block.bytes < *bytes {
            return Err(nowhere());
        }
        if found.insert(place.block, position).is_some() {
            return Err(NotRecordable::recorder("two inputs lie in one allocation"));
        }
    }
    Ok(found)
}

fn size(sizes: &[u64], position: u32) -> u64 {
    at(sizes, position).copied().unwrap_or_default()
}

fn at<T>(all: &[T], position: u32) -> Option<&T> {
    usize::try_from(position).ok().and_then(|position| all.get(position))
}
