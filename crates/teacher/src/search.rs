//! The search over the teacher's own variants: one knob at a time from the best so far.

use std::collections::BTreeSet;

use warpwright_record::verdict::Verdict;

use crate::chain;
use crate::draft::Draft;
use crate::plan::Step;
use crate::policy::time_of;
use crate::program::Files;
use crate::tune::Knobs;

/// Measurements on a GPU, the first version included.
const GPU_PROFILES: u32 = 8;
/// Measurements on the cpu device.
const CPU_PROFILES: u32 = 4;
/// A variant must be faster by this share to replace the best: less is noise.
const MARGIN: f64 = 0.01;
/// The search ends within this share of the floor.
const NEAR_FLOOR: f64 = 1.05;

/// See the module.
#[derive(Debug)]
pub(crate) struct Search {
    moves: Vec<Move>,
    profiles_left: u32,
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

impl Search {
    pub(crate) fn new(draft: &Draft) -> Self {
        let splits = draft.splits();
        let mut first = Knobs { split: splits == Some(true), chain: true, ..Knobs::default() };
        first.chain = draft.files(&first).is_ok_and(|files| files.contains_key(chain::FILE));
        let (target, plan) = (draft.target(), draft.plan(&first));
        let rows = plan.steps.iter().any(|s| matches!(s, Step::Rows(_)));
        let elements = plan.steps.iter().any(|s| matches!(s, Step::Elementwise(_)));
        let heavy = plan.steps.iter().any(|s| matches!(s, Step::Heavy { .. }));
        let mut moves: Vec<Move> = Vec::new();
        if heavy {
            moves.push(|k| k.heavy += 1);
        }
        if target.cpu {
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
        Self {
            moves,
            profiles_left: if target.cpu { CPU_PROFILES } else { GPU_PROFILES },
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
        if self.safe || at_floor || self.profiles_left == 0 || self.moves.is_empty() {
            return None;
        }
        let step = self.moves.remove(0);
        let mut knobs = self.best.clone();
        step(&mut knobs);
        self.trying = knobs.clone();
        Some(knobs)
    }

    /// Remembers files; false if these were measured before.
    pub(crate) fn note(&mut self, files: &Files) -> bool {
        self.seen.insert(format!("{files:?}"))
    }

    /// Takes in a measurement of the variant being tried.
    pub(crate) fn measured(&mut self, verdict: &Verdict) {
        self.profiles_left = self.profiles_left.saturating_sub(1);
        self.floor_ms = verdict.floor_ms.or(self.floor_ms);
        let Some(ms) = time_of(verdict) else { return };
        self.first_ms.get_or_insert(ms);
        if self.best_ms.is_none_or(|best| ms < best * (1.0 - MARGIN)) {
            self.best_ms = Some(ms);
            self.best = self.trying.clone();
            let name = verdict.speedup.best_baseline.clone();
            self.speedup = name.zip(verdict.speedup.best.map(|s| s.value));
        }
    }

    /// The variant could not be measured.
    pub(crate) fn failed(&mut self) {
        self.profiles_left = self.profiles_left.saturating_sub(1);
    }

    /// Measuring does not work here: no search.
    pub(crate) fn give_up(&mut self) {
        self.moves.clear();
    }

    /// What to try when a version failed: kernels one by one and whole products first, then the safe
    /// version, once.
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

    /// A sentence on what was reached.
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
        text.push('.');
        text
    }
}
