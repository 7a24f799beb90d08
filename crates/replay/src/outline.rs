//! What all calls of a list of nodes have in common: operations in order, and where addresses go.

use std::collections::{BTreeMap, BTreeSet};

use warpwright_plan::{
    Argument, Convolution, Copy2d, Fill, Launch, LaunchPlan, LibraryCall, Matmul, Memory, Op,
    Relocation, Upload,
};

use crate::blas::{Product, VectorProduct, lt};
use crate::dnn::{self, Shape};
use crate::driver::{Address, Handle, LaunchAttribute};
use crate::failure::{Failure, printable};
use crate::staged::Device;

/// Most nodes of a call.
const MAX_NODES: usize = 4096;
/// Most streams of a plan.
pub(crate) const MAX_STREAMS: usize = 32;
/// Most nodes that a node waits for.
const MAX_EDGES: usize = 64;
/// Most bytes of arguments and uploads of a call.
const MAX_FRAME: usize = 32 << 20;
/// Bytes of an encoded tensor map.
const MAP_BYTES: usize = 128;
/// Most kernels that an error names.
const NAMED: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    pub(crate) nodes: Vec<Node>,
    /// Number of streams.
    pub(crate) streams: usize,
    /// Number of events between nodes.
    pub(crate) events: usize,
    /// Names the launches, for errors.
    pub(crate) label: String,
    /// Bytes of arguments and uploads, without addresses.
    pub(crate) template: Vec<u8>,
    /// Where arguments begin in it.
    pub(crate) pointers: Vec<usize>,
    /// Where addresses go in it.
    pub(crate) addresses: Vec<(usize, warpwright_plan::Address)>,
    /// Where tensor maps go in it, by their index in the plan.
    pub(crate) maps: Vec<(usize, u32)>,
    /// Addresses of operations that are no launches.
    pub(crate) words: Vec<Target>,
}

/// Where an operation's memory begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A variable of a module.
    Fixed(Address),
    /// A place in a block, which differs from call to call.
    Block(warpwright_plan::Address),
}

/// An operation, and what it waits for.
#[derive(Debug)]
pub(crate) struct Node {
    /// Names it in an error.
    pub(crate) label: String,
    pub(crate) stream: usize,
    /// Events of nodes of other streams.
    pub(crate) waits: Vec<usize>,
    /// The event that nodes of other streams wait for.
    pub(crate) records: Option<usize>,
    pub(crate) action: Action,
}

/// Whether kernels are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launches {
    Run,
    LeftOut,
}

/// An operation. A `word` is an index into [`Outline::words`]; if it needs several they follow each other.
#[derive(Debug)]
pub(crate) enum Action {
    Launch {
        function: Handle,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        /// Programmatic serialization is last, if it is among them.
        attributes: Vec<LaunchAttribute>,
        programmatic: bool,
        /// Index of its first argument into [`Outline::pointers`].
        first: usize,
    },
    Fill {
        word: usize,
        value: u32,
        element: Element,
        width: usize,
        height: usize,
        pitch: usize,
    },
    Copy {
        /// Target, then source.
        word: usize,
        width: usize,
        height: usize,
        to_pitch: usize,
        from_pitch: usize,
    },
    Upload {
        word: usize,
        /// Where its bytes begin in the frame.
        at: usize,
        bytes: usize,
    },
    /// A launch that is left out: what waits for it waits for what was before it.
    Nothing,
    Gemm {
        /// `A`, `B` and `C`.
        word: usize,
        product: Product,
    },
    Gemv {
        /// Matrix, vector and result.
        word: usize,
        product: VectorProduct,
    },
    Matmul {
        /// In the order of [`LibraryCall::try_map`].
        word: usize,
        places: usize,
        /// Its number among [`lt::shapes`].
        index: usize,
    },
    Convolution {
        /// In the order of [`LibraryCall::try_map`].
        word: usize,
        places: usize,
        /// Its number among [`dnn::shapes`].
        index: usize,
    },
}

