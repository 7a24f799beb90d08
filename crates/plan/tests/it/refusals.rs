//! What does not become a plan, and why. Each test changes one thing of a candidate that becomes one.

use warpwright_plan::limits::{BEYOND, MAX_NODES};
use warpwright_plan::{
    Invalid, Memory, NotRecordable, Op, Part, Phase, Place, RecordedOp, RecordedTensorMap,
    Recording,
};

use crate::model::World;
use crate::recorded::hex;
use crate::small::{
    BYTES, INPUT, RESULT, SCRATCH, TABLE, WEIGHT, address, args, fill, map, mapped, memory, node,
    on_stream, recordings, scale, upload, world,
};

/// Why the candidate is refused.
pub(crate) fn refusal(world: &World) -> NotRecordable {
    let [one, other] = recordings(world);
    world.merge([&one, &other]).unwrap_err()
}

/// Why the small candidate is refused if a recorder changes both recordings.
pub(crate) fn refusal_of_both(change: impl Fn(&mut Recording)) -> NotRecordable {
    let world = world();
    let mut both = recordings(&world);
    both.iter_mut().for_each(change);
    world.merge([&both[0], &both[1]]).unwrap_err()
}

/// Why it is refused if the recordings differ in one thing.
pub(crate) fn refusal_of_one(change: impl Fn(&mut Recording)) -> NotRecordable {
    let world = world();
    let [one, mut other] = recordings(&world);
    change(&mut other);
    world.merge([&one, &other]).unwrap_err()
}

fn place(index: usize) -> Place {
    Place { phase: Phase::Second, index }
}

fn first(index: usize) -> Place {
    Place { phase: Phase::First, index }
}

pub(crate) fn differs(what: &str) -> NotRecordable {
    NotRecordable::Differs { what: what.to_owned() }
}

pub(crate) fn recorder(what: &str) -> NotRecordable {
    NotRecordable::Recorder { what: what.to_owned() }
}

fn detail(text: &str) -> NotRecordable {
    NotRecordable::SecondCallDiffers { detail: text.to_owned() }
}

#[test]
fn the_small_candidate_becomes_a_plan() {
    let world = world();
    let [one, other] = recordings(&world);
    let merged = world.merge([&one, &other]).unwrap();
    assert_eq!((merged.plan, merged.constants), world.plan());
}

#[test]
fn a_refusal_of_the_recorder_is_quoted_safely() {
    let refused = refusal_of_one(|recording| {
        recording.refused = Some(format!("calls cudaFoo\u{1b}[31m\n{}", "x".repeat(9000)));
    });
    let text = refused.to_string();
    assert!(text.starts_with("calls cudaFoo [31m x"), "{text}");
    assert_eq!(text.chars().count(), 301);
}

#[test]
fn other_versions_of_recordings_are_refused() {
    let refused = refusal_of_one(|recording| recording.version += 1);
    assert_eq!(refused, recorder("it has version 2; the judge reads version 1"));
}

#[test]
fn malformed_recordings_are_refused() {
    let text = serde_json::to_string(&world().record(1)).unwrap();
    assert!(Recording::parse(text.as_bytes()).is_ok());
    assert!(matches!(Recording::parse(&text.as_bytes()[1..]), Err(NotRecordable::Recorder { .. })));
    let large = vec![b' '; warpwright_plan::limits::MAX_RECORDING_BYTES + 1];
    assert!(matches!(Recording::parse(&large), Err(NotRecordable::TooMuch { .. })));
}

#[test]
fn recordings_at_the_same_places_are_refused() {
    let world = world();
    let one = world.record(1);
    let expected = recorder("two recordings place memory at the same addresses or distances");
    assert_eq!(world.merge([&one, &one.clone()]).unwrap_err(), expected);
    let mut moved = one.clone();
    moved.blocks.iter_mut().for_each(|block| block.address += 1 << 30);
    assert_eq!(world.merge([&one, &moved]).unwrap_err(), expected);
}

