//! A copy of a library that can be loaded for its kernels alone.
//!
//! The copy has the library's image, byte for byte at the same addresses: what a recorder saw at an offset in one
//! is at that offset in the other, be it an entry, a function or a variable. What differs is what the loader reads:
//!
//! - no functions run when the copy is loaded or unloaded;
//! - only the runtimes of C, C++ and OpenMP are loaded with it, not Python and not torch;
//! - what kernels have no use for is not bound: a call of it ends the process.
//!
//! A copy is not trusted. Its kernels are the candidate's machine code, and so is the rest of the image.

use std::path::Path;

use fs_err as fs;

use crate::allowed;
use crate::artifact::{Instrument, KernelsAlone, Target};
use crate::bench::Bench;
use crate::elf::{STEERS, u16_at, u32_at};
use crate::error::BuildError;
use crate::image::{Image, tag};

const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 24;
const STT_GNU_IFUNC: u8 = 10;
const WEAK: u8 = 2 << 4;
/// `R_X86_64_IRELATIVE` and `R_AARCH64_IRELATIVE`: the loader calls a function for the value.
const COMPUTED: [u32; 2] = [37, 1032];

/// Entries of the dynamic section with which the loader runs functions.
const RUNS: [u64; 8] = [
    tag::INIT,
    tag::FINI,
    tag::INIT_ARRAY,
    tag::INIT_ARRAY_BYTES,
    tag::FINI_ARRAY,
    tag::FINI_ARRAY_BYTES,
    tag::PREINIT_ARRAY,
    tag::PREINIT_ARRAY_BYTES,
];

/// Libraries that kernels need, by the name before `.so`.
const LIBRARIES: [&str; 9] = [
    "libc",
    "libm",
    "libmvec",
    "libstdc++",
    "libgcc_s",
    "libgomp",
    "libpthread",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
];

impl Bench<'_> {
    /// Writes the copy of `folder/name` to `folder/alone/name`; `None` if this build has no use for one.
    pub(crate) fn kernels_alone(
        &self,
        folder: &Path,
        name: &str,
    ) -> Result<Option<KernelsAlone>, BuildError> {
        if *self.target != Target::Cpu || self.instrument != Instrument::None {
            return Ok(None);
        }
        let copy = match alone(fs::read(folder.join(name))?) {
            Ok(copy) => copy,
            Err(reason) => return Ok(Some(KernelsAlone::Refused(reason))),
        };
        let file = format!("alone/{name}");
        let path = folder.join(&file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, copy)?;
        Ok(Some(KernelsAlone::File(file)))
    }
}

/// The copy, or why there is none.
fn alone(mut file: Vec<u8>) -> Result<Vec<u8>, String> {
    edit(&mut file)?;
    examine(&file)?;
    Ok(file)
}

/// Takes away what runs, what is loaded, and what is bound.
fn edit(file: &mut [u8]) -> Result<(), String> {
    let image = Image::of(file).ok_or(UNREADABLE)?;
    let mut kept = Vec::new();
    for entry in &image.dynamic {
        let goes = RUNS.contains(&entry.tag)
            || entry.tag == tag::NEEDED
                && !library(&image.text(file, entry.value).ok_or(UNREADABLE)?);
        if !goes {
            kept.push(*entry);
        }
    }
    let mut unbound = Vec::new();
    for at in image.symbols(file).ok_or(UNREADABLE)? {
        let symbol = Symbol::at(file, &image, at).ok_or(UNREADABLE)?;
        if !symbol.defined && !allowed::kernel_import(&symbol.name) {
            unbound.push((at, symbol.kind));
        }
    }
    image.write_dynamic(file, &kept).ok_or(UNREADABLE)?;
    for (at, kind) in unbound {
        // A weak symbol that nobody defines is null. Without a name, nobody can.
        let name = file.get_mut(at..at + 4).ok_or(UNREADABLE)?;
        name.fill(0);
        *file.get_mut(at + 4).ok_or(UNREADABLE)? = WEAK | kind;
    }
    Ok(())
}

