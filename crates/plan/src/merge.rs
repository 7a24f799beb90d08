//! One plan from two recordings.
//!
//! ```text
//! blocks  ─► memory   pairs of blocks, at other addresses in each recording
//! kernels ─► modules  read from the artifact
//! nodes   ─► nodes    what differs is a pointer, resolved to block and offset
//!         ─► calls    the second call repeats the first, streams are joined
//! used    ─► roles    what each used block holds
//! ```

mod calls;
mod memory;
mod modules;
mod nodes;
mod refusal;
mod roles;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use calls::Calls;
use memory::Blocks;
use modules::Modules;
use nodes::{Phased, Resolver};
pub use refusal::{NotRecordable, Place};
use roles::Roles;

use crate::limits::{MAX_BLOCKS, MAX_RECORDING_BYTES, MAX_TENSORS};
use crate::plan::{
    Address, Fill, LaunchPlan, Memory, Node, Op, Output, Outputs, PLAN_VERSION, Producer, TensorMap,
};
use crate::recording::{
    Phase, RECORDING_VERSION, RecordedMemory, RecordedNode, RecordedOp, Recording,
};

/// What the judge knows by itself, and believes.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// What its kernels are compiled for.
    pub code: Code,
    /// Bytes of the artifact's libraries, by the name under which a recording refers to them.
    pub libraries: &'a BTreeMap<String, Vec<u8>>,
    /// Compiler of the device code, with its version.
    pub compiler: &'a str,
    /// Names and contents of the weights, in the order of the reference's `state_dict`.
    pub weights: &'a [(String, Content)],
    /// Contents of the tensors among the constructor's arguments.
    pub init: &'a [Content],
    /// Length of each input in bytes.
    pub input_bytes: &'a [u64],
    /// Reads an open block of each recording, as the recorder left it.
    pub contents: [&'a dyn Fn(u32) -> Option<Vec<u8>>; 2],
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// GPUs: fat binaries within libraries.
    Gpu,
    /// The host, for the cpu device: a library is one image.
    Host,
}

impl Code {
    /// [`Producer::kind`] of its plans.
    pub fn producer(self) -> &'static str {
        match self {
            Self::Gpu => "cuda-runtime",
            Self::Host => "hostcuda",
        }
    }
}

/// A tensor that the judge wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3.
    pub hash: blake3::Hash,
}

/// A plan, and what is stored beside it.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The plan; it passes [`LaunchPlan::check`].
    pub plan: LaunchPlan,
    /// Contents of [`LaunchPlan::constants`].
    pub constants: Vec<Vec<u8>>,
    /// Functions of the device runtime that its modules need: [`crate::image::Image::needs`].
    pub needs: BTreeSet<String>,
}

impl Recording {
    /// Parses what a recorder wrote.
    pub fn parse(json: &[u8]) -> Result<Self, NotRecordable> {
        let (found, most) = (json.len() as u64, MAX_RECORDING_BYTES as u64);
        NotRecordable::beyond("bytes of a recording", found, most)?;
        serde_json::from_slice(json)
            .map_err(|error| NotRecordable::recorder(refusal::plain(&error.to_string())))
    }
}

