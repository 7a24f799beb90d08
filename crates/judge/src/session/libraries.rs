//! The device code of an artifact: its libraries, and the kernels in their fat binaries.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde_json::{Value as Json, json};
use warpwright_plan::image::{Image, ImageError, KernelInfo, fatbins};

/// The libraries of an artifact.
pub(super) struct Libraries {
    /// By name within the artifact.
    pub(super) bytes: BTreeMap<String, Vec<u8>>,
    /// One entry per fat binary, as recorders take it.
    pub(super) kernels: Vec<Json>,
}

impl Libraries {
    /// Reads all that can have device code.
    pub(super) fn read(artifact: &Path) -> Result<Self, ImageError> {
        let mut names = vec!["libkernels.so".to_owned(), "cuda_extension.so".to_owned()];
        if let Ok(inline) = fs::read_dir(artifact.join("inline")) {
            let files = inline.flatten();
            names
                .extend(files.map(|file| format!("inline/{}", file.file_name().to_string_lossy())));
        }
        let mut found = Self { bytes: BTreeMap::new(), kernels: Vec::new() };
        for name in names {
            let Ok(bytes) = fs::read(artifact.join(&name)) else { continue };
            for (address, range) in fatbins(&bytes)? {
                let image = Image::read(bytes.get(range).unwrap_or_default())?;
                let kernels = image.kernels.iter();
                let table: serde_json::Map<String, Json> =
                    kernels.map(|(name, kernel)| (name.clone(), told(kernel))).collect();
                let entry = json!({"library": name, "address": address, "kernels": table});
                found.kernels.push(entry);
            }
            found.bytes.insert(name, bytes);
        }
        Ok(found)
    }
}

/// A kernel, as recorders take it.
fn told(kernel: &KernelInfo) -> Json {
    json!({
        "params": kernel.param_bytes(),
        "registers": kernel.registers,
        "shared": kernel.static_shared,
        "local": kernel.local,
        "max_threads": kernel.max_threads,
    })
}
