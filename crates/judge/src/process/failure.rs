//! Classifies how a candidate's process failed.

use warpwright_jail::Outcome;
use warpwright_record::verdict::{Failure, FailureClass, IntegrityFinding};

use crate::error::JudgeError;
use crate::process::channel::NoAnswer;

/// How a candidate failed to answer a request.
#[derive(Debug)]
pub(crate) struct Stumble {
    pub(crate) during: &'static str,
    pub(crate) answer: NoAnswer,
}

/// Either our own failure or the candidate's.
#[derive(Debug)]
pub(crate) enum Trouble {
    Judge(JudgeError),
    Candidate(Stumble),
    /// Its launch plan does not hold for what it is called with, and why. Not in the host tier.
    Unplanned(String),
}

impl<E: Into<JudgeError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Judge(error.into())
    }
}

/// Longest text taken over from a candidate.
const MAX_TEXT: usize = 2000;

/// A failure without particulars.
pub(crate) fn failure(class: FailureClass, message: impl Into<String>) -> Failure {
    Failure {
        class,
        message: message.into(),
        diagnostics: Vec::new(),
        mismatch: None,
        cuda_error: None,
        output_tail: String::new(),
    }
}

/// Classifies a stumble; `outcome` is how the process ended, `tail` the end of its output.
pub(crate) fn classify(stumble: &Stumble, outcome: Option<&Outcome>, tail: &str) -> Failure {
    let during = stumble.during;
    let mut failure = match &stumble.answer {
        NoAnswer::Late(limit) => {
            let text = format!("{during} did not finish within {:.0} s", limit.as_secs_f64());
            failure(FailureClass::Hang, text)
        }
        NoAnswer::Unasked => {
            failure(FailureClass::Integrity, "the process sent an answer without a request")
        }
        NoAnswer::RanWhileFrozen => {
            failure(FailureClass::Integrity, "one of its processes ran while frozen")
        }
        NoAnswer::CannotFreeze(reason) => failure(FailureClass::Integrity, reason.clone()),
        NoAnswer::LeftRunning => {
            failure(FailureClass::Integrity, "it left work running on the GPU after its answer")
        }
        NoAnswer::Malformed(what) => {
            failure(FailureClass::Crash, format!("the process sent a malformed answer: {what}"))
        }
        NoAnswer::TooLarge(bytes) => {
            failure(FailureClass::Crash, format!("the process sent an answer of {bytes} bytes"))
        }
        NoAnswer::Closed => match outcome {
            Some(Outcome::OutOfMemory) => {
                failure(FailureClass::OutOfMemory, format!("{during} exceeded the memory limit"))
            }
            Some(Outcome::Signalled(signal)) => failure(
                FailureClass::Crash,
                format!("the process died of {} during {during}", signal_name(*signal)),
            ),
            Some(other) => {
                failure(FailureClass::Crash, format!("the process ended during {during}: {other}"))
            }
            None => failure(FailureClass::Crash, format!("the process ended during {during}")),
        },
        NoAnswer::Complaint(complaint) => {
            let code = cuda_code(&complaint.message);
            let class = match complaint.kind.as_str() {
                "state_dict" => FailureClass::StateDict,
                "no_model_new" | "no_backward" => FailureClass::Load,
                "memory" => FailureClass::OutOfMemory,
                _ if complaint.message.starts_with("ForbiddenCall") => FailureClass::ForbiddenCall,
                "kernel" if code.is_none() => of_kernel(&complaint.message),
                _ => match code {
                    Some(700 | 716 | 717) => FailureClass::IllegalAddress,
                    Some(701) => FailureClass::OutOfResources,
                    Some(2) => FailureClass::OutOfMemory,
                    Some(_) => FailureClass::Launch,
                    None if during == "load" => FailureClass::Load,
                    None => FailureClass::Exception,
                },
            };
            let mut text = format!("{during} raised {}", complaint.message);
            if !complaint.trace.is_empty() {
                text = format!("{text}\n{}", complaint.trace.trim_end());
            }
            let mut told = failure(class, text);
            told.cuda_error = code;
            told
        }
    };
    failure.message = cap(&failure.message);
    failure.output_tail = cap(tail);
    failure
}

/// How a kernel of the cpu device failed that was replayed.
fn of_kernel(message: &str) -> FailureClass {
    let forbidden = ["it made a system call", "it read the processor's time-stamp counter"];
    if forbidden.iter().any(|deed| message.contains(deed)) {
        FailureClass::ForbiddenCall
    } else {
        FailureClass::Crash
    }
}