/// Merges two recordings of the same calls. Their words are hostile; `sources` are the judge's.
pub fn merge(recordings: [&Recording; 2], sources: &Sources<'_>) -> Result<Merged, NotRecordable> {
    for recording in recordings {
        if recording.version != RECORDING_VERSION {
            return Err(NotRecordable::recorder(format!(
                "it has version {}; the judge reads version {RECORDING_VERSION}",
                recording.version
            )));
        }
        if let Some(why) = &recording.refused {
            return Err(NotRecordable::Refused(refusal::plain(why)));
        }
    }
    let [recording, other] = recordings;
    let blocks = Blocks::pair(recordings)?;
    let modules = Modules::read(recordings, sources, recording.nodes.iter().flat_map(of_symbols))?;
    let tensor_maps = nodes::tensor_maps(recordings, &blocks)?;
    let resolver = Resolver { blocks: &blocks, modules: &modules, tensor_maps: &tensor_maps };
    let phased = resolver.pair(recordings)?;
    let roles = Roles::find(recordings, &blocks, sources)?;
    if recording.joined != other.joined {
        return Err(NotRecordable::differs("the events after the last launch"));
    }
    let calls = Calls { blocks: &blocks, maps: &tensor_maps, inputs: &roles.inputs };
    let outputs = outputs(recordings, &blocks, &calls)?;
    calls.check(&phased, &recording.joined)?;
    let works = |node: &Node| !matches!(node.op, Op::Fill(_));
    let views = !outputs.tensors.is_empty()
        && outputs.tensors.iter().all(|output| is_input(&blocks, output));
    if !views && !phased.second.iter().any(works) {
        return Err(NotRecordable::LaunchesNothing);
    }
    let mut used: BTreeSet<u32> = calls.used(&phased.prepare);
    used.extend(calls.used(&phased.second));
    used.extend(outputs.tensors.iter().map(|output| output.at.block));
    NotRecordable::beyond("pieces of memory", used.len() as u64, MAX_BLOCKS as u64)?;
    Assembler { modules: &modules, maps: &tensor_maps, sources, roles }
        .finish(phased, outputs, &used)
}

/// Puts the pieces together, and renumbers what is used.
struct Assembler<'a> {
    modules: &'a Modules,
    maps: &'a [TensorMap],
    sources: &'a Sources<'a>,
    roles: Roles<'a>,
}

impl Assembler<'_> {
    fn finish(
        mut self,
        phased: Phased,
        mut outputs: Outputs,
        used: &BTreeSet<u32>,
    ) -> Result<Merged, NotRecordable> {
        let Phased { mut prepare, second: mut forward, .. } = phased;
        let numbers: BTreeMap<u32, u32> = used.iter().copied().zip(0..).collect();
        let (mut blocks, mut zeroed) = (Vec::with_capacity(used.len()), Vec::new());
        for (block, number) in used.iter().zip(0..) {
            let part = self.roles.part(*block)?;
            if part.zeroed {
                zeroed.push(zeros(number, part.block.bytes));
            }
            blocks.push(part.block);
        }
        let mut place = |address: &mut Address| -> Result<(), NotRecordable> {
            let number = numbers.get(&address.block).copied();
            address.block = number.ok_or_else(|| NotRecordable::recorder("a block has no role"))?;
            Ok(())
        };
        let (mut kernels, mut modules, mut maps) =
            (Renumber::new(), Renumber::new(), Renumber::new());
        for node in prepare.iter_mut().chain(&mut forward) {
            node.op.try_each_address(&mut place)?;
            if let Op::Launch(launch) = &mut node.op {
                launch.kernel = kernels.number(launch.kernel);
            }
            node.op.tensor_maps().for_each(|map| *map = maps.number(*map));
            for memory in node.op.memories() {
                if let Memory::Symbol { module, .. } = memory {
                    *module = modules.number(*module);
                }
            }
        }
        outputs.tensors.iter_mut().map(|output| &mut output.at).try_for_each(&mut place)?;
        let mut plan = LaunchPlan {
            version: PLAN_VERSION,
            producer: Producer {
                kind: self.sources.code.producer().to_owned(),
                compiler: self.sources.compiler.to_owned(),
            },
            modules: Vec::new(),
            kernels: Vec::new(),
            tensor_maps: Vec::new(),
            constants: Vec::new(),
            blocks,
            prepare: after_zeros(zeroed, prepare),
            forward,
            outputs,
        };
        for kernel in kernels.order {
            let mut kernel = self.modules.kernel(kernel)?.clone();
            kernel.module = modules.number(kernel.module);
            plan.kernels.push(kernel);
        }
        let mut images = Vec::new();
        for module in modules.order {
            let (module, image) = self.modules.module(module)?;
            plan.modules.push(module.clone());
            images.push(image.clone());
        }
        for map in maps.order {
            let map = usize::try_from(map).ok().and_then(|map| self.maps.get(map));
            let map = map.ok_or_else(|| NotRecordable::recorder("a tensor map does not exist"))?;
            let mut map = map.clone();
            place(&mut map.address)?;
            plan.tensor_maps.push(map);
        }
        let constants;
        (plan.constants, constants) = self.roles.constants.into_iter().unzip();
        plan.check(&images)?;
        let needs = images.into_iter().flat_map(|image| image.needs).collect();
        Ok(Merged { plan, constants, needs })
    }
}

