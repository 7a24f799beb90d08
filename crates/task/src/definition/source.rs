//! The Python of a task: the definition's reference unchanged, and what KernelBench form adds.

use std::fmt::Write;

use serde_json::Value;

use super::axes::Axis;
use super::schema::Raw;
use super::tensors::Dtype;
use super::workload::{LeftOut, Source, Tolerance, Workload};
use super::wrong::Wrong;

const DRAWS: &str = include_str!("draws.py");
const STORED: &str = include_str!("stored.py");
/// Number of left-out workloads whose reasons the source lists; it counts the others.
const MOST_TOLD: usize = 8;

/// Begins the comment of a workload that is left out.
pub(crate) const LEFT_OUT: &str = "# Left out: ";

/// Begins the comment of a constraint that no workload was checked against.
pub(crate) const UNCHECKED: &str = "# Not checked: ";

/// The source of a definition with its workloads, of which there is at least one.
pub(super) fn make(
    raw: &Raw,
    axes: &[(String, Axis)],
    dtypes: &[Dtype],
    workloads: &[Workload],
    left_out: &[LeftOut],
) -> Result<String, Wrong> {
    let Some(first) = workloads.first() else {
        return Err(Wrong::workload("it has no workload"));
    };
    let mut text = head(raw, workloads, left_out);
    text.push_str(raw.reference.as_deref().unwrap_or_default());
    text.push_str(
        "\n\n\n# What follows is made by Warpwright from the axes, inputs and workloads.\n",
    );
    text.push_str("import torch as _warpwright_torch\n");
    if let Some(entry) = &raw.custom_inputs_entrypoint {
        line(&mut text, format_args!("_warpwright_entry = {entry}"));
    }
    let forward: Vec<&str> = raw.inputs.names().collect();
    line(&mut text, format_args!("\n\nclass Model(_warpwright_torch.nn.Module):"));
    line(&mut text, format_args!("    def forward(self, {}):", forward.join(", ")));
    line(&mut text, format_args!("        return run({})", forward.join(", ")));
    line(&mut text, format_args!("\n\ndef get_init_inputs():\n    return []\n\n"));
    let drawn = |workload: &Workload| workload.inputs.iter().any(|s| matches!(s, Source::Drawn(_)));
    if workloads.iter().any(drawn) {
        text.push_str(DRAWS);
        text.push_str("\n\n");
    }
    if workloads.iter().any(|workload| !workload.tensors.is_empty()) {
        text.push_str(STORED);
        tensors(&mut text, raw, dtypes, workloads);
    }
    inputs(&mut text, raw, axes, dtypes, workloads, first);
    line(&mut text, format_args!("\n\ndef get_workloads():\n    return ["));
    for workload in workloads {
        listed(&mut text, raw, workload, workloads);
    }
    text.push_str("    ]\n");
    Ok(text)
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
    text.push('\n');
}

/// Comments: what it is, what is left out, and what was not checked.
fn head(raw: &Raw, workloads: &[Workload], left_out: &[LeftOut]) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("# The definition {}.", super::one_line(&raw.name, 120)));
    if let Some(description) = &raw.description {
        line(&mut text, format_args!("# {}", super::one_line(description, 300)));
    }
    for LeftOut { name, wrong } in left_out.iter().take(MOST_TOLD) {
        let reason = super::one_line(&wrong.reason, 300);
        line(&mut text, format_args!("{LEFT_OUT}workload {name}: {reason}"));
    }
    if left_out.len() > MOST_TOLD {
        line(&mut text, format_args!("{LEFT_OUT}{} more workloads", left_out.len() - MOST_TOLD));
    }
    let of_any = |index: &usize| workloads.iter().any(|known| known.unchecked.contains(index));
    let constraints = raw.constraints.iter().flatten().enumerate();
    let unchecked: Vec<&String> =
        constraints.filter(|(index, _)| of_any(index)).map(|(_, text)| text).collect();
    for constraint in unchecked.iter().take(MOST_TOLD) {
        let constraint = super::one_line(constraint, 80);
        line(&mut text, format_args!("{UNCHECKED}constraint `{constraint}`"));
    }
    if unchecked.len() > MOST_TOLD {
        let more = unchecked.len() - MOST_TOLD;
        line(&mut text, format_args!("{UNCHECKED}{more} more constraints"));
    }
    text.push('\n');
    text
}

/// Whether workloads pass this input to `get_inputs`.
fn passed(workloads: &[Workload], index: usize) -> bool {
    let by_argument = |s: &Source| matches!(s, Source::Number(_) | Source::Stored(_));
    workloads.iter().any(|workload| workload.inputs.get(index).is_some_and(by_argument))
}

/// What a workload passes for the input.
fn argument(raw: &Raw, workload: &Workload, index: usize) -> String {
    match workload.inputs.get(index) {
        Some(Source::Number(value)) => literal(value),
        Some(Source::Stored(_)) => format!("\"{}\"", key(raw, workload, index)),
        // Of one type in all workloads.
        _ => "\"\"".to_owned(),
    }
}

fn key(raw: &Raw, workload: &Workload, index: usize) -> String {
    let input = raw.inputs.0.get(index).map_or("", |(name, _)| name.as_str());
    format!("{}/{input}", workload.name)
}

