//! Libraries of the cpu device: kernels as machine code of the host.
//!
//! Each way to launch a kernel has an entry in the library's data (`hostcuda/record.h`): a mark, the address of a
//! function, and the bytes of each argument. An entry is named by its offset in the image, e.g. `0x5a80`. The image
//! as a whole counts as one variable, [`IMAGE`].

use std::collections::{BTreeMap, BTreeSet};

use super::elf::{Elf, u16_at, u32_at, u64_at};
use super::{Image, ImageError, KernelInfo, MAX_SYMBOLS, Parameter};

/// Name of the variable that stands for a library's whole image.
pub const IMAGE: &str = "image";

const MARK: &[u8; 8] = b"HCENTRY1";
/// Mark, function and number of arguments.
const ENTRY_BYTES: usize = 24;
/// `EM_X86_64` and `EM_AARCH64`.
const MACHINES: [u16; 2] = [62, 183];
const PT_LOAD: u32 = 1;
/// Most arguments of a kernel, and most bytes of them, as CUDA limits them.
const MAX_ARGUMENTS: u64 = 4096;
const MAX_BYTES: u64 = 32 << 10;

/// A part of the file that is loaded.
struct Segment<'a> {
    address: u64,
    bytes: u64,
    contents: &'a [u8],
}

impl Image {
    /// Reads a library whose kernels are machine code of the host.
    pub fn read_host(library: &[u8]) -> Result<Self, ImageError> {
        try_read(library).ok_or(ImageError::Malformed { what: "library of the host" })
    }
}

fn try_read(library: &[u8]) -> Option<Image> {
    if !library.starts_with(Elf::MAGIC) || !MACHINES.contains(&u16_at(library, 0x12)?) {
        return None;
    }
    let segments = segments(library)?;
    let end = segments.iter().map(|segment| segment.address.saturating_add(segment.bytes)).max()?;
    let mut kernels = BTreeMap::new();
    for segment in &segments {
        for (offset, entry) in entries(segment) {
            if kernels.len() == MAX_SYMBOLS {
                return None;
            }
            kernels.insert(format!("{offset:#x}"), entry);
        }
    }
    Some(Image {
        compute_capability: 0,
        kernels,
        symbols: BTreeMap::from([(IMAGE.to_owned(), end)]),
        needs: BTreeSet::new(),
        loaded_bytes: end,
    })
}

/// The parts in ascending order, from address 0 on.
fn segments(library: &[u8]) -> Option<Vec<Segment<'_>>> {
    let table = usize::try_from(u64_at(library, 0x20)?).ok()?;
    let (size, count) = (usize::from(u16_at(library, 0x36)?), usize::from(u16_at(library, 0x38)?));
    let mut found: Vec<Segment<'_>> = Vec::new();
    for index in 0..count {
        let header = library.get(table.checked_add(index.checked_mul(size)?)?..)?;
        if u32_at(header, 0)? != PT_LOAD {
            continue;
        }
        let (offset, address) = (usize::try_from(u64_at(header, 8)?).ok()?, u64_at(header, 16)?);
        let (in_file, bytes) = (usize::try_from(u64_at(header, 32)?).ok()?, u64_at(header, 40)?);
        let contents = library.get(offset..offset.checked_add(in_file)?)?;
        let after = found.last().map_or(0, |before| before.address.saturating_add(before.bytes));
        if address < after || in_file as u64 > bytes || found.is_empty() && address != 0 {
            return None;
        }
        address.checked_add(bytes)?;
        found.push(Segment { address, bytes, contents });
    }
    Some(found)
}

/// Entries in a segment, by address.
fn entries<'a>(segment: &'a Segment<'_>) -> impl Iterator<Item = (u64, KernelInfo)> + 'a {
    // Entries are aligned as their function's address is.
    let skipped = (segment.address.next_multiple_of(8) - segment.address) as usize;
    let words = segment.contents.get(skipped..).unwrap_or_default().chunks_exact(8);
    let marked = words.enumerate().filter(|(_, word)| word == MARK);
    marked.filter_map(move |(index, _)| {
        let at = skipped + index * 8;
        Some((segment.address.checked_add(at as u64)?, entry(segment.contents.get(at..)?)?))
    })
}

fn entry(bytes: &[u8]) -> Option<KernelInfo> {
    let count = u64_at(bytes, 16)?;
    if count > MAX_ARGUMENTS {
        return None;
    }
    let (mut params, mut offset) = (Vec::new(), 0u32);
    for index in 0..usize::try_from(count).ok()? {
        let bytes = u32_at(bytes, ENTRY_BYTES + 4 * index)?;
        params.push(Parameter { offset, bytes });
        offset = offset.checked_add(bytes).filter(|end| u64::from(*end) <= MAX_BYTES)?;
    }
    Some(KernelInfo { params, ..KernelInfo::default() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A library of one segment that holds an entry of these arguments at offset 0x100.
    fn library(arguments: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 0x200];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x12] = 62;
        file[0x20] = 0x40;
        file[0x36] = 56;
        file[0x38] = 1;
        file[0x40] = 1;
        file[0x40 + 33] = 2;
        file[0x40 + 41] = 3;
        file[0x100..0x108].copy_from_slice(MARK);
        file[0x110] = arguments.len() as u8;
        for (argument, at) in arguments.iter().zip((0x118..).step_by(4)) {
            file[at..at + 4].copy_from_slice(&argument.to_le_bytes());
        }
        file
    }

    #[test]
    fn entries_of_a_host_library_are_kernels() {
        let image = Image::read_host(&library(&[8, 4, 12])).unwrap();
        assert_eq!(image.kernel("scale@0x100").unwrap().param_bytes(), [8, 4, 12]);
        assert_eq!(image.kernel("0x100"), image.kernel("a@b@0x100"));
        assert!(image.kernel("scale@0x108").is_none() && image.kernel("scale").is_none());
        assert_eq!((image.symbols[IMAGE], image.loaded_bytes), (0x300, 0x300));
        assert!(Image::read(&library(&[8])).is_err(), "it is no code of a GPU");
    }

    #[test]
    fn malformed_host_libraries_are_refused() {
        let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut file = library(&[8]);
            change(&mut file);
            Image::read_host(&file)
        };
        assert!(damaged(&|_| {}).is_ok(), "the control");
        assert!(damaged(&|file| file[0x12] = 190).is_err(), "a GPU's");
        assert!(damaged(&|file| file.truncate(0x1ff)).is_err(), "cut");
        assert!(damaged(&|file| file[0x50] = 1).is_err(), "not from address 0 on");
        assert!(damaged(&|file| file[0x40 + 41] = 1).is_err(), "more in the file than in memory");
        let many = damaged(&|file| file[0x112] = 1).unwrap();
        assert!(many.kernels.is_empty(), "too many arguments");
    }

    proptest! {
        #[test]
        fn damaged_host_libraries_never_panic(
            places in prop::collection::vec((0usize..0x200, any::<u8>()), 1..12), cut in 0usize..0x201,
        ) {
            let mut file = library(&[8, 4]);
            for (at, byte) in places {
                file[at] = byte;
            }
            file.truncate(cut);
            let _ = Image::read_host(&file);
        }
    }
}
