//! The device code of an artifact: its libraries, and the kernels in their fat binaries.
//!
//! Sources can put bytes into any section of a library. Only what the compiler made is device code here.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use serde_json::{Value as Json, json};
use warpwright_build::{Artifact, KernelsAlone};
use warpwright_plan::Code;
use warpwright_plan::image::{Image, ImageError, KernelInfo, fatbins};

/// The libraries of an artifact.
pub(super) struct Libraries {
    /// By name within the artifact.
    pub(super) bytes: BTreeMap<String, Vec<u8>>,
    /// One entry per fat binary, as recorders take it.
    pub(super) kernels: Vec<Json>,
}

impl Libraries {
    /// Those of an artifact, or why its device code cannot be read.
    pub(super) fn of(artifact: &Artifact, code: Code) -> Result<Self, String> {
        match code {
            Code::Gpu => Self::read(&artifact.dir, &artifact.device_images)
                .map_err(|error| error.to_string()),
            Code::Host => Self::read_alone(artifact),
        }
    }

    /// Reads what was built for kernels alone. No recorder needs a table of it.
    fn read_alone(artifact: &Artifact) -> Result<Self, String> {
        let mut found = Self { bytes: BTreeMap::new(), kernels: Vec::new() };
        for (name, alone) in &artifact.kernels_alone {
            let file = match alone {
                KernelsAlone::File(file) => file,
                KernelsAlone::Refused(why) => {
                    return Err(format!("{name} cannot be loaded for its kernels alone: {why}"));
                }
            };
            let read = fs::read(artifact.dir.join(file));
            found.bytes.insert(file.clone(), read.map_err(|error| error.to_string())?);
        }
        Ok(found)
    }

    /// Reads all that can have device code. `made` has the hashes of what the compiler made.
    fn read(artifact: &Path, made: &[String]) -> Result<Self, Unreadable> {
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
                let bytes = bytes.get(range).unwrap_or_default();
                let hash = blake3::hash(bytes).to_hex();
                if !made.iter().any(|made| made.as_str() == hash.as_str()) {
                    return Err(Unreadable::Handmade { library: name });
                }
                let image = Image::read(bytes)?;
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

/// Why the device code of an artifact is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("{library} holds device code that the compiler did not make of the sources")]
    Handmade { library: String },
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
