//! Sources that are bound to one workload, or show only some of them.

use std::fmt::Write;
use std::ops::Range;

use serde_json::Value;

use super::defaults::replaced_by;
use super::literal::python;
use super::{Workload, WorkloadList, WorkloadTolerance};
use crate::definition::TENSORS;

/// Python that defines `_warpwright_workload`.
const FOOTER: &str = include_str!("../workload.py");
/// How the line behind it begins.
const CALL: &str = "_warpwright_workload(";
/// How footers of options begin, such as `--dtype`'s. They wrap `get_inputs` as it is then.
const OF_OPTIONS: &str = "\n# Appended by `warpwright --";

/// The source with `get_inputs` bound to the workload, and without `get_workloads`, which is at `list`.
pub(crate) fn bind(source: &str, list: Range<usize>, workload: &Workload) -> String {
    let source = replaced(source, list, "");
    let (task, options) = source.split_at(source.find(OF_OPTIONS).unwrap_or(source.len()));
    let all = serde_json::json!({
        "name": workload.name,
        "arguments": workload.arguments,
        "tolerance": workload.tolerance,
        "held_out": workload.held_out,
    });
    let text = Value::String(all.to_string());
    format!("{}\n\n\n{FOOTER}\n\n{CALL}{text})\n{options}", task.trim_end())
}

/// The place of the footer, with the workload that it names.
fn footer(source: &str) -> Option<(Range<usize>, Workload)> {
    let start = source.find(FOOTER)?;
    let rest = source.get(start + FOOTER.len()..)?;
    let begins = rest.find(CALL)?;
    let call = rest.get(begins..)?.lines().next()?;
    let end = start + FOOTER.len() + begins + call.len();
    let text = call.strip_prefix(CALL)?.strip_suffix(')')?;
    let inner: String = serde_json::from_str(text).ok()?;
    Some((start..end, serde_json::from_str(&inner).ok()?))
}

/// The workload that a source is bound to.
pub(crate) fn bound(source: &str) -> Option<Workload> {
    footer(source).map(|(_, workload)| workload)
}

/// The source without the footer of its workload: equal for all workloads of a task.
pub(crate) fn unbound(source: &str) -> String {
    match footer(source) {
        Some((place, _)) => replaced(source, place, ""),
        None => source.to_owned(),
    }
}

/// The source with this list in place of the one at `list`.
pub(crate) fn with_list(source: &str, list: Range<usize>, workloads: &[Workload]) -> String {
    replaced(source, list, &written(workloads, 0))
}

/// The source without what it says of workloads that are held out: their entries, defaults of `get_inputs`, which
/// become the values of the first that is seen, and tensors that are stored for them.
pub(crate) fn shown(source: &str, list: &WorkloadList) -> String {
    let (held_out, seen): (Vec<_>, Vec<_>) =
        list.workloads.iter().cloned().partition(|workload| workload.held_out);
    let mut changes = vec![(list.place.clone(), written(&seen, held_out.len()))];
    changes.extend(seen.iter().take(1).flat_map(|first| replaced_by(&list.defaults, first)));
    // From the end, where it moves nothing that is still to be replaced.
    changes.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let shown = changes
        .into_iter()
        .fold(source.to_owned(), |text, (place, by)| replaced(&text, place, &by));
    without_tensors_of(&shown, &held_out)
}

/// Without the tensors that the source of a definition has for these workloads, one a line.
fn without_tensors_of(source: &str, workloads: &[Workload]) -> String {
    let Some(start) = source.find(TENSORS) else { return source.to_owned() };
    let (before, all) = source.split_at(start);
    let of_one = |line: &str| {
        let begins = |w: &Workload| line.starts_with(&format!("    \"{}/", w.name));
        workloads.iter().any(begins)
    };
    let mut text = before.to_owned();
    text.extend(all.split_inclusive('\n').filter(|line| !of_one(line)));
    text
}

fn replaced(source: &str, range: Range<usize>, by: &str) -> String {
    let before = source.get(..range.start).unwrap_or(source);
    let after = source.get(range.end..).unwrap_or("");
    format!("{before}{by}{after}")
}

/// `get_workloads` with this list.
fn written(workloads: &[Workload], hidden: usize) -> String {
    let mut text = "def get_workloads():\n".to_owned();
    if hidden > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    # {hidden} more are held out: the final candidate is judged on them too."
        );
    }
    text.push_str("    return [\n");
    for workload in workloads {
        let Workload { name, arguments, tolerance, held_out } = workload;
        let (name, arguments) =
            (python(&Value::from(name.as_str())), python(&arguments.to_value()));
        let _ = write!(text, "        {{\"name\": {name}, \"arguments\": {arguments}");
        if let Some(WorkloadTolerance { atol, rtol }) = tolerance {
            let (atol, rtol) = (python(&Value::from(*atol)), python(&Value::from(*rtol)));
            let _ = write!(text, ", \"tolerance\": {{\"atol\": {atol}, \"rtol\": {rtol}}}");
        }
        if *held_out {
            text.push_str(", \"held_out\": True");
        }
        text.push_str("},\n");
    }
    text.push_str("    ]");
    text
}
