//! Operations of two recordings, made one: scalars must agree, addresses must mean the same.
//!
//! Blocks, kernels, modules and tensor maps are still numbered as in the recordings.

use std::convert::Infallible;

use super::memory::Blocks;
use super::modules::Modules;
use super::refusal::{NotRecordable, Place, plain};
use super::words::Words;
use crate::library_call::LibraryCall;
use crate::limits::{MAX_ARGUMENT_BYTES, MAX_EDGES, MAX_ENTRIES, MAX_NAME, MAX_NODES, MAX_STREAMS};
use crate::plan::{
    Address, Argument, Copy2d, Fill, Gemm, Launch, Memory, Node, Op, TensorMap, Upload,
};
use crate::recording::{
    Phase, RecordedMemory, RecordedNode, RecordedOp, RecordedTensorMap, Recording, hex,
};

/// Tensor maps must be aligned to this in an argument.
const MAP_ALIGN: usize = 64;

/// What the operations of a recording refer to.
pub(super) struct Resolver<'a> {
    pub(super) blocks: &'a Blocks<'a>,
    pub(super) modules: &'a Modules,
    pub(super) tensor_maps: &'a [TensorMap],
}

/// The operations of one phase.
#[derive(Default)]
pub(super) struct Phased {
    pub(super) prepare: Vec<Node>,
    pub(super) first: Vec<Node>,
    pub(super) second: Vec<Node>,
}

