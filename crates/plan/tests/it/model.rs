//! A described candidate: what its plan must be, and what recordings of it look like at any addresses.
//!
//! The description knows no addresses, so it is an oracle for the merger, which must get rid of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use warpwright_plan::limits::MAX_ZERO_BYTES;
use warpwright_plan::{
    Address, Block, Code, Constant, Content, Fill, Launch, LaunchPlan, LibraryCall, Memory, Merged,
    Node, NotRecordable, Op, Output, Outputs, PLAN_VERSION, Phase, Producer, RECORDING_VERSION,
    RecordedBlock, RecordedKernel, RecordedModule, RecordedNode, RecordedOutput, RecordedOutputs,
    RecordedTensorMap, RecordedWeight, Recording, Role, Sources, TensorMap, merge,
};

use crate::fixture::{FILE, KERNELS, SHIFT, fatbins, kernel, libraries, module};
use crate::recorded::{Random, recorded_op};

/// What a block is to the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tensor of the `state_dict` with these contents.
    Weight(Vec<u8>),
    /// A tensor that the constructor was called with.
    Init(Vec<u8>),
    /// A table that the host computed.
    Table(Vec<u8>),
    /// Memory of the constructor that is all zero: a constant, or filled if it is long.
    Zeros,
    /// Allocated by `prepare` when it was closed to the host.
    Prepared,
    /// Allocated by the first call and used by every later one.
    Workspace,
    /// Input of this position.
    Input(u32),
    /// Made by each call.
    Call { born: u32, freed: Option<u32> },
}

/// A block of the candidate.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
}

/// A candidate. Blocks in nodes and results are indices of pieces, which are in the order of [`Kind`].
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) maps: Vec<TensorMap>,
    pub(crate) prepare: Vec<Node>,
    pub(crate) forward: Vec<Node>,
    pub(crate) joined: Vec<u32>,
    pub(crate) outputs: Vec<Output>,
}

impl World {
    /// Indices into the recording's blocks: of a piece in the first call, and in the second.
    fn recorded(&self) -> (Vec<RecordedBlock>, Vec<[u32; 2]>) {
        let mut blocks = Vec::new();
        let mut places = vec![[0; 2]; self.pieces.len()];
        let mut add = |bytes: u64, phase: Phase, open: bool, lifetime: (u32, Option<u32>)| {
            let (born, freed) = lifetime;
            let freed = freed.map(|at| (phase, at));
            blocks.push(RecordedBlock { address: 0, bytes, phase, open, born, freed });
            // Something that is not used follows every block.
            blocks.push(RecordedBlock { address: 0, bytes: 512, phase, open, born, freed: None });
            blocks.len() as u32 - 2
        };
        for (round, phases) in
            [[Phase::Init, Phase::First], [Phase::Inputs, Phase::Second]].into_iter().enumerate()
        {
            // The first round also makes what lasts; inputs of a call come before the call.
            for (piece, place) in self.pieces.iter().zip(&mut places) {
                let lasting = |phase, open| (phase, open, (0, None));
                let (phase, open, lifetime) = match &piece.kind {
                    Kind::Weight(_) | Kind::Init(_) | Kind::Table(_) | Kind::Zeros => {
                        lasting(Phase::Init, true)
                    }
                    Kind::Prepared => lasting(Phase::Prepare, false),
                    Kind::Workspace => lasting(Phase::First, false),
                    Kind::Input(_) => lasting(Phase::Inputs, false),
                    Kind::Call { born, freed } => (phases[1], false, (*born, *freed)),
                };
                if round == 0 || matches!(piece.kind, Kind::Input(_) | Kind::Call { .. }) {
                    let block = add(piece.bytes, phase, open, lifetime);
                    place[round] = block;
                    if round == 0 {
                        place[1] = block;
                    }
                }
            }
        }
        (blocks, places)
    }

