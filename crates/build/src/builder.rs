//! The builder: its tools, its cache, and what messages call its folders.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use warpwright_jail::Jail;

use crate::cache::Cache;
use crate::diagnostics::Scrub;
use crate::error::BuildError;
use crate::libraries::Cutlass;
use crate::precompiled::Precompiled;
use crate::settings::Settings;
use crate::support::Support;
use crate::toolchain::Toolchain;

/// Builds candidates. It can be shared between threads and, through its cache, between processes.
#[derive(Debug)]
pub struct Builder {
    jail: Arc<Jail>,
    toolchain: Toolchain,
    settings: Settings,
    cache: Cache,
    support: Support,
    headers: Precompiled,
}

impl Builder {
    /// A builder with its cache in `cache_dir`, which is created if it does not exist.
    pub fn new(
        jail: Arc<Jail>,
        toolchain: Toolchain,
        settings: Settings,
        cache_dir: &Path,
    ) -> Result<Self, BuildError> {
        let cache = Cache::open(cache_dir, settings.cache_bytes)?;
        let support = Support::write(&fs::canonicalize(cache_dir)?.join("support"))?;
        let headers = Precompiled::default();
        Ok(Self { jail, toolchain, settings, cache, support, headers })
    }

    /// The tools this builder uses.
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// Folder with every artifact; a runner's jail must mount it.
    pub fn cache_dir(&self) -> &Path {
        self.cache.root()
    }

    pub(crate) fn jail(&self) -> &Jail {
        &self.jail
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn support(&self) -> &Support {
        &self.support
    }

    pub(crate) fn headers(&self) -> &Precompiled {
        &self.headers
    }

    /// Replacements for this machine's folders in messages.
    pub(crate) fn scrub(&self, tree: &Path) -> Scrub {
        let mut known: Vec<(PathBuf, &str)> = vec![
            (tree.to_owned(), ""),
            (self.support.hostcuda.clone(), "<hostcuda>/"),
            (self.support.torch_cpu.clone(), "<torch>/"),
        ];
        if let Some(torch) = &self.toolchain.torch {
            known.push((torch.root.join("include"), "<torch>/"));
            known.push((torch.root.clone(), "<torch>/"));
        }
        if let Some(cuda) = &self.toolchain.nvcc {
            known.push((cuda.root.join("include"), "<cuda>/"));
            // nvcc spells its own headers by way of its bin folder.
            known.push((cuda.root.join("bin/..//include"), "<cuda>/"));
            known.push((cuda.root.clone(), "<cuda>/"));
        }
        for include in self.toolchain.cutlass.iter().flat_map(Cutlass::includes) {
            known.push((include, "<cutlass>/"));
        }
        if let Some(include) = self.toolchain.python.as_ref().and_then(|p| p.include.clone()) {
            known.push((include, "<python>/"));
        }
        let text = |(path, label): (PathBuf, &str)| (path.display().to_string(), label.to_owned());
        Scrub::new(known.into_iter().map(text).collect())
    }
}
