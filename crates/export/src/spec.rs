//! `package.json`: what the Python of a package reads. It is checked here, so that addresses lead into tensors.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use warpwright_plan::image::Image;
use warpwright_plan::{LaunchPlan, Role};

use crate::code::{Kind, generate, library_streams};
use crate::error::ExportError;
use crate::layout::{Home, Layout};
use crate::names;
use crate::source::{TaskSource, TensorForm, WorkloadSource};

/// Version of `package.json`.
const FORMAT: u32 = 1;
/// Workspace of cuBLAS per stream, as the judge's replayer gives it.
const LIBRARY_BYTES: u64 = 32 << 20;

/// A workload of a package.
pub(crate) struct Workload {
    pub(crate) json: Json,
    pub(crate) code: String,
}

/// A task of a package.
pub(crate) struct Task {
    /// Identifier: the operator's name, and the folder's.
    pub(crate) name: String,
    pub(crate) json: Json,
    pub(crate) workloads: Vec<Workload>,
}

/// All of `package.json`.
pub(crate) fn package(name: &str, namespace: &str, tasks: &[Task]) -> Json {
    let tasks: Vec<&Json> = tasks.iter().map(|task| &task.json).collect();
    json!({"format": FORMAT, "package": name, "namespace": namespace, "tasks": tasks})
}

/// A task, with the C++ of its workloads.
pub(crate) fn task(source: &TaskSource<'_>, name: String) -> Result<Task, ExportError> {
    let first = source.workloads.first().ok_or(ExportError::NoWorkload)?;
    let kind = Kind::of(source.target);
    for workload in &source.workloads {
        check(kind, workload)?;
        let alike = workload.inputs.len() == first.inputs.len()
            && workload.state == first.state
            && workload.changed == first.changed
            && workload.plan.outputs.tensors.len() == first.plan.outputs.tensors.len();
        if !alike {
            return Err(ExportError::MixedWorkloads);
        }
    }
    let weights: Vec<u32> = weights(&source.workloads).into_iter().collect();
    let mut workloads = Vec::new();
    for (index, of) in source.workloads.iter().enumerate() {
        let layout = Layout::of(of.plan)?;
        let code = generate(kind, of.plan, &layout, &weights)?;
        let folder = format!("workloads/{name}-{index}");
        workloads.push(Workload { json: workload(kind, of, &layout, &folder)?, code });
    }
    let returned = workloads.iter().map(|workload| workload.json.get("homes"));
    if returned.clone().any(|homes| homes != returned.clone().next().flatten()) {
        return Err(ExportError::MixedWorkloads);
    }
    let all: Vec<&Json> = workloads.iter().map(|workload| &workload.json).collect();
    let json = json!({
        "name": name,
        "class": names::class(&name),
        "task": source.name,
        "candidate": source.candidate,
        "device": if kind == Kind::Cuda { "cuda" } else { "cpu" },
        "arch": source.target.strip_prefix("cuda-"),
        "processor": source.processor,
        "trains": source.trains,
        "steps": source.steps,
        "strict": source.strict,
        "verdict": format!("verdicts/{name}.json"),
        "changed": first.changed,
        "state": first.state,
        "weights": weights,
        "workloads": all,
    });
    Ok(Task { name, json, workloads })
}

