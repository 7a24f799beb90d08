//! Plans of the kernels in `fixtures/`, which the tests replay.

use std::path::{Path, PathBuf};

use warpwright_plan::image::Image;
use warpwright_plan::{
    Address, Argument, Block, Convolution, Copy2d, Fill, Gemm, GemmScalar, GemmType, Gemv, Kernel,
    Launch, LaunchPlan, LtMatrix, Matmul, Memory, Module, Node, Op, Output, Outputs, PLAN_VERSION,
    Producer, Relocation, Role, TensorMap, Upload,
};

use crate::convolutions;

/// Bytes of a block that one float per thread of a launch of 1024 fills.
pub(crate) const BLOCK: u64 = 4096;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures")
}

/// A plan over `blocks`, of which the first made by the call is its result.
#[expect(clippy::unwrap_used, reason = "a test fails here")]
fn plan(kernels: &[&str], blocks: &[Block], forward: Vec<Node>) -> LaunchPlan {
    let bytes = fs_err::read(folder().join("kernels.fatbin")).unwrap();
    let image = Image::read(&bytes).unwrap();
    let kernel = |name: &&str| Kernel {
        module: 0,
        name: (*name).to_owned(),
        params: image.kernels[*name].param_bytes(),
        max_dynamic_shared: None,
        shared_carveout: None,
        nonportable_cluster: false,
    };
    let result = blocks.iter().position(|block| matches!(block.role, Role::Call { .. })).unwrap();
    LaunchPlan {
        version: PLAN_VERSION,
        producer: Producer { kind: "test".to_owned(), compiler: "nvcc".to_owned() },
        modules: vec![Module {
            hash: blake3::hash(&bytes).to_hex().to_string(),
            file: "kernels.fatbin".to_owned(),
            offset: 0,
            bytes: bytes.len() as u64,
        }],
        kernels: kernels.iter().map(kernel).collect(),
        tensor_maps: Vec::new(),
        constants: Vec::new(),
        blocks: blocks.to_vec(),
        prepare: Vec::new(),
        forward,
        outputs: Outputs {
            tree: serde_json::json!({"tensor": 0}),
            tensors: vec![Output {
                at: at(result as u32, 0),
                shape: vec![1],
                strides: vec![1],
                dtype: "float32".to_owned(),
            }],
        },
    }
}

fn block(role: Role) -> Block {
    Block { bytes: BLOCK, role }
}

/// Memory that the call makes.
fn result() -> Block {
    block(Role::Call { born: 0, freed: None })
}

pub(crate) fn at(block: u32, offset: u64) -> Address {
    Address { block, offset }
}

fn memory(block: u32, offset: u64) -> Memory {
    Memory::Block(at(block, offset))
}

fn table(offset: u64) -> Memory {
    Memory::Symbol { module: 0, name: "table".to_owned(), offset }
}

fn pointer(to: Address) -> Argument {
    let relocations = vec![Relocation { at: 0, to }];
    Argument { bytes: vec![0; 8], relocations, tensor_maps: Vec::new() }
}

fn number(bytes: [u8; 4]) -> Argument {
    Argument { bytes: bytes.to_vec(), relocations: Vec::new(), tensor_maps: Vec::new() }
}

fn launch(kernel: u32, blocks: u32, threads: u32, args: Vec<Argument>) -> Launch {
    Launch {
        kernel,
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared: 0,
        cluster: None,
        cooperative: false,
        programmatic: false,
        args,
    }
}

fn node(op: Op) -> Node {
    Node { stream: 0, after: Vec::new(), op }
}

fn run(launch: Launch) -> Node {
    node(Op::Launch(launch))
}

/// Kernel 0: `y[i] = x[i] * factor`, of 1024 elements.
fn scale(x: Address, y: Address, factor: f32) -> Launch {
    let count = number(1024i32.to_le_bytes());
    launch(0, 4, 256, vec![pointer(x), pointer(y), number(factor.to_le_bytes()), count])
}

/// An input times 2 in memory of the call, and that times 1.5 in the result. Blocks per call: input, result,
/// memory between. The kept block is not used.
pub(crate) fn elementwise() -> LaunchPlan {
    let blocks = [block(Role::Input(0)), result(), result(), block(Role::Kept)];
    let forward = vec![run(scale(at(0, 0), at(2, 0), 2.0)), run(scale(at(2, 0), at(1, 0), 1.5))];
    plan(&["scale"], &blocks, forward)
}

