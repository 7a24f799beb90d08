//! The fixture library, and what a reader of its source knows about it.

use std::collections::BTreeMap;
use std::ops::Range;

use warpwright_plan::{Kernel, Module};

pub(crate) const LIBRARY: &[u8] = include_bytes!("../fixtures/libkernels.so");
pub(crate) const HOGS: &[u8] = include_bytes!("../fixtures/libhogs.so");
pub(crate) const LAUNCHES: &[u8] = include_bytes!("../fixtures/launches.cubin");
pub(crate) const COMPRESSED: &[u8] = include_bytes!("../fixtures/compressed.fatbin");
pub(crate) const PTX: &[u8] = include_bytes!("../fixtures/ptx.fatbin");
pub(crate) const FILE: &str = "libkernels.so";

/// Kernels of the first fat binary that the tests launch, with the sizes of their parameters.
pub(crate) const KERNELS: [(&str, &[u32]); 5] = [
    ("scale", &[8, 8, 4, 4]),
    ("gather", &[24, 4]),
    ("mapped", &[128, 4, 8]),
    ("large", &[6400, 8]),
    ("nothing", &[]),
];
/// Variables of the first fat binary.
pub(crate) const SYMBOLS: [(&str, u64); 2] = [("counter", 4), ("table", 256)];

/// Places of the fat binaries in the library, found by their magic number.
pub(crate) fn fatbins() -> [Range<usize>; 2] {
    let magic = 0xba55_ed50_u32.to_le_bytes();
    let starts: Vec<usize> =
        (0..LIBRARY.len() - 4).step_by(8).filter(|at| LIBRARY[*at..].starts_with(&magic)).collect();
    let range = |start: usize| {
        let bytes = u64::from_le_bytes(LIBRARY[start + 8..start + 16].try_into().unwrap());
        start..start + 16 + usize::try_from(bytes).unwrap()
    };
    [range(starts[0]), range(starts[1])]
}

/// Virtual address of the section with the fat binaries minus its offset in the file.
pub(crate) const SHIFT: u64 = 0;

pub(crate) fn module() -> Module {
    let [range, _] = fatbins();
    Module {
        hash: blake3::hash(&LIBRARY[range.clone()]).to_hex().to_string(),
        file: FILE.to_owned(),
        offset: range.start as u64,
        bytes: range.len() as u64,
    }
}

pub(crate) fn kernel(index: usize) -> Kernel {
    let (name, params) = KERNELS[index];
    Kernel {
        module: 0,
        name: name.to_owned(),
        params: params.to_vec(),
        max_dynamic_shared: None,
        shared_carveout: None,
        nonportable_cluster: false,
    }
}

pub(crate) fn libraries() -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([(FILE.to_owned(), LIBRARY.to_vec()), ("libhogs.so".to_owned(), HOGS.to_vec())])
}
