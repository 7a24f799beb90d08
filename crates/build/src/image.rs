//! A shared library as the loader sees it: by its program headers and its dynamic section, not by the sections that
//! linkers and debuggers read. Nothing in it is trusted: every offset is checked.

use crate::elf::{u16_at, u32_at, u64_at};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const ENTRY_BYTES: usize = 16;
const SYMBOL_BYTES: usize = 24;

/// Tags of the dynamic section.
pub(crate) mod tag {
    pub(crate) const NULL: u64 = 0;
    pub(crate) const NEEDED: u64 = 1;
    pub(crate) const PLT_RELOCATIONS_BYTES: u64 = 2;
    pub(crate) const STRINGS: u64 = 5;
    pub(crate) const SYMBOLS: u64 = 6;
    pub(crate) const RELOCATIONS: u64 = 7;
    pub(crate) const RELOCATIONS_BYTES: u64 = 8;
    pub(crate) const STRINGS_BYTES: u64 = 10;
    pub(crate) const INIT: u64 = 12;
    pub(crate) const FINI: u64 = 13;
    pub(crate) const RELOCATIONS_WITHOUT_ADDEND: u64 = 17;
    pub(crate) const TEXT_RELOCATIONS: u64 = 22;
    pub(crate) const PLT_RELOCATIONS: u64 = 23;
    pub(crate) const INIT_ARRAY: u64 = 25;
    pub(crate) const FINI_ARRAY: u64 = 26;
    pub(crate) const INIT_ARRAY_BYTES: u64 = 27;
    pub(crate) const FINI_ARRAY_BYTES: u64 = 28;
    pub(crate) const PREINIT_ARRAY: u64 = 32;
    pub(crate) const PREINIT_ARRAY_BYTES: u64 = 33;
    pub(crate) const VERSIONS_NEEDED: u64 = 0x6fff_fffe;
    pub(crate) const VERSIONS_NEEDED_COUNT: u64 = 0x6fff_ffff;
}

/// An entry of the dynamic section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub tag: u64,
    pub value: u64,
}

/// A library's program headers and dynamic section.
pub(crate) struct Image {
    /// Up to the entry that ends them.
    pub dynamic: Vec<Entry>,
    dynamic_at: usize,
    loads: Vec<Load>,
    strings: (usize, usize),
    /// Where the symbols begin and end, by the linker's sections: the loader has no count of them.
    symbols: (usize, usize),
}

struct Load {
    address: u64,
    offset: usize,
    bytes: u64,
}

