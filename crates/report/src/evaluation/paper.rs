//! The results that *CUDA Agent* (arXiv 2602.24286, February 2026) states for KernelBench, to stand
//! beside ours.
//!
//! Its convention: the best candidate of the trajectory counts; "faster" is a point estimate above 1;
//! speed-up is over correct candidates only; five random inputs under `atol = rtol = 1e-2`; no
//! intervals. Measured on H20 GPUs. `docs/reference/evaluation-metrics.md` says what differs here.

use super::rows::Row;

/// What the paper states for one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperRow {
    /// The model.
    pub model: &'static str,
    /// Over 250 tasks.
    pub overall: PaperFigures,
    /// Levels 1 (100 tasks), 2 (100) and 3 (50).
    pub levels: [PaperFigures; 3],
}

/// Rates in percent, then factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperFigures {
    /// Right.
    pub pass: f64,
    /// Faster than eager.
    pub faster_eager: f64,
    /// Faster than `torch.compile`, default mode.
    pub faster_compile: f64,
    /// Geometric-mean speed-up over eager.
    pub speedup_eager: f64,
    /// Geometric-mean speed-up over `torch.compile`.
    pub speedup_compile: f64,
}

const fn figures(rates: [f64; 3], speedups: [f64; 2]) -> PaperFigures {
    PaperFigures {
        pass: rates[0],
        faster_eager: rates[1],
        faster_compile: rates[2],
        speedup_eager: speedups[0],
        speedup_compile: speedups[1],
    }
}

/// The paper's table of results.
pub const PAPER: [PaperRow; 6] = [
    PaperRow {
        model: "Seed1.6 base",
        overall: figures([74.0, 43.6, 27.2], [0.95, 0.69]),
        levels: [
            figures([90.0, 63.0, 51.0], [1.65, 1.25]),
            figures([74.0, 40.0, 16.0], [0.68, 0.50]),
            figures([42.0, 12.0, 2.0], [0.60, 0.40]),
        ],
    },
    PaperRow {
        model: "GLM 4.6",
        overall: figures([75.6, 44.8, 19.2], [0.78, 0.57]),
        levels: [
            figures([86.0, 57.0, 32.0], [0.99, 0.73]),
            figures([76.0, 43.0, 11.0], [0.60, 0.42]),
            figures([54.0, 24.0, 10.0], [0.83, 0.62]),
        ],
    },
    PaperRow {
        model: "Kimi K2",
        overall: figures([66.8, 40.8, 22.8], [0.93, 0.66]),
        levels: [
            figures([85.0, 56.0, 39.0], [1.43, 1.00]),
            figures([65.0, 40.0, 15.0], [0.93, 0.65]),
            figures([34.0, 12.0, 6.0], [0.40, 0.29]),
        ],
    },
    PaperRow {
        model: "Gemini 3 Pro",
        overall: figures([91.2, 87.6, 69.6], [1.92, 1.42]),
        levels: [
            figures([95.0, 90.0, 72.0], [1.99, 1.51]),
            figures([93.0, 91.0, 76.0], [2.03, 1.46]),
            figures([80.0, 76.0, 52.0], [1.58, 1.17]),
        ],
    },
    PaperRow {
        model: "Claude Opus 4.5",
        overall: figures([95.2, 90.4, 66.4], [1.99, 1.46]),
        levels: [
            figures([96.0, 88.0, 72.0], [2.03, 1.54]),
            figures([98.0, 97.0, 69.0], [2.24, 1.60]),
            figures([88.0, 82.0, 50.0], [1.52, 1.10]),
        ],
    },
    PaperRow {
        model: "CUDA Agent",
        overall: figures([98.8, 98.4, 96.8], [2.60, 2.11]),
        levels: [
            figures([100.0, 99.0, 97.0], [2.48, 1.87]),
            figures([100.0, 100.0, 100.0], [3.27, 2.80]),
            figures([94.0, 94.0, 90.0], [1.80, 1.52]),
        ],
    },
];

impl PaperRow {
    /// The figures of `overall`, `level1`, `level2` or `level3`.
    pub fn scope(&self, name: &str) -> Option<&PaperFigures> {
        match name {
            "overall" => Some(&self.overall),
            "level1" => Some(&self.levels[0]),
            "level2" => Some(&self.levels[1]),
            "level3" => Some(&self.levels[2]),
            _ => None,
        }
    }
}

/// Whether these are tasks of a KernelBench checkout: every one is in level 1, 2 or 3 and has the
/// checkout's form of name, the level and then a number within that level (`level2-17_...`), without
/// leading zeros, which our own suites have.
pub fn is_kernelbench(rows: &[Row]) -> bool {
    let fits = |row: &Row| {
        let most = match row.level.as_deref() {
            Some("level1" | "level2") => 100,
            Some("level3") => 50,
            _ => return false,
        };
        let level = row.level.as_deref().unwrap_or_default();
        let stem = row.task.strip_prefix(level).and_then(|rest| rest.strip_prefix('-'));
        let Some((digits, _)) = stem.and_then(|stem| stem.split_once('_')) else { return false };
        let number = digits.parse().is_ok_and(|number: u32| (1..=most).contains(&number));
        number && !digits.starts_with('0')
    };
    !rows.is_empty() && rows.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The overall rates are the levels', weighted by 100, 100 and 50 tasks.
    #[test]
    fn the_papers_rates_add_up() {
        for row in PAPER {
            let rates = |f: &PaperFigures| [f.pass, f.faster_eager, f.faster_compile];
            let [one, two, three] = row.levels.map(|f| rates(&f));
            for (i, overall) in rates(&row.overall).into_iter().enumerate() {
                let mean = one[i] * 0.4 + two[i] * 0.4 + three[i] * 0.2;
                assert!((mean - overall).abs() < 0.05, "{}: {mean} {overall}", row.model);
            }
        }
    }
}