impl Resolver<'_> {
    /// Pairs all operations.
    pub(super) fn pair(&self, recordings: [&Recording; 2]) -> Result<Phased, NotRecordable> {
        let [all, others] = recordings.map(|recording| recording.nodes.as_slice());
        let count =
            |nodes: &[RecordedNode], phase| nodes.iter().filter(|n| n.phase == phase).count();
        for phase in [Phase::Init, Phase::Prepare, Phase::Inputs, Phase::First, Phase::Second] {
            let (count, other) = (count(all, phase), count(others, phase));
            NotRecordable::beyond("operations in one call", count as u64, MAX_NODES as u64)?;
            if count != other {
                return Err(NotRecordable::differs("the number of launches and copies"));
            }
        }
        if !all.is_sorted_by_key(|node| node.phase) || !others.is_sorted_by_key(|node| node.phase) {
            return Err(NotRecordable::recorder("operations are not in order"));
        }
        let bytes = all.iter().chain(others).map(text_bytes).fold(0, usize::saturating_add);
        NotRecordable::beyond(
            "bytes of arguments and copies from the host",
            bytes as u64 / 2,
            MAX_ARGUMENT_BYTES as u64,
        )?;
        let mut phased = Phased::default();
        for (one, other) in all.iter().zip(others) {
            let nodes = match one.phase {
                Phase::Init => return Err(NotRecordable::LaunchesInConstructor),
                Phase::Inputs => {
                    return Err(NotRecordable::recorder("making the inputs launched something"));
                }
                Phase::Prepare => &mut phased.prepare,
                Phase::First => &mut phased.first,
                Phase::Second => &mut phased.second,
            };
            let place = Place { phase: one.phase, index: nodes.len() };
            nodes.push(self.node(one, other, place)?);
        }
        Ok(phased)
    }

    fn node(
        &self,
        one: &RecordedNode,
        other: &RecordedNode,
        place: Place,
    ) -> Result<Node, NotRecordable> {
        if one.stream != other.stream || one.after != other.after {
            return Err(NotRecordable::differs(format!("the stream or the events of {place}")));
        }
        if one.stream >= MAX_STREAMS {
            return Err(NotRecordable::TooMuch {
                what: "streams",
                found: u64::from(one.stream) + 1,
                most: MAX_STREAMS.into(),
            });
        }
        NotRecordable::beyond(
            "events before one launch",
            one.after.len() as u64,
            MAX_EDGES as u64,
        )?;
        let earlier = |after: &u32| usize::try_from(*after).is_ok_and(|after| after < place.index);
        if !one.after.iter().all(earlier) {
            return Err(NotRecordable::recorder("an operation waits for a later one"));
        }
        let op = self.op(&one.op, &other.op, place)?;
        Ok(Node { stream: one.stream, after: one.after.clone(), op })
    }

    fn op(&self, one: &RecordedOp, other: &RecordedOp, place: Place) -> Result<Op, NotRecordable> {
        use RecordedOp as R;
        let what = match (scalars(one), scalars(other)) {
            (a, b) if a == b => None,
            (R::Launch { kernel, .. }, R::Launch { kernel: same, .. }) if kernel == same => {
                Some("the grid, the block or another number of")
            }
            _ => Some("the kind, the kernel or the size of"),
        };
        if let Some(what) = what {
            return Err(NotRecordable::differs(format!("{what} {place}")));
        }
        Ok(match (one, other) {
            (R::Launch { args, .. }, R::Launch { args: others, .. }) => {
                Op::Launch(self.launch(one, [args, others], place)?)
            }
            (R::Fill { to, value, element, width, height, pitch }, R::Fill { to: other, .. }) => {
                Op::Fill(Fill {
                    to: self.memory(to, other, place)?,
                    value: *value,
                    element: *element,
                    width: *width,
                    height: *height,
                    pitch: *pitch,
                })
            }
            (
                R::Copy { to, from, width, height, to_pitch, from_pitch },
                R::Copy { to: other_to, from: other_from, .. },
            ) => Op::Copy(Copy2d {
                to: self.memory(to, other_to, place)?,
                from: self.memory(from, other_from, place)?,
                width: *width,
                height: *height,
                to_pitch: *to_pitch,
                from_pitch: *from_pitch,
            }),
            (R::Upload { to, bytes }, R::Upload { to: other, bytes: others }) => {
                Op::Upload(self.upload(self.memory(to, other, place)?, [bytes, others], place)?)
            }
            (R::Gemm { operands, .. }, R::Gemm { operands: others, .. }) => {
                Op::Gemm(Box::new(self.gemm(one, [operands, others], place)?))
            }
            (R::Gemv(one), R::Gemv(other)) => {
                Op::Gemv(Box::new(self.library_call(&**one, &**other, place)?))
            }
            (R::Matmul(one), R::Matmul(other)) => {
                Op::Matmul(Box::new(self.library_call(&**one, &**other, place)?))
            }
            (R::Convolution(one), R::Convolution(other)) => {
                Op::Convolution(Box::new(self.library_call(&**one, &**other, place)?))
            }
            _ => return Err(NotRecordable::differs(format!("the kind of {place}"))),
        })
    }

    fn launch(
        &self,
        recorded: &RecordedOp,
        [args, others]: [&[String]; 2],
        place: Place,
    ) -> Result<Launch, NotRecordable> {
        let RecordedOp::Launch {
            kernel,
            grid,
            block,
            shared,
            cluster,
            cooperative,
            programmatic,
            ..
        } = recorded
        else {
            return Err(NotRecordable::recorder("an operation is no launch"));
        };
        let entry = self.modules.kernel(*kernel)?;
        let sizes =
            || NotRecordable::recorder("a launch's arguments are not of the kernel's sizes");
        if args.len() != entry.params.len() || others.len() != entry.params.len() {
            return Err(sizes());
        }
        let mut arguments = Vec::with_capacity(args.len());
        for (parameter, ((one, other), size)) in
            args.iter().zip(others).zip(&entry.params).enumerate()
        {
            let decoded =
                |text| hex::decode(text).filter(|bytes| bytes.len() as u64 == u64::from(*size));
            let (one, other) = decoded(one).zip(decoded(other)).ok_or_else(sizes)?;
            arguments.push(self.argument(one, other, &entry.name, parameter, place)?);
        }
        Ok(Launch {
            kernel: *kernel,
            grid: *grid,
            block: *block,
            shared: *shared,
            cluster: *cluster,
            cooperative: *cooperative,
            programmatic: *programmatic,
            args: arguments,
        })
    }

    fn argument(
        &self,
        mut one: Vec<u8>,
        mut other: Vec<u8>,
        kernel: &str,
        parameter: usize,
        place: Place,
    ) -> Result<Argument, NotRecordable> {
        let mut tensor_maps = Vec::new();
        for (at, (map, same)) in
            one.chunks_mut(MAP_ALIGN).zip(other.chunks_mut(MAP_ALIGN)).enumerate()
        {
            // A map is two such chunks, of which the second is all zero.
            if !map.starts_with(&RecordedTensorMap::MARK) {
                continue;
            }
            let index = map.get(8..).and_then(|rest| rest.first_chunk()).copied();
            let index = index.map(u64::from_le_bytes).and_then(|index| u32::try_from(index).ok());
            let index = index.filter(|index| (*index as usize) < self.tensor_maps.len());
            let blank = map.get(16..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
            let (Some(index), true, true) = (index, blank, map == same) else {
                return Err(NotRecordable::StrayTensorMap { place });
            };
            tensor_maps.push((u32::try_from(at * MAP_ALIGN).unwrap_or(u32::MAX), index));
            map.fill(0);
            same.fill(0);
        }
        for (at, _) in &tensor_maps {
            let at = *at as usize;
            let blank = |bytes: &[u8]| {
                let map = bytes.get(at..at.saturating_add(RecordedTensorMap::BYTES));
                map.is_some_and(|map| map.iter().all(|byte| *byte == 0))
            };
            if !blank(&one) || !blank(&other) {
                return Err(NotRecordable::StrayTensorMap { place });
            }
        }
        if marked(&one) || marked(&other) {
            return Err(NotRecordable::StrayTensorMap { place });
        }
        let kernel = || plain(kernel);
        let words = Words::pair(&one, &other, self.blocks).map_err(|why| {
            let byte = why.byte;
            if why.unaligned {
                NotRecordable::UnalignedPointer { kernel: kernel(), parameter, byte, place }
            } else {
                NotRecordable::Argument { kernel: kernel(), parameter, byte, place }
            }
        })?;
        Ok(Argument { bytes: words.bytes, relocations: words.relocations, tensor_maps })
    }

    fn upload(
        &self,
        to: Memory,
        [one, other]: [&Vec<u8>; 2],
        place: Place,
    ) -> Result<Upload, NotRecordable> {
        if one.len() != other.len() {
            return Err(NotRecordable::differs(format!("the number of bytes of {place}")));
        }
        if marked(one) || marked(other) {
            return Err(NotRecordable::StrayTensorMap { place });
        }
        let words = Words::pair(one, other, self.blocks)
            .map_err(|why| NotRecordable::Uploaded { byte: why.byte, place })?;
        Ok(Upload { to, bytes: words.bytes, relocations: words.relocations })
    }

    fn gemm(
        &self,
        recorded: &RecordedOp,
        [one, other]: [&[u64; 3]; 2],
        place: Place,
    ) -> Result<Gemm, NotRecordable> {
        let RecordedOp::Gemm {
            transpose,
            sizes,
            types,
            leading,
            strides,
            batch,
            alpha,
            beta,
            compute,
            math,
            algorithm,
            pointers,
            ..
        } = recorded
        else {
            return Err(NotRecordable::recorder("an operation is no matrix product"));
        };
        let ([a, b, c], [other_a, other_b, other_c]) = (one, other);
        Ok(Gemm {
            transpose: *transpose,
            sizes: *sizes,
            operands: [
                self.address([*a, *other_a], place)?,
                self.address([*b, *other_b], place)?,
                self.address([*c, *other_c], place)?,
            ],
            types: *types,
            leading: *leading,
            strides: *strides,
            batch: *batch,
            alpha: *alpha,
            beta: *beta,
            compute: *compute,
            math: *math,
            algorithm: *algorithm,
            pointers: *pointers,
        })
    }

    fn memory(
        &self,
        one: &RecordedMemory,
        other: &RecordedMemory,
        place: Place,
    ) -> Result<Memory, NotRecordable> {
        match (one, other) {
            (RecordedMemory::Address(one), RecordedMemory::Address(other)) => {
                Ok(Memory::Block(self.address([*one, *other], place)?))
            }
            (RecordedMemory::Symbol { module, name, offset }, same) if one == same => {
                if name.len() > MAX_NAME {
                    return Err(NotRecordable::recorder("a variable has too long a name"));
                }
                let module = self.modules.number(*module)?;
                Ok(Memory::Symbol { module, name: name.clone(), offset: *offset })
            }
            _ => Err(NotRecordable::differs(format!("the variable of {place}"))),
        }
    }

    /// A library call of both recordings, which are equal but for their addresses: they have as many.
    fn library_call<C: LibraryCall<u64>>(
        &self,
        one: &C,
        other: &C,
        place: Place,
    ) -> Result<C::With<Address>, NotRecordable> {
        let mut others = other.places().into_iter().copied();
        one.try_map(&mut |at| self.address([*at, others.next().unwrap_or(0)], place))
    }

    fn address(&self, addresses: [u64; 2], place: Place) -> Result<Address, NotRecordable> {
        self.blocks.resolve(addresses).ok_or(NotRecordable::ForeignMemory { place })
    }
}

