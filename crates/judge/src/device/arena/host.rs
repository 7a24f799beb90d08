//! A memory file. The judge reads and writes it through the descriptor, never through a mapping:
//! another process changes these bytes at will, and mapped pages would count as the judge's own.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

use super::{ArenaError, Poison, SAMPLE_BYTES, fold};

const CHUNK: usize = 1 << 20;

/// Judge-owned host memory.
#[derive(Debug)]
pub(crate) struct HostArena {
    file: File,
    len: u64,
}

impl HostArena {
    /// A memory file of `len` bytes, sealed against resizing.
    pub(crate) fn create(len: u64) -> Result<Self, ArenaError> {
        let fail = |e: rustix::io::Errno| ArenaError::new("create a memory file", e);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("warpwright-arena", flags).map_err(fail)?;
        rustix::fs::ftruncate(&fd, len).map_err(fail)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(fail)?;
        Ok(Self { file: fd.into(), len })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of its pages that were touched; all where the system does not tell.
    pub(crate) fn touched(&self) -> u64 {
        let known = rustix::fs::fstat(&self.file).ok();
        known.and_then(|stat| u64::try_from(stat.st_blocks).ok()).map_or(self.len, |n| 512 * n)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ArenaError> {
        self.file
            .read_exact_at(into, offset)
            .map_err(|e| ArenaError::new("read the memory file", e))
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ArenaError> {
        if offset.checked_add(from.len() as u64).is_none_or(|end| end > self.len) {
            return Err(ArenaError::new("write the memory file", "it is too small"));
        }
        self.file
            .write_all_at(from, offset)
            .map_err(|e| ArenaError::new("write the memory file", e))
    }

    pub(crate) fn poison(&self, offset: u64, bytes: u64, with: Poison) -> Result<(), ArenaError> {
        let pattern: Vec<u8> = with.word().to_le_bytes().repeat(CHUNK / 4);
        each_chunk(bytes, |at, n| self.file.write_all_at(&pattern[..n], offset + at))
            .map_err(|e| ArenaError::new("poison the memory file", e))
    }

    pub(crate) fn copy_from(
        &self,
        offset: u64,
        source: &Self,
        source_offset: u64,
        bytes: u64,
    ) -> Result<(), ArenaError> {
        let mut buffer = vec![0; CHUNK.min(bytes as usize)];
        each_chunk(bytes, |at, n| {
            source.file.read_exact_at(&mut buffer[..n], source_offset + at)?;
            self.file.write_all_at(&buffer[..n], offset + at)
        })
        .map_err(|e| ArenaError::new("copy between memory files", e))
    }

    pub(crate) fn samples(&self, offsets: &[u64]) -> Result<Vec<u64>, ArenaError> {
        let mut sample = [0; SAMPLE_BYTES as usize];
        let one = |&offset: &u64| {
            self.read(offset, &mut sample)?;
            let (chunks, _) = sample.as_chunks::<8>();
            Ok(fold(chunks.iter().map(|c| u64::from_le_bytes(*c))))
        };
        offsets.iter().map(one).collect()
    }
}

fn each_chunk(
    bytes: u64,
    mut act: impl FnMut(u64, usize) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let n = CHUNK.min((bytes - at) as usize);
        act(at, n)?;
        at += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_nan_or_a_number_in_every_floating_type() {
        use rand::SeedableRng;
        let arena = HostArena::create(4096).unwrap();
        let mut bytes = [0; 8];
        let number = Poison::number(&mut rand::rngs::StdRng::seed_from_u64(5));
        assert!(number.is_number() && !Poison::NAN.is_number());
        arena.poison(0, 4096, number).unwrap();
        arena.read(2048, &mut bytes).unwrap();
        assert!(f64::from_le_bytes(bytes).is_finite());
        assert!(f32::from_le_bytes(bytes[..4].try_into().unwrap()).is_finite());
        let half = u16::from_le_bytes(bytes[..2].try_into().unwrap());
        assert!(half & 0x7c00 < 0x7c00 && half & 0x7f80 < 0x7f80, "{half:x}");
        assert_eq!(arena.samples(&[64, 1024]).unwrap(), [number.sample(); 2]);
        arena.poison(0, 4096, Poison::NAN).unwrap();
        arena.read(2048, &mut bytes).unwrap();
        assert!(f64::from_le_bytes(bytes).is_nan());
        assert!(f32::from_le_bytes(bytes[..4].try_into().unwrap()).is_nan());
        let half = u16::from_le_bytes(bytes[..2].try_into().unwrap());
        assert_eq!(half & 0x7c00, 0x7c00, "float16 exponent");
        assert_ne!(half & 0x03ff, 0, "float16 fraction");
        assert_eq!(half & 0x7f80, 0x7f80, "bfloat16 exponent");
        assert_ne!(half & 0x007f, 0, "bfloat16 fraction");
    }

    #[test]
    fn a_borrower_cannot_shrink_the_arena() {
        let arena = HostArena::create(4096).unwrap();
        let borrowed = File::from(arena.fd().try_clone_to_owned().unwrap());
        assert!(borrowed.set_len(0).is_err());
        borrowed.write_all_at(b"positive control", 0).unwrap();
    }

    #[test]
    fn a_copy_crosses_chunks_and_a_late_write_changes_the_fingerprint() {
        let a = HostArena::create(3 * CHUNK as u64).unwrap();
        let b = HostArena::create(3 * CHUNK as u64).unwrap();
        let data: Vec<u8> = (0..2 * CHUNK + 77).map(|i| (i * 31 % 251) as u8).collect();
        a.file.write_all_at(&data, 5).unwrap();
        b.copy_from(1000, &a, 5, data.len() as u64).unwrap();
        let mut back = vec![0; data.len()];
        b.read(1000, &mut back).unwrap();
        assert_eq!(back, data);
        let offsets = [0, 1 << 20, 4096];
        let before = b.samples(&offsets).unwrap();
        assert_eq!(before, b.samples(&offsets).unwrap());
        b.file.write_all_at(&[1], (1 << 20) + 63).unwrap();
        assert_ne!(before, b.samples(&offsets).unwrap());
    }
}
