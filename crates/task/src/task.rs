//! One task.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::backward;
use crate::definition;
use crate::dtype::Dtype;
use crate::facts::error::TaskError;
use crate::facts::{Facts, facts, libraries_of, workloads_of};
use crate::fit::{self, Fit, FitError};
use crate::limits::MAX_SOURCE_BYTES;
use crate::mode::Mode;
use crate::read_error::ReadError;
use crate::workloads::{self, HoldOutError, Workload, WorkloadList};

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
    /// Number of workloads that share the effort of a verdict, if this task is bound to one of them; else 1.
    pub sharing: usize,
    /// Held-out workloads that the source does not have any more.
    pub hidden: usize,
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
            sharing: 1,
            hidden: 0,
        }
    }

    /// From one Python file; the name is the file's without `.py`. The source is not checked: see
    /// [`Task::facts`]. Or from a `.json` that is a definition of SOL-ExecBench or FlashInfer-Bench, or a
    /// folder with its `definition.json`.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let meta = fs::metadata(path).map_err(|error| ReadError::io(path, error))?;
        if let Some(definition) = definition::named_by(path) {
            return definition::folder::one(&definition);
        }
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
        self.with_source(source)
    }

    /// The workloads; empty if the task has one set of inputs.
    ///
    /// # Errors
    /// A syntax error, or a `get_workloads` that is no literal list of argument sets.
    pub fn workloads(&self) -> Result<Vec<Workload>, TaskError> {
        Ok(self.list()?.map(|list| list.workloads).unwrap_or_default())
    }

    /// Header libraries that kernels for a GPU may use: the names in `libraries` at module level.
    ///
    /// # Errors
    /// A syntax error, or a list that is no literal of known names.
    pub fn libraries(&self) -> Result<Vec<String>, TaskError> {
        libraries_of(&self.source).map_err(|error| self.at_origin(error))
    }

    /// The task bound to one of its workloads: `get_inputs()` draws the inputs of that one, and there is no
    /// `get_workloads`. `None` if there is no workload of this index.
    ///
    /// # Errors
    /// As [`Task::workloads`].
    pub fn of_workload(&self, index: usize) -> Result<Option<Self>, TaskError> {
        let Some(WorkloadList { place, workloads, .. }) = self.list()? else { return Ok(None) };
        let Some(workload) = workloads.get(index) else { return Ok(None) };
        if !workload.held_out && workloads.iter().any(|workload| workload.held_out) {
            // As of the task that an agent sees: both have the same session.
            let before = workloads.iter().take(index).filter(|workload| !workload.held_out);
            return self.shown()?.of_workload(before.count());
        }
        let source = fit::unlabelled(&workloads::bind(&self.source, place, workload));
        let name = Self::workload_name(&self.name, &workload.name);
        let sharing = workloads.len() + self.hidden;
        Ok(Some(Self { name, sharing, ..self.clone().with_source(source) }))
    }

    /// Name of a task that is bound to a workload.
    pub fn workload_name(task: &str, workload: &str) -> String {
        safe_name(&format!("{task}.{workload}"))
    }

    /// The workload that the task is bound to, if it is; see [`Task::of_workload`].
    pub fn workload(&self) -> Option<Workload> {
        workloads::bound(&self.source)
    }

    /// The source, equal for all workloads of a task.
    pub fn unbound_source(&self) -> String {
        workloads::unbound(&self.source)
    }

    /// Holds out `wanted` workloads, drawn by `seed`: [`Task::shown`] does not have them.
    ///
    /// # Errors
    /// As [`Task::workloads`]; and if none would be left.
    pub fn hold_out(self, wanted: usize, seed: u64) -> Result<Self, HoldOutError> {
        if wanted == 0 {
            return Ok(self);
        }
        let list = self.list()?;
        let WorkloadList { place, mut workloads, .. } = list.unwrap_or_default();
        let of = workloads.iter().filter(|workload| !workload.held_out).count();
        if wanted >= of.max(1) {
            // The task's own inputs are one.
            return Err(HoldOutError::TooFew { task: self.name, wanted, of: of.max(1) });
        }
        workloads::hold_out(&mut workloads, wanted, (seed, &self.hash));
        let source = workloads::with_list(&self.source, place, &workloads);
        let task = self.with_source(source);
        // It may be that some cannot be hidden.
        task.list()?;
        Ok(task)
    }

    /// The task as an agent sees it: without the workloads that are held out, and without defaults of `get_inputs`
    /// that may be theirs.
    ///
    /// # Errors
    /// As [`Task::workloads`].
    pub fn shown(&self) -> Result<Self, TaskError> {
        let Some(list) = self.list()? else { return Ok(self.clone()) };
        let held_out = list.workloads.iter().filter(|workload| workload.held_out);
        let held_out: Vec<&str> = held_out.map(|workload| workload.name.as_str()).collect();
        if held_out.is_empty() {
            return Ok(self.clone());
        }
        let source = workloads::shown(&self.source, &list);
        let source = fit::without_hidden(&source, &held_out);
        Ok(Self { hidden: self.hidden + held_out.len(), ..self.clone().with_source(source) })
    }

    /// The source of [`Task::shown`]. All of it where the workloads cannot be read: no candidate is judged then.
    pub fn shown_source(&self) -> String {
        self.shown().map_or_else(|_| self.source.clone(), |shown| shown.source)
    }

    /// Whether the source has workloads that an agent does not see.
    pub fn holds_out(&self) -> bool {
        self.shown().is_ok_and(|shown| shown.hidden > self.hidden)
    }

    fn list(&self) -> Result<Option<WorkloadList>, TaskError> {
        workloads_of(&self.source).map_err(|error| self.at_origin(error))
    }

    fn with_source(self, source: String) -> Self {
        let hash = blake3::hash(source.as_bytes()).to_hex().to_string();
        Self { source, hash, ..self }
    }

    /// How its batch dimension was scaled down: one for the task, or one for each of its workloads that was. Empty: it
    /// has its own size.
    pub fn fits(&self) -> Vec<Fit> {
        Fit::all(&self.source)
    }

    /// The task with its batch dimension divided by `divisor`, at least 1.
    ///
    /// # Errors
    /// [`FitError`] if its source does not tell which dimension that is, or it is 1 already.
    pub fn scaled_down(&self, divisor: u64) -> Result<Self, FitError> {
        let source = fit::scaled_down(&self.source, divisor)?;
        Ok(self.clone().with_source(source))
    }

    /// The task with the batch dimension of one workload divided by `divisor`, at least 1.
    ///
    /// # Errors
    /// [`FitError`] if no argument of the workload is that dimension, or it is 1 already.
    pub fn workload_scaled_down(&self, name: &str, divisor: u64) -> Result<Self, FitError> {
        let list = self.list().map_err(|_| FitError::Unreadable)?;
        let list = list.ok_or_else(|| FitError::NoWorkload(name.to_owned()))?;
        let source = fit::workload_scaled_down(&self.source, list, name, divisor)?;
        if source.len() > MAX_SOURCE_BYTES {
            return Err(FitError::Unreadable);
        }
        Ok(self.clone().with_source(source))
    }

    fn at_origin(&self, error: TaskError) -> TaskError {
        match &self.origin {
            Some(path) => error.of(path),
            None => error.of(Path::new(&self.name)),
        }
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

    /// What was left out when the task was read from a definition, for people: workloads, with the reason.
    pub fn notes(&self) -> Vec<&str> {
        definition::notes(&self.source).collect()
    }

    /// What could not be checked when the task was made of a definition: constraints that are not comparisons of axes,
    /// which workloads may break. One line each.
    pub fn unchecked(&self) -> Vec<&str> {
        definition::unchecked(&self.source).collect()
    }

    /// What can be known without running it; the error names `origin`.
    pub fn facts(&self) -> Result<Facts, TaskError> {
        facts(&self.source).map_err(|error| self.at_origin(error))
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
    fn workload_of_a_step_is_a_step() {
        let list = "def get_workloads():\n    return [{'name': 'a', 'arguments': []}]\n";
        let task = Task::from_source("t", format!("{TASK}\n{list}")).cast(Dtype::Bf16);
        let bound = task.with_backward().of_workload(0).unwrap().unwrap();
        assert!(bound.backward() && bound.dtype() == Some(Dtype::Bf16), "{}", bound.source);
        assert_eq!(bound.workload().unwrap().name, "a");
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

    #[test]
    fn backward_that_is_no_boolean_is_refused() {
        for value in ["1", "'yes'", "[1]", "not False", "1 == 1", "bool(1)", "2.0"] {
            let task = Task::from_source("t", format!("backward = {value}\n{TASK}"));
            let error = task.facts().unwrap_err();
            assert!(error.to_string().contains("something else than True"), "{value}: {error}");
            assert!(error.hint().contains("backward = True"), "{}", error.hint());
        }
        for value in ["True", "False", "None", "0", "''", "torch.autograd.grad", "lambda x: x"] {
            let task = Task::from_source("t", format!("backward = {value}\n{TASK}"));
            assert!(task.facts().is_ok(), "{value}");
        }
    }

    #[test]
    fn backward_in_an_unknown_form_names_its_line() {
        for (line, place) in [
            ("backward = False\nbackward = True", "line 2"),
            ("x = backward = True", "line 1"),
            ("if True:\n    backward = True", "line 2"),
            ("backward = False\nbackward |= True", "line 2"),
            ("backward: bool", "line 1"),
            ("backward = True\ndel backward", "line 2"),
            ("print(backward := True)", "line 1"),
            ("def f():\n    global backward\n    backward = True", "line 2"),
        ] {
            let task = Task::from_source("t", format!("{line}\n{TASK}"));
            let error = task.facts().expect_err(line).to_string();
            assert!(error.contains("`backward`") && error.contains(place), "{line}: {error}");
        }
        for line in [
            "def backward(ctx, x):\n    return x",
            "class F:\n    def backward(ctx, x):\n        return x",
            "def f(backward):\n    backward = backward.value",
            "try:\n    from torch import backward\nexcept ImportError:\n    pass",
        ] {
            let task = Task::from_source("t", format!("{line}\n{TASK}"));
            assert!(task.facts().is_ok() && !task.backward(), "{line}");
        }
        let task = Task::from_source("t", format!("import math; backward = True\n{TASK}"));
        assert!(task.backward(), "a statement may follow another on its line");
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
