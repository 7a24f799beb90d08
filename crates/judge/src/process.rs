//! The jailed Python processes: oracle, baseline, runner.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use warpwright_jail::{Access, Child, Gpu, Jail, Limits, Mount, Outcome, Spec};

use crate::arena::Arena;
use crate::channel::{Channel, NoAnswer};
use crate::error::JudgeError;
use crate::gate::{Gate, Wish};

/// Descriptor numbers inside the jail.
const CHANNEL_FD: i32 = 3;
const ARENA_FD: i32 = 4;

/// Longest a process may take to import torch, map its arena and answer.
const START_PATIENCE: Duration = Duration::from_mins(2);

/// Threads that torch uses on the host where it computes on a GPU.
const HOST_THREADS: usize = 4;

/// What every process of this judge needs.
pub(crate) struct Host {
    pub(crate) jail: Arc<Jail>,
    pub(crate) python: PathBuf,
    pub(crate) package: PathBuf,
    pub(crate) library: PathBuf,
    /// Identity of the GPU, if it is one.
    pub(crate) gpu: Option<String>,
    /// Host memory that a process may use unless it is granted another bound, in bytes.
    pub(crate) memory_bytes: u64,
}

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Oracle,
    Baseline,
    Runner,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Baseline => "baseline",
            Self::Runner => "runner",
        }
    }
}

/// What a process is given beside its role.
#[derive(Default)]
pub(crate) struct Grant<'a> {
    /// Folders it may read.
    pub(crate) read: Vec<&'a Path>,
    /// Folders it may write.
    pub(crate) write: Vec<&'a Path>,
    /// More environment.
    pub(crate) env: Vec<(&'a str, String)>,
    /// Bound on its memory, the arena included.
    pub(crate) memory_bytes: Option<u64>,
}

/// A running process and the conversation with it. Dropping it kills the process tree.
pub(crate) struct Worker {
    channel: Channel,
    child: Child,
}

impl Worker {
    /// Starts a process that maps `arena`, and holds the device while it does.
    pub(crate) fn start(
        host: &Host,
        role: Role,
        arena: &Arena,
        grant: &Grant<'_>,
        gate: &Gate,
    ) -> Result<Self, JudgeError> {
        let fail = |e: &dyn std::fmt::Display| {
            JudgeError::infrastructure(format!("start the {}", role.name()), e)
        };
        let (ours, theirs) = UnixStream::pair().map_err(|e| fail(&e))?;
        let limits = Limits {
            wall: Duration::from_hours(12),
            memory_bytes: Some(grant.memory_bytes.unwrap_or(host.memory_bytes)),
            processes: 512,
            open_files: 4096,
            ..Limits::default()
        };
        let mut spec = Spec::new(&host.python)
            .label(role.name())
            .args(["-P", "-m", &format!("warpwright_oracle.{}", role.name())])
            // A worker on a GPU sees that one only, as its first.
            .args(["--device", if host.gpu.is_some() { "cuda:0" } else { "cpu" }])
            .args(["--channel", &CHANNEL_FD.to_string(), "--arena", &ARENA_FD.to_string()])
            .args(["--arena-bytes", &arena.len().to_string()])
            .args(["--library", &host.library.to_string_lossy()])
            .env("PYTHONPATH", host.package.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .limits(limits)
            .with_system()
            .with_python(&host.python)
            .read_only(&host.package)
            .read_only(&host.library)
            .fd(OwnedFd::from(theirs), CHANNEL_FD)
            .fd(arena.lend()?, ARENA_FD);
        if let Some(gpu) = &host.gpu {
            // Torch's threads wait by spinning, on every core there is; on a GPU host they have
            // little to do.
            let threads = HOST_THREADS.to_string();
            spec =
                spec.gpu(Gpu::All).env("CUDA_VISIBLE_DEVICES", gpu).env("OMP_NUM_THREADS", threads);
        }
        for path in &grant.read {
            spec = spec.read_only(path);
        }
        for path in &grant.write {
            spec = spec.mount(Mount::new(*path, *path, Access::ReadWrite));
        }
        for (key, value) in &grant.env {
            spec = spec.env(*key, value);
        }
        let child = host.jail.spawn(spec).map_err(|e| fail(&e))?;
        let mut started = Self { channel: Channel::new(ours), child };
        // Until here only our own code runs in there: a failure is ours, not the task's.
        let ping = serde_json::json!({"do": "ping"});
        let mut held = None;
        let hold = |wish| gate.change(&mut held, wish);
        let up = started.ask_holding::<Json>(&ping, START_PATIENCE, hold);
        drop(held);
        match up {
            Ok(_) => Ok(started),
            Err(answer) => {
                let (outcome, tail) = started.end();
                Err(fail(&format!("{answer:?}, {outcome:?}: {tail}")))
            }
        }
    }

    /// Asks and waits.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
    ) -> Result<T, NoAnswer> {
        self.channel.ask(request, deadline)
    }

    /// Asks a process that may want the device to itself; see [`Channel::ask_holding`].
    pub(crate) fn ask_holding<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        hold: impl FnMut(Wish),
    ) -> Result<T, NoAnswer> {
        self.channel.ask_holding(request, deadline, hold)
    }

    /// Last of what the process wrote, for people.
    pub(crate) fn tail(&self) -> String {
        let (out, err) = self.child.output_so_far();
        let text = [out, err].map(|c| String::from_utf8_lossy(&c.bytes).into_owned()).join("");
        let start = text.char_indices().rev().nth(1999).map_or(0, |(i, _)| i);
        text[start..].to_owned()
    }

    /// How the process ended, once it no longer answers. Kills it if it has not.
    pub(crate) fn end(mut self) -> (Option<Outcome>, String) {
        // A process that closed its socket while dying needs a moment to be collected.
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(true)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let tail = self.tail();
        self.child.kill();
        (self.child.wait().ok().map(|f| f.outcome), tail)
    }
}
