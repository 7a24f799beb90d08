//! Scales down single workloads of a task: those that do not fit the device.
//!
//! The argument that is the batch dimension gets another value in the list of `get_workloads`, and one line at the top
//! of the source says so for each such workload.

use ruff_python_ast::StmtFunctionDef;
use serde_json::Value;

use super::{BATCH, Fit, FitError, Shapes};
use crate::facts::deep;
use crate::facts::module::{Binding, Module};
use crate::facts::names::Names;
use crate::workloads::{Arguments, WorkloadList, with_list};

/// The source with the batch dimension of one workload divided by `divisor`, at least 1.
pub(crate) fn workload_scaled_down(
    source: &str,
    list: WorkloadList,
    name: &str,
    divisor: u64,
) -> Result<String, FitError> {
    let (dimension, position) =
        deep::on_deep_stack(|| parameter(source)).unwrap_or(Err(FitError::Unreadable))?;
    let WorkloadList { place, mut workloads, .. } = list;
    let workload = workloads.iter_mut().find(|workload| workload.name == name);
    let workload = workload.ok_or_else(|| FitError::NoWorkload(name.to_owned()))?;
    let argument = match &mut workload.arguments {
        Arguments::Named(named) => named.get_mut(&dimension),
        Arguments::Positional(values) => values.get_mut(position),
    };
    let known = argument.and_then(|argument| Some((argument.as_u64()?, argument)));
    let (value, argument) =
        known.ok_or_else(|| FitError::NotGiven(dimension.clone(), name.to_owned()))?;
    let to = (value / divisor.max(1)).max(1);
    if to >= value {
        return Err(FitError::Least(dimension, value));
    }
    *argument = Value::from(to);
    let made = with_list(source, place, &workloads);
    // A byte-order mark is one only at the start, where the label is written.
    let (mut fits, rest) = labelled(made.trim_start_matches('\u{feff}'));
    let from = fits.iter().find(|fit| fit.workload.as_deref() == Some(name)).map(|fit| fit.from);
    fits.retain(|fit| fit.workload.as_deref() != Some(name));
    let workload = Some(name.to_owned());
    fits.push(Fit { dimension, from: from.unwrap_or(value), to, workload });
    Ok(written(&fits, rest))
}

/// The source without what its first lines say of workloads: one that is bound to a workload, whatever its size, is a
/// task of that size.
pub(crate) fn unlabelled(source: &str) -> String {
    kept(source, |_| false)
}

/// The source without what its first lines say of these workloads.
pub(crate) fn without_hidden(source: &str, hidden: &[&str]) -> String {
    kept(source, |name| !hidden.contains(&name))
}

/// Whether single workloads of the source are scaled down.
pub(super) fn is_scaled(source: &str) -> bool {
    Fit::all(source).iter().any(|fit| fit.workload.is_some())
}

fn kept(source: &str, is_kept: impl Fn(&str) -> bool) -> String {
    let (mut fits, rest) = labelled(source);
    fits.retain(|fit| fit.workload.as_deref().is_none_or(&is_kept));
    written(&fits, rest)
}

fn written(fits: &[Fit], rest: &str) -> String {
    let lines: String = fits.iter().map(Fit::line).collect();
    format!("{lines}{rest}")
}

/// What the first lines say, and the lines below.
fn labelled(source: &str) -> (Vec<Fit>, &str) {
    let fits = Fit::all(source);
    let rest = fits.iter().fold(source, |rest, _| rest.split_once('\n').map_or("", |(_, r)| r));
    (fits, rest)
}

/// The parameter of `get_inputs` that is the batch dimension, and its place among the positional ones.
fn parameter(source: &str) -> Result<(String, usize), FitError> {
    let parsed = ruff_python_parser::parse_module(source).map_err(|_| FitError::Unreadable)?;
    let body = parsed.suite();
    let Some(Binding::Function(inputs)) = Module::new(body).get("get_inputs") else {
        return Err(FitError::NoDimension);
    };
    let names = Names::new(body);
    let shapes = Shapes::of(&names, inputs);
    if shapes.stored {
        return Err(FitError::Stored);
    }
    let parameters = all(inputs);
    let place = |name: &str| parameters.iter().position(|parameter| *parameter == name);
    let mut first = shapes.first.iter().copied().filter(|name| place(name).is_some());
    // Where a function of a definition makes the inputs, only the name tells.
    let named = |name: &&str| place(name).is_some() && (shapes.first.contains(name) || !shapes.any);
    let name = BATCH.into_iter().find(named).or_else(|| first.next());
    name.and_then(|name| Some((name.to_owned(), place(name)?))).ok_or(FitError::NoParameter)
}