/// Bytes of what a fill sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    One,
    Two,
    Four,
}

impl Outline {
    /// Outlines these nodes of a plan, with or without its launches.
    pub(crate) fn of(
        plan: &LaunchPlan,
        (nodes, launches): (&[warpwright_plan::Node], Launches),
        device: &dyn Device,
    ) -> Result<Self, Failure> {
        if nodes.len() > MAX_NODES {
            return Err(Failure::Plan(format!("{} nodes are more than {MAX_NODES}", nodes.len())));
        }
        let events = events_of(nodes)?;
        let mut outline = Self { events: events.len(), streams: 1, ..Self::default() };
        let (shapes, products) = (dnn::shapes(plan), lt::shapes(plan));
        let mut begun = [false; MAX_STREAMS];
        let mut names = Vec::new();
        for (index, node) in (0u32..).zip(nodes) {
            let stream = node.stream as usize;
            let first = begun.get_mut(stream).map(|begun| !std::mem::replace(begun, true));
            let first = first.ok_or_else(|| {
                Failure::Plan(format!("a node is in stream {stream} of at most {MAX_STREAMS}"))
            })?;
            outline.streams = outline.streams.max(stream + 1);
            let (label, action) = match &node.op {
                Op::Launch(_) if launches == Launches::LeftOut => {
                    ("leave out a launch".to_owned(), Action::Nothing)
                }
                Op::Launch(launch) => {
                    let name = plan.kernels.get(launch.kernel as usize).map(|kernel| &kernel.name);
                    let name = printable(name.map_or("", String::as_str));
                    let label = format!("launch {name}");
                    if !names.contains(&name) {
                        names.push(name);
                    }
                    (label, outline.launch(plan, launch, first, device)?)
                }
                Op::Fill(fill) => ("fill memory".to_owned(), outline.fill(plan, fill, device)?),
                Op::Copy(copy) => ("copy memory".to_owned(), outline.copy(plan, copy, device)?),
                Op::Upload(upload) => {
                    ("upload bytes".to_owned(), outline.upload(plan, upload, device)?)
                }
                Op::Gemm(gemm) => {
                    let word = outline.words.len();
                    outline.words.extend(gemm.operands.map(Target::Block));
                    let product = Product::of(gemm)?;
                    ("multiply matrices".to_owned(), Action::Gemm { word, product })
                }
                Op::Gemv(gemv) => {
                    let word = outline.words.len();
                    outline.words.extend(gemv.operands.map(Target::Block));
                    let product = VectorProduct::of(gemv)?;
                    ("multiply a matrix and a vector".to_owned(), Action::Gemv { word, product })
                }
                Op::Matmul(matmul) => {
                    ("multiply matrices".to_owned(), outline.matmul(matmul, &products)?)
                }
                Op::Convolution(convolution) => {
                    ("convolve".to_owned(), outline.convolution(convolution, &shapes)?)
                }
            };
            outline.nodes.push(Node {
                label,
                stream,
                waits: node.after.iter().filter_map(|after| events.get(after)).copied().collect(),
                records: events.get(&index).copied(),
                action,
            });
        }
        outline.label = together(&names);
        Ok(outline)
    }