/// The integrity finding of a stumble: behaviour that no honest program shows, however broken it is.
pub(crate) fn finding(stumble: &Stumble) -> Option<IntegrityFinding> {
    let (class, message) = match &stumble.answer {
        NoAnswer::Unasked => {
            ("forged_answer", "its process sent an answer without a request".to_owned())
        }
        NoAnswer::RanWhileFrozen => {
            ("ran_while_frozen", "a process of its jail ran while frozen".to_owned())
        }
        NoAnswer::CannotFreeze(reason) => ("cannot_be_frozen", reason.clone()),
        NoAnswer::LeftRunning => {
            ("left_running", "GPU work of the candidate ran long after its answer".to_owned())
        }
        _ => return None,
    };
    Some(IntegrityFinding { class: class.to_owned(), message })
}

/// The CUDA error code behind an exception's text. Torch gives the words, launchers the number.
fn cuda_code(message: &str) -> Option<i32> {
    if let Some((_, rest)) = message.split_once("returned error ") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        return digits.parse().ok();
    }
    if let Some((_, rest)) = message.split_once("CUDA error ") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(code) = digits.parse() {
            return Some(code);
        }
    }
    if !message.contains("CUDA error") && !message.contains("cudaError") {
        return None;
    }
    // Texts of cudaGetErrorString, CUDA 13.
    let known = [
        ("an illegal memory access", 700),
        ("misaligned address", 716),
        ("operation not supported on global/shared address space", 717),
        ("too many resources requested for launch", 701),
        ("out of memory", 2),
        ("invalid configuration argument", 9),
        ("invalid argument", 1),
        ("invalid device function", 98),
        ("no kernel image is available", 209),
        ("unspecified launch failure", 719),
        ("device-side assert triggered", 710),
        ("the launch timed out", 702),
    ];
    Some(known.iter().find(|(text, _)| message.contains(text)).map_or(999, |(_, code)| *code))
}

fn signal_name(signal: i32) -> String {
    match signal {
        4 => "an illegal instruction (SIGILL)".to_owned(),
        6 => "an abort (SIGABRT)".to_owned(),
        7 => "a bus error (SIGBUS)".to_owned(),
        8 => "an arithmetic error (SIGFPE)".to_owned(),
        9 => "being killed (SIGKILL)".to_owned(),
        11 => "a segmentation fault (SIGSEGV)".to_owned(),
        other => format!("signal {other}"),
    }
}

/// At most [`MAX_TEXT`] bytes, the end kept: errors come last.
fn cap(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let start = (text.len() - MAX_TEXT..text.len()).find(|&i| text.is_char_boundary(i));
    format!("[...] {}", &text[start.unwrap_or(text.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::wire::Complaint;
    use std::time::Duration;

    fn raised(message: &str) -> Failure {
        let complaint = Complaint {
            kind: "raised".to_owned(),
            message: message.to_owned(),
            trace: String::new(),
        };
        let stumble = Stumble { during: "forward", answer: NoAnswer::Complaint(complaint) };
        classify(&stumble, None, "")
    }

    #[test]
    fn cuda_errors_have_their_classes() {
        for (message, class, code) in [
            (
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                FailureClass::IllegalAddress,
                Some(700),
            ),
            ("LaunchError: launcher f returned error 701", FailureClass::OutOfResources, Some(701)),
            (
                "launch f: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)",
                FailureClass::IllegalAddress,
                Some(700),
            ),
            ("LaunchError: launcher f returned error 9", FailureClass::Launch, Some(9)),
            ("ForbiddenCall: torch operator aten::mm", FailureClass::ForbiddenCall, None),
            ("ValueError: no", FailureClass::Exception, None),
        ] {
            let told = raised(message);
            assert_eq!((told.class, told.cuda_error), (class, code), "{message}");
        }
    }

    #[test]
    fn crashes_timeouts_and_out_of_memory_are_distinguished() {
        let of = |answer, outcome: Option<Outcome>| {
            classify(&Stumble { during: "forward", answer }, outcome.as_ref(), "").class
        };
        assert_eq!(of(NoAnswer::Late(Duration::from_secs(9)), None), FailureClass::Hang);
        assert_eq!(of(NoAnswer::Closed, Some(Outcome::Signalled(11))), FailureClass::Crash);
        assert_eq!(of(NoAnswer::Closed, Some(Outcome::OutOfMemory)), FailureClass::OutOfMemory);
    }

    #[test]
    fn texts_too_long_keep_their_end() {
        let told = raised(&format!("ValueError: {}the end", "é".repeat(5000)));
        assert!(told.message.len() < 2100 && told.message.ends_with("the end"));
    }
}