fn all(inputs: &StmtFunctionDef) -> Vec<&str> {
    inputs
        .parameters
        .iter_non_variadic_params()
        .map(|parameter| parameter.name().as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Task;
    use crate::fit::FitError;

    const TASK: &str = "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        \
                        super().__init__()\n    def forward(self, x):\n        return x\n\n\
                        def get_inputs(batch=16, length=8):\n    return [torch.rand(batch, length)]\n\n\
                        def get_workloads():\n    return [\n        \
                        {'name': 'small', 'arguments': {'batch': 16, 'length': 8}},\n        \
                        {'name': 'big \"b\"', 'arguments': {'batch': 64, 'length': 8}},\n        \
                        {'name': 'unseen', 'arguments': {'batch': 32, 'length': 8}, 'held_out': True},\n    ]\n";

    fn sizes(task: &Task) -> Vec<u64> {
        let workloads = task.workloads().unwrap();
        workloads.iter().map(|w| w.arguments.to_value()["batch"].as_u64().unwrap()).collect()
    }

    #[test]
    fn only_the_workload_that_is_too_large_is_scaled() {
        let task = Task::from_source("t", TASK);
        let scaled = task.workload_scaled_down("big \"b\"", 4).unwrap();
        assert_eq!(sizes(&scaled), [16, 16, 32]);
        let first =
            "# Scaled down by warpwright --fit: batch from 64 to 16, workload \"big \\\"b\\\"\"\n";
        assert!(scaled.source.starts_with(first), "{}", scaled.source);
        let further = scaled.workload_scaled_down("big \"b\"", 2).unwrap();
        let both = further.workload_scaled_down("unseen", 2).unwrap();
        assert_eq!(sizes(&both), [16, 8, 16]);
        let told: Vec<String> = both.fits().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            ["batch 8 of 64 in workload big \"b\"", "batch 16 of 32 in workload unseen"]
        );
        let least = both.workload_scaled_down("small", 64).unwrap();
        assert_eq!(sizes(&least), [1, 8, 16]);
        let least = least.workload_scaled_down("small", 2);
        assert_eq!(least, Err(FitError::Least("batch".to_owned(), 1)));
        assert_eq!(
            task.workload_scaled_down("none", 2),
            Err(FitError::NoWorkload("none".to_owned()))
        );
    }

    #[test]
    fn labels_replace_a_byte_order_mark() {
        let task = Task::from_source("t", format!("\u{feff}{TASK}"));
        let scaled = task.workload_scaled_down("big \"b\"", 4).unwrap();
        assert!(!scaled.source.contains('\u{feff}'), "{:?}", scaled.source);
        assert_eq!(scaled.fits().len(), 1);
        assert_eq!(sizes(&scaled), [16, 16, 32]);
        let further = scaled.workload_scaled_down("big \"b\"", 2).unwrap();
        assert_eq!(sizes(&further), [16, 8, 32]);
    }

    #[test]
    fn agent_sees_no_size_of_a_held_out_workload() {
        let task = Task::from_source("t", TASK).workload_scaled_down("unseen", 2).unwrap();
        let both = task.workload_scaled_down("small", 2).unwrap();
        assert!(both.source.contains("unseen"), "positive control");
        let shown = both.shown().unwrap();
        assert!(!shown.source.contains("unseen"), "{}", shown.source);
        assert_eq!(shown.fits().len(), 1);
        let bound = both.of_workload(2).unwrap().unwrap();
        let same = Task::from_source("t", TASK.replace("'batch': 32", "'batch': 16"));
        assert_eq!(bound.hash, same.of_workload(2).unwrap().unwrap().hash, "{}", bound.source);
    }

    #[test]
    fn tasks_whose_workloads_choose_no_batch_say_so() {
        let of = |from: &str, to: &str| {
            let source = TASK.replace(from, to);
            assert_ne!(source, TASK);
            Task::from_source("t", source).workload_scaled_down("small", 2)
        };
        let made = of("(batch, length)", "(4, length)");
        assert_eq!(made, Err(FitError::NoParameter));
        let not_given = FitError::NotGiven("batch".to_owned(), "small".to_owned());
        assert_eq!(of("16, 'length'", "None, 'length'"), Err(not_given));
        let stored =
            "return [_warpwright_stored('x', (batch,), 'int32'), torch.rand(batch, length)]";
        assert_eq!(of("return [torch.rand(batch, length)]", stored), Err(FitError::Stored));
        let made =
            of("return [torch.rand(batch, length)]", "return entry({'batch': batch})").unwrap();
        assert_eq!(sizes(&made), [8, 64, 32], "only the name tells");
        let drawn = "return [_warpwright_draw('normal', (length, batch), 'float32')]";
        let made = of("return [torch.rand(batch, length)]", drawn).unwrap();
        assert_eq!(sizes(&made), [16, 64, 32], "the length is halved");
    }
}
