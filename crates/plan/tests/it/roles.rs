//! What blocks of a plan hold: weights, tables, inputs, results.

use warpwright_plan::limits::{MAX_CONSTANT_BYTES, MAX_ZERO_BYTES};
use warpwright_plan::{Block, Invalid, NotRecordable, Op, Part, Role};

use crate::model::{Kind, Piece, World};
use crate::refusals::{differs, recorder, refusal, refusal_of_both, refusal_of_one};
use crate::small::{
    BYTES, INPUT, RESULT, SCRATCH, TABLE, WEIGHT, args, fill, memory, node, output, recordings,
    world,
};

#[test]
fn large_tables_are_refused() {
    let mut world = world();
    let bytes = 65 << 20;
    world.pieces[TABLE as usize] = Piece { bytes, kind: Kind::Table(vec![1; bytes as usize]) };
    assert!(matches!(refusal(&world), NotRecordable::TooMuch { found, .. } if found == bytes));
}

#[test]
fn huge_blocks_are_refused_unread() {
    let mut world = world();
    world.pieces[TABLE as usize].bytes = 1 << 40;
    let [one, other] = recordings(&world);
    let (contents, table) = (world.contents(), world.block(TABLE as usize) as u32);
    let read = |block: u32| {
        assert_ne!(block, table, "a huge block was read");
        contents.get(&block).cloned()
    };
    let refused = world.merge_with([&one, &other], [&read, &read]).unwrap_err();
    assert!(matches!(refused, NotRecordable::TooMuch { found, .. } if found == 1 << 40));
    // What else takes its name is not read either.
    let mut both = [one, other];
    for recording in &mut both {
        recording.weights[0].address = recording.blocks[table as usize].address;
    }
    let refused = world.merge_with([&both[0], &both[1]], [&read, &read]).unwrap_err();
    assert!(matches!(refused, NotRecordable::TooMuch { found, .. } if found == (1 << 40) + BYTES));
    // Tables count together.
    world.pieces[TABLE as usize].bytes = MAX_CONSTANT_BYTES;
    world.pieces[WEIGHT as usize].kind = Kind::Table(vec![1; BYTES as usize]);
    let (refused, expected) = (refusal(&world), MAX_CONSTANT_BYTES + BYTES);
    assert!(matches!(refused, NotRecordable::TooMuch { found, .. } if found == expected));
}

#[test]
fn huge_weights_are_read() {
    let mut world = world();
    // Allocators round up.
    let bytes = MAX_CONSTANT_BYTES + 260;
    let piece = Piece { bytes: bytes + 100, kind: Kind::Weight(vec![3; bytes as usize]) };
    world.pieces[WEIGHT as usize] = piece;
    let [one, other] = recordings(&world);
    let mut contents = world.contents();
    let weight = world.block(WEIGHT as usize) as u32;
    contents.get_mut(&weight).unwrap().resize(bytes as usize + 100, 0);
    let read = |block: u32| contents.get(&block).cloned();
    let merged = world.merge_with([&one, &other], [&read, &read]).unwrap();
    assert_eq!(merged.plan.blocks[0], Block { bytes, role: Role::Weight(0) });
    let changed = |block: u32| {
        let mut bytes = contents.get(&block).cloned()?;
        bytes[77] ^= u8::from(block == weight);
        Some(bytes)
    };
    let refused = world.merge_with([&one, &other], [&changed, &changed]).unwrap_err();
    assert!(matches!(refused, NotRecordable::TooMuch { found, .. } if found == bytes + 100));
}

#[test]
fn weights_of_one_name_are_refused() {
    let refused = refusal_of_both(|recording| {
        let again = recording.weights[0].clone();
        recording.weights.push(again);
    });
    assert_eq!(refused, recorder("two weights have one name"));
}

#[test]
fn short_zeros_are_constants() {
    let with = |kind: Kind, bytes: u64| {
        let mut world = world();
        world.pieces[TABLE as usize] = Piece { bytes, kind };
        let [one, other] = recordings(&world);
        let merged = world.merge([&one, &other]).unwrap();
        assert_eq!((&merged.plan, &merged.constants), (&world.plan().0, &world.plan().1));
        merged.plan
    };
    let table = |bytes: u64| with(Kind::Table(vec![1; bytes as usize]), bytes);
    let zeros = |bytes| with(Kind::Zeros, bytes);
    // A table that is zero with one set of weights makes no other plan.
    assert!(zeros(BYTES).same_but_constants(&table(BYTES)));
    assert!(zeros(MAX_ZERO_BYTES).same_but_constants(&table(MAX_ZERO_BYTES)));
    assert_ne!(zeros(BYTES), table(BYTES));
    let long = zeros(MAX_ZERO_BYTES + BYTES);
    assert_eq!((long.blocks[1].role, long.prepare.len()), (Role::Kept, 1));
}