    /// `first`: of its stream in a call. Then it must not begin before the call before has ended.
    fn launch(
        &mut self,
        plan: &LaunchPlan,
        launch: &Launch,
        first: bool,
        device: &dyn Device,
    ) -> Result<Action, Failure> {
        let kernel = plan.kernels.get(launch.kernel as usize);
        let kernel = kernel.ok_or_else(|| Failure::Plan("a kernel is missing".to_owned()))?;
        // The driver reads as many bytes as the kernel's parameters have.
        let sizes = launch.args.iter().map(|argument| argument.bytes.len());
        if !sizes.eq(kernel.params.iter().map(|size| *size as usize)) {
            let name = printable(&kernel.name);
            return Err(Failure::Plan(format!("arguments of {name} do not fit its parameters")));
        }
        let from = self.pointers.len();
        for argument in &launch.args {
            let at = self.argument(argument)?;
            self.pointers.push(at);
        }
        let mut attributes = Vec::new();
        attributes.extend(launch.cluster.map(LaunchAttribute::cluster));
        attributes.extend(launch.cooperative.then(LaunchAttribute::cooperative));
        let programmatic = launch.programmatic && !first;
        attributes.extend(programmatic.then(LaunchAttribute::programmatic));
        Ok(Action::Launch {
            function: device.function(launch.kernel)?,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            attributes,
            programmatic,
            first: from,
        })
    }

    fn argument(&mut self, argument: &Argument) -> Result<usize, Failure> {
        let has_map = !argument.tensor_maps.is_empty();
        let align = if has_map || argument.bytes.len() > 16 { MAP_BYTES } else { 16 };
        let at = self.bytes(&argument.bytes, &argument.relocations, align)?;
        for (offset, map) in &argument.tensor_maps {
            let offset = inside(*offset, MAP_BYTES, argument.bytes.len())?;
            self.maps.push((at + offset, *map));
        }
        Ok(at)
    }

    /// Adds bytes to the template, and says where.
    fn bytes(
        &mut self,
        bytes: &[u8],
        relocations: &[Relocation],
        align: usize,
    ) -> Result<usize, Failure> {
        let at = self.template.len().next_multiple_of(align);
        if bytes.len() > MAX_FRAME || at > MAX_FRAME - bytes.len() {
            return Err(Failure::Plan(format!("arguments of a call exceed {MAX_FRAME} bytes")));
        }
        self.template.resize(at, 0);
        self.template.extend_from_slice(bytes);
        for relocation in relocations {
            let offset = inside(relocation.at, size_of::<Address>(), bytes.len())?;
            self.addresses.push((at + offset, relocation.to));
        }
        Ok(at)
    }

    fn fill(
        &mut self,
        plan: &LaunchPlan,
        fill: &Fill,
        device: &dyn Device,
    ) -> Result<Action, Failure> {
        let element = match fill.element {
            1 => Element::One,
            2 => Element::Two,
            4 => Element::Four,
            other => return Err(Failure::Plan(format!("a fill has elements of {other} bytes"))),
        };
        let width = fill.width.checked_mul(u64::from(fill.element));
        let bytes = width.and_then(|width| rows(width, fill.height, fill.pitch));
        let word = self.words.len();
        self.words.push(memory(plan, &fill.to, bytes, device)?);
        Ok(Action::Fill {
            word,
            value: fill.value,
            element,
            width: size(fill.width)?,
            height: size(fill.height)?,
            pitch: size(fill.pitch)?,
        })
    }

    fn copy(
        &mut self,
        plan: &LaunchPlan,
        copy: &Copy2d,
        device: &dyn Device,
    ) -> Result<Action, Failure> {
        let word = self.words.len();
        let to = rows(copy.width, copy.height, copy.to_pitch);
        let from = rows(copy.width, copy.height, copy.from_pitch);
        self.words.push(memory(plan, &copy.to, to, device)?);
        self.words.push(memory(plan, &copy.from, from, device)?);
        Ok(Action::Copy {
            word,
            width: size(copy.width)?,
            height: size(copy.height)?,
            to_pitch: size(copy.to_pitch)?,
            from_pitch: size(copy.from_pitch)?,
        })
    }

    fn matmul(&mut self, matmul: &Matmul, shapes: &[lt::Shape]) -> Result<Action, Failure> {
        let shape = lt::shape(matmul);
        let index = shapes.iter().position(|known| *known == shape);
        let index =
            index.ok_or_else(|| Failure::Plan("it has too many different products".to_owned()))?;
        let (word, places) = (self.words.len(), matmul.places());
        self.words.extend(places.iter().map(|place| Target::Block(**place)));
        Ok(Action::Matmul { word, places: places.len(), index })
    }

