//! Reuse of arena files between candidates on the cpu device.
//!
//! On a virtual machine, touching memory for the first time takes about a second per gigabyte; overwriting
//! it takes a fifth of that. A file is reused only when every process that could have mapped it is dead.
//! The judge then overwrites the whole file, including the part that the candidate was not shown: a process
//! that has mapped part of a file can extend its mapping.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Arena, ArenaError, HostArena, Poison};

/// A file is too large for a candidate that needs less than this part of it: it is all overwritten.
const LARGER: u64 = 2;

/// Unmapped files, least recently used first.
#[derive(Debug)]
pub(crate) struct KeptArenas {
    files: Mutex<Vec<HostArena>>,
    /// Bytes that all together may have.
    most: u64,
}

impl KeptArenas {
    /// None yet; it will keep at most so many bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { files: Mutex::default(), most }
    }

    /// A file of at least `bytes` bytes, new or with [`Poison::NAN`](super::Poison::NAN) in all of it. With
    /// `touched` the system has given it all its memory. Writing that disturbs a measured window.
    pub(crate) fn take(&self, bytes: u64, touched: bool) -> Result<Arena, ArenaError> {
        let fits = |file: &HostArena| file.len() >= bytes && file.len() / LARGER <= bytes;
        let kept = {
            let mut files = self.lock();
            files.iter().position(fits).map(|at| files.remove(at))
        };
        let used = kept.is_some();
        let file = kept.map_or_else(|| HostArena::create(bytes), Ok)?;
        if used || touched {
            file.poison(0, file.len() / 4 * 4, Poison::NAN)?;
        }
        Ok(Arena::Host(file))
    }

    /// Takes a file back that no process has mapped any more.
    pub(crate) fn give_back(&self, arena: Arena) {
        let Arena::Host(file) = arena else { return };
        let mut files = self.lock();
        files.push(file);
        while files.iter().map(HostArena::len).sum::<u64>() > self.most {
            files.remove(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HostArena>> {
        // The list is whole after every call, also after a panic elsewhere.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Move;
    use super::*;

    const SIZE: u64 = 3 << 20;

    fn bytes(arena: &Arena) -> Vec<u8> {
        let mut bytes = vec![0; arena.len() as usize];
        arena.read(0, &mut bytes).unwrap();
        bytes
    }

    /// A kept file with these bytes in all of it.
    fn marked(kept: &KeptArenas, len: u64) -> Arena {
        let (arena, marks) = (kept.take(len, false).unwrap(), HostArena::create(len).unwrap());
        rustix::io::pwrite(marks.fd(), &vec![0xab; len as usize], 0).unwrap();
        arena.copy_all(&Arena::Host(marks), &[Move { to: 0, from: 0, bytes: len }]).unwrap();
        assert!(bytes(&arena).iter().all(|b| *b == 0xab), "positive control");
        arena
    }

    #[test]
    fn a_reused_arena_file_is_poisoned() {
        let kept = KeptArenas::new(1 << 30);
        kept.give_back(marked(&kept, SIZE));
        let again = kept.take(SIZE - 4096, false).unwrap();
        assert_eq!(again.len(), SIZE, "positive control: the same file");
        assert!(bytes(&again).chunks_exact(4).all(|b| b == Poison::NAN.word().to_le_bytes()));
    }

    #[test]
    fn two_candidates_never_share_an_arena_file() {
        let kept = KeptArenas::new(1 << 30);
        kept.give_back(kept.take(SIZE, false).unwrap());
        let one = kept.take(SIZE, false).unwrap();
        let other = kept.take(SIZE, false).unwrap();
        let ones = HostArena::create(8).unwrap();
        one.copy_all(&Arena::Host(ones), &[Move { to: 0, from: 0, bytes: 8 }]).unwrap();
        assert!(bytes(&other).iter().all(|b| *b == 0), "a new file, which nobody wrote to");
    }

    #[test]
    fn kept_arenas_respect_their_budget_and_size_limit() {
        let kept = KeptArenas::new(2 * SIZE);
        let three = [(); 3].map(|()| kept.take(SIZE, false).unwrap());
        for arena in three {
            kept.give_back(arena);
        }
        assert_eq!(kept.lock().len(), 2);
        assert_eq!(kept.take(SIZE / 2, false).unwrap().len(), SIZE, "positive control");
        assert_eq!(kept.take(SIZE / 2 - 1, false).unwrap().len(), SIZE / 2 - 1);
    }
}
