//! The episode's shell: one bash in one jail for the whole episode.
//!
//! Inside: the workspace (its read-only part mounted read-only), the interpreter and compilers
//! read-only, a private `/tmp`, no network, no GPU. Shell state lasts until the episode or the
//! shell ends; if the shell ends, the answer names the lost state.
//! `docs/decisions/0006-persistent-shell.md` explains how commands are separated from one another.

mod capped;
mod disk;
mod job;
mod live;
mod provision;
mod pump;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpwright_jail::Outcome;
use warpwright_record::findings::Findings;
use warpwright_record::message::ToolStatus;

use crate::judge::{Judge, JudgeUnavailable};
use crate::service::{self, Answered, Closer, Judged};
use crate::tools::shell::job::Jobs;
use crate::tools::shell::live::{End, Live, new_mark};
use crate::tools::shell::provision::MAX_PROCESSES;
use crate::workspace::Workspace;

pub use self::capped::MAX_OUTPUT_BYTES;
pub(crate) use self::provision::mountable;
pub use self::provision::{Provision, Shell, ShellError};

/// Maximum bytes of a command line.
pub const MAX_COMMAND_BYTES: usize = 128 << 10;
/// Lifetime of a shell whose episode has no time budget.
const LONGEST_LIFE: Duration = Duration::from_hours(24 * 7);
/// Maximum time that a shell may outlive its episode.
const GRACE: Duration = Duration::from_mins(1);
/// The state that is lost with a shell.
const LOST: &str = "variables, functions and the working directory are gone";

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ToolStatus,
    pub(crate) text: String,
    pub(crate) judged: Vec<Judged>,
    pub(crate) findings: Vec<Findings>,
    pub(crate) unavailable: Option<JudgeUnavailable>,
}

/// The shell of one episode, started on first use. Dropping it ends all its processes.
pub(crate) struct Session<'a> {
    shell: &'a Shell,
    workspace: &'a Workspace,
    judge: &'a dyn Judge,
    stop: &'a AtomicBool,
    live: Mutex<Option<Live>>,
    pub(crate) jobs: Jobs,
    /// Commands ran in another process, whose shell is gone; reported once.
    forgotten: AtomicBool,
}

/// One command to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) command: &'a str,
    pub(crate) timeout: Duration,
    /// End of the episode's time budget.
    pub(crate) until: Option<Instant>,
    pub(crate) background: bool,
    pub(crate) restart: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        shell: &'a Shell,
        workspace: &'a Workspace,
        judge: &'a dyn Judge,
        stop: &'a AtomicBool,
    ) -> Self {
        let (live, jobs, forgotten) = (Mutex::new(None), Jobs::default(), AtomicBool::new(false));
        Self { shell, workspace, judge, stop, live, jobs, forgotten }
    }

    /// Records a command that a recorded episode ran.
    pub(crate) fn recall(&self, in_background: bool) {
        self.forgotten.store(true, Ordering::SeqCst);
        if in_background {
            self.jobs.recall();
        }
    }

    /// Runs a command and answers its requests to the judge.
    pub(crate) fn run(&self, order: Order<'_>) -> Result<Ran, ShellError> {
        let mut slot = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = Vec::new();
        if order.restart && slot.take().is_some() {
            self.jobs.lose_all();
            notes.push("the shell and everything in it was ended; this is a new one".to_owned());
        }
        if let Some(lost) = self.revive(&mut slot, order.until)? {
            notes.push(lost);
        }
        let Some(live) = slot.as_mut() else {
            return Err(ShellError::Start("no shell is running".into()));
        };
        let ran = if order.background {
            self.background(live, order, &mut notes)
        } else {
            self.foreground(live, order, &mut notes)
        };
        let (mut ran, is_over) = ran?;
        if is_over {
            *slot = None;
            self.jobs.lose_all();
        }
        if self.forgotten.swap(false, Ordering::SeqCst) {
            notes.push(format!(
                "the run was resumed since the last command: this is a new shell; {LOST}, and so \
                 are background commands and /tmp"
            ));
        }
        for note in notes {
            append(&mut ran.text, &note);
        }
        Ok(ran)
    }

    /// Ensures that a shell runs; adds a notice of the lost state if it replaces another.
    fn revive(
        &self,
        slot: &mut Option<Live>,
        until: Option<Instant>,
    ) -> Result<Option<String>, ShellError> {
        let mut lost = None;
        if let Some(live) = slot {
            if let Some(outcome) = live.ended()? {
                lost = Some(format!(
                    "the shell had ended ({}); this is a new one: {LOST}, and so are background \
                     commands and /tmp",
                    words(outcome)
                ));
            } else if let Some(reason) = live.pump.shared.broken() {
                lost = Some(format!(
                    "the shell was ended: {reason}; this is a new one: {LOST}, and so are \
                     background commands and /tmp"
                ));
            } else if live.is_ready() || live.next_driver().is_ok() {
                return Ok(None);
            } else {
                lost = Some(format!(
                    "the shell did not start again; this is a new one: {LOST}, and so are \
                     background commands and /tmp"
                ));
            }
            *slot = None;
            self.jobs.lose_all();
        }
        let wall = until
            .map_or(LONGEST_LIFE, |until| until.saturating_duration_since(Instant::now()) + GRACE);
        *slot = Some(Live::start(self.shell, self.workspace, wall)?);
        Ok(lost)
    }

    /// Runs a command until it ends. Returns true if the shell has ended.
    fn foreground(
        &self,
        live: &mut Live,
        order: Order<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Ran, bool), ShellError> {
        let closer = Closer::new().map_err(ShellError::Socket)?;
        let listener = std::sync::Arc::clone(&live.listener);
        live.pump.shared.set_asking(true);
        let (ended, answered) = std::thread::scope(|scope| {
            let serving =
                scope.spawn(|| service::serve(&listener, &closer, self.workspace, self.judge));
            let ended = live.run(order.command, order.timeout, self.stop);
            closer.close();
            (ended, serving.join())
        });
        live.pump.shared.set_asking(false);
        let Answered { judged, findings, unavailable } =
            answered.map_err(|_| ShellError::Service)?;
        let ended = ended?;
        let text = live.pump.shared.take_output();
        let (status, is_over) = tell(&ended, order.timeout, &text, notes);
        Ok((Ran { status, text, judged, findings, unavailable }, is_over))
    }

    /// Starts a command in the background.
    fn background(
        &self,
        live: &mut Live,
        order: Order<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Ran, bool), ShellError> {
        let ran = |status, text| Ran {
            status,
            text,
            judged: Vec::new(),
            findings: Vec::new(),
            unavailable: None,
        };
        let job = match self.jobs.add(order.command, new_mark()) {
            Ok(job) => job,
            Err(refused) => return Ok((ran(ToolStatus::Error, refused), false)),
        };
        let ended = live.start_job(order.command, &job, self.stop)?;
        if ended == End::Returned(0) {
            let id = job.id();
            let text = format!(
                "started {id} in the background; BashOutput shows what it prints, KillBash ends it\n"
            );
            return Ok((ran(ToolStatus::Ok, text), false));
        }
        job.end(job::JobState::Gone);
        let (_, is_over) = tell(&ended, order.timeout, "", notes);
        let text = "failed to start the command in the background\n".to_owned();
        Ok((ran(ToolStatus::Error, text), is_over))
    }
}

