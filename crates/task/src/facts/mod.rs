//! Static analysis of one source: facts and errors that need no execution.

pub(crate) mod deep;
mod devices;
pub(crate) mod error;
pub(crate) mod excerpt;
mod found;
mod imports;
pub(crate) mod module;
pub(crate) mod names;
pub(crate) mod operators;
mod random;

use ruff_python_ast::ModModule;
use ruff_python_parser::Parsed;
use ruff_text_size::Ranged;

use crate::libraries;
use crate::limits::MAX_SOURCE_BYTES;
use crate::workloads::{self, WorkloadList};
use error::{TaskError, TaskErrorKind};
use excerpt::Lines;
use module::Module;

pub use found::{DeviceUse, Facts, Import, InitInputs, Presence, RandomUse, RandomWhen, Warning};

/// Analyses `source` without running it. Never panics and uses bounded stack, whatever the text. Constructs that it
/// cannot resolve (a `Model` made by assignment, an imported base class) are accepted.
///
/// # Errors
///
/// The first error in the source: a syntax error; no `Model`, `forward` or `get_inputs`; a function called without
/// arguments that needs some; a `Model` that needs arguments without `get_init_inputs`; a relative import.
pub fn facts(source: &str) -> Result<Facts, TaskError> {
    if let Some(refusal) = crate::definition::refusal(source) {
        return Err(refusal.into());
    }
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TaskErrorKind::TooLarge { bytes: source.len() }.into());
    }
    deep::on_deep_stack(|| read(source))
        .unwrap_or(Err(TaskErrorKind::Unreadable))
        .map_err(Into::into)
}

fn parsed(source: &str, lines: &Lines<'_>) -> Result<Parsed<ModModule>, TaskErrorKind> {
    ruff_python_parser::parse_module(source).map_err(|error| TaskErrorKind::Syntax {
        at: lines.place(error.location.start()),
        message: error.error.to_string(),
    })
}

fn read(source: &str) -> Result<Facts, TaskErrorKind> {
    let lines = Lines::new(source);
    let parsed = parsed(source, &lines)?;
    let body = parsed.suite();
    let module = Module::new(body);
    let imports = imports::read(body, &lines)?;
    let init_inputs = module::check(&module, &lines)?;
    let workloads = workloads::read(body, &module, &lines)?;
    if let Some((at, message)) = crate::backward::unclear(body) {
        return Err(TaskErrorKind::Backward { at: lines.place(at.start()), message });
    }
    let names = names::Names::new(body);
    Ok(Facts {
        imports,
        init_inputs,
        device_uses: devices::read(body, &names, &lines),
        random: random::read(&module, &names, &lines),
        libraries: libraries::read(body, &lines)?.unwrap_or_default(),
        workloads: workloads.into_iter().map(|workload| workload.name).collect(),
    })
}

/// The header libraries that a source allows.
///
/// # Errors
/// A syntax error, or a list that is no literal.
pub(crate) fn libraries_of(source: &str) -> Result<Vec<String>, TaskError> {
    // Only sources with the word are parsed: thousands of tasks are read at once.
    if source.len() > MAX_SOURCE_BYTES || !source.contains(libraries::NAME) {
        return Ok(Vec::new());
    }
    deep::on_deep_stack(|| {
        let lines = Lines::new(source);
        let parsed = parsed(source, &lines)?;
        Ok(libraries::read(parsed.suite(), &lines)?.unwrap_or_default())
    })
    .unwrap_or(Err(TaskErrorKind::Unreadable))
    .map_err(Into::into)
}

/// The workloads of a source, and the place of `get_workloads` in it; `None` if it has none.
///
/// # Errors
/// A syntax error, or a `get_workloads` that is no literal list.
pub(crate) fn workloads_of(source: &str) -> Result<Option<WorkloadList>, TaskError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(TaskErrorKind::TooLarge { bytes: source.len() }.into());
    }
    if !source.contains(workloads::NAME) {
        return Ok(None);
    }
    deep::on_deep_stack(|| {
        let lines = Lines::new(source);
        let parsed = parsed(source, &lines)?;
        let body = parsed.suite();
        let module = Module::new(body);
        let Some(function) = workloads::definition(body, &module, &lines)? else { return Ok(None) };
        let range = function.range();
        let place = range.start().to_usize()..range.end().to_usize();
        let workloads = workloads::read(body, &module, &lines)?;
        let defaults = workloads::defaults(&module);
        Ok(Some(WorkloadList { place, workloads, defaults }))
    })
    .unwrap_or(Err(TaskErrorKind::Unreadable))
    .map_err(Into::into)
}
