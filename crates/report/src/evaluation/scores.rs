//! Figures over tasks, each with its interval. `docs/reference/evaluation-metrics.md` has every definition.
//!
//! A task counts once, however many attempts there were: its value is the mean over its attempts.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use warpwright_record::fingerprint::Fingerprint;
use warpwright_record::interval::Interval;
use warpwright_record::message::Usage;
use warpwright_record::reward::FASTER;

use super::rows::{Measured, Row, RowState};
use super::statistics::{Term, geometric, mean, pass_at_k, ratio};

/// Speed-ups at which the curve `fast_p` is tabulated.
pub const FAST_P: [f64; 15] =
    [0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0];

/// A figure against each baseline; `None` where there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Against<T> {
    /// PyTorch eager.
    pub eager: T,
    /// `torch.compile`, default mode.
    pub compile: T,
    /// The fastest baseline measured for the task.
    pub best: T,
}

/// Figures of a set of tasks. Those at this level are of the final candidate, measured afresh.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// Tasks that count: at least one attempt came to its end.
    pub tasks: u32,
    /// Share of tasks whose final candidate is right.
    pub pass_rate: Option<Interval>,
    /// Share of tasks whose final candidate is right and more than 5 % faster: the lower bound of
    /// its speed-up is above 1.05.
    pub faster_rate: Against<Option<Interval>>,
    /// Geometric mean of the speed-up over tasks whose final candidate is right.
    pub geomean_speedup: Against<Option<Interval>>,
    /// The same over all tasks, one that is not right counting as 1.
    pub geomean_speedup_failures_as_one: Against<Option<Interval>>,
    /// The same figures of the best candidate seen in each episode. Selected among noise.
    pub best_in_trajectory: Figures,
    /// By the paper's convention: best candidate seen, faster when the point estimate is above 1,
    /// speed-up over correct ones only.
    pub paper_convention: Figures,
    /// With several attempts: of the attempt whose final candidate is best by the lower bound of
    /// its speed-up over the best baseline.
    pub best_attempt: Option<Figures>,
    /// Chance that at least one of `k` attempts is right.
    pub pass_at_k: Vec<PassAt>,
    /// Share of tasks whose final candidate is right with a speed-up above `p`.
    pub fast_p: Against<Vec<FastP>>,
    /// What does not count.
    pub not_judged: NotJudged,
    /// What the attempts took.
    pub cost: Cost,
    /// Why speed-up figures are missing or weaker than they look; for people.
    pub caveats: Vec<String>,
}

/// Pass rate, faster rate and mean speed-up by one convention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Share of tasks that are right.
    pub pass_rate: Option<Interval>,
    /// Share of tasks that are right and faster.
    pub faster_rate: Against<Option<Interval>>,
    /// Geometric mean of the speed-up over tasks that are right.
    pub geomean_speedup: Against<Option<Interval>>,
    /// The same over all tasks, one that is not right counting as 1.
    pub geomean_speedup_failures_as_one: Against<Option<Interval>>,
}

/// One value of pass@k.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassAt {
    /// Attempts.
    pub k: u32,
    /// Tasks with at least so many attempts that came to their end.
    pub tasks: u32,
    /// Mean of the unbiased estimate over them.
    pub value: Interval,
}

/// One point of the curve `fast_p`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FastP {
    /// Speed-up to exceed; at 0 every right candidate does.
    pub p: f64,
    /// Share of tasks.
    pub share: Interval,
}

/// What does not count, by reason: tasks without any attempt that came to its end, and attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotJudged {
    /// Tasks whose reference cannot be judged against.
    pub refused: u32,
    /// Tasks on which there is nothing to earn.
    #[serde(default)]
    pub degenerate: u32,
    /// Tasks that need more memory than the device has for them.
    #[serde(default)]
    pub too_large: u32,
    /// Tasks lost to our own failures.
    pub infrastructure: u32,
    /// Tasks that were not finished or not begun.
    pub unfinished: u32,
    /// Attempts lost to our own failures, at whatever task.
    pub attempts_infrastructure: u32,
    /// Attempts that were not finished or not begun, at whatever task.
    pub attempts_unfinished: u32,
}

