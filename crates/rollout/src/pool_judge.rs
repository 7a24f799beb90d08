//! Judges the tasks of one device for the agent, and retries what failed on this machine's side.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpwright_agent::judge::{DeviceFacts, Judge, JudgeUnavailable};
use warpwright_judge::{JudgeError, Objection, SessionPool};
use warpwright_record::blob::BlobHash;
use warpwright_record::candidate::Candidate;
use warpwright_record::event::TooLarge;
use warpwright_record::findings::{Findings, Inspection};
use warpwright_record::verdict::{Stage, Tier, Verdict};
use warpwright_record::void::VoidTurns;
use warpwright_task::Task;

use crate::error::chain;

/// Seconds before each retry when the judge itself failed, as by a killed process or a GPU reset.
/// After the last retry the episode is abandoned; it can be resumed.
const PAUSES: [u64; 4] = [0, 5, 30, 120];

/// The warning that a task is degenerate, before it is judged.
pub fn nothing_to_earn(task: &str, reasons: &[Objection]) -> Option<String> {
    let all: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let told =
        || format!("task {task} is degenerate; no reward can be earned on it: {}", all.join("; "));
    (!all.is_empty()).then(told)
}

/// The judge of one device. A test has another one than [`PooledDevice`].
pub trait DeviceJudge: Send + Sync {
    /// The judge of one task. Setting `stop` ends its retries.
    fn task<'t>(&'t self, task: &'t Task, stop: &'t AtomicBool) -> Box<dyn TaskJudge + 't>;

    /// Closes the session of a task that no episode needs any more.
    fn finished(&self, task: &Task);

    /// Number of tasks that the device keeps open.
    fn at_once(&self) -> usize;

    /// Why no reward can be earned on an open task.
    fn degenerate(&self, task: &Task) -> Vec<Objection>;

    /// Verdicts of this machine that do not count any more.
    fn voids(&self) -> Result<Vec<VoidTurns>, JudgeError> {
        Ok(Vec::new())
    }

    /// The tier that it requires of verdicts.
    fn tier(&self) -> Option<Tier> {
        None
    }
}

/// The judge of one task, for the agent.
pub trait TaskJudge: Judge {
    /// Checks whether the task can be judged.
    fn open(&self) -> Result<(), JudgeError>;

    /// The same of a task that needs much memory, of which [`Self::open`] does not find out everything.
    fn open_whole(&self) -> Result<(), JudgeError> {
        self.open()
    }

    /// Why the task cannot be judged, if judging showed that.
    fn refusal(&self) -> Option<&Refusal>;
}

/// The judge of a device whose sessions a pool keeps.
pub struct PooledDevice<'a> {
    pool: &'a SessionPool<'a>,
    facts: DeviceFacts,
}

impl<'a> PooledDevice<'a> {
    /// The judge of the pool's device, with its facts.
    pub fn new(pool: &'a SessionPool<'a>, facts: DeviceFacts) -> Self {
        Self { pool, facts }
    }
}

impl DeviceJudge for PooledDevice<'_> {
    fn task<'t>(&'t self, task: &'t Task, stop: &'t AtomicBool) -> Box<dyn TaskJudge + 't> {
        // One whose workloads cannot be read is refused before it is shown.
        let shown = task.shown().unwrap_or_else(|_| task.clone());
        let (pool, refusal) = (self.pool, OnceLock::new());
        let libraries = pool.judge().libraries_for(task);
        let facts = DeviceFacts { libraries, ..self.facts.clone() };
        Box::new(PoolJudge { pool, task, shown, facts, stop, refusal })
    }

    fn finished(&self, task: &Task) {
        self.pool.finished(task);
    }

    fn at_once(&self) -> usize {
        self.pool.at_once()
    }

    fn degenerate(&self, task: &Task) -> Vec<Objection> {
        self.pool.degenerate(task)
    }

    fn voids(&self) -> Result<Vec<VoidTurns>, JudgeError> {
        self.pool.judge().voids()
    }

    fn tier(&self) -> Option<Tier> {
        self.pool.judge().config().tier
    }
}

