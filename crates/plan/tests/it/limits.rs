//! What would take too much of the judge, the replayer or the device.

use std::collections::BTreeMap;

use warpwright_plan::image::{Image, ImageError, fatbins as listed};
use warpwright_plan::limits::{MAX_BLOCKS, MAX_MODULE_BYTES, MAX_TENSORS};
use warpwright_plan::{
    Invalid, LaunchPlan, Memory, Merged, NotRecordable, Op, Part, RecordedKernel, RecordedModule,
    Recording,
};

use crate::fixture::{FILE, HOGS, LIBRARY, fatbins};
use crate::model::{Kind, Piece, World};
use crate::refusals::refusal;
use crate::small::{
    BYTES, RESULT, address, launch, node, output, pointers, recordings, upload, world,
};

/// Images of the hogs: of `hog.cu`, then of `deep.cu`.
fn hogs() -> [(u64, Image); 2] {
    let all = listed(HOGS).unwrap();
    [0, 1].map(|index| {
        let (address, range) = all[index].clone();
        (address, Image::read(&HOGS[range]).unwrap())
    })
}

/// Merges the small candidate after it launched kernels of the hogs, by the number of the fat binary.
fn with_hogs(kernels: &[(usize, &str)]) -> Result<Merged, NotRecordable> {
    let world = world();
    let mut both = recordings(&world);
    for recording in &mut both {
        for (address, _) in hogs() {
            recording.modules.push(RecordedModule { library: "libhogs.so".into(), address });
        }
        for (hog, name) in kernels {
            let kernel = recording.kernels[0].clone();
            let module = *hog as u32 + 1;
            recording.kernels.push(RecordedKernel { module, name: (*name).into(), ..kernel });
        }
    }
    world.merge([&both[0], &both[1]])
}

#[test]
fn images_count_what_they_keep_on_the_device() {
    let sizes = hogs().map(|(_, image)| image.loaded_bytes >> 20);
    assert_eq!(sizes, [200, 100]);
    let [range, _] = fatbins();
    let honest = Image::read(&LIBRARY[range.clone()]).unwrap();
    assert!((260..range.len() as u64).contains(&honest.loaded_bytes), "{}", honest.loaded_bytes);
}

#[test]
fn variables_of_all_modules_count_together() {
    for alone in [(0, "reads"), (1, "writes")] {
        assert!(with_hogs(&[alone]).is_ok(), "{alone:?}");
    }
    let refused = with_hogs(&[(0, "reads"), (1, "writes")]).unwrap_err().to_string();
    let text = "bytes of __device__ and __constant__ variables and of code; at most 268435456";
    assert!(refused.contains(text), "{refused}");
}

#[test]
fn kernels_with_much_local_memory_are_refused() {
    let refused = with_hogs(&[(1, "deep")]).unwrap_err();
    let expected =
        NotRecordable::LocalMemory { kernel: "deep".into(), bytes: 80 << 10, most: 64 << 10 };
    assert_eq!(refused, expected);
}

#[test]
fn plans_that_take_too_much_are_not_valid() {
    let (plan, _) = world().plan();
    let [range, _] = fatbins();
    let image = Image::read(&LIBRARY[range]).unwrap();
    let check = |plan: &LaunchPlan, image: &Image| plan.check(std::slice::from_ref(image));
    assert_eq!(check(&plan, &image), Ok(()));
    let broken = |part, rule| Err(Invalid::Part { part, rule });
    let mut large = plan.clone();
    large.modules[0].bytes = MAX_MODULE_BYTES + 1;
    assert_eq!(check(&large, &image), broken(Part::Modules, "too many bytes"));
    let [(_, hog), (_, deep)] = hogs();
    let hog = Image { loaded_bytes: hog.loaded_bytes + deep.loaded_bytes, ..image.clone() };
    let rule = "too many bytes of code and variables";
    assert_eq!(check(&plan, &hog), broken(Part::Modules, rule));
    let mut deep = image;
    deep.kernels.get_mut("scale").unwrap().local = (64 << 10) + 1;
    assert_eq!(check(&plan, &deep), broken(Part::Kernel(0), "it takes too much local memory"));
}

#[test]
fn a_fat_binary_named_twice_is_one_module() {
    let mut world = world();
    let table = Memory::Symbol { module: 0, name: "table".into(), offset: 0 };
    world.forward.push(node(Op::Upload(upload(table, None))));
    let mut both = recordings(&world);
    for recording in &mut both {
        recording.modules = vec![recording.modules[0].clone(); 256];
        for (kernel, module) in recording.kernels.iter_mut().zip([3, 255, 0, 7, 3]) {
            kernel.module = module;
        }
        of_symbols(recording, 200);
    }
    let merged = world.merge([&both[0], &both[1]]).unwrap();
    assert_eq!((merged.plan.modules.len(), merged.plan), (1, world.plan().0));
    for recording in &mut both {
        of_symbols(recording, 256);
    }
    let refused = world.merge([&both[0], &both[1]]).unwrap_err();
    assert_eq!(refused.to_string(), "the recording is not valid: a module does not exist");
}