    /// A recording whose addresses `seed` decides.
    pub(crate) fn record(&self, seed: u64) -> Recording {
        let (mut blocks, places) = self.recorded();
        let mut random = Random(seed);
        let mut next = 0x1000_0000_0000 + random.below(1 << 30) * 512;
        for block in &mut blocks {
            block.address = next;
            next = (next + block.bytes).next_multiple_of(512) + 512 * (10 + random.below(1 << 16));
        }
        let at = |call: usize, address: Address| {
            let block = places[address.block as usize][call] as usize;
            blocks[block].address + address.offset
        };
        // Each call encodes its tensor maps.
        let maps = self.maps.len() as u32;
        let encode = |call: usize| {
            let encode = move |map: &TensorMap| RecordedTensorMap {
                dtype: map.dtype,
                address: at(call, map.address),
                dims: map.dims.clone(),
                strides: map.strides.clone(),
                box_dims: map.box_dims.clone(),
                element_strides: map.element_strides.clone(),
                interleave: map.interleave,
                swizzle: map.swizzle,
                l2_promotion: map.l2_promotion,
                oob_fill: map.oob_fill,
            };
            self.maps.iter().map(encode)
        };
        let node = |phase: Phase, call: usize, node: &Node| RecordedNode {
            phase,
            stream: node.stream,
            after: node.after.clone(),
            op: recorded_op(&node.op, &|address| at(call, address), call as u32 * maps),
        };
        let calls = [
            (Phase::Prepare, 1, &self.prepare),
            (Phase::First, 0, &self.forward),
            (Phase::Second, 1, &self.forward),
        ];
        let nodes = calls
            .iter()
            .flat_map(|(phase, call, nodes)| nodes.iter().map(|n| node(*phase, *call, n)));
        let of = |call: usize, wanted: &dyn Fn(&Kind) -> bool| -> Vec<u64> {
            let pieces = self.pieces.iter().zip(0..).filter(|(piece, _)| wanted(&piece.kind));
            pieces.map(|(_, block)| at(call, Address { block, offset: 0 })).collect()
        };
        let input = |kind: &Kind| matches!(kind, Kind::Input(_));
        let output = |output: &Output| RecordedOutput {
            address: at(1, output.at),
            shape: output.shape.clone(),
            strides: output.strides.clone(),
            dtype: output.dtype.clone(),
        };
        Recording {
            version: RECORDING_VERSION,
            refused: None,
            modules: vec![RecordedModule {
                library: FILE.to_owned(),
                address: fatbins()[0].start as u64 + SHIFT,
            }],
            kernels: KERNELS
                .iter()
                .map(|(name, _)| RecordedKernel {
                    module: 0,
                    name: (*name).to_owned(),
                    max_dynamic_shared: None,
                    shared_carveout: None,
                    nonportable_cluster: false,
                })
                .collect(),
            tensor_maps: encode(0).chain(encode(1)).collect(),
            nodes: nodes.collect(),
            weights: of(1, &|kind| matches!(kind, Kind::Weight(_)))
                .into_iter()
                .zip(0..)
                .map(|(address, index)| RecordedWeight { name: weight(index), address })
                .collect(),
            init: of(1, &|kind| matches!(kind, Kind::Init(_))),
            inputs: [of(0, &input), of(1, &input)],
            outputs: RecordedOutputs {
                tree: self.tree(),
                tensors: self.outputs.iter().map(output).collect(),
            },
            joined: self.joined.clone(),
            zeroed: Vec::new(),
            blocks: blocks.clone(),
        }
    }

    fn tree(&self) -> serde_json::Value {
        let tensors: Vec<_> =
            (0..self.outputs.len()).map(|index| json!({"tensor": index})).collect();
        json!({"tuple": tensors})
    }

    /// What the judge knows, and merges with.
    pub(crate) fn merge(&self, recordings: [&Recording; 2]) -> Result<Merged, NotRecordable> {
        let contents = self.contents();
        let read = |block: u32| contents.get(&block).cloned();
        self.merge_with(recordings, [&read, &read])
    }

    /// As [`Self::merge`], with other contents of open blocks.
    pub(crate) fn merge_with(
        &self,
        recordings: [&Recording; 2],
        contents: [&dyn Fn(u32) -> Option<Vec<u8>>; 2],
    ) -> Result<Merged, NotRecordable> {
        self.merge_from(&libraries(), recordings, contents)
    }

