//! Why a proposal is not kept, in one word, for people, and for the composer.

use warpwright_judge::Examination;
use warpwright_synth::Refusal;

/// Most characters of an error that a composer is told.
const MOST_TOLD: usize = 2000;

/// Why a proposal is not kept.
pub(super) struct Refused {
    /// One word for counting.
    pub(super) reason: String,
    /// For people.
    pub(super) detail: String,
    /// What a composer is told, where that is more.
    told: Option<String>,
}

impl Refused {
    pub(super) fn new(reason: &str, detail: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), detail: detail.into(), told: None }
    }

    /// An error of the task's own: its first line is kept, all that matters of it is told.
    pub(super) fn error(reason: &str, message: &str) -> Self {
        let detail = message.lines().next().unwrap_or_default();
        Self { told: Some(of_the_task(message)), ..Self::new(reason, detail) }
    }

    pub(super) fn copy(refusal: &Refusal) -> Self {
        let of = &refusal.copied;
        let suite = of.suite.as_ref().map(|suite| format!(" of {suite}")).unwrap_or_default();
        Self::new(
            refusal.reason(),
            format!("similarity {:.2} to {}{suite}", refusal.similarity, of.task),
        )
    }

    /// For the composer.
    pub(super) fn told(&self) -> String {
        let detail = self.told.as_ref().unwrap_or(&self.detail);
        format!("{}: {detail}", self.reason.replace('_', " "))
    }

    /// Tasks are about float32: an honest kernel has no choice of another type, and tolerances are made for
    /// it. Inputs may be indices and masks.
    pub(super) fn other_type(found: &Examination) -> Option<Self> {
        let floats = ["float64", "float16", "bfloat16", "complex64", "complex128"];
        let inputs = found.inputs.iter().map(|kind| ("input", kind));
        let inputs = inputs.filter(|(_, kind)| floats.contains(&kind.dtype.as_str()));
        let outputs = found.outputs.iter().map(|kind| ("output", kind));
        let mut others = inputs.chain(outputs.filter(|(_, kind)| kind.dtype != "float32"));
        let (what, kind) = others.next()?;
        Some(Self::new("other_type", format!("an {what} is {}, not float32", kind.dtype)))
    }
}

/// An error without the frames of a traceback that are not the task's: they say nothing of it, and where
/// things are on this machine is nobody's business.
fn of_the_task(message: &str) -> String {
    let mut told = String::new();
    let mut own = true;
    for line in message.lines() {
        let frame = line.trim_start().strip_prefix("File \"").and_then(|rest| rest.split_once('"'));
        if let Some((path, place)) = frame {
            own = path.ends_with("/model.py");
            if own {
                told.push_str(place.trim_start_matches(", "));
                told.push('\n');
            }
        } else if own {
            told.push_str(line);
            told.push('\n');
        }
    }
    told.trim_end().chars().take(MOST_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::of_the_task;

    #[test]
    fn of_a_traceback_only_the_tasks_own_lines_are_told() {
        let message = "RuntimeError: shapes\n  File \"/opt/torch/module.py\", line 7, in call\n    \
            return f()\n           ^^^\n  File \"/tmp/model-x/model.py\", line 9, in forward\n    \
            return x @ y\n           ~~^~~\n  File \"/opt/torch/mm.py\", line 1, in mm\n    raise\n";
        assert_eq!(
            of_the_task(message),
            "RuntimeError: shapes\nline 9, in forward\n    return x @ y\n           ~~^~~"
        );
        assert_eq!(of_the_task("it died\nat once\n"), "it died\nat once");
    }
}
