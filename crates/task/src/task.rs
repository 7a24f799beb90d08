//! One task.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::backward;
use crate::dtype::Dtype;
use crate::facts::error::TaskError;
use crate::facts::{Facts, facts};
use crate::fit::{self, Fit, FitError};
use crate::limits::MAX_SOURCE_BYTES;
use crate::mode::Mode;
use crate::read_error::ReadError;

/// Longest task name, in bytes: names become folder names.
const MAX_NAME_BYTES: usize = 120;

/// One PyTorch reference in KernelBench form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Letters, digits, `_`, `-` and `.` only, at most 120 bytes, so that it can name a folder.
    /// Unique within its suite.
    pub name: String,
    /// Python source, as it was read. A source that sets `backward = True` has the footer of
    /// [`Task::with_backward`] as well.
    pub source: String,
    /// BLAKE3 of `source`, hexadecimal.
    pub hash: String,
    /// The file it came from: a `.py`, or the table it was a row of.
    pub origin: Option<PathBuf>,
    /// KernelBench level, from the folder's name or the table's `level` column.
    pub level: Option<u8>,
    /// Operators the task was composed of, from a table's `ops` column.
    pub ops: Option<Vec<String>>,
    /// Where the data set got it from, from a table's `data_source` column.
    pub data_source: Option<String>,
    /// The part of its data set, such as `train` or `test`, from a table's `split` column.
    pub split: Option<String>,
    /// Mode that reference and candidate run in.
    pub mode: Mode,
}

impl Task {
    /// From source in memory. `name` is made safe as a folder's name; nothing is checked.
    pub fn from_source(name: &str, source: impl Into<String>) -> Self {
        let mut source = source.into();
        if backward::parts(&source).is_none() && backward::is_wanted(&source) {
            source = backward::appended(&source);
        }
        let hash = blake3::hash(source.as_bytes()).to_hex().to_string();
        Self {
            name: safe_name(name),
            source,
            hash,
            origin: None,
            level: None,
            ops: None,
            data_source: None,
            split: None,
            mode: Mode::default(),
        }
    }

    /// From one Python file; the name is the file's without `.py`. The source is not checked: see
    /// [`Task::facts`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let meta = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
        if meta.is_dir() {
            return Err(ReadError::Folder { path: path.to_owned() });
        }
        if path.extension().is_none_or(|e| e != "py") {
            return Err(ReadError::UnknownKind { path: path.to_owned() });
        }
        if meta.len() > MAX_SOURCE_BYTES as u64 {
            return Err(ReadError::TooLarge { path: path.to_owned(), bytes: meta.len() });
        }
        let bytes = fs::read(path).map_err(|error| ReadError::io(path, error))?;
        let source = String::from_utf8(bytes).map_err(|error| ReadError::NotUtf8 {
            path: path.to_owned(),
            offset: error.utf8_error().valid_up_to(),
        })?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut task = Self::from_source(&stem, source);
        task.origin = Some(path.to_owned());
        Ok(task)
    }

    /// The dtype that the task is cast to; `None`: module and inputs keep their own.
    pub fn dtype(&self) -> Option<Dtype> {
        Dtype::of(&self.source)
    }

    /// The task with parameters, buffers and floating inputs cast to `dtype`. A task that is cast already stays as it
    /// is; [`Task::dtype`] tells to which dtype.
    #[must_use]
    pub fn cast(self, dtype: Dtype) -> Self {
        if self.dtype().is_some() {
            return self;
        }
        let source = dtype.cast(&self.source);
        let hash = blake3::hash(source.as_bytes()).to_hex().to_string();
        Self { source, hash, ..self }
    }

    /// How its batch dimension was scaled down; `None`: it has its own size.
    pub fn fit(&self) -> Option<Fit> {
        Fit::of(&self.source)
    }

    /// The task with its batch dimension divided by `divisor`, at least 1.
    ///
    /// # Errors
    /// [`FitError`] if its source does not tell which dimension that is, or it is 1 already.
    pub fn scaled_down(&self, divisor: u64) -> Result<Self, FitError> {
        let source = fit::scaled_down(&self.source, divisor)?;
        let hash = blake3::hash(source.as_bytes()).to_hex().to_string();
        Ok(Self { source, hash, ..self.clone() })
    }

    /// Whether a call of the task is a step: forward, and then the gradients of inputs and parameters.
    pub fn backward(&self) -> bool {
        backward::parts(&self.source).is_some()
    }

    /// The task whose call is a step. One that is such a task already stays as it is.
    #[must_use]
    pub fn with_backward(self) -> Self {
        if self.backward() {
            return self;
        }
        let source = backward::appended(&self.source);
        let hash = blake3::hash(source.as_bytes()).to_hex().to_string();
        Self { source, hash, ..self }
    }

    /// What can be known without running it; the error names `origin`.
    pub fn facts(&self) -> Result<Facts, TaskError> {
        facts(&self.source).map_err(|error| match &self.origin {
            Some(path) => error.of(path),
            None => error.of(Path::new(&self.name)),
        })
    }
}

