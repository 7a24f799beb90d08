//! Device images: what kernels and variables they have, read without a driver.
//!
//! The driver is asked again when a plan is replayed; here the judge learns what the recorder must know
//! (parameter sizes, registers), and what a recording may claim.

mod elf;
mod fatbin;
mod host;

use std::collections::{BTreeMap, BTreeSet};

use elf::{Elf, Section, Symbol, u16_at, u32_at};
pub use fatbin::{fatbin_at, fatbins};
pub use host::IMAGE;

/// `EM_CUDA`.
const MACHINE: u16 = 190;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
/// Bit of `st_other`: a kernel, not a device function.
const STO_CUDA_ENTRY: u8 = 0x10;
/// Most kernels and variables together. Names may overlap, so that a small image could have many.
const MAX_SYMBOLS: usize = 8192;
/// From compute capability 9.0 on, a kernel's section of shared memory begins with what the driver reserves.
const RESERVED_SHARED: (u32, u64) = (90, 1024);

/// Tags of attributes in `.nv.info`, as nvcc 13 writes them.
mod tag {
    pub(super) const MAX_THREADS: u8 = 0x05;
    pub(super) const REQUIRED_THREADS: u8 = 0x10;
    pub(super) const FRAME_BYTES: u8 = 0x11;
    pub(super) const STACK_BYTES: u8 = 0x12;
    /// Size in the upper 14 of 32 bits.
    pub(super) const PARAMETER: u8 = 0x17;
    pub(super) const REGISTERS: u8 = 0x2f;
    pub(super) const CLUSTER: u8 = 0x3d;
    /// With a size of 32 bits, where parameters exceed 4 KiB.
    pub(super) const LARGE_PARAMETER: u8 = 0x45;
}

/// An image that the driver loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Compute capability that it was compiled for, e.g. 90.
    pub compute_capability: u32,
    /// Entry points, by name; see [`Image::kernel`].
    pub kernels: BTreeMap<String, KernelInfo>,
    /// Bytes of `__device__` and `__constant__` variables, by name.
    pub symbols: BTreeMap<String, u64>,
    /// Functions of the device runtime that its kernels call, e.g. `vprintf`, `malloc`, `__assertfail`. They
    /// have effects that no plan describes: output, memory that outlives the module, launches.
    pub needs: BTreeSet<String>,
    /// Bytes that the driver keeps on the device for code and variables, at most: those of all sections but
    /// shared memory, or of all variables if these claim more.
    pub loaded_bytes: u64,
}

/// An entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Parameters in order.
    pub params: Vec<Parameter>,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block in bytes, without what the driver reserves.
    pub static_shared: u64,
    /// Stack per thread in bytes, as far as the compiler knows it: without recursion.
    pub local: u32,
    /// Threads per block that `__launch_bounds__` allows.
    pub max_threads: Option<u64>,
    /// Block dimensions that `__block_size__` prescribes.
    pub required_block: Option<[u32; 3]>,
    /// Cluster dimensions that `__cluster_dims__` prescribes.
    pub cluster: Option<[u32; 3]>,
}

/// A kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// From the first parameter, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// Why an image cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ImageError {
    #[error("failed to read a device image: malformed {what}")]
    Malformed { what: &'static str },
    #[error("the library has no fat binary at address {address:#x}")]
    NoFatbin { address: u64 },
    #[error("the device image is compressed; compile it with `--no-compress`")]
    Compressed,
    #[error("the fat binary holds PTX; compile for one architecture only")]
    Ptx,
    #[error("the fat binary holds several device images; compile for one architecture only")]
    Several,
}

impl Image {
    /// An entry point. In a library of the host it is found by what follows the last `@` of its name.
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        let entry = name.rsplit_once('@').map_or(name, |(_, entry)| entry);
        self.kernels.get(name).or_else(|| self.kernels.get(entry))
    }

    /// Reads a fat binary that holds one image, or a bare one (`.cubin`).
    pub fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let image = if fatbin::is_fatbin(bytes) { fatbin::only_image(bytes)? } else { bytes };
        let elf = Elf::read(image)?;
        if elf.machine != MACHINE {
            return Err(ImageError::Malformed { what: "ELF file: it is not for a GPU" });
        }
        let symbols = elf.symbols()?;
        let named = symbols.iter().filter(|symbol| matches!(symbol.kind, STT_OBJECT | STT_FUNC));
        if named.count() > MAX_SYMBOLS {
            return Err(ImageError::Malformed { what: "symbol table: it is too long" });
        }
        // The lowest byte of the flags until version 7, which CUDA 12 writes.
        let shift = if elf.abi_version >= 8 { 8 } else { 0 };
        let compute_capability = elf.flags >> shift & 0xff;
        let mut kernels = BTreeMap::new();
        for symbol in symbols.iter().filter(|symbol| is_kernel(symbol)) {
            kernels.insert(symbol.name.to_owned(), KernelInfo::default());
        }
        if kernels.len() != symbols.iter().filter(|symbol| is_kernel(symbol)).count() {
            return Err(ImageError::Malformed { what: "symbol table: two kernels have one name" });
        }
        // Sections that overlap could make a small image take long.
        let mut left = image.len();
        let mut contents = |section| {
            let contents = elf.contents(section)?;
            let rest = left.checked_sub(contents.len());
            left = rest.ok_or(ImageError::Malformed { what: "ELF file: its sections overlap" })?;
            attributes(contents)
        };
        for section in &elf.sections {
            if section.name == ".nv.info" {
                by_symbol(&contents(section)?, &symbols, &mut kernels);
            } else if let Some(kernel) = of_kernel(section, ".nv.info.", &mut kernels) {
                kernel.read(&contents(section)?)?;
            } else if let Some(kernel) = of_kernel(section, ".nv.shared.", &mut kernels) {
                let (since, reserved) = RESERVED_SHARED;
                let reserved = if compute_capability >= since { reserved } else { 0 };
                kernel.static_shared = section.bytes.saturating_sub(reserved);
            }
        }
        let undefined = symbols.iter().filter(|s| s.kind == STT_FUNC && s.section == 0);
        let variables = variables(&elf, &symbols)?;
        let claimed = variables.values().copied().fold(0, u64::saturating_add);
        let lasting = elf.sections.iter().filter(|s| !s.name.starts_with(".nv.shared."));
        let bytes = lasting.map(|section| section.bytes).fold(0, u64::saturating_add);
        Ok(Self {
            compute_capability,
            kernels,
            needs: undefined.map(|symbol| symbol.name.to_owned()).collect(),
            symbols: variables,
            loaded_bytes: bytes.max(claimed),
        })
    }
}

