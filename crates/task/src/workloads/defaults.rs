//! Defaults of the parameters of `get_inputs`. An agent sees them, so they must be none of a held-out workload.

use std::ops::Range;

use ruff_python_ast::{ParameterWithDefault, Parameters};
use ruff_text_size::Ranged;

use super::literal::{self, NotLiteral, python};
use super::{Arguments, Workload};

/// The default of a parameter.
#[derive(Clone, Debug)]
pub(crate) struct InputDefault {
    name: String,
    /// Its place among the positional parameters; `None` if it is passed by name only.
    position: Option<usize>,
    /// Its text in the source.
    place: Range<usize>,
}

/// All defaults.
pub(super) fn of(parameters: &Parameters) -> Vec<InputDefault> {
    let one = |parameter: &ParameterWithDefault, position| {
        let range = parameter.default.as_deref()?.range();
        let place = range.start().to_usize()..range.end().to_usize();
        Some(InputDefault { name: parameter.parameter.name.to_string(), position, place })
    };
    let positional = parameters.posonlyargs.iter().chain(&parameters.args).enumerate();
    let positional = positional.filter_map(|(i, parameter)| one(parameter, Some(i)));
    positional.chain(parameters.kwonlyargs.iter().filter_map(|p| one(p, None))).collect()
}

/// A default that workloads replace and that is no literal, if there is one: what it shows cannot be told.
pub(super) fn computed(parameters: &Parameters, workload: &Workload) -> Option<NotLiteral> {
    let passed: Vec<Range<usize>> =
        replaced_by(&of(parameters), workload).map(|(place, _)| place).collect();
    parameters.iter_non_variadic_params().filter_map(|p| p.default.as_deref()).find_map(|default| {
        let at = default.range();
        let is_passed = passed.contains(&(at.start().to_usize()..at.end().to_usize()));
        if is_passed { literal::value(default).err() } else { None }
    })
}

/// The defaults that a workload has other values for, as Python.
pub(super) fn replaced_by(
    defaults: &[InputDefault],
    workload: &Workload,
) -> impl Iterator<Item = (Range<usize>, String)> {
    defaults.iter().filter_map(|default| {
        let value = match &workload.arguments {
            Arguments::Named(named) => named.get(&default.name)?,
            Arguments::Positional(values) => values.get(default.position?)?,
        };
        Some((default.place.clone(), python(value)))
    })
}
