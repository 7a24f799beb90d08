//! The judge's memory in the replayer's address space: the arena, and beside it the inputs of a window.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::context::Context;
use crate::driver::{AccessDesc, Address, Location};
use crate::failure::Failure;

/// The driver maps memory as it was made, in multiples of this.
const GRAIN: u64 = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const POSIX_DESCRIPTOR: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;

/// Where memory lies, in bytes from the arena's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Bytes of the arena.
    pub(crate) arena: u64,
    /// Where inputs begin.
    pub(crate) apart_at: u64,
    /// Most bytes of inputs.
    pub(crate) apart_bytes: u64,
}

impl Extents {
    /// Bytes of addresses to reserve. Fails where inputs would overlap the arena, or cannot be mapped.
    fn reach(self) -> Result<u64, Failure> {
        let whole = |bytes: u64| {
            let whole = bytes.checked_next_multiple_of(GRAIN);
            whole.ok_or_else(|| Failure::Request(format!("{bytes} bytes of memory are too many")))
        };
        let arena = whole(self.arena)?;
        if self.apart_bytes == 0 {
            return Ok(arena);
        }
        if self.apart_at < arena || !self.apart_at.is_multiple_of(GRAIN) {
            return Err(Failure::Request(format!(
                "inputs cannot lie at {} beside an arena of {arena} bytes",
                self.apart_at
            )));
        }
        let end = self.apart_at.checked_add(self.apart_bytes);
        whole(end.ok_or_else(|| Failure::Request("inputs end beyond all addresses".to_owned()))?)
    }
}

/// What memory there is now, in bytes from the arena's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of the arena.
    pub(crate) arena: u64,
    /// Where inputs begin.
    pub(crate) apart_at: u64,
    /// Bytes of inputs that are mapped.
    pub(crate) apart: u64,
}

impl Room {
    /// Whether these bytes lie in the arena.
    pub(crate) fn in_arena(self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.arena)
    }

    /// Whether these bytes lie in the memory of inputs.
    pub(crate) fn in_apart(self, offset: u64, bytes: u64) -> bool {
        let from = offset.checked_sub(self.apart_at);
        from.and_then(|from| from.checked_add(bytes)).is_some_and(|end| end <= self.apart)
    }
}

/// Mapped memory of the judge's.
pub(crate) struct Memory {
    pub(crate) base: Address,
    extents: Extents,
    /// Bytes that are mapped where inputs lie.
    apart: u64,
}

impl Memory {
    /// Reserves addresses, and maps the arena at their start.
    pub(crate) fn map(
        context: &Context,
        arena: &OwnedFd,
        extents: Extents,
    ) -> Result<Self, Failure> {
        let reach = size(extents.reach()?)?;
        let mut base = 0;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: `base` outlives the call.
        let code = unsafe { (context.driver.address_reserve)(&raw mut base, reach, 0, 0, 0) };
        context.driver.check("reserve device addresses", code)?;
        import(context, arena, base, extents.arena.next_multiple_of(GRAIN))?;
        Ok(Self { base, extents, apart: 0 })
    }

    /// Maps other memory where inputs lie, in place of what was there.
    pub(crate) fn replace_inputs(
        &mut self,
        context: &Context,
        inputs: &OwnedFd,
        bytes: u64,
    ) -> Result<(), Failure> {
        self.unmap_inputs(context)?;
        let mapped = bytes.checked_next_multiple_of(GRAIN);
        let mapped = mapped.filter(|mapped| {
            bytes > 0 && *mapped <= self.extents.apart_bytes.next_multiple_of(GRAIN)
        });
        let mapped = mapped.ok_or_else(|| {
            Failure::Request(format!(
                "inputs of {bytes} bytes do not fit the {} bytes beside the arena",
                self.extents.apart_bytes
            ))
        })?;
        import(context, inputs, self.base + self.extents.apart_at, mapped)?;
        self.apart = mapped;
        Ok(())
    }

