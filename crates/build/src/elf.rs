//! Reads the imports of shared libraries (needed libraries and undefined symbols), and the symbols
//! that objects define.
//!
//! Our compilers make these files from a candidate's sources, so they are not trusted: every offset
//! is checked, and a library without a readable dynamic section is an error.

use std::collections::HashSet;

/// The imports of a shared library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// `DT_NEEDED` in order.
    pub needed: Vec<String>,
    /// Undefined dynamic symbols, sorted, without versions.
    pub undefined: Vec<String>,
    /// Whether it has a run path or an audit, filter or auxiliary entry, which would let the
    /// library choose further libraries to load.
    pub steers_loader: bool,
    /// Whether it requests memory, including its stack, that is both writable and executable.
    pub writable_code: bool,
}

const SHT_SYMTAB: u32 = 2;
const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STB_WEAK: u8 = 2;
const PT_LOAD: u32 = 1;
const PT_GNU_STACK: u32 = 0x6474_e551;
const WRITABLE_CODE: u32 = 3;
/// In a cubin: a kernel, not a device function.
const STO_CUDA_ENTRY: u8 = 0x10;
const DT_NEEDED: u64 = 1;
/// `DT_RPATH`, `DT_RUNPATH`, `DT_DEPAUDIT`, `DT_AUDIT`, `DT_AUXILIARY`, `DT_FILTER`: entries with which a library
/// chooses what else is loaded.
pub(crate) const STEERS: [u64; 6] = [15, 29, 0x6fff_fefb, 0x6fff_fefc, 0x7fff_fffd, 0x7fff_ffff];

/// Reads a 64-bit little-endian shared library. `None` if it is not one, or is malformed.
pub(crate) fn imports(file: &[u8]) -> Option<Imports> {
    let sections = Sections::of(file)?;
    let mut found = Imports::default();
    let (mut dynamic, mut symbols) = (false, false);
    for index in 0..sections.count {
        let section = sections.header(index)?;
        if section.kind != SHT_DYNAMIC && section.kind != SHT_DYNSYM {
            continue;
        }
        let bytes = section.bytes(file)?;
        let strings = sections.header(section.link)?;
        let strings = strings.bytes(file)?;
        if section.kind == SHT_DYNAMIC {
            dynamic = true;
            read_dynamic(bytes, strings, &mut found)?;
        } else {
            symbols = true;
            read_symbols(bytes, strings, &mut found)?;
        }
    }
    found.writable_code = writable_code(file)?;
    found.undefined.sort();
    found.undefined.dedup();
    (dynamic && symbols).then_some(found)
}

/// Names of the kernels of a cubin, in the order of its symbols. `None` if it is not one, or is
/// malformed.
pub(crate) fn kernels(file: &[u8]) -> Option<Vec<String>> {
    let kernel = |symbol: &Symbol| symbol.function && symbol.other & STO_CUDA_ENTRY != 0;
    let named = |symbol: Symbol| symbol.name;
    Some(symbols(file)?.into_iter().filter(Symbol::defined).filter(kernel).map(named).collect())
}

/// Names of the functions that an object exports.
pub(crate) fn functions(file: &[u8]) -> Option<HashSet<String>> {
    let shared = |symbol: &Symbol| symbol.defined() && symbol.function && symbol.binding != 0;
    Some(symbols(file)?.into_iter().filter(shared).map(|symbol| symbol.name).collect())
}

/// Names of the functions that a shared library exports.
pub(crate) fn exports(file: &[u8]) -> Option<HashSet<String>> {
    let shared = |symbol: &Symbol| symbol.defined() && symbol.function && symbol.binding != 0;
    let found = symbols_in(file, SHT_DYNSYM)?;
    Some(found.into_iter().filter(shared).map(|symbol| symbol.name).collect())
}

/// The symbols of an object that the linker uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linkage {
    /// Symbols that others must define, without versions.
    pub undefined: HashSet<String>,
    /// Symbols defined for others.
    pub defined: HashSet<String>,
    /// The symbols in `defined` that no other object may define.
    pub strong: HashSet<String>,
}

/// Reads an object's symbols. `None` if it is not an object, or is malformed.
pub(crate) fn linkage(file: &[u8]) -> Option<Linkage> {
    let mut found = Linkage::default();
    for symbol in symbols(file)?.into_iter().filter(|symbol| symbol.binding != 0) {
        // `.symver` asks for a version in the name itself.
        let name = symbol.name.split('@').next().unwrap_or_default().to_owned();
        if !symbol.defined() {
            found.undefined.insert(name);
            continue;
        }
        if symbol.binding != STB_WEAK {
            found.strong.insert(name.clone());
        }
        found.defined.insert(name);
    }
    Some(found)
}

/// One entry of an object's table.
struct Symbol {
    name: String,
    function: bool,
    /// `STB_LOCAL`, which is 0, `STB_GLOBAL`, `STB_WEAK`, ...
    binding: u8,
    other: u8,
    section: u16,
}

