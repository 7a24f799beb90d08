//! Decides from GPU readings which rounds count. Pure.

use super::{Reasons, Sample};

/// By how much the SM clock after a window may lie below the median of the same contender's windows:
/// the margin at which rewards change. A round whose windows run at clocks that differ by less cannot
/// move a ratio across it alone.
const FALL: f64 = 0.05;

/// Why a round does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Disturbance {
    /// The hardware divided the clocks.
    Slowdown(Reasons),
    /// The SM clock fell without a power cap: heat, or a GPU that had gone to sleep.
    Fall { from: u32, to: u32 },
}

impl std::fmt::Display for Disturbance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Slowdown(reasons) => f.write_str(&reasons.names().join(", ")),
            Self::Fall { from, to } => write!(f, "the SM clock fell from {from} to {to} MHz"),
        }
    }
}

/// One reading after each contender's window, by contender; none where there was no reading.
pub(crate) type RoundSamples = Vec<Option<Sample>>;

/// The rounds that the machine disturbed, and why. All rounds so far are looked at: whether a clock is
/// low is known once there are others to compare with.
///
/// A software power cap is what a heavy kernel lawfully runs into. It moves clocks by more than
/// [`FALL`] between windows, for the candidate as for its baselines, and rounds are paired and in
/// random order: it is told, and rejects nothing.
pub(crate) fn disturbed(rounds: &[RoundSamples]) -> Vec<(usize, Disturbance)> {
    let contenders = rounds.iter().map(Vec::len).max().unwrap_or(0);
    let usual: Vec<Option<u32>> = (0..contenders).map(|who| median_clock(rounds, who)).collect();
    let of = |samples: &RoundSamples| {
        let violent = samples.iter().flatten().fold(0, |all, s| all | s.reasons.violent().0);
        if violent != 0 {
            return Some(Disturbance::Slowdown(Reasons(violent)));
        }
        let reasons = samples.iter().flatten().fold(0, |all, s| all | s.reasons.0);
        if Reasons(reasons).has(Reasons::POWER_CAP) && !Reasons(reasons).has(Reasons::SLOWDOWN) {
            return None;
        }
        samples.iter().zip(&usual).find_map(|(sample, usual)| {
            let (to, from) = ((*sample)?.sm_mhz?, (*usual)?);
            let fell = f64::from(to) < (1.0 - FALL) * f64::from(from);
            fell.then_some(Disturbance::Fall { from, to })
        })
    };
    rounds.iter().enumerate().filter_map(|(i, samples)| Some((i, of(samples)?))).collect()
}

/// Median SM clock after one contender's windows.
fn median_clock(rounds: &[RoundSamples], who: usize) -> Option<u32> {
    let clock = |samples: &RoundSamples| samples.get(who).copied().flatten()?.sm_mhz;
    let mut clocks: Vec<u32> = rounds.iter().filter_map(clock).collect();
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as it is read")]
    fn at(sm_mhz: u32, reasons: u64) -> Option<Sample> {
        Some(Sample { sm_mhz: Some(sm_mhz), reasons: Reasons(reasons), ..Sample::default() })
    }

    fn steady(n: usize) -> Vec<RoundSamples> {
        (0..n).map(|i| vec![at(1980 - 15 * (i as u32 % 3), 0), at(1980, 1)]).collect()
    }

    #[test]
    fn steps_of_boost_clocks_disturb_nothing() {
        assert_eq!(disturbed(&steady(9)), []);
        assert_eq!(disturbed(&[]), []);
    }

    #[test]
    fn a_slowdown_of_the_hardware_disturbs_its_round() {
        for (bit, name) in [(0x40, "hw_thermal_slowdown"), (0x80, "hw_power_brake_slowdown")] {
            let mut rounds = steady(7);
            rounds[3][1] = at(990, bit);
            let [(3, why)] = disturbed(&rounds)[..] else { panic!("{name}") };
            assert_eq!(why.to_string(), name);
        }
    }

    /// Some drivers tell of a slowdown whenever clocks change: one that left them as they were is none,
    /// one that lowered them is, a power cap beside it or not.
    #[test]
    fn a_slowdown_without_a_cause_counts_where_clocks_fell() {
        let mut rounds = steady(7);
        rounds[3][1] = at(1980, Reasons::SLOWDOWN);
        assert_eq!(disturbed(&rounds), []);
        rounds[3][1] = at(990, Reasons::SLOWDOWN | Reasons::POWER_CAP);
        assert!(matches!(disturbed(&rounds)[..], [(3, Disturbance::Fall { to: 990, .. })]));
    }

    /// The same fall twice: without a power cap the round does not count, with one it does.
    #[test]
    fn a_power_cap_rejects_no_round() {
        let mut rounds = steady(7);
        rounds[2][0] = at(1700, 0);
        let [(2, Disturbance::Fall { from: 1965, to: 1700 })] = disturbed(&rounds)[..] else {
            panic!("{:?}", disturbed(&rounds))
        };
        rounds[2][0] = at(1700, Reasons::POWER_CAP);
        assert_eq!(disturbed(&rounds), []);
    }

    /// A heavy candidate runs at lower clocks than its baselines; that is no fall.
    #[test]
    fn clocks_are_compared_per_contender() {
        let heavy: Vec<RoundSamples> = (0..7).map(|_| vec![at(1400, 0), at(1980, 0)]).collect();
        assert_eq!(disturbed(&heavy), []);
    }

    /// A GPU that slept runs the first round slowly, which is seen once it is awake.
    #[test]
    fn a_slow_first_round_is_found_by_later_ones() {
        let mut rounds = vec![vec![at(345, 1), at(1200, 0)]];
        assert_eq!(disturbed(&rounds), []);
        rounds.extend(steady(2));
        assert!(matches!(disturbed(&rounds)[..], [(0, Disturbance::Fall { to: 345, .. })]));
    }

    #[test]
    fn missing_readings_reject_no_round() {
        let rounds = vec![vec![None, at(1980, 0)], vec![None, None], vec![Some(Sample::default())]];
        assert_eq!(disturbed(&rounds), []);
    }
}
