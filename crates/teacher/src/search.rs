//! The search over the built-in policy's versions: one knob at a time from the best so far, or all
//! versions.

use std::collections::BTreeSet;

use warpwright_record::verdict::Verdict;

use crate::chain;
use crate::draft::Draft;
use crate::plan::Step;
use crate::program::Files;
use crate::tune::Knobs;

/// Measurements on a GPU, the first version included.
const GPU_PROFILES: u32 = 8;
/// Measurements on the cpu device.
const CPU_PROFILES: u32 = 4;
/// Minimum relative gain of a variant that replaces the best; smaller differences are noise.
const MARGIN: f64 = 0.01;
/// The search ends within this factor of the lower bound.
const NEAR_FLOOR: f64 = 1.05;

/// How many of the possible versions are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// One knob at a time from the best so far, until the budget or the lower bound is reached: a
    /// handful of versions.
    #[default]
    Climb,
    /// Every version whose files differ: the best result of these rules, as a baseline.
    Exhaustive,
}

/// The search; see the module.
#[derive(Debug)]
pub(crate) struct Search {
    walk: Walk,
    best: Knobs,
    best_ms: Option<f64>,
    /// The variant being measured.
    trying: Knobs,
    seen: BTreeSet<String>,
    first_ms: Option<f64>,
    speedup: Option<(String, f64)>,
    floor_ms: Option<f64>,
    safe: bool,
}

type Move = fn(&mut Knobs);

/// The dimensions of the search.
#[derive(Clone, Copy, Debug)]
struct Kernels {
    rows: bool,
    elements: bool,
    heavy: bool,
    /// Whether large products are split at first, if a split form exists.
    splits: Option<bool>,
}

/// The source of the next variant.
#[derive(Debug)]
enum Walk {
    Climb {
        moves: Vec<Move>,
        profiles_left: u32,
    },
    /// The remaining variants; the next one is last.
    Grid(Vec<Knobs>),
}

impl Search {
    pub(crate) fn new(draft: &Draft, breadth: Breadth) -> Self {
        let splits = draft.splits();
        let mut first = Knobs { split: splits == Some(true), chain: true, ..Knobs::default() };
        first.chain = draft.files(&first).is_ok_and(|files| chain::is_among(&files));
        let (cpu, steps) = (draft.target().cpu, draft.steps(&first));
        let any = |is: fn(&Step) -> bool| steps.iter().any(|step| is(step));
        let kernels = Kernels {
            rows: any(|s| matches!(s, Step::Rows(_))),
            elements: any(|s| matches!(s, Step::Elementwise(_))),
            heavy: any(|s| matches!(s, Step::Heavy { .. })),
            splits,
        };
        let walk = match breadth {
            Breadth::Climb => Walk::Climb {
                moves: moves(cpu, kernels),
                profiles_left: if cpu { CPU_PROFILES } else { GPU_PROFILES },
            },
            Breadth::Exhaustive => Walk::Grid(grid(cpu, kernels)),
        };
        Self {
            walk,
            best: first.clone(),
            best_ms: None,
            trying: first,
            seen: BTreeSet::new(),
            first_ms: None,
            speedup: None,
            floor_ms: None,
            safe: false,
        }
    }

    /// The next variant; `None` when the search is over.
    pub(crate) fn next(&mut self) -> Option<Knobs> {
        let at_floor =
            matches!((self.best_ms, self.floor_ms), (Some(t), Some(f)) if t <= f * NEAR_FLOOR);
        if self.safe {
            return None;
        }
        self.trying = match &mut self.walk {
            Walk::Climb { moves, profiles_left } => {
                if at_floor || *profiles_left == 0 || moves.is_empty() {
                    return None;
                }
                let mut knobs = self.best.clone();
                moves.remove(0)(&mut knobs);
                knobs
            }
            Walk::Grid(left) => left.pop()?,
        };
        Some(self.trying.clone())
    }

    /// Remembers files; false if they were measured before.
    pub(crate) fn note(&mut self, files: &Files) -> bool {
        self.seen.insert(format!("{files:?}"))
    }

    /// Records a measurement of the current variant.
    pub(crate) fn measured(&mut self, verdict: &Verdict) {
        self.spend();
        self.floor_ms = verdict.floor_ms.or(self.floor_ms);
        let Some(ms) = time_of(verdict) else { return };
        self.first_ms.get_or_insert(ms);
        let margin = if matches!(self.walk, Walk::Grid(_)) { 0.0 } else { MARGIN };
        if self.best_ms.is_none_or(|best| ms < best * (1.0 - margin)) {
            self.best_ms = Some(ms);
            self.best = self.trying.clone();
            let name = verdict.speedup.best_baseline.clone();
            self.speedup = name.zip(verdict.speedup.best.map(|s| s.value));
        }
    }

    /// The variant could not be measured.
    pub(crate) fn failed(&mut self) {
        self.spend();
    }

    fn spend(&mut self) {
        if let Walk::Climb { profiles_left, .. } = &mut self.walk {
            *profiles_left = profiles_left.saturating_sub(1);
        }
    }

