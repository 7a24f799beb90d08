//! Everything about a plan that a replayer relies on: every index, every extent, every limit of CUDA.
//!
//! What kernels do with the addresses that they get, no check can say: they run in the judge's memory.

mod convolution;
mod extent;
mod gemm;
mod launch;
mod matmul;
mod tensor_map;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value as Json;

use crate::image::Image;
use crate::limits::{
    MAX_ARGUMENT_BYTES, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_CONSTANT_BYTES, MAX_EDGES, MAX_ENTRIES,
    MAX_LOADED_BYTES, MAX_MODULE_BYTES, MAX_NAME, MAX_NODES, MAX_STREAMS, MAX_TENSORS, MAX_TREE,
};
use crate::plan::{Address, Block, LaunchPlan, Node, Op, Output, PLAN_VERSION, Role};

/// Why a replayer does not take a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The plan is of another version.
    #[error("the launch plan has version {found}; this program reads version {PLAN_VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// A part of it breaks a rule.
    #[error("the launch plan is not valid: {part}: {rule}")]
    Part {
        /// Which part.
        part: Part,
        /// The rule.
        rule: &'static str,
    },
}

/// A part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the plan's fields, with an index")]
pub enum Part {
    Modules,
    Kernel(usize),
    TensorMap(usize),
    Constants,
    Block(usize),
    Prepare(usize),
    Forward(usize),
    Outputs,
    Output(usize),
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modules => write!(out, "modules"),
            Self::Kernel(index) => write!(out, "kernel {index}"),
            Self::TensorMap(index) => write!(out, "tensor map {index}"),
            Self::Constants => write!(out, "constants"),
            Self::Block(index) => write!(out, "block {index}"),
            Self::Prepare(index) => write!(out, "operation {index} of prepare()"),
            Self::Forward(index) => write!(out, "operation {index} of forward()"),
            Self::Outputs => write!(out, "results"),
            Self::Output(index) => write!(out, "result {index}"),
        }
    }
}

/// A rule that is broken; the caller knows by what.
type Rule = Result<(), &'static str>;

/// Breaks the rule unless `holds`.
fn ensure(holds: bool, rule: &'static str) -> Rule {
    if holds { Ok(()) } else { Err(rule) }
}

impl LaunchPlan {
    /// Checks the plan. `images` are those of its modules, in the same order, as read from the files.
    pub fn check(&self, images: &[Image]) -> Result<(), Invalid> {
        if self.version != PLAN_VERSION {
            return Err(Invalid::Version { found: self.version });
        }
        let of = |part: Part| move |rule| Invalid::Part { part, rule };
        let checker = Checker { plan: self, images };
        checker.modules().map_err(of(Part::Modules))?;
        for (index, kernel) in self.kernels.iter().enumerate() {
            checker.kernel(kernel).map_err(of(Part::Kernel(index)))?;
        }
        for (index, map) in self.tensor_maps.iter().enumerate() {
            checker.tensor_map(map).map_err(of(Part::TensorMap(index)))?;
        }
        checker.constants().map_err(of(Part::Constants))?;
        let mut tensors = BTreeSet::new();
        for (index, block) in self.blocks.iter().enumerate() {
            checker.block(block, &mut tensors).map_err(of(Part::Block(index)))?;
        }
        for (index, node) in self.prepare.iter().enumerate() {
            checker.node(node, index, None).map_err(of(Part::Prepare(index)))?;
        }
        for (index, node) in self.forward.iter().enumerate() {
            checker.node(node, index, Some(index)).map_err(of(Part::Forward(index)))?;
        }
        checker.tree().map_err(of(Part::Outputs))?;
        for (index, output) in self.outputs.tensors.iter().enumerate() {
            checker.output(output).map_err(of(Part::Output(index)))?;
        }
        Ok(())
    }
}

/// A plan and what its files hold.
struct Checker<'a> {
    plan: &'a LaunchPlan,
    images: &'a [Image],
}

