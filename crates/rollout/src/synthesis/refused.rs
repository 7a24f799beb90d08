//! Why a proposal is refused: in one word, in a line, and as a message to the composer.

use warpwright_judge::Examination;
use warpwright_synth::Refusal;

/// Maximum characters of an error in a message to the composer.
const MOST_TOLD: usize = 2000;

/// Why a proposal is refused.
pub(super) struct Refused {
    /// The reason in one word, for counting.
    pub(super) reason: String,
    /// The reason in one line.
    pub(super) detail: String,
    /// A longer message to the composer, if there is one.
    told: Option<String>,
}

impl Refused {
    pub(super) fn new(reason: &str, detail: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), detail: detail.into(), told: None }
    }

    /// An error that the task raised: its first line is the detail, its relevant lines are the
    /// message to the composer.
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

    /// The message to the composer.
    pub(super) fn told(&self) -> String {
        let detail = self.told.as_ref().unwrap_or(&self.detail);
        format!("{}: {detail}", self.reason.replace('_', " "))
    }

    /// Refuses types other than float32: an honest kernel cannot choose its type, and the
    /// tolerances are made for float32. Inputs may also be indices and masks.
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

/// The error without traceback frames outside the task: they do not describe the task, and they
/// reveal paths of this machine.
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
    fn traceback_is_cut_to_lines_of_the_task() {
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