impl KernelInfo {
    /// Bytes of each parameter.
    pub fn param_bytes(&self) -> Vec<u32> {
        self.params.iter().map(|param| param.bytes).collect()
    }

    /// Takes what the section of this kernel says.
    fn read(&mut self, attributes: &[(u8, &[u8])]) -> Result<(), ImageError> {
        let malformed = ImageError::Malformed { what: "attributes of a kernel" };
        self.try_read(attributes).ok_or(malformed)
    }

    fn try_read(&mut self, attributes: &[(u8, &[u8])]) -> Option<()> {
        let mut params = BTreeMap::new();
        for (tag, value) in attributes {
            match *tag {
                tag::PARAMETER | tag::LARGE_PARAMETER => {
                    let size = u32_at(value, 8)?;
                    let bytes = if *tag == tag::PARAMETER { size >> 18 } else { size };
                    let offset = u32::from(u16_at(value, 6)?);
                    let twice = params.insert(u16_at(value, 4)?, Parameter { offset, bytes });
                    if twice.is_some() || bytes == 0 {
                        return None;
                    }
                }
                tag::MAX_THREADS => {
                    let [x, y, z] = three(value)?.map(u64::from);
                    self.max_threads = Some(x.saturating_mul(y).saturating_mul(z));
                }
                tag::REQUIRED_THREADS => self.required_block = Some(three(value)?),
                tag::CLUSTER => self.cluster = Some(three(value)?),
                _ => {}
            }
        }
        let in_order = params.keys().copied().eq((0..).take(params.len()));
        self.params = params.into_values().collect();
        in_order.then_some(())
    }
}

/// The section's kernel, if its name is `prefix` and a kernel's.
fn of_kernel<'k>(
    section: &Section<'_>,
    prefix: &str,
    kernels: &'k mut BTreeMap<String, KernelInfo>,
) -> Option<&'k mut KernelInfo> {
    kernels.get_mut(section.name.strip_prefix(prefix)?)
}

fn is_kernel(symbol: &Symbol<'_>) -> bool {
    symbol.kind == STT_FUNC && symbol.section != 0 && symbol.other & STO_CUDA_ENTRY != 0
}

/// Takes what the section of all kernels says: a symbol's number and a value.
fn by_symbol(
    attributes: &[(u8, &[u8])],
    symbols: &[Symbol<'_>],
    kernels: &mut BTreeMap<String, KernelInfo>,
) {
    for (tag, value) in attributes {
        let (Some(number), Some(amount)) = (u32_at(value, 0), u32_at(value, 4)) else { continue };
        let symbol = usize::try_from(number).ok().and_then(|number| symbols.get(number));
        let Some(kernel) = symbol.and_then(|symbol| kernels.get_mut(symbol.name)) else { continue };
        match *tag {
            tag::REGISTERS => kernel.registers = amount,
            tag::FRAME_BYTES | tag::STACK_BYTES => kernel.local = kernel.local.max(amount),
            _ => {}
        }
    }
}

fn variables(elf: &Elf<'_>, symbols: &[Symbol<'_>]) -> Result<BTreeMap<String, u64>, ImageError> {
    let mut found = BTreeMap::new();
    for symbol in symbols.iter().filter(|symbol| symbol.kind == STT_OBJECT) {
        let section = elf.sections.get(usize::from(symbol.section));
        let device = section.is_some_and(|section| {
            section.name.starts_with(".nv.global") || section.name == ".nv.constant3"
        });
        if device && found.insert(symbol.name.to_owned(), symbol.bytes).is_some() {
            return Err(ImageError::Malformed {
                what: "symbol table: two variables have one name",
            });
        }
    }
    Ok(found)
}

/// Tags and values: a byte for the format, one for the tag, and two for the value or its length.
fn attributes(mut bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, ImageError> {
    let mut found = Vec::new();
    while let Some(([format, tag, low, high], rest)) = bytes.split_first_chunk() {
        let length = if *format == 4 { u16::from_le_bytes([*low, *high]) } else { 0 };
        let split = rest.split_at_checked(usize::from(length));
        let malformed = ImageError::Malformed { what: "attributes of a kernel" };
        let (value, after) = split.ok_or(malformed)?;
        found.push((*tag, value));
        bytes = after;
    }
    Ok(found)
}

fn three(value: &[u8]) -> Option<[u32; 3]> {
    Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?])
}
