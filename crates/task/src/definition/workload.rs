//! The workloads of a definition, checked against it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::axes::{self, Axis};
use super::schema::{Raw, RawInput, RawTolerance, RawTrace, RawWorkload};
use super::stored::{self, Stored};
use super::tensors::{Dtype, rule};
use super::wrong::Wrong;
use crate::limits::MAX_SOURCE_BYTES;

/// Largest workload file.
pub(super) const LARGEST_FILE: u64 = 64 << 20;
/// Most workloads of a file.
const MOST_LINES: usize = 16_384;
/// Most workloads of a task.
pub(super) const MOST_WORKLOADS: usize = 64;
/// Longest name of a workload, in bytes.
const LONGEST_NAME: usize = 64;
/// The part of the elements that must be within a tolerance: the format's default.
const MATCHED: f64 = 0.99;
/// Bytes that fit no machine.
const HOSTILE_BYTES: u64 = 1 << 42;

/// Where an input's values come from in one workload.
#[derive(Debug)]
pub(super) enum Source {
    /// Drawn by a rule of `draws.py`.
    Drawn(&'static str),
    /// A Python number.
    Number(Value),
    /// The index of one of [`Workload::tensors`].
    Stored(usize),
    /// By the definition's own function.
    Custom,
}

/// One workload.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: String,
    /// Values of the variable axes, in the definition's order.
    pub(super) axes: Vec<(String, u64)>,
    /// In the order of the definition's inputs.
    pub(super) inputs: Vec<Source>,
    pub(super) tensors: Vec<Vec<u8>>,
    pub(super) tolerance: Option<Tolerance>,
    /// Indices of the definition's constraints that could not be checked by the axes alone.
    pub(super) unchecked: Vec<usize>,
}

/// A workload's own tolerance.
#[derive(Debug)]
pub(super) struct Tolerance {
    pub(super) atol: f64,
    pub(super) rtol: f64,
}

/// A workload that was left out.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) name: String,
    pub(super) wrong: Wrong,
}

/// What a workload is checked against.
pub(super) struct Context<'a> {
    pub(super) raw: &'a Raw,
    pub(super) axes: &'a [(String, Axis)],
    pub(super) dtypes: &'a [Dtype],
    pub(super) roots: &'a [&'a Path],
}

