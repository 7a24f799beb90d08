//! Launch plans as files: all that judging a candidate's plans once more needs.
//!
//! ```text
//! magic (8) | version (4) | zstd: bytes of the head (4) | head (JSON) | images | constants
//! ```
//!
//! Numbers are little endian. `images` are those of the plan's modules, `constants` those of each set of weights,
//! in order and without gaps; the head has their lengths and hashes. A file is named by the BLAKE3 of its bytes.
//! It may come from anywhere: it is read with limits, and everything in it is checked.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use thiserror::Error;
use warpwright_plan::image::{Image, ImageError};
use warpwright_plan::limits::{MAX_CONSTANT_BYTES, MAX_ENTRIES, MAX_MODULE_BYTES, MAX_TENSORS};
use warpwright_plan::{Constant, Invalid, LaunchPlan};
use warpwright_record::blob::BlobHash;
use warpwright_record::libraries::Library;
use warpwright_record::verdict::Profile;
use warpwright_task::{MAX_SOURCE_BYTES, Mode, Task};

use crate::process::replayer::PlanOf;

const MAGIC: &[u8; 8] = b"wwplan\r\n";
/// Version of the file. A reader refuses every other one.
pub(super) const VERSION: u32 = 1;
/// Most bytes of the head: a plan's text, and a task's source.
const MAX_HEAD_BYTES: u64 = 64 << 20;
/// Most bytes of a file.
pub const MAX_PLAN_FILE_BYTES: u64 = 256 << 20;
/// Sets of weights that a candidate is judged with.
const SETS: usize = 2;
/// Most names of library calls.
const MAX_LIBRARY_CALLS: usize = 4096;
/// Fast, and kernels shrink to a quarter.
const LEVEL: i32 = 3;
/// Beginning of the label of a target that is a GPU.
const GPU_TARGET: &str = "cuda-";

/// A candidate as launch plans, apart from the machine that recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPlan {
    pub(crate) head: Head,
    /// Those of the plan's modules.
    pub(crate) images: Vec<Vec<u8>>,
    /// For each set of weights.
    pub(crate) constants: Vec<Vec<Vec<u8>>>,
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) task: StoredTask,
    /// BLAKE3 of the candidate's files.
    pub(crate) candidate: String,
    pub(crate) profile: Profile,
    /// Seed of the reference's weights.
    pub(crate) seed: u64,
    /// What the device code was compiled for, as `Target::label` names it.
    pub(crate) target: String,
    /// The plan; each module's file is named by its hash.
    pub(crate) plan: LaunchPlan,
    pub(crate) weights: Vec<StoredWeights>,
    /// Structure of the inputs of both recordings, and the numbers among them.
    pub(crate) trees: [Json; 2],
    /// Milliseconds of `prepare()` on the host.
    pub(crate) prepare_ms: f64,
    /// Matrix products that the candidate's binaries call.
    pub(crate) library_calls: Vec<String>,
    /// Header libraries that its device code used.
    #[serde(default)]
    pub(crate) libraries: Vec<Library>,
    /// Forms of the tensors around the plan; files of earlier programs have none.
    #[serde(default)]
    pub(crate) forms: Option<TensorForms>,
}

/// Forms of the tensors that a plan was recorded with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorForms {
    /// Those among the inputs, in order of appearance.
    pub inputs: Vec<TensorForm>,
    /// The entries of the `state_dict`, in order.
    pub state: Vec<TensorForm>,
    /// Positions of the inputs that the reference changes.
    pub changed: Vec<u32>,
}

/// Form of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorForm {
    /// Extent per dimension.
    pub shape: Vec<u64>,
    /// Elements between neighbours, per dimension.
    pub strides: Vec<i64>,
    /// Torch's name without the prefix, e.g. `float32`.
    pub dtype: String,
}

/// The task, as the judge knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredTask {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) mode: Mode,
}

/// A set of weights that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredWeights {
    pub(crate) name: String,
    /// BLAKE3 of the weights and of the constructor's arguments: the constants were computed from them.
    pub(crate) hash: String,
    pub(crate) constants: Vec<Constant>,
}

/// Why a file is no launch plan that can be replayed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PlanFileError {
    #[error("the file is no launch plan of warpwright")]
    Magic,
    #[error("the launch plan file has version {found}, and this program reads version {VERSION}")]
    Version { found: u32 },
    #[error("the launch plan file is damaged: {0}")]
    Damaged(String),
    #[error("the launch plan file is too large: {0}")]
    TooLarge(&'static str),
    #[error("the content of the launch plan file is not that of its name: {found}")]
    Hash { found: BlobHash },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl PlanFileError {
    /// The cure.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Magic => "name the plan file that was stored with the verdict",
            Self::Version { .. } | Self::Invalid(Invalid::Version { .. }) => {
                "judge the candidate again with this version of the program, or replay with the one that wrote it"
            }
            Self::Damaged(_) | Self::TooLarge(_) | Self::Hash { .. } => {
                "copy the file again from where the verdict was made, or judge the candidate again"
            }
            Self::Image(_) | Self::Invalid(_) => "judge the candidate again",
        }
    }
}