    /// Unmaps the inputs. Nothing that uses them may be running.
    pub(crate) fn unmap_inputs(&mut self, context: &Context) -> Result<(), Failure> {
        let bytes = std::mem::take(&mut self.apart);
        if bytes == 0 {
            return Ok(());
        }
        let at = self.base + self.extents.apart_at;
        #[expect(unsafe_code, reason = "CUDA driver calls")]
        // SAFETY: this range was mapped as a whole.
        let code = unsafe { (context.driver.memory_unmap)(at, size(bytes)?) };
        context.driver.check("unmap inputs", code)
    }

    /// What memory there is now.
    pub(crate) fn room(&self) -> Room {
        let Extents { arena, apart_at, .. } = self.extents;
        Room { arena, apart_at, apart: self.apart }
    }
}

fn size(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::Request(format!("{bytes} bytes are too many")))
}

/// Maps exported memory of `bytes`, a multiple of [`GRAIN`], at an address that is reserved.
fn import(context: &Context, memory: &OwnedFd, at: Address, bytes: u64) -> Result<(), Failure> {
    let d = context.driver;
    let bytes = size(bytes)?;
    let access = AccessDesc {
        location: Location { kind: ON_DEVICE, id: context.device },
        flags: READ_WRITE,
    };
    let mut handle: c_ulonglong = 0;
    // The driver takes the number itself in place of a pointer.
    let number = std::ptr::without_provenance_mut::<c_void>(memory.as_raw_fd() as usize);
    #[expect(unsafe_code, reason = "CUDA driver calls")]
    // SAFETY: the descriptor is open; the struct has the layout of cuda.h and outlives the calls; the
    // addresses are reserved, and nothing is mapped there. What is mapped stays until it is unmapped.
    unsafe {
        let import = (d.memory_import)(&raw mut handle, number, POSIX_DESCRIPTOR);
        d.check("import device memory", import)?;
        let map = (d.memory_map)(at, bytes, 0, handle, 0);
        let open = if map == 0 { (d.memory_access)(at, bytes, &raw const access, 1) } else { 0 };
        if open != 0 {
            (d.memory_unmap)(at, bytes);
        }
        let release = (d.memory_release)(handle);
        d.check("map device memory", map)?;
        d.check("open device memory", open)?;
        d.check("release device memory", release)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reserved_addresses_hold_arena_and_inputs() {
        let reach = |arena, apart_at, apart_bytes| Extents { arena, apart_at, apart_bytes }.reach();
        assert_eq!(reach(5, 5, 0), Ok(GRAIN));
        assert_eq!(reach(5, GRAIN, 1), Ok(2 * GRAIN));
        assert_eq!(reach(5, 4 * GRAIN, GRAIN), Ok(5 * GRAIN));
        for (arena, at, bytes) in [
            (GRAIN + 1, GRAIN, 1),
            (1, GRAIN + 1, 1),
            (u64::MAX, 0, 0),
            (1, u64::MAX / GRAIN * GRAIN, GRAIN),
        ] {
            assert!(reach(arena, at, bytes).is_err(), "{arena} {at} {bytes}");
        }
    }

    #[test]
    fn inputs_lie_only_in_mapped_memory() {
        let room = Room { arena: 100, apart_at: 1000, apart: 50 };
        assert!(room.in_arena(0, 100) && room.in_arena(100, 0) && !room.in_arena(1, 100));
        assert!(room.in_apart(1000, 50) && !room.in_apart(1001, 50) && !room.in_apart(999, 1));
        assert!(!room.in_arena(1000, 1), "an input beside the arena is not in it");
    }

    proptest! {
        #[test]
        fn hostile_extents_never_panic(arena: u64, apart_at: u64, apart_bytes: u64, offset: u64, bytes: u64) {
            let _ = Extents { arena, apart_at, apart_bytes }.reach();
            let room = Room { arena, apart_at, apart: apart_bytes };
            prop_assert!(!room.in_arena(offset, bytes) || offset <= arena && bytes <= arena - offset);
            let _ = room.in_apart(offset, bytes);
        }
    }
}