#[test]
fn a_few_equal_distances_are_chance() {
    let world = world();
    let [one, mut other] = recordings(&world);
    // The first two blocks, of which one is filler, lie as in the first recording.
    let distance = one.blocks[1].address - one.blocks[0].address;
    other.blocks[1].address = other.blocks[0].address + distance;
    assert!(world.merge([&one, &other]).is_ok());
}

#[test]
fn empty_allocations_that_nothing_uses_are_ignored() {
    let world = world();
    let mut both = recordings(&world);
    for recording in &mut both {
        recording.blocks[1].bytes = 0;
    }
    assert_eq!(world.merge([&both[0], &both[1]]).unwrap().plan, world.plan().0);
}

#[test]
fn overlapping_allocations_are_refused() {
    let refused = refusal_of_both(|recording| {
        recording.blocks[1].address = recording.blocks[0].address + 8;
    });
    assert_eq!(refused, recorder("two allocations overlap"));
    for end in [0, u64::MAX - 64] {
        let refused = refusal_of_one(|recording| recording.blocks[1].address = end);
        assert_eq!(refused, recorder("an allocation has no place in memory"));
    }
}

#[test]
fn too_many_operations_are_refused() {
    let mut world = world();
    while world.forward.len() <= MAX_NODES {
        world.forward.push(node(Op::Fill(fill(memory(RESULT, 0)))));
    }
    let refused = refusal(&world);
    assert_eq!(
        refused.to_string(),
        "forward() needs 4097 operations in one call; at most 4096 can be recorded"
    );
    world.forward.truncate(MAX_NODES);
    let [one, other] = recordings(&world);
    assert!(world.merge([&one, &other]).is_ok());
}

#[test]
fn too_many_streams_and_allocations_are_refused() {
    let mut other = world();
    other.forward[0].stream = 16;
    assert!(matches!(refusal(&other), NotRecordable::TooMuch { what: "streams", found: 17, .. }));
    let refused = refusal_of_both(|recording| {
        let block = recording.blocks[0].clone();
        recording.blocks.resize(65_537, block);
    });
    assert!(matches!(refused, NotRecordable::TooMuch { what: "allocations", .. }));
}

#[test]
fn allocations_that_differ_are_refused() {
    let refused = refusal_of_one(|recording| recording.blocks[0].bytes += 512);
    assert_eq!(refused, differs("the number, order, size or lifetime of allocations"));
}

#[test]
fn launches_that_differ_are_refused() {
    let grid = |recording: &mut Recording| {
        let RecordedOp::Launch { grid, .. } = &mut recording.nodes[4].op else { unreachable!() };
        *grid = [5, 1, 1];
    };
    assert_eq!(
        refusal_of_one(grid),
        differs("the grid, the block or another number of operation 0 of the second call")
    );
    let refused = refusal_of_one(|recording| recording.nodes[4].stream = 1);
    assert_eq!(refused, differs("the stream or the events of operation 0 of the second call"));
    let refused = refusal_of_one(|recording| {
        recording.nodes[4].op = recording.nodes[5].op.clone();
    });
    assert_eq!(
        refused,
        differs("the kind, the kernel or the size of operation 0 of the second call")
    );
    let refused = refusal_of_one(|recording| recording.kernels[0].max_dynamic_shared = Some(1));
    assert_eq!(refused, differs("the set of kernels"));
}

#[test]
fn numbers_that_differ_are_refused_by_name() {
    let refused = refusal_of_one(|recording| args(recording, 4)[2] = "0700ff00".into());
    let expected =
        NotRecordable::Argument { kernel: "scale".into(), parameter: 2, byte: 2, place: place(0) };
    assert_eq!(refused, expected);
    // A distance between two blocks is such a number, and an address beyond all blocks.
    let refused = refusal_of_one(|recording| args(recording, 4)[0] = hex(&[9; 8]));
    let expected =
        NotRecordable::Argument { kernel: "scale".into(), parameter: 0, byte: 0, place: place(0) };
    assert_eq!(refused, expected);
}

