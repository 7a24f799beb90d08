//! Kernels of known speed, and statistics on the judge's verdicts about them. Pure.
//!
//! The kernel copies its input through a given number of dependent multiplications by one. That number sets
//! its time, its result does not depend on it, and the code is the same on both sides.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warpwright_record::candidate::Candidate;
use warpwright_record::exactness::{Exactness, Rate};
use warpwright_record::interval::Interval;
use warpwright_task::Task;

use crate::timing::stats;

const KERNEL: &str = r#"
#include <cuda_runtime.h>
__global__ void work(const float* x, float* out, int n, int steps, float one, float zero) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        for (int k = 0; k < steps; ++k) v = fmaf(v, one, zero);
        out[i] = v;
    }
}
extern "C" void work_launcher(const float* x, float* out, int n, int steps, float one, float zero,
                              cudaStream_t stream) {
    work<<<(n + 255) / 256, 256, 0, stream>>>(x, out, n, steps, one, zero);
}
"#;

/// A module of this name that does so much work.
fn module(name: &str, steps: u32) -> String {
    format!(
        "import torch\nimport cuda_extension\n\n\
         class {name}(torch.nn.Module):\n    \
             def forward(self, x):\n        \
                 out = torch.empty_like(x)\n        \
                 cuda_extension.work_launcher(x, out, x.numel(), {steps}, 1.0, 0.0)\n        \
                 return out\n"
    )
}

fn inputs(elements: usize) -> String {
    format!(
        "\ndef get_inputs():\n    return [torch.randn({elements})]\n\n\
         def get_init_inputs():\n    return []\n"
    )
}

/// The reference of the kernels.
pub(crate) fn task(elements: usize) -> Task {
    let model = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        \
                 return x.clone()\n";
    Task::from_source("calibration", format!("{model}{}", inputs(elements)))
}

/// The kernel in place of a baseline.
pub(crate) fn contender(elements: usize, steps: u32) -> Task {
    let source = format!("{}{}", module("Model", steps), inputs(elements));
    Task::from_source("calibration", &source)
}

/// The kernel as a candidate.
pub(crate) fn candidate(steps: u32) -> Candidate {
    Candidate::from_files(BTreeMap::from([
        ("model_new.py".to_owned(), module("ModelNew", steps).into_bytes()),
        ("kernels/work.cu".to_owned(), KERNEL.as_bytes().to_vec()),
    ]))
}

/// Speed of a calibration candidate relative to its contender, by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Equally fast.
    Identical,
    /// 5 % faster: at the margin at which rewards change.
    Boundary,
    /// 7 % faster.
    Faster,
    /// 7 % slower.
    Slower,
}

impl Kind {
    /// Two of three are identical: what matters most is how often those are called different.
    pub(crate) const CYCLE: [Self; 9] = [
        Self::Identical,
        Self::Identical,
        Self::Boundary,
        Self::Identical,
        Self::Identical,
        Self::Faster,
        Self::Identical,
        Self::Identical,
        Self::Slower,
    ];

    /// Time of the contender over that of the candidate.
    fn ratio(self) -> f64 {
        match self {
            Self::Identical => 1.0,
            Self::Boundary => 1.05,
            Self::Faster => 1.07,
            Self::Slower => 0.93,
        }
    }
}

/// How a machine's time of a call depends on the work of it, near one amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    /// The candidate's work.
    pub(crate) steps: u32,
    /// Seconds of a call with it.
    pub(crate) seconds: f64,
    /// Seconds that one step more takes.
    pub(crate) per_step: f64,
}

impl Slope {
    /// From the times of two amounts of work, the second larger. Where noise hides what the difference
    /// takes, time is taken as proportional to work.
    pub(crate) fn between((less, short): (u32, f64), (more, long): (u32, f64)) -> Self {
        let slope = (long - short) / f64::from(more - less);
        let proportional = short / f64::from(less);
        let plausible = slope > 0.2 * proportional && slope < 5.0 * proportional;
        let per_step = if plausible { slope } else { proportional };
        Self { steps: less, seconds: short, per_step }
    }

    /// Work of a contender.
    pub(crate) fn steps_of(self, kind: Kind) -> u32 {
        let more = (kind.ratio() - 1.0) * self.seconds / self.per_step;
        (f64::from(self.steps) + more).round().max(1.0) as u32
    }
}