/// A kernel that writes where nothing is mapped.
pub(crate) fn faulting() -> LaunchPlan {
    plan(&["fault"], &[result()], vec![run(launch(0, 1, 1, vec![pointer(at(0, 0))]))])
}

/// A kernel that counts its calls in a variable of the device, with so much dynamic shared memory.
pub(crate) fn counting(shared: u32) -> LaunchPlan {
    let count = Launch { shared, ..launch(0, 1, 1, vec![pointer(at(0, 0))]) };
    let mut plan = plan(&["count"], &[result()], vec![run(count)]);
    plan.kernels[0].max_dynamic_shared = Some(shared);
    plan
}

/// A kernel that prints, and one that counts.
pub(crate) fn printing() -> LaunchPlan {
    let forward =
        vec![run(launch(1, 1, 1, Vec::new())), run(launch(0, 1, 1, vec![pointer(at(0, 0))]))];
    plan(&["count", "shout"], &[result()], forward)
}

/// A cooperative launch of so many blocks: each writes the sum of all numbers up to theirs, 1 KiB from the start of
/// the first block.
pub(crate) fn cooperative(blocks: u32) -> LaunchPlan {
    let args = vec![pointer(at(1, 0)), pointer(at(0, 1024))];
    let together = Launch { cooperative: true, ..launch(0, blocks, 32, args) };
    plan(&["together"], &[result(), result()], vec![run(together)])
}

/// Two clusters of four blocks, each of which writes the cluster's size times 16, plus its rank.
pub(crate) fn clusters() -> LaunchPlan {
    let args = vec![pointer(at(0, 0))];
    let clusters = Launch { cluster: Some([4, 1, 1]), ..launch(0, 8, 32, args) };
    plan(&["clusters"], &[result()], vec![run(clusters)])
}

/// The kept block becomes `(x + 1) * 2 + 3`. Every kernel reads what the one before wrote, in another stream; only the
/// call's end joins the last.
pub(crate) fn streams() -> LaunchPlan {
    let add = |x, y, term: f32| {
        let count = number(1024i32.to_le_bytes());
        launch(1, 1, 1024, vec![pointer(x), pointer(y), number(term.to_le_bytes()), count])
    };
    let steps: [(u32, Vec<u32>, Launch); 4] = [
        (1, vec![], add(at(0, 0), at(1, 0), 1.0)),
        (0, vec![0], scale(at(1, 0), at(2, 0), 2.0)),
        (2, vec![1], add(at(2, 0), at(1, 0), 3.0)),
        (1, vec![2], add(at(1, 0), at(0, 0), 0.0)),
    ];
    let forward = steps.map(|(stream, after, op)| Node { stream, after, ..run(op) });
    let blocks = [block(Role::Kept), result(), result()];
    plan(&["scale", "add_late"], &blocks, forward.to_vec())
}

/// A kernel that lets the next begin early, and one that does. They write when they began and ended, and began.
pub(crate) fn programmatic() -> LaunchPlan {
    let early = Launch { programmatic: true, ..launch(0, 1, 1, vec![pointer(at(0, 0))]) };
    let stamp = Launch { programmatic: true, ..launch(1, 1, 1, vec![pointer(at(0, 16))]) };
    plan(&["early", "stamp"], &[result()], vec![run(early), run(stamp)])
}

/// Copies a tile of 8 by 8 elements from column 8, row 16 of an input of 32 by 32.
pub(crate) fn tile() -> LaunchPlan {
    let map = Argument { bytes: vec![0; 128], relocations: Vec::new(), tensor_maps: vec![(0, 0)] };
    let tile = launch(0, 1, 64, vec![map, pointer(at(1, 0))]);
    let mut plan = plan(&["tile"], &[block(Role::Input(0)), result()], vec![run(tile)]);
    plan.tensor_maps = vec![TensorMap {
        dtype: 7, // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
        address: at(0, 0),
        dims: vec![32, 32],
        strides: vec![128],
        box_dims: vec![8, 8],
        element_strides: vec![1, 1],
        interleave: 0,
        swizzle: 0,
        l2_promotion: 0,
        oob_fill: 0,
    }];
    plan
}

