//! Recordings of described candidates become the described plan, and changed ones are refused.

use proptest::prelude::*;
use serde_json::Value;
use warpwright_plan::image::Image;
use warpwright_plan::limits::MAX_ZERO_BYTES;
use warpwright_plan::{
    Address, Gemm, LaunchPlan, Memory, NotRecordable, Op, RecordedOp, Recording,
};

use crate::fixture::{LIBRARY, SYMBOLS, fatbins};
use crate::json;
use crate::model::{Kind, Piece, World};
use crate::recorded::{Random, hex};
use crate::small::{
    BYTES, address, convolution, copy, fill, gather, gemm, gemv, launch, map, mapped, matmul,
    on_stream, output, pointers, scale, upload,
};

/// A candidate that `random` decides.
fn random_world(random: &mut Random) -> World {
    let bytes =
        |random: &mut Random| -> Vec<u8> { (0..BYTES).map(|_| random.next() as u8).collect() };
    let mut kinds = Vec::new();
    kinds.extend((0..=random.below(3)).map(|_| Kind::Weight(bytes(random))));
    kinds.extend((0..random.below(2)).map(|_| Kind::Init(bytes(random))));
    kinds.extend((0..random.below(3)).map(|_| Kind::Table(bytes(random))));
    kinds.extend((0..random.below(3)).map(|_| Kind::Zeros));
    kinds.extend((0..random.below(2)).map(|_| Kind::Prepared));
    kinds.extend((0..random.below(2)).map(|_| Kind::Workspace));
    let prepared = kinds.len() - usize::from(kinds.last() == Some(&Kind::Workspace));
    kinds.extend((0..=random.below(2) as u32).map(Kind::Input));
    let nodes = 3 + random.below(9) as u32;
    // The result lives throughout, so that each operation has something to write to.
    kinds.push(Kind::Call { born: 0, freed: None });
    for _ in 0..random.below(4) {
        let born = random.below(nodes.into()) as u32;
        let rest = nodes - born;
        let freed = (random.below(2) == 0).then(|| born + random.below(u64::from(rest) + 1) as u32);
        kinds.push(Kind::Call { born, freed });
    }
    let long_zeros = random.below(4) == 0;
    let size = |kind: &Kind| match kind {
        Kind::Zeros if long_zeros => MAX_ZERO_BYTES + BYTES,
        _ => BYTES,
    };
    let mut world = World {
        pieces: kinds.into_iter().map(|kind| Piece { bytes: size(&kind), kind }).collect(),
        ..World::default()
    };
    let result =
        world.pieces.iter().position(|p| matches!(p.kind, Kind::Call { .. })).unwrap() as u32;
    for index in 0..random.below(3) {
        let blocks: Vec<u32> = (0..prepared as u32).collect();
        let stream = random.below(3) as u32;
        let after = if index > 0 && random.below(2) == 0 { vec![0] } else { Vec::new() };
        let op = random_op(random, &blocks, &mut world);
        world.prepare.push(on_stream(stream, &after, op));
    }
    let mut last = [None; 3];
    for index in 0..nodes {
        let alive = |piece: &Piece| match piece.kind {
            Kind::Call { born, freed } => born <= index && freed.is_none_or(|freed| index < freed),
            _ => true,
        };
        let blocks: Vec<u32> = world
            .pieces
            .iter()
            .zip(0..)
            .filter(|(piece, _)| alive(piece))
            .map(|(_, i)| i)
            .collect();
        let stream = random.below(8).saturating_sub(5) as u32;
        let after = if index > 0 && random.below(3) == 0 {
            vec![random.below(index.into()) as u32]
        } else {
            Vec::new()
        };
        let op = if index == 0 {
            scale(address(result, 0), address(*blocks.last().unwrap(), 256))
        } else {
            random_op(random, &blocks, &mut world)
        };
        last[stream as usize] = Some(index);
        world.forward.push(on_stream(stream, &after, op));
    }
    world.joined = last.iter().skip(1).filter_map(|index| *index).collect();
    world.outputs = vec![output(result)];
    if random.below(3) == 0 {
        world.outputs.push(output(result - 1));
    }
    world
}

fn random_op(random: &mut Random, blocks: &[u32], world: &mut World) -> Op {
    let at = |random: &mut Random| -> Address {
        address(blocks[random.below(blocks.len() as u64) as usize], random.below(64) * 64)
    };
    match random.below(15) {
        0 | 1 => scale(at(random), at(random)),
        2 => gather(at(random), at(random)),
        3 => {
            world.maps.push(map(at(random)));
            mapped(world.maps.len() as u32 - 1, at(random))
        }
        4 => {
            let bytes: Vec<u8> = (0..6400).map(|_| random.next() as u8).collect();
            let inside = random.below(800) as u32 * 8;
            let args = vec![
                pointers(bytes, &[(inside, at(random))]),
                pointers(vec![0; 8], &[(0, at(random))]),
            ];
            Op::Launch(launch(3, args))
        }
        5 => Op::Launch(launch(4, Vec::new())),
        6 => Op::Fill(fill(Memory::Block(at(random)))),
        7 => Op::Copy(copy(Memory::Block(at(random)), Memory::Block(at(random)))),
        8 => {
            let pointer = (random.below(2) == 0).then(|| at(random));
            Op::Upload(upload(Memory::Block(at(random)), pointer))
        }
        9 => {
            let (name, _) = SYMBOLS[1];
            let symbol =
                Memory::Symbol { module: 0, name: name.to_owned(), offset: 4 * random.below(40) };
            Op::Upload(upload(symbol, None))
        }
        14 => {
            let bias = (random.below(2) == 0).then(|| at(random));
            Op::Matmul(Box::new(matmul([(); 4].map(|()| at(random)), bias)))
        }
        12 => Op::Gemv(Box::new(gemv([at(random), at(random), at(random)]))),
        13 => {
            let product = gemm([at(random), at(random), at(random)]);
            Op::Gemm(Box::new(Gemm { pointers: true, ..product }))
        }
        10 => Op::Convolution(Box::new(convolution([(); 5].map(|()| at(random))))),
        _ => Op::Gemm(Box::new(gemm([at(random), at(random), at(random)]))),
    }
}

