//! Sessions of many tasks, shared by many episodes.
//!
//! An oracle is a process that holds torch and one reference: opening it takes seconds and hundreds of
//! megabytes. The pool keeps the most recently used sessions, serves requests in order of arrival, and works
//! on as many concurrently as the device allows. A GPU's memory is divided into equal parts; a session has
//! one part, or as many as its task turns out to need. Work on the GPU takes turns through the device
//! arbiter. On the cpu device one session works per core. A measurement works alone there, because
//! everything else on the machine would disturb it.
//!
//! An unused session is kept at least as long as it took to open: its episode will return, and opening it
//! again would cost the same. After that the least recently used session is closed first.

use std::collections::HashMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpwright_build::Artifact;
use warpwright_record::candidate::Candidate;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{COPY_CAVEAT, PhaseSeconds, Stage, Verdict};
use warpwright_task::similarity::OpGraph;
use warpwright_task::{Mode, Task};

use crate::admission::examination::{Bar, Examination};
use crate::admission::objection::Objection;
use crate::device::backend::SessionLimits;
use crate::error::JudgeError;
use crate::judge::LocalJudge;
use crate::judge::processes::Shared;
use crate::process::memory::{Memory, Work};
use crate::process::slots::Slots;
use crate::process::worker_reuse::Sharing;
use crate::session::answers::Answers;
use crate::session::examining::ExaminingSession;
use crate::session::queue::{Fit, Queue};
use crate::session::verdict::{Known, built, of_workloads};
use crate::session::workloads::workloads_of;
use crate::session::{Begun, TaskSession};
use crate::timing::series::Measured;

mod turn;

use turn::Turn;

/// Sessions on one GPU that start their processes at the same time: more would keep the host busy.
const STARTS: usize = 6;
/// The same where tasks are examined: few of them start anything.
const EXAMINING_STARTS: usize = 32;
/// How often those who wait look again: sessions give way when their time has passed.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How the processes of a session are started: [`Begun::begin`] or [`Begun::to_verify`].
pub(super) type Begin = fn(Shared<'_>, &Task) -> Result<Begun, JudgeError>;

/// A pool of task sessions on one judge.
pub struct SessionPool<'j> {
    judge: &'j LocalJudge,
    work: Work,
    /// How many parts of the memory open sessions may have, those that work included.
    parts: usize,
    /// Places for sessions that start their processes before it is their turn.
    starts: Slots,
    state: Mutex<State<'j>>,
    changed: Condvar,
    /// Cached verdicts by task, candidate hash and stage; concurrent equal requests are judged once.
    answers: Answers<(Key, String, Stage), Verdict>,
    /// Workloads on which no candidate can be judged, and why.
    pub(super) refused: Mutex<HashMap<Key, Arc<JudgeError>>>,
}

struct State<'j> {
    queue: Queue<Key>,
    /// Open and unused, the longest unused first.
    idle: Vec<Idle<'j>>,
    /// Begun, and not yet open.
    begun: Vec<(Key, Begun)>,
    /// Tasks that need more than one part.
    large: Vec<(Key, usize)>,
    /// Known facts of the opened tasks.
    known: Vec<(Key, Known)>,
}

impl State<'_> {
    fn take_begun(&mut self, key: &Key) -> Option<Begun> {
        let at = self.begun.iter().position(|(begun, _)| begun == key)?;
        Some(self.begun.swap_remove(at).1)
    }
}

/// An idle open session.
struct Idle<'j> {
    key: Key,
    /// Its parts of the memory.
    parts: usize,
    /// Until when it does not give way.
    until: Instant,
    session: TaskSession<'j>,
}

/// Parts of the memory that a task needs, as far as that is known.
fn parts_of(large: &[(Key, usize)], key: &Key) -> usize {
    large.iter().find(|(large, _)| large == key).map_or(1, |(_, parts)| *parts)
}

/// What a request finds that needs `parts` of `all`, when `busy` are in use.
fn fit(
    idle: &[Idle<'_>],
    key: &Key,
    parts: usize,
    (all, busy): (usize, usize),
    now: Instant,
) -> Fit {
    if idle.iter().any(|idle| idle.key == *key && idle.parts >= parts) {
        return Fit::There;
    }
    let others = idle.iter().filter(|idle| idle.key != *key && idle.until > now);
    let kept: usize = others.map(|idle| idle.parts).sum();
    if busy + kept + parts <= all { Fit::Room } else { Fit::Wait }
}

/// Key of a task: equal keys share a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: String,
    source: blake3::Hash,
    mode: Mode,
    /// Of how many workloads it is one: their windows are shorter.
    sharing: usize,
}

impl Key {
    pub(super) fn of(task: &Task) -> Self {
        let source = blake3::hash(task.source.as_bytes());
        Self { name: task.name.clone(), source, mode: task.mode, sharing: task.sharing }
    }
}