/// What the attempts that count took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Attempts.
    pub attempts: u32,
    /// Turns, all attempts together.
    pub turns: u64,
    /// Wall seconds, all attempts together.
    pub seconds: f64,
    /// Seconds of judging, all verdicts together.
    pub judge_seconds: f64,
    /// Tokens and cost.
    pub usage: Usage,
}

/// One attempt, reduced to what figures need.
#[derive(Clone, Debug, Default)]
pub(super) struct Shot {
    pub(super) verified: bool,
    pub(super) measured: Measured,
}

/// When a candidate counts as faster.
#[derive(Clone, Copy)]
enum Faster {
    /// The lower bound of its speed-up is above 1.05.
    Surely,
    /// The point estimate is above 1.
    ByPoint,
}

/// Which speed-up.
pub(super) type Of = fn(&Measured) -> Option<Interval>;

/// The judged attempts of each task.
type Tasks<'a> = Vec<(&'a str, Vec<&'a Row>)>;

impl Scores {
    /// Of these rows, which are of one policy, one profile and one kind of device.
    pub fn of(rows: &[&Row]) -> Self {
        let (tasks, not_judged) = by_task(rows);
        let finals: Vec<Vec<Shot>> = shots(&tasks, Shot::last);
        let seen: Vec<Vec<Shot>> = shots(&tasks, Shot::seen);
        let attempts = tasks.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0) as u32;
        let mut scores = Self { tasks: tasks.len() as u32, not_judged, ..Self::default() };
        scores.cost = cost(rows);
        scores.caveats = caveats(&finals);
        let prints = fingerprints(rows);
        let mixed = prints > 1;
        let figures = |shots: &[Vec<Shot>], faster| {
            let figures = figures(shots, faster);
            if mixed { figures.without_times() } else { figures }
        };
        if mixed {
            scores.caveats.push(format!(
                "measured under {prints} different fingerprints: figures of time are left out, for \
                 they cannot be averaged"
            ));
        } else {
            scores.fast_p = Against {
                eager: fast_p(&finals, |m| m.eager),
                compile: fast_p(&finals, |m| m.compile),
                best: fast_p(&finals, |m| m.best),
            };
        }
        let last = figures(&finals, Faster::Surely);
        scores.pass_rate = last.pass_rate;
        scores.faster_rate = last.faster_rate;
        scores.geomean_speedup = last.geomean_speedup;
        scores.geomean_speedup_failures_as_one = last.geomean_speedup_failures_as_one;
        scores.best_in_trajectory = figures(&seen, Faster::Surely);
        scores.paper_convention = figures(&seen, Faster::ByPoint);
        if attempts > 1 {
            let best: Vec<Vec<Shot>> = finals.iter().map(|shots| vec![best_shot(shots)]).collect();
            scores.best_attempt = Some(figures(&best, Faster::Surely));
        }
        scores.pass_at_k = passes(&finals, attempts);
        scores
    }
}

impl Figures {
    fn without_times(self) -> Self {
        Self { pass_rate: self.pass_rate, ..Self::default() }
    }
}

impl Shot {
    pub(super) fn last(row: &Row) -> Self {
        Self { verified: row.verified, measured: row.measured.clone() }
    }

    fn seen(row: &Row) -> Self {
        let measured = row.best_seen.clone();
        Self { verified: measured.is_some(), measured: measured.unwrap_or_default() }
    }

    /// Logarithm of the speed-up: `None` where there is none to be taken.
    pub(super) fn log(&self, of: Of) -> Option<f64> {
        let speedup = of(&self.measured).filter(|_| self.verified)?.value;
        (speedup.is_finite() && speedup > 0.0).then(|| speedup.ln())
    }

    /// Whether the lower bound of its speed-up is above 1.05.
    pub(super) fn is_surely_faster(&self, of: Of) -> bool {
        self.is_faster(of, Faster::Surely)
    }

