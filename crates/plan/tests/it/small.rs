//! A small candidate, `y = scale(x) * weight`, for tests that change one thing of it.

use warpwright_plan::{
    Address, Argument, Convolution, Copy2d, DnnEpilogue, DnnFilter, DnnTensor, Fill, Gemm,
    GemmScalar, GemmType, Gemv, Launch, LtMatrix, Matmul, Memory, Node, Op, Output, RecordedOp,
    Recording, Relocation, TensorMap, Upload,
};

use crate::model::{Kind, Piece, World};

pub(crate) const WEIGHT: u32 = 0;
pub(crate) const TABLE: u32 = 1;
pub(crate) const INPUT: u32 = 2;
pub(crate) const SCRATCH: u32 = 3;
pub(crate) const RESULT: u32 = 4;

/// Bytes of each block.
pub(crate) const BYTES: u64 = 8192;

pub(crate) fn address(block: u32, offset: u64) -> Address {
    Address { block, offset }
}

pub(crate) fn memory(block: u32, offset: u64) -> Memory {
    Memory::Block(address(block, offset))
}

pub(crate) fn on_stream(stream: u32, after: &[u32], op: Op) -> Node {
    Node { stream, after: after.to_vec(), op }
}

pub(crate) fn node(op: Op) -> Node {
    on_stream(0, &[], op)
}

pub(crate) fn plain(bytes: &[u8]) -> Argument {
    Argument { bytes: bytes.to_vec(), relocations: Vec::new(), tensor_maps: Vec::new() }
}

/// Bytes with pointers at these offsets.
pub(crate) fn pointers(mut bytes: Vec<u8>, at: &[(u32, Address)]) -> Argument {
    for (at, _) in at {
        bytes[*at as usize..*at as usize + 8].fill(0);
    }
    let relocations = at.iter().map(|(at, to)| Relocation { at: *at, to: *to }).collect();
    Argument { bytes, relocations, tensor_maps: Vec::new() }
}

pub(crate) fn launch(kernel: u32, args: Vec<Argument>) -> Launch {
    Launch {
        kernel,
        grid: [4, 1, 1],
        block: [128, 1, 1],
        shared: 0,
        cluster: None,
        cooperative: false,
        programmatic: false,
        args,
    }
}

pub(crate) fn scale(to: Address, from: Address) -> Op {
    let pointer = |to| pointers(vec![0; 8], &[(0, to)]);
    let args = vec![pointer(to), pointer(from), plain(&[7, 0, 0, 0]), plain(&[0, 0, 0x80, 0x3f])];
    Op::Launch(launch(0, args))
}

pub(crate) fn gather(to: Address, from: Address) -> Op {
    let mut pair = vec![0; 24];
    pair[8] = 3;
    let args = vec![pointers(pair, &[(0, to), (16, from)]), plain(&[9, 0, 0, 0])];
    Op::Launch(launch(1, args))
}

pub(crate) fn mapped(map: u32, to: Address) -> Op {
    let mut argument = plain(&[0; 128]);
    argument.tensor_maps.push((0, map));
    Op::Launch(launch(2, vec![argument, plain(&[1, 0, 0, 0]), pointers(vec![0; 8], &[(0, to)])]))
}

pub(crate) fn fill(to: Memory) -> Fill {
    Fill { to, value: 0x3f80_0000, element: 4, width: 16, height: 4, pitch: 256 }
}

pub(crate) fn copy(to: Memory, from: Memory) -> Copy2d {
    Copy2d { to, from, width: 64, height: 4, to_pitch: 128, from_pitch: 64 }
}

pub(crate) fn upload(to: Memory, pointer: Option<Address>) -> Upload {
    let relocations = pointer.map(|to| Relocation { at: 8, to }).into_iter().collect();
    let mut bytes = vec![5; 24];
    if pointer.is_some() {
        bytes[8..16].fill(0);
    }
    Upload { to, bytes, relocations }
}

pub(crate) fn gemm(operands: [Address; 3]) -> Gemm {
    Gemm {
        transpose: [1, 0],
        sizes: [16, 8, 4],
        operands,
        types: [GemmType(0); 3],
        leading: [4, 4, 16],
        strides: [64, 32, 128],
        batch: 2,
        alpha: GemmScalar::F32(0x3f80_0000),
        beta: GemmScalar::F32(0),
        compute: 68,
        math: 0,
        algorithm: -1,
        pointers: false,
    }
}

