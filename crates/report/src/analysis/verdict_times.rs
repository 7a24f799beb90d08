//! Durations of verdicts by the length of the candidate's call.

use serde::{Deserialize, Serialize};
use warpwright_record::history::{Episode, History};
use warpwright_record::verdict::{PhaseSeconds, Verdict};

use super::{AnalysisError, VERSION};
use crate::evaluation::statistics::quantile;
use crate::figures;
use crate::table::{right, style, trimmed};

/// At most this many rows.
const PARTS: usize = 10;

/// The measured verdicts of a run, by deciles of the time of the candidate's call. Copies of earlier
/// verdicts are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictTimes {
    /// Version of the serialised form.
    pub version: u32,
    /// The run.
    pub run: String,
    /// From the shortest calls to the longest.
    pub deciles: Vec<Decile>,
}

/// A tenth of the verdicts. Seconds and rounds are medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decile {
    /// Shortest call in milliseconds.
    pub shortest_ms: f64,
    /// Longest call in milliseconds.
    pub longest_ms: f64,
    /// Number of verdicts.
    pub verdicts: u32,
    /// Seconds to build the candidate.
    pub build: f64,
    /// Seconds to load it.
    pub load: f64,
    /// Seconds to verify it.
    pub verify: f64,
    /// Seconds to measure it.
    pub measure: f64,
    /// Seconds of load, verify and measure together, in which the candidate holds the device.
    pub device: f64,
    /// Verdicts per hour of such device time; `None` if they take none.
    pub verdicts_per_hour: Option<f64>,
    /// Rounds that were measured.
    pub rounds: f64,
}

/// One measured verdict.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    call_ms: f64,
    seconds: PhaseSeconds,
    rounds: u32,
}

impl VerdictTimes {
    /// Computes the deciles of the run named `run`.
    ///
    /// # Errors
    /// [`AnalysisError::Empty`] if no candidate was measured.
    pub fn of(run: &str, history: &History) -> Result<Self, AnalysisError> {
        let verdicts = history.episodes.values().flat_map(Episode::verdicts);
        let timings: Vec<Timing> =
            verdicts.filter_map(|(_, given)| Timing::of(&given.verdict)).collect();
        if timings.is_empty() {
            let cure = "name a run in which the judge has measured a candidate";
            let (run, what) = (run.to_owned(), "measured verdict");
            return Err(AnalysisError::Empty { run, what, cure });
        }
        Ok(Self { version: VERSION, run: run.to_owned(), deciles: deciles(timings) })
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut grid = style(width);
        grid.set_header([
            "call", "verdicts", "build", "load", "verify", "measure", "device", "per hour",
            "rounds",
        ]);
        for part in &self.deciles {
            let seconds = [part.build, part.load, part.verify, part.measure, part.device];
            let range = format!(
                "{} to {}",
                figures::time(part.shortest_ms),
                figures::time(part.longest_ms)
            );
            let mut cells = vec![right(Some(range)), right(Some(part.verdicts.to_string()))];
            cells.extend(seconds.map(|seconds| right(Some(format!("{seconds:.2} s")))));
            cells.push(right(part.verdicts_per_hour.map(|count| format!("{count:.0}"))));
            cells.push(right(Some(format!("{:.0}", part.rounds))));
            grid.add_row(cells);
        }
        trimmed(&format!(
            "{grid}\nMedians of measured verdicts. Device: load, verify and measure, in which a \
             candidate holds the\ndevice. Per hour: such candidates per hour of device time."
        ))
    }
}

impl Timing {
    fn of(verdict: &Verdict) -> Option<Self> {
        let call = verdict.times_ms.candidate.filter(|_| !verdict.is_copy())?;
        let rounds = verdict.times_ms.rounds.unwrap_or_default();
        Some(Self { call_ms: call.value, seconds: verdict.seconds, rounds })
    }

    fn device(&self) -> f64 {
        self.seconds.load + self.seconds.verify + self.seconds.measure
    }
}

fn deciles(mut timings: Vec<Timing>) -> Vec<Decile> {
    timings.sort_by(|a, b| a.call_ms.total_cmp(&b.call_ms));
    let count = timings.len();
    let parts = count.min(PARTS);
    let part = |i: usize| &timings[count * i / parts..count * (i + 1) / parts];
    (0..parts).filter_map(|i| decile(part(i))).collect()
}

/// The decile of timings sorted by call; `None` if empty.
fn decile(part: &[Timing]) -> Option<Decile> {
    let median = |of: fn(&Timing) -> f64| {
        let mut values: Vec<f64> = part.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.5)
    };
    let device = median(Timing::device)?;
    Some(Decile {
        shortest_ms: part.first()?.call_ms,
        longest_ms: part.last()?.call_ms,
        verdicts: part.len() as u32,
        build: median(|timing| timing.seconds.build)?,
        load: median(|timing| timing.seconds.load)?,
        verify: median(|timing| timing.seconds.verify)?,
        measure: median(|timing| timing.seconds.measure)?,
        device,
        verdicts_per_hour: (device > 0.0).then(|| 3600.0 / device),
        rounds: median(|timing| f64::from(timing.rounds))?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timing(call_ms: f64, measure: f64) -> Timing {
        let seconds = PhaseSeconds { load: 0.1, verify: 0.2, measure, ..PhaseSeconds::default() };
        Timing { call_ms, seconds, rounds: 7 }
    }

    #[test]
    fn deciles_are_medians_of_tenths_by_call() {
        // 20 verdicts, the longest call first.
        let timings = (1..=20).rev().map(|n| timing(f64::from(n), f64::from(n) / 10.0)).collect();
        let deciles = deciles(timings);
        assert_eq!(deciles.len(), 10);
        let last = &deciles[9];
        assert_eq!((last.shortest_ms, last.longest_ms, last.verdicts), (19.0, 20.0, 2));
        assert!((last.measure - 1.95).abs() < 1e-12 && (last.device - 2.25).abs() < 1e-12);
        assert!((last.verdicts_per_hour.unwrap() - 1600.0).abs() < 1e-9);
        assert!((last.rounds - 7.0).abs() < 1e-12);
        let text = VerdictTimes { version: VERSION, run: "r".to_owned(), deciles }.text(None);
        assert!(text.contains("19.0 ms to 20.0 ms"), "{text}");
        assert!(text.contains("1600"), "{text}");
    }

    #[test]
    fn run_without_measured_verdicts_is_refused() {
        let error = VerdictTimes::of("runs/empty", &History::default()).unwrap_err();
        let message = "failed to analyse runs/empty: there is no measured verdict";
        assert_eq!(error.to_string(), message);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_verdict_is_in_one_decile(calls in prop::collection::vec(0.01f64..10.0, 1..60)) {
            let count = calls.len();
            let deciles = deciles(calls.into_iter().map(|call| timing(call, 0.5)).collect());
            let sum: u32 = deciles.iter().map(|part| part.verdicts).sum();
            prop_assert_eq!((sum as usize, deciles.len()), (count, count.min(10)));
            prop_assert!(deciles.windows(2).all(|two| two[0].longest_ms <= two[1].shortest_ms));
            prop_assert!(deciles.iter().all(|part| (part.device - 0.8).abs() < 1e-12));
        }
    }
}