#[test]
fn pointers_to_different_places_are_refused() {
    let refused = refusal_of_one(|recording| {
        let block = recording.blocks[world().block(RESULT as usize)].clone();
        args(recording, 4)[0] = hex(&(block.address + 8).to_le_bytes());
    });
    assert!(matches!(refused, NotRecordable::Argument { parameter: 0, .. }), "{refused}");
}

#[test]
fn unaligned_pointers_are_refused_as_such() {
    let world = world();
    let refused = refusal_of_both(|recording| {
        let block = recording.blocks[world.block(RESULT as usize)].address;
        let mut pair = [0; 24];
        pair[3..11].copy_from_slice(&block.to_le_bytes());
        args(recording, 5)[0] = hex(&pair);
    });
    let expected = NotRecordable::UnalignedPointer {
        kernel: "gather".into(),
        parameter: 0,
        byte: 3,
        place: place(1),
    };
    assert_eq!(refused, expected);
}

#[test]
fn pointers_shortly_behind_a_block_are_kept() {
    let with = |beyond: u64| {
        let mut world = world();
        world.forward.push(node(scale(address(RESULT, 0), address(TABLE, BYTES + beyond))));
        let [one, other] = recordings(&world);
        world.merge([&one, &other]).map(|merged| merged.plan == world.plan().0)
    };
    assert_eq!(with(0), Ok(true));
    assert_eq!(with(BEYOND), Ok(true));
    // Behind the filler that follows the table in a recording, there is nothing near.
    assert!(matches!(with(BEYOND + 1), Err(NotRecordable::Argument { .. })));
}

#[test]
fn the_block_that_contains_a_pointer_is_preferred() {
    // In both recordings the result begins where something else ends.
    let world = world();
    let mut both = recordings(&world);
    let result = world.block(RESULT as usize);
    for recording in &mut both {
        let start = recording.blocks[result].address;
        recording.blocks[result - 1].address = start - 512;
    }
    let merged = world.merge([&both[0], &both[1]]).unwrap();
    assert_eq!(merged.plan, world.plan().0);
}

#[test]
fn arguments_of_other_sizes_are_refused() {
    let expected = recorder("a launch's arguments are not of the kernel's sizes");
    assert_eq!(refusal_of_both(|recording| args(recording, 4)[2].push_str("00")), expected);
    assert_eq!(refusal_of_both(|recording| args(recording, 4)[2] = "0700000g".into()), expected);
    assert_eq!(refusal_of_both(|recording| args(recording, 4).truncate(3)), expected);
    let refused = refusal_of_both(|recording| recording.kernels[0].name = "absent".into());
    assert_eq!(refused, recorder("a kernel is in no image"));
}

#[test]
fn uploads_that_depend_on_addresses_are_refused() {
    let mut world = world();
    world.forward.push(node(Op::Upload(upload(memory(RESULT, 0), None))));
    let [one, mut other] = recordings(&world);
    let RecordedOp::Upload { bytes, .. } = &mut other.nodes[9].op else { unreachable!() };
    bytes[17] ^= 1;
    let refused = world.merge([&one, &other]).unwrap_err();
    assert_eq!(refused, NotRecordable::Uploaded { byte: 17, place: place(4) });
}

#[test]
fn tensor_maps_in_other_places_are_refused() {
    let mut world = world();
    world.maps.push(map(address(INPUT, 0)));
    world.forward.push(node(mapped(0, address(RESULT, 0))));
    let [one, other] = recordings(&world);
    assert!(world.merge([&one, &other]).is_ok());
    let mut stray = upload(memory(RESULT, 0), None);
    stray.bytes[3..11].copy_from_slice(&RecordedTensorMap::MARK);
    world.forward.push(node(Op::Upload(stray)));
    assert_eq!(refusal(&world), NotRecordable::StrayTensorMap { place: first(5) });
    let refused = refusal_of_both(|recording| {
        let mark = RecordedTensorMap::MARK;
        args(recording, 5)[0].replace_range(16..32, &hex(&mark));
    });
    assert_eq!(refused, NotRecordable::StrayTensorMap { place: place(1) });
}

