//! Background commands: their output, and whether they still run.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use warpwright_jail::Process;

use crate::elide::{clip_line, elide_middle};
use crate::tools::files::NoAnswer;
use crate::tools::search::line_pattern;
use crate::tools::shell::capped::{Capped, MAX_OUTPUT_BYTES};

/// Maximum concurrent background commands.
pub(crate) const MAX_RUNNING: usize = 8;
/// Maximum ended commands that are remembered.
const MAX_ENDED: usize = 32;
/// Maximum bytes kept of a command's output between two reads.
const KEPT_BYTES: usize = 256 << 10;

/// State of a background command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    Exited(i32),
    /// Killed by KillBash.
    Killed,
    /// Its shell ended, or something else killed it.
    Gone,
}

/// One background command.
#[derive(Debug)]
pub(crate) struct Job {
    number: u32,
    command: String,
    /// The mark in its reports.
    pub(crate) mark: String,
    output: Mutex<Capped>,
    state: Mutex<JobState>,
    pub(crate) process: OnceLock<Process>,
}

impl Job {
    pub(crate) fn id(&self) -> String {
        format!("bash_{}", self.number)
    }

    pub(crate) fn print(&self, bytes: &[u8]) {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// Records its end, unless it has already ended.
    pub(crate) fn end(&self, as_state: JobState) {
        let mut state = self.lock_state();
        if *state == JobState::Running {
            *state = as_state;
        }
    }

    pub(crate) fn state(&self) -> JobState {
        // A wrapper that was killed reports no end.
        if self.process.get().is_some_and(|process| !process.is_alive()) {
            // Its report may be on the way: given a moment by whoever asks next.
            let state = *self.lock_state();
            return if state == JobState::Running { JobState::Gone } else { state };
        }
        *self.lock_state()
    }

    fn lock_state(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The background commands of one episode.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    jobs: Vec<Arc<Job>>,
    last: u32,
    /// Numbers up to here belong to another process.
    forgotten: u32,
}

impl Jobs {
    /// A new command, or the reason why it cannot start.
    pub(crate) fn add(&self, command: &str, mark: String) -> Result<Arc<Job>, String> {
        let mut list = self.lock();
        let running = list.jobs.iter().filter(|job| job.state() == JobState::Running).count();
        if running >= MAX_RUNNING {
            return Err(format!(
                "failed to start a background command: {MAX_RUNNING} are running; end one with KillBash"
            ));
        }
        while list.jobs.len() >= MAX_RUNNING + MAX_ENDED {
            let Some(at) = list.jobs.iter().position(|job| job.state() != JobState::Running) else {
                break;
            };
            list.jobs.remove(at);
        }
        list.last += 1;
        let job = Arc::new(Job {
            number: list.last,
            command: clip_line(&command.replace('\n', " "), 200),
            mark,
            output: Mutex::new(Capped::new(KEPT_BYTES)),
            state: Mutex::new(JobState::Running),
            process: OnceLock::new(),
        });
        list.jobs.push(Arc::clone(&job));
        Ok(job)
    }

    /// Records that a recorded call started a command: the command is gone, and its number is
    /// taken.
    pub(crate) fn recall(&self) {
        let mut list = self.lock();
        list.last += 1;
        list.forgotten = list.last;
    }

    /// Records that the shell and all its processes have ended.
    pub(crate) fn lose_all(&self) {
        for job in &self.lock().jobs {
            job.end(JobState::Gone);
        }
    }

    /// The output of a command since the last read.
    pub(crate) fn show(&self, id: &str, filter: Option<&str>) -> Result<String, NoAnswer> {
        let job = self.find(id)?;
        let filter = filter.map(|pattern| line_pattern(pattern, false)).transpose()?;
        let state = match job.state() {
            // It ended just now, and its report is on the way.
            JobState::Gone => {
                std::thread::sleep(std::time::Duration::from_millis(20));
                job.state()
            }
            state => state,
        };
        let printed = job.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shown = match filter {
            None => printed,
            Some(regex) => printed
                .split_inclusive('\n')
                .filter(|line| regex.is_match(line.trim_end_matches('\n').as_bytes()))
                .collect(),
        };
        let mut text = elide_middle(&shown, MAX_OUTPUT_BYTES);
        if text.is_empty() {
            text.push_str("(no new output)");
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let words = match state {
            JobState::Running => "running".to_owned(),
            JobState::Exited(code) => format!("ended with exit code {code}"),
            JobState::Killed => "killed".to_owned(),
            JobState::Gone => "gone: it was killed, or its shell ended".to_owned(),
        };
        Ok(format!("{text}[{}: {words}]\n", job.id()))
    }

    /// Ends a command.
    pub(crate) fn kill(&self, id: &str) -> Result<String, NoAnswer> {
        let job = self.find(id)?;
        if job.state() != JobState::Running {
            return Err(format!("failed to kill {id}: it has ended").into());
        }
        job.end(JobState::Killed);
        if let Some(process) = job.process.get() {
            process.kill_all();
        }
        Ok(format!("killed {id}: {}\n", job.command))
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, NoAnswer> {
        let list = self.lock();
        if let Some(job) = list.jobs.iter().find(|job| job.id() == id) {
            return Ok(Arc::clone(job));
        }
        let shown = clip_line(&id.escape_debug().to_string(), 60);
        let number = id.strip_prefix("bash_").and_then(|number| number.parse::<u32>().ok());
        if number.is_some_and(|number| number > 0 && number <= list.forgotten) {
            return Err(format!(
                "failed to find {shown}: the run was resumed since, and its shell is gone"
            )
            .into());
        }
        let known: Vec<String> = list.jobs.iter().map(|job| job.id()).collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
        Err(format!("failed to find {shown} among the background commands: {known}").into())
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