    fn convolution(
        &mut self,
        convolution: &Convolution,
        shapes: &[Shape],
    ) -> Result<Action, Failure> {
        let shape = dnn::shape(convolution);
        let index = shapes.iter().position(|known| *known == shape);
        let index = index
            .ok_or_else(|| Failure::Plan("it has too many different convolutions".to_owned()))?;
        let (word, places) = (self.words.len(), convolution.places());
        self.words.extend(places.iter().map(|place| Target::Block(**place)));
        Ok(Action::Convolution { word, places: places.len(), index })
    }

    fn upload(
        &mut self,
        plan: &LaunchPlan,
        upload: &Upload,
        device: &dyn Device,
    ) -> Result<Action, Failure> {
        let at = self.bytes(&upload.bytes, &upload.relocations, 16)?;
        let word = self.words.len();
        self.words.push(memory(plan, &upload.to, Some(upload.bytes.len() as u64), device)?);
        Ok(Action::Upload { word, at, bytes: upload.bytes.len() })
    }
}

/// The event of each node that another waits for.
fn events_of(nodes: &[warpwright_plan::Node]) -> Result<BTreeMap<u32, usize>, Failure> {
    let mut awaited = BTreeSet::new();
    for (index, node) in (0u32..).zip(nodes) {
        if node.after.len() > MAX_EDGES {
            return Err(Failure::Plan(format!("node {index} waits for more than {MAX_EDGES}")));
        }
        if let Some(late) = node.after.iter().find(|after| **after >= index) {
            return Err(Failure::Plan(format!("node {index} waits for node {late}")));
        }
        awaited.extend(&node.after);
    }
    Ok(awaited.into_iter().zip(0..).collect())
}

/// Names launches, at most [`NAMED`] of them.
fn together(names: &[String]) -> String {
    let named: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    match names.len() {
        0 => "run the operations".to_owned(),
        count if count <= NAMED => format!("launch {}", named.join(", ")),
        count => format!("launch {} and {} others", named.join(", "), count - NAMED),
    }
}

/// Bytes from the first to the last of rows; `None` if there is no such number.
fn rows(width: u64, height: u64, pitch: u64) -> Option<u64> {
    if width == 0 || height == 0 {
        return Some(0);
    }
    (height - 1).checked_mul(pitch)?.checked_add(width)
}

/// Where `bytes` bytes of memory begin.
fn memory(
    plan: &LaunchPlan,
    memory: &Memory,
    bytes: Option<u64>,
    device: &dyn Device,
) -> Result<Target, Failure> {
    let (target, offset, held) = match memory {
        Memory::Block(address) => {
            let held = plan.blocks.get(address.block as usize).map(|block| block.bytes);
            (Target::Block(*address), address.offset, held.unwrap_or(0))
        }
        Memory::Symbol { module, name, offset } => {
            let (at, held) = device.symbol(*module, name)?;
            (Target::Fixed(at.saturating_add(*offset)), *offset, held)
        }
    };
    let end = bytes.and_then(|bytes| offset.checked_add(bytes));
    if end.is_none_or(|end| end > held) {
        return Err(Failure::Plan("an operation goes beyond its memory".to_owned()));
    }
    Ok(target)
}

/// An offset of `bytes` bytes within an argument.
fn inside(offset: u32, bytes: usize, length: usize) -> Result<usize, Failure> {
    let offset = offset as usize;
    let end = offset.checked_add(bytes).filter(|end| *end <= length);
    end.map(|_| offset)
        .ok_or_else(|| Failure::Plan("an address lies outside its argument".to_owned()))
}

fn size(value: u64) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| Failure::Plan(format!("{value} is too large")))
}
