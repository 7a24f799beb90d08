//! Plans that a replayer does not take: each case changes one field of one that it takes.

use warpwright_plan::image::Image;
use warpwright_plan::{
    Address, Gemm, GemmScalar, GemmType, Invalid, Launch, LaunchPlan, Memory, Op, Part, Relocation,
    Role, TensorMap,
};

use crate::fixture::{LIBRARY, fatbins};
use crate::small::{INPUT, RESULT, address, copy, fill, map, mapped, memory, node, upload, world};

/// A plan with an operation of each kind, in this order.
fn plan() -> LaunchPlan {
    let mut world = world();
    world.maps.push(map(address(INPUT, 0)));
    world.forward.push(node(mapped(0, address(RESULT, 0))));
    world.forward.push(node(Op::Fill(fill(memory(RESULT, 0)))));
    world.forward.push(node(Op::Copy(copy(memory(RESULT, 0), memory(INPUT, 0)))));
    world.forward.push(node(Op::Upload(upload(memory(RESULT, 0), Some(address(INPUT, 64))))));
    world.plan().0
}

const LAUNCH: usize = 0;
const GEMM: usize = 3;
const MAPPED: usize = 4;
const FILL: usize = 5;
const COPY: usize = 6;
const UPLOAD: usize = 7;

fn check(plan: &LaunchPlan) -> Result<(), Invalid> {
    let image = Image::read(&LIBRARY[fatbins()[0].clone()]).unwrap();
    plan.check(&[image])
}

type Change = fn(&mut LaunchPlan);

