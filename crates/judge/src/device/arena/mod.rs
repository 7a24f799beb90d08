//! Memory that the judge creates. The judge decides where tensors lie, and reads results in place.
//!
//! [`Arena`] is a memory file on the cpu device and exported device memory on a GPU. The process that
//! borrows it maps the same bytes; no message of that process changes which bytes the judge reads.

mod cuda;
mod cuda_arena;
mod driver;
mod guard;
mod host;
mod kept;
mod kernels;
mod zone;

use std::os::fd::{BorrowedFd, OwnedFd};

use rand::RngExt;
use rand::rngs::StdRng;
use thiserror::Error;

pub(crate) use cuda::{CudaDevice, GRAIN};
pub(crate) use cuda_arena::CudaArena;
pub(crate) use guard::gaps;
pub(crate) use host::HostArena;
pub(crate) use kept::KeptArenas;
pub(crate) use kernels::{Rule, Tensor, Told};
pub(crate) use zone::Zone;

/// What memory is overwritten with before anybody may write results there: four bytes, repeated.
///
/// A window's memory has one of two kinds, which the candidate cannot know before: NaN in every
/// floating type, or a number. What it leaves unwritten is no result of any reference under both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poison(u32);

impl Poison {
    /// NaN in every floating type (`0x7fff` repeated).
    pub(crate) const NAN: Self = Self(0x7fff_7fff);

    /// A number in every floating type, large, with 16 random bits.
    pub(crate) fn number(random: &mut StdRng) -> Self {
        Self(0x5a00_5a00 | random.random::<u32>() & 0x00ff_00ff)
    }

    /// The four bytes, little endian.
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    /// Whether it is a number: bytes that still hold it were not written.
    pub(crate) fn is_number(self) -> bool {
        self != Self::NAN
    }

    /// What a sample of memory that still holds it folds to.
    pub(crate) fn sample(self) -> u64 {
        let word = u64::from(self.0) << 32 | u64::from(self.0);
        fold([word; SAMPLE_BYTES as usize / 8].into_iter())
    }
}

/// The judge's own memory failed it. Infrastructure, never a verdict.
#[derive(Debug, Error)]
#[error("failed to {action}: {source}")]
pub(crate) struct ArenaError {
    /// The failed operation.
    pub(crate) action: String,
    /// The system's error.
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
    /// Whether there was not enough memory.
    pub(crate) exhausted: bool,
    /// Whether the GPU is gone, or does not work for this process any more.
    pub(crate) lost: bool,
}

impl ArenaError {
    pub(crate) fn new(
        action: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { action: action.into(), source: source.into(), exhausted: false, lost: false }
    }
}

/// Bytes that are copied between device and host at a time.
const CHUNK: usize = 16 << 20;

/// Judge-owned memory on either device.
pub(crate) enum Arena {
    /// A memory file.
    Host(HostArena),
    /// Exported device memory.
    Cuda(CudaArena),
}

/// Memory for the inputs of a candidate's windows on a GPU.
pub(crate) struct Lent {
    pub(crate) fd: OwnedFd,
    pub(crate) bytes: u64,
    /// Whether it is the same in the next window: then it stays mapped, which takes a millisecond each time.
    pub(crate) keep: bool,
}

/// Bytes of one arena that are to be in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Offset in the target.
    pub(crate) to: u64,
    /// Offset in the source.
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