#[test]
fn tensor_maps_of_both_calls_must_agree() {
    let mut world = world();
    world.maps.push(map(address(INPUT, 0)));
    world.forward.push(node(mapped(0, address(RESULT, 0))));
    let mut both = recordings(&world);
    for recording in &mut both {
        recording.tensor_maps[0].box_dims[1] = 2;
    }
    let refused = world.merge([&both[0], &both[1]]).unwrap_err();
    assert_eq!(refused, detail(" (operation 4)"));
    // The end of a map holds nothing.
    let mut both = recordings(&world);
    for recording in &mut both {
        args(recording, 4)[0].replace_range(254..256, "01");
    }
    let refused = world.merge([&both[0], &both[1]]).unwrap_err();
    assert_eq!(refused, NotRecordable::StrayTensorMap { place: first(4) });
}

#[test]
fn unknown_tensor_maps_are_refused() {
    let mut world = world();
    world.maps.push(map(address(INPUT, 0)));
    world.forward.push(node(mapped(0, address(RESULT, 0))));
    for index in [2u64, 1 << 32, u64::MAX] {
        let mut both = recordings(&world);
        for recording in &mut both {
            args(recording, 4)[0].replace_range(16..32, &hex(&index.to_le_bytes()));
        }
        let refused = world.merge([&both[0], &both[1]]).unwrap_err();
        assert_eq!(refused, NotRecordable::StrayTensorMap { place: first(4) });
    }
}

#[test]
fn memory_of_others_is_refused() {
    let mut world = world();
    world.forward.push(node(Op::Fill(fill(memory(RESULT, 0)))));
    let mut both = recordings(&world);
    for (recording, at) in both.iter_mut().zip([0x1234_0000, 0x5678_0000]) {
        let RecordedOp::Fill { to, .. } = &mut recording.nodes[9].op else { unreachable!() };
        *to = warpwright_plan::RecordedMemory::Address(at);
    }
    let refused = world.merge([&both[0], &both[1]]).unwrap_err();
    assert_eq!(refused, NotRecordable::ForeignMemory { place: place(4) });
}

#[test]
fn memory_is_used_only_while_it_is_allocated() {
    let mut late = world();
    late.forward.push(node(scale(address(RESULT, 0), address(SCRATCH, 0))));
    assert_eq!(refusal(&late), NotRecordable::Lifetime { place: first(4) });
    let mut at_once = world();
    at_once.forward[2] = node(scale(address(RESULT, 0), address(SCRATCH, 0)));
    assert_eq!(refusal(&at_once), NotRecordable::Lifetime { place: first(2) });
    let mut early = world();
    early.forward.insert(0, node(scale(address(RESULT, 0), address(INPUT, 0))));
    assert_eq!(refusal(&early), NotRecordable::Lifetime { place: first(0) });
}

#[test]
fn inputs_of_an_earlier_call_are_refused() {
    let refused = refusal_of_both(|recording| {
        let [earlier, _] = &recording.inputs;
        args(recording, 4)[1] = hex(&earlier[0].to_le_bytes());
    });
    assert_eq!(refused, NotRecordable::EarlierInput { place: place(0) });
    let mut world = world();
    world.prepare.push(node(scale(address(WEIGHT, 0), address(INPUT, 0))));
    let place = Place { phase: Phase::Prepare, index: 0 };
    assert_eq!(refusal(&world), NotRecordable::ForeignMemory { place });
}

#[test]
fn launches_in_the_constructor_are_refused() {
    let refused = refusal_of_both(|recording| {
        let mut node = recording.nodes[0].clone();
        node.phase = Phase::Init;
        recording.nodes.insert(0, node);
    });
    assert_eq!(refused, NotRecordable::LaunchesInConstructor);
    let refused = refusal_of_both(|recording| recording.nodes[7].phase = Phase::First);
    assert_eq!(refused, recorder("operations are not in order"));
}

#[test]
fn work_of_the_first_call_only_is_refused() {
    let refused = refusal_of_both(|recording| {
        recording.nodes.remove(6);
    });
    assert_eq!(refused, detail(": 4 operations, then 3"));
    let refused = refusal_of_both(|recording| args(recording, 0)[2] = "08000000".into());
    assert_eq!(refused, detail(" (operation 0)"));
}