impl Checker<'_> {
    fn modules(&self) -> Rule {
        let plan = self.plan;
        let entries = [plan.modules.len(), plan.kernels.len(), plan.tensor_maps.len()];
        ensure(
            entries.iter().all(|count| *count <= MAX_ENTRIES),
            "too many modules, kernels or tensor maps",
        )?;
        ensure(plan.modules.len() == self.images.len(), "their images are missing")?;
        for module in &plan.modules {
            ensure(is_hash(&module.hash), "a hash is no BLAKE3")?;
            ensure(is_beside(&module.file), "a file lies outside the artifact")?;
            ensure(module.bytes > 0, "an image is empty")?;
            ensure(module.offset.checked_add(module.bytes).is_some(), "an image has no end")?;
        }
        let bytes = plan.modules.iter().map(|module| module.bytes).fold(0, u64::saturating_add);
        ensure(bytes <= MAX_MODULE_BYTES, "too many bytes")?;
        let loaded = self.images.iter().map(|image| image.loaded_bytes);
        ensure(
            loaded.fold(0, u64::saturating_add) <= MAX_LOADED_BYTES,
            "too many bytes of code and variables",
        )?;
        let names = [&plan.producer.kind, &plan.producer.compiler];
        ensure(names.iter().all(|name| name.len() <= MAX_NAME), "the producer's name is too long")?;
        ensure(plan.prepare.len() <= MAX_NODES, "prepare() has too many operations")?;
        ensure(plan.forward.len() <= MAX_NODES, "forward() has too many operations")?;
        let bytes = plan.prepare.iter().chain(&plan.forward).map(data_bytes);
        ensure(
            bytes.fold(0, usize::saturating_add) <= MAX_ARGUMENT_BYTES,
            "too many bytes of arguments",
        )
    }

    fn constants(&self) -> Rule {
        let constants = &self.plan.constants;
        ensure(constants.iter().all(|constant| is_hash(&constant.hash)), "a hash is no BLAKE3")?;
        let bytes = constants.iter().map(|constant| constant.bytes).fold(0, u64::saturating_add);
        ensure(bytes <= MAX_CONSTANT_BYTES, "too many bytes")
    }

    fn block(&self, block: &Block, tensors: &mut BTreeSet<(u8, u32)>) -> Rule {
        ensure(self.plan.blocks.len() <= MAX_BLOCKS, "too many blocks")?;
        ensure(block.bytes > 0 && block.bytes <= MAX_BLOCK_BYTES, "its size is 0 or too large")?;
        let key = match block.role {
            Role::Input(position) => (0, position),
            Role::Weight(position) => (1, position),
            Role::Init(position) => (2, position),
            Role::Constant(index) => {
                let constant =
                    at(&self.plan.constants, index).ok_or("its constant does not exist")?;
                ensure(constant.bytes == block.bytes, "its constant has another size")?;
                (3, index)
            }
            Role::Kept => return Ok(()),
            Role::Call { born, freed } => {
                let end = self.plan.forward.len() as u64;
                ensure(u64::from(born) <= end, "it is allocated after the call")?;
                let within = |freed| freed >= born && u64::from(freed) <= end;
                return ensure(freed.is_none_or(within), "it is freed before it is allocated");
            }
        };
        let (_, position) = key;
        ensure(position < MAX_TENSORS as u32, "its position is too large")?;
        ensure(tensors.insert(key), "another block has the same role")
    }

    /// Checks a node. `call` is its number in `forward`; `None` in `prepare`.
    fn node(&self, node: &Node, index: usize, call: Option<usize>) -> Rule {
        ensure(node.stream < MAX_STREAMS, "its stream's number is too large")?;
        ensure(node.after.len() <= MAX_EDGES, "it waits for too many others")?;
        let earlier = |after: &u32| usize::try_from(*after).is_ok_and(|after| after < index);
        ensure(node.after.iter().all(earlier), "it waits for a later operation")?;
        match &node.op {
            Op::Launch(launch) => self.launch(launch)?,
            Op::Fill(fill) => self.fill(fill)?,
            Op::Copy(copy) => self.copy(copy)?,
            Op::Upload(upload) => self.upload(upload)?,
            Op::Gemm(gemm) => self.gemm(gemm)?,
            Op::Gemv(gemv) => self.gemv(gemv)?,
            Op::Matmul(matmul) => self.matmul(matmul)?,
            Op::Convolution(convolution) => self.convolution(convolution)?,
        }
        for address in node.op.addresses() {
            self.alive(address, call)?;
        }
        if let Op::Launch(launch) = &node.op {
            for (_, map) in launch.args.iter().flat_map(|arg| &arg.tensor_maps) {
                let map =
                    at(&self.plan.tensor_maps, *map).ok_or("its tensor map does not exist")?;
                self.alive(map.address, call)?;
            }
        }
        Ok(())
    }

    /// Whether a block holds something when a node runs.
    fn alive(&self, address: Address, call: Option<usize>) -> Rule {
        let block = self.block_of(address)?;
        match (block.role, call) {
            (Role::Input(_) | Role::Call { .. }, None) => Err("prepare() uses memory of a call"),
            (Role::Call { born, freed }, Some(index)) => {
                let index = index as u64;
                let alive =
                    u64::from(born) <= index && freed.is_none_or(|freed| index < freed.into());
                ensure(alive, "it uses memory before it is allocated or after it is freed")
            }
            _ => Ok(()),
        }
    }

    fn output(&self, output: &Output) -> Rule {
        let block = self.block_of(output.at)?;
        match block.role {
            Role::Input(_) | Role::Call { freed: None, .. } => {}
            _ => return Err("it is no memory of the call, or freed"),
        }
        let element = dtype_bytes(&output.dtype).ok_or("its dtype is unknown")?;
        let most_dimensions = 64;
        let same = output.shape.len() == output.strides.len();
        ensure(
            same && output.shape.len() <= most_dimensions,
            "its shape and strides do not match",
        )?;
        ensure(!output.shape.contains(&0), "it is empty")?;
        let mut last: u64 = 0;
        for (extent, stride) in output.shape.iter().zip(&output.strides) {
            let stride = u64::try_from(*stride).map_err(|_| "a stride is negative")?;
            let step = (extent - 1).checked_mul(stride);
            last = step.and_then(|step| last.checked_add(step)).ok_or("it is too large")?;
        }
        let bytes = last.checked_add(1).and_then(|elements| elements.checked_mul(element));
        self.within(output.at, bytes.ok_or("it is too large")?)?;
        ensure(output.at.offset.is_multiple_of(element), "it is not aligned")
    }

    /// Whether the tree names tensors that exist.
    fn tree(&self) -> Rule {
        ensure(self.plan.outputs.tensors.len() <= MAX_TENSORS, "too many tensors")?;
        let mut open = vec![&self.plan.outputs.tree];
        let mut seen = 0;
        while let Some(value) = open.pop() {
            seen += 1;
            ensure(seen + open.len() <= MAX_TREE, "the tree is too large")?;
            match value {
                Json::String(text) => ensure(text.len() <= MAX_NAME, "a text is too long")?,
                Json::Array(items) => open.extend(items),
                Json::Object(fields) => {
                    if let Some(tensor) = fields.get("tensor") {
                        let index = tensor.as_u64().and_then(|index| usize::try_from(index).ok());
                        let known =
                            index.is_some_and(|index| index < self.plan.outputs.tensors.len());
                        ensure(known, "the tree names a tensor that does not exist")?;
                    }
                    ensure(fields.keys().all(|key| key.len() <= MAX_NAME), "a text is too long")?;
                    open.extend(fields.values());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn block_of(&self, address: Address) -> Result<&Block, &'static str> {
        at(&self.plan.blocks, address.block).ok_or("a block does not exist")
    }
}

fn at<T>(all: &[T], index: u32) -> Option<&T> {
    usize::try_from(index).ok().and_then(|index| all.get(index))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a path names a file below a folder.
fn is_beside(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    path.len() <= MAX_NAME && !path.contains(['\0', '\\']) && path.split('/').all(plain)
}

fn data_bytes(node: &Node) -> usize {
    match &node.op {
        Op::Launch(launch) => {
            launch.args.iter().map(|arg| arg.bytes.len()).fold(0, usize::saturating_add)
        }
        Op::Upload(upload) => upload.bytes.len(),
        _ => 0,
    }
}

/// Bytes of an element, of the types that results may have.
fn dtype_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "complex128" => 16,
        "float64" | "int64" | "uint64" | "complex64" => 8,
        "float32" | "int32" | "uint32" => 4,
        "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "int8" | "uint8" | "bool" | "float8_e4m3fn" | "float8_e5m2" => 1,
        _ => return None,
    })
}
