//! The jailed Python processes: oracle, baseline, runner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rand::RngExt;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use warpwright_jail::{Access, Captured, Child, Freezer, Killer, Limits, Mount, Outcome, Spec};

use crate::device::arena::Arena;
use crate::device::device_arbiter::{AccessMode, DeviceArbiter, Purpose};
use crate::error::{Cause, JudgeError};
use crate::process::channel::{self, Channel, NoAnswer};
use crate::process::host::{Grant, Host, Listed};
use crate::process::memory::START_BYTES;
use crate::process::role::Role;

mod window;

/// Descriptor numbers inside the jail.
const CHANNEL_FD: i32 = 3;
const ARENA_FD: i32 = 4;
const SIGKILL: i32 = 9;

/// Longest a process may take to import torch, map its arena and answer.
const START_PATIENCE: Duration = Duration::from_mins(2);

/// Longest a process that waits for work may take to say so. A busy host is slow, not silent.
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// Longest the end of a process is waited for that has closed its socket. It takes milliseconds, on a
/// busy host more.
const COLLECTED: Duration = Duration::from_secs(10);

/// Longest a process lives, whatever it does.
pub(crate) const WALL: Duration = Duration::from_hours(12);

/// A running process and the conversation with it. Dropping it kills the process tree.
pub(crate) struct Worker {
    role: Role,
    channel: Channel,
    child: Child,
    /// Its freezer, requested at the first use.
    freezer: Option<Freezer>,
    /// Whether nobody sleeps around a window.
    awake: bool,
    /// Tasks that it has forgotten.
    served: u32,
    _listed: Listed,
}

impl Worker {
    /// Starts a process and does not wait until it is [`Worker::up`]. Without an arena it is given
    /// one later, by [`Worker::hand_over`].
    pub(crate) fn spawn(
        host: &Host,
        role: Role,
        arena: Option<&Arena>,
        grant: &Grant<'_>,
    ) -> Result<Self, JudgeError> {
        let make = || Self::specification(host, role, arena, grant);
        let forked = match role {
            Role::Replayer => None,
            _ => host.forks.of(role).spawn(&|role| host.fork_server(role), &make)?,
        };
        let (child, ours) = if let Some(forked) = forked {
            forked
        } else {
            let (spec, ours) = make()?;
            (host.jail.spawn(spec).map_err(|e| failed_start(role, e))?, ours)
        };
        let listed = host.workers.list(child.pid());
        let awake = host.device.wakes_before_windows();
        Ok(Self {
            role,
            channel: Channel::new(ours),
            child,
            freezer: None,
            awake,
            served: 0,
            _listed: listed,
        })
    }

