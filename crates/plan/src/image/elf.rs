//! Sections and symbols of 64-bit little-endian ELF files. A compiler made them from a candidate's sources, so
//! every offset is checked.

use super::ImageError;

/// Most symbols that are read, sections and labels among them.
const MAX_SYMBOLS: usize = 1 << 16;
/// Longest name that is read. C++ names of kernels can be long, but not that long.
const MAX_NAME: usize = 4096;

const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;

/// A file and its sections.
pub(super) struct Elf<'a> {
    file: &'a [u8],
    /// `e_flags`, whose meaning the machine decides.
    pub(super) flags: u32,
    /// `EI_ABIVERSION`, likewise.
    pub(super) abi_version: u8,
    /// `e_machine`.
    pub(super) machine: u16,
    /// In the order of their headers.
    pub(super) sections: Vec<Section<'a>>,
}

/// A section's header.
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) address: u64,
    pub(super) offset: usize,
    pub(super) bytes: u64,
    kind: u32,
    link: u32,
}

/// An entry of the symbol table.
pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    /// `STT_FUNC` and so on.
    pub(super) kind: u8,
    /// `st_other`, which has a bit for kernels.
    pub(super) other: u8,
    /// Index of the section that defines it; 0 if none does.
    pub(super) section: u16,
    pub(super) bytes: u64,
}

impl<'a> Elf<'a> {
    pub(super) const MAGIC: &'static [u8] = b"\x7fELF\x02\x01";

    pub(super) fn read(file: &'a [u8]) -> Result<Self, ImageError> {
        Self::try_read(file).ok_or(ImageError::Malformed { what: "ELF file" })
    }

    fn try_read(file: &'a [u8]) -> Option<Self> {
        if !file.starts_with(Self::MAGIC) {
            return None;
        }
        let table = usize::try_from(u64_at(file, 0x28)?).ok()?;
        let entry = usize::from(u16_at(file, 0x3a)?);
        let count = usize::from(u16_at(file, 0x3c)?);
        let names = usize::from(u16_at(file, 0x3e)?);
        if entry < 64 {
            return None;
        }
        let header = |index: usize| {
            let at = table.checked_add(index.checked_mul(entry)?)?;
            file.get(at..at.checked_add(64)?)
        };
        let strings = bytes_of(file, header(names)?)?;
        let mut sections = Vec::with_capacity(count);
        for index in 0..count {
            let header = header(index)?;
            sections.push(Section {
                name: text_at(strings, u32_at(header, 0)?)?,
                kind: u32_at(header, 4)?,
                address: u64_at(header, 16)?,
                offset: usize::try_from(u64_at(header, 24)?).ok()?,
                bytes: u64_at(header, 32)?,
                link: u32_at(header, 40)?,
            });
        }
        let (flags, machine) = (u32_at(file, 0x30)?, u16_at(file, 0x12)?);
        Some(Self { file, flags, abi_version: *file.get(8)?, machine, sections })
    }

    /// A section's contents.
    pub(super) fn contents(&self, section: &Section<'a>) -> Result<&'a [u8], ImageError> {
        if section.kind == SHT_NOBITS {
            return Ok(&[]);
        }
        let bytes = usize::try_from(section.bytes).unwrap_or(usize::MAX);
        let contents = self.file.get(section.offset..section.offset.saturating_add(bytes));
        contents.ok_or(ImageError::Malformed { what: "section of an ELF file" })
    }

    /// The symbol table, the empty first entry included: other tables count it.
    pub(super) fn symbols(&self) -> Result<Vec<Symbol<'a>>, ImageError> {
        let Some(table) = self.sections.iter().find(|section| section.kind == SHT_SYMTAB) else {
            return Ok(Vec::new());
        };
        let entries = self.contents(table)?;
        if entries.len() / 24 > MAX_SYMBOLS {
            return Err(ImageError::Malformed { what: "symbol table: it is too long" });
        }
        let strings = usize::try_from(table.link).ok().and_then(|link| self.sections.get(link));
        let malformed = ImageError::Malformed { what: "symbol table" };
        let strings = self.contents(strings.ok_or(malformed)?)?;
        let symbol = |entry: &[u8]| {
            Some(Symbol {
                name: text_at(strings, u32_at(entry, 0)?)?,
                kind: entry.get(4)? & 0xf,
                other: *entry.get(5)?,
                section: u16_at(entry, 6)?,
                bytes: u64_at(entry, 16)?,
            })
        };
        let symbols: Option<Vec<_>> = entries.chunks_exact(24).map(symbol).collect();
        symbols.ok_or(ImageError::Malformed { what: "symbol table" })
    }
}

fn bytes_of<'a>(file: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let offset = usize::try_from(u64_at(header, 24)?).ok()?;
    let bytes = usize::try_from(u64_at(header, 32)?).ok()?;
    file.get(offset..offset.checked_add(bytes)?)
}

fn text_at(strings: &[u8], at: u32) -> Option<&str> {
    let tail = strings.get(usize::try_from(at).ok()?..)?;
    let end = tail.iter().take(MAX_NAME + 1).position(|byte| *byte == 0)?;
    str::from_utf8(tail.get(..end)?).ok()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
