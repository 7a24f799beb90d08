//! The jailed Python process that loads, runs and divides the model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};
use warpwright_jail::{Gpu, Jail, Limits, Outcome, Spec, Stdin};

use super::{ModelSource, RegionRequest};
use crate::error::RolloutError;

/// Longest time: a model of a billion parameters with several input sets takes minutes.
const PATIENCE: Duration = Duration::from_mins(30);
/// Most bytes of the answer, which has all sources.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Most characters of the process's messages that are shown.
const MAX_SHOWN: usize = 2000;

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../python/warpwright_model/", $name)))),*]
    };
}

/// The files of `python/warpwright_model`.
const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "calls.py",
    "check.py",
    "clock.py",
    "cover.py",
    "emit.py",
    "extract.py",
    "failure.py",
    "graphs.py",
    "kernels.py",
    "loading.py",
    "measure.py",
    "names.py",
    "observe.py",
    "patch.py",
    "region.py",
    "source.py",
    "trace.py",
    "values.py",
];

/// The path of a file or folder that the user named, without links and `..`: the jail mounts it by that name.
fn found(path: &Path, what: &str, folder: bool) -> Result<PathBuf, RolloutError> {
    let real = fs_err::canonicalize(path).ok();
    real.filter(|real| if folder { real.is_dir() } else { real.is_file() }).ok_or_else(|| {
        let kind = if folder { "folder" } else { "file" };
        let message = format!("failed to read {what} {}: no such {kind}", path.display());
        RolloutError::usage(message, "check the path".to_owned())
    })
}

/// Shows the jail a file, and the folder around it, from which it may import. A folder in which
/// the jail has files of its own shows the file alone.
fn with_file(spec: Spec, file: &Path) -> Spec {
    let own = |folder: &Path| folder == Path::new("/") || folder == Path::new("/tmp");
    match file.parent().filter(|folder| !own(folder)) {
        Some(folder) => spec.read_only(folder),
        None => spec.read_only(file),
    }
}

/// The model as the process reads it, and the jail with what it needs.
fn source(mut spec: Spec, model: &ModelSource) -> Result<(Spec, Json), RolloutError> {
    Ok(match model {
        ModelSource::File { file, function } => {
            let file = found(file, "the model", false)?;
            let named = json!({"file": file.to_string_lossy(), "function": function});
            (with_file(spec, &file), named)
        }
        ModelSource::Module { module, function } => {
            let here = std::env::current_dir()
                .map_err(|error| RolloutError::io("find the current folder", error))?;
            let top = here.join(module.split('.').next().unwrap_or_default());
            let file = top.with_extension("py");
            if top.is_dir() {
                spec = spec.read_only(&top);
            } else if file.is_file() {
                spec = spec.read_only(&file);
            }
            let folder = here.to_string_lossy();
            (spec, json!({"module": module, "function": function, "folder": folder}))
        }
        ModelSource::Transformers { config } => {
            let config = found(config, "the configuration", false)?;
            let named = json!({"hf": config.to_string_lossy()});
            (spec.read_only(&config), named)
        }
    })
}

/// What the process does with the model.
pub(super) struct Work<'a> {
    /// The module of the package.
    pub(super) module: &'a str,
    /// Further fields of the request.
    pub(super) fields: serde_json::Map<String, Json>,
    /// Further folders with Python packages.
    pub(super) packages: Vec<PathBuf>,
    /// Further folders that it may read.
    pub(super) read: Vec<PathBuf>,
}

impl Work<'_> {
    /// Dividing it.
    pub(super) fn extract() -> Self {
        let fields = serde_json::Map::new();
        Self { module: "extract", fields, packages: Vec::new(), read: Vec::new() }
    }
}

/// Runs the process; returns its answer, which nobody has checked.
pub(super) fn run(
    jail: &Jail,
    request: &RegionRequest,
    work: Work<'_>,
) -> Result<Vec<u8>, RolloutError> {
    let io = |error| RolloutError::io("write the program's Python files", error);
    let folder = tempfile::tempdir().map_err(io)?;
    let package = folder.path().join("warpwright_model");
    fs_err::create_dir_all(&package).map_err(io)?;
    for (name, text) in PACKAGE {
        fs_err::write(package.join(name), text).map_err(io)?;
    }
    let python = std::path::absolute(&request.python).unwrap_or_else(|_| request.python.clone());
    let mut search = folder.path().to_string_lossy().into_owned();
    let mut spec = Spec::new(&python)
        .label("model")
        .args(["-P", "-m", &format!("warpwright_model.{}", work.module)])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("TRANSFORMERS_OFFLINE", "1")
        .with_system()
        .with_python(&python)
        .read_only(folder.path())
        .limits(Limits {
            wall: PATIENCE,
            output_bytes: MAX_ANSWER_BYTES,
            open_files: 4096,
            ..Limits::default()
        });
    for packages in request.packages.iter().chain(&work.packages) {
        let packages = found(packages, "the packages", true)?;
        search = format!("{search}:{}", packages.display());
        spec = spec.read_only(&packages);
    }
    spec = work.read.iter().fold(spec, Spec::read_only).env("PYTHONPATH", search);
    let (mut spec, model) = source(spec, &request.model)?;
    let mut inputs = None;
    if let Some(path) = &request.inputs {
        let file = found(path, "the inputs", false)?;
        spec = with_file(spec, &file);
        inputs = Some(file.to_string_lossy().into_owned());
    }
    spec = spec.env("TORCHINDUCTOR_COMPILE_THREADS", "1");
    spec = match request.gpu {
        Some(gpu) => spec.gpu(Gpu::All).env("CUDA_VISIBLE_DEVICES", gpu.to_string()),
        // Threads that wait by spinning make each other wait where other programs use the cores.
        None => spec.env("OMP_WAIT_POLICY", "PASSIVE").env("TORCHINDUCTOR_VEC_ISA_OK", "1"),
    };
    let mut text = json!({
        "model": model,
        "inputs": inputs,
        "device": if request.gpu.is_some() { "cuda:0" } else { "cpu" },
        "dtype": request.dtype.map(warpwright_task::Dtype::name),
        "max_operators": request.max_operators,
        "min_share": request.min_share,
        "separate": request.separate,
        "seed": request.seed,
    });
    if let Json::Object(fields) = &mut text {
        fields.extend(work.fields);
    }
    spec.stdin = Stdin::Bytes(text.to_string().into_bytes());
    let finished = jail.run(spec)?;
    if finished.outcome.is_success() && !finished.stdout.truncated {
        return Ok(finished.stdout.bytes);
    }
    let printed = finished.stderr.text();
    let start = printed.char_indices().rev().nth(MAX_SHOWN - 1).map_or(0, |(at, _)| at);
    let tail = printed.get(start..).unwrap_or_default().trim();
    let name = request.model.name();
    let outcome = match finished.outcome {
        Outcome::Exited(0) => "its answer is too long".to_owned(),
        other => other.to_string(),
    };
    let verb = if work.module == "extract" { "divide" } else { "measure" };
    let message = format!("failed to {verb} {name}: the process ended: {outcome}: {tail}");
    let hint = "run the model on its inputs without warpwright first, or use smaller inputs";
    Err(RolloutError::usage(message, hint.to_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_file_of_the_package_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/warpwright_model");
        let mut on_disk: Vec<String> = fs_err::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| std::path::Path::new(name).extension().is_some_and(|e| e == "py"))
            .collect();
        on_disk.sort();
        let carried: Vec<&str> = super::PACKAGE.iter().map(|(name, _)| *name).collect();
        assert_eq!(on_disk, carried);
    }
}