/// `name` with everything but letters, digits, `_`, `-` and `.` replaced, without a leading dot,
/// never empty: data sets are written by others, and a name such as `../../x` becomes a folder.
pub(crate) fn safe_name(name: &str) -> String {
    let mut safe: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' })
        .take(MAX_NAME_BYTES)
        .collect();
    if safe.is_empty() {
        "task".clone_into(&mut safe);
    }
    if safe.starts_with('.') || safe.starts_with('-') {
        safe.replace_range(..1, "_");
    }
    safe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hostile_name_stays_one_plain_path_component() {
        assert_eq!(safe_name("../../etc/passwd"), "_._.._etc_passwd");
        assert_eq!(safe_name("-rf"), "_rf");
        assert_eq!(safe_name(""), "task");
        assert_eq!(safe_name("1_Square matrix"), "1_Square_matrix");
    }

    const TASK: &str = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        \
                        super().__init__()\n    def forward(self, x):\n        return x\ndef get_inputs():\n    \
                        return [torch.rand(4)]";

    #[test]
    fn a_cast_task_is_another_task() {
        let plain = Task::from_source("t", TASK);
        assert_eq!(plain.dtype(), None);
        let cast = plain.clone().cast(Dtype::Bf16);
        assert_eq!(cast.dtype(), Some(Dtype::Bf16));
        assert_ne!(cast.hash, plain.hash);
        assert_eq!(cast.clone().cast(Dtype::Fp16), cast, "nothing is cast twice");
        assert_eq!(Task::from_source("t", cast.source.clone()).hash, cast.hash);
        assert_eq!(cast.facts().unwrap(), plain.facts().unwrap());
    }

    #[test]
    fn backward_and_cast_commute() {
        let plain = Task::from_source("t", TASK);
        assert!(!plain.backward());
        let step = plain.clone().with_backward();
        assert!(step.backward() && step.dtype().is_none() && step.hash != plain.hash);
        assert_eq!(step.clone().with_backward(), step, "nothing is appended twice");
        assert_eq!(step.facts().unwrap(), plain.facts().unwrap());
        let both = step.cast(Dtype::Bf16);
        assert_eq!(both, plain.cast(Dtype::Bf16).with_backward());
        assert!(both.backward() && both.dtype() == Some(Dtype::Bf16));
        assert_eq!(Task::from_source("t", both.source.clone()), both);
    }

    #[test]
    fn source_that_sets_backward_is_a_step() {
        for (line, wanted) in [
            ("backward = True", true),
            ("backward: bool = True  # gradients too", true),
            ("backward = True\nbackward = False", false),
            ("backward = False", false),
            ("backward_steps = True", false),
            ("\"\"\"\nbackward = True\n\"\"\"", false),
            ("def f():\n    backward = True", false),
        ] {
            let task = Task::from_source("t", format!("{line}\n{TASK}"));
            assert_eq!(task.backward(), wanted, "{line}");
        }
    }

    proptest! {
        #[test]
        fn safe_names_are_single_components(name in "\\PC{0,200}") {
            let safe = safe_name(&name);
            prop_assert!(safe.len() <= MAX_NAME_BYTES);
            let components: Vec<_> = Path::new(&safe).components().collect();
            prop_assert_eq!(components.len(), 1);
            prop_assert!(matches!(components[0], std::path::Component::Normal(_)));
            prop_assert_eq!(safe_name(&safe), safe.clone());
        }
    }
}