    /// The command to start, and the judge's end of the channel to it.
    fn specification(
        host: &Host,
        role: Role,
        arena: Option<&Arena>,
        grant: &Grant<'_>,
    ) -> Result<(Spec, UnixStream), JudgeError> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed_start(role, e))?;
        let limits = host.limits();
        let limits = Limits {
            wall: WALL,
            memory_bytes: grant.memory_bytes.or(limits.memory_bytes),
            // They would go off in others' windows, while it is frozen.
            timers: role != Role::Runner,
            ..limits
        };
        let mut spec = host
            .program(role)?
            .args(["--channel", &CHANNEL_FD.to_string()])
            .limits(limits)
            .fd(OwnedFd::from(theirs), CHANNEL_FD);
        for (name, value) in role.environment(host.device.uses_host_cores()) {
            spec = spec.env(*name, *value);
        }
        if let Some(arena) = arena {
            spec = spec
                .args(["--arena", &ARENA_FD.to_string()])
                .args(["--arena-bytes", &arena.len().to_string()])
                .args(["--apart-at", &arena.apart().offset.to_string()])
                .args(["--apart-bytes", &arena.apart().bytes.to_string()])
                .fd(arena.lend()?, ARENA_FD);
            if role != Role::Replayer {
                spec = spec.args(["--start-bytes", &START_BYTES.to_string()]);
            }
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
        Ok((spec, ours))
    }

    /// Waits until it has imported torch and mapped its arena, for which it holds the device.
    pub(crate) fn up(mut self, arbiter: &DeviceArbiter) -> Result<Self, JudgeError> {
        // Until here only our own code runs in there: a failure is ours, not the task's.
        let mut held = None;
        let hold = |access| arbiter.change(&mut held, access, Purpose::Start);
        match self.channel.ask_holding::<Json>(&ping(), START_PATIENCE, hold) {
            Ok(_) => Ok(self),
            Err(answer) => {
                let role = self.role;
                let (outcome, tail) = self.end();
                let ended = outcome.map_or_else(String::new, |outcome| format!("; {outcome}"));
                Err(failed_start(role, format!("{answer}{ended}: {tail}")))
            }
        }
    }

    /// Whether it still answers; not for processes that hold a candidate.
    pub(crate) fn answers(&mut self) -> bool {
        self.ask::<Json>(&ping(), PING_PATIENCE).is_ok()
    }

    /// Has it forget its task, to be given another. Not for a runner. The caller holds nothing of the
    /// device.
    pub(crate) fn next(&mut self, arbiter: &DeviceArbiter) -> Result<(), NoAnswer> {
        self.ask_holding::<Json>(&serde_json::json!({"do": "next"}), PING_PATIENCE, arbiter)?;
        self.served += 1;
        Ok(())
    }

    /// How many tasks it has forgotten.
    pub(crate) fn served(&self) -> u32 {
        self.served
    }

    /// Something to end it with from another thread.
    pub(crate) fn killer(&self) -> Result<Killer, JudgeError> {
        self.child.killer().map_err(|e| failed_start(self.role, e))
    }

    /// Asks, hands over the descriptor of an arena with it, and waits. The process takes the device to
    /// map it there; the caller holds nothing of it.
    pub(crate) fn hand_over(
        &mut self,
        request: &Json,
        arena: &Arena,
        deadline: Duration,
        arbiter: &DeviceArbiter,
    ) -> Result<Json, JudgeError> {
        let role = self.role.name();
        let failed = |e: NoAnswer| {
            JudgeError::infrastructure(format!("hand memory to the {role} process"), e)
        };
        self.thaw().map_err(failed)?;
        self.channel.send(request, deadline).map_err(failed)?;
        self.channel.send_descriptor(arena.lend()?.as_fd()).map_err(failed)?;
        let (mut held, purpose) = (None, self.role.purpose());
        let hold = |access| arbiter.change(&mut held, access, purpose);
        self.channel.answer_holding(deadline, hold).map_err(failed)
    }

    /// Asks and waits; a process that is frozen goes on.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
    ) -> Result<T, NoAnswer> {
        if self.role != Role::Runner {
            self.thaw()?;
            return self.channel.ask(request, deadline);
        }
        let (request, nonce) = with_nonce(request);
        if self.channel.has_unasked() {
            return Err(NoAnswer::Unasked);
        }
        self.thaw()?;
        self.channel.send(&request, deadline)?;
        let reply = self.channel.receive(deadline)?;
        answered(&reply, &nonce)
    }

    /// Asks a process that is trusted with this memory, and waits.
    pub(crate) fn ask_lending<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        lent: BorrowedFd<'_>,
        deadline: Duration,
    ) -> Result<T, NoAnswer> {
        self.thaw()?;
        self.channel.send(request, deadline)?;
        self.channel.send_descriptor(lent)?;
        channel::decode(&self.channel.receive(deadline)?)
    }

    /// Asks a process in which candidate code runs, lending it memory with the question.
    pub(crate) fn ask_with_memory<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        memory: &Arena,
        deadline: Duration,
    ) -> Result<T, NoAnswer> {
        let lent = memory.lend().map_err(|e| NoAnswer::Malformed(e.to_string()))?;
        let (request, nonce) = with_nonce(request);
        self.channel.send(&request, deadline)?;
        self.channel.send_descriptor(lent.as_fd())?;
        answered(&self.channel.receive(deadline)?, &nonce)
    }

    /// Asks a process that takes the device when it computes there; see [`Channel::ask_holding`].
    /// The caller holds nothing of it.
    pub(crate) fn ask_holding<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        arbiter: &DeviceArbiter,
    ) -> Result<T, NoAnswer> {
        self.ask_granting(request, deadline, arbiter, |access| access)
    }

    /// As [`Self::ask_holding`], but grants shared access where the process requests exclusive access.
    pub(crate) fn ask_beside<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        arbiter: &DeviceArbiter,
    ) -> Result<T, NoAnswer> {
        let beside = |access| if access == AccessMode::Alone { AccessMode::Shared } else { access };
        self.ask_granting(request, deadline, arbiter, beside)
    }

    /// Asks the process, and holds for it the access that `granted` makes of its request.
    fn ask_granting<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        arbiter: &DeviceArbiter,
        granted: impl Fn(AccessMode) -> AccessMode,
    ) -> Result<T, NoAnswer> {
        let (mut held, purpose) = (None, self.role.purpose());
        let hold = |access| arbiter.change(&mut held, granted(access), purpose);
        self.thaw()?;
        self.channel.ask_holding(request, deadline, hold)
    }

    /// Last of what the process wrote, for people.
    pub(crate) fn tail(&self) -> String {
        let (out, err) = self.child.output_so_far();
        last_words(&out, &err)
    }

    /// What it means that a process which is trusted for values did not answer.
    pub(crate) fn failed(&mut self, task: &str, answer: NoAnswer) -> JudgeError {
        if matches!(answer, NoAnswer::Closed) && self.was_killed() {
            return JudgeError::killed(self.role.name());
        }
        JudgeError::from_trusted(task, self.role.name(), answer, &self.tail())
    }

    /// Whether SIGKILL ended it, or its jail's supervisor is gone. A reference may send that signal to
    /// itself; nobody can tell it from the host's.
    fn was_killed(&mut self) -> bool {
        match self.child.wait_timeout(COLLECTED) {
            Ok(true) => self.child.outcome() == Some(Outcome::Signalled(SIGKILL)),
            Ok(false) => false,
            // Its supervisor is gone.
            Err(_) => true,
        }
    }

    /// Its id, as the host sees it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// How the process ended, once it no longer answers. Kills it if it has not. `None` where the jail
    /// did not tell: only what it tells means that nothing in there is left.
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

    /// Kills a process that still answers; as [`Worker::end`].
    pub(crate) fn kill(mut self) -> (Option<Outcome>, String) {
        self.child.kill();
        let ended = self.child.wait().map(|f| (Some(f.outcome), last_words(&f.stdout, &f.stderr)));
        ended.unwrap_or_default()
    }
}