#[test]
fn results_kept_from_the_first_call_are_refused() {
    // The second call adds to what the first one made.
    let world = world();
    let refused = refusal_of_both(|recording| {
        let first_result = args(recording, 1)[0][..16].to_owned();
        args(recording, 5)[0].replace_range(32..48, &first_result);
    });
    assert!(matches!(refused, NotRecordable::SecondCallDiffers { .. }), "{refused}");
    let mut both = recordings(&world);
    for recording in &mut both {
        let text = args(recording, 1)[0][..16].to_owned();
        let bytes: Vec<u8> =
            (0..8).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
        recording.outputs.tensors[0].address = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    let refused = world.merge([&both[0], &both[1]]).unwrap_err();
    assert_eq!(refused, NotRecordable::ForeignOutput { output: 0 });
}

#[test]
fn tables_that_differ_are_refused() {
    let world = world();
    let [one, other] = recordings(&world);
    let contents = world.contents();
    let table = world.block(TABLE as usize) as u32;
    let read = |block: u32| contents.get(&block).cloned();
    let changed = |block: u32| {
        let mut bytes = contents.get(&block).cloned()?;
        bytes[77] ^= u8::from(block == table);
        Some(bytes)
    };
    assert!(world.merge_with([&one, &other], [&read, &read]).is_ok());
    let refused = world.merge_with([&one, &other], [&read, &changed]).unwrap_err();
    assert_eq!(refused, NotRecordable::Contents { bytes: BYTES });
    let short = |block: u32| contents.get(&block).map(|bytes| bytes[1..].to_vec());
    for missing in [&|_: u32| None as Option<Vec<u8>>, &short as &dyn Fn(u32) -> Option<Vec<u8>>] {
        let refused = world.merge_with([&one, &other], [&read, missing]).unwrap_err();
        assert_eq!(refused, recorder("the contents of a block are missing"));
    }
}

#[test]
fn changed_weights_become_constants() {
    let world = world();
    let [one, other] = recordings(&world);
    let weight = world.block(WEIGHT as usize) as u32;
    let contents = world.contents();
    let changed = |block: u32| {
        let mut bytes = contents.get(&block).cloned()?;
        bytes[77] ^= u8::from(block == weight);
        Some(bytes)
    };
    let merged = world.merge_with([&one, &other], [&changed, &changed]).unwrap();
    let roles: Vec<Role> = merged.plan.blocks.iter().map(|block| block.role).collect();
    assert_eq!(roles[..2], [Role::Constant(0), Role::Constant(1)]);
    assert_eq!(merged.constants[0], changed(weight).unwrap());
    // Such plans of two sets of weights differ in nothing else.
    let (plan, _) = world.plan();
    assert!(!merged.plan.same_but_constants(&plan));
    let mut again = merged.plan.clone();
    again.constants[0].hash = "0".repeat(64);
    assert!(merged.plan.same_but_constants(&again));
    again.forward[0].stream = 1;
    assert!(!merged.plan.same_but_constants(&again));
}

#[test]
fn the_first_name_of_a_shared_weight_counts() {
    let mut world = world();
    world.pieces.insert(1, world.pieces[WEIGHT as usize].clone());
    // Nothing uses the second weight; both names now mean the first one's block.
    let shifted = shifted(&world);
    let mut both = recordings(&shifted);
    for recording in &mut both {
        recording.weights[1].address = recording.weights[0].address;
    }
    let merged = shifted.merge([&both[0], &both[1]]).unwrap();
    assert_eq!(merged.plan.blocks[0].role, Role::Weight(0));
}

/// The small candidate whose pieces behind the first moved by one.
fn shifted(world: &World) -> World {
    let text = |nodes: &[warpwright_plan::Node]| serde_json::to_string(nodes).unwrap();
    let mut forward = text(&world.forward);
    for block in (1..=RESULT).rev() {
        forward =
            forward.replace(&format!("\"block\":{block},"), &format!("\"block\":{},", block + 1));
    }
    World {
        forward: serde_json::from_str(&forward).unwrap(),
        outputs: vec![output(RESULT + 1)],
        ..world.clone()
    }
}

#[test]
fn foreign_results_are_refused() {
    let mut of_weight = world();
    of_weight.outputs = vec![output(RESULT), output(WEIGHT)];
    assert_eq!(refusal(&of_weight), NotRecordable::ForeignOutput { output: 1 });
    let mut freed = world();
    freed.outputs = vec![output(SCRATCH)];
    assert_eq!(refusal(&freed), NotRecordable::ForeignOutput { output: 0 });
    let refused = refusal_of_both(|recording| recording.outputs.tensors[0].address = 8);
    assert_eq!(refused, NotRecordable::ForeignOutput { output: 0 });
    let refused = refusal_of_both(|recording| recording.outputs.tensors[0].shape = vec![0, 8]);
    assert_eq!(refused, NotRecordable::EmptyOutput { output: 0 });
    let refused =
        refusal_of_one(|recording| recording.outputs.tree = serde_json::json!({"value": 1}));
    assert_eq!(refused, differs("the structure of the result or a number in it"));
    let refused = refusal_of_both(|recording| recording.outputs.tensors[0].strides = vec![1024, 1]);
    let rule = "it reaches beyond its block";
    assert_eq!(refused, NotRecordable::Invalid(Invalid::Part { part: Part::Output(0), rule }));
}

#[test]
fn inputs_that_lie_elsewhere_are_refused() {
    let refused = refusal_of_both(|recording| recording.inputs[1][0] += 8);
    assert_eq!(refused, recorder("an input or argument begins no allocation"));
    let refused = refusal_of_both(|recording| recording.inputs[1] = recording.inputs[0].clone());
    assert_eq!(refused, recorder("two inputs lie in one allocation"));
    let refused = refusal_of_both(|recording| recording.inputs[1].clear());
    assert_eq!(refused, recorder("the number of inputs or arguments is another"));
}

#[test]
fn calls_without_work_are_refused() {
    let mut world = world();
    world.forward = vec![node(Op::Fill(fill(memory(RESULT, 0)))); 2];
    world.pieces[RESULT as usize].kind = Kind::Call { born: 0, freed: None };
    assert_eq!(refusal(&world), NotRecordable::LaunchesNothing);
    // A view of an input needs none.
    world.forward.clear();
    world.pieces.truncate(SCRATCH as usize);
    world.outputs = vec![output(INPUT)];
    let [one, other] = recordings(&world);
    assert_eq!(world.merge([&one, &other]).unwrap().plan, world.plan().0);
}