/// `prepare` uploads four numbers into a variable, and copies 9 over the first two, from the kept block. Its kernels
/// halve that block in place, and count in another variable; the count becomes the block's first word. The call
/// writes the four numbers and, behind them, its own count.
pub(crate) fn variables() -> LaunchPlan {
    let values = [1.5f32, 2.5, 3.5, 4.5].iter().flat_map(|x| x.to_le_bytes()).collect();
    let upload = |to, bytes| node(Op::Upload(Upload { to, bytes, relocations: Vec::new() }));
    let look = launch(1, 1, 4, vec![pointer(at(1, 0))]);
    let count = |to| run(launch(2, 1, 1, vec![pointer(to)]));
    let kernels = ["scale", "look", "count"];
    let forward = vec![run(look), count(at(1, 16))];
    let mut plan = plan(&kernels, &[block(Role::Kept), result()], forward);
    plan.prepare = vec![
        upload(table(0), values),
        upload(memory(0, 64), 9.0f32.to_le_bytes().repeat(2)),
        node(Op::Copy(Copy2d {
            to: table(0),
            from: memory(0, 64),
            width: 8,
            height: 1,
            to_pitch: 0,
            from_pitch: 0,
        })),
        run(scale(at(0, 0), at(0, 0), 0.5)),
        count(at(0, 0)),
    ];
    plan
}

/// Fills, copies and an upload, with one row and with several.
pub(crate) fn transfers() -> LaunchPlan {
    let fill = |to, value, element, width, height, pitch| {
        node(Op::Fill(Fill { to, value, element, width, height, pitch }))
    };
    let copy = |to, from, height| {
        node(Op::Copy(Copy2d { to, from, width: 16, height, to_pitch: 64, from_pitch: 32 }))
    };
    let relocations = vec![Relocation { at: 8, to: at(1, 32) }];
    let bytes = [7u64.to_le_bytes(), [0; 8]].concat();
    let forward = vec![
        fill(memory(0, 0), 0xaabb_ccdd, 4, 4, 1, 0),
        fill(memory(0, 16), 0xaabb_ccdd, 2, 8, 1, 0),
        fill(memory(0, 32), 0xaabb_ccdd, 1, 16, 1, 0),
        fill(memory(0, 256), 0x1122_3344, 4, 1, 3, 16),
        fill(memory(0, 260), 0x1122_3344, 2, 1, 3, 16),
        fill(memory(0, 262), 0x1122_3344, 1, 1, 3, 16),
        copy(memory(1, 0), memory(0, 0), 1),
        copy(memory(1, 64), memory(0, 0), 2),
        node(Op::Upload(Upload { to: memory(1, 512), bytes, relocations })),
    ];
    plan(&[], &[result(), result()], forward)
}

/// Batches of products of row-major matrices, 4 by 8 (an input) times 8 by 2 (a weight), halved by cuBLAS, and doubled
/// by a kernel in another stream. As cuBLAS counts, all are transposed and change places.
pub(crate) fn product(batch: u32) -> LaunchPlan {
    let gemm = Gemm {
        transpose: [0, 0],
        sizes: [2, 4, 8],
        operands: [at(1, 0), at(0, 0), at(3, 0)],
        types: [GemmType(0); 3],
        leading: [2, 8, 2],
        strides: [16, 32, 8],
        batch,
        alpha: GemmScalar::F32(0.5f32.to_bits()),
        beta: GemmScalar::F32(0),
        compute: 68,
        math: 0,
        algorithm: -1,
        pointers: false,
    };
    let blocks = [block(Role::Input(0)), block(Role::Weight(0)), result(), result()];
    let forward = vec![
        Node { stream: 1, ..node(Op::Gemm(Box::new(gemm))) },
        Node { after: vec![0], ..run(scale(at(3, 0), at(2, 0), 2.0)) },
    ];
    plan(&["scale"], &blocks, forward)
}