fn damaged(what: impl std::fmt::Display) -> PlanFileError {
    PlanFileError::Damaged(what.to_string())
}

impl StoredPlan {
    /// Reads and checks a file whose BLAKE3 must be `hash`.
    pub fn read(bytes: &[u8], hash: BlobHash) -> Result<Self, PlanFileError> {
        let found = BlobHash::of(bytes);
        if found != hash {
            return Err(PlanFileError::Hash { found });
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(PlanFileError::Magic)?;
        let (version, rest) = rest.split_first_chunk().ok_or(PlanFileError::Magic)?;
        let found = u32::from_le_bytes(*version);
        if found != VERSION {
            return Err(PlanFileError::Version { found });
        }
        let mut content = zstd::Decoder::with_buffer(rest).map_err(damaged)?;
        let mut length = [0; 4];
        content.read_exact(&mut length).map_err(damaged)?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > MAX_HEAD_BYTES {
            return Err(PlanFileError::TooLarge("its head"));
        }
        let head: Head = serde_json::from_slice(&take(&mut content, length)?).map_err(damaged)?;
        head.limits()?;
        let mut images = Vec::with_capacity(head.plan.modules.len());
        for module in &head.plan.modules {
            images.push(hashed(&mut content, module.bytes, &module.hash)?);
        }
        let mut constants = Vec::with_capacity(SETS);
        for weights in &head.weights {
            let each = weights.constants.iter();
            let each = each.map(|constant| hashed(&mut content, constant.bytes, &constant.hash));
            constants.push(each.collect::<Result<Vec<_>, _>>()?);
        }
        if content.read(&mut [0]).map_err(damaged)? != 0 {
            return Err(damaged("there is more than its head says"));
        }
        let stored = Self { head, images, constants };
        stored.check()?;
        Ok(stored)
    }

    /// The file.
    pub(crate) fn write(&self) -> std::io::Result<Vec<u8>> {
        let head = serde_json::to_vec(&self.head)?;
        let mut content = Vec::with_capacity(head.len());
        content.extend(u32::try_from(head.len()).map_err(std::io::Error::other)?.to_le_bytes());
        content.extend(head);
        let all = self.images.iter().chain(self.constants.iter().flatten());
        all.for_each(|bytes| content.extend(bytes));
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend(zstd::bulk::compress(&content, LEVEL)?);
        Ok(file)
    }

    /// Checks every plan, against its images where they are a GPU's. Those of the host's kernels are the
    /// replayer's to check.
    fn check(&self) -> Result<(), PlanFileError> {
        let modules = &self.head.plan.modules;
        if modules.iter().any(|module| module.file != module.hash || module.offset != 0) {
            return Err(damaged("a module is not named by its hash"));
        }
        if !self.head.target.starts_with(GPU_TARGET) {
            return Ok(());
        }
        let images: Vec<Image> =
            self.images.iter().map(|image| Image::read(image)).collect::<Result<_, _>>()?;
        self.head.weights.iter().try_for_each(|weights| self.plan(weights).check(&images))?;
        Ok(())
    }

    /// The plan for a set of weights.
    fn plan(&self, weights: &StoredWeights) -> LaunchPlan {
        LaunchPlan { constants: weights.constants.clone(), ..self.head.plan.clone() }
    }

    /// The plans, by the name of their weights.
    pub(crate) fn plans(&self) -> Result<Vec<(&str, PlanOf)>, PlanFileError> {
        let needs = self.needs()?;
        let sets = self.head.weights.iter().zip(&self.constants);
        Ok(sets
            .map(|(weights, constants)| {
                let plan = self.plan(weights);
                let (constants, needs) = (constants.clone(), needs.clone());
                (weights.name.as_str(), PlanOf { plan, constants, needs })
            })
            .collect())
    }

    /// Functions of the device runtime that its images call.
    fn needs(&self) -> Result<BTreeSet<String>, PlanFileError> {
        let mut needs = BTreeSet::new();
        if self.head.target.starts_with(GPU_TARGET) {
            for image in &self.images {
                needs.extend(Image::read(image)?.needs);
            }
        }
        Ok(needs)
    }

    /// Writes the images to a folder, as the plan's modules name them.
    pub(crate) fn unpack(&self, folder: &Path) -> std::io::Result<()> {
        let named = self.head.plan.modules.iter().zip(&self.images);
        for (module, image) in named {
            // A hash has no separators: it was compared with the image's own.
            fs::write(folder.join(&module.hash), image)?;
        }
        Ok(())
    }

    /// The task that the plan is a candidate for.
    pub fn task(&self) -> Task {
        let StoredTask { name, source, mode } = &self.head.task;
        Task { mode: *mode, ..Task::from_source(name, source.clone()) }
    }

    /// BLAKE3 of the candidate's files.
    pub fn candidate(&self) -> &str {
        &self.head.candidate
    }

    /// Rules of precision and comparison under which it was recorded.
    pub fn profile(&self) -> Profile {
        self.head.profile
    }

    /// Seed of the reference's weights with which it was recorded.
    pub fn seed(&self) -> u64 {
        self.head.seed
    }

    /// The source of the task.
    pub fn reference(&self) -> &str {
        &self.head.task.source
    }

    /// The mode in which reference and candidate were judged.
    pub fn mode(&self) -> Mode {
        self.head.task.mode
    }

    /// The plan for the first set of weights.
    pub fn launch_plan(&self) -> &LaunchPlan {
        &self.head.plan
    }

    /// What its device code was compiled for: `cuda-sm_90a`, `cpu`.
    pub fn target(&self) -> &str {
        &self.head.target
    }

    /// The images of the plan's modules.
    pub fn images(&self) -> &[Vec<u8>] {
        &self.images
    }

    /// The contents of the plan's constants, for each set of weights.
    pub fn constants(&self) -> &[Vec<Vec<u8>>] {
        &self.constants
    }

    /// Structure of the inputs of both recordings, and the numbers among them.
    pub fn input_trees(&self) -> &[Json; 2] {
        &self.head.trees
    }

    /// Forms of the tensors around the plan, if the file has them.
    pub fn forms(&self) -> Option<&TensorForms> {
        self.head.forms.as_ref()
    }

    /// Whether the device code is machine code of a host.
    pub fn is_host_code(&self) -> bool {
        !self.head.target.starts_with(GPU_TARGET)
    }
}

impl Head {
    /// Whether it promises no more than there may be.
    fn limits(&self) -> Result<(), PlanFileError> {
        let too_large = |what| Err(PlanFileError::TooLarge(what));
        let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.fold(0, u64::saturating_add);
        let modules = &self.plan.modules;
        if modules.len() > MAX_ENTRIES
            || sum(&mut modules.iter().map(|module| module.bytes)) > MAX_MODULE_BYTES
        {
            return too_large("its modules");
        }
        if self.weights.len() > SETS {
            return too_large("its sets of weights");
        }
        let lengths = |weights: &StoredWeights| -> Vec<u64> {
            weights.constants.iter().map(|constant| constant.bytes).collect()
        };
        let sets: Vec<Vec<u64>> = self.weights.iter().map(lengths).collect();
        if sets.iter().any(|set| sum(&mut set.iter().copied()) > MAX_CONSTANT_BYTES) {
            return too_large("its constants");
        }
        if sets.is_empty() || sets.iter().any(|set| Some(set) != sets.first()) {
            return Err(damaged("its sets of weights have other constants than each other"));
        }
        if self.task.source.len() as u64 > MAX_SOURCE_BYTES as u64
            || self.library_calls.len() > MAX_LIBRARY_CALLS
            || self.libraries.len() > Library::ALL.len()
        {
            return too_large("its task or its library calls");
        }
        let many = |forms: &TensorForms| {
            let all = [forms.inputs.len(), forms.state.len(), forms.changed.len()];
            all.iter().any(|count| *count > MAX_TENSORS)
        };
        if self.forms.as_ref().is_some_and(many) {
            return too_large("its tensors");
        }
        Ok(())
    }
}

/// The next `length` bytes. Memory grows with what is there, not with what is promised.
fn take(content: &mut impl Read, length: u64) -> Result<Vec<u8>, PlanFileError> {
    let mut bytes = Vec::new();
    content.take(length).read_to_end(&mut bytes).map_err(damaged)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(damaged("it is too short")) }
}

/// The next `length` bytes, whose BLAKE3 must be this.
fn hashed(content: &mut impl Read, length: u64, hash: &str) -> Result<Vec<u8>, PlanFileError> {
    let bytes = take(content, length)?;
    if blake3::hash(&bytes).to_hex().as_str() == hash {
        return Ok(bytes);
    }
    Err(damaged("an image or a constant has another hash than its head says"))
}

#[cfg(test)]
mod tests;
