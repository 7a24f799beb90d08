//! The time of each RL training step, split by what its episodes waited for.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use warpwright_record::event::{EpisodeId, Event, EventLine};
use warpwright_record::reader::RunReader;

use super::{AnalysisError, VERSION};
use crate::evaluation::statistics::{mean, quantile};
use crate::table::{right, style, trimmed};

/// Number of episodes that end last, whose waits are shown.
const LAST: usize = 10;

/// The training steps of a stage, by the record of its episodes. Times are in seconds from the first
/// episode of the step. With staleness above 0 steps overlap: a step then takes longer than the
/// interval between steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Version of the serialised form.
    pub version: u32,
    /// The run folder of the stage.
    pub run: String,
    /// Number of episodes per training step.
    pub episodes_per_step: u32,
    /// One per training step with episodes.
    pub steps: Vec<StepTime>,
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Number of the batch of episodes, from 1. It equals the training step unless the run rolled back.
    pub step: u32,
    /// Number of recorded episodes.
    pub episodes: u32,
    /// End of the last episode.
    pub all: f64,
    /// Median end of an episode.
    pub p50: f64,
    /// 90th percentile of the ends.
    pub p90: f64,
    /// Mean time in which an episode's messages were sampled.
    pub sampling: f64,
    /// Mean end of the ten episodes that end last.
    pub last_ten: f64,
    /// Mean over these ten of the longest wait for a verdict.
    pub waited: f64,
    /// Number of verdicts, without copies of earlier ones.
    pub measured: u32,
    /// Of these, those that prepared the baselines first.
    pub baselines: u32,
}

/// What the record says of an episode.
#[derive(Clone, Debug)]
struct Played {
    began: Timestamp,
    /// Time of the latest event.
    latest: Timestamp,
    sampling: f64,
    longest_wait: f64,
    measured: u32,
    baselines: u32,
}

impl Played {
    /// Extends the episode to `time`. A verdict ends a wait.
    fn extend(&mut self, time: Timestamp, is_verdict: bool) {
        if is_verdict {
            self.longest_wait = self.longest_wait.max(seconds_between(self.latest, time));
        }
        self.latest = time;
    }
}

impl StepTimes {
    /// Reads the record in `run`; a training step has `episodes_per_step` episodes.
    ///
    /// # Errors
    /// [`AnalysisError::Empty`] if the run has no episode, [`AnalysisError::Read`].
    pub fn read(run: &RunReader, episodes_per_step: u32) -> Result<Self, AnalysisError> {
        let mut played = BTreeMap::new();
        for line in run.events()? {
            apply(&mut played, &line?);
        }
        let name = run.dir().display().to_string();
        if played.is_empty() {
            let cure = "name the folder `record` of an RL stage that has begun an episode";
            return Err(AnalysisError::Empty { run: name, what: "episode", cure });
        }
        Ok(Self::of(name, &played, episodes_per_step))
    }

    fn of(run: String, played: &BTreeMap<EpisodeId, Played>, episodes_per_step: u32) -> Self {
        let each = episodes_per_step.max(1);
        let mut steps: BTreeMap<u32, Vec<&Played>> = BTreeMap::new();
        for (episode, played) in played {
            steps.entry(episode.0 / each).or_default().push(played);
        }
        let steps = steps.into_iter().filter_map(|(number, played)| step(number + 1, played));
        Self { version: VERSION, run, episodes_per_step: each, steps: steps.collect() }
    }

    /// The table as text for a terminal `width` columns wide.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut grid = style(width);
        grid.set_header([
            "step",
            "episodes",
            "all",
            "p50",
            "p90",
            "sampling",
            "last ten",
            "waited",
            "measured",
            "baselines",
        ]);
        for step in &self.steps {
            let seconds = [step.all, step.p50, step.p90, step.sampling, step.last_ten, step.waited];
            let mut cells =
                vec![right(Some(step.step.to_string())), right(Some(step.episodes.to_string()))];
            cells.extend(seconds.map(|seconds| right(Some(format!("{seconds:.1} s")))));
            cells.push(right(Some(step.measured.to_string())));
            cells.push(right(Some(step.baselines.to_string())));
            grid.add_row(cells);
        }
        trimmed(&format!(
            "{grid}\nTimes are from the first episode of a step.\n\
             all, p50, p90: end of all, half, nine tenths of the episodes.\n\
             sampling: mean time in which an episode's messages were sampled.\n\
             last ten: mean end of the ten episodes that end last; waited: mean of their longest \
             waits for a verdict.\n\
             measured: verdicts without copies; baselines: those that prepared baselines."
        ))
    }
}

