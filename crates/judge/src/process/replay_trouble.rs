//! Whose failure it is that a plan was not replayed.

use crate::device::arena::ArenaError;
use crate::error::JudgeError;
use crate::process::channel::NoAnswer;
use crate::process::failure::{Stumble, Trouble};

/// Bytes of local memory of a thread that are much: for 300,000 threads they make 600 MiB.
const MUCH_LOCAL: u32 = 2 << 10;

/// Whose failure it is that the GPU has no memory for the inputs of a window. The driver keeps local memory for every
/// thread that fits the GPU at once: a candidate whose kernels want much of it is judged in the host tier, where its
/// own process has it. Else the session gives memory of its own up, and tries again.
pub(super) fn no_inputs(error: ArenaError, local: u32, task: &str) -> Trouble {
    if !error.exhausted {
        return error.into();
    }
    if local > MUCH_LOCAL {
        return Trouble::Unplanned(format!(
            "a kernel takes {local} bytes of local memory per thread, beside which the GPU has no room for inputs"
        ));
    }
    let (task, message) = (task.to_owned(), error.to_string());
    JudgeError::Memory { task, message, wanted: None }.into()
}

/// Whose failure it is that a replayer did not answer: an error of CUDA or of a kernel is the candidate's, and so are a hang and
/// a death while its kernels may run. A plan that the replayer does not take is judged in the host tier. Anything
/// else that a replayer complains of is ours.
pub(super) fn trouble(during: &'static str, answer: NoAnswer) -> Trouble {
    match answer {
        NoAnswer::Complaint(complaint) => match complaint.kind.as_str() {
            "cuda" | "cublas" | "cudnn" | "kernel" => {
                let answer = NoAnswer::Complaint(complaint);
                Trouble::Candidate(Stumble { during, answer })
            }
            "plan" | "artifact" => Trouble::Unplanned(complaint.message),
            _ => JudgeError::infrastructure("replay a launch plan", complaint.message).into(),
        },
        answer => Trouble::Candidate(Stumble { during, answer }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_memory_is_blamed_on_what_takes_it() {
        let exhausted = || ArenaError { exhausted: true, ..ArenaError::new("make memory", "no") };
        let kind = |error, local| match no_inputs(error, local, "task") {
            Trouble::Unplanned(_) => "unplanned",
            Trouble::Judge(JudgeError::Memory { .. }) => "memory",
            Trouble::Judge(_) => "ours",
            Trouble::Candidate(_) => "candidate",
        };
        assert_eq!(kind(exhausted(), 48 << 10), "unplanned");
        assert_eq!(kind(exhausted(), 64), "memory");
        assert_eq!(kind(ArenaError::new("make memory", "gone"), 48 << 10), "ours");
    }
}
