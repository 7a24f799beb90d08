//! The jailed Python processes: oracle, baseline, runner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::RngExt;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use warpwright_jail::{
    Access, Captured, Child, FreezeError, Freezer, Gpu, Jail, Killer, Limits, Mount, Outcome, Spec,
};

use crate::arena::Arena;
use crate::channel::{self, Channel, NoAnswer};
use crate::error::JudgeError;
use crate::forks::Forks;
use crate::gate::{Gate, Purpose, Wish};

/// Descriptor numbers inside the jail.
const CHANNEL_FD: i32 = 3;
const ARENA_FD: i32 = 4;
const SIGKILL: i32 = 9;

/// The last bytes of an arena that a process is given at its start. No candidate has them: what the
/// process allocates before it has a candidate lies there, while the rest may be another one's.
pub(crate) const START_BYTES: u64 = 1 << 20;

/// Longest a process may take to import torch, map its arena and answer.
const START_PATIENCE: Duration = Duration::from_mins(2);

/// Longest a process that waits for work may take to say so. A busy host is slow, not silent.
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// How long the threads of a process on a GPU, some thirty on two cores, take to go on once it is thawed:
/// waited for before the clock starts.
const SETTLE: Duration = Duration::from_millis(1);

/// Longest the end of a process is waited for that has closed its socket. It takes milliseconds, on a
/// busy host more.
const COLLECTED: Duration = Duration::from_secs(10);

/// Longest a process lives, whatever it does.
pub(crate) const WALL: Duration = Duration::from_hours(12);

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
    /// Number of its node in `/dev`, if that is known: processes see no other's.
    pub(crate) node: Option<u32>,
    /// The processes that were started and have not ended.
    pub(crate) workers: Arc<Workers>,
    /// The parents of processes that are forks.
    pub(crate) forks: Forks,
    /// Host memory that a process may use unless it is granted another bound, in bytes.
    pub(crate) memory_bytes: u64,
}

impl Host {
    /// A module of the package in a jail of its own, alone or under a program that starts Python:
    /// what is the same for all. A process on a GPU sees that one only, as its first.
    pub(crate) fn module(&self, name: &str, under: Option<(&Path, &[String])>) -> Spec {
        let device = if self.gpu.is_some() { "cuda:0" } else { "cpu" };
        let mut spec = match under {
            Some((program, arguments)) => Spec::new(program)
                .args(arguments.iter().map(String::as_str))
                .arg(self.python.to_string_lossy()),
            None => Spec::new(&self.python),
        };
        spec = spec
            .label(name)
            .args(["-P", "-m", &format!("warpwright_oracle.{name}"), "--device", device])
            .env("PYTHONPATH", self.package.to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .with_system()
            .with_python(&self.python)
            .read_only(&self.package);
        if let Some(gpu) = &self.gpu {
            // Torch's threads wait by spinning, on every core there is; on a GPU host they have
            // little to do.
            let threads = HOST_THREADS.to_string();
            spec = spec
                .gpu(self.node.map_or(Gpu::All, Gpu::One))
                .env("CUDA_VISIBLE_DEVICES", gpu)
                .env("OMP_NUM_THREADS", threads);
        }
        spec
    }

    /// Bounds that all share.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory_bytes: Some(self.memory_bytes),
            processes: 512,
            open_files: 4096,
            ..Limits::default()
        }
    }
}

/// Ids of the first processes of the jails that workers run in, as the host sees them.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<Vec<u32>>);