/// The workloads of the lines of a file, and those that are left out. Of more than 64, 64 are kept,
/// evenly spread: files are often sorted by size.
pub(super) fn read(
    text: &str,
    context: &Context<'_>,
) -> Result<(Vec<Workload>, Vec<LeftOut>), Wrong> {
    let lines: Vec<(usize, &str)> =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.len() > MOST_LINES {
        return Err(Wrong::workload(format!(
            "it has {} workloads, more than {MOST_LINES}",
            lines.len()
        )));
    }
    let (mut kept, mut left_out): (Vec<Workload>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    let mut held = 0;
    for (index, line) in &lines {
        let number = index + 1;
        let raw = parse(line, context.raw).map_err(|mut wrong| {
            wrong.reason = format!("line {number}: {}", wrong.reason);
            wrong
        })?;
        let name = name(&raw.uuid, number, &kept);
        match one(&raw, name.clone(), context) {
            Ok(workload) => {
                // Each byte is at least one of the source.
                let bytes: usize = workload.tensors.iter().map(Vec::len).sum();
                if held + bytes > MAX_SOURCE_BYTES {
                    let reason =
                        "its tensors do not fit into a task's source, beside those of the others";
                    left_out.push(LeftOut { name, wrong: Wrong::workload(reason) });
                } else {
                    held += bytes;
                    kept.push(workload);
                }
            }
            Err(wrong) => left_out.push(LeftOut { name, wrong }),
        }
    }
    let count = kept.len();
    if count > MOST_WORKLOADS {
        let mut index = 0..count;
        let chosen =
            |at: usize| (0..MOST_WORKLOADS).any(|i| i * (count - 1) / (MOST_WORKLOADS - 1) == at);
        kept.retain(|_| index.next().is_some_and(chosen));
        let reason = format!(
            "{} of {count}: a task has at most {MOST_WORKLOADS}, evenly spread",
            count - kept.len()
        );
        left_out.push(LeftOut { name: "others".to_owned(), wrong: Wrong::workload(reason) });
    }
    Ok((kept, left_out))
}

/// A line: a workload, or a trace with one.
fn parse(line: &str, raw: &Raw) -> Result<RawWorkload, Wrong> {
    let wrong = |error: serde_json::Error| Wrong::workload(error.to_string());
    let value: Value = serde_json::from_str(line).map_err(wrong)?;
    if value.get("workload").is_none() {
        // From the text: a value has forgotten which keys were given twice.
        return serde_json::from_str(line).map_err(wrong);
    }
    let trace: RawTrace = serde_json::from_str(line).map_err(wrong)?;
    if trace.definition != raw.name {
        let other = super::one_line(&trace.definition, 80);
        return Err(Wrong::workload(format!("it is of the definition `{other}`")));
    }
    Ok(trace.workload)
}

/// The workload's name: its uuid where that can be one.
fn name(uuid: &str, number: usize, taken: &[Workload]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = !uuid.is_empty() && uuid.len() <= LONGEST_NAME && uuid.chars().all(plain);
    if good && !taken.iter().any(|workload| workload.name == uuid) {
        uuid.to_owned()
    } else {
        format!("line {number}")
    }
}

fn one(raw: &RawWorkload, name: String, context: &Context<'_>) -> Result<Workload, Wrong> {
    let values = axes::values(context.axes, &raw.axes.0)?;
    let mut unchecked = Vec::new();
    for (index, constraint) in context.raw.constraints.iter().flatten().enumerate() {
        match axes::holds(constraint, &values) {
            Some(true) => {}
            Some(false) => {
                let constraint = super::one_line(constraint, 80);
                let reason = format!("its axes break the constraint `{constraint}`");
                return Err(Wrong::workload(reason));
            }
            None => unchecked.push(index),
        }
    }
    if let Some(other) = raw.inputs.names().find(|name| context.raw.inputs.get(name).is_none()) {
        let other = super::one_line(other, 40);
        return Err(Wrong::workload(format!("its input `{other}` is none of the definition's")));
    }
    let mut tensors = Vec::new();
    let mut inputs = Vec::new();
    for ((input, tensor), dtype) in context.raw.inputs.0.iter().zip(context.dtypes) {
        let Some(given) = raw.inputs.get(input) else {
            return Err(Wrong::workload(format!("it has no source for the input `{input}`")));
        };
        let shape = shape(tensor.shape.as_deref(), &values)?;
        fits(input, shape.as_deref(), *dtype)?;
        inputs.push(match given.kind.as_str() {
            "scalar" if shape.is_some() => {
                return Err(Wrong::workload(format!("its input `{input}` is a number where the definition has a tensor")));
            }
            "scalar" => Source::Number(number(input, given, *dtype)?),
            "custom" if context.raw.custom_inputs_entrypoint.is_none() => {
                return Err(Wrong::workload(format!("its input `{input}` is custom, and the definition names no `custom_inputs_entrypoint`")));
            }
            "custom" => Source::Custom,
            "random" if shape.is_none() => {
                return Err(Wrong::workload(format!("its input `{input}` is a number without a value")));
            }
            "random" => Source::Drawn(rule(input, tensor, *dtype, context.raw.op_type.as_deref()).ok_or_else(|| {
                Wrong::new(
                    format!("its input `{input}` is of random {}: nothing says which values are valid indices", dtype.name()),
                    "let the workload carry the values (safetensors), or let the definition's `custom_inputs_entrypoint` make them",
                )
            })?),
            "safetensors" => {
                let Stored { bytes } = tensor_of(input, given, *dtype, shape.as_deref(), context.roots)?;
                tensors.push(bytes);
                Source::Stored(tensors.len() - 1)
            }
            other => {
                let other = super::one_line(other, 40);
                return Err(Wrong::workload(format!("its input `{input}` has the unknown type `{other}`: random, scalar, safetensors or custom")));
            }
        });
    }
    let given = |name: &String| raw.axes.get(name).map(|value| (name.clone(), *value));
    let axes = context.axes.iter().filter_map(|(name, _)| given(name)).collect();
    let tolerance = raw.tolerance.as_ref().map(tolerance).transpose()?;
    Ok(Workload { name, axes, inputs, tensors, tolerance, unchecked })
}

/// The numbers of a shape; `None` of a Python number.
fn shape(
    names: Option<&[String]>,
    values: &BTreeMap<String, u64>,
) -> Result<Option<Vec<u64>>, Wrong> {
    let value = |name: &String| {
        let found = values.get(name).copied().or_else(|| name.parse().ok());
        found.ok_or_else(|| {
            Wrong::definition(format!(
                "a shape names `{}`, which is no axis",
                super::one_line(name, 40)
            ))
        })
    };
    names.map(|names| names.iter().map(value).collect()).transpose()
}

fn fits(input: &str, shape: Option<&[u64]>, dtype: Dtype) -> Result<(), Wrong> {
    let shape = shape.unwrap_or_default();
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, n| bytes.checked_mul(*n));
    let wrong = match bytes {
        Some(0) => "no elements",
        Some(bytes) if bytes < HOSTILE_BYTES => return Ok(()),
        _ => "more bytes than any machine",
    };
    let dtype = dtype.name();
    Err(Wrong::workload(format!("its input `{input}` has {wrong}: {shape:?} of {dtype}")))
}

