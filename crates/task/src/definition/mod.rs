//! Tasks from SOL-ExecBench and FlashInfer-Bench: `definition.json` and its workloads.
//!
//! A definition has the source of a reference (`def run(...)`), axes, inputs and outputs; its
//! workloads give the variable axes numbers and every input a source of values. Both become one
//! [`Task`]: the reference unchanged, and Python that KernelBench form wants ([`source`]).
//!
//! Everything here is hostile: sizes are limited, names are checked before they become Python, and
//! what is not understood is refused by name. A workload that cannot be run is left out, and the
//! source says so in a comment that [`notes`] finds; a definition without any workload left is
//! refused.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::facts::error::TaskErrorKind;
use crate::limits::MAX_SOURCE_BYTES;
use crate::read_error::ReadError;
use crate::task::Task;
use schema::Raw;
use workload::{Context, LeftOut, Source, Workload};
use wrong::Wrong;

/// How the table of tensors that workloads carry begins; each is one line, named by its workload.
pub(crate) const TENSORS: &str = "_warpwright_tensors = {\n";

mod axes;
mod check;
pub(crate) mod folder;
mod schema;
mod source;
mod stored;
mod tensors;
mod workload;
mod wrong;

/// Largest `definition.json`.
const LARGEST_DEFINITION: u64 = 1 << 20;
/// Largest reference, which leaves room for tensors and workloads in the source.
const LARGEST_REFERENCE: usize = 96 << 10;
/// Most axes, inputs, outputs or entries of a workload.
const MOST_ENTRIES: usize = 64;

/// Begins the source of a definition that cannot be judged.
const REFUSED: &str = "# Refused: ";

/// The task of a definition. `root` is the folder that was opened: files that workloads name are
/// sought in it too.
pub(crate) fn read(definition: &Path, workloads: &Path, root: &Path) -> Result<Task, ReadError> {
    let error = |path: &Path, wrong: Wrong| ReadError::Definition {
        path: path.to_owned(),
        reason: wrong.reason,
        cure: wrong.cure,
    };
    let text = text(definition, LARGEST_DEFINITION)?;
    let raw: Raw = serde_json::from_str(&text)
        .map_err(|wrong| error(definition, Wrong::definition(wrong.to_string())))?;
    let checked = check::definition(&raw).map_err(|wrong| error(definition, wrong))?;
    if !workloads.is_file() {
        let wrong = Wrong::workload("there is no such file, and so no workload");
        return Err(error(workloads, wrong));
    }
    let lines = self::text(workloads, workload::LARGEST_FILE)?;
    let folder = definition.parent().unwrap_or(root);
    let context =
        Context { raw: &raw, axes: &checked.axes, dtypes: &checked.inputs, roots: &[folder, root] };
    let (mut kept, mut left_out) =
        workload::read(&lines, &context).map_err(|wrong| error(workloads, wrong))?;
    alike(&raw, &mut kept, &mut left_out);
    let source =
        fitting(&raw, &checked, kept, left_out).map_err(|wrong| error(workloads, wrong))?;
    let mut task = Task::from_source(&raw.name, source);
    task.origin = Some(definition.to_owned());
    Ok(task)
}

/// Leaves out workloads whose inputs come from other kinds of sources than those of the first: one
/// function makes the inputs of all.
fn alike(raw: &Raw, kept: &mut Vec<Workload>, left_out: &mut Vec<LeftOut>) {
    let kind = |source: &Source| match source {
        Source::Drawn(_) | Source::Stored(_) => 0,
        Source::Number(_) => 1,
        Source::Custom => 2,
    };
    let Some(first) = kept.first() else { return };
    let kinds: Vec<i32> = first.inputs.iter().map(kind).collect();
    let mut others = Vec::new();
    kept.retain(|workload| {
        let differs = workload.inputs.iter().map(kind).zip(&kinds).position(|(a, b)| a != *b);
        if let Some(index) = differs {
            let input = raw.inputs.0.get(index).map_or("", |(name, _)| name.as_str());
            let reason = format!(
                "its input `{input}` has another kind of source than in the first workload"
            );
            others.push(LeftOut { name: workload.name.clone(), wrong: Wrong::workload(reason) });
        }
        differs.is_none()
    });
    left_out.append(&mut others);
}