impl Workers {
    /// Those that run now.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.lock().clone()
    }

    fn list(self: &Arc<Self>, pid: u32) -> Listed {
        self.lock().push(pid);
        Listed { workers: Arc::clone(self), pid }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // The list is whole after every call, also after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry, for as long as its process runs.
struct Listed {
    workers: Arc<Workers>,
    pid: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.workers.lock().retain(|pid| *pid != self.pid);
    }
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

    /// What libraries are told when they are loaded.
    pub(crate) fn environment(self, gpu: bool) -> &'static [(&'static str, &'static str)] {
        match (self, gpu) {
            // Memory that is given back to the system must be cleared by it when it is needed again,
            // which takes longer than most that is computed there. Nobody times it: its threads leave
            // the cores to others while they wait.
            (Self::Oracle, false) => &[
                ("MALLOC_MMAP_MAX_", "0"),
                ("MALLOC_TRIM_THRESHOLD_", "4294967296"),
                ("OMP_WAIT_POLICY", "PASSIVE"),
            ],
            (Self::Baseline, true) => &[("TORCHINDUCTOR_COMPILE_THREADS", "1")],
            // Probing which vector instructions work starts torch a dozen times; the compiler tells
            // soon enough.
            (Self::Baseline, false) => {
                &[("TORCHINDUCTOR_COMPILE_THREADS", "1"), ("TORCHINDUCTOR_VEC_ISA_OK", "1")]
            }
            (Self::Oracle | Self::Runner, _) => &[],
        }
    }

    /// What it takes the device for, once it is up.
    fn purpose(self) -> Purpose {
        match self {
            Self::Oracle => Purpose::Reference,
            Self::Baseline => Purpose::Baselines,
            Self::Runner => Purpose::Start,
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
    role: Role,
    channel: Channel,
    child: Child,
    /// What stops it; asked for when it is first needed.
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
        let (child, ours) = if let Some(forked) = host.forks.of(role).spawn(host, &make)? {
            forked
        } else {
            let (spec, ours) = make()?;
            (host.jail.spawn(spec).map_err(|e| failed_start(role, e))?, ours)
        };
        let listed = host.workers.list(child.pid());
        let awake = host.gpu.is_some();
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

    /// What to start, and the judge's end of the conversation with it.
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
            ..limits
        };
        let mut spec = host
            .module(role.name(), None)
            .args(["--channel", &CHANNEL_FD.to_string()])
            .args(["--library", &host.library.to_string_lossy()])
            .limits(limits)
            .read_only(&host.library)
            .fd(OwnedFd::from(theirs), CHANNEL_FD);
        for (name, value) in role.environment(host.gpu.is_some()) {
            spec = spec.env(*name, *value);
        }
        if let Some(arena) = arena {
            spec = spec
                .args(["--arena", &ARENA_FD.to_string()])
                .args(["--arena-bytes", &arena.len().to_string()])
                .args(["--start-bytes", &START_BYTES.to_string()])
                .args(["--apart-at", &arena.apart().offset.to_string()])
                .args(["--apart-bytes", &arena.apart().bytes.to_string()])
                .fd(arena.lend()?, ARENA_FD);
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
    pub(crate) fn up(mut self, gate: &Gate) -> Result<Self, JudgeError> {
        // Until here only our own code runs in there: a failure is ours, not the task's.
        let mut held = None;
        let hold = |wish| gate.change(&mut held, wish, Purpose::Start);
        match self.channel.ask_holding::<Json>(&ping(), START_PATIENCE, hold) {
            Ok(_) => Ok(self),
            Err(answer) => {
                let role = self.role;
                let (outcome, tail) = self.end();
                Err(failed_start(role, format!("{answer:?}, {outcome:?}: {tail}")))
            }
        }
    }

    /// Whether it still answers; not for processes that hold a candidate.
    pub(crate) fn answers(&mut self) -> bool {
        self.ask::<Json>(&ping(), PING_PATIENCE).is_ok()
    }

    /// Has it forget its task, to be given another. Not for a runner. The caller holds nothing of the
    /// device.
    pub(crate) fn next(&mut self, gate: &Gate) -> Result<(), NoAnswer> {
        self.ask_holding::<Json>(&serde_json::json!({"do": "next"}), PING_PATIENCE, gate)?;
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
        gate: &Gate,
    ) -> Result<Json, JudgeError> {
        let role = self.role.name();
        let failed = |e: NoAnswer| {
            let action = format!("hand memory to the {role}");
            JudgeError::infrastructure(action, format!("{e:?}"))
        };
        self.thaw().map_err(failed)?;
        self.channel.send(request, deadline).map_err(failed)?;
        self.channel.send_descriptor(arena.lend()?.as_fd()).map_err(failed)?;
        let (mut held, purpose) = (None, self.role.purpose());
        let hold = |wish| gate.change(&mut held, wish, purpose);
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

    /// Stops everything in the process's jail until it is asked again.
    pub(crate) fn freeze(&mut self) -> Result<(), NoAnswer> {
        if self.freezer.is_none() {
            self.freezer = self.child.freezer();
        }
        // One that has ended has nothing to stop.
        let Some(freezer) = &mut self.freezer else { return Err(NoAnswer::Closed) };
        let frozen = freezer.freeze();
        self.unless_ended(frozen)
    }

    fn thaw(&mut self) -> Result<(), NoAnswer> {
        let Some(freezer) = &mut self.freezer else { return Ok(()) };
        let thawed = freezer.thaw();
        self.unless_ended(thawed)
    }

    /// A group that is gone says that the jail has ended, which the conversation tells better.
    fn unless_ended(&mut self, done: Result<(), FreezeError>) -> Result<(), NoAnswer> {
        match done {
            Ok(()) => Ok(()),
            Err(_) if matches!(self.child.try_wait(), Ok(true)) => Err(NoAnswer::Closed),
            Err(FreezeError::RanWhileFrozen) => Err(NoAnswer::RanWhileFrozen),
            Err(error) => Err(NoAnswer::CannotFreeze(error.to_string())),
        }
    }

    /// Has a frozen process play a window.
    ///
    /// On the cpu device the clock of this process runs from before it goes on until it has answered and
    /// everything in its jail is frozen again. On a GPU it goes on before the clock starts, so that it is
    /// awake and the GPU is its own: the inputs are out of its reach until `lent` comes with "go". There
    /// the clock stops when `look` is done, which sees what the process has left running on the GPU;
    /// freezing it would not stop that. Nobody sleeps while the answer is waited for; on the cpu device
    /// cores that wait would be missed.
    pub(crate) fn window<R>(
        &mut self,
        (go, lent): (&Json, Option<BorrowedFd<'_>>),
        deadline: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> (Duration, Result<Answered<R>, NoAnswer>) {
        let (go, nonce) = with_nonce(go);
        // On a GPU nothing of the clock depends on who was frozen, and baselines run no candidate's code.
        let freezes = !self.awake || self.role == Role::Runner;
        if freezes && let Err(error) = self.freeze() {
            return (Duration::ZERO, Err(error));
        }
        if self.awake {
            if freezes {
                if let Err(error) = self.thaw() {
                    return (Duration::ZERO, Err(error));
                }
                std::thread::sleep(SETTLE);
            }
            let turned = self.ask::<Json>(&serde_json::json!({"do": "turn"}), deadline);
            if let Err(error) = turned {
                return (Duration::ZERO, Err(error));
            }
        }
        if self.channel.has_unasked() {
            return (Duration::ZERO, Err(NoAnswer::Unasked));
        }
        let start = Instant::now();
        // Not the other way round: what is frozen reads nothing, and a socket holds little.
        let sent = self.thaw().and_then(|()| self.channel.send(&go, deadline));
        // Nothing can reach the inputs on a GPU before: neither the process nor what it has queued there.
        let sent = sent.and_then(|()| lent.map_or(Ok(()), |fd| self.channel.send_descriptor(fd)));
        let reply = sent.and_then(|()| self.channel.answer(self.awake, deadline));
        let (mut elapsed, mut seen) = (None, None);
        if self.awake
            && let Ok(reply) = &reply
        {
            seen = Some(look(reply));
            elapsed = Some(start.elapsed());
        }
        let frozen = if freezes { self.freeze() } else { Ok(()) };
        let reply = match (reply, frozen) {
            (Ok(reply), Ok(())) => reply,
            (Err(error), _) | (Ok(_), Err(error)) => return (start.elapsed(), Err(error)),
        };
        let elapsed = elapsed.unwrap_or_else(|| start.elapsed());
        let done = answered(&reply, &nonce).map(|answer| Answered { answer, seen });
        (elapsed, done)
    }

    /// Asks a process that takes the device when it computes there; see [`Channel::ask_holding`].
    /// The caller holds nothing of it.
    pub(crate) fn ask_holding<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        gate: &Gate,
    ) -> Result<T, NoAnswer> {
        self.ask_granting(request, deadline, gate, |wish| wish)
    }

    /// The same, but the process gets the device beside others where it wishes to be alone.
    pub(crate) fn ask_beside<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        gate: &Gate,
    ) -> Result<T, NoAnswer> {
        let beside = |wish| if wish == Wish::Alone { Wish::Shared } else { wish };
        self.ask_granting(request, deadline, gate, beside)
    }

    /// Asks, and has the process hold what is granted of its wishes.
    fn ask_granting<T: DeserializeOwned>(
        &mut self,
        request: &Json,
        deadline: Duration,
        gate: &Gate,
        granted: impl Fn(Wish) -> Wish,
    ) -> Result<T, NoAnswer> {
        let (mut held, purpose) = (None, self.role.purpose());
        let hold = |wish| gate.change(&mut held, granted(wish), purpose);
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

/// What a process answered in a window.
pub(crate) struct Answered<R> {
    /// Its answer: in a runner, the candidate's word.
    pub(crate) answer: Json,
    /// What the judge saw before the clock stopped, on a GPU.
    pub(crate) seen: Option<R>,
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

fn failed_start(role: Role, reason: impl std::fmt::Display) -> JudgeError {
    JudgeError::infrastructure(format!("start the {}", role.name()), reason)
}