impl Symbol {
    fn defined(&self) -> bool {
        self.section != 0
    }
}

fn symbols(file: &[u8]) -> Option<Vec<Symbol>> {
    symbols_in(file, SHT_SYMTAB)
}

fn symbols_in(file: &[u8], table: u32) -> Option<Vec<Symbol>> {
    let sections = Sections::of(file)?;
    let mut found = Vec::new();
    for index in 0..sections.count {
        let section = sections.header(index)?;
        if section.kind != table {
            continue;
        }
        let strings = sections.header(section.link)?;
        let strings = strings.bytes(file)?;
        for symbol in section.bytes(file)?.chunks_exact(24).skip(1) {
            let (info, other) = (*symbol.get(4)?, *symbol.get(5)?);
            found.push(Symbol {
                name: text_at(strings, usize::try_from(u32_at(symbol, 0)?).ok()?)?,
                function: info & 0xf == STT_FUNC,
                binding: info >> 4,
                other,
                section: u16_at(symbol, 6)?,
            });
        }
    }
    Some(found)
}

/// The table of sections of a 64-bit little-endian file.
struct Sections<'a> {
    file: &'a [u8],
    table: usize,
    entry_size: usize,
    count: usize,
}

impl<'a> Sections<'a> {
    fn of(file: &'a [u8]) -> Option<Self> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = usize::try_from(u64_at(file, 0x28)?).ok()?;
        let entry_size = usize::from(u16_at(file, 0x3a)?);
        let count = usize::from(u16_at(file, 0x3c)?);
        (entry_size >= 64).then_some(Self { file, table, entry_size, count })
    }

    fn header(&self, index: usize) -> Option<Section> {
        let at = self.table.checked_add(index.checked_mul(self.entry_size)?)?;
        Some(Section {
            kind: u32_at(self.file, at.checked_add(4)?)?,
            offset: usize::try_from(u64_at(self.file, at.checked_add(24)?)?).ok()?,
            size: usize::try_from(u64_at(self.file, at.checked_add(32)?)?).ok()?,
            link: usize::try_from(u32_at(self.file, at.checked_add(40)?)?).ok()?,
        })
    }
}

struct Section {
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
}

impl Section {
    fn bytes<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        file.get(self.offset..self.offset.checked_add(self.size)?)
    }
}

/// Whether a segment that the loader maps is both writable and executable.
fn writable_code(file: &[u8]) -> Option<bool> {
    let table = usize::try_from(u64_at(file, 0x20)?).ok()?;
    let (size, count) = (usize::from(u16_at(file, 0x36)?), usize::from(u16_at(file, 0x38)?));
    for index in 0..count {
        let at = table.checked_add(index.checked_mul(size)?)?;
        let (kind, flags) = (u32_at(file, at)?, u32_at(file, at.checked_add(4)?)?);
        let counts = matches!(kind, PT_LOAD | PT_GNU_STACK);
        if counts && flags & WRITABLE_CODE == WRITABLE_CODE {
            return Some(true);
        }
    }
    Some(false)
}

fn read_dynamic(bytes: &[u8], strings: &[u8], found: &mut Imports) -> Option<()> {
    for entry in bytes.chunks_exact(16) {
        let value = usize::try_from(u64_at(entry, 8)?).ok()?;
        match u64_at(entry, 0)? {
            0 => break,
            DT_NEEDED => found.needed.push(text_at(strings, value)?),
            tag if STEERS.contains(&tag) => found.steers_loader = true,
            _ => {}
        }
    }
    Some(())
}

fn read_symbols(bytes: &[u8], strings: &[u8], found: &mut Imports) -> Option<()> {
    for symbol in bytes.chunks_exact(24).skip(1) {
        if u16_at(symbol, 6)? == 0 {
            let name = text_at(strings, usize::try_from(u32_at(symbol, 0)?).ok()?)?;
            if !name.is_empty() {
                found.undefined.push(name);
            }
        }
    }
    Some(())
}

fn text_at(strings: &[u8], at: usize) -> Option<String> {
    let tail = strings.get(at..)?;
    let end = tail.iter().position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&tail[..end]).into_owned())
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_a_loaded_library_are_read() {
        // A real library that is surely there: the one this test runs on.
        let maps = fs_err::read_to_string("/proc/self/maps").unwrap();
        let path = maps
            .lines()
            .filter_map(|l| l.split_whitespace().nth(5))
            .find(|p| p.contains("libgcc_s") || p.contains("libc.so"))
            .unwrap()
            .to_owned();
        let found = imports(&fs_err::read(&path).unwrap()).unwrap();
        assert!(found.needed.iter().any(|n| n.starts_with("ld-linux") || n == "libc.so.6"));
        assert!(!found.undefined.is_empty());
        assert!(!found.steers_loader && !found.writable_code);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_elf_reading_panic(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 64..512)) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            let _ = imports(&bytes);
            let _ = kernels(&bytes);
            let _ = linkage(&bytes);
        }
    }
}