fn images(plan: &LaunchPlan) -> Vec<Image> {
    plan.modules.iter().map(|_| Image::read(&LIBRARY[fatbins()[0].clone()]).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn recordings_become_the_described_plan(seed in any::<u64>(), layouts in any::<[u64; 2]>()) {
        prop_assume!(layouts[0] != layouts[1]);
        let world = random_world(&mut Random(seed));
        let recordings = layouts.map(|layout| world.record(layout));
        let merged = world.merge([&recordings[0], &recordings[1]]).unwrap();
        let (plan, constants) = world.plan();
        prop_assert_eq!(&merged.plan, &plan);
        prop_assert_eq!(merged.constants, constants);
        prop_assert!(merged.needs.is_empty());
        prop_assert_eq!(merged.plan.check(&images(&plan)), Ok(()));
        // Both survive being written.
        let text = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(serde_json::from_str::<LaunchPlan>(&text).unwrap(), plan);
        let text = serde_json::to_vec(&recordings[0]).unwrap();
        prop_assert_eq!(&Recording::parse(&text).unwrap(), &recordings[0]);
    }

    #[test]
    fn one_changed_argument_word_is_refused(seed in any::<u64>(), choice in any::<u64>()) {
        let world = random_world(&mut Random(seed));
        let (one, mut other) = (world.record(1), world.record(2));
        prop_assert!(world.merge([&one, &other]).is_ok());
        let mut random = Random(choice);
        let launches: Vec<usize> = (0..other.nodes.len())
            .filter(|index| matches!(&other.nodes[*index].op, RecordedOp::Launch { args, .. } if !args.is_empty()))
            .collect();
        let node = launches[random.below(launches.len() as u64) as usize];
        let RecordedOp::Launch { args, .. } = &mut other.nodes[node].op else { unreachable!() };
        let index = random.below(args.len() as u64) as usize;
        let argument = &mut args[index];
        let at = random.below(argument.len() as u64 / 2) as usize * 2;
        let old = u8::from_str_radix(&argument[at..at + 2], 16).unwrap();
        let new = old ^ (1 << random.below(8));
        argument.replace_range(at..at + 2, &hex(&[new]));
        prop_assert!(world.merge([&one, &other]).is_err());
        prop_assert!(world.merge([&other, &one]).is_err());
    }

    #[test]
    fn one_dropped_operation_is_refused(seed in any::<u64>(), choice in any::<prop::sample::Index>()) {
        let world = random_world(&mut Random(seed));
        let (one, mut other) = (world.record(1), world.record(2));
        other.nodes.remove(choice.index(other.nodes.len()));
        prop_assert_eq!(
            world.merge([&one, &other]).unwrap_err(),
            NotRecordable::Differs { what: "the number of launches and copies".into() }
        );
    }

    #[test]
    fn one_changed_block_is_refused(seed in any::<u64>(), choice in any::<prop::sample::Index>(), kind in 0..4) {
        let world = random_world(&mut Random(seed));
        let (one, mut other) = (world.record(1), world.record(2));
        let index = choice.index(other.blocks.len());
        let block = &mut other.blocks[index];
        match kind {
            0 => block.bytes += 512,
            1 => block.open = !block.open,
            2 => block.born += 1,
            _ => { other.blocks.remove(index); }
        }
        let refused = world.merge([&one, &other]).unwrap_err();
        let expected = matches!(refused, NotRecordable::Differs { .. } | NotRecordable::Recorder { .. });
        prop_assert!(expected, "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn recordings_with_changed_fields_never_panic(seed in any::<u64>(), choices in any::<[u64; 24]>()) {
        let world = random_world(&mut Random(seed));
        let values: [Value; 2] = [1, 2].map(|layout| serde_json::to_value(world.record(layout)).unwrap());
        let paths = json::fields(&values[0]);
        for choice in choices {
            let path = &paths[choice as usize % paths.len()];
            // A tampered recorder lies twice, alike; a bug may lie once.
            let both = choice % 2 == 0;
            let Some(one) = json::changed(&values[0], path, choice >> 8) else { continue };
            let other = if both { json::changed(&values[1], path, choice >> 8) } else { None };
            let other = other.unwrap_or_else(|| values[1].clone());
            let parsed = [one, other].map(|value| Recording::parse(value.to_string().as_bytes()));
            if let [Ok(one), Ok(other)] = parsed && let Ok(merged) = world.merge([&one, &other]) {
                prop_assert_eq!(merged.plan.check(&images(&merged.plan)), Ok(()));
            }
        }
    }

    #[test]
    fn plans_with_changed_fields_never_panic(seed in any::<u64>(), choices in any::<[u64; 32]>()) {
        let (plan, _) = random_world(&mut Random(seed)).plan();
        let value = serde_json::to_value(&plan).unwrap();
        let paths = json::fields(&value);
        let images = images(&plan);
        for choice in choices {
            let path = &paths[choice as usize % paths.len()];
            let changed = json::changed(&value, path, choice >> 8);
            let changed = changed.and_then(|value| serde_json::from_value::<LaunchPlan>(value).ok());
            if let Some(changed) = changed {
                let _ = changed.check(&images);
            }
        }
    }
}
