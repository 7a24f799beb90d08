//! `warpwright task show`.

use std::fmt::Write as _;

use serde::Serialize;
use warpwright_rollout::{folders, shipped};
use warpwright_synth::{DataSet, Measured, Provenance, Row, Split, TensorForm};
use warpwright_task::Task;

use crate::args::task::Show;
use crate::contract::VERSION;
use crate::exit;
use crate::failure::Failure;
use crate::printer::Printer;

/// Output of `task show`.
#[derive(Serialize)]
struct Shown<'a> {
    version: u32,
    tasks: Vec<Told<'a>>,
}

/// A task with its known properties.
#[derive(Serialize)]
struct Told<'a> {
    task: &'a str,
    level: Option<u8>,
    operators: &'a [String],
    /// Names of the workloads; absent for a task with one set of inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workloads: Vec<String>,
    /// Header libraries that the task allows; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    libraries: Vec<String>,
    data_source: &'a str,
    /// The split; `None` for a task without provenance.
    split: Option<Split>,
    measured: Option<&'a Measured>,
    head_room: Option<f64>,
    provenance: Option<&'a Provenance>,
    /// The source, if the task was requested by name.
    code: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(set: &DataSet, row: &'a Row, code: bool) -> Self {
        Self {
            task: &row.name,
            level: row.level,
            operators: &row.ops,
            workloads: workloads(row),
            libraries: libraries(row),
            data_source: &row.data_source,
            split: row.provenance.is_some().then(|| set.split_of(row)),
            measured: row.measured.as_ref(),
            head_room: row.measured.as_ref().map(Measured::head_room),
            provenance: row.provenance.as_ref(),
            code: code.then_some(row.code.as_str()),
        }
    }

    /// The line of a task in a list.
    fn line(&self) -> String {
        let mut line = self.task.to_owned();
        if let Some(level) = self.level {
            let _ = write!(line, "  level {level}");
        }
        if let Some(split) = self.split {
            let _ = write!(line, "  {}", split.name());
        }
        if let Some(measured) = self.measured {
            let best = measured.eager_ms.min(measured.compile_ms);
            let _ = write!(
                line,
                "  eager {} ms, fastest baseline {} ms",
                ms(measured.eager_ms),
                ms(best)
            );
        }
        if !self.workloads.is_empty() {
            let _ = write!(line, "  {} workloads", self.workloads.len());
        }
        if !self.libraries.is_empty() {
            let _ = write!(line, "  allows {}", self.libraries.join(", "));
        }
        if !self.operators.is_empty() {
            let _ = write!(line, "  {}", self.operators.join(", "));
        }
        line.push('\n');
        line
    }

    /// The source, preceded by all known properties as Python comments: it can be saved and run.
    fn whole(&self, code: &str) -> String {
        let mut lines = vec![self.task.to_owned()];
        lines.extend(self.level.map(|level| format!("level {level}")));
        if !self.operators.is_empty() {
            lines.push(format!("operators: {}", self.operators.join(", ")));
        }
        if !self.workloads.is_empty() {
            lines.push(format!("workloads: {}", self.workloads.join(", ")));
        }
        if !self.libraries.is_empty() {
            lines.push(format!("libraries: {}", self.libraries.join(", ")));
        }
        lines.extend(self.split.map(|split| format!("split: {}", split.name())));
        if let Some(measured) = self.measured {
            lines.push(format!("inputs: {}", forms(&measured.inputs)));
            lines.push(format!("outputs: {}", forms(&measured.outputs)));
            lines.push(format!(
                "eager {} ms, compiled {} ms, memory-bandwidth floor {} ms",
                ms(measured.eager_ms),
                ms(measured.compile_ms),
                ms(measured.floor_ms)
            ));
            lines.push(format!("measured with {}", measured.fingerprint));
        }
        if let Some(Provenance { composer, seed, catalogue, parent }) = self.provenance {
            let of = parent.as_ref().map(|parent| format!(", of {parent}")).unwrap_or_default();
            lines.push(format!(
                "composed by {composer} from seed {seed}{of}; catalogue {catalogue}"
            ));
        }
        format!("# {}\n\n{}\n", lines.join("\n# "), code.trim_end())
    }
}

/// Header libraries that a row allows; none where they cannot be read.
fn libraries(row: &Row) -> Vec<String> {
    Task::from_source(&row.name, row.code.as_str()).libraries().unwrap_or_default()
}

/// Names of the workloads of a row; none where they cannot be read.
fn workloads(row: &Row) -> Vec<String> {
    let task = Task::from_source(&row.name, row.code.as_str());
    let workloads = task.workloads().unwrap_or_default();
    workloads.into_iter().map(|workload| workload.name).collect()
}

/// Formats milliseconds with three significant digits.
fn ms(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6);
    format!("{value:.*}", digits as usize)
}

fn forms(forms: &[TensorForm]) -> String {
    let one = |form: &TensorForm| {
        let sizes: Vec<String> = form.shape.iter().map(u64::to_string).collect();
        format!("{}[{}]", form.dtype, sizes.join(", "))
    };
    forms.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(super) fn run(args: &Show, printer: Printer) -> Result<u8, Failure> {
    let set = DataSet::read(&shipped::found(&args.tasks, &folders::cache(None))?)?;
    let rows = set.rows();
    let wanted = if args.names.is_empty() && rows.len() > 1 {
        rows.iter().map(|row| Told::of(&set, row, false)).collect()
    } else {
        let rows = wanted(rows, args)?;
        rows.into_iter().map(|row| Told::of(&set, row, true)).collect::<Vec<_>>()
    };
    let text = wanted.iter().map(|told| told.code.map_or_else(|| told.line(), |c| told.whole(c)));
    printer.data(&text.collect::<Vec<_>>().concat());
    printer.object(&Shown { version: VERSION, tasks: wanted });
    Ok(exit::OK)
}

fn wanted<'a>(rows: &'a [Row], args: &Show) -> Result<Vec<&'a Row>, Failure> {
    if args.names.is_empty() {
        return Ok(rows.iter().collect());
    }
    let find = |name: &String| {
        let found = rows.iter().find(|row| row.name == *name);
        found.ok_or_else(|| {
            let path = args.tasks.display();
            let hint = format!("`warpwright task show {path}` lists its {} tasks", rows.len());
            Failure::usage(format!("failed to find task `{name}` in {path}"), hint)
        })
    };
    args.names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_significant_digits() {
        assert_eq!([0.01234, 1.0, 12.345, 1234.5].map(ms), ["0.0123", "1.00", "12.3", "1234"]);
    }
}
