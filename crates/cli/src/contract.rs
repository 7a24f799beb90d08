//! The objects that `--json` prints. Their field names are a contract: fields may be added, and
//! existing fields keep their names.

use serde::Serialize;
use serde_json::{Map, Value, json};
use warpwright_record::fit::Fit;
use warpwright_record::verdict::{
    Dtype, Failure, IntegrityFinding, Isolation, Profile, Reward, Speedup, Tier, Times, Verdict,
};

/// Version of every object in this file.
pub(crate) const VERSION: u32 = 1;

/// Output of `judge`.
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

/// Output of `optimize` for one task.
#[derive(Debug, Serialize)]
pub(crate) struct Optimized {
    pub(crate) version: u32,
    pub(crate) task: String,
    pub(crate) device: String,
    pub(crate) policy: String,
    pub(crate) profile: Profile,
    /// The dtype that the task was cast to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<Dtype>,
    /// How `--fit` scaled the task down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fit: Option<Fit>,
    /// Whether a call computes gradients too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) backward: bool,
    /// Why the episode ended: `stopped`, `budget_turns`, `budget_time`, `budget_tokens`,
    /// `budget_device`, `looping`, `refused`, `interrupted`, `infrastructure`.
    pub(crate) outcome: String,
    /// The error, if the outcome is `infrastructure`.
    pub(crate) outcome_message: Option<String>,
    pub(crate) verified: bool,
    /// Why there is no verified candidate, in one line.
    pub(crate) reason: Option<String>,
    pub(crate) failure: Option<Failure>,
    pub(crate) integrity: Vec<IntegrityFinding>,
    pub(crate) reward: Reward,
    pub(crate) speedup: Value,
    pub(crate) times_ms: Value,
    /// Lower bound on the time: that of the unavoidable memory traffic, milliseconds.
    pub(crate) floor_ms: Option<f64>,
    /// The best measurement during the episode, for comparison only: selecting the best of noisy
    /// measurements biases it.
    pub(crate) best_seen: Option<BestSeen>,
    pub(crate) turns: u32,
    pub(crate) seconds: f64,
    /// Workspace of the attempt that this object describes.
    pub(crate) workspace: String,
    /// Every attempt of every policy, best first; this object describes the first.
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
    /// From the fresh measurement of its final candidate.
    pub(crate) reward: Reward,
    pub(crate) workspace: String,
}

/// The best verdict during the episode.
#[derive(Debug, Serialize)]
pub(crate) struct BestSeen {
    pub(crate) candidate: String,
    pub(crate) speedup: Value,
}

/// Output of `optimize` for several tasks.
#[derive(Debug, Serialize)]
pub(crate) struct OptimizedMany {
    pub(crate) version: u32,
    pub(crate) verified: bool,
    /// One [`Optimized`] per task; `task` and `error` for a task that could not be judged.
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

/// Milliseconds per call; on the cpu device without the baselines that only exist on a GPU.
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
