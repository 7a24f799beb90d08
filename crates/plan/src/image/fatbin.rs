//! Fat binaries: containers of device images, as nvcc and `fatbinary` write them.
//!
//! ```text
//! .nv_fatbin ─► fat binary: magic, version, bytes of header (16), bytes of what follows
//!               └► entry: kind, version, bytes of header, bytes of contents, ..., flags; contents
//! ```

use std::ops::Range;

use super::ImageError;
use super::elf::{Elf, u16_at, u32_at, u64_at};

const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
/// Offset of the flags in an entry's header.
const FLAGS: usize = 40;
/// Flags of contents that are compressed, by LZ4 or Zstandard.
const COMPRESSED: u32 = 0x2000 | 0x8000;

/// The fat binaries that follow each other in a library's section `.nv_fatbin`: the virtual address of each, as
/// the library's headers count, and its place in the file. None in a library without that section.
pub fn fatbins(library: &[u8]) -> Result<Vec<(u64, Range<usize>)>, ImageError> {
    let elf = Elf::read(library)?;
    let mut sections = elf.sections.iter().filter(|section| section.name == ".nv_fatbin");
    let Some(section) = sections.next() else { return Ok(Vec::new()) };
    if sections.next().is_some() {
        return Err(ImageError::Malformed { what: "library: two sections of fat binaries" });
    }
    let contents = elf.contents(section)?;
    let (mut found, mut at) = (Vec::new(), 0);
    // From the start on: the bytes of an image could look like a fat binary.
    loop {
        let rest = contents.get(at..).unwrap_or_default();
        let bytes = match rest.first_chunk::<8>() {
            None => return Ok(found),
            Some([0, 0, 0, 0, 0, 0, 0, 0]) => 8,
            Some(_) => {
                let bytes = length(rest)?;
                let start = section.offset + at;
                found.push((section.address.saturating_add(at as u64), start..start + bytes));
                bytes
            }
        };
        at += bytes;
    }
}

/// Place in a library's file of the fat binary that lies at a virtual address: see [`fatbins`].
pub fn fatbin_at(library: &[u8], address: u64) -> Result<Range<usize>, ImageError> {
    let mut all = fatbins(library)?.into_iter();
    let found = all.find(|(at, _)| *at == address);
    found.map(|(_, range)| range).ok_or(ImageError::NoFatbin { address })
}

/// Whether these bytes begin as a fat binary does.
pub(super) fn is_fatbin(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The one image of a fat binary that the driver can load without compiling anything.
pub(super) fn only_image(fatbin: &[u8]) -> Result<&[u8], ImageError> {
    let malformed = ImageError::Malformed { what: "fat binary" };
    let mut rest = fatbin.get(16..length(fatbin)?).ok_or(malformed)?;
    let mut found = None;
    while !rest.is_empty() {
        let (kind, flags, contents, after) =
            entry(rest).ok_or(ImageError::Malformed { what: "fat binary" })?;
        match kind {
            KIND_PTX => return Err(ImageError::Ptx),
            KIND_ELF if flags & COMPRESSED != 0 => return Err(ImageError::Compressed),
            KIND_ELF if found.is_some() => return Err(ImageError::Several),
            KIND_ELF => found = Some(contents),
            _ => return Err(ImageError::Malformed { what: "fat binary" }),
        }
        rest = after;
    }
    found.ok_or(ImageError::Malformed { what: "fat binary" })
}

/// Bytes of the fat binary at the start of `bytes`, its header included.
fn length(bytes: &[u8]) -> Result<usize, ImageError> {
    let read = || {
        let header = usize::from(u16_at(bytes, 6)?);
        let follows = usize::try_from(u64_at(bytes, 8)?).ok()?;
        let whole = header.checked_add(follows)?;
        (is_fatbin(bytes) && header == 16 && whole <= bytes.len()).then_some(whole)
    };
    read().ok_or(ImageError::Malformed { what: "fat binary" })
}

/// Kind, flags and contents of the entry at the start of `bytes`, and what follows it.
fn entry(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let header = usize::try_from(u32_at(bytes, 4)?).ok()?;
    let end = header.checked_add(usize::try_from(u64_at(bytes, 8)?).ok()?)?;
    // At least the flags, so that every entry takes some bytes.
    let contents = (header >= FLAGS + 4).then_some(bytes.get(header..end)?)?;
    Some((u16_at(bytes, 0)?, u32_at(bytes, FLAGS)?, contents, bytes.get(end..)?))
}