/// Lets every upload to a variable name this module.
fn of_symbols(recording: &mut Recording, number: u32) {
    use warpwright_plan::{RecordedMemory, RecordedOp};
    for node in &mut recording.nodes {
        if let RecordedOp::Upload { to: RecordedMemory::Symbol { module, .. }, .. } = &mut node.op {
            *module = number;
        }
    }
}

/// The fixture library with a section of its first fat binary and of one of `bytes` that is no image.
fn forged(bytes: u64) -> (Vec<u8>, u64) {
    let mut library = LIBRARY.to_vec();
    let word = |at: usize| u64::from_le_bytes(LIBRARY[at..at + 8].try_into().unwrap());
    let [range, _] = fatbins();
    let headers = (word(0x28) as usize..).step_by(64);
    let mut headers = headers.take(LIBRARY[0x3c].into());
    let header = headers.find(|at| word(at + 24) == range.start as u64).unwrap();
    let start = library.len().next_multiple_of(8);
    library.resize(start, 0);
    library.extend_from_slice(&LIBRARY[range.clone()]);
    let second = library.len() as u64;
    library.extend_from_slice(&LIBRARY[range.start..range.start + 8]);
    library.extend_from_slice(&(bytes - 16).to_le_bytes());
    library.resize(library.len() + bytes as usize - 16, 0);
    let section = [start as u64, start as u64, library.len() as u64 - start as u64];
    for (field, value) in section.into_iter().enumerate() {
        let at = header + 16 + 8 * field;
        library[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    (library, second)
}

#[test]
fn images_of_all_modules_count_together() {
    let [range, _] = fatbins();
    let world = world();
    let with = |more: u64| {
        let (library, second) = forged(MAX_MODULE_BYTES - range.len() as u64 + more);
        let first = second - range.len() as u64;
        let mut both = recordings(&world);
        for recording in &mut both {
            recording.modules[0].address = first;
            let module = RecordedModule { library: FILE.into(), address: second };
            recording.modules.push(module);
            let kernel = RecordedKernel { module: 1, ..recording.kernels[0].clone() };
            recording.kernels.push(kernel);
        }
        let contents = world.contents();
        let read = |block: u32| contents.get(&block).cloned();
        let libraries = BTreeMap::from([(FILE.to_owned(), library)]);
        world.merge_from(&libraries, [&both[0], &both[1]], [&read, &read]).unwrap_err()
    };
    // Within the limit it is read, and is no image.
    let malformed = |why: &NotRecordable| {
        matches!(why, NotRecordable::Image { source: ImageError::Malformed { .. }, .. })
    };
    assert!(malformed(&with(0)), "{}", with(0));
    let expected = NotRecordable::TooMuch {
        what: "bytes of device images",
        found: MAX_MODULE_BYTES + 8,
        most: MAX_MODULE_BYTES,
    };
    assert_eq!(with(8), expected);
}

/// A candidate whose call uses so many blocks beside those of the small one.
fn scattered(count: usize) -> World {
    let mut world = world();
    let first = world.pieces.len() as u32;
    let piece = Piece { bytes: 512, kind: Kind::Call { born: 0, freed: None } };
    world.pieces.resize(world.pieces.len() + count, piece);
    let blocks: Vec<u32> = (first..first + count as u32).collect();
    for blocks in blocks.chunks(800) {
        let places: Vec<_> =
            blocks.iter().zip(0..).map(|(block, at)| (8 * at, address(*block, 0))).collect();
        let result = pointers(vec![0; 8], &[(0, address(RESULT, BYTES - 512))]);
        let args = vec![pointers(vec![0; 6400], &places), result];
        world.forward.push(node(Op::Launch(launch(3, args))));
    }
    world
}

#[test]
fn too_many_used_blocks_are_refused() {
    let world = scattered(MAX_BLOCKS - 5);
    let [one, other] = recordings(&world);
    assert_eq!(world.merge([&one, &other]).unwrap().plan.blocks.len(), MAX_BLOCKS);
    let refused = refusal(&scattered(MAX_BLOCKS - 4));
    let what = "pieces of memory";
    let expected = NotRecordable::TooMuch { what, found: 4097, most: 4096 };
    assert_eq!(refused, expected);
}

#[test]
fn too_many_results_are_refused() {
    let mut world = world();
    world.outputs = vec![output(RESULT); MAX_TENSORS];
    let [one, other] = recordings(&world);
    assert!(world.merge([&one, &other]).is_ok());
    world.outputs.push(output(RESULT));
    let expected = NotRecordable::TooMuch { what: "results", found: 4097, most: 4096 };
    assert_eq!(refusal(&world), expected);
}