impl Arena {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Host(a) => a.len(),
            Self::Cuda(a) => a.len(),
        }
    }

    /// Bytes from its start to the end of all that has an offset here: where inputs lie beside it, these
    /// too.
    pub(crate) fn reach(&self) -> u64 {
        match self {
            Self::Host(a) => a.len(),
            Self::Cuda(a) => a.reach(),
        }
    }

    /// Whether it is memory of a GPU.
    pub(crate) fn is_on_gpu(&self) -> bool {
        matches!(self, Self::Cuda(_))
    }

    /// Bytes that it holds, with the most of a window's inputs beside it since this was asked last: on the cpu device
    /// what was touched.
    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Self::Host(a) => a.touched(),
            Self::Cuda(a) => a.held(),
        }
    }

    /// Where inputs lie beside it; nowhere on the cpu device.
    pub(crate) fn apart(&self) -> Zone {
        match self {
            Self::Host(a) => Zone { offset: a.len(), bytes: 0 },
            Self::Cuda(a) => a.apart(),
        }
    }

    /// A descriptor to lend to the process that maps it.
    pub(crate) fn lend(&self) -> Result<OwnedFd, ArenaError> {
        let fd: BorrowedFd<'_> = match self {
            Self::Host(a) => a.fd(),
            Self::Cuda(a) => a.fd(),
        };
        fd.try_clone_to_owned().map_err(|e| ArenaError::new("duplicate an arena descriptor", e))
    }

    /// A descriptor of the memory in which inputs lie beside it, and its bytes, where they do.
    pub(crate) fn lend_inputs(&self) -> Result<Option<(OwnedFd, u64)>, ArenaError> {
        match self {
            Self::Host(_) => Ok(None),
            Self::Cuda(a) => a.lend_inputs(),
        }
    }

    /// Reads `into.len()` bytes at `offset`.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ArenaError> {
        self.within(offset, into.len() as u64)?;
        match self {
            Self::Host(a) => a.read(offset, into),
            Self::Cuda(a) => a.read(offset, into),
        }
    }

    /// Fills a range. `offset` and `bytes` are multiples of four.
    pub(crate) fn poison(&self, offset: u64, bytes: u64, with: Poison) -> Result<(), ArenaError> {
        self.within(offset, bytes)?;
        match self {
            Self::Host(a) => a.poison(offset, bytes, with),
            Self::Cuda(a) => a.poison(offset, bytes, with),
        }
    }

    /// Copies from another arena of the same device, and waits until all of it is done.
    pub(crate) fn copy_all(&self, source: &Self, moves: &[Move]) -> Result<(), ArenaError> {
        for &Move { to, from, bytes } in moves {
            self.within(to, bytes)?;
            source.within(from, bytes)?;
        }
        match (self, source) {
            (Self::Host(a), Self::Host(b)) => {
                moves.iter().try_for_each(|m| a.copy_from(m.to, b, m.from, m.bytes))
            }
            (Self::Cuda(a), Self::Cuda(b)) => a.copy_all(b, moves),
            _ => Err(ArenaError::new("copy between arenas", "they are on different devices")),
        }
    }

    /// Copies to a memory file.
    pub(crate) fn copy_to_host(
        &self,
        target: &HostArena,
        moves: &[Move],
    ) -> Result<(), ArenaError> {
        let mut buffer = Vec::new();
        for &Move { to, from, bytes } in moves {
            for start in (0..bytes).step_by(CHUNK) {
                let piece = (bytes - start).min(CHUNK as u64);
                buffer.resize(piece as usize, 0);
                self.read(from + start, &mut buffer)?;
                target.write(to + start, &buffer)?;
            }
        }
        Ok(())
    }

    /// Writes bytes of the judge's.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ArenaError> {
        self.within(offset, from.len() as u64)?;
        match self {
            Self::Host(a) => a.write(offset, from),
            Self::Cuda(a) => a.write(offset, from),
        }
    }

    /// [`SAMPLE_BYTES`] at each of the given offsets, folded into a word each, as fast as the device
    /// allows: on a GPU it is inside the measured window. Offsets are multiples of eight; one from
    /// which a sample would not fit the arena is read elsewhere.
    pub(crate) fn samples(&self, offsets: &[u64]) -> Result<Vec<u64>, ArenaError> {
        let last = self.len().saturating_sub(SAMPLE_BYTES) & !7;
        let offsets: Vec<u64> = offsets.iter().map(|at| (at & !7).min(last)).collect();
        match self {
            Self::Host(a) => a.samples(&offsets),
            Self::Cuda(a) => a.samples(&offsets),
        }
    }

    /// Words in these zones that do not hold the poison, where the device itself can tell; `None` otherwise.
    pub(crate) fn foreign(
        &self,
        zones: &[Zone],
        poison: Poison,
    ) -> Result<Option<u64>, ArenaError> {
        for zone in zones {
            self.within(zone.offset, zone.bytes)?;
        }
        match self {
            Self::Host(_) => Ok(None),
            Self::Cuda(a) => a.device().foreign(a, zones, poison).map(Some),
        }
    }

    /// Whether two ranges hold equal bytes, where the device itself can tell; `None` otherwise.
    pub(crate) fn equal_there(
        &self,
        offset: u64,
        other: &Self,
        other_offset: u64,
        bytes: u64,
    ) -> Result<Option<bool>, ArenaError> {
        self.within(offset, bytes)?;
        other.within(other_offset, bytes)?;
        match (self, other) {
            (Self::Cuda(a), Self::Cuda(b)) if (offset | other_offset).is_multiple_of(8) => {
                a.device().equal((a, offset), (b, other_offset), bytes).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn within(&self, offset: u64, bytes: u64) -> Result<(), ArenaError> {
        let inside = match self {
            Self::Host(a) => offset.checked_add(bytes).is_some_and(|end| end <= a.len()),
            Self::Cuda(a) => a.holds(offset, bytes),
        };
        if inside {
            return Ok(());
        }
        let reason = format!("{bytes} bytes at {offset} do not fit {} bytes", self.len());
        Err(ArenaError::new("reach into an arena", reason))
    }
}

/// Bytes of one sample of a fingerprint.
pub(crate) const SAMPLE_BYTES: u64 = 64;

/// FNV-1a over words: order matters, speed is enough, and secrecy comes from the offsets.
pub(crate) fn fold(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
}