    fn is_faster(&self, of: Of, faster: Faster) -> bool {
        let speedup = of(&self.measured).filter(|_| self.verified);
        speedup.is_some_and(|speedup| match faster {
            Faster::Surely => speedup.low.is_finite() && speedup.low > FASTER,
            Faster::ByPoint => speedup.value.is_finite() && speedup.value > 1.0,
        })
    }
}

/// Judged rows by task in the order of the rows, and what is left out.
fn by_task<'a>(rows: &[&'a Row]) -> (Tasks<'a>, NotJudged) {
    let mut tasks: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match tasks.iter_mut().find(|(task, _)| *task == row.task) {
            Some((_, rows)) => rows.push(row),
            None => tasks.push((&row.task, vec![row])),
        }
    }
    let mut left_out = NotJudged::default();
    tasks.retain_mut(|(_, rows)| {
        let count = |state| rows.iter().filter(|row| row.state == state).count() as u32;
        let (infrastructure, unfinished) =
            (count(RowState::Infrastructure), count(RowState::Unfinished));
        left_out.attempts_infrastructure += infrastructure;
        left_out.attempts_unfinished += unfinished;
        if count(RowState::Judged) == 0 {
            match () {
                () if count(RowState::Refused) > 0 => left_out.refused += 1,
                () if count(RowState::Degenerate) > 0 => left_out.degenerate += 1,
                () if count(RowState::TooLarge) > 0 => left_out.too_large += 1,
                () if infrastructure > 0 => left_out.infrastructure += 1,
                () => left_out.unfinished += 1,
            }
        }
        rows.retain(|row| row.state == RowState::Judged);
        !rows.is_empty()
    });
    (tasks, left_out)
}

fn shots(tasks: &Tasks<'_>, of: fn(&Row) -> Shot) -> Vec<Vec<Shot>> {
    tasks.iter().map(|(_, rows)| rows.iter().map(|row| of(row)).collect()).collect()
}

