//! The tools a policy works with, and what runs them.

pub mod arguments;
mod files;
pub mod shell;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_record::message::{ToolCall, ToolResult, ToolStatus};

use crate::beneath::FileError;
use crate::judge::{Judge, JudgeUnavailable};
use crate::service::Judged;
use crate::tools::arguments::{BASH, Bash, EDIT, Edit, READ, Read, WRITE, Write};
use crate::tools::files::{NoAnswer, Seen};
use crate::tools::shell::{Shell, ShellError};
use crate::workspace::Workspace;

/// Time a command has when the policy does not say: profiling compiles the baselines once.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
/// Most time a policy may ask for.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(30);

/// Runs the calls of one episode.
pub struct Toolbox<'a> {
    workspace: &'a Workspace,
    shell: &'a Shell,
    judge: &'a dyn Judge,
    stop: &'a AtomicBool,
    seen: Seen,
}

/// A call that came to an end.
#[derive(Debug)]
pub struct Finished {
    /// What the policy sees.
    pub result: ToolResult,
    /// The verdicts it caused, each with its candidate.
    pub judged: Vec<Judged>,
}

/// Our own failure to run a tool: the episode cannot go on.
#[derive(Debug, Error)]
pub enum ToolUnavailable {
    /// The judge failed.
    #[error(transparent)]
    Judge(#[from] JudgeUnavailable),
    /// The jail failed.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The disk failed or is full.
    #[error(transparent)]
    File(#[from] FileError),
}

impl<'a> Toolbox<'a> {
    /// Tools on one workspace. A running command is killed when `stop` is set.
    pub fn new(
        workspace: &'a Workspace,
        shell: &'a Shell,
        judge: &'a dyn Judge,
        stop: &'a AtomicBool,
    ) -> Self {
        Self { workspace, shell, judge, stop, seen: Seen::default() }
    }

    /// Takes note of a call that was made in another process: what it has seen stays seen.
    pub fn recall(&mut self, call: &ToolCall, result: &ToolResult) {
        let path = call.arguments.get("file_path").and_then(|p| p.as_str());
        if let (READ | WRITE | EDIT, ToolStatus::Ok, Some(path)) =
            (call.name.as_str(), result.status, path)
        {
            self.seen.mark(self.workspace, path);
        }
    }

    /// Runs one call. `until` is when the episode's time is over.
    pub fn run(
        &mut self,
        call: &ToolCall,
        until: Option<Instant>,
    ) -> Result<Finished, ToolUnavailable> {
        let answer = match call.name.as_str() {
            BASH => return self.bash(call, until),
            READ => parse(call).and_then(|a: Read| files::read(self.workspace, &mut self.seen, &a)),
            WRITE => {
                parse(call).and_then(|a: Write| files::write(self.workspace, &mut self.seen, &a))
            }
            EDIT => parse(call).and_then(|a: Edit| files::edit(self.workspace, &mut self.seen, &a)),
            other => Err(format!(
                "failed to run the tool {other}: there are {BASH}, {READ}, {WRITE} and {EDIT}"
            )
            .into()),
        };
        let (status, text) = match answer {
            Ok(text) => (ToolStatus::Ok, text),
            Err(NoAnswer::Refused(text)) => (ToolStatus::Error, text),
            Err(NoAnswer::Ours(error)) => return Err(error.into()),
        };
        Ok(finished(call, status, text, Vec::new()))
    }

    fn bash(&self, call: &ToolCall, until: Option<Instant>) -> Result<Finished, ToolUnavailable> {
        let arguments: Bash = match parse(call) {
            Ok(arguments) => arguments,
            Err(NoAnswer::Ours(error)) => return Err(error.into()),
            Err(NoAnswer::Refused(text)) => {
                return Ok(finished(call, ToolStatus::Error, text, Vec::new()));
            }
        };
        let asked = arguments.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        let mut timeout = asked.clamp(Duration::from_secs(1), MAX_TIMEOUT);
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            timeout = timeout.min(left.max(Duration::from_secs(1)));
        }
        let ran =
            self.shell.run(&arguments.command, timeout, self.workspace, self.judge, self.stop)?;
        if let Some(unavailable) = ran.unavailable {
            return Err(unavailable.into());
        }
        Ok(finished(call, ran.status, ran.text, ran.judged))
    }
}

fn finished(call: &ToolCall, status: ToolStatus, text: String, judged: Vec<Judged>) -> Finished {
    let verdicts = judged.iter().map(|j| j.verdict.clone()).collect();
    let result = ToolResult { call: call.id.clone(), status, text, verdicts };
    Finished { result, judged }
}

fn parse<T: serde::de::DeserializeOwned>(call: &ToolCall) -> Result<T, NoAnswer> {
    T::deserialize(&call.arguments)
        .map_err(|e| format!("failed to read the arguments of {}: {e}", call.name).into())
}
