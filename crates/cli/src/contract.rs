//! What `--json` prints. Field names are a contract (design, section 11): fields may be added, these
//! keep their names.

use serde::Serialize;
use serde_json::{Map, Value, json};
use warpwright_record::verdict::{
    Failure, IntegrityFinding, Isolation, Profile, Reward, Speedup, Tier, Times, Verdict,
};

/// Version of every object here.
pub(crate) const VERSION: u32 = 1;

/// What `judge` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Judged<'a> {
    pub(crate) version: u32,
    pub(crate) task: &'a str,
    pub(crate) device: &'a str,
    pub(crate) tier: Tier,
    pub(crate) profile: Profile,
    pub(crate) verified: bool,
    pub(crate) failure: Option<&'a Failure>,
    pub(crate) integrity: &'a [IntegrityFinding],
    pub(crate) reward: Reward,
    pub(crate) speedup: Value,
    pub(crate) times_ms: Value,
    pub(crate) floor_ms: Option<f64>,
    pub(crate) isolation: &'a Isolation,
    pub(crate) caveats: &'a [String],
    pub(crate) verdict: &'a Verdict,
}

impl<'a> Judged<'a> {
    pub(crate) fn new(verdict: &'a Verdict) -> Self {
        Self {
            version: VERSION,
            task: &verdict.task,
            device: &verdict.device,
            tier: verdict.tier,
            profile: verdict.profile,
            verified: verdict.verified,
            failure: verdict.failure.as_ref(),
            integrity: &verdict.integrity,
            reward: verdict.reward,
            speedup: speedup(&verdict.speedup, &verdict.device),
            times_ms: times(&verdict.times_ms, &verdict.device),
            floor_ms: verdict.floor_ms,
            isolation: &verdict.isolation,
            caveats: &verdict.caveats,
            verdict,
        }
    }
}

/// What `optimize` prints for one task.
#[derive(Debug, Serialize)]
pub(crate) struct Optimized {
    pub(crate) version: u32,
    pub(crate) task: String,
    pub(crate) device: String,
    pub(crate) policy: String,
    pub(crate) profile: Profile,
    /// Why the episode ended: `stopped`, `budget_turns`, `budget_time`, `budget_tokens`,
    /// `budget_device`, `looping`, `refused`, `interrupted`, `infrastructure`.
    pub(crate) outcome: String,
    /// Of an infrastructure outcome: what failed.
    pub(crate) outcome_message: Option<String>,
    pub(crate) verified: bool,
    /// Why there is no verified candidate, in one line.
    pub(crate) reason: Option<String>,
    pub(crate) failure: Option<Failure>,
    pub(crate) integrity: Vec<IntegrityFinding>,
    pub(crate) reward: Reward,
    pub(crate) speedup: Value,
    pub(crate) times_ms: Value,
    /// Least time for the unavoidable bytes, milliseconds.
    pub(crate) floor_ms: Option<f64>,
    /// The best measurement on the way; selected among noise, and shown for comparison only.
    pub(crate) best_seen: Option<BestSeen>,
    pub(crate) turns: u32,
    pub(crate) seconds: f64,
    /// Of the attempt that this object is about.
    pub(crate) workspace: String,
    /// Every attempt of every policy, the best first; this object is about the first.
    pub(crate) attempts: Vec<Tried>,
    pub(crate) run: String,
    pub(crate) report: Option<String>,
}

/// One of several attempts.
#[derive(Debug, Serialize)]
pub(crate) struct Tried {
    pub(crate) policy: String,
    pub(crate) attempt: u32,
    pub(crate) outcome: String,
    /// By the fresh measurement of its final candidate.
    pub(crate) reward: Reward,
    pub(crate) workspace: String,
}

/// The best verdict on the way.
#[derive(Debug, Serialize)]
pub(crate) struct BestSeen {
    pub(crate) candidate: String,
    pub(crate) speedup: Value,
}

/// What `optimize` prints for several tasks.
#[derive(Debug, Serialize)]
pub(crate) struct OptimizedMany {
    pub(crate) version: u32,
    pub(crate) verified: bool,
    /// One [`Optimized`] each; of a task that could not be judged against, `task` and `error`.
    pub(crate) tasks: Vec<Value>,
    pub(crate) run: String,
    pub(crate) report: Option<String>,
}

/// Speed-ups; on the cpu device without the baselines that only exist on a GPU.
pub(crate) fn speedup(speedup: &Speedup, device: &str) -> Value {
    let mut map = Map::new();
    map.insert("eager".into(), json!(speedup.eager));
    map.insert("compile".into(), json!(speedup.compile));
    if device != "cpu" {
        map.insert("reduce_overhead".into(), json!(speedup.reduce_overhead));
        map.insert("max_autotune".into(), json!(speedup.max_autotune));
    }
    map.insert("best".into(), json!(speedup.best));
    map.insert("best_baseline".into(), json!(speedup.best_baseline));
    Value::Object(map)
}

/// Milliseconds a call; on the cpu device without the baselines that only exist on a GPU.
pub(crate) fn times(times: &Times, device: &str) -> Value {
    let mut map = Map::new();
    map.insert("candidate".into(), json!(times.candidate));
    map.insert("eager".into(), json!(times.eager));
    map.insert("compile".into(), json!(times.compile));
    if device != "cpu" {
        map.insert("reduce_overhead".into(), json!(times.reduce_overhead));
        map.insert("max_autotune".into(), json!(times.max_autotune));
    }
    map.insert("prepare".into(), json!(times.prepare));
    Value::Object(map)
}
