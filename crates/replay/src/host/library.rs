//! Libraries in an executor: where entries lie, and the variables that `prepare` left.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use warpwright_plan::image::IMAGE;
use warpwright_plan::{LaunchPlan, TensorMap};

use super::executor::shared_memory;
use crate::driver::{Address, EncodedMap, Handle};
use crate::failure::{Failure, printable};
use crate::staged::Device;

/// A library of a plan, and the parts of its image that can be written.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// Bytes of the image.
    pub(crate) bytes: u64,
    /// Offset and length of each part.
    pub(crate) writable: Vec<(usize, usize)>,
}

/// Loaded libraries.
pub(crate) struct Loaded {
    bases: Vec<usize>,
    bytes: Vec<u64>,
    functions: Vec<Handle>,
}

impl Library {
    /// `file` is what lies at `path`; a plan's image of it was read.
    pub(crate) fn of(path: PathBuf, file: &[u8]) -> Option<Self> {
        const PT_LOAD: u32 = 1;
        const PF_W: u32 = 2;
        let number = |bytes: &[u8], at: usize| -> Option<usize> {
            let bytes = bytes.get(at..)?.first_chunk().copied();
            usize::try_from(u64::from_le_bytes(bytes?)).ok()
        };
        let half = |at: usize| -> Option<usize> {
            file.get(at..)?.first_chunk().copied().map(u16::from_le_bytes).map(usize::from)
        };
        let word = |bytes: &[u8], at: usize| -> Option<u32> {
            bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
        };
        let table = number(file, 0x20)?;
        let (mut writable, mut bytes) = (Vec::new(), 0);
        for index in 0..half(0x38)? {
            let header = file.get(table.checked_add(index.checked_mul(half(0x36)?)?)?..)?;
            if word(header, 0)? != PT_LOAD {
                continue;
            }
            let (at, length) = (number(header, 16)?, number(header, 40)?);
            bytes = at.checked_add(length)? as u64;
            if word(header, 4)? & PF_W != 0 {
                writable.push((at, length));
            }
        }
        Some(Self { path, bytes, writable })
    }
}

impl Loaded {
    /// Loads the libraries of a plan, in an executor.
    pub(crate) fn load(plan: &LaunchPlan, libraries: &[Library]) -> Result<Self, Failure> {
        let bases =
            libraries.iter().map(|library| open(&library.path)).collect::<Result<_, _>>()?;
        let bytes = libraries.iter().map(|library| library.bytes).collect();
        let mut loaded = Self { bases, bytes, functions: Vec::new() };
        for kernel in &plan.kernels {
            let function = loaded.entry(kernel.module, &kernel.name);
            let missing =
                || Failure::Plan(format!("there is no kernel {}", printable(&kernel.name)));
            loaded.functions.push(function.ok_or_else(missing)?);
        }
        Ok(loaded)
    }

    /// The function of an entry, which the loader has put there.
    fn entry(&self, module: u32, name: &str) -> Option<Handle> {
        let offset = name.rsplit_once('@').map_or(name, |(_, offset)| offset);
        let offset = usize::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
        let (base, bytes) = self.image(module)?;
        // Mark, function, number of arguments.
        let inside = offset.checked_add(24).is_some_and(|end| end as u64 <= bytes);
        #[expect(unsafe_code, reason = "data of a loaded library")]
        // SAFETY: the entry lies in the image, which stays loaded; the plan was checked against its file.
        inside.then(|| unsafe { pointer(base + offset + 8).cast::<Handle>().read_unaligned() })
    }

    fn image(&self, module: u32) -> Option<(usize, u64)> {
        let module = module as usize;
        Some((*self.bases.get(module)?, *self.bytes.get(module)?))
    }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Loads a library that runs nothing when it is loaded, for good; where it begins.
fn open(path: &Path) -> Result<usize, Failure> {
    let failed = |why: String| Failure::Plan(format!("failed to load a library: {why}"));
    let text = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| failed("its path contains a zero byte".to_owned()))?;
    #[expect(unsafe_code, reason = "calls of the loader")]
    // SAFETY: the builder has made sure that no function runs when it is loaded (`alone.rs`), and what the loader
    // reads of it is read by a process that is about to be the candidate's. The structure is glibc's, whose first
    // field is the base.
    unsafe {
        let handle = libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            let why = libc::dlerror();
            let why = if why.is_null() {
                "nobody says why".to_owned()
            } else {
                std::ffi::CStr::from_ptr(why).to_string_lossy().into_owned()
            };
            return Err(failed(printable(&why)));
        }
        Ok(handle.cast::<usize>().read())
    }
}

