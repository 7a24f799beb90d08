mod calls;

use std::cell::Cell;

use calls::{convolution, gemm, gemv, matmul};
use proptest::prelude::*;
use warpwright_plan::{
    Address as At, Argument, Block, Copy2d, DnnTensor, Fill, Gemm, GemmType, Kernel, Launch,
    LaunchPlan, Memory, Node as PlanNode, Op, Outputs, Producer, Relocation, Role, Upload,
};

use super::*;
use crate::memory::Room;
use crate::outline::{Launches, MAX_STREAMS};

const BASE: Address = 0x7f00_0000_0000;
const SYMBOL: Address = 0x7e00_0000_0000;
const ROOM: Room = Room { arena: 1 << 20, apart_at: 0, apart: 0 };

/// In place of the driver, which this machine may lack: it says what it was asked.
#[derive(Default)]
struct Addresses {
    encoded: Cell<usize>,
}

impl Device for Addresses {
    fn function(&self, kernel: u32) -> Result<Handle, Failure> {
        Ok(std::ptr::without_provenance_mut(kernel as usize + 1))
    }

    fn symbol(&self, _: u32, name: &str) -> Result<(Address, u64), Failure> {
        if name == "table" { Ok((SYMBOL, 64)) } else { Err(Failure::Plan(name.to_owned())) }
    }

    fn encode(&self, map: &TensorMap, at: Address) -> Result<EncodedMap, Failure> {
        self.encoded.set(self.encoded.get() + 1);
        let mut bytes = [map.dtype as u8; 128];
        bytes[..8].copy_from_slice(&at.to_le_bytes());
        Ok(EncodedMap(bytes))
    }
}

fn at(block: u32, offset: u64) -> At {
    At { block, offset }
}

fn node(op: Op) -> PlanNode {
    PlanNode { stream: 0, after: Vec::new(), op }
}

fn pointer(to: At) -> Argument {
    Argument {
        bytes: vec![0; 8],
        relocations: vec![Relocation { at: 0, to }],
        tensor_maps: Vec::new(),
    }
}

fn launch(args: Vec<Argument>) -> Launch {
    Launch {
        kernel: 0,
        grid: [1; 3],
        block: [32, 1, 1],
        shared: 0,
        cluster: None,
        cooperative: false,
        programmatic: false,
        args,
    }
}

fn plan(params: Vec<u32>, forward: Vec<PlanNode>) -> LaunchPlan {
    let block = |bytes, role| Block { bytes, role };
    LaunchPlan {
        version: 1,
        producer: Producer { kind: String::new(), compiler: String::new() },
        modules: Vec::new(),
        kernels: vec![Kernel {
            module: 0,
            name: "scale".to_owned(),
            params,
            max_dynamic_shared: None,
            shared_carveout: None,
            nonportable_cluster: false,
        }],
        tensor_maps: vec![TensorMap {
            dtype: 7,
            address: at(1, 64),
            dims: vec![64, 64],
            strides: vec![256],
            box_dims: vec![8, 8],
            element_strides: vec![1, 1],
            interleave: 0,
            swizzle: 0,
            l2_promotion: 0,
            oob_fill: 0,
        }],
        constants: Vec::new(),
        blocks: vec![
            block(256, Role::Weight(0)),
            block(512, Role::Input(0)),
            block(512, Role::Call { born: 0, freed: None }),
        ],
        prepare: Vec::new(),
        forward,
        outputs: Outputs { tree: serde_json::Value::Null, tensors: Vec::new() },
    }
}

/// Offsets of the input and the result, per call.
const CALLS: [[u64; 2]; 3] = [[4096, 8192], [12288, 16384], [20480, 24576]];

fn program_of(plan: &LaunchPlan, calls: &[[u64; 2]]) -> Result<Program, Failure> {
    let words = crate::wire::words(calls.as_flattened());
    let placement = Placement::settle(&plan.blocks, &[1024], ROOM)?;
    let calls = placement.calls(&plan.blocks, calls.len() as u32, &words, ROOM)?;
    let device = Addresses::default();
    let outline = Outline::of(plan, (&plan.forward, Launches::Run), &device)?;
    Program::fill(outline, &plan.tensor_maps, &placement, &calls, BASE, &device)
}