/// The source, with as many workloads as fit into one.
fn fitting(
    raw: &Raw,
    checked: &check::Checked,
    mut kept: Vec<Workload>,
    mut left_out: Vec<LeftOut>,
) -> Result<String, Wrong> {
    loop {
        if kept.is_empty() {
            let told = left_out.first().map(|left| left.wrong.clone());
            let Some(Wrong { reason, cure }) = told else {
                return Err(Wrong::workload("it has no workload"));
            };
            let count = left_out.len();
            return Err(Wrong::new(
                format!("none of its {count} workloads can be run; the first: {reason}"),
                cure,
            ));
        }
        let made = source::make(raw, &checked.axes, &checked.inputs, &kept, &left_out)?;
        if made.len() <= MAX_SOURCE_BYTES {
            let sound = crate::facts::facts(&made);
            return match sound {
                Ok(_) => Ok(made),
                Err(error) => Err(Wrong::definition(format!("it makes no task: {}", error.kind))),
            };
        }
        // The largest: usually one whose tensors are large.
        let size = |workload: &Workload| workload.tensors.iter().map(Vec::len).sum::<usize>();
        let largest = kept.iter().enumerate().max_by_key(|(_, workload)| size(workload));
        let Some(index) = largest.map(|(index, _)| index) else { continue };
        let workload = kept.remove(index);
        let reason = "its tensors do not fit into a task's source, beside those of the others";
        left_out.push(LeftOut { name: workload.name, wrong: Wrong::workload(reason) });
    }
}

/// A file's text, if it is not larger than `most`.
fn text(path: &Path, most: u64) -> Result<String, ReadError> {
    let refused = |reason: String| ReadError::Definition {
        path: path.to_owned(),
        reason,
        cure: "a definition is a reference with its axes; data belong into safetensors files",
    };
    // Opening a pipe would wait for whoever writes, and a device never ends.
    if !fs::metadata(path).map_err(|error| ReadError::io(path, error))?.is_file() {
        return Err(refused("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| ReadError::io(path, error))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| ReadError::io(path, error))?;
    if bytes.len() as u64 > most {
        return Err(refused(format!("its bytes exceed the limit of {most}")));
    }
    String::from_utf8(bytes).map_err(|error| ReadError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// The task that stands for a definition of a suite that cannot be judged: its facts are the error.
pub(crate) fn refused(definition: &Path, name: &str, error: &ReadError) -> Task {
    let told = one_line(&error.to_string(), 600);
    let hint = error.hint().map(|hint| one_line(&hint, 300)).unwrap_or_default();
    let mut task = Task::from_source(name, format!("{REFUSED}{told}; {hint}\n"));
    task.origin = Some(definition.to_owned());
    task
}

/// Why a source made by [`refused`] is no task.
pub(crate) fn refusal(source: &str) -> Option<TaskErrorKind> {
    let reason = source.strip_prefix(REFUSED)?.lines().next()?.to_owned();
    Some(TaskErrorKind::Refused { reason })
}

/// What the reader left out of a task.
pub(crate) fn notes(source: &str) -> impl Iterator<Item = &str> {
    head(source).filter_map(|line| line.strip_prefix(source::LEFT_OUT))
}

/// What the reader could not check of a task.
pub(crate) fn unchecked(source: &str) -> impl Iterator<Item = &str> {
    head(source).filter_map(|line| line.strip_prefix(source::UNCHECKED))
}

/// The comments that begin a source.
fn head(source: &str) -> impl Iterator<Item = &str> {
    source.lines().take(32).take_while(|line| line.starts_with('#'))
}

/// Text of a stranger on one line without control characters, at most `most` characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line: String = text
        .chars()
        .take(most)
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect();
    if text.chars().nth(most).is_some() {
        line.push_str("...");
    }
    line
}

/// The folder and file of one definition that `path` names: a `.json`, or a folder with a
/// `definition.json`.
pub(crate) fn named_by(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.join(folder::DEFINITION)).filter(|file| file.is_file());
    }
    path.extension().is_some_and(|e| e == "json").then(|| path.to_owned())
}