/// Tensor maps of both recordings, made one.
pub(super) fn tensor_maps(
    recordings: [&Recording; 2],
    blocks: &Blocks<'_>,
) -> Result<Vec<TensorMap>, NotRecordable> {
    let [all, others] = recordings.map(|recording| recording.tensor_maps.as_slice());
    NotRecordable::beyond("tensor maps", all.len() as u64, MAX_ENTRIES as u64)?;
    let alike = |(a, b): (&RecordedTensorMap, &RecordedTensorMap)| {
        *a == RecordedTensorMap { address: a.address, ..b.clone() }
    };
    if all.len() != others.len() || !all.iter().zip(others).all(alike) {
        return Err(NotRecordable::differs("the number or the shape of tensor maps"));
    }
    let resolved = |(map, other): (&RecordedTensorMap, &RecordedTensorMap)| {
        let address = blocks.resolve([map.address, other.address]).ok_or_else(|| {
            NotRecordable::recorder("a tensor map describes memory that is no allocation")
        })?;
        Ok(TensorMap {
            dtype: map.dtype,
            address,
            dims: map.dims.clone(),
            strides: map.strides.clone(),
            box_dims: map.box_dims.clone(),
            element_strides: map.element_strides.clone(),
            interleave: map.interleave,
            swizzle: map.swizzle,
            l2_promotion: map.l2_promotion,
            oob_fill: map.oob_fill,
        })
    };
    all.iter().zip(others).map(resolved).collect()
}