fn message(plan: &LaunchPlan) -> String {
    match program_of(plan, &CALLS) {
        Ok(_) => "accepted".to_owned(),
        Err(failure) => failure.to_string(),
    }
}

/// What the driver would read for argument `index`, of so many bytes, of a launch.
fn argument(frame: Frame<'_>, index: usize, bytes: usize) -> Vec<u8> {
    let first = frame.bytes.as_ptr().addr();
    let from = frame.pointers[index].addr() - first;
    frame.bytes[from..from + bytes].to_vec()
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn arguments_get_the_addresses_of_their_call() {
    let number = Argument {
        bytes: 2.5f32.to_le_bytes().to_vec(),
        relocations: Vec::new(),
        tensor_maps: Vec::new(),
    };
    let mut structure = pointer(at(0, 8));
    structure.bytes = (1..=24).collect();
    structure.relocations =
        vec![Relocation { at: 16, to: at(2, 512) }, Relocation { at: 0, to: at(0, 8) }];
    let args = vec![pointer(at(1, 4)), number, structure];
    let plan = plan(vec![8, 4, 24], vec![node(Op::Launch(launch(args)))]);
    let program = program_of(&plan, &CALLS).unwrap();
    assert_eq!((program.calls(), program.operations(), program.label()), (3, 3, "launch scale"));
    for (call, [input, result]) in CALLS.into_iter().enumerate() {
        let frame = program.frame(call);
        assert_eq!(word(&argument(frame, 0, 8)), BASE + input + 4);
        assert_eq!(argument(frame, 1, 4), 2.5f32.to_le_bytes());
        let structure = argument(frame, 2, 24);
        assert_eq!(word(&structure[..8]), BASE + 1024 + 8);
        assert_eq!(structure[8..16], [9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(word(&structure[16..]), BASE + result + 512);
        let table = frame.arguments(&program.nodes()[0].action);
        assert_eq!(table.cast_const(), frame.pointers.as_ptr());
        assert_eq!(frame.pointers[2].addr() % 128, 0, "large arguments are aligned");
    }
}

#[test]
fn second_launch_has_arguments_of_its_own() {
    let launches = [at(1, 0), at(2, 0)].map(|to| node(Op::Launch(launch(vec![pointer(to)]))));
    let program = program_of(&plan(vec![8], launches.to_vec()), &CALLS).unwrap();
    let frame = program.frame(2);
    let tables: Vec<_> = program.nodes().iter().map(|node| frame.arguments(&node.action)).collect();
    assert_eq!(tables[1].addr() - tables[0].addr(), size_of::<*mut c_void>());
    assert_eq!(word(&argument(frame, 1, 8)), BASE + CALLS[2][1]);
}

#[test]
fn tensor_maps_are_encoded_for_every_call() {
    let argument_with_map =
        Argument { bytes: vec![0; 192], relocations: Vec::new(), tensor_maps: vec![(64, 0)] };
    let args = vec![pointer(at(0, 0)), argument_with_map];
    let program =
        program_of(&plan(vec![8, 192], vec![node(Op::Launch(launch(args)))]), &CALLS).unwrap();
    for (call, [input, _]) in CALLS.into_iter().enumerate() {
        let frame = program.frame(call);
        let bytes = argument(frame, 1, 192);
        assert_eq!(word(&bytes[64..72]), BASE + input + 64);
        assert!(
            bytes[..64].iter().all(|byte| *byte == 0) && bytes[72..].iter().all(|byte| *byte == 7)
        );
        assert_eq!(frame.pointers[1].addr() % 128, 0);
    }
}

fn symbol(offset: u64) -> Memory {
    Memory::Symbol { module: 0, name: "table".to_owned(), offset }
}

fn upload(to: Memory, bytes: usize) -> Op {
    let relocations = vec![Relocation { at: 8, to: at(1, 0) }];
    Op::Upload(Upload { to, bytes: vec![5; bytes], relocations })
}

#[test]
fn operations_get_addresses_of_blocks_and_symbols() {
    let operations = vec![
        node(upload(symbol(48), 16)),
        node(Op::Copy(Copy2d {
            to: Memory::Block(at(2, 0)),
            from: Memory::Block(at(1, 16)),
            width: 16,
            height: 4,
            to_pitch: 128,
            from_pitch: 160,
        })),
        node(Op::Gemm(Box::new(gemm()))),
        node(Op::Gemv(Box::new(gemv()))),
        node(Op::Matmul(Box::new(matmul()))),
        node(Op::Convolution(Box::new(convolution()))),
    ];
    let program = program_of(&plan(Vec::new(), operations), &CALLS).unwrap();
    for (call, [input, result]) in CALLS.into_iter().enumerate() {
        let frame = program.frame(call);
        let [input, result] = [input, result].map(|offset| BASE + offset);
        let words = [SYMBOL + 48, result, input + 16, input, BASE + 1024 + 4, result + 8];
        let convolved = [input, BASE + 1024, result, BASE + 1024 + 64, input + 4];
        let multiplied = [BASE + 1024, input, result + 12];
        let biased = [BASE + 1024, input, result, result, BASE + 1024 + 8];
        assert_eq!(frame.words, [words.as_slice(), &multiplied, &biased, &convolved].concat());
        let last = program.nodes().last().map(|node| &node.action);
        let Some(Action::Convolution { word: first, places, index: 0 }) = last else {
            unreachable!()
        };
        assert_eq!(frame.words(*first, *places), convolved);
        let Action::Upload { at, bytes, .. } = program.nodes()[0].action else { unreachable!() };
        let uploaded = &frame.bytes[at..at + bytes];
        assert_eq!((&uploaded[..8], word(&uploaded[8..])), (&[5; 8][..], input));
    }
    assert_eq!(program.label(), "run the operations");
}

#[test]
fn memory_beyond_its_end_is_refused() {
    let fill = |to: Memory, element, width, height, pitch| {
        node(Op::Fill(Fill { to, value: 0, element, width, height, pitch }))
    };
    let block = |offset| Memory::Block(at(0, offset));
    let accepted = [
        fill(block(0), 4, 64, 1, 0),
        fill(block(128), 2, 64, 1, 9999),
        fill(block(0), 1, 16, 3, 120),
        fill(block(256), 4, 0, 7, 1 << 40),
        node(upload(symbol(48), 16)),
    ];
    for node in accepted {
        assert_eq!(message(&plan(Vec::new(), vec![node.clone()])), "accepted", "{node:?}");
    }
    let refused = [
        fill(block(1), 4, 64, 1, 0),
        fill(block(0), 1, 17, 3, 120),
        fill(block(0), 4, u64::MAX, 1, 0),
        fill(block(0), 1, 1, u64::MAX, u64::MAX),
        fill(block(u64::MAX), 1, 1, 1, 0),
        fill(block(0), 3, 1, 1, 0),
        fill(Memory::Block(at(9, 0)), 1, 1, 1, 0),
        fill(symbol(64), 1, 1, 1, 0),
        node(upload(symbol(49), 16)),
        node(upload(symbol(0), 15)),
        fill(Memory::Symbol { module: 0, name: "other".to_owned(), offset: 0 }, 1, 1, 1, 0),
    ];
    for node in refused {
        assert_ne!(message(&plan(Vec::new(), vec![node.clone()])), "accepted", "{node:?}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let outside = |at_byte| {
        let mut argument = pointer(at(0, 0));
        argument.relocations[0].at = at_byte;
        argument
    };
    let map = |offset, index| Argument {
        bytes: vec![0; 128],
        relocations: Vec::new(),
        tensor_maps: vec![(offset, index)],
    };
    let refused = [
        (vec![4], vec![pointer(at(0, 0))]),
        (vec![8, 8], vec![pointer(at(0, 0))]),
        (Vec::new(), vec![pointer(at(0, 0))]),
        (vec![8], vec![outside(1)]),
        (vec![8], vec![outside(u32::MAX)]),
        (vec![8], vec![pointer(at(3, 0))]),
        (vec![8], vec![pointer(at(0, u64::MAX))]),
        (vec![128], vec![map(1, 0)]),
        (vec![128], vec![map(0, 1)]),
    ];
    let with = |params, args| plan(params, vec![node(Op::Launch(launch(args)))]);
    assert_eq!(message(&with(vec![8], vec![pointer(at(0, 0))])), "accepted");
    assert_eq!(message(&with(vec![128], vec![map(0, 0)])), "accepted");
    for (params, args) in refused {
        assert_ne!(message(&with(params.clone(), args.clone())), "accepted", "{params:?} {args:?}");
    }
    let unknown = Launch { kernel: 1, ..launch(Vec::new()) };
    assert_ne!(message(&plan(Vec::new(), vec![node(Op::Launch(unknown))])), "accepted");
}

#[test]
fn first_launch_of_a_stream_is_not_programmatic() {
    let launches = [0, 0, 1, 1, 0].map(|stream| {
        let launch = Launch { programmatic: true, cooperative: true, ..launch(Vec::new()) };
        PlanNode { stream, ..node(Op::Launch(launch)) }
    });
    let program = program_of(&plan(Vec::new(), launches.to_vec()), &CALLS).unwrap();
    let found: Vec<_> = program
        .nodes()
        .iter()
        .map(|node| match &node.action {
            Action::Launch { programmatic, attributes, .. } => (*programmatic, attributes.len()),
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [(false, 1), (true, 2), (false, 1), (true, 2), (true, 2)]);
    assert_eq!(program.streams(), 2);
}

#[test]
fn edges_between_streams_become_events() {
    let edges: [(u32, &[u32]); 4] = [(0, &[]), (1, &[0]), (2, &[0, 1]), (0, &[2, 1])];
    let nodes = edges.map(|(stream, after)| PlanNode {
        stream,
        after: after.to_vec(),
        ..node(Op::Launch(launch(Vec::new())))
    });
    let program = program_of(&plan(Vec::new(), nodes.to_vec()), &CALLS).unwrap();
    let found: Vec<_> =
        program.nodes().iter().map(|node| (node.waits.clone(), node.records)).collect();
    let expected =
        [(vec![], Some(0)), (vec![0], Some(1)), (vec![0, 1], Some(2)), (vec![2, 1], None)];
    assert_eq!(found, expected);
    assert_eq!((program.streams(), program.events()), (3, 3));
}

#[test]
fn launches_left_out_keep_the_order_of_others() {
    let forward = vec![
        node(upload(Memory::Block(at(1, 0)), 16)),
        PlanNode { stream: 1, after: vec![0], ..node(Op::Launch(launch(Vec::new()))) },
        PlanNode { after: vec![1], ..node(upload(Memory::Block(at(2, 0)), 16)) },
    ];
    let plan = plan(Vec::new(), forward);
    let device = Addresses::default();
    let of = |launches| Outline::of(&plan, (&plan.forward, launches), &device).unwrap();
    let (run, left_out) = (of(Launches::Run), of(Launches::LeftOut));
    assert!(matches!(run.nodes[1].action, Action::Launch { .. }), "positive control");
    assert!(matches!(left_out.nodes[1].action, Action::Nothing));
    assert!(matches!(left_out.nodes[2].action, Action::Upload { .. }));
    let edges = |outline: &Outline| -> Vec<(usize, Vec<usize>, Option<usize>)> {
        let nodes = outline.nodes.iter();
        nodes.map(|node| (node.stream, node.waits.clone(), node.records)).collect()
    };
    assert_eq!(edges(&left_out), edges(&run));
}

#[test]
fn edges_forward_and_far_streams_are_refused() {
    let with = |stream, after: Vec<u32>| {
        let node = PlanNode { stream, after, ..node(Op::Launch(launch(Vec::new()))) };
        message(&plan(Vec::new(), vec![node]))
    };
    assert_eq!(with(MAX_STREAMS as u32 - 1, vec![]), "accepted");
    for (stream, after) in
        [(0, vec![0]), (0, vec![u32::MAX]), (MAX_STREAMS as u32, vec![]), (u32::MAX, vec![])]
    {
        assert_ne!(with(stream, after.clone()), "accepted", "{stream} {after:?}");
    }
}

#[test]
fn windows_beyond_the_limits_are_refused() {
    let nodes = vec![node(Op::Launch(launch(Vec::new()))); 1024];
    let plan = plan(Vec::new(), nodes);
    assert!(program_of(&plan, &vec![CALLS[0]; 1024]).is_ok());
    let refused = program_of(&plan, &vec![CALLS[0]; 1025]).err().unwrap();
    assert!(refused.to_string().contains("too many"), "{refused}");
}

fn hostile_node() -> impl Strategy<Value = PlanNode> {
    let number = prop_oneof![0u32..4, any::<u32>()];
    let wide = prop_oneof![0u64..600, any::<u64>()];
    let address = (number.clone(), wide.clone()).prop_map(|(block, offset)| At { block, offset });
    let relocation = (number.clone(), address.clone()).prop_map(|(at, to)| Relocation { at, to });
    let argument = (
        prop::collection::vec(any::<u8>(), 0..160),
        prop::collection::vec(relocation.clone(), 0..3),
        prop::collection::vec((number.clone(), 0u32..2), 0..2),
    )
        .prop_map(|(bytes, relocations, tensor_maps)| Argument {
            bytes,
            relocations,
            tensor_maps,
        });
    let memory =
        prop_oneof![address.clone().prop_map(Memory::Block), wide.clone().prop_map(symbol),];
    let op = prop_oneof![
        (number.clone(), prop::collection::vec(argument, 0..3))
            .prop_map(|(kernel, args)| Op::Launch(Launch { kernel, ..launch(args) })),
        (memory.clone(), any::<u8>(), wide.clone(), wide.clone(), wide.clone()).prop_map(
            |(to, element, width, height, pitch)| Op::Fill(Fill {
                to,
                value: 1,
                element: element % 6,
                width,
                height,
                pitch,
            })
        ),
        (memory.clone(), memory.clone(), wide.clone(), wide.clone(), wide).prop_map(
            |(to, from, width, height, pitch)| Op::Copy(Copy2d {
                to,
                from,
                width,
                height,
                to_pitch: pitch,
                from_pitch: pitch,
            })
        ),
        (
            memory,
            prop::collection::vec(any::<u8>(), 0..80),
            prop::collection::vec(relocation, 0..3)
        )
            .prop_map(|(to, bytes, relocations)| Op::Upload(Upload {
                to,
                bytes,
                relocations
            })),
        (any::<[i64; 3]>(), any::<[u32; 3]>(), address.clone()).prop_map(|(sizes, types, to)| {
            Op::Gemm(Box::new(Gemm {
                sizes,
                types: types.map(GemmType),
                operands: [to; 3],
                ..gemm()
            }))
        }),
        (any::<[u32; 4]>(), any::<[u32; 3]>(), address).prop_map(|(dims, numbers, to)| {
            let mut hostile = convolution();
            hostile.source = DnnTensor { at: to, dtype: numbers[0], ..hostile.source };
            (hostile.source.dims, hostile.groups) =
                (dims[..numbers[1] as usize % 5].to_vec(), numbers[2]);
            Op::Convolution(Box::new(hostile))
        }),
    ];
    (number.clone(), prop::collection::vec(number, 0..3), op)
        .prop_map(|(stream, after, op)| PlanNode { stream, after, op })
}

proptest! {
    #[test]
    fn hostile_nodes_never_panic(
        nodes in prop::collection::vec(hostile_node(), 0..6),
        params in prop::collection::vec(0u32..160, 0..3),
    ) {
        // Parameters are those of the first launch half of the time, so that more is reached than a refusal.
        let first = nodes.iter().find_map(|node| match &node.op {
            Op::Launch(launch) => Some(launch.args.iter().map(|a| a.bytes.len() as u32).collect()),
            _ => None,
        });
        for params in [params, first.unwrap_or_default()] {
            let plan = plan(params, nodes.clone());
            let Ok(program) = program_of(&plan, &CALLS) else { continue };
            for call in 0..program.calls() {
                let frame = program.frame(call);
                let bytes = frame.bytes.as_ptr_range();
                for node in program.nodes() {
                    if let Action::Launch { first, .. } = node.action {
                        for (pointer, size) in frame.pointers[first..].iter().zip(&plan.kernels[0].params) {
                            let end = pointer.addr() + *size as usize;
                            prop_assert!(bytes.start.addr() <= pointer.addr() && end <= bytes.end.addr());
                        }
                    }
                }
            }
        }
    }
}