    /// As [`Self::merge_with`], with other libraries.
    pub(crate) fn merge_from(
        &self,
        libraries: &BTreeMap<String, Vec<u8>>,
        recordings: [&Recording; 2],
        contents: [&dyn Fn(u32) -> Option<Vec<u8>>; 2],
    ) -> Result<Merged, NotRecordable> {
        let kinds = || self.pieces.iter().map(|piece| &piece.kind);
        let weights: Vec<_> = kinds()
            .filter_map(
                |kind| if let Kind::Weight(bytes) = kind { Some(content(bytes)) } else { None },
            )
            .zip(0..)
            .map(|(content, index)| (weight(index), content))
            .collect();
        let init: Vec<_> = kinds()
            .filter_map(
                |kind| if let Kind::Init(bytes) = kind { Some(content(bytes)) } else { None },
            )
            .collect();
        let input_bytes: Vec<u64> = self
            .pieces
            .iter()
            .filter(|piece| matches!(piece.kind, Kind::Input(_)))
            .map(|piece| piece.bytes)
            .collect();
        let sources = Sources {
            code: Code::Gpu,
            libraries,
            compiler: "nvcc 13.0",
            weights: &weights,
            init: &init,
            input_bytes: &input_bytes,
            contents,
        };
        merge(recordings, &sources)
    }

    /// Contents of open blocks, by their number in a recording.
    pub(crate) fn contents(&self) -> BTreeMap<u32, Vec<u8>> {
        let (_, places) = self.recorded();
        let contents = |(piece, place): (&Piece, &[u32; 2])| match &piece.kind {
            Kind::Weight(bytes) | Kind::Init(bytes) | Kind::Table(bytes) => {
                Some((place[1], bytes.clone()))
            }
            Kind::Zeros => Some((place[1], vec![0; piece.bytes as usize])),
            _ => None,
        };
        self.pieces.iter().zip(&places).filter_map(contents).collect()
    }

    /// Number in a recording of a piece of the second call.
    pub(crate) fn block(&self, piece: usize) -> usize {
        self.recorded().1[piece][1] as usize
    }

    /// The plan that recordings of this candidate must become, and its constants.
    pub(crate) fn plan(&self) -> (LaunchPlan, Vec<Vec<u8>>) {
        let nodes = || self.prepare.iter().chain(&self.forward);
        let mut used = BTreeSet::new();
        let (mut kernels, mut maps) = (Vec::new(), Vec::new());
        for node in nodes() {
            let note = |all: &mut Vec<u32>, index: u32| {
                if !all.contains(&index) {
                    all.push(index);
                }
            };
            if let Op::Launch(launch) = &node.op {
                note(&mut kernels, launch.kernel);
                for (_, map) in launch.args.iter().flat_map(|arg| &arg.tensor_maps) {
                    note(&mut maps, *map);
                    used.insert(self.maps[*map as usize].address.block);
                }
            }
            used.extend(blocks_of(&node.op));
        }
        used.extend(self.outputs.iter().map(|output| output.at.block));
        let place = |old: u32| used.iter().position(|block| *block == old).unwrap() as u32;
        let mut constants: Vec<Vec<u8>> = Vec::new();
        let (mut weights, mut inits) = (0.., 0..);
        let (mut blocks, mut zeros) = (Vec::new(), Vec::new());
        for (piece, index) in self.pieces.iter().zip(0..) {
            let filled = piece.kind == Kind::Zeros && piece.bytes > MAX_ZERO_BYTES;
            let role = match &piece.kind {
                Kind::Weight(_) => Role::Weight(weights.next().unwrap()),
                Kind::Init(_) => Role::Init(inits.next().unwrap()),
                Kind::Input(position) => Role::Input(*position),
                Kind::Call { born, freed } => Role::Call { born: *born, freed: *freed },
                Kind::Table(_) => Role::Constant(constants.len() as u32),
                Kind::Zeros if !filled => Role::Constant(constants.len() as u32),
                Kind::Zeros | Kind::Prepared | Kind::Workspace => Role::Kept,
            };
            if !used.contains(&index) {
                continue;
            }
            match &piece.kind {
                Kind::Table(bytes) => constants.push(bytes.clone()),
                Kind::Zeros if !filled => constants.push(vec![0; piece.bytes as usize]),
                _ => {}
            }
            if filled {
                let to = Memory::Block(Address { block: blocks.len() as u32, offset: 0 });
                let fill =
                    Fill { to, value: 0, element: 4, width: piece.bytes / 4, height: 1, pitch: 0 };
                zeros.push(Node { stream: 0, after: Vec::new(), op: Op::Fill(fill) });
            }
            blocks.push(Block { bytes: piece.bytes, role });
        }
        let renumber = |node: &Node, shift: usize| {
            let mut node = node.clone();
            node.after.iter_mut().for_each(|after| *after += shift as u32);
            if let Op::Launch(launch) = &mut node.op {
                launch.kernel = kernels.iter().position(|k| *k == launch.kernel).unwrap() as u32;
                for (_, map) in launch.args.iter_mut().flat_map(|arg| &mut arg.tensor_maps) {
                    *map = maps.iter().position(|m| m == map).unwrap() as u32;
                }
            }
            each_block(&mut node.op, &mut |block| *block = place(*block));
            node
        };
        let mut prepare: Vec<Node> =
            self.prepare.iter().map(|node| renumber(node, zeros.len())).collect();
        for stream in 1..3 {
            let first = prepare.iter_mut().find(|node| node.stream == stream);
            if let (Some(first), false) = (first, zeros.is_empty()) {
                first.after.push(zeros.len() as u32 - 1);
            }
        }
        let map = |map: &u32| {
            let mut map = self.maps[*map as usize].clone();
            map.address.block = place(map.address.block);
            map
        };
        let output = |output: &Output| {
            let mut output = output.clone();
            output.at.block = place(output.at.block);
            output
        };
        let constant = |bytes: &Vec<u8>| Constant {
            hash: blake3::hash(bytes).to_hex().to_string(),
            bytes: bytes.len() as u64,
        };
        let symbols = nodes().any(|node| names_symbol(&node.op));
        let plan = LaunchPlan {
            version: PLAN_VERSION,
            producer: Producer { kind: "cuda-runtime".into(), compiler: "nvcc 13.0".into() },
            modules: if kernels.is_empty() && !symbols { Vec::new() } else { vec![module()] },
            kernels: kernels.iter().map(|index| kernel(*index as usize)).collect(),
            tensor_maps: maps.iter().map(map).collect(),
            constants: constants.iter().map(constant).collect(),
            prepare: zeros.into_iter().chain(prepare).collect(),
            forward: self.forward.iter().map(|node| renumber(node, 0)).collect(),
            outputs: Outputs {
                tree: self.tree(),
                tensors: self.outputs.iter().map(output).collect(),
            },
            blocks,
        };
        (plan, constants)
    }
}