/// Takes in one more event of the record.
fn apply(played: &mut BTreeMap<EpisodeId, Played>, line: &EventLine) {
    let Some(episode) = line.event.episode() else { return };
    let played = played.entry(episode).or_insert_with(|| Played {
        began: line.time,
        latest: line.time,
        sampling: 0.0,
        longest_wait: 0.0,
        measured: 0,
        baselines: 0,
    });
    match &line.event {
        Event::MessageSaid { seconds, .. } => played.sampling += seconds,
        Event::VerdictGiven { verdict, .. } if !verdict.is_copy() => {
            played.measured += 1;
            played.baselines += u32::from(verdict.seconds.baselines > 0.0);
        }
        _ => {}
    }
    played.extend(line.time, matches!(line.event, Event::VerdictGiven { .. }));
}

/// `None` without episodes.
fn step(number: u32, mut played: Vec<&Played>) -> Option<StepTime> {
    let began = played.iter().map(|episode| episode.began).min()?;
    played.sort_by_key(|episode| episode.latest);
    let ends: Vec<f64> =
        played.iter().map(|episode| seconds_between(began, episode.latest)).collect();
    let from = played.len().saturating_sub(LAST);
    let waits: Vec<f64> = played[from..].iter().map(|episode| episode.longest_wait).collect();
    let sampling: Vec<f64> = played.iter().map(|episode| episode.sampling).collect();
    Some(StepTime {
        step: number,
        episodes: played.len() as u32,
        all: *ends.last()?,
        p50: quantile(&ends, 0.5)?,
        p90: quantile(&ends, 0.9)?,
        sampling: mean(&sampling)?,
        last_ten: mean(&ends[from..])?,
        waited: mean(&waits)?,
        measured: played.iter().map(|episode| episode.measured).sum(),
        baselines: played.iter().map(|episode| episode.baselines).sum(),
    })
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn played(began: i64, latest: i64, longest_wait: f64) -> Played {
        Played {
            began: at(began),
            latest: at(latest),
            sampling: 2.0,
            longest_wait,
            measured: 3,
            baselines: 1,
        }
    }

    #[test]
    fn step_times_match_hand_computed_values() {
        // Two steps of two episodes; the last step has one so far.
        let all = [played(0, 10, 1.0), played(5, 30, 4.0), played(20, 50, 2.0)];
        let all: BTreeMap<EpisodeId, Played> = (0..).map(EpisodeId).zip(all).collect();
        let times = StepTimes::of("run".to_owned(), &all, 2);
        let expected = StepTime {
            step: 1,
            episodes: 2,
            all: 30.0,
            p50: 20.0,
            p90: 28.0,
            sampling: 2.0,
            last_ten: 20.0,
            waited: 2.5,
            measured: 6,
            baselines: 2,
        };
        assert_eq!(times.steps[0], expected);
        assert_eq!((times.steps[1].step, times.steps[1].episodes), (2, 1));
        assert!((times.steps[1].all - 30.0).abs() < 1e-9);
        assert!(times.text(None).contains("28.0 s"), "{}", times.text(None));
    }

    #[test]
    fn longest_wait_is_the_longest_gap_before_a_verdict() {
        let mut episode = played(0, 0, 0.0);
        for (seconds, is_verdict) in [(7, false), (10, true), (12, false), (13, true)] {
            episode.extend(at(seconds), is_verdict);
        }
        assert!((episode.longest_wait - 3.0).abs() < 1e-12);
        assert_eq!(episode.latest, at(13));
    }

    #[test]
    fn events_without_an_episode_are_ignored() {
        let mut all = BTreeMap::new();
        let episode = Some(EpisodeId(4));
        for (seq, seconds) in [(0, 0), (1, 7)] {
            let event = Event::Progress { episode, text: String::new() };
            apply(&mut all, &EventLine { version: 1, seq, time: at(seconds), event });
        }
        let event = Event::Progress { episode: None, text: String::new() };
        apply(&mut all, &EventLine { version: 1, seq: 2, time: at(9), event });
        assert_eq!(all.len(), 1, "an event of no episode is left out");
        let played = &all[&EpisodeId(4)];
        assert_eq!((played.began, played.latest), (at(0), at(7)));
        assert!(played.longest_wait.abs() < 1e-12, "it did not wait for a verdict");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every episode is in one step; ends are in order.
        #[test]
        fn every_episode_is_in_one_step(
            ends in prop::collection::vec(1i64..500, 1..40), each in 1u32..10
        ) {
            let count = ends.len();
            let all = ends.into_iter().map(|end| played(0, end, 0.0));
            let all: BTreeMap<EpisodeId, Played> = (0..).map(EpisodeId).zip(all).collect();
            let times = StepTimes::of("run".to_owned(), &all, each);
            let sum: u32 = times.steps.iter().map(|step| step.episodes).sum();
            prop_assert_eq!(sum as usize, count);
            let in_order = |s: &StepTime| s.p50 <= s.p90 && s.p90 <= s.all && s.last_ten <= s.all;
            prop_assert!(times.steps.iter().all(in_order));
        }
    }
}