fn number(input: &str, given: &RawInput, dtype: Dtype) -> Result<Value, Wrong> {
    let value = given.value.clone().unwrap_or_default();
    let fits = match dtype {
        Dtype::Bool => value.is_boolean(),
        Dtype::Int(..) => value.is_i64(),
        Dtype::Float(..) | Dtype::Narrow(_) => value.as_f64().is_some_and(f64::is_finite),
    };
    if fits {
        return Ok(value);
    }
    Err(Wrong::workload(format!("its input `{input}` is no number of {}", dtype.name())))
}

fn tensor_of(
    input: &str,
    given: &RawInput,
    dtype: Dtype,
    shape: Option<&[u64]>,
    roots: &[&Path],
) -> Result<Stored, Wrong> {
    let (Some(path), Some(key), Some(shape)) = (&given.path, &given.tensor_key, shape) else {
        return Err(Wrong::workload(format!(
            "its input `{input}` is from a file and needs a shape, `path` and `tensor_key`"
        )));
    };
    stored::read(roots, path, key, (dtype.stored_name(), dtype.size()), shape).map_err(|wrong| {
        Wrong { reason: format!("its input `{input}`: {}", wrong.reason), ..wrong }
    })
}

fn tolerance(raw: &RawTolerance) -> Result<Tolerance, Wrong> {
    // The formats' own defaults.
    let (atol, rtol) = (raw.max_atol.unwrap_or(1e-2), raw.max_rtol.unwrap_or(1e-2));
    let size = |value: f64| value.is_finite() && value >= 0.0;
    if !size(atol) || !size(rtol) {
        return Err(Wrong::workload("its tolerance is negative or infinite"));
    }
    if raw.required_matched_ratio.is_some_and(|ratio| (ratio - MATCHED).abs() > 1e-9)
        || raw.max_error_cap.is_some()
    {
        return Err(Wrong::new(
            "its tolerance has a ratio of matched elements other than 0.99, or a cap of the error",
            "the judge asks that 99 % of the elements are within `max_atol` and `max_rtol`, as the format does by default",
        ));
    }
    Ok(Tolerance { atol, rtol })
}