/// Judges one task with the sessions of a pool.
struct PoolJudge<'p, 'j> {
    pool: &'p SessionPool<'j>,
    task: &'p Task,
    /// The task as an agent sees it: only final candidates are judged on workloads that are held out.
    shown: Task,
    facts: DeviceFacts,
    stop: &'p AtomicBool,
    /// Set if judging showed that the task cannot be judged.
    refusal: OnceLock<Refusal>,
}

/// Why a task is refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// What is wrong with the task.
    pub message: String,
    /// The cure.
    pub hint: Option<String>,
    /// Why no reward can be earned on it, one word per reason.
    pub degenerate: Vec<String>,
    /// What the task needs, if only the device's memory is in its way.
    pub too_large: Option<TooLarge>,
}

impl Refusal {
    /// The refusal, if the failure is the task's.
    pub fn of(error: &JudgeError) -> Option<Self> {
        let reasons = match error {
            JudgeError::Degenerate { reasons, .. } => reasons.as_slice(),
            JudgeError::Reference { .. } | JudgeError::TooLarge { .. } => &[],
            _ => return None,
        };
        Some(Self {
            message: chain(error),
            hint: error.hint().map(str::to_owned),
            degenerate: reasons.iter().map(|reason| reason.name().to_owned()).collect(),
            too_large: match error {
                JudgeError::TooLarge { needed, available, .. } => {
                    Some(TooLarge { needed_bytes: *needed, available_bytes: *available })
                }
                _ => None,
            },
        })
    }
}

impl PoolJudge<'_, '_> {
    fn unavailable(&self, error: &JudgeError) -> JudgeUnavailable {
        if let Some(refusal) = Refusal::of(error) {
            // The first refusal is enough.
            let _ = self.refusal.set(refusal);
        }
        JudgeUnavailable { message: chain(error) }
    }

    fn patiently<T>(&self, ask: impl Fn() -> Result<T, JudgeError>) -> Result<T, JudgeError> {
        patiently(self.stop, ask)
    }
}

impl TaskJudge for PoolJudge<'_, '_> {
    fn open(&self) -> Result<(), JudgeError> {
        self.patiently(|| self.pool.open(self.task))
    }

    fn open_whole(&self) -> Result<(), JudgeError> {
        self.patiently(|| self.pool.open_whole(self.task))
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }
}

/// Retries after an infrastructure failure, unless the user interrupts.
pub fn patiently<T>(
    stop: &AtomicBool,
    ask: impl Fn() -> Result<T, JudgeError>,
) -> Result<T, JudgeError> {
    let mut pauses = PAUSES.into_iter();
    loop {
        let answer = ask();
        // A lost GPU does not return while this program runs.
        let again =
            matches!(answer, Err(JudgeError::Infrastructure { .. } | JudgeError::Unfit { .. }));
        match pauses.next() {
            Some(seconds) if again && !stop.load(Ordering::SeqCst) => pause(seconds, stop),
            _ => return answer,
        }
    }
}

/// Waits, unless the user interrupts.
fn pause(seconds: u64, stop: &AtomicBool) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Judge for PoolJudge<'_, '_> {
    fn judge(&self, candidate: &Candidate, stage: Stage) -> Result<Verdict, JudgeUnavailable> {
        self.patiently(|| self.pool.verdict(&self.shown, candidate, stage))
            .map_err(|error| self.unavailable(&error))
    }

    fn measure_afresh(&self, candidate: &Candidate) -> Result<Verdict, JudgeUnavailable> {
        self.patiently(|| self.pool.afresh(self.task, candidate, Stage::Measured))
            .map_err(|error| self.unavailable(&error))
    }

    fn inspect(
        &self,
        candidate: &Candidate,
        inspection: &Inspection,
    ) -> Result<Findings, JudgeUnavailable> {
        self.patiently(|| self.pool.inspect(&self.shown, candidate, inspection))
            .map_err(|error| self.unavailable(&error))
    }

    fn plan_file(&self, hash: BlobHash) -> Option<Vec<u8>> {
        // Without it the verdict counts all the same.
        self.pool.judge().plan_file(hash).ok().flatten()
    }

    fn is_void(&self, verdict: &Verdict) -> Result<bool, JudgeUnavailable> {
        self.pool.judge().is_void(verdict).map_err(|error| self.unavailable(&error))
    }

    fn device(&self) -> DeviceFacts {
        self.facts.clone()
    }
}