fn weight(index: u32) -> String {
    format!("layers.{index}.weight")
}

fn content(bytes: &[u8]) -> Content {
    Content { bytes: bytes.len() as u64, hash: blake3::hash(bytes) }
}

fn names_symbol(op: &Op) -> bool {
    let symbol = |memory: &Memory| matches!(memory, Memory::Symbol { .. });
    match op {
        Op::Fill(fill) => symbol(&fill.to),
        Op::Copy(copy) => symbol(&copy.to) || symbol(&copy.from),
        Op::Upload(upload) => symbol(&upload.to),
        Op::Launch(_) | Op::Gemm(_) | Op::Gemv(_) | Op::Matmul(_) | Op::Convolution(_) => false,
    }
}

fn blocks_of(op: &Op) -> Vec<u32> {
    let mut found = Vec::new();
    each_block(&mut op.clone(), &mut |block| found.push(*block));
    found
}

fn each_block(op: &mut Op, visit: &mut dyn FnMut(&mut u32)) {
    let memory = |memory: &mut Memory, visit: &mut dyn FnMut(&mut u32)| {
        if let Memory::Block(address) = memory {
            visit(&mut address.block);
        }
    };
    match op {
        Op::Launch(Launch { args, .. }) => {
            args.iter_mut()
                .flat_map(|arg| &mut arg.relocations)
                .for_each(|r| visit(&mut r.to.block));
        }
        Op::Fill(fill) => memory(&mut fill.to, visit),
        Op::Copy(copy) => {
            memory(&mut copy.to, visit);
            memory(&mut copy.from, visit);
        }
        Op::Upload(upload) => {
            memory(&mut upload.to, visit);
            upload.relocations.iter_mut().for_each(|relocation| visit(&mut relocation.to.block));
        }
        Op::Gemm(gemm) => gemm.operands.iter_mut().for_each(|at| visit(&mut at.block)),
        Op::Gemv(gemv) => gemv.operands.iter_mut().for_each(|at| visit(&mut at.block)),
        Op::Matmul(matmul) => {
            matmul.matrices.iter_mut().for_each(|matrix| visit(&mut matrix.at.block));
            matmul.bias.iter_mut().for_each(|at| visit(&mut at.block));
        }
        Op::Convolution(convolution) => {
            let Ok(changed) = convolution.try_map::<_, std::convert::Infallible>(&mut |at| {
                let mut at = *at;
                visit(&mut at.block);
                Ok(at)
            });
            **convolution = changed;
        }
    }
}
