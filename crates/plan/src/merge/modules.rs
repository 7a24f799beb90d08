//! Images and kernels that a recording names, read from the artifact and not from the recording.

use std::collections::BTreeMap;

use super::refusal::{NotRecordable, plain};
use super::{Code, Sources};
use crate::image::{Image, ImageError, fatbin_at};
use crate::limits::{MAX_ENTRIES, MAX_LOADED_BYTES, MAX_LOCAL_BYTES, MAX_MODULE_BYTES, MAX_NAME};
use crate::plan::{Kernel, Module};
use crate::recording::{RecordedModule, Recording};

/// What a recording launches from.
pub(super) struct Modules {
    /// As the plan holds them; those that an operation names, each fat binary once.
    loaded: Vec<(Module, Image)>,
    /// Index into `loaded` by the number in the recording, where one fat binary may have several.
    numbers: BTreeMap<u32, u32>,
    kernels: Vec<Kernel>,
}

impl Modules {
    /// Reads the images of all kernels, and of all modules in `more`.
    pub(super) fn read(
        recordings: [&Recording; 2],
        sources: &Sources<'_>,
        more: impl IntoIterator<Item = u32>,
    ) -> Result<Self, NotRecordable> {
        let [a, b] = recordings;
        if a.modules != b.modules || a.kernels != b.kernels {
            return Err(NotRecordable::differs("the set of kernels"));
        }
        let most = MAX_ENTRIES as u64;
        NotRecordable::beyond("modules", a.modules.len() as u64, most)?;
        NotRecordable::beyond("kernels", a.kernels.len() as u64, most)?;
        let mut reader = Reader { recording: a, sources, places: BTreeMap::new(), bytes: [0; 2] };
        let mut modules =
            Self { loaded: Vec::new(), numbers: BTreeMap::new(), kernels: Vec::new() };
        for kernel in &a.kernels {
            let module = modules.load(&mut reader, kernel.module)?;
            let (_, image) = modules.module(module)?;
            let info = image.kernel(&kernel.name);
            let info = info.ok_or_else(|| NotRecordable::recorder("a kernel is in no image"))?;
            if info.local > MAX_LOCAL_BYTES {
                return Err(NotRecordable::LocalMemory {
                    kernel: plain(&kernel.name),
                    bytes: info.local,
                    most: MAX_LOCAL_BYTES,
                });
            }
            let params = info.param_bytes();
            modules.kernels.push(Kernel {
                module,
                name: kernel.name.clone(),
                params,
                max_dynamic_shared: kernel.max_dynamic_shared,
                shared_carveout: kernel.shared_carveout,
                nonportable_cluster: kernel.nonportable_cluster,
            });
        }
        for module in more {
            modules.load(&mut reader, module)?;
        }
        Ok(modules)
    }

    /// A kernel of the recording.
    pub(super) fn kernel(&self, kernel: u32) -> Result<&Kernel, NotRecordable> {
        let found = usize::try_from(kernel).ok().and_then(|kernel| self.kernels.get(kernel));
        found.ok_or_else(|| NotRecordable::recorder("a kernel does not exist"))
    }

    /// The number of a module that the recording numbers so, as kernels have it here.
    pub(super) fn number(&self, recorded: u32) -> Result<u32, NotRecordable> {
        self.numbers.get(&recorded).copied().ok_or_else(no_module)
    }

    /// A module by that number.
    pub(super) fn module(&self, module: u32) -> Result<&(Module, Image), NotRecordable> {
        let found = usize::try_from(module).ok().and_then(|module| self.loaded.get(module));
        found.ok_or_else(no_module)
    }

    /// Reads a module of the recording, unless it was read.
    fn load(&mut self, reader: &mut Reader<'_>, recorded: u32) -> Result<u32, NotRecordable> {
        if let Some(number) = self.numbers.get(&recorded) {
            return Ok(*number);
        }
        let module = reader.find(recorded)?;
        let next = u32::try_from(self.loaded.len()).unwrap_or(u32::MAX);
        let number = *reader.places.entry((&module.library, module.address)).or_insert(next);
        if number == next {
            self.loaded.push(reader.read(module)?);
        }
        self.numbers.insert(recorded, number);
        Ok(number)
    }
}

/// Reads modules within limits.
struct Reader<'a> {
    recording: &'a Recording,
    sources: &'a Sources<'a>,
    /// Numbers of the modules that were read, by library and address.
    places: BTreeMap<(&'a str, u64), u32>,
    /// Bytes so far: in the files, and on the device.
    bytes: [u64; 2],
}

impl<'a> Reader<'a> {
    fn find(&self, recorded: u32) -> Result<&'a RecordedModule, NotRecordable> {
        let modules = &self.recording.modules;
        let found = usize::try_from(recorded).ok().and_then(|index| modules.get(index));
        found.ok_or_else(no_module)
    }

    fn read(&mut self, recorded: &RecordedModule) -> Result<(Module, Image), NotRecordable> {
        let known = self.sources.libraries.get_key_value(&recorded.library);
        let Some((file, library)) = known.filter(|(file, _)| file.len() <= MAX_NAME) else {
            let name = plain(&recorded.library);
            return Err(NotRecordable::recorder(format!("the artifact has no library {name}")));
        };
        let refused = |source: ImageError| NotRecordable::Image { library: plain(file), source };
        let range = match self.sources.code {
            Code::Gpu => fatbin_at(library, recorded.address).map_err(refused)?,
            Code::Host if recorded.address == 0 => 0..library.len(),
            Code::Host => return Err(no_module()),
        };
        let bytes = library.get(range.clone()).unwrap_or_default();
        let [in_files, on_device] = &mut self.bytes;
        *in_files = in_files.saturating_add(bytes.len() as u64);
        NotRecordable::beyond("bytes of device images", *in_files, MAX_MODULE_BYTES)?;
        let image = match self.sources.code {
            Code::Gpu => Image::read(bytes),
            Code::Host => Image::read_host(bytes),
        };
        let image = image.map_err(refused)?;
        *on_device = on_device.saturating_add(image.loaded_bytes);
        NotRecordable::beyond(
            "bytes of __device__ and __constant__ variables and of code",
            *on_device,
            MAX_LOADED_BYTES,
        )?;
        let module = Module {
            hash: blake3::hash(bytes).to_hex().to_string(),
            file: file.clone(),
            offset: range.start as u64,
            bytes: bytes.len() as u64,
        };
        Ok((module, image))
    }
}

fn no_module() -> NotRecordable {
    NotRecordable::recorder("a module does not exist")
}