/// The entries of the state that any plan reads.
fn weights(workloads: &[WorkloadSource<'_>]) -> BTreeSet<u32> {
    let blocks = workloads.iter().flat_map(|workload| &workload.plan.blocks);
    let weight = |role| if let Role::Weight(position) = role { Some(position) } else { None };
    blocks.filter_map(|block| weight(block.role)).collect()
}

fn workload(
    kind: Kind,
    of: &WorkloadSource<'_>,
    layout: &Layout,
    folder: &str,
) -> Result<Json, ExportError> {
    let plan = of.plan;
    let images: Vec<String> =
        (0..of.images.len()).map(|index| format!("{folder}/images/{index}.bin")).collect();
    let tables: Vec<Json> = layout
        .tables
        .iter()
        .map(|table| {
            let file = format!("{folder}/tables/{}.bin", table.constant);
            json!({"file": file, "offset": table.offset, "bytes": table.bytes})
        })
        .collect();
    let homes: Vec<&Home> = layout.results.iter().map(|result| &result.home).collect();
    Ok(json!({
        "name": of.name,
        "folder": folder,
        "inputs": of.inputs,
        "trees": of.input_trees,
        "results": layout.results,
        "homes": homes,
        "tree": plan.outputs.tree,
        "slots": layout.slots,
        "lasting_bytes": layout.lasting_bytes,
        "workspace_bytes": layout.workspace_bytes,
        "library_bytes": u64::from(library_streams(plan)) * LIBRARY_BYTES,
        "tables": tables,
        "images": images,
        "prepares": !plan.prepare.is_empty(),
        "stateful": layout.keeps || has_variables(kind, of)?,
    }))
}

/// Whether kernels may have variables that outlive a call.
fn has_variables(kind: Kind, of: &WorkloadSource<'_>) -> Result<bool, ExportError> {
    if kind == Kind::Host {
        return Ok(true);
    }
    for image in of.images {
        if !Image::read(image)?.symbols.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn check(kind: Kind, of: &WorkloadSource<'_>) -> Result<(), ExportError> {
    let images: Vec<Image> = of
        .images
        .iter()
        .map(|image| if kind == Kind::Cuda { Image::read(image) } else { Image::read_host(image) })
        .collect::<Result<_, _>>()?;
    of.plan.check(&images)?;
    tables(of.plan, of.constants)?;
    let rule = |holds: bool, what| {
        if holds { Ok(()) } else { Err(ExportError::Contradiction { what }) }
    };
    for block in &of.plan.blocks {
        let form = match block.role {
            Role::Input(position) => of.inputs.get(position as usize),
            Role::Weight(position) => of.state.get(position as usize),
            _ => continue,
        };
        let bytes = form
            .and_then(span)
            .ok_or(ExportError::Contradiction { what: "it reads a tensor that is not there" })?;
        rule(block.bytes <= bytes, "it reads more than a tensor has")?;
    }
    rule(!of.inputs.is_empty() || !of.state.is_empty(), "it takes no tensor")?;
    let known = |position: &u32| (*position as usize) < of.inputs.len();
    rule(of.changed.iter().all(known), "it changes an input that is not there")?;
    let flat = |tree: &Json| tree.get("list").or_else(|| tree.get("tuple")).is_some();
    if !of.input_trees.iter().all(flat) {
        return Err(ExportError::Unsupported { what: "takes named inputs" });
    }
    for result in &of.plan.outputs.tensors {
        let form = TensorForm {
            shape: result.shape.clone(),
            strides: result.strides.clone(),
            dtype: result.dtype.clone(),
        };
        rule(span(&form).is_some(), "a result has no size")?;
    }
    Ok(())
}

/// Whether the tables of a plan are there, and the same whatever the weights are.
fn tables(plan: &LaunchPlan, sets: &[Vec<Vec<u8>>]) -> Result<(), ExportError> {
    let what = "its tables are not those that it names";
    let first = sets.first().ok_or(ExportError::Contradiction { what })?;
    let known = plan.constants.iter().map(|constant| constant.bytes);
    if !known.eq(first.iter().map(|table| table.len() as u64)) {
        return Err(ExportError::Contradiction { what });
    }
    // One set cannot show whether the tables depend on the weights.
    let alone = sets.len() < 2 && !first.is_empty();
    if alone || sets.iter().any(|set| set != first) {
        return Err(ExportError::TablesOfWeights);
    }
    Ok(())
}

/// Bytes from the first to the last element.
fn span(form: &TensorForm) -> Option<u64> {
    let element = match form.dtype.as_str() {
        "complex128" => 16,
        "float64" | "int64" | "uint64" | "complex64" => 8,
        "float32" | "int32" | "uint32" => 4,
        "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "int8" | "uint8" | "bool" | "float8_e4m3fn" | "float8_e5m2" => 1,
        _ => return None,
    };
    if form.shape.len() != form.strides.len() {
        return None;
    }
    if form.shape.contains(&0) {
        return Some(0);
    }
    let mut last = 0u64;
    for (extent, stride) in form.shape.iter().zip(&form.strides) {
        last = last.checked_add((extent - 1).checked_mul(u64::try_from(*stride).ok()?)?)?;
    }
    last.checked_add(1)?.checked_mul(element)
}
