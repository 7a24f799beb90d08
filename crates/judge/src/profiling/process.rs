//! The inspected process: `inspector.py` in the jail, alone or under a tool.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use warpwright_jail::{Finished, Limits, Network, Outcome};
use warpwright_record::verdict::Failure;

use super::carry::{self, Folder};
use super::tools::Tool;
use crate::error::JudgeError;
use crate::process::channel::NoAnswer;
use crate::process::failure::Stumble;
use crate::process::failure::classify;
use crate::process::host::Host;
use crate::process::wire::Complaint;

/// Longest one run may take. Two of them fit the time that a shell command has.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
const MAX_REPORT_BYTES: u64 = 1 << 20;
const MAX_TRACE_BYTES: u64 = 64 << 20;
const MAX_LOG_BYTES: u64 = 16 << 20;
/// Largest file the process may write.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// How to run it.
pub(crate) struct Order<'a> {
    /// `kernels`, `counters` or `sanitize`.
    pub(crate) what: &'static str,
    /// The program around it, and its arguments.
    pub(crate) under: Option<(&'a Tool, Vec<String>)>,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) artifact: &'a Path,
}

/// Output of a run.
pub(crate) struct Ran {
    pub(crate) report: Option<Report>,
    pub(crate) trace: String,
    pub(crate) log: String,
    pub(crate) seconds: f64,
    finished: Finished,
}

/// `report.json`, the candidate's word.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    /// False from its start to its end.
    #[serde(default)]
    done: bool,
    #[serde(default)]
    pub(crate) calls: u32,
    #[serde(default)]
    pub(crate) seconds: f64,
    pub(crate) error: Option<Complaint>,
    #[serde(default)]
    during: String,
}

impl Ran {
    /// Why the call did not come to its end, if it did not.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let (during, answer) = match &self.report {
            Some(Report { done: true, error: None, .. }) => return None,
            Some(Report { error: Some(complaint), during, .. }) => {
                let during = if during == "forward" { "forward" } else { "load" };
                (during, NoAnswer::Complaint(complaint.clone()))
            }
            _ if self.finished.outcome == Outcome::DeadlineExceeded => {
                ("the call", NoAnswer::Late(PATIENCE))
            }
            _ => ("the call", NoAnswer::Closed),
        };
        let stumble = Stumble { during, answer };
        Some(classify(&stumble, Some(&self.finished.outcome), &self.stderr()))
    }

    /// Whether it began at all, so that what followed is the candidate's doing and not the tool's.
    pub(crate) fn started(&self) -> bool {
        self.report.is_some()
    }

    /// Whether it stopped before the candidate was called, with a reason.
    pub(crate) fn refused(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.error.is_some() && r.during != "forward")
    }

    /// Its standard error, capped by the jail.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.finished.stderr.bytes).into_owned()
    }
}

/// Runs it to its end, at most [`PATIENCE`].
pub(crate) fn run(host: &Host, folder: &Folder, order: &Order<'_>) -> Result<Ran, JudgeError> {
    folder.clear()?;
    let limits = Limits { wall: PATIENCE, file_bytes: MAX_FILE_BYTES, ..host.limits() };
    let under = order.under.as_ref();
    let under = under.map(|(tool, arguments)| (tool.program.as_path(), arguments.as_slice()));
    let mut spec = host
        .module("inspector", under)
        .args(["--what", order.what, "--given", &folder.given.to_string_lossy()])
        .args(["--report", &folder.report.to_string_lossy()])
        .args(["--trace", &folder.trace.to_string_lossy()])
        .limits(limits)
        .read_only(order.artifact)
        .read_only(&folder.given)
        .read_write(&folder.report)
        .read_write(&folder.trace)
        .read_write(&folder.log);
    if order.under.is_some() && host.jail.has_own_network() {
        // The tool and its part in the process talk over loopback.
        spec = spec.network(Network::Loopback);
    }
    if let Some(needs) = order.under.as_ref().and_then(|(tool, _)| tool.needs.as_ref()) {
        spec = spec.read_only(needs);
    }
    for (key, value) in &order.env {
        spec = spec.env(*key, value);
    }
    let begun = Instant::now();
    let finished =
        host.jail.run(spec).map_err(|e| JudgeError::infrastructure("inspect a call", e))?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Ran {
        report: serde_json::from_str(&carry::read(&folder.report, MAX_REPORT_BYTES)?).ok(),
        trace: carry::read(&folder.trace, MAX_TRACE_BYTES)?,
        log: carry::read(&folder.log, MAX_LOG_BYTES)?,
        seconds,
        finished,
    })
}