#[test]
fn streams_must_be_joined() {
    let mut world = world();
    world.forward.insert(3, on_stream(1, &[0], scale(address(RESULT, 256), address(INPUT, 0))));
    assert_eq!(refusal(&world), NotRecordable::NotJoined { place: place(3) });
    let merges = |world: &World| {
        let [one, other] = recordings(world);
        world.merge([&one, &other]).is_ok()
    };
    let mut at_the_end = world.clone();
    at_the_end.joined = vec![3];
    assert!(merges(&at_the_end));
    let mut later = world.clone();
    later.forward[4].after = vec![3];
    assert!(merges(&later));
    // By way of another stream.
    later.forward[4].after.clear();
    later.forward.push(on_stream(2, &[3], scale(address(RESULT, 256), address(INPUT, 0))));
    assert_eq!(refusal(&later), NotRecordable::NotJoined { place: place(5) });
    later.joined = vec![5];
    assert!(merges(&later));
}

#[test]
fn unknown_libraries_and_images_are_refused() {
    let refused =
        refusal_of_both(|recording| recording.modules[0].library = "libfoo\u{7}.so".into());
    assert_eq!(refused, recorder("the artifact has no library libfoo .so"));
    let refused = refusal_of_both(|recording| recording.modules[0].address += 8);
    assert!(matches!(refused, NotRecordable::Image { .. }), "{refused}");
    let refused = refusal_of_both(|recording| recording.kernels[0].module = 1);
    assert_eq!(refused, recorder("a module does not exist"));
}

#[test]
fn variables_that_do_not_exist_are_refused() {
    let mut world = world();
    let symbol = |name: &str| Memory::Symbol { module: 0, name: name.to_owned(), offset: 240 };
    let mut to = upload(symbol("table"), None);
    to.bytes.truncate(16);
    world.forward.push(node(Op::Upload(to.clone())));
    let [one, other] = recordings(&world);
    assert!(world.merge([&one, &other]).is_ok());
    for (name, bytes, rule) in [
        ("table", 17, "it reaches beyond its variable"),
        ("absent", 16, "a variable does not exist"),
    ] {
        let mut to = upload(symbol(name), None);
        to.bytes.truncate(bytes);
        world.forward[4] = node(Op::Upload(to));
        assert_eq!(
            refusal(&world),
            NotRecordable::Invalid(Invalid::Part { part: Part::Forward(4), rule })
        );
    }
}

#[test]
fn launches_that_cuda_refuses_are_refused() {
    let mut world = world();
    let Op::Launch(launch) = &mut world.forward[0].op else { unreachable!() };
    launch.block = [1025, 1, 1];
    let rule = "its block has a size that CUDA does not allow";
    assert_eq!(
        refusal(&world),
        NotRecordable::Invalid(Invalid::Part { part: Part::Forward(0), rule })
    );
}

#[test]
fn modules_that_need_the_device_runtime_are_named() {
    let world = world();
    let mut both = recordings(&world);
    for recording in &mut both {
        recording.modules[0].address = crate::fixture::fatbins()[1].start as u64;
        recording.nodes.clear();
        recording.kernels.truncate(1);
        recording.kernels[0].name = "prints".into();
        let launch = |phase| warpwright_plan::RecordedNode {
            phase,
            stream: 0,
            after: Vec::new(),
            op: RecordedOp::Launch {
                kernel: 0,
                grid: [1; 3],
                block: [1; 3],
                shared: 0,
                cluster: None,
                cooperative: false,
                programmatic: false,
                args: vec!["01000000".into()],
            },
        };
        recording.nodes = vec![launch(Phase::First), launch(Phase::Second)];
        recording.outputs.tensors.clear();
        recording.outputs.tree = serde_json::json!({"value": null});
    }
    let merged = world.merge([&both[0], &both[1]]).unwrap();
    assert!(merged.needs.contains("vprintf"));
}