impl<'j> SessionPool<'j> {
    /// A pool for judging candidates, without open sessions.
    pub fn new(judge: &'j LocalJudge) -> Self {
        Self::of(judge, Work::Judging)
    }

    /// A pool for examining tasks without candidates: a GPU has memory for more sessions then.
    pub fn to_examine(judge: &'j LocalJudge) -> Self {
        Self::of(judge, Work::Examining)
    }

    fn of(judge: &'j LocalJudge, work: Work) -> Self {
        let limits = judge.machine.device.session_limits(work == Work::Examining);
        let SessionLimits { working: units, open: parts } = limits;
        let state = State {
            queue: Queue::new(units),
            idle: Vec::new(),
            begun: Vec::new(),
            large: Vec::new(),
            known: Vec::new(),
        };
        let starts = Slots::new(match work {
            Work::Judging => STARTS,
            Work::Examining => EXAMINING_STARTS,
        });
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (answers, refused) = (Answers::default(), Mutex::default());
        Self { judge, work, parts, starts, state, changed, answers, refused }
    }

    /// Largest number of concurrent sessions, if each needs one part of the memory.
    pub fn at_once(&self) -> usize {
        self.lock().queue.units()
    }

    /// The judge.
    pub fn judge(&self) -> &'j LocalJudge {
        self.judge
    }

    /// Opens the task's session if it is not open, and so checks that candidates can be judged against the
    /// task. A session that needs much of a GPU's memory only starts its processes; the first candidate opens it.
    /// Of several workloads one must open.
    pub fn open(&self, task: &Task) -> Result<(), JudgeError> {
        match workloads_of(task)? {
            Some(workloads) => self.open_one_of(&workloads),
            None => self.open_single(task),
        }
    }

    pub(super) fn open_single(&self, task: &Task) -> Result<(), JudgeError> {
        let key = Key::of(task);
        if let Some(begun) = self.begin(&key, &|| Begun::begin(self.judge.shared(), task))? {
            let mut state = self.lock();
            let large = parts_of(&state.large, &key) > 1;
            state.begun.push((key, begun));
            if large {
                return Ok(());
            }
        }
        self.with(task, false, Begun::begin, |_| Ok(()))
    }

    /// As [`Self::open`], but opens sessions that need much of a GPU's memory too.
    pub fn open_whole(&self, task: &Task) -> Result<(), JudgeError> {
        if let Some(workloads) = workloads_of(task)? {
            return self.first_of(&workloads, Begun::begin).map(drop);
        }
        self.with(task, false, Begun::begin, |_| Ok(()))
    }

    /// Judges a candidate up to `stage`; see [`TaskSession::judge`]. Waits for its turn. A candidate that was
    /// judged up to this stage before gets a copy of that verdict, with a caveat.
    pub fn verdict(
        &self,
        task: &Task,
        candidate: &Candidate,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        if stage == Stage::Built {
            // What was built before the builder knows.
            return self.afresh(task, candidate, stage);
        }
        let question = (Key::of(task), candidate.hash().to_owned(), stage);
        self.judge.voids()?; // One that cannot be read later only costs a measurement.
        let holds = |verdict: &Verdict| self.judge.is_void(verdict).is_ok_and(|void| !void);
        let work = || self.afresh(task, candidate, stage);
        let (mut verdict, ago) = self.answers.once(&question, holds, work)?;
        if let Some(ago) = ago {
            verdict.seconds = PhaseSeconds::default();
            let ago = ago.as_secs_f64();
            let text = format!("this verdict is a copy: {COPY_CAVEAT} judged {ago:.0} s before");
            verdict.caveats.push(text);
        }
        Ok(verdict)
    }

    /// As [`Self::verdict`], but never returns a cached verdict.
    pub fn afresh(
        &self,
        task: &Task,
        candidate: &Candidate,
        stage: Stage,
    ) -> Result<Verdict, JudgeError> {
        if let Some(workloads) = workloads_of(task)? {
            let verdict = self.judge_on_all(task, &workloads, candidate, stage)?;
            return Ok(of_workloads(task, verdict));
        }
        // Needs no session: compiling is bounded by the cores. Baselines take longest: only where they are needed.
        let begin: Begin = if stage == Stage::Measured { Begun::begin } else { Begun::to_verify };
        let known = self.known(task, begin)?;
        let artifact = match built(self.judge.shared(), task, &known, candidate, stage)? {
            ControlFlow::Break(verdict) => return Ok(verdict),
            ControlFlow::Continue(artifact) => artifact,
        };
        self.judge_built(task, candidate, &artifact, stage).map(|(verdict, _)| verdict)
    }

    /// Judges a candidate that was built into `artifact`; also the samples of its times.
    pub(super) fn judge_built(
        &self,
        task: &Task,
        candidate: &Candidate,
        artifact: &Artifact,
        stage: Stage,
    ) -> Result<(Verdict, Measured), JudgeError> {
        let begin: Begin = if stage == Stage::Measured { Begun::begin } else { Begun::to_verify };
        let alone =
            stage == Stage::Measured && !self.judge.machine.device.times_while_others_work();
        self.with(task, alone, begin, |session| {
            if artifact.dir.is_dir() {
                return session.judge_built(candidate, artifact, stage);
            }
            // The cache has evicted it while the candidate waited.
            session.judge_with_samples(candidate, stage)
        })
    }

    /// Reports the end of an episode of this task: its sessions may be closed at once.
    pub fn finished(&self, task: &Task) {
        // A task whose workloads cannot be read has no session.
        for workload in workloads_of(task).ok().flatten().unwrap_or_default() {
            self.finished(&workload.task);
        }
        let key = Key::of(task);
        let mut state = self.lock();
        for idle in state.idle.iter_mut().filter(|idle| idle.key == key) {
            idle.until = Instant::now();
        }
        let begun = state.take_begun(&key);
        drop(state);
        drop(begun);
        self.changed.notify_all();
    }

    /// Known facts of a task; opens the task if there are none.
    pub(super) fn known(&self, task: &Task, begin: Begin) -> Result<Known, JudgeError> {
        let key = Key::of(task);
        let state = self.lock();
        if let Some((_, known)) = state.known.iter().find(|(known, _)| *known == key) {
            return Ok(known.clone());
        }
        drop(state);
        self.with(task, false, begin, |session| Ok(session.known()))
    }

    /// Whether the task's session is open and unused.
    pub(super) fn is_idle(&self, task: &Task) -> bool {
        let key = Key::of(task);
        self.lock().idle.iter().any(|idle| idle.key == key)
    }

    /// Why an opened task is degenerate; empty if it is not, or not known yet. See
    /// [`TaskSession::degenerate`].
    pub fn degenerate(&self, task: &Task) -> Vec<Objection> {
        if let Ok(Some(workloads)) = workloads_of(task) {
            return workloads.iter().flat_map(|of| self.degenerate(&of.task)).collect();
        }
        let key = Key::of(task);
        let state = self.lock();
        let known = state.known.iter().find(|(known, _)| *known == key);
        known.map(|(_, known)| known.degenerate.clone()).unwrap_or_default()
    }

    /// Inspects a candidate; see [`TaskSession::inspect`]. Waits for its turn.
    pub fn inspect(
        &self,
        task: &Task,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeError> {
        if let Some(workloads) = workloads_of(task)? {
            let one = self.first_of(&workloads, Begun::to_verify)?;
            return self.inspect(&one.task, candidate, inspection);
        }
        // Times of kernels mean something only alone.
        let alone = *inspection == Inspection::Kernels
            && !self.judge.machine.device.times_while_others_work();
        self.with(task, alone, Begun::to_verify, |session| session.inspect(candidate, inspection))
    }

    /// Examines the task itself, without a candidate. Waits for its turn.
    pub fn examine(
        &self,
        task: &Task,
        wanted_ms: Option<&RangeInclusive<f64>>,
        bar: Bar,
        processes: Sharing,
    ) -> Result<Examination, JudgeError> {
        self.examine_unless(task, wanted_ms, (bar, processes), &|_| false)
    }

    /// As [`Self::examine`], but stops after tracing if `unwanted` rejects the operator graph.
    pub fn examine_unless(
        &self,
        task: &Task,
        wanted_ms: Option<&RangeInclusive<f64>>,
        (bar, processes): (Bar, Sharing),
        unwanted: &dyn Fn(&OpGraph) -> bool,
    ) -> Result<Examination, JudgeError> {
        let judge = self.judge;
        let begin = || Begun::to_examine(judge.shared(), task, processes);
        loop {
            judge.machine.alive()?;
            let key = Key::of(task);
            let begun = self.begin(&key, &begin)?;
            // Timed work gets exclusive access from the arbiter.
            let turn = self.turn(key, false);
            // One that is kept for candidates has learnt what is not needed here, and the other way round.
            drop(turn.take());
            let opening = (wanted_ms, processes);
            let begun = begun.map_or_else(begin, Ok);
            let session = begun.and_then(|begun| {
                ExaminingSession::open(judge.shared(), task, begun, turn.memory(), opening)
            });
            match session.and_then(|session| session.examine(wanted_ms, bar, unwanted)) {
                Err(error @ JudgeError::Memory { .. }) if turn.memory().is_all() => {
                    return Err(turn.memory().explain(error));
                }
                Err(JudgeError::Memory { wanted, .. }) => turn.enlarge(wanted),
                done => return done,
            }
        }
    }

    /// Works with the task's session, whose processes `begin` starts if it is not open; with more memory, once
    /// more, if it needs that.
    fn with<T>(
        &self,
        task: &Task,
        alone: bool,
        begin: Begin,
        work: impl Fn(&mut TaskSession<'j>) -> Result<T, JudgeError>,
    ) -> Result<T, JudgeError> {
        let mut again = true;
        loop {
            self.judge.machine.alive()?;
            let key = Key::of(task);
            let begun = self.begin(&key, &|| begin(self.judge.shared(), task))?;
            let turn = self.turn(key, alone);
            let kept = turn.take();
            let was_kept = kept.is_some();
            let session = match (kept, begun) {
                (Some(session), _) => Ok(session),
                (None, begun) => {
                    begun.map_or_else(|| begin(self.judge.shared(), task), Ok).and_then(|begun| {
                        TaskSession::open(self.judge.shared(), task, begun, turn.memory())
                    })
                }
            };
            if let Ok(session) = &session {
                turn.learn(session);
            }
            let done = session.and_then(|mut session| {
                let done = work(&mut session);
                // After our own failure nothing is known of its processes: the next request opens
                // anew. A machine that is not fit now may be soon.
                if matches!(done, Ok(_) | Err(JudgeError::Unfit { .. })) {
                    turn.keep(session);
                }
                done
            });
            match done {
                Err(error @ JudgeError::Memory { .. }) if turn.memory().is_all() => {
                    return Err(turn.memory().explain(error));
                }
                Err(JudgeError::Memory { wanted, .. }) => turn.enlarge(wanted),
                // One of its processes may have ended while nobody used it.
                Err(JudgeError::Infrastructure { .. }) if was_kept && again => again = false,
                done => return done,
            }
        }
    }

    /// On a GPU: begins a session that will have to be opened, as far as that can be told, and learns
    /// what memory it will need before it waits for that.
    fn begin(
        &self,
        key: &Key,
        begin: &dyn Fn() -> Result<Begun, JudgeError>,
    ) -> Result<Option<Begun>, JudgeError> {
        let mut state = self.lock();
        if let Some(begun) = state.take_begun(key) {
            return Ok(Some(begun));
        }
        let parts = parts_of(&state.large, key);
        let there = state.idle.iter().any(|idle| idle.key == *key && idle.parts >= parts);
        if there || state.queue.knows(key) || !self.judge.machine.device.has_spare_cores() {
            return Ok(None);
        }
        drop(state);
        let _starting = self.starts.take();
        // The module takes what it likes while it is loaded.
        let all = Memory::all(self.judge.facts(), self.work);
        let begun = begin().map_err(|error| all.explain(error))?;
        if self.work == Work::Judging {
            begun.refuse_too_large(&key.name, all)?;
        }
        if let Some(wanted) = begun.wanted(self.work) {
            self.enlarge(key, wanted.div_ceil(self.part_bytes()) as usize);
        }
        Ok(Some(begun))
    }

    /// Bytes of one part of a GPU's memory.
    fn part_bytes(&self) -> u64 {
        Memory::part(self.judge.facts(), self.work, 1, self.parts).bytes().max(1)
    }

    /// Records the minimum number of memory parts that a task needs.
    fn enlarge(&self, key: &Key, parts: usize) {
        let mut state = self.lock();
        let parts = parts.max(parts_of(&state.large, key)).min(self.parts);
        state.large.retain(|(large, _)| large != key);
        state.large.push((key.clone(), parts));
    }

    /// Waits for this key's turn.
    fn turn(&self, key: Key, alone: bool) -> Turn<'_, 'j> {
        let mut state = self.lock();
        let parts = parts_of(&state.large, &key);
        let units = if alone { state.queue.units() } else { parts };
        let ticket = state.queue.join(key.clone(), units);
        loop {
            let (busy, now, all) = (self.busy(&state), Instant::now(), self.parts);
            let State { queue, idle, large, .. } = &mut *state;
            if queue.begin(ticket, |key| fit(idle, key, parts_of(large, key), (all, busy), now)) {
                break;
            }
            let waited = self.changed.wait_timeout(state, LOOK_AGAIN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Who comes next may be able to begin as well.
        self.changed.notify_all();
        Turn { pool: self, key, parts }
    }

    /// Parts of the memory that are in use.
    fn busy(&self, state: &State<'_>) -> usize {
        if self.judge.machine.device.divides_memory() {
            return state.queue.working();
        }
        // On the cpu device who works alone takes up every core, but one part.
        state.queue.workers()
    }

    fn lock(&self) -> MutexGuard<'_, State<'j>> {
        // The bookkeeping is whole after every call, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