/// Products of cuBLAS with vectors, and with arrays of addresses that the call uploads. Blocks: matrix (a weight, 4 by 8
/// as it is stored), two vectors of 8 (an input), results, addresses.
pub(crate) fn other_products() -> LaunchPlan {
    let vector = Gemv {
        transpose: 0,
        sizes: [4, 8],
        operands: [at(1, 0), at(0, 0), at(2, 0)],
        dtype: 0,
        leading: 4,
        steps: [1, 2],
        strides: [0, 8, 8],
        batch: 1,
        alpha: GemmScalar::F32(1f32.to_bits()),
        beta: GemmScalar::F32(0),
        math: 0,
    };
    let both = Gemv { batch: 2, operands: [at(1, 0), at(0, 0), at(2, 64)], ..vector.clone() };
    let alike = Gemm {
        transpose: [0, 0],
        sizes: [4, 1, 8],
        operands: [at(3, 0), at(3, 16), at(3, 32)],
        types: [GemmType(0); 3],
        leading: [4, 8, 4],
        strides: [0; 3],
        batch: 2,
        alpha: GemmScalar::F32(1f32.to_bits()),
        beta: GemmScalar::F32(0),
        compute: 68,
        math: 0,
        algorithm: -1,
        pointers: true,
    };
    let arrays = [at(1, 0), at(1, 0), at(0, 0), at(0, 32), at(2, 256), at(2, 272)];
    let relocations = (0u32..).step_by(8).zip(arrays).map(|(at, to)| Relocation { at, to });
    let upload =
        Upload { to: memory(3, 0), bytes: vec![0; 48], relocations: relocations.collect() };
    let forward = vec![
        node(Op::Gemv(Box::new(vector))),
        node(Op::Gemv(Box::new(both))),
        node(Op::Upload(upload)),
        node(Op::Gemm(Box::new(alike))),
    ];
    let blocks = [block(Role::Input(0)), block(Role::Weight(0)), result(), result()];
    plan(&[], &blocks, forward)
}

/// `relu(w^T x + bias)` by cuBLASLt; `w` has 6 columns of 8 (a weight), `x` 4 columns of 8, each 12 numbers before the
/// next (an input). Blocks: input, weight, bias, result.
pub(crate) fn linear() -> LaunchPlan {
    let matrix = |block, sizes, leading| LtMatrix {
        at: at(block, 0),
        dtype: 0,
        sizes,
        leading,
        row_major: false,
        batch: 1,
        stride: 0,
    };
    let result_matrix = matrix(3, [6, 4], 6);
    let matmul = Matmul {
        transpose: [1, 0],
        matrices: [
            matrix(1, [8, 6], 8),
            matrix(0, [8, 4], 12),
            result_matrix.clone(),
            result_matrix,
        ],
        alpha: GemmScalar::F32(1f32.to_bits()),
        beta: GemmScalar::F32(0),
        compute: 68,
        epilogue: 6,
        bias: Some(at(2, 0)),
    };
    let blocks = [block(Role::Input(0)), block(Role::Weight(0)), block(Role::Weight(1)), result()];
    plan(&[], &blocks, vec![node(Op::Matmul(Box::new(matmul)))])
}

/// One convolution. Blocks: source, filter, bias, residual, result.
pub(crate) fn convolves(convolution: Convolution) -> LaunchPlan {
    let role = [Role::Input(0), Role::Weight(0), Role::Weight(1), Role::Kept];
    let blocks = [role.map(block).as_slice(), &[result()]].concat();
    plan(&[], &blocks, vec![node(Op::Convolution(Box::new(convolution)))])
}

#[test]
fn plans_of_these_tests_pass_the_check() {
    let bytes = fs_err::read(folder().join("kernels.fatbin")).unwrap();
    let image = [Image::read(&bytes).unwrap()];
    assert_eq!(image[0].needs.iter().collect::<Vec<_>>(), ["vprintf"]);
    let plans = [
        elementwise(),
        faulting(),
        counting(0),
        counting(64 << 10),
        printing(),
        cooperative(16),
        cooperative(100_000),
        clusters(),
        streams(),
        programmatic(),
        tile(),
        variables(),
        transfers(),
        product(1),
        product(3),
        other_products(),
        linear(),
    ];
    let convolved = convolutions::all().into_iter().map(convolves);
    let plans = plans.into_iter().chain(convolved);
    for plan in plans {
        assert_eq!(plan.check(&image), Ok(()), "{plan:?}");
    }
    let mut plan = transfers();
    plan.version += 1;
    assert!(plan.check(&image).is_err(), "the control");
}