impl Image {
    /// Reads a 64-bit little-endian library. `None` if it is not one, or is malformed.
    pub(crate) fn of(file: &[u8]) -> Option<Self> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = number(file, 0x20)?;
        let (size, count) = (usize::from(u16_at(file, 0x36)?), usize::from(u16_at(file, 0x38)?));
        let mut loads = Vec::new();
        let mut dynamic = None;
        for index in 0..count {
            let at = table.checked_add(index.checked_mul(size)?)?;
            let field = |offset: usize| at.checked_add(offset);
            let (offset, bytes) = (number(file, field(8)?)?, u64_at(file, field(32)?)?);
            match u32_at(file, at)? {
                PT_LOAD => {
                    loads.push(Load { address: u64_at(file, field(16)?)?, offset, bytes });
                }
                PT_DYNAMIC if dynamic.is_none() => dynamic = Some(offset),
                PT_DYNAMIC => return None,
                _ => {}
            }
        }
        let dynamic_at = dynamic?;
        let entries = read_dynamic(file.get(dynamic_at..)?)?;
        let mut image =
            Self { dynamic: entries, dynamic_at, loads, strings: (0, 0), symbols: (0, 0) };
        let strings = image.offset(image.value(tag::STRINGS)?)?;
        let bytes = usize::try_from(image.value(tag::STRINGS_BYTES)?).ok()?;
        image.strings = (strings, strings.checked_add(bytes)?);
        image.symbols = image.find_symbols(file)?;
        Some(image)
    }

    /// The value of a tag that occurs at most once. The loader takes the last one, so a second is malformed.
    fn value(&self, tag: u64) -> Option<u64> {
        let mut found = self.dynamic.iter().filter(|entry| entry.tag == tag);
        let value = found.next()?.value;
        found.next().is_none().then_some(value)
    }

    fn has(&self, tag: u64) -> bool {
        self.dynamic.iter().any(|entry| entry.tag == tag)
    }

    /// Offset in the file of an address in the image.
    fn offset(&self, address: u64) -> Option<usize> {
        let load = self.loads.iter().find(|load| {
            address.checked_sub(load.address).is_some_and(|inside| inside < load.bytes)
        })?;
        load.offset.checked_add(usize::try_from(address - load.address).ok()?)
    }

    fn find_symbols(&self, file: &[u8]) -> Option<(usize, usize)> {
        let begin = self.offset(self.value(tag::SYMBOLS)?)?;
        let (table, size) = (number(file, 0x28)?, usize::from(u16_at(file, 0x3a)?));
        for index in 0..usize::from(u16_at(file, 0x3c)?) {
            let at = table.checked_add(index.checked_mul(size)?)?;
            if u32_at(file, at.checked_add(4)?)? == SHT_DYNSYM {
                let offset = number(file, at.checked_add(24)?)?;
                let bytes = number(file, at.checked_add(32)?)?;
                return (offset == begin).then_some((begin, begin.checked_add(bytes)?));
            }
        }
        None
    }

    /// Offsets in the file of the dynamic symbols, without the first, which is none.
    pub(crate) fn symbols(&self, file: &[u8]) -> Option<Vec<usize>> {
        let (begin, end) = self.symbols;
        let bytes = file.get(begin..end)?;
        let count = bytes.len() / SYMBOL_BYTES;
        Some((1..count).map(|index| begin + index * SYMBOL_BYTES).collect())
    }

    /// A text of the loader's string table.
    pub(crate) fn text(&self, file: &[u8], at: u64) -> Option<String> {
        let strings = file.get(self.strings.0..self.strings.1)?;
        let tail = strings.get(usize::try_from(at).ok()?..)?;
        let end = tail.iter().position(|b| *b == 0)?;
        Some(String::from_utf8_lossy(tail.get(..end)?).into_owned())
    }

    /// The tables of relocations with addends.
    pub(crate) fn relocations<'f>(&self, file: &'f [u8]) -> Option<Vec<&'f [u8]>> {
        let tables = [
            (tag::RELOCATIONS, tag::RELOCATIONS_BYTES),
            (tag::PLT_RELOCATIONS, tag::PLT_RELOCATIONS_BYTES),
        ];
        let present = tables.into_iter().filter(|(begin, _)| self.has(*begin));
        present
            .map(|(begin, bytes)| {
                let begin = self.offset(self.value(begin)?)?;
                let bytes = usize::try_from(self.value(bytes)?).ok()?;
                file.get(begin..begin.checked_add(bytes)?)
            })
            .collect()
    }

    /// Libraries of which it asks for versions of symbols.
    pub(crate) fn versions_of(&self, file: &[u8]) -> Option<Vec<String>> {
        let mut names = Vec::new();
        if !self.has(tag::VERSIONS_NEEDED) {
            return Some(names);
        }
        let mut at = self.offset(self.value(tag::VERSIONS_NEEDED)?)?;
        for _ in 0..self.value(tag::VERSIONS_NEEDED_COUNT)?.min(1024) {
            names.push(self.text(file, u64::from(u32_at(file, at.checked_add(4)?)?))?);
            let next = usize::try_from(u32_at(file, at.checked_add(12)?)?).ok()?;
            if next == 0 {
                break;
            }
            at = at.checked_add(next)?;
        }
        Some(names)
    }

    /// Writes a dynamic section that is no longer than the present one.
    pub(crate) fn write_dynamic(&self, file: &mut [u8], entries: &[Entry]) -> Option<()> {
        let end = self.dynamic_at.checked_add(self.dynamic.len().checked_mul(ENTRY_BYTES)?)?;
        let section = file.get_mut(self.dynamic_at..end)?;
        let null = Entry { tag: tag::NULL, value: 0 };
        let entries = entries.iter().chain(std::iter::repeat(&null));
        for (bytes, entry) in section.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
            let (tag, value) = bytes.split_at_mut(8);
            tag.copy_from_slice(&entry.tag.to_le_bytes());
            value.copy_from_slice(&entry.value.to_le_bytes());
        }
        Some(())
    }
}

fn read_dynamic(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in bytes.chunks_exact(ENTRY_BYTES) {
        let entry = Entry { tag: u64_at(entry, 0)?, value: u64_at(entry, 8)? };
        if entry.tag == tag::NULL {
            return Some(entries);
        }
        entries.push(entry);
    }
    None
}

fn number(file: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64_at(file, at)?).ok()
}
