//! Calls of libraries: a replayer takes those that the library documents, within their blocks, and no others.

use proptest::prelude::*;
use warpwright_plan::image::Image;
use warpwright_plan::{
    Convolution, DnnTensor, Gemm, GemmScalar, Gemv, Invalid, LaunchPlan, Matmul, Op, Part,
};

use crate::fixture::{LIBRARY, fatbins};
use crate::small::{
    BYTES, INPUT, RESULT, TABLE, WEIGHT, address, convolution, gemm, gemv, matmul, node, world,
};

/// Where the plan's call of a library is.
const CALL: usize = 4;
/// Behind it a product with a vector, and one of arrays of matrices.
const VECTOR: usize = 5;
const ARRAYS: usize = 6;
/// And one of cuBLASLt.
const MATMUL: usize = 7;

fn plan() -> LaunchPlan {
    let mut world = world();
    let places = [(INPUT, 0), (WEIGHT, 0), (RESULT, 0), (TABLE, 0), (INPUT, 1024)];
    let places = places.map(|(block, offset)| address(block, offset));
    world.forward.push(node(Op::Convolution(Box::new(convolution(places)))));
    let operands = [places[1], places[0], places[2]];
    world.forward.push(node(Op::Gemv(Box::new(gemv(operands)))));
    world.forward.push(node(Op::Gemm(Box::new(Gemm { pointers: true, ..gemm(operands) }))));
    let matrices = [places[0], places[1], places[2], places[2]];
    world.forward.push(node(Op::Matmul(Box::new(matmul(matrices, Some(places[3]))))));
    world.plan().0
}

fn check(plan: &LaunchPlan) -> Result<(), Invalid> {
    let image = Image::read(&LIBRARY[fatbins()[0].clone()]).unwrap();
    plan.check(&[image])
}

fn call(plan: &mut LaunchPlan) -> &mut Convolution {
    let Op::Convolution(convolution) = &mut plan.forward[CALL].op else { unreachable!() };
    convolution
}

type Change = fn(&mut Convolution);