/// Numbers things in the order in which they are first named.
struct Renumber {
    numbers: BTreeMap<u32, u32>,
    order: Vec<u32>,
}

impl Renumber {
    fn new() -> Self {
        Self { numbers: BTreeMap::new(), order: Vec::new() }
    }

    fn number(&mut self, old: u32) -> u32 {
        let next = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(old).or_insert_with(|| {
            self.order.push(old);
            next
        })
    }
}

/// Modules whose variables an operation names.
fn of_symbols(node: &RecordedNode) -> Vec<u32> {
    let memories: &[&RecordedMemory] = match &node.op {
        RecordedOp::Fill { to, .. } | RecordedOp::Upload { to, .. } => &[to],
        RecordedOp::Copy { to, from, .. } => &[to, from],
        RecordedOp::Launch { .. }
        | RecordedOp::Gemm { .. }
        | RecordedOp::Gemv(_)
        | RecordedOp::Matmul(_)
        | RecordedOp::Convolution(_) => &[],
    };
    let module = |memory: &&RecordedMemory| match memory {
        RecordedMemory::Symbol { module, .. } => Some(*module),
        RecordedMemory::Address(_) => None,
    };
    memories.iter().filter_map(module).collect()
}

fn outputs(
    [recording, other]: [&Recording; 2],
    blocks: &Blocks<'_>,
    calls: &Calls<'_>,
) -> Result<Outputs, NotRecordable> {
    let (tensors, others) = (&recording.outputs.tensors, &other.outputs.tensors);
    NotRecordable::beyond("results", tensors.len() as u64, MAX_TENSORS as u64)?;
    if recording.outputs.tree != other.outputs.tree || tensors.len() != others.len() {
        return Err(NotRecordable::differs("the structure of the result or a number in it"));
    }
    let mut found = Vec::with_capacity(tensors.len());
    for (output, (one, same)) in tensors.iter().zip(others).enumerate() {
        if (&one.shape, &one.strides, &one.dtype) != (&same.shape, &same.strides, &same.dtype) {
            return Err(NotRecordable::differs(format!("the shape of result {output}")));
        }
        if one.shape.contains(&0) {
            return Err(NotRecordable::EmptyOutput { output });
        }
        let foreign = || NotRecordable::ForeignOutput { output };
        let at = blocks.resolve([one.address, same.address]).ok_or_else(foreign)?;
        let block = blocks.get(at.block)?;
        let [_, inputs] = calls.inputs;
        let own = block.phase == Phase::Second && block.freed.is_none();
        if !own && !inputs.contains_key(&at.block) {
            return Err(foreign());
        }
        found.push(Output {
            at,
            shape: one.shape.clone(),
            strides: one.strides.clone(),
            dtype: one.dtype.clone(),
        });
    }
    Ok(Outputs { tree: recording.outputs.tree.clone(), tensors: found })
}

fn is_input(blocks: &Blocks<'_>, output: &Output) -> bool {
    blocks.get(output.at.block).is_ok_and(|block| block.phase == Phase::Inputs)
}

/// Fills a block with zeros.
fn zeros(block: u32, bytes: u64) -> Node {
    let element: u8 = if bytes.is_multiple_of(4) { 4 } else { 1 };
    let op = Op::Fill(Fill {
        to: Memory::Block(Address { block, offset: 0 }),
        value: 0,
        element,
        width: bytes / u64::from(element),
        height: 1,
        pitch: 0,
    });
    Node { stream: 0, after: Vec::new(), op }
}

/// Puts operations of stream 0 before others, which then wait for them.
fn after_zeros(mut zeros: Vec<Node>, mut prepare: Vec<Node>) -> Vec<Node> {
    let Some(last) = zeros.len().checked_sub(1) else { return prepare };
    let (last, shift) = (last as u32, zeros.len() as u32);
    let mut waits = BTreeSet::from([0]);
    for node in &mut prepare {
        node.after.iter_mut().for_each(|after| *after += shift);
        if waits.insert(node.stream) {
            node.after.push(last);
        }
    }
    zeros.append(&mut prepare);
    zeros
}
