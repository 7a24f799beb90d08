//! Calls made ready: every argument of every launch lies in memory before the first is launched.
//!
//! An [`Outline`] is what all calls of a list of nodes have in common. A [`Program`] adds one [`Frame`] per call: the
//! bytes of its arguments and uploads, a table of pointers to the arguments, and the addresses of its other operations.

use std::ffi::c_void;

use crate::driver::{Address, EncodedMap, Handle};
use crate::failure::Failure;
use crate::outline::{Action, Node, Outline, Target};
use crate::placement::{Calls, Placement};

use warpwright_plan::TensorMap;

/// Most operations of all calls together.
const MAX_OPERATIONS: usize = 1 << 20;
/// Most bytes of arguments and uploads of all calls together.
const MAX_BYTES: usize = 256 << 20;
/// Most pointers and addresses of all calls together.
const MAX_WORDS: usize = 1 << 25;
/// Frames begin at multiples of this: that of `CUtensorMap`, the largest of any argument.
const ALIGN: usize = 128;

/// What the driver alone knows of a plan whose modules are loaded.
pub(crate) trait Device {
    /// Entry point of a kernel of the plan.
    fn function(&self, kernel: u32) -> Result<Handle, Failure>;
    /// Address and length of a variable of a module.
    fn symbol(&self, module: u32, name: &str) -> Result<(Address, u64), Failure>;
    /// Encodes a descriptor of the tensor memory accelerator.
    fn encode(&self, map: &TensorMap, at: Address) -> Result<EncodedMap, Failure>;
}

/// Calls that are ready to be launched.
pub(crate) struct Program {
    outline: Outline,
    calls: usize,
    /// Bytes of one frame in `bytes`, a multiple of [`ALIGN`].
    stride: usize,
    /// Where the first frame begins in `bytes`. Nothing moves them any more: `pointers` lead there.
    start: usize,
    bytes: Vec<u8>,
    pointers: Vec<*mut c_void>,
    words: Vec<Address>,
}

/// A part of one call's inputs that is there only while the call runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) call: usize,
    /// Where it lies.
    pub(crate) at: Address,
    pub(crate) own: Vec<u8>,
    /// What lies there while other calls run.
    pub(crate) other: Vec<u8>,
}

/// What one call does not share with others.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// Arguments and uploads.
    pub(crate) bytes: &'a [u8],
    /// Where arguments lie in `bytes`.
    pub(crate) pointers: &'a [*mut c_void],
    /// Addresses of operations that are no launches.
    pub(crate) words: &'a [Address],
}

impl Program {
    /// Fills the frames of all calls. `base` is the device address of the arena.
    pub(crate) fn fill(
        outline: Outline,
        maps: &[TensorMap],
        placement: &Placement,
        calls: &Calls,
        base: Address,
        device: &dyn Device,
    ) -> Result<Self, Failure> {
        let count = calls.count();
        let stride = outline.template.len().next_multiple_of(ALIGN);
        let within = |each: usize, most: usize| {
            each.checked_mul(count).filter(|all| *all <= most).ok_or_else(|| {
                Failure::Request(format!("{count} calls are too many for one window of this plan"))
            })
        };
        within(outline.nodes.len().max(outline.maps.len()), MAX_OPERATIONS)?;
        within(outline.pointers.len() + outline.words.len(), MAX_WORDS)?;
        let size = within(stride, MAX_BYTES)?;

        let mut bytes = vec![0; size + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        let lasting: Vec<Option<Address>> = placement
            .offsets()
            .iter()
            .map(|offset| offset.map(|offset| base.wrapping_add(offset)))
            .collect();
        let mut words = Vec::with_capacity(outline.words.len() * count);
        for call in 0..count {
            let mut blocks = lasting.clone();
            for (block, offset) in calls.of(call) {
                if let Some(at) = blocks.get_mut(block) {
                    *at = Some(base.wrapping_add(offset));
                }
            }
            let from = start + call * stride;
            let frame = bytes.get_mut(from..from + outline.template.len()).unwrap_or_default();
            frame.copy_from_slice(&outline.template);
            for (at, address) in &outline.addresses {
                put(frame, *at, &resolve(&blocks, *address)?.to_le_bytes())?;
            }
            for (at, map) in &outline.maps {
                let map = maps.get(*map as usize);
                let map = map.ok_or_else(|| Failure::Plan("a tensor map is missing".to_owned()))?;
                let encoded = device.encode(map, resolve(&blocks, map.address)?)?;
                put(frame, *at, &encoded.0)?;
            }
            for word in &outline.words {
                words.push(match word {
                    Target::Fixed(address) => *address,
                    Target::Block(address) => resolve(&blocks, *address)?,
                });
            }
        }
        let first: *mut u8 = bytes.as_mut_ptr();
        let pointers = (0..count)
            .flat_map(|call| {
                let from = start + call * stride;
                outline.pointers.iter().map(move |at| first.wrapping_add(from + at).cast())
            })
            .collect();
        Ok(Self { outline, calls: count, stride, start, bytes, pointers, words })
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Operations of all calls.
    pub(crate) fn operations(&self) -> usize {
        self.calls * self.outline.nodes.len()
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.outline.nodes
    }

    /// Streams that the nodes use: those before this number.
    pub(crate) fn streams(&self) -> usize {
        self.outline.streams
    }

    /// Events between nodes: those before this number.
    pub(crate) fn events(&self) -> usize {
        self.outline.events
    }

    /// Names the launches in an error of the driver that may stem from any of them.
    pub(crate) fn label(&self) -> &str {
        &self.outline.label
    }

    /// The frame of a call before [`Program::calls`].
    pub(crate) fn frame(&self, call: usize) -> Frame<'_> {
        fn part<T>(all: &[T], from: usize, count: usize) -> &[T] {
            all.get(from..from + count).unwrap_or_default()
        }
        let Outline { template, pointers, words, .. } = &self.outline;
        Frame {
            bytes: part(&self.bytes, self.start + call * self.stride, template.len()),
            pointers: part(&self.pointers, call * pointers.len(), pointers.len()),
            words: part(&self.words, call * words.len(), words.len()),
        }
    }
}

/// The device address of a place in a block.
fn resolve(
    blocks: &[Option<Address>],
    address: warpwright_plan::Address,
) -> Result<Address, Failure> {
    let at = blocks.get(address.block as usize).copied().flatten();
    at.and_then(|at| at.checked_add(address.offset)).ok_or_else(|| {
        Failure::Plan(format!("block {} has no place while this runs", address.block))
    })
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), Failure> {
    let end = at.saturating_add(bytes.len());
    let into = frame.get_mut(at..end);
    into.map(|into| into.copy_from_slice(bytes))
        .ok_or_else(|| Failure::Plan("an address lies outside its argument".to_owned()))
}

impl Frame<'_> {
    /// Table of the arguments of a launch.
    pub(crate) fn arguments(&self, action: &Action) -> *mut *mut c_void {
        let Action::Launch { first, .. } = action else { return std::ptr::null_mut() };
        self.pointers.get(*first..).unwrap_or_default().as_ptr().cast_mut()
    }

    /// So many addresses from this one on; none if there are not as many.
    pub(crate) fn words(&self, from: usize, count: usize) -> &[Address] {
        self.words.get(from..from.saturating_add(count)).unwrap_or_default()
    }

    /// Address number `index`; null, which nothing is mapped at, if there is none.
    pub(crate) fn word(&self, index: usize) -> Address {
        self.words.get(index).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