/// An operation without its addresses and data: what must be equal in both recordings.
fn scalars(op: &RecordedOp) -> RecordedOp {
    let mut op = op.clone();
    let blank = |memory: &mut RecordedMemory| {
        if let RecordedMemory::Address(address) = memory {
            *address = 0;
        }
    };
    match &mut op {
        RecordedOp::Launch { args, .. } => args.clear(),
        RecordedOp::Fill { to, .. } => blank(to),
        RecordedOp::Copy { to, from, .. } => {
            blank(to);
            blank(from);
        }
        RecordedOp::Upload { to, bytes } => {
            blank(to);
            bytes.clear();
        }
        RecordedOp::Gemm { operands, .. } => *operands = [0; 3],
        RecordedOp::Gemv(gemv) => **gemv = blank_call(&**gemv),
        RecordedOp::Matmul(matmul) => **matmul = blank_call(&**matmul),
        RecordedOp::Convolution(convolution) => **convolution = blank_call(&**convolution),
    }
    op
}

/// A library call without its addresses.
fn blank_call<C: LibraryCall<u64, With<u64> = C>>(call: &C) -> C {
    let Ok(blank) = call.try_map::<u64, Infallible>(&mut |_| Ok(0));
    blank
}

fn marked(bytes: &[u8]) -> bool {
    bytes.windows(RecordedTensorMap::MARK.len()).any(|window| window == RecordedTensorMap::MARK)
}

/// Characters, or twice the bytes, of an operation's data.
fn text_bytes(node: &RecordedNode) -> usize {
    match &node.op {
        RecordedOp::Launch { args, .. } => {
            args.iter().map(String::len).fold(0, usize::saturating_add)
        }
        RecordedOp::Upload { bytes, .. } => bytes.len().saturating_mul(2),
        _ => 0,
    }
}