/// Checks that each change breaks this rule of this part.
fn break_rules(part: Part, cases: &[(&'static str, Change)]) {
    assert_eq!(check(&plan()), Ok(()));
    for (rule, change) in cases {
        let mut plan = plan();
        change(&mut plan);
        assert_eq!(check(&plan), Err(Invalid::Part { part, rule }));
    }
}

fn launch(plan: &mut LaunchPlan) -> &mut Launch {
    let Op::Launch(launch) = &mut plan.forward[LAUNCH].op else { unreachable!() };
    launch
}

fn gemm(plan: &mut LaunchPlan) -> &mut Gemm {
    let Op::Gemm(gemm) = &mut plan.forward[GEMM].op else { unreachable!() };
    gemm
}

fn tensor_map(plan: &mut LaunchPlan) -> &mut TensorMap {
    &mut plan.tensor_maps[0]
}

#[test]
fn other_versions_and_missing_images_are_refused() {
    let mut other = plan();
    other.version = 2;
    assert_eq!(check(&other), Err(Invalid::Version { found: 2 }));
    assert!(plan().check(&[]).is_err());
}

#[test]
fn modules_outside_the_artifact_are_refused() {
    let outside = "a file lies outside the artifact";
    break_rules(
        Part::Modules,
        &[
            (outside, |plan| plan.modules[0].file = "../libkernels.so".into()),
            (outside, |plan| plan.modules[0].file = "/libkernels.so".into()),
            (outside, |plan| plan.modules[0].file = "inline//x.so".into()),
            (outside, |plan| plan.modules[0].file = String::new()),
            ("a hash is no BLAKE3", |plan| plan.modules[0].hash = "0".into()),
            ("an image has no end", |plan| plan.modules[0].offset = u64::MAX),
            ("forward() has too many operations", |plan| {
                let node = plan.forward[0].clone();
                plan.forward.resize(4097, node);
            }),
        ],
    );
    let mut below = plan();
    below.modules[0].file = "inline/x.so".into();
    assert_eq!(check(&below), Ok(()));
}

#[test]
fn kernels_unlike_their_image_are_refused() {
    break_rules(
        Part::Kernel(0),
        &[
            ("its module does not exist", |plan| plan.kernels[0].module = 1),
            ("it is not in its image", |plan| plan.kernels[0].name = "absent".into()),
            ("its parameters are not the image's", |plan| plan.kernels[0].params[0] = 4),
            ("it allows too much shared memory", |plan| {
                plan.kernels[0].max_dynamic_shared = Some(1 << 20);
            }),
            ("its carveout is no percentage", |plan| plan.kernels[0].shared_carveout = Some(101)),
        ],
    );
}

#[test]
fn launches_beyond_the_limits_of_cuda_are_refused() {
    let block = "its block has a size that CUDA does not allow";
    let grid = "its grid has a size that CUDA does not allow";
    let shared = "it needs more dynamic shared memory than the kernel's attribute allows";
    let cluster = "its cluster is too large or empty";
    break_rules(
        Part::Forward(LAUNCH),
        &[
            ("a kernel does not exist", |plan| launch(plan).kernel = 9),
            (block, |plan| launch(plan).block = [0, 1, 1]),
            (block, |plan| launch(plan).block = [1, 1, 65]),
            ("its block has more threads than the kernel allows", |plan| {
                launch(plan).block = [32, 33, 1];
            }),
            (grid, |plan| launch(plan).grid = [u32::MAX, 1, 1]),
            (grid, |plan| launch(plan).grid = [1, 65_536, 1]),
            (shared, |plan| launch(plan).shared = 49_153),
            (shared, |plan| {
                plan.kernels[0].max_dynamic_shared = Some(100);
                launch(plan).shared = 101;
            }),
            (cluster, |plan| launch(plan).cluster = Some([0, 1, 1])),
            (cluster, |plan| launch(plan).cluster = Some([16, 1, 1])),
            ("its grid is no multiple of its cluster", |plan| {
                launch(plan).cluster = Some([3, 1, 1]);
            }),
            ("it has another number of arguments", |plan| launch(plan).args.truncate(1)),
            ("an argument has another size", |plan| launch(plan).args[2].bytes.push(0)),
        ],
    );
    let mut large = plan();
    large.kernels[0].max_dynamic_shared = Some(200_000);
    launch(&mut large).shared = 200_000;
    assert_eq!(check(&large), Ok(()));
}

#[test]
fn what_a_kernel_prescribes_is_required() {
    let mut plan = plan();
    for (name, block, grid, expected) in [
        ("sized", [64, 2, 1], [1, 1, 1], Ok(())),
        ("sized", [128, 1, 1], [1, 1, 1], Err("its block is not the one that the kernel requires")),
        ("clustered", [64, 2, 1], [2, 1, 1], Ok(())),
        ("clustered", [64, 2, 1], [3, 1, 1], Err("its grid is no multiple of its cluster")),
        ("spilled", [1024, 1, 1], [3, 1, 1], Ok(())),
    ] {
        plan.kernels[0].name = name.into();
        plan.kernels[0].params = vec![8];
        plan.forward.truncate(1);
        plan.outputs.tensors.clear();
        plan.outputs.tree = serde_json::Value::Null;
        plan.kernels.truncate(1);
        for block in &mut plan.blocks {
            block.role = Role::Kept;
        }
        let launch = launch(&mut plan);
        launch.args.truncate(1);
        (launch.block, launch.grid) = (block, grid);
        let rule = |rule| Invalid::Part { part: Part::Forward(0), rule };
        assert_eq!(check(&plan), expected.map_err(rule), "{name} {block:?} {grid:?}");
    }
}

#[test]
fn pointers_outside_their_bytes_are_refused() {
    let outside = "an address lies outside the bytes";
    let place = Address { block: 0, offset: 0 };
    break_rules(
        Part::Forward(LAUNCH),
        &[
            (outside, |plan| launch(plan).args[0].relocations[0].at = 1),
            (outside, |plan| launch(plan).args[0].relocations[0].at = u32::MAX),
            ("two addresses overlap", |plan| {
                let relocation = launch(plan).args[0].relocations[0];
                launch(plan).args[0].relocations.push(relocation);
            }),
            ("a block does not exist", |plan| launch(plan).args[0].relocations[0].to.block = 99),
            ("an address lies outside its block", |plan| {
                launch(plan).args[0].relocations[0].to.offset = 8192 + 4097;
            }),
        ],
    );
    break_rules(
        Part::Forward(UPLOAD),
        &[(outside, |plan| {
            let Op::Upload(upload) = &mut plan.forward[UPLOAD].op else { unreachable!() };
            upload.relocations[0].at = 17;
        })],
    );
    let mut two = plan();
    let Op::Upload(upload) = &mut two.forward[UPLOAD].op else { unreachable!() };
    upload.relocations.push(Relocation { at: 16, to: place });
    assert_eq!(check(&two), Ok(()));
}

#[test]
fn tensor_maps_outside_their_arguments_are_refused() {
    fn maps(plan: &mut LaunchPlan) -> &mut Vec<(u32, u32)> {
        let Op::Launch(launch) = &mut plan.forward[MAPPED].op else { unreachable!() };
        &mut launch.args[0].tensor_maps
    }
    break_rules(
        Part::Forward(MAPPED),
        &[
            ("its tensor map does not exist", |plan| maps(plan)[0].1 = 1),
            ("a tensor map is not aligned", |plan| maps(plan)[0].0 = 8),
            ("an address lies outside the bytes", |plan| maps(plan)[0].0 = 64),
            ("two addresses overlap", |plan| maps(plan).push((64, 0))),
        ],
    );
}

#[test]
fn fills_and_copies_beyond_their_blocks_are_refused() {
    fn filled(plan: &mut LaunchPlan) -> &mut warpwright_plan::Fill {
        let Op::Fill(fill) = &mut plan.forward[FILL].op else { unreachable!() };
        fill
    }
    fn copied(plan: &mut LaunchPlan) -> &mut warpwright_plan::Copy2d {
        let Op::Copy(copy) = &mut plan.forward[COPY].op else { unreachable!() };
        copy
    }
    let beyond = "it reaches beyond its block";
    break_rules(
        Part::Forward(FILL),
        &[
            ("its elements have an unknown size", |plan| filled(plan).element = 8),
            ("it is empty", |plan| filled(plan).width = 0),
            ("it is empty", |plan| filled(plan).height = 0),
            ("its rows overlap", |plan| filled(plan).pitch = 60),
            ("it is not aligned", |plan| filled(plan).pitch = 66),
            ("it is not aligned", |plan| filled(plan).to = memory(0, 2)),
            ("it is too large", |plan| filled(plan).width = u64::MAX / 2),
            ("it is too large", |plan| filled(plan).height = u64::MAX),
            (beyond, |plan| filled(plan).height = 33),
            (beyond, |plan| filled(plan).to = memory(0, u64::MAX - 3)),
        ],
    );
    break_rules(
        Part::Forward(COPY),
        &[
            (beyond, |plan| copied(plan).from = memory(0, 8192 - 255)),
            (beyond, |plan| copied(plan).to = memory(0, 8192 - 447)),
            ("its rows overlap", |plan| copied(plan).to_pitch = 63),
            ("a variable does not exist", |plan| {
                copied(plan).to = Memory::Symbol { module: 0, name: "absent".into(), offset: 0 };
            }),
            ("a module does not exist", |plan| {
                copied(plan).to = Memory::Symbol { module: 1, name: "table".into(), offset: 0 };
            }),
            ("it reaches beyond its variable", |plan| {
                copied(plan).from = Memory::Symbol { module: 0, name: "table".into(), offset: 4 };
            }),
        ],
    );
    let mut whole = plan();
    filled(&mut whole).height = 32;
    copied(&mut whole).from = Memory::Symbol { module: 0, name: "table".into(), offset: 0 };
    assert_eq!(check(&whole), Ok(()));
}

#[test]
fn products_that_cublas_lacks_are_refused() {
    let kinds = "cuBLAS has no product of these types";
    let factors = "its factors are not of the compute type";
    let beyond = "it reaches beyond its block";
    let leading = "a leading dimension is too small or too large";
    let size = "a size is not positive or too large";
    break_rules(
        Part::Forward(GEMM),
        &[
            ("its compute type is unknown", |plan| gemm(plan).compute = 66),
            (factors, |plan| gemm(plan).alpha = GemmScalar::F16(0)),
            (factors, |plan| gemm(plan).beta = GemmScalar::F64(0)),
            (kinds, |plan| gemm(plan).types = [GemmType(1); 3]),
            (kinds, |plan| gemm(plan).types[1] = GemmType(2)),
            ("its operation is unknown", |plan| gemm(plan).transpose[1] = 3),
            ("its math mode is unknown", |plan| gemm(plan).math = 5),
            ("its algorithm is unknown", |plan| gemm(plan).algorithm = 24),
            ("its batch is empty or too large", |plan| gemm(plan).batch = 0),
            (size, |plan| gemm(plan).sizes[2] = 0),
            (size, |plan| gemm(plan).sizes[0] = i64::MIN),
            (size, |plan| gemm(plan).sizes[1] = 1 << 31),
            (leading, |plan| gemm(plan).leading[0] = 3),
            (leading, |plan| gemm(plan).leading[1] = 3),
            (leading, |plan| gemm(plan).leading[2] = 15),
            ("a stride is negative", |plan| gemm(plan).strides[0] = -1),
            (beyond, |plan| gemm(plan).operands[0].offset = 8192 - 508),
            (beyond, |plan| gemm(plan).operands[2].offset = 8192 - 1020),
            (beyond, |plan| gemm(plan).strides[1] = i64::MAX / 8),
            (beyond, |plan| gemm(plan).batch = 80),
            (beyond, |plan| gemm(plan).leading[0] = i32::MAX.into()),
            ("an operand is not aligned", |plan| gemm(plan).operands[1].offset = 1026),
        ],
    );
}

#[test]
fn extents_of_matrices_are_exact() {
    let mut plan = plan();
    // Two matrices of 4 x 16, 4 x 8 and 16 x 8 floats, one after the other.
    gemm(&mut plan).operands[0].offset = 8192 - 512;
    gemm(&mut plan).operands[1].offset = 8192 - 256;
    gemm(&mut plan).operands[2].offset = 8192 - 1024;
    assert_eq!(check(&plan), Ok(()));
    for operand in 0..3 {
        let mut plan = plan.clone();
        gemm(&mut plan).operands[operand].offset += 4;
        assert!(check(&plan).is_err());
    }
    for (compute, types, scalar) in [
        (64, [2, 2, 2], GemmScalar::F16(0)),
        (68, [14, 14, 0], GemmScalar::F32(0)),
        (77, [0, 0, 0], GemmScalar::F32(0)),
        (72, [3, 3, 10], GemmScalar::I32(1)),
    ] {
        let gemm = gemm(&mut plan);
        (gemm.compute, gemm.types) = (compute, types.map(GemmType));
        (gemm.alpha, gemm.beta) = (scalar, scalar);
        assert_eq!(check(&plan), Ok(()), "{compute}");
    }
}

#[test]
fn tensor_maps_that_cuda_refuses_are_refused() {
    let modes = "a mode is unknown";
    let sizes = "its dimensions, strides and boxes do not match";
    break_rules(
        Part::TensorMap(0),
        &[
            ("its data type is unknown", |plan| tensor_map(plan).dtype = 16),
            ("it has no dimension, or more than five", |plan| tensor_map(plan).dims.clear()),
            (sizes, |plan| tensor_map(plan).strides.clear()),
            (sizes, |plan| tensor_map(plan).box_dims.push(1)),
            (modes, |plan| tensor_map(plan).swizzle = 7),
            (modes, |plan| tensor_map(plan).oob_fill = 2),
            ("a dimension is empty or too large", |plan| tensor_map(plan).dims[1] = 0),
            ("a box is empty or too large", |plan| tensor_map(plan).box_dims[1] = 257),
            ("a step is 0 or too large", |plan| tensor_map(plan).element_strides[0] = 9),
            ("a stride is not aligned or too large", |plan| tensor_map(plan).strides[0] = 8),
            ("its tensor is not aligned", |plan| tensor_map(plan).address.offset = 8),
            ("it reaches beyond its block", |plan| tensor_map(plan).dims[1] = 129),
            ("it reaches beyond its block", |plan| tensor_map(plan).address.offset = 8192),
            ("a block does not exist", |plan| tensor_map(plan).address.block = 9),
        ],
    );
}

#[test]
fn extents_of_tensor_maps_are_exact() {
    // Seven rows of 128 bytes and one of 64.
    let mut plan = plan();
    tensor_map(&mut plan).address.offset = 8192 - 960;
    assert_eq!(check(&plan), Ok(()));
    tensor_map(&mut plan).address.offset += 16;
    assert!(check(&plan).is_err());
}

#[test]
fn blocks_with_impossible_roles_are_refused() {
    let twice = "another block has the same role";
    break_rules(
        Part::Block(1),
        &[
            ("its size is 0 or too large", |plan| plan.blocks[1].bytes = 0),
            ("its size is 0 or too large", |plan| plan.blocks[1].bytes = u64::MAX),
            ("its constant does not exist", |plan| plan.blocks[1].role = Role::Constant(1)),
            ("its constant has another size", |plan| plan.constants[0].bytes += 1),
            (twice, |plan| plan.blocks[1].role = Role::Weight(0)),
            ("its position is too large", |plan| plan.blocks[1].role = Role::Init(u32::MAX)),
            ("it is allocated after the call", |plan| {
                plan.blocks[1].role = Role::Call { born: 9, freed: None };
            }),
            ("it is freed before it is allocated", |plan| {
                plan.blocks[1].role = Role::Call { born: 2, freed: Some(1) };
            }),
        ],
    );
    break_rules(Part::Constants, &[("too many bytes", |plan| plan.constants[0].bytes = u64::MAX)]);
}

#[test]
fn operations_out_of_order_are_refused() {
    let dead = "it uses memory before it is allocated or after it is freed";
    break_rules(
        Part::Forward(1),
        &[
            ("its stream's number is too large", |plan| plan.forward[1].stream = 16),
            ("it waits for a later operation", |plan| plan.forward[1].after = vec![1]),
            ("it waits for too many others", |plan| plan.forward[1].after = vec![0; 65]),
            (dead, |plan| plan.blocks[3].role = Role::Call { born: 0, freed: Some(1) }),
            (dead, |plan| plan.blocks[4].role = Role::Call { born: 2, freed: None }),
        ],
    );
    break_rules(
        Part::Prepare(0),
        &[("prepare() uses memory of a call", |plan| plan.prepare = plan.forward[..1].to_vec())],
    );
    // A tensor map is memory of its launch.
    break_rules(Part::Forward(MAPPED), &[(dead, |plan| tensor_map(plan).address.block = 3)]);
}

#[test]
fn results_outside_the_call_are_refused() {
    let foreign = "it is no memory of the call, or freed";
    break_rules(
        Part::Output(0),
        &[
            (foreign, |plan| plan.outputs.tensors[0].at.block = 0),
            (foreign, |plan| plan.outputs.tensors[0].at.block = 3),
            ("its dtype is unknown", |plan| plan.outputs.tensors[0].dtype = "float".into()),
            ("its shape and strides do not match", |plan| plan.outputs.tensors[0].shape.push(1)),
            ("a stride is negative", |plan| plan.outputs.tensors[0].strides[1] = -1),
            ("it is empty", |plan| plan.outputs.tensors[0].shape[0] = 0),
            ("it is too large", |plan| plan.outputs.tensors[0].strides[0] = i64::MAX),
            ("it reaches beyond its block", |plan| plan.outputs.tensors[0].at.offset = 7684),
            ("it is not aligned", |plan| plan.outputs.tensors[0].at.offset = 2),
        ],
    );
    break_rules(
        Part::Outputs,
        &[("the tree names a tensor that does not exist", |plan| {
            plan.outputs.tree = serde_json::json!({"list": [{"tensor": 1}]});
        })],
    );
}