/// Status and notes of a command's end; true if the shell and all its processes have ended.
fn tell(end: &End, timeout: Duration, output: &str, notes: &mut Vec<String>) -> (ToolStatus, bool) {
    let seconds = timeout.as_secs_f64();
    let everything = format!(
        "the next command starts a new shell: {LOST}, and so are background commands and /tmp"
    );
    match end {
        End::Returned(0) => return (ToolStatus::Ok, false),
        End::Returned(code) => {
            notes.insert(0, format!("exit code {code}"));
            if output.contains("fork: ") && output.contains("Resource temporarily unavailable") {
                notes.push(format!(
                    "at most {MAX_PROCESSES} processes may run; `restart` ends them all"
                ));
            }
        }
        End::Stopped => {
            notes.insert(0, format!(
                "stopped after {seconds} s; the running command was killed, and the shell continues"
            ));
            return (ToolStatus::TimedOut, false);
        }
        End::Stuck => {
            notes.insert(
                0,
                format!(
                    "stopped after {seconds} s; the shell did not respond and was killed with \
                 all its processes; the next command starts a new one: {LOST}"
                ),
            );
            return (ToolStatus::TimedOut, false);
        }
        End::Left(code) => {
            notes.insert(0, format!("exit code {code}"));
            notes
                .push(format!("the shell itself ended; the next command starts a new one: {LOST}"));
        }
        End::Dead(outcome) => {
            notes.insert(0, format!("{}; {everything}", words(*outcome)));
            return (ToolStatus::Error, true);
        }
        End::Broken(reason) => {
            notes.insert(0, format!("the shell was ended: {reason}; {everything}"));
            return (ToolStatus::Error, true);
        }
        End::Interrupted => {
            notes.insert(0, "interrupted".to_owned());
            return (ToolStatus::Error, true);
        }
    }
    (ToolStatus::Error, false)
}

fn words(outcome: Outcome) -> String {
    match outcome {
        Outcome::Exited(code) => format!("it exited with code {code}"),
        Outcome::Signalled(signal) => format!("killed by signal {signal}"),
        Outcome::DeadlineExceeded => "the time limit of the shell is over".to_owned(),
        Outcome::CpuExceeded => "too much CPU time".to_owned(),
        Outcome::OutOfMemory => "killed: out of memory".to_owned(),
        Outcome::Killed => "killed".to_owned(),
    }
}

fn append(text: &mut String, note: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push('[');
    text.push_str(note);
    text.push_str("]\n");
}

#[cfg(test)]
pub(crate) mod tests;