/// Says what in a library would still run when it is loaded, or be loaded with it.
fn examine(file: &[u8]) -> Result<(), String> {
    let image = Image::of(file).ok_or(UNREADABLE)?;
    for entry in &image.dynamic {
        if RUNS.contains(&entry.tag) {
            return Err("it runs functions when it is loaded".to_owned());
        }
        if entry.tag == tag::NEEDED {
            let name = image.text(file, entry.value).ok_or(UNREADABLE)?;
            if !library(&name) {
                return Err(format!("it needs {name}"));
            }
        }
        if STEERS.contains(&entry.tag) {
            return Err("it chooses what else is loaded".to_owned());
        }
        if [tag::TEXT_RELOCATIONS, tag::RELOCATIONS_WITHOUT_ADDEND].contains(&entry.tag) {
            return Err("it has relocations of an unusual kind".to_owned());
        }
    }
    if image.versions_of(file).ok_or(UNREADABLE)?.iter().any(|name| !library(name)) {
        return Err("it asks for versions of a library that kernels do not need".to_owned());
    }
    let symbols = image.symbols(file).ok_or(UNREADABLE)?;
    let count = symbols.len();
    for at in symbols {
        let symbol = Symbol::at(file, &image, at).ok_or(UNREADABLE)?;
        if symbol.defined && symbol.kind == STT_GNU_IFUNC {
            return Err(format!("{} is chosen by a function when it is loaded", symbol.name));
        }
        if !symbol.defined && !symbol.name.is_empty() && !allowed::kernel_import(&symbol.name) {
            return Err(format!("it imports {}", symbol.name));
        }
    }
    for table in image.relocations(file).ok_or(UNREADABLE)? {
        for relocation in table.chunks_exact(RELOCATION_BYTES) {
            let kind = u32_at(relocation, 8).ok_or(UNREADABLE)?;
            let symbol = u32_at(relocation, 12).ok_or(UNREADABLE)?;
            if COMPUTED.contains(&kind) {
                return Err("a function is chosen when it is loaded".to_owned());
            }
            if symbol as usize > count {
                return Err(UNREADABLE.to_owned());
            }
        }
    }
    Ok(())
}

const UNREADABLE: &str = "its tables for the loader cannot be read";

fn library(name: &str) -> bool {
    let stem = name.split(".so").next().unwrap_or(name);
    LIBRARIES.contains(&stem) && !name.contains('/')
}

struct Symbol {
    name: String,
    kind: u8,
    defined: bool,
}

impl Symbol {
    fn at(file: &[u8], image: &Image, at: usize) -> Option<Self> {
        let bytes = file.get(at..at.checked_add(SYMBOL_BYTES)?)?;
        Some(Self {
            name: image.text(file, u64::from(u32_at(bytes, 0)?))?,
            kind: *bytes.get(4)? & 0xf,
            defined: u16_at(bytes, 6)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that this test runs on.
    fn loaded(name: &str) -> Vec<u8> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let path = paths.into_iter().find(|path| path.contains(name)).unwrap();
        fs::read(path).unwrap()
    }

    fn runs(file: &[u8]) -> bool {
        Image::of(file).unwrap().dynamic.iter().any(|entry| RUNS.contains(&entry.tag))
    }

    #[test]
    fn copy_keeps_the_image_and_runs_nothing() {
        let library = loaded("libgcc_s");
        let copy = alone(library.clone()).unwrap();
        assert!(runs(&library) && !runs(&copy));
        assert!(examine(&library).is_err(), "positive control");
        let image = Image::of(&library).unwrap();
        let names = |file: &[u8]| -> Vec<String> {
            let symbols = image.symbols(file).unwrap().into_iter();
            let symbols = symbols.map(|at| Symbol::at(file, &image, at).unwrap());
            symbols.filter(|symbol| !symbol.defined).map(|symbol| symbol.name).collect()
        };
        let once = "pthread_once".to_owned();
        assert!(names(&library).contains(&once) && !names(&copy).contains(&once));
        assert!(names(&copy).contains(&"memcpy".to_owned()));
        let differing = library.iter().zip(&copy).filter(|(a, b)| a != b).count();
        assert!(library.len() == copy.len() && differing < 1000, "{differing}");
    }

    #[test]
    fn functions_chosen_at_load_are_refused() {
        let why = alone(loaded("libc.so")).unwrap_err();
        assert!(why.contains("when it is loaded"), "{why}");
    }

    #[test]
    fn kernels_import_what_device_code_may_call() {
        for lawful in
            ["memcpy", "__memcpy_chk", "expf", "GOMP_parallel", "mmap", "printf", "_ZdlPvm"]
        {
            assert!(allowed::kernel_import(lawful), "{lawful}");
        }
        for other in [
            "getenv",
            "qsort",
            "exit",
            "PyObject_Call",
            "_ZN2at4_ops5zero_4callERNS_6TensorE",
            "_ZSt4cout",
            "_ZN3c105ErrorC1ENS_14SourceLocationE",
        ] {
            assert!(!allowed::kernel_import(other), "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_damage_makes_copying_panic(
            places in proptest::collection::vec((0_usize..1 << 16, proptest::num::u8::ANY), 1..8),
            cut in 0_usize..1 << 18,
        ) {
            let mut library = loaded("libgcc_s");
            library.truncate(cut);
            for (at, byte) in places {
                if let Some(place) = library.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = alone(library);
        }
    }
}