/// The request with a fresh secret, which the answer must echo.
fn with_nonce(request: &Json) -> (Json, String) {
    let nonce = format!("{:032x}", rand::rng().random::<u128>());
    let mut request = request.clone();
    if let Json::Object(fields) = &mut request {
        fields.insert("nonce".to_owned(), Json::String(nonce.clone()));
    }
    (request, nonce)
}

/// The answer to the request with this nonce.
fn answered<T: DeserializeOwned>(reply: &[u8], nonce: &str) -> Result<T, NoAnswer> {
    let mut answer: Json = channel::decode_or_complain(reply, nonce)?;
    let echoed = answer.as_object_mut().and_then(|fields| fields.remove("nonce"));
    if echoed.as_ref().and_then(Json::as_str) != Some(nonce) {
        return Err(NoAnswer::Unasked);
    }
    serde_json::from_value(answer).map_err(|e| NoAnswer::Malformed(e.to_string()))
}

/// The end of what a process wrote.
fn last_words(out: &Captured, err: &Captured) -> String {
    let text = [out, err].map(|c| String::from_utf8_lossy(&c.bytes).into_owned()).join("");
    let start = text.char_indices().rev().nth(1999).map_or(0, |(i, _)| i);
    text[start..].to_owned()
}

fn ping() -> Json {
    serde_json::json!({"do": "ping"})
}

fn failed_start(role: Role, cause: impl Into<Cause>) -> JudgeError {
    JudgeError::infrastructure(format!("start the {} process", role.name()), cause)
}