fn literal(value: &Value) -> String {
    match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

/// The tensors that workloads carry: integers as numbers, others as the hexadecimal of their bytes.
fn tensors(text: &mut String, raw: &Raw, dtypes: &[Dtype], workloads: &[Workload]) {
    text.push_str("\n\n");
    text.push_str(super::TENSORS);
    for workload in workloads {
        for (index, source) in workload.inputs.iter().enumerate() {
            let Source::Stored(at) = source else { continue };
            let bytes = workload.tensors.get(*at).map(Vec::as_slice).unwrap_or_default();
            let values = match dtypes.get(index) {
                Some(Dtype::Int(_, size)) => integers(bytes, usize::try_from(*size).unwrap_or(1)),
                Some(Dtype::Bool) => integers(bytes, 1),
                _ => format!("\"{}\"", hexadecimal(bytes)),
            };
            line(text, format_args!("    \"{}\": {values},", key(raw, workload, index)));
        }
    }
    text.push_str("}\n\n\n");
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn integers(bytes: &[u8], size: usize) -> String {
    let numbers = bytes.chunks_exact(size.max(1)).map(|chunk| {
        let negative = chunk.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        for (to, from) in wide.iter_mut().zip(chunk) {
            *to = *from;
        }
        i64::from_le_bytes(wide).to_string()
    });
    format!("[{}]", numbers.collect::<Vec<_>>().join(", "))
}

fn inputs(
    text: &mut String,
    raw: &Raw,
    axes: &[(String, Axis)],
    dtypes: &[Dtype],
    workloads: &[Workload],
    first: &Workload,
) {
    let mut parameters: Vec<String> =
        first.axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    for (index, (name, _)) in raw.inputs.0.iter().enumerate() {
        if passed(workloads, index) {
            parameters.push(format!("{name}={}", argument(raw, first, index)));
        }
    }
    line(text, format_args!("def get_inputs({}):", parameters.join(", ")));
    for (name, axis) in axes {
        if let Axis::Const(value) = axis {
            line(text, format_args!("    {name} = {value}"));
        }
    }
    for (name, axis) in axes {
        if let Axis::Expr(expression) = axis {
            line(text, format_args!("    {name} = int({})", expression.trim()));
        }
    }
    let custom = |s: &Source| matches!(s, Source::Custom);
    if first.inputs.iter().any(custom) {
        let mut entries: Vec<String> = axes.iter().map(|(n, _)| format!("\"{n}\": {n}")).collect();
        for ((name, _), source) in raw.inputs.0.iter().zip(&first.inputs) {
            if matches!(source, Source::Number(_)) {
                entries.push(format!("\"{name}\": {name}"));
            }
        }
        line(text, format_args!("    _made = _warpwright_entry("));
        line(text, format_args!("        {{{}}},", entries.join(", ")));
        line(text, format_args!("        _warpwright_torch.empty(0).device,\n    )"));
    }
    line(text, format_args!("    return ["));
    for (index, ((name, tensor), source)) in raw.inputs.0.iter().zip(&first.inputs).enumerate() {
        let dtype = dtypes.get(index).map_or("float32", |dtype| dtype.name());
        let mut shape = tensor.shape.clone().unwrap_or_default().join(", ");
        if tensor.shape.as_ref().is_some_and(|shape| shape.len() == 1) {
            shape.push(',');
        }
        // Checked: sources of one input differ between workloads only by drawn and stored.
        let rule = workloads.iter().find_map(|workload| match workload.inputs.get(index) {
            Some(Source::Drawn(rule)) => Some(*rule),
            _ => None,
        });
        let draw =
            format!("_warpwright_draw(\"{}\", ({shape}), \"{dtype}\")", rule.unwrap_or("normal"));
        let stored = format!("_warpwright_stored({name}, ({shape}), \"{dtype}\")");
        let made = match (source, rule, passed(workloads, index)) {
            (Source::Custom, ..) => format!("_made[\"{name}\"]"),
            (Source::Number(_), ..) => name.clone(),
            (_, Some(_), false) => draw,
            (_, None, _) => stored,
            (_, Some(_), true) => format!("{stored} if {name} else {draw}"),
        };
        line(text, format_args!("        {made},"));
    }
    line(text, format_args!("    ]"));
}

fn listed(text: &mut String, raw: &Raw, workload: &Workload, workloads: &[Workload]) {
    let mut arguments: Vec<String> =
        workload.axes.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    for (index, (name, _)) in raw.inputs.0.iter().enumerate() {
        if passed(workloads, index) {
            arguments.push(format!("\"{name}\": {}", argument(raw, workload, index)));
        }
    }
    let mut entry =
        format!("\"name\": \"{}\", \"arguments\": {{{}}}", workload.name, arguments.join(", "));
    if let Some(Tolerance { atol, rtol }) = &workload.tolerance {
        let (atol, rtol) = (literal(&Value::from(*atol)), literal(&Value::from(*rtol)));
        let _ = write!(entry, ", \"tolerance\": {{\"atol\": {atol}, \"rtol\": {rtol}}}");
    }
    line(text, format_args!("        {{{entry}}},"));
}