/// Checks that each change breaks this rule.
fn break_rules(cases: &[(&'static str, Change)]) {
    assert_eq!(check(&plan()), Ok(()), "the control");
    for (rule, change) in cases {
        let mut plan = plan();
        change(call(&mut plan));
        let refused = Invalid::Part { part: Part::Forward(CALL), rule };
        assert_eq!(check(&plan), Err(refused), "{:?}", call(&mut plan));
    }
}

#[test]
fn convolutions_that_cudnn_lacks_are_refused() {
    let types = "its tensors have different types";
    let factors = "its factors have another type";
    let mode = "a mode is unknown";
    break_rules(&[
        ("its data type is unknown", |c| c.source.dtype = 3),
        (types, |c| c.filter.dtype = 2),
        (types, |c| c.result.dtype = 1),
        (types, |c| c.epilogue.as_mut().unwrap().bias.dtype = 2),
        ("cuDNN has no such sums of these types", |c| c.compute = 2),
        (factors, |c| c.alpha = GemmScalar::F64(0)),
        (factors, |c| c.beta = GemmScalar::F16(0)),
        (mode, |c| c.mode = 2),
        (mode, |c| c.math = 4),
        (mode, |c| c.filter.format = 2),
        ("its algorithm is unknown", |c| c.algorithm = Some(8)),
        ("its activation is unknown", |c| c.epilogue.as_mut().unwrap().activation = 0),
        ("its bias is not one number per channel", |c| {
            c.epilogue.as_mut().unwrap().bias.dims[1] = 5;
        }),
        ("it has a factor without a residual", |c| c.epilogue.as_mut().unwrap().residual = None),
        ("a transposed convolution has no epilogue", |c| {
            c.transposed = true;
            std::mem::swap(&mut c.source, &mut c.result);
            // Neighbours in memory, so that nothing overlaps.
            c.result.strides = vec![80, 20, 5, 1];
        }),
    ]);
}

#[test]
fn convolutions_whose_sizes_disagree_are_refused() {
    let ranks = "its tensors have different ranks";
    let extent = "an extent is 0 or too large";
    let range = "its padding, steps, dilation or groups are 0 or too large";
    let channels = "its channels, filter and groups do not match";
    let result = "its result has another extent";
    break_rules(&[
        ("it has neither two nor three dimensions of space", |c| {
            c.source.dims.truncate(3);
        }),
        (ranks, |c| c.result.dims.push(1)),
        (ranks, |c| c.filter.dims.truncate(3)),
        (ranks, |c| c.padding.push(0)),
        (ranks, |c| c.steps.clear()),
        (extent, |c| c.source.dims[2] = 0),
        (extent, |c| c.filter.dims[3] = u32::MAX),
        (range, |c| c.steps[0] = 0),
        (range, |c| c.dilation[1] = 0),
        (range, |c| c.padding[0] = 1 << 31),
        (range, |c| c.groups = 0),
        ("its tensors have different numbers of images", |c| c.result.dims[0] = 1),
        (channels, |c| c.groups = 1),
        (channels, |c| c.filter.dims[1] = u32::MAX >> 1),
        (channels, |c| c.result.dims[1] = 5),
        ("its filter is larger than what it reads", |c| c.dilation[0] = 3),
        (result, |c| c.result.dims[3] = 4),
        (result, |c| c.padding[1] = i32::MAX as u32),
        (result, |c| c.steps[1] = 2),
        ("a tensor's extents and strides do not match", |c| c.source.strides.truncate(3)),
        ("a stride is 0 or too large", |c| c.source.strides[0] = 0),
        ("a tensor is too large", |c| c.source.strides[0] = i32::MAX as u32),
        ("elements of its result overlap", |c| c.result.strides = vec![60, 1, 30, 5]),
        ("elements of its result overlap", |c| c.result.strides = vec![1, 1, 1, 1]),
    ]);
}

#[test]
fn extents_of_convolutions_are_exact() {
    let beyond = "it reaches beyond its block";
    let unaligned = "a tensor is not aligned";
    break_rules(&[
        (beyond, |c| c.source.at.offset = BYTES - 636),
        (beyond, |c| c.filter.at.offset = BYTES - 428),
        (beyond, |c| c.result.at.offset = BYTES - 476),
        (beyond, |c| c.epilogue.as_mut().unwrap().bias.at.offset = BYTES - 20),
        (beyond, |c| c.epilogue.as_mut().unwrap().residual = Some(address(INPUT, BYTES - 476))),
        (beyond, |c| c.filter.at.offset = u64::MAX - 3),
        ("a block does not exist", |c| c.source.at.block = 99),
        (unaligned, |c| c.source.at.offset = 2),
        (unaligned, |c| c.filter.at.offset = 2),
    ]);
    let mut at_the_end = plan();
    let changed = call(&mut at_the_end);
    changed.source.at.offset = BYTES - 640;
    changed.filter.at.offset = BYTES - 432;
    changed.result.at.offset = BYTES - 480;
    let epilogue = changed.epilogue.as_mut().unwrap();
    epilogue.bias.at.offset = BYTES - 24;
    epilogue.residual = Some(address(INPUT, BYTES - 480));
    assert_eq!(check(&at_the_end), Ok(()));
}

#[test]
fn transposed_convolutions_and_all_types_are_taken() {
    for (dtype, compute, factor) in [
        (0, 0, GemmScalar::F32(0)),
        (1, 1, GemmScalar::F64(0)),
        (2, 0, GemmScalar::F32(0)),
        (2, 2, GemmScalar::F32(0)),
        (9, 0, GemmScalar::F32(0)),
    ] {
        let mut plan = plan();
        let c = call(&mut plan);
        (c.source.dtype, c.filter.dtype, c.result.dtype, c.compute) =
            (dtype, dtype, dtype, compute);
        (c.alpha, c.beta, c.epilogue) = (factor, factor, None);
        assert_eq!(check(&plan), Ok(()), "{dtype}");
        let c = call(&mut plan);
        c.transposed = true;
        std::mem::swap(&mut c.source.dims, &mut c.result.dims);
        std::mem::swap(&mut c.source.strides, &mut c.result.strides);
        c.algorithm = Some(5);
        assert_eq!(check(&plan), Ok(()), "{dtype} transposed");
        call(&mut plan).algorithm = Some(6);
        assert!(check(&plan).is_err());
    }
}

/// The largest offset of an element, and whether two share one, by looking at all.
fn looked_at(tensor: &DnnTensor) -> (u64, bool) {
    let mut offsets = vec![0u64];
    for (extent, stride) in tensor.dims.iter().zip(&tensor.strides) {
        let all =
            offsets.iter().flat_map(|at| (0..*extent).map(move |i| at + u64::from(i * stride)));
        offsets = all.collect();
    }
    let count = offsets.len();
    offsets.sort_unstable();
    let last = *offsets.last().unwrap();
    offsets.dedup();
    (last, offsets.len() < count)
}

proptest! {
    #[test]
    fn only_convolutions_within_their_blocks_are_taken(
        extents in prop::collection::vec(1u32..5, 4),
        strides in prop::collection::vec(1u32..200, 8),
        at in 0u64..2048,
    ) {
        let mut plan = plan();
        let c = call(&mut plan);
        c.epilogue = None;
        c.source.dims = extents.clone();
        c.source.strides = strides[..4].to_vec();
        c.result.strides = strides[4..].to_vec();
        // A filter of one element per group changes no extent.
        (c.padding, c.steps, c.dilation) = (vec![0; 2], vec![1; 2], vec![1; 2]);
        c.filter.dims = vec![extents[1], 1, 1, 1];
        c.groups = extents[1];
        c.result.dims = extents;
        c.result.at.offset = 4 * at;
        let (read, _) = looked_at(&c.source);
        let (written, shared) = looked_at(&c.result);
        let fits = 4 * (read + 1) <= BYTES && 4 * (at + written + 1) <= BYTES;
        let taken = check(&plan).is_ok();
        prop_assert!(!taken || fits && !shared);
        // What is refused overlaps, or might: its strides interleave.
        if fits && !shared && !taken {
            let rule = "elements of its result overlap";
            prop_assert_eq!(check(&plan), Err(Invalid::Part { part: Part::Forward(CALL), rule }));
        }
    }
}

#[test]
fn products_with_vectors_that_lie_are_refused() {
    type Change = fn(&mut Gemv);
    fn product(plan: &mut LaunchPlan) -> &mut Gemv {
        let Op::Gemv(gemv) = &mut plan.forward[VECTOR].op else { unreachable!() };
        gemv
    }
    let size = "a size is not positive or too large";
    let beyond = "it reaches beyond its block";
    let cases: [(&'static str, Change); 16] = [
        ("cuBLAS has no product of these types", |p| p.dtype = 2),
        ("its factors are not of the compute type", |p| p.alpha = GemmScalar::F64(0)),
        ("its operation is unknown", |p| p.transpose = 3),
        ("its math mode is unknown", |p| p.math = 5),
        ("its batch is empty or too large", |p| p.batch = 0),
        (size, |p| p.sizes[0] = 0),
        (size, |p| p.steps[0] = -1),
        (size, |p| p.steps[1] = 1 << 31),
        ("a leading dimension is too small or too large", |p| p.leading = 4),
        ("a stride is negative", |p| p.strides[2] = -8),
        ("an operand is not aligned", |p| p.operands[2].offset = 2),
        // Two matrices of 23 floats, 24 apart; two vectors of 5; two results of 4, two apart, 8 apart.
        (beyond, |p| p.operands[0].offset = BYTES - 184),
        (beyond, |p| p.operands[1].offset = BYTES - 36),
        (beyond, |p| p.operands[2].offset = BYTES - 56),
        (beyond, |p| p.strides[0] = i64::MAX / 8),
        (beyond, |p| p.steps = [i32::MAX.into(), i32::MAX.into()]),
    ];
    for (rule, change) in cases {
        let mut plan = plan();
        change(product(&mut plan));
        assert_eq!(check(&plan), Err(Invalid::Part { part: Part::Forward(VECTOR), rule }));
    }
    let mut at_the_end = plan();
    let changed = product(&mut at_the_end);
    changed.operands[0].offset = BYTES - 188;
    changed.operands[1].offset = BYTES - 40;
    changed.operands[2].offset = BYTES - 60;
    assert_eq!(check(&at_the_end), Ok(()), "the control");
    // As it is stored, five numbers become four; the other way round four become five.
    let changed = product(&mut at_the_end);
    changed.transpose = 0;
    assert!(check(&at_the_end).is_err());
    product(&mut at_the_end).operands[2].offset = BYTES - 68;
    assert_eq!(check(&at_the_end), Ok(()));
}

#[test]
fn arrays_of_matrices_lie_in_their_blocks() {
    fn product(plan: &mut LaunchPlan) -> &mut Gemm {
        let Op::Gemm(gemm) = &mut plan.forward[ARRAYS].op else { unreachable!() };
        gemm
    }
    for operand in 0..3 {
        let mut plan = plan();
        product(&mut plan).operands[operand].offset = BYTES - 16;
        assert_eq!(check(&plan), Ok(()), "two addresses: the control");
        product(&mut plan).operands[operand].offset = BYTES - 8;
        assert!(check(&plan).is_err());
        product(&mut plan).operands[operand].offset = 4;
        assert!(check(&plan).is_err());
    }
}

#[test]
fn products_of_cublaslt_that_lie_are_refused() {
    type Change = fn(&mut Matmul);
    fn product(plan: &mut LaunchPlan) -> &mut Matmul {
        let Op::Matmul(matmul) = &mut plan.forward[MATMUL].op else { unreachable!() };
        matmul
    }
    let types = "cuBLAS has no product of these types";
    let size = "a size is not positive or too large";
    let leading = "a leading dimension is too small or too large";
    let fit = "its matrices do not fit each other";
    let epilogue = "its epilogue is unknown";
    let beyond = "it reaches beyond its block";
    let cases: [(&'static str, Change); 26] = [
        ("its compute type is unknown", |p| p.compute = 66),
        ("its factors are not of the compute type", |p| p.beta = GemmScalar::F64(0)),
        (types, |p| p.matrices[0].dtype = 2),
        (types, |p| p.matrices[2].dtype = 2),
        (types, |p| p.matrices[3].dtype = 1),
        ("its operation is unknown", |p| p.transpose[0] = 3),
        (size, |p| p.matrices[1].sizes[0] = 0),
        (size, |p| p.matrices[1].sizes[1] = 1 << 31),
        (size, |p| p.matrices[2].leading = i64::MIN),
        ("its batch is empty or too large", |p| p.matrices[0].batch = 0),
        ("its matrices are not as many", |p| p.matrices[1].batch = 1),
        (leading, |p| p.matrices[0].leading = 3),
        (leading, |p| p.matrices[1].leading = 4),
        ("a stride is negative", |p| p.matrices[3].stride = -1),
        (fit, |p| p.transpose[0] = 0),
        (fit, |p| p.matrices[2].sizes = [5, 6]),
        (fit, |p| p.matrices[3].sizes = [6, 4]),
        (epilogue, |p| p.epilogue = 1),
        (epilogue, |p| p.epilogue = 5),
        (epilogue, |p| p.epilogue = 164),
        (epilogue, |p| p.bias = None),
        (beyond, |p| p.matrices[0].at.offset = BYTES - 188),
        (beyond, |p| p.matrices[1].at.offset = BYTES - 240),
        (beyond, |p| p.matrices[3].at.offset = BYTES - 308),
        (beyond, |p| p.bias.as_mut().unwrap().offset = BYTES - 20),
        ("an operand is not aligned", |p| p.bias.as_mut().unwrap().offset = 2),
    ];
    assert_eq!(check(&plan()), Ok(()), "the control");
    for (rule, change) in cases {
        let mut plan = plan();
        change(product(&mut plan));
        let refused = Invalid::Part { part: Part::Forward(MATMUL), rule };
        assert_eq!(check(&plan), Err(refused), "{:?}", product(&mut plan));
    }
    let mut at_the_end = plan();
    let p = product(&mut at_the_end);
    // Two of 24 floats; two of three rows of 8 and one of 5, 32 apart; two of four columns of 8 and one of 6, 40 apart.
    p.matrices[0].at.offset = BYTES - 192;
    p.matrices[1].at.offset = BYTES - 244;
    p.matrices[3].at.offset = BYTES - 312;
    p.bias.as_mut().unwrap().offset = BYTES - 24;
    assert_eq!(check(&at_the_end), Ok(()));
    for (epilogue, biased) in [(1, false), (2, false), (32, false), (4, true), (6, true)] {
        let mut plan = plan();
        let p = product(&mut plan);
        p.epilogue = epilogue;
        p.bias = p.bias.filter(|_| biased);
        assert_eq!(check(&plan), Ok(()), "{epilogue}");
    }
}
