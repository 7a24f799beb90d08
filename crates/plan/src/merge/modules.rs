//! Images and kernels that a recording names, read from the artifact and not from the recording.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Sources;
use super::refusal::{NotRecordable, plain};
use crate::image::{Image, fatbin_at};
use crate::limits::{MAX_ENTRIES, MAX_NAME};
use crate::plan::{Kernel, Module};
use crate::recording::Recording;

/// What a recording launches from.
pub(super) struct Modules {
    /// As the plan holds them, by their number in the recording; those that an operation names.
    loaded: BTreeMap<u32, (Module, Image)>,
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
        let mut modules = Self { loaded: BTreeMap::new(), kernels: Vec::new() };
        for kernel in &a.kernels {
            let (_, image) = modules.load(a, sources, kernel.module)?;
            let info = image.kernels.get(&kernel.name);
            let info = info.ok_or_else(|| NotRecordable::recorder("a kernel is in no image"))?;
            let params = info.param_bytes();
            modules.kernels.push(Kernel {
                module: kernel.module,
                name: kernel.name.clone(),
                params,
                max_dynamic_shared: kernel.max_dynamic_shared,
                shared_carveout: kernel.shared_carveout,
                nonportable_cluster: kernel.nonportable_cluster,
            });
        }
        for module in more {
            modules.load(a, sources, module)?;
        }
        Ok(modules)
    }

    /// A kernel of the recording; its module is numbered as there.
    pub(super) fn kernel(&self, kernel: u32) -> Result<&Kernel, NotRecordable> {
        let found = usize::try_from(kernel).ok().and_then(|kernel| self.kernels.get(kernel));
        found.ok_or_else(|| NotRecordable::recorder("a kernel does not exist"))
    }

    /// A module of the recording.
    pub(super) fn module(&self, module: u32) -> Result<&(Module, Image), NotRecordable> {
        let found = self.loaded.get(&module);
        found.ok_or_else(|| NotRecordable::recorder("a module does not exist"))
    }

    fn load(
        &mut self,
        recording: &Recording,
        sources: &Sources<'_>,
        module: u32,
    ) -> Result<&(Module, Image), NotRecordable> {
        Ok(match self.loaded.entry(module) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(read(recording, sources, module)?),
        })
    }
}

fn read(
    recording: &Recording,
    sources: &Sources<'_>,
    module: u32,
) -> Result<(Module, Image), NotRecordable> {
    let recorded = usize::try_from(module).ok().and_then(|index| recording.modules.get(index));
    let recorded = recorded.ok_or_else(|| NotRecordable::recorder("a module does not exist"))?;
    let known = sources.libraries.get_key_value(&recorded.library);
    let Some((file, library)) = known.filter(|(file, _)| file.len() <= MAX_NAME) else {
        let name = plain(&recorded.library);
        return Err(NotRecordable::recorder(format!("the artifact has no library {name}")));
    };
    let refused = |source| NotRecordable::Image { library: plain(file), source };
    let range = fatbin_at(library, recorded.address).map_err(refused)?;
    let bytes = library.get(range.clone()).unwrap_or_default();
    let image = Image::read(bytes).map_err(refused)?;
    let module = Module {
        hash: blake3::hash(bytes).to_hex().to_string(),
        file: file.clone(),
        offset: range.start as u64,
        bytes: bytes.len() as u64,
    };
    Ok((module, image))
}