/// Two transposed matrices of 5 x 4, with vectors of 5 that make 4 numbers, two apart.
pub(crate) fn gemv(operands: [Address; 3]) -> Gemv {
    Gemv {
        transpose: 1,
        sizes: [5, 4],
        operands,
        dtype: 0,
        leading: 6,
        steps: [1, 2],
        strides: [24, 5, 8],
        batch: 2,
        alpha: GemmScalar::F32(0x3f80_0000),
        beta: GemmScalar::F32(0),
        math: 0,
    }
}

/// Two transposed matrices of 4 x 6 times such of 4 x 5 in rows, with or without a bias of 6.
pub(crate) fn matmul(at: [Address; 4], bias: Option<Address>) -> Matmul {
    let [a, b, c, d] = at;
    let matrix = |at, sizes, leading, stride| LtMatrix {
        at,
        dtype: 0,
        sizes,
        leading,
        row_major: false,
        batch: 2,
        stride,
    };
    Matmul {
        transpose: [1, 0],
        matrices: [
            matrix(a, [4, 6], 4, 24),
            LtMatrix { row_major: true, ..matrix(b, [4, 5], 8, 32) },
            matrix(c, [6, 5], 6, 30),
            matrix(d, [6, 5], 8, 40),
        ],
        alpha: GemmScalar::F32(0x3f80_0000),
        beta: GemmScalar::F32(0),
        compute: 68,
        epilogue: if bias.is_some() { 36 } else { 1 },
        bias,
    }
}

/// Two images of 4 x 5 with 4 channels become two of 2 x 5 with 6, in two groups, channels last.
pub(crate) fn convolution([source, filter, result, bias, residual]: [Address; 5]) -> Convolution {
    let tensor = |at, dims: [u32; 4], strides: [u32; 4]| DnnTensor {
        at,
        dtype: 0,
        dims: dims.to_vec(),
        strides: strides.to_vec(),
    };
    Convolution {
        transposed: false,
        source: tensor(source, [2, 4, 4, 5], [80, 20, 5, 1]),
        filter: DnnFilter { at: filter, dtype: 0, format: 0, dims: vec![6, 2, 3, 3] },
        result: tensor(result, [2, 6, 2, 5], [60, 1, 30, 6]),
        padding: vec![1, 2],
        steps: vec![2, 1],
        dilation: vec![1, 2],
        groups: 2,
        mode: 1,
        compute: 0,
        math: 3,
        alpha: GemmScalar::F32(0x3f80_0000),
        beta: GemmScalar::F32(0x3f80_0000),
        algorithm: None,
        epilogue: Some(DnnEpilogue {
            bias: tensor(bias, [1, 6, 1, 1], [6, 1, 1, 1]),
            residual: Some(residual),
            activation: 1,
        }),
    }
}

pub(crate) fn map(address: Address) -> TensorMap {
    TensorMap {
        dtype: 7,
        address,
        dims: vec![16, 8],
        strides: vec![128],
        box_dims: vec![16, 4],
        element_strides: vec![1, 1],
        interleave: 0,
        swizzle: 0,
        l2_promotion: 2,
        oob_fill: 0,
    }
}

pub(crate) fn output(block: u32) -> Output {
    Output {
        at: address(block, 0),
        shape: vec![16, 8],
        strides: vec![8, 1],
        dtype: "float32".into(),
    }
}

/// The candidate.
pub(crate) fn world() -> World {
    let bytes = |seed: u8| (0..BYTES).map(|i| (i as u8).wrapping_mul(seed)).collect::<Vec<u8>>();
    let kinds = [
        Kind::Weight(bytes(3)),
        Kind::Table(bytes(5)),
        Kind::Input(0),
        Kind::Call { born: 0, freed: Some(2) },
        Kind::Call { born: 1, freed: None },
    ];
    World {
        pieces: kinds.map(|kind| Piece { bytes: BYTES, kind }).to_vec(),
        maps: Vec::new(),
        prepare: Vec::new(),
        forward: vec![
            node(scale(address(SCRATCH, 0), address(INPUT, 0))),
            node(gather(address(RESULT, 0), address(SCRATCH, 64))),
            node(scale(address(RESULT, 512), address(TABLE, 0))),
            node(Op::Gemm(Box::new(gemm([
                address(WEIGHT, 0),
                address(INPUT, 1024),
                address(RESULT, 1024),
            ])))),
        ],
        joined: Vec::new(),
        outputs: vec![output(RESULT)],
    }
}

/// Two recordings of a candidate.
pub(crate) fn recordings(world: &World) -> [Recording; 2] {
    [world.record(1), world.record(2)]
}

/// Arguments of a recorded launch.
pub(crate) fn args(recording: &mut Recording, node: usize) -> &mut Vec<String> {
    let RecordedOp::Launch { args, .. } = &mut recording.nodes[node].op else { unreachable!() };
    args
}