impl Device for Loaded {
    fn function(&self, kernel: u32) -> Result<Handle, Failure> {
        let function = self.functions.get(kernel as usize).copied();
        function.ok_or_else(|| Failure::Plan(format!("there is no kernel {kernel}")))
    }

    fn symbol(&self, module: u32, name: &str) -> Result<(Address, u64), Failure> {
        let image = (name == IMAGE).then(|| self.image(module)).flatten();
        let (base, bytes) = image
            .ok_or_else(|| Failure::Plan(format!("there is no variable {}", printable(name))))?;
        Ok((base as u64, bytes))
    }

    fn encode(&self, _: &TensorMap, _: Address) -> Result<EncodedMap, Failure> {
        Err(Failure::Plan("the cpu device has no tensor maps".to_owned()))
    }
}

/// What `prepare` left in the variables of libraries, in memory that is shared with executors. It is the word of an
/// executor, for later ones of the same candidate alone.
pub(crate) struct Prepared {
    parts: Vec<Part>,
}

/// A part of an image that can be written: its place, and two copies of it.
struct Part {
    module: usize,
    offset: usize,
    bytes: usize,
    /// Where the image lay; the bytes before; the bytes after.
    shared: *mut u8,
}

/// A part in an executor.
struct View<'a> {
    base: usize,
    noted_base: &'a mut usize,
    variables: &'a mut [u8],
    before: &'a mut [u8],
    after: &'a mut [u8],
}

impl Prepared {
    /// Memory for these libraries.
    pub(crate) fn reserve(libraries: &[Library]) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        for (module, library) in libraries.iter().enumerate() {
            for &(offset, bytes) in &library.writable {
                let shared = shared_memory(size_of::<usize>() + 2 * bytes)?.cast();
                parts.push(Part { module, offset, bytes, shared });
            }
        }
        Ok(Self { parts })
    }

    /// Notes what variables hold before `prepare` runs, in the executor that runs it.
    pub(crate) fn note_before(&self, loaded: &Loaded) {
        self.each(loaded, |view| {
            *view.noted_base = view.base;
            view.before.copy_from_slice(view.variables);
        });
    }

    /// Notes what it left there. Allocates nothing.
    pub(crate) fn note_after(&self, loaded: &Loaded) {
        self.each(loaded, |view| view.after.copy_from_slice(view.variables));
    }

    /// Writes what it changed, in another executor.
    pub(crate) fn write(&self, loaded: &Loaded) -> Result<(), Failure> {
        let mut moved = false;
        self.each(loaded, |view| {
            moved |= *view.noted_base != view.base;
            let changed = view.before.iter().zip(&*view.after).zip(view.variables);
            for ((before, after), variable) in changed {
                if before != after && !moved {
                    *variable = *after;
                }
            }
        });
        if moved {
            let why = "a library lies elsewhere than when `prepare` ran";
            return Err(Failure::System(why.to_owned()));
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "shared memory")]
    fn each(&self, loaded: &Loaded, mut with: impl FnMut(View<'_>)) {
        for part in &self.parts {
            let Some(&base) = loaded.bases.get(part.module) else { continue };
            let copies = part.shared.wrapping_add(size_of::<usize>());
            // SAFETY: the part lies in the loaded image, and the copies are as long. What is never written may
            // be protected against it. No kernel runs, and other processes that share the copies wait.
            with(unsafe {
                View {
                    base,
                    noted_base: &mut *part.shared.cast(),
                    variables: std::slice::from_raw_parts_mut(
                        pointer(base + part.offset),
                        part.bytes,
                    ),
                    before: std::slice::from_raw_parts_mut(copies, part.bytes),
                    after: std::slice::from_raw_parts_mut(
                        copies.wrapping_add(part.bytes),
                        part.bytes,
                    ),
                }
            });
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for part in &self.parts {
            #[expect(unsafe_code, reason = "shared memory")]
            // SAFETY: mapped in `reserve` with this length; executors have mappings of their own.
            unsafe {
                libc::munmap(part.shared.cast(), size_of::<usize>() + 2 * part.bytes);
            }
        }
    }
}