/// As `--attempts` would choose: right before wrong, then by the lower bound over the best baseline.
pub(super) fn best_shot(shots: &[Shot]) -> Shot {
    let key = |shot: &Shot| {
        let low = shot.measured.best.map_or(0.0, |best| best.low);
        (shot.verified, if low.is_finite() { low } else { 0.0 })
    };
    let best = shots.iter().max_by(|a, b| {
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    best.cloned().unwrap_or_default()
}

fn figures(tasks: &[Vec<Shot>], faster: Faster) -> Figures {
    let over = |statistic: &dyn Fn(Of) -> Option<Interval>| Against {
        eager: statistic(|m| m.eager),
        compile: statistic(|m| m.compile),
        best: statistic(|m| m.best),
    };
    Figures {
        pass_rate: ratio(&shares(tasks, |shot| shot.verified)),
        faster_rate: over(&|of| {
            is_known(tasks, of).then(|| ratio(&shares(tasks, |shot| shot.is_faster(of, faster))))?
        }),
        geomean_speedup: over(&|of| geometric(&logs(tasks, of))),
        geomean_speedup_failures_as_one: over(&|of| {
            is_known(tasks, of).then(|| geometric(&logs_or_one(tasks, of)))?
        }),
    }
}

/// Whether this speed-up has a figure: a baseline that was measured for nobody has none, not the figure 0.
pub(super) fn is_known(tasks: &[Vec<Shot>], of: Of) -> bool {
    let right = || tasks.iter().flatten().filter(|shot| shot.verified);
    right().next().is_none() || right().any(|shot| of(&shot.measured).is_some())
}

/// The share of each task's attempts for which something holds.
pub(super) fn shares(tasks: &[Vec<Shot>], holds: impl Fn(&Shot) -> bool) -> Vec<Term> {
    let share = |shots: &Vec<Shot>| {
        let count = shots.iter().filter(|shot| holds(shot)).count();
        Term::counted(count as f64 / shots.len() as f64)
    };
    tasks.iter().map(share).collect()
}

/// The mean logarithm of each task's right attempts; tasks without one are left out.
pub(super) fn logs(tasks: &[Vec<Shot>], of: Of) -> Vec<Term> {
    let term = |shots: &Vec<Shot>| {
        let logs: Vec<f64> = shots.iter().filter_map(|shot| shot.log(of)).collect();
        mean(&logs).into()
    };
    tasks.iter().map(term).collect()
}

/// The mean logarithm of all of each task's attempts, 0 for one without a speed-up.
pub(super) fn logs_or_one(tasks: &[Vec<Shot>], of: Of) -> Vec<Term> {
    let mean = |shots: &Vec<Shot>| {
        let sum: f64 = shots.iter().filter_map(|shot| shot.log(of)).sum();
        Term::counted(sum / shots.len() as f64)
    };
    tasks.iter().map(mean).collect()
}

fn fast_p(tasks: &[Vec<Shot>], of: Of) -> Vec<FastP> {
    if tasks.iter().flatten().all(|shot| of(&shot.measured).is_none()) {
        return Vec::new();
    }
    let above = |shot: &Shot, p: f64| {
        shot.verified && (p <= 0.0 || shot.log(of).is_some_and(|log| log > p.ln()))
    };
    let point = |p: f64| Some(FastP { p, share: ratio(&shares(tasks, |shot| above(shot, p)))? });
    FAST_P.into_iter().filter_map(point).collect()
}

/// pass@k for 1, 2, 4, ... and for all attempts.
fn passes(tasks: &[Vec<Shot>], attempts: u32) -> Vec<PassAt> {
    let powers = (0..32).map(|power| 1u32 << power).take_while(|k| *k < attempts);
    let ks: Vec<u32> = powers.chain((attempts > 0).then_some(attempts)).collect();
    let pass = |k: u32| {
        let of = |shots: &Vec<Shot>| {
            let right = shots.iter().filter(|shot| shot.verified).count() as u32;
            Term::from(pass_at_k(shots.len() as u32, right, k))
        };
        let terms: Vec<Term> = tasks.iter().map(of).collect();
        let tasks = terms.iter().filter(|term| term.weight > 0.0).count() as u32;
        Some(PassAt { k, tasks, value: ratio(&terms)? })
    };
    ks.into_iter().filter_map(pass).collect()
}

fn cost(rows: &[&Row]) -> Cost {
    let mut cost = Cost::default();
    for row in rows.iter().filter(|row| row.state == RowState::Judged) {
        cost.attempts += 1;
        cost.turns += u64::from(row.turns);
        cost.seconds += row.seconds;
        cost.judge_seconds += row.judge_seconds;
        cost.usage.add(&row.usage);
    }
    cost
}

/// How many different fingerprints figures were measured under. Clocks differ between any two
/// measurements, and GPUs of one kind on one host are one.
pub(super) fn fingerprints(rows: &[&Row]) -> usize {
    let measured = rows.iter().filter(|row| row.measured.best.is_some());
    let of = |row: &&&Row| row.fingerprint.as_ref().map(comparable);
    measured.filter_map(|row| of(&row)).collect::<BTreeSet<_>>().len()
}

/// A fingerprint without what differs between two measurements that can be compared: clocks, the
/// GPU's number, what was measured of the machine itself.
pub(super) fn comparable(fingerprint: &Fingerprint) -> String {
    let kind = fingerprint.device.split(':').next().unwrap_or_default().to_owned();
    let still = Fingerprint {
        device: kind,
        clocks: String::new(),
        bandwidth_bytes_per_second: None,
        exactness: None,
        ..fingerprint.clone()
    };
    serde_json::to_string(&still).unwrap_or_default()
}

fn caveats(finals: &[Vec<Shot>]) -> Vec<String> {
    let shots = || finals.iter().flatten();
    let right = shots().filter(|shot| shot.verified).count();
    let untimed = shots().filter(|shot| shot.verified && shot.log(|m| m.best).is_none()).count();
    let mut caveats = Vec::new();
    if untimed > 0 {
        caveats.push(format!(
            "{untimed} of {right} right candidates were not timed: they are not faster, and in no \
             mean over correct ones"
        ));
    }
    if !finals.is_empty() && (right == 0 || right == shots().count()) {
        caveats.push(
            "the pass rate's interval has no width, because every task came out alike: resampling \
             cannot show what it never saw"
                .to_owned(),
        );
    }
    caveats
}
