//! The tools of a policy.

pub mod arguments;
mod files;
#[cfg(test)]
mod hostile;
mod search;
pub mod shell;
pub mod specification;
mod todo;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use warpwright_record::message::{ToolCall, ToolResult, ToolStatus};

use crate::confined_fs::FileError;
use crate::judge::{Judge, JudgeUnavailable};
use crate::service::Judged;
use crate::tools::arguments::{
    BASH, BASH_OUTPUT, Bash, BashOutput, EDIT, Edit, GLOB, GREP, Glob, Grep, KILL_BASH, KillBash,
    MULTI_EDIT, MultiEdit, READ, Read, TODO_WRITE, Todo, TodoWrite, WRITE, Write,
};
use crate::tools::files::{Answer, NoAnswer, Seen};
use crate::tools::shell::{MAX_COMMAND_BYTES, Order, Session, Shell, ShellError};
use crate::tools::specification::{parse, unknown_tool};
use crate::workspace::Workspace;

/// Default timeout of a command: profiling compiles the baselines once.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(5);
/// Minimum timeout of a command.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum timeout that a policy may request.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(30);

/// Runs the calls of one episode. Calls may run concurrently; calls of Bash run one at a time.
/// Dropping the toolbox ends the episode's shell and all its processes.
pub struct Toolbox<'a> {
    workspace: &'a Workspace,
    session: Session<'a>,
    seen: Seen,
    todos: Mutex<Vec<Todo>>,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The result for the policy.
    pub result: ToolResult,
    /// The verdicts it caused, each with its candidate.
    pub judged: Vec<Judged>,
}

/// An infrastructure error of a tool: the episode ends.
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
        let session = Session::new(shell, workspace, judge, stop);
        Self { workspace, session, seen: Seen::default(), todos: Mutex::default() }
    }

    /// Whether a call is read-only, so that it may run concurrently with other read-only calls.
    pub fn is_read_only(call: &ToolCall) -> bool {
        matches!(call.name.as_str(), READ | GLOB | GREP | BASH_OUTPUT)
    }

    /// Replays the state of a call from another process: the files it has read, its to-do list, and the fact
    /// that its shell is lost.
    pub fn recall(&self, call: &ToolCall, result: &ToolResult) {
        let ok = result.status == ToolStatus::Ok;
        match call.name.as_str() {
            READ | WRITE | EDIT | MULTI_EDIT if ok => {
                let path = parse::<PathOnly>(call).map(|arguments| arguments.file_path);
                if let Ok(path) = path {
                    self.seen.mark(self.workspace, &path);
                }
            }
            TODO_WRITE if ok => drop(self.write_todos(call)),
            BASH => {
                let started = parse::<Bash>(call).is_ok_and(|bash| bash.run_in_background);
                self.session.recall(started && ok);
            }
            _ => {}
        }
    }

    /// Runs one call. `until` is the end of the episode's time budget.
    pub fn run(
        &self,
        call: &ToolCall,
        until: Option<Instant>,
    ) -> Result<Finished, ToolUnavailable> {
        let (workspace, seen) = (self.workspace, &self.seen);
        let answer = match call.name.as_str() {
            BASH => match parse(call) {
                Ok(arguments) => return self.bash(call, &arguments, until),
                Err(refused) => Err(refused),
            },
            BASH_OUTPUT => parse(call)
                .and_then(|a: BashOutput| self.session.jobs.show(&a.bash_id, a.filter.as_deref())),
            KILL_BASH => parse(call).and_then(|a: KillBash| self.session.jobs.kill(&a.shell_id)),
            READ => parse(call).and_then(|a: Read| files::read(workspace, seen, &a)),
            WRITE => parse(call).and_then(|a: Write| files::write(workspace, seen, &a)),
            EDIT => parse(call).and_then(|a: Edit| files::edit(workspace, seen, a)),
            MULTI_EDIT => {
                parse(call).and_then(|a: MultiEdit| files::multi_edit(workspace, seen, &a))
            }
            GLOB => parse(call).and_then(|a: Glob| search::glob(workspace, &a)),
            GREP => parse(call).and_then(|a: Grep| search::grep(workspace, &a)),
            TODO_WRITE => self.write_todos(call),
            other => Err(unknown_tool(other)),
        };
        let (status, text) = match answer {
            Ok(text) => (ToolStatus::Ok, text),
            Err(NoAnswer::Refused(text)) => (ToolStatus::Error, text),
            Err(NoAnswer::Ours(error)) => return Err(error.into()),
        };
        Ok(finished(call, status, text, Vec::new()))
    }

    fn write_todos(&self, call: &ToolCall) -> Answer {
        let arguments: TodoWrite = parse(call)?;
        todo::write(&mut self.todos.lock().unwrap_or_else(PoisonError::into_inner), arguments)
    }

    fn bash(
        &self,
        call: &ToolCall,
        arguments: &Bash,
        until: Option<Instant>,
    ) -> Result<Finished, ToolUnavailable> {
        let refuse = |text: String| Ok(finished(call, ToolStatus::Error, text, Vec::new()));
        let command = arguments.command.as_str();
        if command.len() > MAX_COMMAND_BYTES {
            let bytes = command.len();
            return refuse(format!(
                "failed to run the command: {bytes} bytes, at most {MAX_COMMAND_BYTES}; put it \
                 into a file with Write"
            ));
        }
        if command.contains('\0') {
            return refuse("failed to run the command: it contains a zero byte".to_owned());
        }
        let asked = arguments.timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        let mut timeout = asked.clamp(MIN_TIMEOUT, MAX_TIMEOUT);
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            timeout = timeout.min(left.max(MIN_TIMEOUT));
        }
        let ran = self.session.run(Order {
            command,
            timeout,
            until,
            background: arguments.run_in_background,
            restart: arguments.restart,
        })?;
        if let Some(unavailable) = ran.unavailable {
            return Err(unavailable.into());
        }
        let mut finished = finished(call, ran.status, ran.text, ran.judged);
        finished.result.findings = ran.findings;
        Ok(finished)
    }
}

/// The argument of a file tool that [`Toolbox::recall`] needs.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PathOnly {
    file_path: String,
}

fn finished(call: &ToolCall, status: ToolStatus, text: String, judged: Vec<Judged>) -> Finished {
    let verdicts = judged.iter().map(|j| j.verdict.clone()).collect();
    let findings = Vec::new();
    let result = ToolResult { call: call.id.clone(), status, text, verdicts, findings };
    Finished { result, judged }
}