/// One measurement of kernels whose speed is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Relative speed of the candidate.
    pub kind: Kind,
    /// Time per call of the candidate in microseconds.
    pub microseconds: f64,
    /// The speed-up that the judge measured.
    pub speedup: Interval,
    /// Number of measured rounds.
    pub rounds: u32,
    /// Coefficient of variation of the candidate's windows.
    pub variation: f64,
}

impl Trial {
    fn faster(&self) -> bool {
        self.speedup.low > 1.05
    }

    fn slower(&self) -> bool {
        self.speedup.high < 0.95
    }
}

/// Timing accuracy of a machine, from its trials.
pub(crate) fn tally(trials: &[Trial]) -> Exactness {
    let of = |kind| trials.iter().filter(move |trial| trial.kind == kind);
    let median = |values: Vec<f64>| (!values.is_empty()).then(|| stats::rough(&values));
    let ratio = |kind| median(of(kind).map(|trial| trial.speedup.value).collect());
    Exactness {
        identical_faster: Rate::count(of(Kind::Identical).map(Trial::faster)),
        identical_slower: Rate::count(of(Kind::Identical).map(Trial::slower)),
        identical_ratio: ratio(Kind::Identical),
        boundary_faster: Rate::count(of(Kind::Boundary).map(Trial::faster)),
        boundary_ratio: ratio(Kind::Boundary),
        faster_found: Rate::count(of(Kind::Faster).map(Trial::faster)),
        slower_found: Rate::count(of(Kind::Slower).map(Trial::slower)),
        variation: median(trials.iter().map(|trial| trial.variation).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(kind: Kind, low: f64, value: f64, high: f64) -> Trial {
        let speedup = Interval { value, low, high };
        Trial { kind, microseconds: 100.0, speedup, rounds: 7, variation: value / 100.0 }
    }

    #[test]
    fn work_is_chosen_for_the_requested_time_ratio() {
        // 4 us that no work takes, and 2 ns a step.
        let time = |steps: u32| 4e-6 + 2e-9 * f64::from(steps);
        let slope = Slope::between((8000, time(8000)), (10_000, time(10_000)));
        for kind in [Kind::Identical, Kind::Boundary, Kind::Faster, Kind::Slower] {
            let ratio = time(slope.steps_of(kind)) / time(8000);
            assert!((ratio - kind.ratio()).abs() < 1e-4, "{kind:?}: {ratio}");
        }
        let noisy = Slope::between((8000, 2e-5), (10_000, 1.9e-5));
        assert_eq!(noisy.steps_of(Kind::Faster), 8560, "as if time were work alone");
    }

    #[test]
    fn the_tally_counts_faster_and_slower_calls() {
        let trials = [
            trial(Kind::Identical, 0.99, 1.0, 1.01),
            trial(Kind::Identical, 1.06, 1.08, 1.1),
            trial(Kind::Identical, 0.9, 0.92, 0.94),
            trial(Kind::Boundary, 1.04, 1.05, 1.06),
            trial(Kind::Faster, 1.06, 1.07, 1.08),
            trial(Kind::Slower, 0.92, 0.93, 0.96),
        ];
        let told = tally(&trials);
        let counts = |rate: Option<Rate>| rate.map(|rate| (rate.times, rate.of));
        assert_eq!(counts(told.identical_faster), Some((1, 3)));
        assert_eq!(counts(told.identical_slower), Some((1, 3)));
        assert_eq!(counts(told.boundary_faster), Some((0, 1)));
        assert_eq!(counts(told.faster_found), Some((1, 1)));
        assert_eq!(counts(told.slower_found), Some((0, 1)));
        assert_eq!((told.identical_ratio, told.boundary_ratio), (Some(1.0), Some(1.05)));
        assert_eq!(tally(&[]), Exactness::default());
    }

    /// The same kernel on both sides: the texts differ in the name of the class alone.
    #[test]
    fn both_sides_run_the_same_source() {
        let ours = candidate(77);
        let ours = String::from_utf8(ours.files()["model_new.py"].clone()).unwrap();
        let theirs = contender(64, 77).source;
        assert!(theirs.starts_with(&ours.replace("ModelNew", "Model")), "{theirs}");
    }
}