    /// Ends the search because measuring does not work here.
    pub(crate) fn give_up(&mut self) {
        self.walk = Walk::Grid(Vec::new());
    }

    /// The next version to try after a failure: first one with separate kernels and unsplit
    /// products, then the safe version, once.
    pub(crate) fn fall_back(&mut self) -> Option<Knobs> {
        if self.safe {
            return None;
        }
        self.safe = !self.best.split && !self.best.chain;
        self.best = Knobs { safe: self.safe, ..Knobs::default() };
        self.trying = self.best.clone();
        self.best_ms = None;
        Some(self.best.clone())
    }

    /// Whether the best version was measured, and so compared.
    pub(crate) fn was_measured(&self) -> bool {
        self.best_ms.is_some()
    }

    pub(crate) fn best(&self) -> Knobs {
        self.best.clone()
    }

    /// A sentence that summarises the result.
    pub(crate) fn summary(&self) -> String {
        let Some(ms) = self.best_ms else { return "It was not measured.".to_owned() };
        let mut text = format!("{ms:.4} ms with {}", self.best.describe());
        if let Some(first) = self.first_ms
            && first > ms
        {
            text.push_str(&format!(", from {first:.4} ms at first"));
        }
        if let Some((name, speedup)) = &self.speedup {
            text.push_str(&format!("; {speedup:.2} times as fast as {name}, the best baseline"));
        }
        if let Some(floor) = self.floor_ms {
            text.push_str(&format!("; the bytes that must move need {floor:.4} ms"));
        }
        if let Walk::Grid(left) = &self.walk
            && !left.is_empty()
        {
            text.push_str(&format!("; {} settings were not reached", left.len()));
        }
        text.push('.');
        text
    }
}

/// The knobs worth trying, the most promising first.
fn moves(cpu: bool, kernels: Kernels) -> Vec<Move> {
    let Kernels { rows, elements, heavy, splits } = kernels;
    let mut moves: Vec<Move> = Vec::new();
    if heavy {
        moves.push(|k| k.heavy += 1);
    }
    if cpu {
        if rows {
            moves.push(|k| k.reload = !k.reload);
        }
        moves.push(|k| k.items_shift += 2);
        moves.push(|k| k.vec_shift -= 1);
    } else {
        moves.push(|k| k.streaming = !k.streaming);
        moves.push(|k| k.items_shift += 1);
        if rows {
            moves.push(|k| k.threads_shift += 1);
            moves.push(|k| k.reload = !k.reload);
        }
        if elements {
            moves.push(|k| k.threads_shift += 1);
            moves.push(|k| k.persistent = !k.persistent);
        }
        moves.push(|k| k.items_shift -= 1);
        match splits {
            Some(true) => moves.push(|k| k.split = false),
            Some(false) => moves.insert(0, |k| k.split = true),
            None => {}
        }
    }
    moves
}

/// Number of heavy-operator variants tried; no operator has more.
const HEAVY: usize = 4;

/// Every setting of the relevant knobs, the plainest last. Many settings give the same files; the
/// caller measures each set of files once.
fn grid(cpu: bool, kernels: Kernels) -> Vec<Knobs> {
    let Kernels { rows, elements, heavy, splits } = kernels;
    let flags = |free: bool| if free { vec![false, true] } else { vec![false] };
    let all = vec![Knobs::default()];
    let all = vary(all, &[true, false], |k, on| k.chain = on);
    let all = vary(all, &flags(splits.is_some()), |k, on| k.split = on);
    let variants: Vec<usize> = (0..if heavy { HEAVY } else { 1 }).collect();
    let all = vary(all, &variants, |k, n| k.heavy = n);
    let all = vary(all, &flags(rows), |k, on| k.reload = on);
    let all = vary(all, &[0, 1, -1, 2], |k, n| k.items_shift = n);
    let all = vary(all, &[0, -1], |k, n| k.vec_shift = n);
    let all = vary(all, &flags(!cpu), |k, on| k.streaming = on);
    let all = vary(all, &flags(!cpu && elements), |k, on| k.persistent = on);
    let threads: &[i32] = if cpu { &[0] } else { &[0, 1, -1] };
    let mut all = vary(all, threads, |k, n| k.threads_shift = n);
    all.reverse();
    all
}

fn vary<T: Copy>(all: Vec<Knobs>, values: &[T], set: impl Fn(&mut Knobs, T)) -> Vec<Knobs> {
    let each = |knobs: Knobs| {
        values
            .iter()
            .map(|value| {
                let mut knobs = knobs.clone();
                set(&mut knobs, *value);
                knobs
            })
            .collect::<Vec<_>>()
    };
    all.into_iter().flat_map(each).collect()
}

/// Milliseconds of the candidate in a verdict that counts.
fn time_of(verdict: &Verdict) -> Option<f64> {
    let right = verdict.verified && verdict.failure.is_none() && verdict.integrity.is_empty();
    verdict.times_ms.candidate.as_ref().filter(|_| right).map(|t| t.value)
}
